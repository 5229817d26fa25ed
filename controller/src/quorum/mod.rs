//! The metadata quorum: one replicated log of opaque entries among a fixed set of voters
//! (`controller.quorum.voters`), by the `raft` crate. Pure: bytes and `now` in, effects out.
//!
//! The order that keeps it safe, all of it inside [`QuorumNode::drain`]:
//! 1. a leader's own messages go out (they promise nothing about its disk),
//! 2. the vote and the entries are made durable ([`QuorumStorage`]),
//! 3. answers to peers go out (Q01: a vote is on disk before it is told),
//! 4. committed entries are handed to the caller, once and in order (I13).
//!
//! Rules kept here: Q01, Q02, Q03 (check quorum and the leader's lease), Q04 (pre-vote). The log's
//! offset is the entry's index: the first entry of a cluster's life has offset 1, and the snapshot
//! "at 0" is the empty one. Voters do not change at run time (Q06 is not served).

mod codec;
mod file;
mod node;
mod segment;
mod storage;
mod timing;

pub use file::FileQuorumStorage;
pub use node::{
    Committed, ProposeError, QuorumNode, QuorumRole, QuorumStatus, QuorumUpdate, VoterProgress,
};
pub use storage::{HardState, LogEntry, MemoryQuorumStorage, QuorumSnapshot, QuorumStorage};
pub use timing::QuorumConfig;

use protocol::types::NodeId;

/// What stops a quorum member. Every variant but [`QuorumError::BadMessage`] is final: the member
/// must not go on voting or acknowledging with a storage in doubt.
#[derive(Debug, thiserror::Error)]
pub enum QuorumError {
    /// The storage could not be read or written.
    #[error("the metadata log at {path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is stored contradicts itself and is not the torn end of an unfinished write.
    #[error("the metadata log at {path} is corrupt: {reason}")]
    Corrupt {
        /// The file or folder.
        path: String,
        /// What was found, with positions.
        reason: String,
    },
    /// A peer sent bytes that are no message for this member; dropping them is enough.
    #[error("a quorum message was refused: {0}")]
    BadMessage(String),
    /// A peer's log contradicts what this member knows to be committed (I13).
    #[error("the quorum's log and this member's committed log differ: {0}")]
    Diverged(String),
    /// The voters or timeouts make no quorum.
    #[error("the quorum's configuration: {0}")]
    Config(String),
    /// The consensus core refused an input that was checked before.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
}

impl QuorumError {
    /// Whether the member may go on after it.
    pub fn is_harmless(&self) -> bool {
        matches!(self, QuorumError::BadMessage(_))
    }
}

/// The consensus core's id of a node: node ids start at 0, its ids at 1.
pub(crate) fn raft_id(node: NodeId) -> u64 {
    u64::from(node.get().unsigned_abs()) + 1
}

/// The node behind the consensus core's id; `None` for 0, "nobody", and for what no node has.
pub(crate) fn node_id(raft_id: u64) -> Option<NodeId> {
    raft_id.checked_sub(1).and_then(|id| i32::try_from(id).ok()).map(NodeId)
}
