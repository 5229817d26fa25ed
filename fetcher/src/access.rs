//! What a fetcher needs of this broker's replicas. The replica manager implements it; the fetcher
//! decides when to call what.
//!
//! Every call names the leader epoch the fetcher acts for. An implementation refuses a write
//! ([`ReplicaError::NotFollower`]) when the partition has moved on to another epoch or role, so that
//! nothing of an earlier leader can reach the log (rules T09, T10).

use protocol::{LeaderEpoch, Offset, Records, TopicIdPartition};
use replication::EpochEndOffset;
use replication::trace::Event;
use replication::truncation::Truncation;

/// A follower's log at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaLog {
    /// First offset.
    pub log_start_offset: Offset,
    /// Next offset to append.
    pub log_end_offset: Offset,
    /// High watermark as last heard.
    pub high_watermark: Offset,
    /// Epoch of the last batch, from the epoch cache; `None` when the cache is empty.
    pub latest_epoch: Option<LeaderEpoch>,
}

/// What a leader answered for one partition, to be appended.
#[derive(Clone, Debug)]
pub struct LeaderData {
    /// The epoch the fetcher follows.
    pub leader_epoch: LeaderEpoch,
    /// The offset that was asked for: must be the log's end.
    pub fetch_offset: Offset,
    /// Whole batches; may be empty, then only the marks below count.
    pub records: Records,
    /// The leader's high watermark.
    pub high_watermark: Offset,
    /// The leader's log start.
    pub log_start_offset: Offset,
}

/// Why a replica did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// The bytes are not good batches. Perhaps they were cut while being read: worth another try.
    #[error("corrupt records from the leader: {0}")]
    Corrupt(String),
    /// The records do not continue the log; the fetcher's idea of its end is out of date (T10).
    #[error("the log ends at {log_end_offset}, not where the fetch began")]
    UnexpectedOffset {
        /// Where it ends.
        log_end_offset: Offset,
    },
    /// The partition is gone, leads, or follows another epoch. New orders are on their way.
    #[error("not a follower at this leader epoch")]
    NotFollower,
    /// The disk failed.
    #[error("storage: {0}")]
    Storage(String),
    /// Anything else; the partition is not fetched any more until it is assigned anew.
    #[error("{0}")]
    Other(String),
}

/// Why a partition is not fetched any more until it is assigned anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionFailure {
    /// The leader has a newer epoch than ours: metadata will tell (T09).
    #[error("fenced by the leader: it has a newer epoch than {0}")]
    Fenced(LeaderEpoch),
    /// The replica refused.
    #[error(transparent)]
    Replica(ReplicaError),
}

/// The replicas of this broker, as the fetchers use them.
pub trait ReplicaAccess {
    /// The log as it is now.
    fn log(&self, partition: &TopicIdPartition) -> Result<ReplicaLog, ReplicaError>;

    /// Where to cut when the leader says that the logs diverge: the answer of
    /// [`replication::truncation::decide_truncation`] over this log and its epoch cache (T03, T04).
    fn decide_truncation(
        &self,
        partition: &TopicIdPartition,
        diverging: EpochEndOffset,
    ) -> Result<Truncation, ReplicaError>;

    /// Cuts the log so that it ends at `offset`, if it ends beyond. Its epoch cache is cut to that
    /// even when the log is not (KAFKA-10706), and the high watermark comes down if it must.
    fn truncate_to(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError>;

    /// Empties the log and has it start at `offset`, with an empty epoch cache (T11).
    fn truncate_fully_and_start_at(
        &self,
        partition: &TopicIdPartition,
        leader_epoch: LeaderEpoch,
        offset: Offset,
    ) -> Result<(), ReplicaError>;

    /// Appends, then takes over the leader's high watermark (up to the own log end) and log start.
    /// Answers with the log after that.
    fn append_from_leader(
        &self,
        partition: &TopicIdPartition,
        data: LeaderData,
    ) -> Result<ReplicaLog, ReplicaError>;

    /// Takes an event of the fetcher's own for the trace: a dropped answer, a pause.
    fn trace(&self, event: Event);

    /// The partition is not fetched any more until it is assigned anew.
    fn on_partition_failed(&self, partition: &TopicIdPartition, failure: &PartitionFailure);
}
