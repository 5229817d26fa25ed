//! A producer with one batch at a time: it finds the leader, writes, and on anything but an answer
//! tries again as it is told to. With idempotence it tries until it knows.

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::{InitProducerIdRequest, ProduceRequest, ProduceResponse};
use protocol::records::{BatchBuilder, ProducerStamp};
use protocol::{
    ErrorCode, NodeId, Offset, ProducerEpoch, ProducerId, Records, ResponseBody, TopicIdPartition,
};
use replication::time::Now;

use super::{Effect, LeaderView, PATIENCE};
use crate::history::Act;
use crate::invariants::{SendOutcome, SendRecord};
use crate::sim::random::SimRandom;

const PRODUCE_VERSION: i16 = 12;
const INIT_VERSION: i16 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// How a producer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerSettings {
    /// 0, 1 or -1 (all).
    pub acks: i16,
    /// Whether it numbers its batches, so that it may try again for ever.
    pub idempotent: bool,
    /// Whether it may begin anew under another id when its sequence does not fit the log any more, as
    /// after an unclean election; what it then gave up counts as perhaps written.
    pub may_begin_anew: bool,
    /// How often it tries a batch again without that.
    pub retries: u32,
    /// Records in a batch.
    pub records: usize,
    /// How many keys its records have, as compacted topics want it; 0 for none.
    pub keys: u64,
    /// With keys: one record of so many is a tombstone; 0 for none.
    pub tombstone_one_in: u64,
    /// The pause between batches.
    pub interval: Duration,
    /// How many batches it writes; 0 for as many as there is time for.
    pub batches: u64,
    /// How long the leader may wait for followers.
    pub timeout: Duration,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            acks: -1,
            idempotent: true,
            may_begin_anew: false,
            retries: 0,
            records: 1,
            keys: 0,
            tombstone_one_in: 0,
            interval: Duration::from_millis(40),
            batches: 0,
            timeout: Duration::from_millis(800),
        }
    }
}

#[derive(Clone, Debug)]
struct Batch {
    keys: Vec<Option<Bytes>>,
    /// Empty for a tombstone.
    values: Vec<Bytes>,
    attempts: u32,
    /// Some attempt may have been written.
    perhaps_written: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Metadata,
    ProducerId,
    Produce,
}

/// A producer.
#[derive(Debug)]
pub struct SimProducer {
    id: u32,
    view: LeaderView,
    settings: ProducerSettings,
    producer_id: Option<(ProducerId, ProducerEpoch)>,
    sequence: i32,
    sent: u64,
    batch: Option<Batch>,
    waiting: Waiting,
    quiesced: bool,
    any_node: usize,
    acked: Vec<(Offset, Vec<Bytes>)>,
}

impl SimProducer {
    pub(super) fn new(id: u32, view: LeaderView, settings: ProducerSettings) -> Self {
        Self {
            id,
            any_node: id as usize,
            view,
            settings,
            producer_id: None,
            sequence: 0,
            sent: 0,
            batch: None,
            waiting: Waiting::Nothing,
            quiesced: false,
            acked: Vec::new(),
        }
    }

    pub(super) fn partition(&self) -> &TopicIdPartition {
        &self.view.partition
    }

    pub(super) fn quiesce(&mut self) {
        self.quiesced = true;
    }

    /// Whether it has nothing to write and nothing to learn.
    pub fn is_done(&self) -> bool {
        self.batch.is_none() && (self.quiesced || self.is_finished())
    }

    fn is_finished(&self) -> bool {
        self.settings.batches > 0 && self.sent >= self.settings.batches
    }

    /// The batch that it writes just now.
    pub(super) fn sending(&self) -> Option<Act> {
        self.batch.as_ref().map(|batch| Act::send(self.settings.acks, &batch.values))
    }

    /// What was acknowledged, with its first offsets.
    pub fn acked(&self) -> &[(Offset, Vec<Bytes>)] {
        &self.acked
    }

    pub(super) fn on_wake(&mut self, now: Now) -> Vec<Effect> {
        if self.waiting != Waiting::Nothing {
            return Vec::new();
        }
        if self.batch.is_none() {
            if self.quiesced || self.is_finished() {
                return Vec::new();
            }
            let number = self.sent;
            self.sent += 1;
            let (keys, values) =
                (0..self.settings.records).map(|at| self.record(number, at)).unzip();
            self.batch = Some(Batch { keys, values, attempts: 0, perhaps_written: false });
        }
        self.advance(now)
    }

    /// The key and value of a record. Every value is unique; keys come again in no order.
    fn record(&self, batch: u64, at: usize) -> (Option<Bytes>, Bytes) {
        let value = Bytes::from(format!("p{}-{batch}-{at}", self.id));
        if self.settings.keys == 0 {
            return (None, value);
        }
        let place = u64::from(self.id) << 48 | batch << 8 | at as u64;
        let chance = SimRandom::new(place).below(1 << 32);
        let key = Bytes::from(format!("k{}", chance % self.settings.keys));
        let every = self.settings.tombstone_one_in;
        let is_tombstone = every > 0 && (chance / self.settings.keys).is_multiple_of(every);
        (Some(key), if is_tombstone { Bytes::new() } else { value })
    }

    fn advance(&mut self, now: Now) -> Vec<Effect> {
        if self.settings.idempotent && self.producer_id.is_none() {
            self.waiting = Waiting::ProducerId;
            self.any_node += 1;
            let to = self.view.nodes[self.any_node % self.view.nodes.len()];
            let request = InitProducerIdRequest {
                transactional_id: None,
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let body = request.into();
            return vec![Effect::Send { to, version: INIT_VERSION, body, timeout: PATIENCE * 2 }];
        }
        let Some(leader) = self.view.leader() else {
            self.waiting = Waiting::Metadata;
            return vec![self.view.ask()];
        };
        self.produce(leader, now)
    }

    fn produce(&mut self, leader: NodeId, now: Now) -> Vec<Effect> {
        let Some(batch) = &mut self.batch else {
            return Vec::new();
        };
        batch.attempts += 1;
        let mut builder = BatchBuilder::new(Offset::ZERO);
        if let Some((id, epoch)) = self.producer_id {
            builder = builder.producer(ProducerStamp { id, epoch, base_sequence: self.sequence });
        }
        for (key, value) in batch.keys.iter().zip(&batch.values) {
            let value = Some(&**value).filter(|value| !value.is_empty());
            builder
                .append(now.wall_clock_ms, key.as_deref(), value, [])
                .unwrap_or_else(|error| panic!("a small record fits a batch: {error}"));
        }
        let records =
            builder.build().unwrap_or_else(|error| panic!("a small batch is built: {error}"));
        let partition = &self.view.partition.topic_partition;
        let request = ProduceRequest {
            acks: self.settings.acks,
            timeout_ms: self.settings.timeout.as_millis() as i32,
            topic_data: vec![TopicProduceData {
                name: partition.topic.to_string(),
                partition_data: vec![PartitionProduceData {
                    index: partition.partition,
                    records: Some(Records::Bytes(records)),
                    ..PartitionProduceData::default()
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        self.waiting = Waiting::Produce;
        vec![Effect::Send {
            to: leader,
            version: PRODUCE_VERSION,
            body: request.into(),
            timeout: PATIENCE + self.settings.timeout,
        }]
    }

    pub(super) fn on_answer(&mut self, answer: Option<ResponseBody>, now: Now) -> Vec<Effect> {
        match std::mem::replace(&mut self.waiting, Waiting::Nothing) {
            Waiting::Metadata => match answer {
                Some(ResponseBody::Metadata(response)) if self.view.learn(&response) => {
                    self.advance(now)
                }
                _ => vec![Effect::Sleep(PAUSE)],
            },
            Waiting::ProducerId => match answer {
                Some(ResponseBody::InitProducerId(response)) if response.error_code == 0 => {
                    let id = ProducerId(response.producer_id);
                    self.producer_id = Some((id, ProducerEpoch(response.producer_epoch)));
                    self.advance(now)
                }
                _ => vec![Effect::Sleep(PAUSE)],
            },
            Waiting::Produce => match answer {
                Some(ResponseBody::Produce(response)) => self.on_produced(&response),
                _ if self.settings.acks == 0 => self.end(SendOutcome::Unknown),
                _ => self.on_failure(ErrorCode::NetworkException),
            },
            Waiting::Nothing => Vec::new(),
        }
    }

    fn on_produced(&mut self, response: &ProduceResponse) -> Vec<Effect> {
        let answered =
            response.responses.first().and_then(|topic| topic.partition_responses.first());
        let Some(answered) = answered else {
            return self.on_failure(ErrorCode::UnknownServerError);
        };
        match ErrorCode::from_code(answered.error_code) {
            ErrorCode::None => {
                let base = Offset(answered.base_offset);
                if let Some(batch) = &self.batch {
                    self.acked.push((base, batch.values.clone()));
                }
                self.end(SendOutcome::Acked(base))
            }
            error => self.on_failure(error),
        }
    }

    fn on_failure(&mut self, error: ErrorCode) -> Vec<Effect> {
        self.view.forget();
        let Some(batch) = &mut self.batch else {
            return Vec::new();
        };
        // Refused before anything was appended.
        if error != ErrorCode::NotEnoughReplicas {
            batch.perhaps_written = true;
        }
        let has_lost_its_place = matches!(
            error,
            ErrorCode::OutOfOrderSequenceNumber
                | ErrorCode::UnknownProducerId
                | ErrorCode::InvalidProducerEpoch
        );
        if self.settings.may_begin_anew && has_lost_its_place {
            self.producer_id = None;
            self.sequence = 0;
            return self.end(SendOutcome::Unknown);
        }
        if self.settings.idempotent || batch.attempts <= self.settings.retries {
            return vec![Effect::Sleep(PAUSE)];
        }
        let outcome =
            if batch.perhaps_written { SendOutcome::Unknown } else { SendOutcome::Failed };
        self.end(outcome)
    }

    fn end(&mut self, outcome: SendOutcome) -> Vec<Effect> {
        let Some(batch) = self.batch.take() else {
            return Vec::new();
        };
        if self.producer_id.is_some() {
            self.sequence += batch.values.len() as i32;
        }
        let send = SendRecord {
            producer: self.id,
            partition: self.view.partition.clone(),
            acks: self.settings.acks,
            values: batch.values,
            outcome,
            may_repeat: !self.settings.idempotent && batch.attempts > 1,
        };
        vec![Effect::Sent(send), Effect::Sleep(self.settings.interval)]
    }
}
