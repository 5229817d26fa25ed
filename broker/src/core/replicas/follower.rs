//! What the fetchers do to this broker's replicas: append what the leader has, take over its marks, and
//! cut the log where the leader's parts from it (T03, T04, T08, T10, T11). A partition that no longer
//! follows the epoch a fetcher works for refuses everything.

use std::sync::Arc;

use fetcher::{LeaderData, PartitionFailure, ReplicaAccess, ReplicaError, ReplicaLog};
use protocol::{LeaderEpoch, Offset, TopicIdPartition};
use replication::EpochEndOffset;
use replication::partition::{PartitionState, Wake};
use replication::trace::{Event, Why};
use replication::truncation::{FollowerLog, Truncation, decide_truncation};
use storage::{Disk, LogError};

use super::ReplicaManager;
use super::partition::{AfterLock, Partition, Replica};

impl<D: Disk> ReplicaManager<D> {
    fn followed(&self, partition: &TopicIdPartition) -> Result<Arc<Partition<D>>, ReplicaError> {
        self.partition(&partition.topic_partition, partition.topic_id)
            .map_err(|_| ReplicaError::NotFollower)
    }

    /// Turns a log's refusal into the fetcher's words, and takes a failed directory offline.
    fn replica_error(&self, partition: &Partition<D>, error: LogError) -> ReplicaError {
        if error.is_storage_failure() {
            self.on_storage_failure(partition, &error);
            return ReplicaError::Storage(error.to_string());
        }
        match error {
            LogError::UnexpectedAppendOffset { log_end_offset, .. } => {
                ReplicaError::UnexpectedOffset { log_end_offset }
            }
            LogError::CorruptBatch(reason) | LogError::InvalidRecord(reason) => {
                ReplicaError::Corrupt(reason)
            }
            other => ReplicaError::Other(other.to_string()),
        }
    }

    /// Cuts the log by `cut` under the epoch `leader_epoch`, and tells what follows from it.
    fn cut(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        event: impl FnOnce(Offset, Offset) -> Event,
        why: Why,
        cut: impl FnOnce(&mut Replica<D>) -> Result<(), LogError>,
    ) -> Result<(), ReplicaError> {
        let found = self.followed(partition)?;
        let mut replica = found.lock();
        check_follows(&replica.state, leader_epoch)?;
        let from = replica.log.log_end_offset();
        let cut = cut(&mut replica).and_then(|()| {
            let facts = replica.facts();
            let effects = replica.state.on_truncated(&facts, why);
            replica.carry_out(effects)
        });
        let to = replica.log.log_end_offset();
        drop(replica);
        match cut {
            Ok(mut after) => {
                after.events.insert(0, event(from, to));
                self.after(&found, after);
                Ok(())
            }
            Err(error) => Err(self.replica_error(&found, error)),
        }
    }

    fn append_locked(
        &self,
        replica: &mut Replica<D>,
        data: &LeaderData,
        bytes: &bytes::Bytes,
    ) -> Result<Option<(Offset, Offset)>, LogError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        let info = replica.log.append_as_follower(bytes, data.leader_epoch, now)?;
        Ok(info.map(|info| (info.base_offset, info.last_offset.next())))
    }
}

fn check_follows(state: &PartitionState, leader_epoch: LeaderEpoch) -> Result<(), ReplicaError> {
    if state.is_leader() || state.is_offline() || state.leader_epoch() != leader_epoch {
        return Err(ReplicaError::NotFollower);
    }
    Ok(())
}

fn log_of<D: Disk>(replica: &Replica<D>) -> ReplicaLog {
    ReplicaLog {
        log_start_offset: replica.log.log_start_offset(),
        log_end_offset: replica.log.log_end_offset(),
        high_watermark: replica.state.high_watermark().offset,
        latest_epoch: replica.log.latest_epoch(),
    }
}

impl<D: Disk> ReplicaAccess for ReplicaManager<D> {
    fn log(&self, partition: &TopicIdPartition) -> Result<ReplicaLog, ReplicaError> {
        let found = self.followed(partition)?;
        let replica = found.lock();
        Ok(log_of(&replica))
    }

    fn decide_truncation(
        &self,
        partition: &TopicIdPartition,
        diverging: EpochEndOffset,
    ) -> Result<Truncation, ReplicaError> {
        let found = self.followed(partition)?;
        let replica = found.lock();
        let log = FollowerLog {
            epochs: replica.log.epochs(),
            log_end: replica.log.log_end_offset(),
            high_watermark: replica.state.high_watermark().offset,
        };
        let truncation = decide_truncation(diverging, &log);
        if truncation.below_high_watermark {
            tracing::warn!(
                partition = %partition.topic_partition,
                to = %truncation.to,
                high_watermark = %log.high_watermark,
                "truncating below the high watermark: legal only after an unclean election (T02)"
            );
        }
        Ok(truncation)
    }

    fn truncate_to(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError> {
        let topic_partition = partition.topic_partition.clone();
        let event = move |from, to| Event::Truncated {
            partition: topic_partition,
            from,
            to,
            complete: false,
            why: Why::CommonEpochEnd,
        };
        let now = self.now();
        self.before_truncation(partition, offset);
        self.cut(partition, leader_epoch, event, Why::CommonEpochEnd, |replica| {
            replica.log.truncate_to(offset, now).map(|_| ())
        })
    }

    fn truncate_fully_and_start_at(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError> {
        let topic_partition = partition.topic_partition.clone();
        let event = move |from, to| Event::TruncatedFully {
            partition: topic_partition,
            from,
            to,
            why: Why::BelowLeaderLogStart,
        };
        let now = self.now();
        self.before_truncation(partition, offset);
        self.cut(partition, leader_epoch, event, Why::BelowLeaderLogStart, |replica| {
            replica.log.truncate_fully_and_start_at(offset, None, now)
        })
    }

    fn append_from_leader(
        &self,
        partition: &TopicIdPartition,
        data: LeaderData,
    ) -> Result<ReplicaLog, ReplicaError> {
        let found = self.followed(partition)?;
        let bytes =
            data.records.read().map_err(|error| ReplicaError::Corrupt(error.to_string()))?;
        let mut replica = found.lock();
        check_follows(&replica.state, data.leader_epoch)?;
        let log_end_offset = replica.log.log_end_offset();
        if data.fetch_offset != log_end_offset {
            return Err(ReplicaError::UnexpectedOffset { log_end_offset });
        }
        let appended = self.append_locked(&mut replica, &data, &bytes);
        let done = appended.and_then(|appended| {
            let facts = replica.facts();
            let effects = replica.state.on_fetch_response(
                data.leader_epoch,
                data.high_watermark,
                data.log_start_offset,
                &facts,
            );
            // The role was checked under this very lock.
            let effects = effects.unwrap_or_default();
            Ok((appended, replica.carry_out(effects)?))
        });
        let log = log_of(&replica);
        drop(replica);
        let (appended, mut after) = match done {
            Ok(done) => done,
            Err(error) => return Err(self.replica_error(&found, error)),
        };
        if let Some((base_offset, log_end)) = appended {
            self.counts.replication_bytes_in.add(bytes.len() as u64);
            let event = Event::AppendedAsFollower {
                partition: partition.topic_partition.clone(),
                base_offset,
                log_end,
                leader_epoch: data.leader_epoch,
                why: Why::FetchedFromLeader,
            };
            after.events.insert(0, event);
            // A debugging replica or a consumer may be reading here.
            after.wake = after.wake.or(Wake { fetch: true, ..Wake::NONE });
        }
        self.after(&found, after);
        Ok(log)
    }

    fn trace(&self, event: Event) {
        self.host.trace.emit(self.now(), self.config.node, event);
    }

    fn on_partition_failed(&self, partition: &TopicIdPartition, failure: &PartitionFailure) {
        tracing::warn!(partition = %partition.topic_partition, %failure, "fetching stopped");
        let error_code = match failure {
            PartitionFailure::Fenced(_) => protocol::ErrorCode::FencedLeaderEpoch.code(),
            PartitionFailure::Replica(_) => protocol::ErrorCode::UnknownServerError.code(),
        };
        if let Ok(found) = self.followed(partition) {
            let event = Event::FetchStopped {
                partition: partition.topic_partition.clone(),
                error_code,
                why: Why::EpochMismatch,
            };
            let after = AfterLock { events: vec![event], ..AfterLock::default() };
            self.after(&found, after);
        }
    }
}
