//! A consumer that polls in vain again and again is told of every change nevertheless (S04, F04). In builds with
//! debug assertions the broker itself compares each empty answer with a second look.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::records::RemoveTopic;
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::{DeleteRecordsRequest, FetchRequest, FetchResponse};
use protocol::records::ProducerStamp;
use protocol::{TopicPartition, Uuid};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use replication::time::{Instant, Now};

use crate::handlers::testing::{Inbox, TestBroker, answer_of, batch, log_end, produce};

const VERSION: i16 = 17;
const PARTITIONS: i32 = 4;

/// What a reader is told of a partition: error, high watermark, log start.
type Marks = (i16, i64, i64);

/// A consumer with a fetch session.
struct Reader<'a> {
    broker: &'a TestBroker,
    topic_id: Uuid,
    session: (i32, i32),
    /// The next offset of each partition.
    positions: BTreeMap<i32, i64>,
    /// Partitions whose position the session does not know yet.
    moved: Vec<i32>,
    told: BTreeMap<i32, Marks>,
    polls: u64,
}

impl<'a> Reader<'a> {
    fn new(broker: &'a TestBroker, topic_id: Uuid) -> Self {
        let positions = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
        let moved = (0..PARTITIONS).collect();
        Reader {
            broker,
            topic_id,
            session: (0, 0),
            positions,
            moved,
            told: BTreeMap::new(),
            polls: 0,
        }
    }

    fn request(&self, partitions: &[i32], session: (i32, i32), max_wait_ms: i32) -> FetchRequest {
        let partitions = partitions.iter().map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: self.positions[partition],
            partition_max_bytes: 10_000,
            ..FetchPartition::default()
        });
        let topic = FetchTopic {
            topic_id: self.topic_id,
            partitions: partitions.collect(),
            ..FetchTopic::default()
        };
        let is_named = !topic.partitions.is_empty();
        FetchRequest {
            session_id: session.0,
            session_epoch: session.1,
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 100_000,
            topics: is_named.then_some(topic).into_iter().collect(),
            ..FetchRequest::default()
        }
    }

    fn send(&mut self) -> Inbox {
        let moved = std::mem::take(&mut self.moved);
        self.broker.send(VERSION, self.request(&moved, self.session, 500))
    }

    /// Lets the wait end, if it has not, and takes the answer in.
    fn receive(&mut self, inbox: &Inbox) -> usize {
        self.polls += 1;
        let monotonic = Instant(Duration::from_secs(10));
        self.broker.core.replicas.expire(Now { monotonic, wall_clock_ms: 0 });
        let response: FetchResponse = answer_of::<FetchRequest>(inbox, VERSION);
        assert_eq!(response.error_code, 0);
        self.session = (response.session_id, self.session.1 + 1);
        let told: Vec<_> = response.responses.iter().flat_map(|topic| &topic.partitions).collect();
        for told in &told {
            self.told.insert(told.partition_index, marks(told));
            let end = log_end_of(told);
            if end > self.positions[&told.partition_index] {
                self.positions.insert(told.partition_index, end);
                self.moved.push(told.partition_index);
            }
        }
        told.len()
    }

    fn poll(&mut self) -> usize {
        let inbox = self.send();
        self.receive(&inbox)
    }

    /// What a reader without a session is told now.
    fn truth(&self) -> BTreeMap<i32, Marks> {
        let all: Vec<i32> = (0..PARTITIONS).collect();
        let request = self.request(&all, (0, -1), 0);
        let response: FetchResponse = self.broker.ask(VERSION, request);
        let told = response.responses.iter().flat_map(|topic| &topic.partitions);
        told.map(|told| (told.partition_index, marks(told))).collect()
    }
}

fn marks(told: &PartitionData) -> Marks {
    (told.error_code, told.high_watermark, told.log_start_offset)
}

fn log_end_of(told: &PartitionData) -> i64 {
    let bytes = told.records.as_ref().map(|records| records.read().expect("in memory"));
    let bytes = bytes.unwrap_or_default();
    let batches = protocol::records::Batches::new(bytes);
    batches
        .map(|batch| batch.expect("whole").view().header().next_offset().get())
        .max()
        .unwrap_or(0)
}

/// Partitions 0 and 1 have one replica; 2 and 3 have another on broker 2, whose fetches move the high watermark.
fn broker() -> (TestBroker, Uuid) {
    let broker = TestBroker::new();
    let topic_id = broker.add_topic("t", 1, &[(1, &[1]), (1, &[1]), (1, &[1, 2]), (1, &[1, 2])]);
    (broker, topic_id)
}

fn write(broker: &TestBroker, partition: i32) {
    let records = batch(&[1, 2], ProducerStamp::NONE);
    let _answer = broker.send(9, produce(1, "t", &[(partition, records)]));
}

fn delete(broker: &TestBroker, partition: i32, offset: i64) {
    let partitions =
        vec![DeleteRecordsPartition { partition_index: partition, offset, ..Default::default() }];
    let topic = DeleteRecordsTopic { name: "t".into(), partitions, ..Default::default() };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 1, ..Default::default() };
    let _answer = broker.send(2, request);
}

/// Broker 2 tells by a fetch that it has the whole log.
fn follow(broker: &TestBroker, topic_id: Uuid, partition: i32) {
    let mut request = FetchRequest {
        max_bytes: 1000,
        topics: vec![FetchTopic {
            topic_id,
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: log_end(broker, "t", partition),
                log_start_offset: 0,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    request.replica_state.replica_id = 2;
    request.replica_state.replica_epoch = 0;
    let _answer = broker.send(VERSION, request);
}

#[test]
fn polls_in_vain_leave_one_watch_in_the_purgatory_and_a_change_between_two_of_them_is_told() {
    let (broker, topic_id) = broker();
    let mut reader = Reader::new(&broker, topic_id);
    assert_eq!(reader.poll(), 4, "a full answer");
    for _ in 0..50 {
        assert_eq!(reader.poll(), 0);
    }
    let fetches = broker.core.replicas.purgatories()[1].1;
    assert_eq!((fetches.delayed, fetches.watched), (0, 8), "the places of the first two polls");
    write(&broker, 0);
    assert_eq!(reader.poll(), 1, "records");
    assert_eq!((reader.poll(), reader.poll()), (0, 0));
    delete(&broker, 0, 1);
    assert_eq!(reader.poll(), 1, "another log start");
    write(&broker, 2);
    assert_eq!(reader.poll(), 0, "not committed");
    follow(&broker, topic_id, 2);
    assert_eq!(reader.poll(), 1, "committed");
    assert_eq!((reader.poll(), reader.poll()), (0, 0));
    broker.elect(topic_id, 2, 2);
    broker.elect(topic_id, 1, -1);
    while reader.poll() > 0 {}
    assert_eq!(reader.told, reader.truth(), "who follows may be read from");
    broker.apply(&[RemoveTopic { topic_id: Some(topic_id.into()) }.into()]);
    assert_eq!(reader.poll(), 4, "nobody knows them");
    assert_eq!(reader.told[&0].0, 3);
}

#[test]
fn a_poll_in_vain_that_waits_is_woken_by_a_change_of_any_partition() {
    let (broker, topic_id) = broker();
    let mut reader = Reader::new(&broker, topic_id);
    for partition in [3, 1, 0, 2, 0] {
        for _ in 0..3 {
            reader.poll();
        }
        let inbox = reader.send();
        follow(&broker, topic_id, partition);
        assert!(inbox.is_empty());
        write(&broker, partition);
        if partition >= 2 {
            assert!(inbox.is_empty(), "not committed");
            follow(&broker, topic_id, partition);
        }
        assert!(!inbox.is_empty(), "woken by partition {partition}");
        assert_eq!(reader.receive(&inbox), 1);
    }
}

#[test]
fn s04_whatever_changes_between_polls_in_vain_the_reader_knows_what_one_without_a_session_is_told()
{
    for seed in 0..12 {
        let (broker, topic_id) = broker();
        let mut reader = Reader::new(&broker, topic_id);
        let mut random = SmallRng::seed_from_u64(seed);
        let mut vain = 0;
        for step in 0..60 {
            for _ in 0..random.random_range(1..4) {
                vain += usize::from(reader.poll() == 0);
            }
            let inbox = random.random_bool(0.5).then(|| reader.send());
            let partition = random.random_range(0..PARTITIONS);
            match random.random_range(0..7) {
                0 | 1 => write(&broker, partition),
                2 | 3 => follow(&broker, topic_id, partition),
                4 => {
                    let committed = reader.truth()[&partition].1;
                    delete(&broker, partition, random.random_range(0..=committed.max(0)));
                }
                5 => broker.elect(
                    topic_id,
                    partition,
                    *[1, 1, 2, -1].choose(&mut random).expect("one"),
                ),
                _ => broker.set_config(2, "t", "retention.ms", &format!("{}", 100_000 + step)),
            }
            if let Some(inbox) = inbox {
                reader.receive(&inbox);
            }
            // Records that were given move the position, and the next poll tells the marks.
            reader.poll();
            if reader.moved.is_empty() {
                assert_eq!(reader.told, reader.truth(), "seed {seed}, step {step}");
            }
        }
        assert!(vain > 20, "seed {seed}: only {vain} polls were in vain");
    }
}

#[test]
fn s06_a_session_that_is_changed_between_polls_in_vain_is_read_again() {
    let (broker, topic_id) = broker();
    write(&broker, 0);
    write(&broker, 3);
    let mut reader = Reader::new(&broker, topic_id);
    reader.moved.retain(|partition| *partition != 3);
    while reader.poll() > 0 {}
    reader.poll();
    reader.moved.push(3);
    assert_eq!(reader.poll(), 1, "one partition more");
    follow(&broker, topic_id, 3);
    assert_eq!(reader.poll(), 1, "its records");
    while reader.poll() > 0 {}
    reader.poll();
    reader.positions.insert(0, 0);
    reader.moved.push(0);
    assert_eq!(reader.poll(), 1, "records before the place it had");
}

#[test]
fn who_polled_in_vain_and_went_away_keeps_no_partition_that_is_gone() {
    let (broker, topic_id) = broker();
    let mut reader = Reader::new(&broker, topic_id);
    while reader.poll() > 0 {}
    reader.poll();
    reader.poll();
    let partition = broker.core.replicas.partition(&TopicPartition::new("t", 1), topic_id);
    let partition = Arc::downgrade(&partition.expect("here"));
    assert!(partition.upgrade().is_some());
    broker.apply(&[RemoveTopic { topic_id: Some(topic_id.into()) }.into()]);
    assert!(partition.upgrade().is_none(), "its files can go");
}

/// Nothing of this may hold for followers: each fetch tells how far they are (H01).
#[test]
fn a_followers_fetches_are_always_looked_at() {
    let (broker, topic_id) = broker();
    write(&broker, 2);
    for _ in 0..3 {
        follow(&broker, topic_id, 2);
    }
    let reader = Reader::new(&broker, topic_id);
    assert_eq!(reader.truth()[&2], (0, 2, 0));
}
