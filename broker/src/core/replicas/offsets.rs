//! Offsets by time and by epoch: ListOffsets (F07, H02) and OffsetForLeaderEpoch (E01, E02).

use protocol::{ErrorCode, LeaderEpoch, Offset, TopicPartition, Uuid};
use replication::PartitionError;
use replication::partition::FetchIsolation;
use storage::{Disk, LogError};

use super::ReplicaManager;
use super::append::log_error_code;
use super::partition::Replica;

/// The special timestamps of ListOffsets.
pub mod special {
    /// The end of what the reader may see.
    pub const LATEST: i64 = -1;
    /// The log's start.
    pub const EARLIEST: i64 = -2;
    /// The first record with the largest timestamp (v7).
    pub const MAX_TIMESTAMP: i64 = -3;
    /// The local log's start (v8); without tiering that of the log.
    pub const EARLIEST_LOCAL: i64 = -4;
    /// The end of what is tiered (v9); without tiering there is none.
    pub const LATEST_TIERED: i64 = -5;
    /// The start of what is still to be tiered (v11); without tiering there is none.
    pub const EARLIEST_PENDING_UPLOAD: i64 = -6;
}

/// One question.
#[derive(Clone, Debug)]
pub struct OffsetQuery {
    /// The partition.
    pub partition: TopicPartition,
    /// The asker's leader epoch; -1 for none.
    pub current_leader_epoch: LeaderEpoch,
    /// A time in milliseconds since 1970, or a special one.
    pub timestamp: i64,
    /// How far the asker may see; replicas see to the log's end.
    pub isolation: FetchIsolation,
    /// Whether any replica may answer: the debugging consumer, replica id -2.
    pub from_any_replica: bool,
}

/// One answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetAnswer {
    /// 0, or why not.
    pub error: ErrorCode,
    /// The record's timestamp; -1 for special questions.
    pub timestamp: i64,
    /// The offset; -1 when there is none.
    pub offset: Offset,
    /// The epoch of the offset; -1 when there is none.
    pub leader_epoch: LeaderEpoch,
}

impl OffsetAnswer {
    const NOTHING: OffsetAnswer = OffsetAnswer {
        error: ErrorCode::None,
        timestamp: -1,
        offset: Offset::NONE,
        leader_epoch: LeaderEpoch::NONE,
    };

    /// An error.
    pub fn refused(error: ErrorCode) -> Self {
        OffsetAnswer { error, ..OffsetAnswer::NOTHING }
    }
}

/// Where an epoch ends, or why that is not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEndAnswer {
    /// 0, or why not.
    pub error: ErrorCode,
    /// The largest known epoch at or below the one asked for; -1 when there is none.
    pub leader_epoch: LeaderEpoch,
    /// Where it ends; -1 when there is none.
    pub end_offset: Offset,
}

enum QueryError {
    Refused(PartitionError),
    Log(LogError),
}

impl From<PartitionError> for QueryError {
    fn from(error: PartitionError) -> Self {
        QueryError::Refused(error)
    }
}

impl From<LogError> for QueryError {
    fn from(error: LogError) -> Self {
        QueryError::Log(error)
    }
}

impl<D: Disk> ReplicaManager<D> {
    /// Answers one question of ListOffsets.
    pub fn list_offset(&self, query: &OffsetQuery) -> OffsetAnswer {
        let partition = match self.partition(&query.partition, Uuid::ZERO) {
            Ok(partition) => partition,
            Err(missing) => return OffsetAnswer::refused(missing.code()),
        };
        let found = find_offset(&partition.lock(), query);
        match found {
            Ok(answer) => answer,
            Err(QueryError::Refused(error)) => OffsetAnswer::refused(error.code()),
            Err(QueryError::Log(error)) => {
                if error.is_storage_failure() {
                    self.on_storage_failure(&partition, &error);
                }
                OffsetAnswer::refused(log_error_code(&error))
            }
        }
    }

    /// Answers one question of OffsetForLeaderEpoch: only the leader does.
    pub fn end_offset_for_epoch_of(
        &self,
        partition: &TopicPartition,
        current_leader_epoch: LeaderEpoch,
        epoch: LeaderEpoch,
    ) -> EpochEndAnswer {
        let refused = |error| EpochEndAnswer {
            error,
            leader_epoch: LeaderEpoch::NONE,
            end_offset: Offset::NONE,
        };
        let partition = match self.partition(partition, Uuid::ZERO) {
            Ok(partition) => partition,
            Err(missing) => return refused(missing.code()),
        };
        let replica = partition.lock();
        if let Err(error) = replica.state.check_current_leader_epoch(current_leader_epoch, true) {
            return refused(error.code());
        }
        let end = replica.log.epochs().end_offset_for(epoch, replica.log.log_end_offset());
        EpochEndAnswer {
            error: ErrorCode::None,
            leader_epoch: end.epoch,
            end_offset: end.end_offset,
        }
    }
}

fn find_offset<D: Disk>(
    replica: &Replica<D>,
    query: &OffsetQuery,
) -> Result<OffsetAnswer, QueryError> {
    replica
        .state
        .check_current_leader_epoch(query.current_leader_epoch, !query.from_any_replica)?;
    let facts = replica.facts();
    match query.timestamp {
        special::EARLIEST | special::EARLIEST_LOCAL => {
            let offset = facts.log_start;
            Ok(OffsetAnswer {
                offset,
                leader_epoch: epoch_at(replica, offset),
                ..OffsetAnswer::NOTHING
            })
        }
        special::LATEST => Ok(OffsetAnswer {
            offset: replica.state.latest_offset(query.isolation, &facts)?,
            leader_epoch: replica.log.latest_epoch().unwrap_or(LeaderEpoch::NONE),
            ..OffsetAnswer::NOTHING
        }),
        special::LATEST_TIERED | special::EARLIEST_PENDING_UPLOAD => Ok(OffsetAnswer::NOTHING),
        special::MAX_TIMESTAMP => admit(replica, query, replica.log.max_timestamp()?),
        time => admit(replica, query, replica.log.find_by_timestamp(time)?),
    }
}

/// Tells a found record when the reader may see it (H02).
fn admit<D: Disk>(
    replica: &Replica<D>,
    query: &OffsetQuery,
    found: Option<storage::TimestampAndOffset>,
) -> Result<OffsetAnswer, QueryError> {
    let facts = replica.facts();
    let offset = found.as_ref().map(|found| found.offset);
    let admitted = replica.state.admit_found_offset(offset, query.isolation, &facts)?;
    Ok(match (admitted, found) {
        (Some(offset), Some(found)) => OffsetAnswer {
            error: ErrorCode::None,
            timestamp: found.timestamp_ms,
            offset,
            // Of the batch: the newest record may lie below the log's start, which the cache forgot.
            leader_epoch: found.leader_epoch,
        },
        _ => OffsetAnswer::NOTHING,
    })
}

/// The epoch of the record at `offset`, by the epoch cache.
fn epoch_at<D: Disk>(replica: &Replica<D>, offset: Offset) -> LeaderEpoch {
    let entries = replica.log.epochs().entries();
    let at = entries.partition_point(|entry| entry.start_offset <= offset);
    at.checked_sub(1).map_or(LeaderEpoch::NONE, |at| entries[at].epoch)
}
