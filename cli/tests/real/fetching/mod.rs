//! Fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords over the wire, with what no client sends: the rules
//! as a real node keeps them. Beside them, what a slow reader gets when files go away (F08), and the lines of the
//! request log.

mod epochs;
mod failing_disk;
mod isolation;
mod limits;
mod offsets;
mod request_log;
mod session_contents;
mod sessions;
mod slow_readers;
mod waiting;
mod waking;

use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::{FetchRequest, FetchResponse};
use protocol::records::Batches;
use protocol::{Records, Uuid};
use testkit::client::{Client, batch_of};
use testkit::real::Cluster;

/// Long enough for every answer that comes at all. A wait of this length that is not waited for is seen.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait of requests that must not wait: as long as the client's patience.
const FOREVER_MS: i32 = 120_000;
/// NOT_LEADER_OR_FOLLOWER.
const NOT_LEADER: i16 = 6;
const NAMES: i16 = 12;
const IDS: i16 = 18;

/// A topic as requests of all versions name it.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    id: Uuid,
}

impl Named {
    fn of(client: &mut Client, name: &str) -> Named {
        Named { name: name.into(), id: client.topic_id(name).expect("a topic") }
    }

    fn with(&self, partitions: Vec<FetchPartition>) -> FetchTopic {
        FetchTopic {
            topic: self.name.clone(),
            topic_id: self.id,
            partitions,
            ..FetchTopic::default()
        }
    }
}

/// A node of its own with one topic.
fn one_node(topic: &str, partitions: usize, settings: &[(&str, &str)]) -> (Cluster, Client, Named) {
    let mut builder = crate::cluster().brokers(1);
    for (key, value) in settings {
        builder = builder.set(key, value);
    }
    let mut cluster = builder.start().expect("a node");
    cluster.create_topic(topic, &vec![&[1][..]; partitions], &[]).expect("a topic");
    wait_until_led(&mut cluster, topic, partitions);
    let mut client = cluster.client(1).expect("a client");
    let named = Named::of(&mut client, topic);
    (cluster, client, named)
}

/// Waits until node 1 itself, not only the metadata, leads the partitions.
fn wait_until_led(cluster: &mut Cluster, topic: &str, partitions: usize) {
    cluster
        .wait_for("the leader to lead", |cluster| {
            let mut client = cluster.client(1)?;
            for partition in 0..partitions as i32 {
                let error = client.list_offset(topic, partition, -1)?.0;
                if error != 0 {
                    return Ok(Err(format!("error {error} of partition {partition}")));
                }
            }
            Ok(Ok(()))
        })
        .expect("a leader");
}

/// A partition from an offset on, without limits.
fn part(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: i32::MAX,
        ..FetchPartition::default()
    }
}

/// A consumer's fetch without session, wait or limits.
fn fetch(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest { min_bytes: 1, max_bytes: i32::MAX, topics, ..FetchRequest::default() }
}

fn bytes_of(data: &PartitionData) -> usize {
    data.records.as_ref().map_or(0, Records::len)
}

/// Partition, error and size of the records, in the order of the answer.
fn rows(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|data| (data.partition_index, data.error_code, bytes_of(data))).collect()
}

/// First and last offset of every batch, each of them whole and with the right checksum.
fn batches_of(data: &PartitionData) -> Vec<(i64, i64)> {
    let bytes =
        data.records.as_ref().map_or_else(Bytes::new, |records| records.read().expect("bytes"));
    let batches = Batches::new(bytes).map(|batch| {
        let batch = batch.expect("a whole batch");
        let view = batch.view();
        view.check_crc().expect("the right checksum");
        (view.header().base_offset().get(), view.header().last_offset().get())
    });
    batches.collect()
}

/// Produces a batch of these values, and tells where it went. A leader that hears of its part only later, or
/// that a busy machine has cost its session, is asked again: it has taken nothing.
fn produce(client: &mut Client, topic: &str, partition: i32, values: &[&[u8]]) -> i64 {
    let batch = batch_of(values).expect("a batch");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let batch = batch.clone();
        let answer = client.produce(topic, partition, -1, batch, PATIENCE).expect("an answer");
        if answer.error_code != NOT_LEADER || Instant::now() > deadline {
            assert_eq!(answer.error_code, 0);
            return answer.base_offset;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The only partition of an answer that failed nowhere at the top.
fn only(response: FetchResponse) -> PartitionData {
    assert_eq!(response.error_code, 0);
    let mut all: Vec<_> =
        response.responses.into_iter().flat_map(|topic| topic.partitions).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}
