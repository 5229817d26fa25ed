//! A replica's log and a leader's log as lists of batches, and a pump between them.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use fetcher::{
    FetcherConfig, FetcherCore, FetcherRequest, FetcherResponse, FollowAssignment, LeaderData,
    PartitionFailure, ReplicaAccess, ReplicaError, ReplicaLog,
};
use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::fetch_response::{
    EpochEndOffset as WireEnd, FetchableTopicResponse, PartitionData,
};
use protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use protocol::messages::{FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse};
use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, Records, TopicIdPartition, TopicPartition, Uuid,
};
use replication::time::Instant;
use replication::trace::Event;
use replication::truncation::{FollowerLog, Truncation, decide_truncation};
use replication::{EpochEndOffset, LeaderEpochCache};
use std::sync::Mutex;
use std::time::Duration;

pub const TOPIC: Uuid = Uuid([7; 16]);

pub fn at(ms: u64) -> Instant {
    Instant(Duration::from_millis(ms))
}

pub fn tip(partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: TOPIC, topic_partition: TopicPartition::new("t", partition) }
}

pub fn assignment(partition: i32, epoch: i32) -> FollowAssignment {
    FollowAssignment { partition: tip(partition), leader_epoch: LeaderEpoch(epoch) }
}

/// (first offset, last offset, epoch).
pub type Batch = (i64, i64, i32);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    pub start: i64,
    pub end: i64,
    pub high_watermark: i64,
    pub batches: Vec<Batch>,
    /// An epoch opened at the end of the log without a batch yet.
    pub opened: Option<i32>,
}

impl Log {
    /// One batch per (epoch, count), from offset 0.
    pub fn of(runs: &[(i32, i64)]) -> Log {
        let mut log = Log::default();
        for (epoch, count) in runs {
            for _ in 0..*count {
                log.batches.push((log.end, log.end, *epoch));
                log.end += 1;
            }
        }
        log
    }

    pub fn cache(&self) -> LeaderEpochCache {
        let mut cache = LeaderEpochCache::new();
        for (first, _, epoch) in &self.batches {
            cache.assign(LeaderEpoch(*epoch), Offset((*first).max(self.start)));
        }
        if let Some(epoch) = self.opened {
            cache.assign(LeaderEpoch(epoch), Offset(self.end));
        }
        cache
    }

    pub fn truncate(&mut self, end: i64) {
        self.batches.retain(|(_, last, _)| *last < end);
        self.end = self.end.min(end);
        self.high_watermark = self.high_watermark.min(self.end);
    }
}

fn encode(batches: &[Batch]) -> Bytes {
    let mut out = BytesMut::new();
    for (first, last, epoch) in batches {
        out.put_i64(*first);
        out.put_i64(*last);
        out.put_i32(*epoch);
    }
    out.freeze()
}

fn decode(mut bytes: Bytes) -> Vec<Batch> {
    let mut batches = Vec::new();
    while bytes.has_remaining() {
        batches.push((bytes.get_i64(), bytes.get_i64(), bytes.get_i32()));
    }
    batches
}

/// This broker's replicas: partition n is `logs[n]`.
#[derive(Default)]
pub struct Replicas {
    pub logs: Mutex<Vec<Log>>,
    pub calls: Mutex<Vec<String>>,
    pub events: Mutex<Vec<Event>>,
    pub next_error: Mutex<Option<ReplicaError>>,
}

impl Replicas {
    pub fn with(logs: Vec<Log>) -> Replicas {
        Replicas { logs: Mutex::new(logs), ..Default::default() }
    }

    pub fn log_of(&self, partition: usize) -> Log {
        self.logs.lock().unwrap()[partition].clone()
    }

    /// What the fetcher told the trace since the last time, each as its line.
    pub fn take_events(&self) -> Vec<String> {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        events.iter().map(ToString::to_string).collect()
    }

    pub fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn on<T>(&self, partition: &TopicIdPartition, act: impl FnOnce(&mut Log) -> T) -> T {
        let index = partition.topic_partition.partition as usize;
        act(&mut self.logs.lock().unwrap()[index])
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }
}

impl ReplicaAccess for Replicas {
    fn log(&self, partition: &TopicIdPartition) -> Result<ReplicaLog, ReplicaError> {
        Ok(self.on(partition, |log| ReplicaLog {
            log_start_offset: Offset(log.start),
            log_end_offset: Offset(log.end),
            high_watermark: Offset(log.high_watermark),
            latest_epoch: log.cache().latest_epoch(),
        }))
    }

    fn decide_truncation(
        &self,
        partition: &TopicIdPartition,
        diverging: EpochEndOffset,
    ) -> Result<Truncation, ReplicaError> {
        Ok(self.on(partition, |log| {
            let epochs = log.cache();
            let follower = FollowerLog {
                epochs: &epochs,
                log_end: Offset(log.end),
                high_watermark: Offset(log.high_watermark),
            };
            decide_truncation(diverging, &follower)
        }))
    }

    fn truncate_to(
        &self,
        partition: &TopicIdPartition,
        _: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError> {
        self.note(format!("truncate {offset}"));
        self.on(partition, |log| log.truncate(offset.get()));
        Ok(())
    }

    fn truncate_fully_and_start_at(
        &self,
        partition: &TopicIdPartition,
        _: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError> {
        self.note(format!("start at {offset}"));
        let offset = offset.get();
        self.on(partition, |log| {
            *log = Log { start: offset, end: offset, high_watermark: offset, ..Default::default() };
        });
        Ok(())
    }

    fn append_from_leader(
        &self,
        partition: &TopicIdPartition,
        data: LeaderData,
    ) -> Result<ReplicaLog, ReplicaError> {
        if let Some(error) = self.next_error.lock().unwrap().take() {
            return Err(error);
        }
        let batches = decode(data.records.read().unwrap());
        if !batches.is_empty() {
            self.note(format!("append {:?}", batches));
        }
        self.on(partition, |log| {
            assert_eq!(
                log.end,
                data.fetch_offset.get(),
                "an append that does not continue the log"
            );
            for batch in batches {
                let fits = batch.0 == log.end || (log.batches.is_empty() && batch.1 >= log.end);
                assert!(fits, "{batch:?} after {log:?}");
                log.end = batch.1 + 1;
                log.batches.push(batch);
            }
            log.high_watermark = data.high_watermark.get().min(log.end).max(log.high_watermark);
            log.start = log.start.max(data.log_start_offset.get().min(log.high_watermark));
        });
        self.log(partition)
    }

    fn trace(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn on_partition_failed(&self, partition: &TopicIdPartition, failure: &PartitionFailure) {
        self.note(format!("failed {}: {failure}", partition.topic_partition.partition));
    }
}

/// The leader's logs: partition n is `logs[n]`, led at `epoch`.
pub struct Leader {
    pub epoch: i32,
    pub logs: Vec<Log>,
}

impl Leader {
    pub fn new(epoch: i32, logs: Vec<Log>) -> Leader {
        let logs = logs.into_iter().map(|log| Log { opened: Some(epoch), ..log }).collect();
        Leader { epoch, logs }
    }

    pub fn answer(&self, request: &FetcherRequest) -> FetcherResponse {
        match request {
            FetcherRequest::Fetch(fetch) => FetcherResponse::Fetch(self.fetch(fetch)),
            FetcherRequest::ListOffsets(list) => FetcherResponse::ListOffsets(self.list(list)),
        }
    }

    /// Answers all that the request names; without a session, so every request is full.
    pub fn fetch(&self, request: &FetchRequest) -> FetchResponse {
        let responses = request
            .topics
            .iter()
            .map(|topic| FetchableTopicResponse {
                topic_id: topic.topic_id,
                partitions: topic.partitions.iter().map(|asked| self.partition(asked)).collect(),
                ..Default::default()
            })
            .collect();
        FetchResponse { responses, ..Default::default() }
    }

    fn partition(&self, asked: &FetchPartition) -> PartitionData {
        let log = &self.logs[asked.partition as usize];
        let mut data = PartitionData {
            partition_index: asked.partition,
            high_watermark: log.high_watermark,
            log_start_offset: log.start,
            records: Some(Records::empty()),
            ..Default::default()
        };
        let error = match asked.current_leader_epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Less => 74,
            std::cmp::Ordering::Greater => 75,
            std::cmp::Ordering::Equal if asked.fetch_offset < log.start => 1,
            std::cmp::Ordering::Equal => 0,
        };
        if error != 0 {
            return error_data(asked.partition, error);
        }
        if asked.last_fetched_epoch >= 0 {
            let asked_epoch = LeaderEpoch(asked.last_fetched_epoch);
            let own = log.cache().end_offset_for(asked_epoch, Offset(log.end));
            if own.epoch < asked_epoch || own.end_offset.get() < asked.fetch_offset {
                data.diverging_epoch = WireEnd {
                    epoch: own.epoch.get(),
                    end_offset: own.end_offset.get(),
                    ..Default::default()
                };
                return data;
            }
        }
        if asked.fetch_offset > log.end {
            return error_data(asked.partition, 1);
        }
        let batches: Vec<Batch> =
            log.batches.iter().filter(|batch| batch.1 >= asked.fetch_offset).copied().collect();
        data.records = Some(Records::Bytes(encode(&batches)));
        data
    }

    pub fn list(&self, request: &ListOffsetsRequest) -> ListOffsetsResponse {
        let answer =
            |partition: &protocol::messages::list_offsets_request::ListOffsetsPartition| {
                let log = &self.logs[partition.partition_index as usize];
                ListOffsetsPartitionResponse {
                    partition_index: partition.partition_index,
                    error_code: if partition.current_leader_epoch < self.epoch { 74 } else { 0 },
                    offset: if partition.timestamp == -1 { log.end } else { log.start },
                    ..Default::default()
                }
            };
        let topics = request
            .topics
            .iter()
            .map(|topic| ListOffsetsTopicResponse {
                name: topic.name.clone(),
                partitions: topic.partitions.iter().map(answer).collect(),
                ..Default::default()
            })
            .collect();
        ListOffsetsResponse { topics, ..Default::default() }
    }
}

pub fn error_data(partition: i32, error_code: i16) -> PartitionData {
    PartitionData {
        partition_index: partition,
        error_code,
        high_watermark: -1,
        log_start_offset: -1,
        records: Some(Records::empty()),
        ..Default::default()
    }
}

pub fn core() -> FetcherCore {
    FetcherCore::new(NodeId(1), 0, FetcherConfig::new(NodeId(2)))
}

pub fn poll(core: &mut FetcherCore, replicas: &Replicas, now: Instant) -> Option<FetcherRequest> {
    core.poll(replicas, BrokerEpoch(5), now)
}

pub fn poll_fetch(core: &mut FetcherCore, replicas: &Replicas, now: Instant) -> FetchRequest {
    match poll(core, replicas, now) {
        Some(FetcherRequest::Fetch(fetch)) => fetch,
        other => panic!("a fetch was due, not {other:?}"),
    }
}

/// (partition, fetch offset, last fetched epoch) of all partitions of a request.
pub fn asked(request: &FetchRequest) -> Vec<(i32, i64, i32)> {
    let partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|p| (p.partition, p.fetch_offset, p.last_fetched_epoch)).collect()
}

/// One round trip.
pub fn round(
    core: &mut FetcherCore,
    replicas: &Replicas,
    leader: &Leader,
    now: Instant,
) -> FetcherRequest {
    let request = poll(core, replicas, now).expect("a request is due");
    core.on_response(replicas, leader.answer(&request), now);
    request
}
