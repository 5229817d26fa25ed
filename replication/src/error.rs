//! Why a partition refuses a request, and the Kafka error code of each refusal, in one place.

use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset};

/// A refusal by a partition. Every one is an ordinary answer to a peer, never a fault of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartitionError {
    /// This node does not lead the partition, and the request needs a leader.
    #[error("not the leader of the partition")]
    NotLeaderOrFollower,
    /// The requester's leader epoch is older than ours (E01).
    #[error("leader epoch {requested} is older than {current}")]
    FencedLeaderEpoch {
        /// The epoch in the request.
        requested: LeaderEpoch,
        /// Our epoch.
        current: LeaderEpoch,
    },
    /// The requester's leader epoch is newer than ours (E01): our metadata is behind.
    #[error("leader epoch {requested} is newer than {current}")]
    UnknownLeaderEpoch {
        /// The epoch in the request.
        requested: LeaderEpoch,
        /// Our epoch.
        current: LeaderEpoch,
    },
    /// A replica fetch from a broker that our replica set lacks, though its epoch is ours (C07).
    #[error("broker {replica} is not among the replicas yet")]
    UnknownReplica {
        /// Who fetched.
        replica: NodeId,
    },
    /// A replica fetch from an earlier registration of its broker (H11, KIP-903).
    #[error("broker {replica} has registered again since it sent this fetch")]
    StaleBrokerEpoch {
        /// Who fetched.
        replica: NodeId,
    },
    /// The offset lies outside the log.
    #[error("offset {offset} is outside [{log_start}, {log_end}]")]
    OffsetOutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// Where the log starts.
        log_start: Offset,
        /// Where the readable log ends.
        log_end: Offset,
    },
    /// Nothing says how far the requested epoch went (T05).
    #[error("the end of leader epoch {epoch} is not known")]
    UnknownEpochEnd {
        /// The last fetched epoch of the request.
        epoch: LeaderEpoch,
    },
    /// The new leader cannot yet say what the latest offset is (H02, KIP-207).
    #[error("the high watermark {high_watermark} is below the epoch's start {epoch_start}")]
    OffsetNotAvailable {
        /// Where this leader's epoch started.
        epoch_start: Offset,
        /// How far the high watermark is.
        high_watermark: Offset,
    },
    /// Too few in-sync replicas to accept an acks=all write; nothing was written (H07).
    #[error("{in_sync} in-sync replicas, {min} needed")]
    NotEnoughReplicas {
        /// Size of the ISR.
        in_sync: usize,
        /// The effective min.insync.replicas.
        min: usize,
    },
    /// The write is committed, but the ISR is now too small (H07).
    #[error("{in_sync} in-sync replicas after the append, {min} needed")]
    NotEnoughReplicasAfterAppend {
        /// Size of the maximal ISR.
        in_sync: usize,
        /// The effective min.insync.replicas.
        min: usize,
    },
    /// acks is none of -1, 0 and 1 (H07).
    #[error("acks {acks} is none of -1, 0, 1")]
    InvalidRequiredAcks {
        /// What the request said.
        acks: i16,
    },
    /// The partition's log directory failed (C08).
    #[error("the partition's log directory is offline")]
    StorageOffline,
}

impl PartitionError {
    /// Kafka's error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            PartitionError::OffsetOutOfRange { .. } | PartitionError::UnknownEpochEnd { .. } => {
                ErrorCode::OffsetOutOfRange
            }
            PartitionError::NotLeaderOrFollower | PartitionError::StaleBrokerEpoch { .. } => {
                ErrorCode::NotLeaderOrFollower
            }
            PartitionError::NotEnoughReplicas { .. } => ErrorCode::NotEnoughReplicas,
            PartitionError::NotEnoughReplicasAfterAppend { .. } => {
                ErrorCode::NotEnoughReplicasAfterAppend
            }
            PartitionError::InvalidRequiredAcks { .. } => ErrorCode::InvalidRequiredAcks,
            PartitionError::StorageOffline => ErrorCode::KafkaStorageError,
            PartitionError::FencedLeaderEpoch { .. } => ErrorCode::FencedLeaderEpoch,
            PartitionError::UnknownLeaderEpoch { .. } | PartitionError::UnknownReplica { .. } => {
                ErrorCode::UnknownLeaderEpoch
            }
            PartitionError::OffsetNotAvailable { .. } => ErrorCode::OffsetNotAvailable,
        }
    }
}
