//! Produce: each partition's batch is checked outside its lock, appended under it, and acknowledged at
//! once (acks 0 and 1) or when every replica that may be in the ISR has it (acks=all: H03, H06, H07).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::records::{
    BatchError, ClientBatchError, ProduceRules, ReadBuffer, RecordError, TimestampType,
    validate_client_batch,
};
use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition};
use replication::PartitionError;
use replication::partition::AckStatus;
use replication::time::Now;
use replication::trace::{Event, Why};
use storage::{AppendInfo, BatchTimestamp, Disk, LeaderAppend, LeaderAppendOptions, LogError};

use super::parked::{DelayedProduce, Parked, WaitingProduce};
use super::{AfterLock, Partition, ReplicaManager};

/// One partition's part of a produce request.
#[derive(Clone, Debug)]
pub struct ProduceEntry {
    /// The partition by name.
    pub partition: TopicPartition,
    /// The topic's id; zero when the request named the topic.
    pub topic_id: TopicId,
    /// The batch.
    pub records: Bytes,
}

/// One partition's part of the answer.
#[derive(Clone, Debug)]
pub struct ProduceOutcome {
    /// 0, or why not.
    pub error: ErrorCode,
    /// Offset of the first record.
    pub base_offset: i64,
    /// The leader's clock if it set the timestamps, else -1.
    pub log_append_time_ms: i64,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// Records that were refused, and with them the batch.
    pub record_errors: Vec<RecordError>,
    /// In words.
    pub error_message: Option<String>,
    /// Who leads now, with error 6 (KIP-951).
    pub current_leader: Option<(NodeId, LeaderEpoch)>,
}

impl ProduceOutcome {
    /// Appended at `base_offset`; the rest as in a topic whose producers set the timestamps.
    fn appended(base_offset: Offset, log_start_offset: Offset) -> Self {
        Self {
            error: ErrorCode::None,
            base_offset: base_offset.get(),
            log_append_time_ms: -1,
            log_start_offset: log_start_offset.get(),
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }

    /// An answer without an append.
    pub fn refused(error: ErrorCode, message: Option<String>) -> Self {
        Self { error, error_message: message, ..Self::appended(Offset::NONE, Offset::NONE) }
    }

    /// A refusal by the log tells where the log starts, but for those that Kafka makes before it has
    /// looked at the log.
    fn with_log_start(mut self, log_start: Offset) -> Self {
        let is_early = matches!(
            self.error,
            ErrorCode::CorruptMessage
                | ErrorCode::MessageTooLarge
                | ErrorCode::RecordListTooLarge
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::NotLeaderOrFollower
                | ErrorCode::InvalidRequiredAcks
                | ErrorCode::KafkaStorageError
        );
        if !is_early {
            self.log_start_offset = log_start.get();
        }
        self
    }
}

/// Takes the answer, in the order of the entries.
pub type ProduceReply = Box<dyn FnOnce(Vec<ProduceOutcome>) + Send>;

/// A batch that is in the log.
struct Appended {
    outcome: ProduceOutcome,
    /// The epoch it was written under, and the offset after it.
    epoch: LeaderEpoch,
    required: Offset,
}

impl<D: Disk> ReplicaManager<D> {
    /// Appends and acknowledges. With acks=all the answer may come later, from any thread; then the
    /// request can be taken back with what is returned.
    pub fn append(
        self: &Arc<Self>,
        acks: i16,
        timeout: Duration,
        produce_version: i16,
        entries: Vec<ProduceEntry>,
        reply: ProduceReply,
    ) -> Option<Parked> {
        let now = self.now();
        let mut outcomes = Vec::with_capacity(entries.len());
        let mut waiting = Vec::new();
        for entry in &entries {
            let found = self.partition(&entry.partition, entry.topic_id);
            let partition = match found {
                Ok(partition) => partition,
                Err(missing) => {
                    let mut outcome = ProduceOutcome::refused(missing.code(), None);
                    self.counts.elsewhere().on_produced(outcome.error, entry.records.len());
                    outcome.current_leader = self.leader_hint(outcome.error, &entry.partition);
                    outcomes.push(outcome);
                    continue;
                }
            };
            let appended = self.append_one(&partition, acks, produce_version, &entry.records, now);
            let error = appended.as_ref().map_or_else(|refused| refused.error, |_| ErrorCode::None);
            partition.counts().on_produced(error, entry.records.len());
            match appended {
                Ok(appended) => {
                    if acks == -1 {
                        waiting.push(WaitingProduce::new(
                            outcomes.len(),
                            partition,
                            appended.epoch,
                            appended.required,
                        ));
                    }
                    outcomes.push(appended.outcome);
                }
                Err(mut outcome) => {
                    outcome.current_leader = self.leader_hint(outcome.error, &entry.partition);
                    outcomes.push(outcome);
                }
            }
        }
        self.acknowledge(DelayedProduce::new(waiting, outcomes, reply), timeout, now)
    }

    fn acknowledge(
        self: &Arc<Self>,
        produce: DelayedProduce<D>,
        timeout: Duration,
        now: Now,
    ) -> Option<Parked> {
        if produce.is_settled() {
            self.complete_produce(produce);
            return None;
        }
        let keys = produce.keys();
        match self.park(&self.produces, produce, &keys, now.monotonic + timeout) {
            Ok(handle) => {
                let manager = Arc::downgrade(self);
                Some(Parked::new(move || {
                    if let Some(manager) = manager.upgrade() {
                        drop(manager.produces.cancel(&handle));
                    }
                }))
            }
            Err(produce) => {
                self.complete_produce(produce);
                None
            }
        }
    }

    /// Answers a produce that waits no longer; a partition that is not committed timed out (7).
    pub(super) fn complete_produce(&self, produce: DelayedProduce<D>) {
        let (outcomes, reply) = produce.finish(|partition| {
            self.leader_hint(ErrorCode::NotLeaderOrFollower, &partition.id().topic_partition)
        });
        reply(outcomes);
    }

    /// Where the log starts, if this replica may be written to now.
    fn admit_write(partition: &Partition<D>, acks: i16) -> Result<Offset, ProduceOutcome> {
        let replica = partition.lock();
        let log_start = replica.log.log_start_offset();
        replica.state.check_produce(acks).map_err(|error| not_admitted(&error, log_start))?;
        Ok(log_start)
    }

    fn append_one(
        &self,
        partition: &Arc<Partition<D>>,
        acks: i16,
        produce_version: i16,
        records: &Bytes,
        now: Now,
    ) -> Result<Appended, ProduceOutcome> {
        let settings = partition.settings();
        let rules = ProduceRules { produce_version, now: now.wall_clock_ms, ..settings.produce };
        // Who may not write here is told so before the batch is looked at.
        let log_start = Self::admit_write(partition, acks)?;
        let validated = validate_client_batch(records, &rules, &mut ReadBuffer::default())
            .map_err(|error| refusal(&error, log_start))?;
        let timestamp = if rules.timestamp_type == TimestampType::LogAppendTime {
            BatchTimestamp::LogAppendTime
        } else if validated.is_changed() {
            BatchTimestamp::CorrectMax(validated.header().max_timestamp())
        } else {
            BatchTimestamp::Keep
        };
        let options = LeaderAppendOptions {
            timestamp,
            checksum_checked: true,
            ..LeaderAppendOptions::CLIENT
        };
        let directory = self.directory();
        let mut replica = partition.lock();
        replica.state.check_produce(acks).map_err(|error| not_admitted(&error, log_start))?;
        let epoch = replica.state.leader_epoch();
        let appended = match replica.log.append_as_leader(validated.bytes(), epoch, options, now) {
            Ok(LeaderAppend::Appended(info)) => info,
            Ok(LeaderAppend::Duplicate(batch)) => {
                let log_start = replica.log.log_start_offset();
                let outcome = ProduceOutcome {
                    // Its batch's newest timestamp, whoever set it.
                    log_append_time_ms: batch.timestamp_ms,
                    ..ProduceOutcome::appended(batch.first_offset(), log_start)
                };
                let required = batch.last_offset.next();
                return Ok(Appended { outcome, epoch, required });
            }
            Err(error) => {
                let log_start = replica.log.log_start_offset();
                drop(replica);
                return Err(self.append_failed(partition, &error).with_log_start(log_start));
            }
        };
        let facts = replica.facts();
        let effects = replica.state.on_leader_append(&facts, directory.as_ref(), now.monotonic);
        let after = replica.carry_out(effects);
        let log_start_offset = replica.log.log_start_offset();
        drop(replica);
        partition.counts().on_appended(appended.record_count, appended.size_bytes);
        let after = match after {
            Ok(after) => after,
            Err(error) => return Err(self.append_failed(partition, &error)),
        };
        self.after(partition, with_append_event(after, partition, &appended, epoch));
        Ok(Appended {
            outcome: ProduceOutcome {
                log_append_time_ms: appended.log_append_time_ms,
                ..ProduceOutcome::appended(appended.base_offset, log_start_offset)
            },
            epoch,
            required: appended.last_offset.next(),
        })
    }

    fn append_failed(&self, partition: &Partition<D>, error: &LogError) -> ProduceOutcome {
        if error.is_storage_failure() {
            self.on_storage_failure(partition, error);
        }
        ProduceOutcome::refused(log_error_code(error), Some(error.to_string()))
    }

    /// The leader to name beside error 6 or 74 (KIP-951).
    pub(super) fn leader_hint(
        &self,
        error: ErrorCode,
        partition: &TopicPartition,
    ) -> Option<(NodeId, LeaderEpoch)> {
        let hinted = matches!(error, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
        if !hinted {
            return None;
        }
        let directory = self.directory();
        let topic = directory.image.topic_by_name(&partition.topic)?;
        let image = topic.partitions.get(&partition.partition)?;
        Some((image.leader, image.leader_epoch))
    }
}

/// With the event of the append before what the append led to.
pub(super) fn with_append_event<D: Disk>(
    mut after: AfterLock,
    partition: &Partition<D>,
    appended: &AppendInfo,
    epoch: LeaderEpoch,
) -> AfterLock {
    after.events.insert(
        0,
        Event::AppendedAsLeader {
            partition: partition.id().topic_partition.clone(),
            base_offset: appended.base_offset,
            log_end: appended.last_offset.next(),
            leader_epoch: epoch,
            why: Why::AppendedByLeader,
        },
    );
    after
}

fn not_admitted(error: &PartitionError, log_start: Offset) -> ProduceOutcome {
    ProduceOutcome::refused(error.code(), Some(error.to_string())).with_log_start(log_start)
}

fn refusal(error: &ClientBatchError, log_start: Offset) -> ProduceOutcome {
    let outcome = ProduceOutcome {
        record_errors: error.record_errors().to_vec(),
        ..ProduceOutcome::refused(error.error_code(), Some(error.to_string()))
    };
    match error {
        // The request is wrong, whatever the log: it must hold one batch of format 2.
        ClientBatchError::NoBatch
        | ClientBatchError::SeveralBatches
        | ClientBatchError::Batch(BatchError::OldMagic { .. }) => outcome,
        _ => outcome.with_log_start(log_start),
    }
}

/// Kafka's code for a log that refused or failed.
pub(super) fn log_error_code(error: &LogError) -> ErrorCode {
    match error {
        LogError::Storage { .. } | LogError::CorruptFile { .. } => ErrorCode::KafkaStorageError,
        LogError::OffsetOutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        LogError::CorruptBatch(_) => ErrorCode::CorruptMessage,
        LogError::InvalidRecord(_) => ErrorCode::InvalidRecord,
        LogError::BatchTooLarge { .. } => ErrorCode::MessageTooLarge,
        LogError::AppendTooLarge { .. } => ErrorCode::RecordListTooLarge,
        LogError::Producer(error) => ErrorCode::from_code(error.code()),
        LogError::StaleLeaderEpoch { .. } => ErrorCode::NotLeaderOrFollower,
        LogError::UnexpectedAppendOffset { .. } => ErrorCode::UnknownServerError,
    }
}

/// How a write that waits stands; a log that is gone fails it.
pub(super) fn ack_status<D: Disk>(
    partition: &Partition<D>,
    epoch: LeaderEpoch,
    required: Offset,
) -> AckStatus {
    if partition.is_removed() {
        return AckStatus::Failed(PartitionError::NotLeaderOrFollower);
    }
    partition.lock().state.check_enough_replicas(epoch, required)
}
