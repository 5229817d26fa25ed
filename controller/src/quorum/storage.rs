//! What a quorum member keeps: its vote, its log and one snapshot. [`QuorumStorage`] is the seam
//! between the real disk ([`super::FileQuorumStorage`]) and a simulated one; [`RaftStorage`] shows
//! it to the consensus core.

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, Snapshot as RaftSnapshot};
use raft::{GetEntriesContext, RaftState, StorageError};

use super::QuorumError;

/// One entry of the quorum's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its offset; the first ever is 1.
    pub index: u64,
    /// The epoch of the leader that appended it.
    pub term: u64,
    /// The caller's bytes; empty for a leader's first entry of its epoch.
    pub data: Bytes,
}

/// What must survive a restart beside the log (Q01).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest epoch ever seen.
    pub term: u64,
    /// Whom this member voted for in that epoch, in the consensus core's numbering; 0 for nobody.
    pub vote: u64,
    /// A lower bound of what is committed. Only a hint that saves work: it may be written lazily.
    pub commit: u64,
}

/// The caller's whole state after the entry at `index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumSnapshot {
    /// The last entry contained.
    pub index: u64,
    /// That entry's epoch.
    pub term: u64,
    /// The caller's bytes.
    pub data: Bytes,
}

/// The durable state of one quorum member.
///
/// Reads see every write at once. A write survives a crash only when a later [`sync`] returned, but
/// for the two snapshot writes and `set_hard_state`, which are durable when they return. After a
/// crash, unsynced appends are there as a prefix or not at all.
///
/// [`sync`]: QuorumStorage::sync
pub trait QuorumStorage {
    /// The stored vote; the default on a new storage.
    fn hard_state(&self) -> HardState;

    /// The first index that [`QuorumStorage::entries`] can give; 1 on a new storage, one more than
    /// the snapshot's index at most.
    fn first_index(&self) -> u64;

    /// The last entry's index, the snapshot's when there is none behind it, 0 on a new storage.
    fn last_index(&self) -> u64;

    /// The epoch of the entry at `index`, for `first_index - 1` to `last_index`; `None` outside.
    fn term(&self, index: u64) -> Option<u64>;

    /// The entries in `low..high`, of at most `max_bytes` of data together, but at least one. The
    /// range must lie within `first_index..=last_index`.
    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<LogEntry>, QuorumError>;

    /// The newest snapshot; `None` when there was never one.
    fn snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError>;

    /// Index and epoch of the newest snapshot; (0, 0) when there was never one.
    fn snapshot_position(&self) -> (u64, u64);

    /// Puts `entries`, contiguous in themselves, in place of everything from the first one's index
    /// on. That index is at most `last_index + 1`.
    fn append(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError>;

    /// Keeps the vote, durably.
    fn set_hard_state(&mut self, state: HardState) -> Result<(), QuorumError>;

    /// Replaces everything by a leader's snapshot, durably: the log continues after it.
    fn install_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError>;

    /// Keeps a snapshot of this member's own applied state, durably. The log stays.
    fn create_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError>;

    /// Allows the storage to forget entries below `index`, which is at most one more than the
    /// snapshot's. It may keep some of them, never more than it had.
    fn compact(&mut self, index: u64) -> Result<(), QuorumError>;

    /// Makes every append so far durable.
    fn sync(&mut self) -> Result<(), QuorumError>;
}

/// A storage that lives as long as its owner. For tests, and to show how small the trait is.
#[derive(Clone, Debug, Default)]
pub struct MemoryQuorumStorage {
    hard_state: HardState,
    snapshot: Option<QuorumSnapshot>,
    /// Index and epoch of the entry before the first kept one.
    before: (u64, u64),
    entries: Vec<LogEntry>,
}

impl QuorumStorage for MemoryQuorumStorage {
    fn hard_state(&self) -> HardState {
        self.hard_state
    }

    fn first_index(&self) -> u64 {
        self.before.0 + 1
    }

    fn last_index(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    fn term(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.before.0)? {
            0 => Some(self.before.1),
            distance => self.entries.get(distance as usize - 1).map(|entry| entry.term),
        }
    }

    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<LogEntry>, QuorumError> {
        let from = (low - self.first_index()) as usize;
        let to = (high - self.first_index()) as usize;
        let mut bytes = 0;
        let fitting = self.entries[from..to].iter().take_while(|entry| {
            let first = bytes == 0;
            bytes += entry.data.len() as u64 + 1;
            first || bytes <= max_bytes
        });
        Ok(fitting.cloned().collect())
    }

    fn snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError> {
        Ok(self.snapshot.clone())
    }

    fn snapshot_position(&self) -> (u64, u64) {
        self.snapshot.as_ref().map_or((0, 0), |snapshot| (snapshot.index, snapshot.term))
    }

    fn append(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError> {
        if let Some(first) = entries.first() {
            assert!(
                first.index >= self.first_index() && first.index <= self.last_index() + 1,
                "append at {} to a log of {}..={}",
                first.index,
                self.first_index(),
                self.last_index()
            );
            self.entries.truncate((first.index - self.first_index()) as usize);
            self.entries.extend_from_slice(entries);
        }
        Ok(())
    }

    fn set_hard_state(&mut self, state: HardState) -> Result<(), QuorumError> {
        self.hard_state = state;
        Ok(())
    }

    fn install_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.before = (snapshot.index, snapshot.term);
        self.entries.clear();
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }

    fn create_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.snapshot = Some(snapshot.clone());
        Ok(())
    }

    fn compact(&mut self, index: u64) -> Result<(), QuorumError> {
        if index > self.first_index()
            && let Some(term) = self.term(index - 1)
        {
            self.entries.drain(..(index - self.first_index()) as usize);
            self.before = (index - 1, term);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), QuorumError> {
        Ok(())
    }
}

/// A [`QuorumStorage`] as the consensus core wants to see it, with the fixed voters.
pub(super) struct RaftStorage<S> {
    pub(super) inner: S,
    pub(super) voters: Vec<u64>,
}

impl<S: QuorumStorage> RaftStorage<S> {
    fn conf_state(&self) -> ConfState {
        let mut state = ConfState::default();
        state.set_voters(self.voters.clone());
        state
    }
}

fn other(error: QuorumError) -> raft::Error {
    raft::Error::Store(StorageError::Other(Box::new(error)))
}

impl<S: QuorumStorage> raft::Storage for RaftStorage<S> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let stored = self.inner.hard_state();
        let hard_state = raft::eraftpb::HardState {
            term: stored.term,
            vote: stored.vote,
            // What a snapshot contains is committed, whatever the lazily written hint says.
            commit: stored.commit.max(self.inner.snapshot_position().0),
            ..Default::default()
        };
        Ok(RaftState::new(hard_state, self.conf_state()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.inner.first_index() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if high > self.inner.last_index() + 1 {
            return Err(raft::Error::Store(StorageError::Unavailable));
        }
        if low >= high {
            return Ok(Vec::new());
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let entries = self.inner.entries(low, high, max_bytes).map_err(other)?;
        Ok(entries.into_iter().map(to_raft_entry).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index + 1 < self.inner.first_index() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        self.inner.term(index).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.inner.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.inner.last_index())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<RaftSnapshot> {
        // An unreadable snapshot is reported when it is next written or opened; here the peer waits.
        match self.inner.snapshot() {
            Ok(Some(snapshot)) if snapshot.index >= request_index => {
                let mut message = RaftSnapshot { data: snapshot.data, ..Default::default() };
                let metadata = message.mut_metadata();
                metadata.index = snapshot.index;
                metadata.term = snapshot.term;
                metadata.set_conf_state(self.conf_state());
                Ok(message)
            }
            _ => Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable)),
        }
    }
}

pub(super) fn to_raft_entry(entry: LogEntry) -> Entry {
    Entry { index: entry.index, term: entry.term, data: entry.data, ..Default::default() }
}

pub(super) fn from_raft_entry(entry: Entry) -> LogEntry {
    LogEntry { index: entry.index, term: entry.term, data: entry.data }
}
