//! The rules of replication: plain, synchronous state machines without clocks, files or sockets.
//!
//! # The contract of the core
//!
//! Every function takes values and `now` and returns values. State changes inside the call; the world
//! changes when the host carries out what came back. The host keeps **one lock per partition** around
//! the log (storage's) and its [`PartitionState`], reads [`LogFacts`] under that lock, and calls the
//! rules under it, so that what is judged is what is. Within that lock the order is fixed:
//!
//! **Leading.** On [`RoleChange::Leader`], `assign_epoch` is written to the log's epoch cache, durably,
//! before anything is appended or answered under the epoch (I9).
//!
//! **A produce.** 1. `check_produce` refuses or admits. 2. The log appends: the batch gets its offsets
//! and the leader epoch. 3. `on_leader_append` with the facts *after* the append: the high
//! watermark moves if nobody else is waited for. 4. The lock is released, and only then are the
//! operations named by `wake` checked. 5. acks=all is answered when `check_enough_replicas` says so,
//! never because the append succeeded.
//!
//! **A follower's fetch.** 1. `check_fetch` (epoch, then role, then membership). 2. The log's end is
//! noted. 3. `check_fetch_offset`: a diverging answer ends here and counts for nothing (T08). 4. The
//! log is read up to `last_fetchable_offset`. 5. `on_follower_fetch` with the end noted in step 2:
//! the follower's state, then a proposal to the controller, then the high watermark. 6. The answer
//! carries the high watermark from before step 5, which is what H01 draws: followers are one round
//! trip behind. A parked fetch that is read again skips step 5 (F02).
//!
//! **A fetch answer at the follower.** 1. [`truncation::on_fetch_answer`] says which step it is; an
//! answer to an earlier state is dropped whole (T10). 2. Either cut: the log and its epoch cache,
//! then `on_truncated`, and no watermark from that answer (T08). 3. Or append, then
//! `on_fetch_response` with the facts after the append: the high watermark is never beyond what
//! this log holds.
//!
//! **An ISR change.** The proposal is part of the state from the moment it is returned, so the
//! high watermark already waits for all who may be in the ISR (H03). The host sends it, and hands the
//! answer back with the proposal that it answers. A lost answer is handed back as code 7.
//!
//! Safety invariants are asserted in release builds too: a broken one stops the node before it
//! acknowledges what it may lose. Input of peers never panics; it is refused with a [`PartitionError`].

pub mod bugs;
pub mod delayed_fetch;
pub mod delayed_produce;
pub mod epoch_cache;
pub mod error;
pub mod fetch_session;
pub mod high_watermark;
pub mod isr;
pub mod log_offset;
pub mod partition;
pub mod preferred_replica;
pub mod producer_state;
pub mod purgatory;
pub mod replica_state;
pub mod time;
pub mod timer;
pub mod trace;
pub mod truncation;

pub use epoch_cache::{
    EpochEndOffset, EpochEntry, FetchPosition, LeaderEpochCache, validate_fetch_position,
};
pub use error::PartitionError;
pub use isr::{
    AlterPartitionResponse, ConfirmedPartition, IsrProposal, IsrState, LeaderRecoveryState,
    ProposedMember,
};
pub use log_offset::LogOffsetMetadata;
pub use partition::{
    AckStatus, BrokerDirectory, BrokerStatus, Effects, FetchIsolation, FetchReader, LogFacts,
    PartitionRegistration, PartitionSettings, PartitionState, RoleChange, Wake,
};
pub use replica_state::{FollowerFetch, ReplicaState};
pub use time::{Instant, Now};
