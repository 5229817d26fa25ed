//! A consumer of one partition from its leader: it reads on from where it is, in a fetch session, looks for the leader
//! when it has lost it, and asks for the latest offset now and then (KIP-207).

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::{FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse};
use protocol::records::{Batches, ReadBuffer};
use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset, ResponseBody, SessionId, TopicIdPartition};
use replication::fetch_session::{
    FetchSessionHandler, PartitionFetch, PartitionKey, ResponseVerdict, TopicKey,
};

use super::{Effect, LeaderView, PATIENCE};

const FETCH_VERSION: i16 = 17;
const LIST_OFFSETS_VERSION: i16 = 8;
const PAUSE: Duration = Duration::from_millis(50);
const LATEST: i64 = -1;
const MAX_RECORDS_BYTES: usize = 1 << 20;

/// How a consumer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerSettings {
    /// The longest wait of a fetch.
    pub max_wait: Duration,
    /// The pause after an answer.
    pub interval: Duration,
    /// After so many fetches it asks for the latest offset; 0 for never.
    pub latest_every: u32,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(200),
            interval: Duration::from_millis(20),
            latest_every: 5,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Metadata,
    Fetch,
    Latest,
}

/// A consumer.
#[derive(Debug)]
pub struct SimConsumer {
    id: u32,
    view: LeaderView,
    settings: ConsumerSettings,
    offset: Offset,
    /// The epoch of the last record read.
    last_epoch: LeaderEpoch,
    /// Grows when the position was set back by the cluster.
    assignment: u32,
    fetches: u32,
    waiting: Waiting,
    records: Vec<(Offset, Bytes)>,
    /// With the broker it asked last.
    session: (NodeId, FetchSessionHandler),
}

impl SimConsumer {
    pub(super) fn new(id: u32, view: LeaderView, settings: ConsumerSettings) -> Self {
        Self {
            id,
            view,
            settings,
            offset: Offset::ZERO,
            last_epoch: LeaderEpoch::NONE,
            assignment: 0,
            fetches: 0,
            waiting: Waiting::Nothing,
            records: Vec::new(),
            session: (NodeId::NONE, FetchSessionHandler::new()),
        }
    }

    pub(super) fn partition(&self) -> &TopicIdPartition {
        &self.view.partition
    }

    /// The next offset it reads.
    pub fn position(&self) -> Offset {
        self.offset
    }

    /// What it read.
    pub fn records(&self) -> &[(Offset, Bytes)] {
        &self.records
    }

    pub(super) fn on_wake(&mut self) -> Vec<Effect> {
        if self.waiting != Waiting::Nothing {
            return Vec::new();
        }
        let Some(leader) = self.view.leader() else {
            self.waiting = Waiting::Metadata;
            return vec![self.view.ask()];
        };
        self.fetches += 1;
        if self.settings.latest_every > 0 && self.fetches.is_multiple_of(self.settings.latest_every)
        {
            return self.ask_latest(leader);
        }
        self.fetch(leader)
    }

    fn fetch(&mut self, leader: NodeId) -> Vec<Effect> {
        self.waiting = Waiting::Fetch;
        if self.session.0 != leader {
            self.session = (leader, FetchSessionHandler::new());
        }
        let topic = TopicKey::Id(self.view.partition.topic_id);
        let partition = self.view.partition.topic_partition.partition;
        let wanted = PartitionFetch {
            fetch_offset: self.offset,
            log_start_offset: Offset::NONE,
            max_bytes: 1 << 20,
            current_leader_epoch: self.view.epoch,
            last_fetched_epoch: self.last_epoch,
        };
        let session = &mut self.session.1;
        session.set(PartitionKey { topic, partition }, wanted);
        let fetch = session.build();
        let named = fetch.to_send.iter().map(|(key, wanted)| FetchTopic {
            topic_id: self.view.partition.topic_id,
            partitions: vec![FetchPartition {
                partition: key.partition,
                current_leader_epoch: wanted.current_leader_epoch.get(),
                fetch_offset: wanted.fetch_offset.get(),
                last_fetched_epoch: wanted.last_fetched_epoch.get(),
                log_start_offset: wanted.log_start_offset.get(),
                partition_max_bytes: wanted.max_bytes,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        });
        let request = FetchRequest {
            max_wait_ms: self.settings.max_wait.as_millis() as i32,
            min_bytes: 1,
            max_bytes: 1 << 20,
            session_id: fetch.metadata.id.get(),
            session_epoch: fetch.metadata.epoch.get(),
            topics: named.collect(),
            ..FetchRequest::default()
        };
        vec![Effect::Send {
            to: leader,
            version: FETCH_VERSION,
            body: request.into(),
            timeout: PATIENCE + self.settings.max_wait,
        }]
    }

    fn ask_latest(&mut self, leader: NodeId) -> Vec<Effect> {
        self.waiting = Waiting::Latest;
        let partition = &self.view.partition.topic_partition;
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: partition.topic.to_string(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: partition.partition,
                    current_leader_epoch: self.view.epoch.get(),
                    timestamp: LATEST,
                    ..ListOffsetsPartition::default()
                }],
                ..ListOffsetsTopic::default()
            }],
            ..ListOffsetsRequest::default()
        };
        let (version, timeout) = (LIST_OFFSETS_VERSION, PATIENCE);
        vec![Effect::Send { to: leader, version, body: request.into(), timeout }]
    }

    pub(super) fn on_answer(&mut self, answer: Option<ResponseBody>) -> Vec<Effect> {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Metadata => match answer {
                Some(ResponseBody::Metadata(response)) if self.view.learn(&response) => {
                    self.on_wake()
                }
                _ => vec![Effect::Sleep(PAUSE)],
            },
            Waiting::Fetch => match answer {
                Some(ResponseBody::Fetch(response)) => self.on_fetched(response),
                _ => {
                    self.session.1.on_failure();
                    self.lost_leader()
                }
            },
            Waiting::Latest => match answer {
                Some(ResponseBody::ListOffsets(response)) => self.on_latest(&response),
                _ => self.lost_leader(),
            },
            Waiting::Nothing => Vec::new(),
        }
    }

    fn lost_leader(&mut self) -> Vec<Effect> {
        self.view.forget();
        vec![Effect::Sleep(PAUSE)]
    }

    fn on_latest(&mut self, response: &ListOffsetsResponse) -> Vec<Effect> {
        let answered = response.topics.first().and_then(|topic| topic.partitions.first());
        match answered {
            Some(answered) if answered.error_code == 0 => {
                let latest =
                    Effect::Latest(LeaderEpoch(answered.leader_epoch), Offset(answered.offset));
                vec![latest, Effect::Sleep(self.settings.interval)]
            }
            Some(answered)
                if ErrorCode::from_code(answered.error_code) == ErrorCode::OffsetNotAvailable =>
            {
                vec![Effect::Sleep(self.settings.interval)]
            }
            _ => self.lost_leader(),
        }
    }

    fn on_fetched(&mut self, response: FetchResponse) -> Vec<Effect> {
        let told = response.responses.iter().flat_map(|topic| {
            let key = |partition: &PartitionData| PartitionKey {
                topic: TopicKey::Id(topic.topic_id),
                partition: partition.partition_index,
            };
            topic.partitions.iter().map(key)
        });
        let told: Vec<PartitionKey> = told.collect();
        let verdict = self.session.1.on_response(
            response.error_code,
            SessionId(response.session_id),
            false,
            told.iter(),
        );
        if verdict == ResponseVerdict::Reset {
            return vec![Effect::Sleep(PAUSE)];
        }
        let answered = response
            .responses
            .into_iter()
            .next()
            .and_then(|topic| topic.partitions.into_iter().next());
        // Within a session no news are no partition.
        let Some(data) = answered else {
            return vec![Effect::Sleep(self.settings.interval)];
        };
        match ErrorCode::from_code(data.error_code) {
            ErrorCode::None if data.diverging_epoch.epoch >= 0 => {
                let lost = Effect::OutOfRange(self.offset);
                self.assignment += 1;
                self.offset = Offset(data.diverging_epoch.end_offset).min(self.offset);
                self.last_epoch = LeaderEpoch(data.diverging_epoch.epoch);
                vec![lost, Effect::Sleep(PAUSE)]
            }
            ErrorCode::None => self.on_data(data),
            ErrorCode::OffsetOutOfRange => {
                let lost = Effect::OutOfRange(self.offset);
                self.assignment += 1;
                self.offset = Offset::ZERO;
                self.last_epoch = LeaderEpoch::NONE;
                vec![lost, Effect::Sleep(PAUSE)]
            }
            _ => self.lost_leader(),
        }
    }

    fn on_data(&mut self, data: PartitionData) -> Vec<Effect> {
        let bytes = data.records.and_then(|records| records.read().ok()).unwrap_or_default();
        let mut batch_bases = Vec::new();
        let mut records = Vec::new();
        let mut buffer = ReadBuffer::default();
        let mut next = self.offset;
        for batch in Batches::new(bytes) {
            let Ok(batch) = batch else { break };
            let view = batch.view();
            // As real clients do: what does not match its checksum is not read, and asked for again.
            if view.check_crc().is_err() {
                break;
            }
            let header = view.header();
            batch_bases.push(header.base_offset());
            next = header.next_offset();
            self.last_epoch = header.partition_leader_epoch();
            let Ok(read) = view.records(&mut buffer, MAX_RECORDS_BYTES) else { break };
            for record in read.flatten().filter(|record| record.offset >= self.offset) {
                let value = Bytes::copy_from_slice(record.value.unwrap_or_default());
                records.push((record.offset, value));
            }
        }
        self.offset = next;
        self.records.extend(records.iter().cloned());
        let read = Effect::Read {
            consumer: (self.id, self.assignment),
            high_watermark: Offset(data.high_watermark),
            batch_bases,
            records,
        };
        vec![read, Effect::Sleep(self.settings.interval)]
    }
}
