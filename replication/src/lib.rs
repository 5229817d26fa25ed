//! The rules of replication: plain, synchronous state machines without clocks, files or sockets.

pub mod delayed_fetch;
pub mod delayed_produce;
pub mod epoch_cache;
pub mod error;
pub mod fetch_session;
pub mod high_watermark;
pub mod isr;
pub mod log_offset;
pub mod producer_state;
pub mod purgatory;
pub mod replica_state;
pub mod time;
pub mod timer;
pub mod trace;

pub use epoch_cache::{
    EpochEndOffset, EpochEntry, FetchPosition, LeaderEpochCache, validate_fetch_position,
};
pub use error::PartitionError;
pub use isr::{
    AlterPartitionResponse, ConfirmedPartition, IsrProposal, IsrState, LeaderRecoveryState,
    ProposedMember,
};
pub use log_offset::LogOffsetMetadata;
pub use replica_state::{FollowerFetch, ReplicaState};
pub use time::{Instant, Now};
