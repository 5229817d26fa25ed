//! Consumer groups through the shard's own entry points: what Kafka answered to the same requests, and
//! what holds for any sequence of them.

mod kafka;
mod mixed;
mod random;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::messages::{RequestBody, ResponseBody};
use protocol::{ErrorCode, Offset, Uuid};
use replication::time::{Instant, Now};

use super::group::ConsumerGroup;
use crate::record::Record;
use crate::shard::{Answer, Caller, Output, Shard, ShardConfig, Token, Topics};

/// How many random histories to try: `PROPTEST_CASES`, or these.
pub(super) fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Topics by name: id and partitions.
#[derive(Clone, Default)]
pub(super) struct Cluster {
    pub topics: BTreeMap<String, (Uuid, i32)>,
    pub version: u64,
    /// Configs of all groups.
    pub configs: BTreeMap<String, String>,
}

impl Cluster {
    /// Adds a topic, or gives it more partitions.
    pub(super) fn put(&mut self, name: &str, partitions: i32) {
        let mut id = [0; 16];
        id[..name.len()].copy_from_slice(name.as_bytes());
        self.topics.insert(name.to_owned(), (Uuid(id), partitions));
        self.version += 1;
    }
}

impl Topics for Cluster {
    fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.topics.get(name).map(|(id, _)| *id)
    }

    fn topic_name(&self, id: Uuid) -> Option<String> {
        self.topics.iter().find(|(_, (known, _))| *known == id).map(|(name, _)| name.clone())
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

    fn group_config(&self, _group: &str, key: &str) -> Option<String> {
        self.configs.get(key).cloned()
    }
}

/// A shard and a log that takes everything at once, or refuses it.
pub(super) struct Host {
    pub shard: Shard,
    pub config: ShardConfig,
    pub cluster: Cluster,
    pub now: Now,
    pub log: Vec<Record>,
    /// The next write fails.
    pub fail_next: bool,
    answers: BTreeMap<Token, ResponseBody>,
    next_token: u64,
    loads: u64,
}

impl Host {
    pub(super) fn new(config: ShardConfig, cluster: Cluster) -> Host {
        let now = Now { monotonic: Instant::ZERO, wall_clock_ms: 1_700_000_000_000 };
        let mut shard = Shard::new(config.clone(), 1);
        assert!(shard.on_loaded(&cluster, now).is_empty());
        Host {
            shard,
            config,
            cluster,
            now,
            log: Vec::new(),
            fail_next: false,
            answers: BTreeMap::new(),
            next_token: 0,
            loads: 1,
        }
    }

    /// Sends a request; `None` while its answer is awaited.
    pub(super) fn send(
        &mut self,
        version: i16,
        request: impl Into<RequestBody>,
    ) -> (Token, Option<ResponseBody>) {
        let caller = Caller { client_id: "probe".to_owned(), client_host: "/127.0.0.1".to_owned() };
        let token = Token(self.next_token);
        self.next_token += 1;
        let output =
            self.shard.on_request(token, &caller, version, request.into(), &self.cluster, self.now);
        self.perform(output);
        (token, self.answers.remove(&token))
    }

    /// The answer to a request that had to wait.
    pub(super) fn take_answer(&mut self, token: Token) -> Option<ResponseBody> {
        self.answers.remove(&token)
    }

    /// Lets time pass, with everything that comes due on the way.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.monotonic + time;
        while let Some(at) = self.shard.next_deadline().filter(|at| *at <= end) {
            self.set_clock(at.max(self.now.monotonic));
            let output = self.shard.on_tick(&self.cluster, self.now);
            self.perform(output);
        }
        self.set_clock(end);
    }

    fn set_clock(&mut self, at: Instant) {
        let passed = at.since(self.now.monotonic);
        self.now.monotonic = at;
        self.now.wall_clock_ms += i64::try_from(passed.as_millis()).expect("a short time");
    }

    fn perform(&mut self, output: Output) {
        let mut outputs = std::collections::VecDeque::from([output]);
        while let Some(output) = outputs.pop_front() {
            for write in output.writes {
                assert!(!write.records.is_empty());
                outputs.push_back(if std::mem::take(&mut self.fail_next) {
                    let error = ErrorCode::NotEnoughReplicas;
                    self.shard.on_write_failed(write, error, &self.cluster, self.now)
                } else {
                    let base = Offset(self.log.len() as i64);
                    self.log.extend(write.records.iter().cloned());
                    let ms = self.now.wall_clock_ms;
                    self.shard.on_written(write, base, ms, &self.cluster, self.now)
                });
            }
            for Answer { token, response, seen } in output.answers {
                assert!(seen.is_none_or(|seen| seen.0 < self.log.len() as i64));
                assert!(self.answers.insert(token, response).is_none(), "two answers");
            }
        }
    }

    /// Another broker takes over: the log is loaded, everything soft is lost.
    pub(super) fn reload(&mut self) {
        self.answers.extend(self.shard.on_unloaded().into_iter().map(|a| (a.token, a.response)));
        self.loads += 1;
        self.shard = loaded(&self.config, self.loads, &self.log);
        let output = self.shard.on_loaded(&self.cluster, self.now);
        self.perform(output);
    }

    pub(super) fn group(&self, id: &str) -> Option<&ConsumerGroup> {
        self.shard.groups().get(id)?.as_consumer()
    }

    /// The hard state of all consumer groups is what the log says, compacted or not.
    pub(super) fn assert_replay_equals_live(&self) {
        let live = consumer_groups(&self.shard);
        let replayed = loaded(&self.config, 0, &self.log);
        assert_eq!(consumer_groups(&replayed), live, "the log replayed");
        let compacted = loaded(&self.config, 0, &compacted(&self.log));
        assert_eq!(consumer_groups(&compacted), live, "the compacted log replayed");
    }
}

/// A shard that has read these records.
fn loaded(config: &ShardConfig, seed: u64, log: &[Record]) -> Shard {
    let mut shard = Shard::new(config.clone(), seed);
    for (at, record) in (0..).zip(log) {
        let (key, value) = record.encode().expect("a record that can be written");
        let read = Record::decode(key, value).expect("a readable record").expect("a known kind");
        assert_eq!(read, *record);
        shard.replay(&read, Offset(at), 0);
    }
    shard
}

/// What the cleaner leaves: the last record of each key, and no tombstones.
fn compacted(log: &[Record]) -> Vec<Record> {
    let mut last: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for (at, record) in log.iter().enumerate() {
        let (key, _) = record.encode().expect("a record that can be written");
        last.insert(key.to_vec(), at);
    }
    let mut kept: Vec<usize> = last.into_values().collect();
    kept.sort_unstable();
    kept.into_iter()
        .map(|at| log[at].clone())
        .filter(|record| record.encode().is_ok_and(|(_, value)| value.is_some()))
        .collect()
}

/// The consumer groups without what is soft.
fn consumer_groups(shard: &Shard) -> BTreeMap<Arc<str>, ConsumerGroup> {
    shard
        .groups()
        .iter()
        .filter_map(|(id, group)| {
            let mut group = group.as_consumer()?.clone();
            group.checked = None;
            Some((id.clone(), group))
        })
        .collect()
}
