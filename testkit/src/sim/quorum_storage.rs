//! The metadata quorum's storage in the simulator: in memory, with what a crash leaves of it. Votes,
//! snapshots and everything up to the last sync survive a power cut; of the entries after it a random
//! prefix does.

use std::sync::Arc;

use controller::quorum::{
    HardState, LogEntry, MemoryQuorumStorage, QuorumError, QuorumSnapshot, QuorumStorage,
};
use parking_lot::Mutex;

use super::disk::CrashKind;
use super::random::SimRandom;

#[derive(Clone, Debug, Default)]
struct State {
    seen: MemoryQuorumStorage,
    durable: MemoryQuorumStorage,
    /// Appends that `durable` lacks, oldest first.
    unsynced: Vec<Vec<LogEntry>>,
}

/// A storage in memory. Clones are the same storage, so that it outlives the controller.
#[derive(Clone, Debug, Default)]
pub struct SimQuorumStorage {
    state: Arc<Mutex<State>>,
}

impl SimQuorumStorage {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a crash.
    ///
    /// # Errors
    /// When what is durable does not take what a crash left of the rest.
    pub fn crash(&self, kind: CrashKind, random: &mut SimRandom) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        if kind == CrashKind::KeepPageCache {
            return Ok(());
        }
        let unsynced = std::mem::take(&mut state.unsynced);
        let kept = random.below(unsynced.len() as u64 + 1) as usize;
        for entries in unsynced.into_iter().take(kept) {
            state.durable.append(&entries)?;
        }
        state.seen = state.durable.clone();
        Ok(())
    }
}

impl QuorumStorage for SimQuorumStorage {
    fn hard_state(&self) -> HardState {
        self.state.lock().seen.hard_state()
    }

    fn first_index(&self) -> u64 {
        self.state.lock().seen.first_index()
    }

    fn last_index(&self) -> u64 {
        self.state.lock().seen.last_index()
    }

    fn term(&self, index: u64) -> Option<u64> {
        self.state.lock().seen.term(index)
    }

    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<LogEntry>, QuorumError> {
        self.state.lock().seen.entries(low, high, max_bytes)
    }

    fn snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError> {
        self.state.lock().seen.snapshot()
    }

    fn snapshot_position(&self) -> (u64, u64) {
        self.state.lock().seen.snapshot_position()
    }

    fn append(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        state.seen.append(entries)?;
        state.unsynced.push(entries.to_vec());
        Ok(())
    }

    fn set_hard_state(&mut self, hard_state: HardState) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        state.seen.set_hard_state(hard_state)?;
        // The log's own end bounds what may be claimed as committed after a crash.
        let commit = hard_state.commit.min(state.durable.last_index());
        state.durable.set_hard_state(HardState { commit, ..hard_state })
    }

    fn install_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        state.unsynced.clear();
        state.durable.install_snapshot(snapshot)?;
        state.seen.install_snapshot(snapshot)
    }

    fn create_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        state.durable.create_snapshot(snapshot)?;
        state.seen.create_snapshot(snapshot)
    }

    fn compact(&mut self, index: u64) -> Result<(), QuorumError> {
        self.sync()?;
        let mut state = self.state.lock();
        state.durable.compact(index)?;
        state.seen.compact(index)
    }

    fn sync(&mut self) -> Result<(), QuorumError> {
        let mut state = self.state.lock();
        for entries in std::mem::take(&mut state.unsynced) {
            state.durable.append(&entries)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(index: u64) -> LogEntry {
        LogEntry { index, term: 1, data: Bytes::from_static(b"x") }
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_the_vote() {
        let mut storage = SimQuorumStorage::new();
        storage.append(&[entry(1)]).expect("append");
        storage.sync().expect("sync");
        storage.set_hard_state(HardState { term: 3, vote: 2, commit: 1 }).expect("vote");
        storage.append(&[entry(2)]).expect("append");
        storage.append(&[entry(3)]).expect("append");
        let mut kept = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let crashed =
                SimQuorumStorage { state: Arc::new(Mutex::new(storage.state.lock().clone())) };
            crashed.crash(CrashKind::LoseUnsynced, &mut SimRandom::new(seed)).expect("crash");
            kept.insert(crashed.last_index());
            assert_eq!(crashed.hard_state().vote, 2);
        }
        assert_eq!(kept.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_killed_process_leaves_everything() {
        let mut storage = SimQuorumStorage::new();
        storage.append(&[entry(1)]).expect("append");
        storage.crash(CrashKind::KeepPageCache, &mut SimRandom::new(1)).expect("crash");
        assert_eq!(storage.last_index(), 1);
    }
}
