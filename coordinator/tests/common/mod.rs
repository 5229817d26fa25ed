//! A host for one shard: a log in memory, a clock that the test moves, and topics by hand. Records go
//! through their bytes, so that every test tries the codec too. Answers that wait for the high watermark
//! are given at once, unless the test holds the watermark back.

#![allow(dead_code)] // each test file uses its own part

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use coordinator::{
    Answer, Caller, Output, Record, Shard, ShardConfig, Token, Topics, Write, fail_response,
};
use protocol::{ErrorCode, Offset, Request, RequestBody, ResponseBody, Uuid};
use replication::time::{Instant, Now};

/// Where the wall clock of the tests begins.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;

/// Topics with their ids and partition counts.
#[derive(Clone, Default, Debug)]
pub(crate) struct TestTopics {
    pub topics: BTreeMap<String, (Uuid, i32)>,
    pub version: u64,
}

impl TestTopics {
    pub fn create(&mut self, name: &str, id: u8, partitions: i32) -> Uuid {
        let id = Uuid([id; 16]);
        self.topics.insert(name.to_owned(), (id, partitions));
        self.version += 1;
        id
    }

    pub fn delete(&mut self, name: &str) {
        self.topics.remove(name);
        self.version += 1;
    }
}

impl Topics for TestTopics {
    fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.topics.get(name).map(|(id, _)| *id)
    }

    fn topic_name(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, (own, _))| *own == id).map(|(name, _)| name.clone())
    }

    fn partition_count(&self, name: &str) -> Option<i32> {
        self.topics.get(name).map(|(_, count)| *count)
    }

    fn racks(&self, _name: &str, _partition: i32) -> Vec<String> {
        Vec::new()
    }

    fn names(&self) -> Vec<String> {
        self.topics.keys().cloned().collect()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn group_config(&self, _group: &str, _key: &str) -> Option<String> {
        None
    }
}

/// One shard with its host.
pub(crate) struct World {
    pub shard: Shard,
    pub config: ShardConfig,
    pub topics: TestTopics,
    pub log: Vec<(Record, i64)>,
    /// Sizes of the batches, in order.
    pub batches: Vec<usize>,
    pub clock: Duration,
    pub answers: BTreeMap<u64, ResponseBody>,
    pub parked: Vec<Answer>,
    /// Answers wait for this offset to be passed; `None` lets all pass.
    pub high_watermark: Option<i64>,
    /// The next writes fail with these, in order; `None` lets one pass.
    pub failures: VecDeque<Option<ErrorCode>>,
    /// Groups of which something could not be written that the shard keeps all the same.
    pub unwritten: BTreeSet<String>,
    pub seed: u64,
    next_token: u64,
}

/// An initial rebalance delay of 300 ms and topic `t1` with two partitions.
pub(crate) fn world() -> World {
    World::new(ShardConfig {
        initial_rebalance_delay: Duration::from_millis(300),
        ..ShardConfig::default()
    })
}

impl World {
    pub fn new(config: ShardConfig) -> World {
        let mut topics = TestTopics::default();
        topics.create("t1", 1, 2);
        let mut world = World {
            shard: Shard::new(config.clone(), 1),
            config,
            topics,
            log: Vec::new(),
            batches: Vec::new(),
            clock: Duration::from_secs(1),
            answers: BTreeMap::new(),
            parked: Vec::new(),
            high_watermark: None,
            failures: VecDeque::new(),
            unwritten: BTreeSet::new(),
            seed: 1,
            next_token: 0,
        };
        let output = world.shard.on_loaded(&world.topics, world.now());
        world.carry_out(output);
        world
    }

    pub fn now(&self) -> Now {
        Now { monotonic: Instant(self.clock), wall_clock_ms: self.now_ms() }
    }

    pub fn now_ms(&self) -> i64 {
        EPOCH_MS + i64::try_from(self.clock.as_millis()).expect("a short test")
    }

    /// Sends a request; its answer may come later.
    pub fn send(&mut self, version: i16, request: impl Into<RequestBody>) -> u64 {
        self.send_as("client", version, request)
    }

    pub fn send_as(
        &mut self,
        client_id: &str,
        version: i16,
        request: impl Into<RequestBody>,
    ) -> u64 {
        // Through bytes, as a client's request comes; every request must be one that can be written.
        let request: RequestBody = request.into();
        let bytes = request.to_bytes(version).expect("a request of this version");
        let request = RequestBody::from_bytes(request.api_key(), version, bytes).expect("readable");
        self.next_token += 1;
        let token = self.next_token;
        let caller =
            Caller { client_id: client_id.to_owned(), client_host: "/127.0.0.1".to_owned() };
        let now = self.now();
        let output =
            self.shard.on_request(Token(token), &caller, version, request, &self.topics, now);
        self.carry_out(output);
        token
    }

    /// Sends a request that is answered at once.
    pub fn call<R: Request>(&mut self, version: i16, request: R) -> R::Response {
        let token = self.send(version, request);
        self.take::<R>(version, token).expect("an answer at once")
    }

    /// The answer to an earlier request, if it is there; it must be one that can be written.
    pub fn take<R: Request>(&mut self, version: i16, token: u64) -> Option<R::Response> {
        let response = self.answers.remove(&token)?;
        let bytes = response.to_bytes(version).expect("an answer of this version");
        let response = ResponseBody::from_bytes(R::KEY, version, bytes).expect("readable");
        R::Response::try_from(response).ok()
    }

    /// Lets time pass; timers come at their times.
    pub fn pass_ms(&mut self, ms: u64) {
        let end = self.clock + Duration::from_millis(ms);
        while let Some(Instant(at)) = self.shard.next_deadline() {
            if at > end {
                break;
            }
            self.clock = self.clock.max(at);
            let output = self.shard.on_tick(&self.topics, self.now());
            self.carry_out(output);
        }
        self.clock = end;
    }

    pub fn topics_changed(&mut self) {
        let output = self.shard.on_topics_changed(&self.topics, self.now());
        self.carry_out(output);
    }

    /// What a host does with an output.
    pub fn carry_out(&mut self, output: Output) {
        let mut writes: VecDeque<Write> = VecDeque::new();
        let mut next = Some(output);
        loop {
            if let Some(output) = next.take() {
                writes.extend(output.writes);
                for answer in output.answers {
                    self.deliver(answer);
                }
            }
            let Some(write) = writes.pop_front() else { return };
            next = Some(self.append(write));
        }
    }

    fn append(&mut self, write: Write) -> Output {
        assert!(!write.records.is_empty(), "a write without records");
        let now = self.now();
        let groups: Vec<String> =
            write.records.iter().map(|record| record.group().to_owned()).collect();
        if let Some(error) = self.failures.pop_front().flatten() {
            self.unwritten.extend(groups);
            return self.shard.on_write_failed(write, error, &self.topics, now);
        }
        let base = Offset(i64::try_from(self.log.len()).expect("a short log"));
        self.batches.push(write.records.len());
        for record in &write.records {
            let (key, value) = record.encode().expect("a record that can be written");
            let read = Record::decode(key, value).expect("readable").expect("of a known kind");
            assert_eq!(read, *record);
            if matches!(read, Record::GroupMetadata(..)) {
                self.unwritten.remove(record.group());
            }
            self.log.push((read, now.wall_clock_ms));
        }
        self.shard.on_written(write, base, now.wall_clock_ms, &self.topics, now)
    }

    fn deliver(&mut self, answer: Answer) {
        let waits = match (self.high_watermark, answer.seen) {
            (Some(high_watermark), Some(seen)) => seen.get() >= high_watermark,
            _ => false,
        };
        if waits {
            self.parked.push(answer);
        } else {
            let before = self.answers.insert(answer.token.0, answer.response);
            assert!(before.is_none(), "a second answer to {:?}", answer.token);
        }
    }

    pub fn set_high_watermark(&mut self, high_watermark: Option<i64>) {
        self.high_watermark = high_watermark;
        for answer in std::mem::take(&mut self.parked) {
            self.deliver(answer);
        }
    }

    /// Another broker takes over: a new shard from the log.
    pub fn reload(&mut self) {
        for answer in self.shard.on_unloaded() {
            self.deliver(answer);
        }
        self.seed += 1;
        self.shard = replayed(&self.log, self.config.clone(), self.seed);
        let output = self.shard.on_loaded(&self.topics, self.now());
        self.carry_out(output);
    }

    /// The leader fails: what is not committed is lost, and who waited for it is told that another
    /// broker coordinates.
    pub fn fail_over(&mut self) {
        if let Some(high_watermark) = self.high_watermark {
            self.log.truncate(usize::try_from(high_watermark).expect("an offset"));
        }
        for answer in std::mem::take(&mut self.parked) {
            let response = fail_response(9, answer.response, ErrorCode::NotCoordinator);
            self.deliver(Answer { response, seen: None, ..answer });
        }
        self.unwritten.clear();
        self.reload();
    }

    /// The last record written.
    pub fn last_record(&self) -> &Record {
        &self.log.last().expect("a record").0
    }
}

/// A shard that has read these records.
pub(crate) fn replayed(log: &[(Record, i64)], config: ShardConfig, seed: u64) -> Shard {
    let mut shard = Shard::new(config, seed);
    for (at, (record, timestamp_ms)) in (0..).zip(log) {
        shard.replay(record, Offset(at), *timestamp_ms);
    }
    shard
}
