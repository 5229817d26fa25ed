//! Random schedules: crashes in the middle of disk writes, losses, delays, cuts, handovers and
//! snapshots, from hundreds of seeds. The network checks I13 at every step; here it must also get
//! level once everything is healed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::NodeId;
use rand::Rng;

use crate::network::{CrashStorage, Network};

struct Storm {
    network: Network<CrashStorage>,
    down: BTreeMap<NodeId, CrashStorage>,
    proposed: u32,
}

impl Storm {
    fn new(voters: i32, seed: u64) -> Self {
        let mut network = Network::new(voters, seed);
        network.delay = Duration::from_millis(1 + seed % 40);
        network.loss_percent = (seed % 4) as u32 * 8;
        for id in network.voters.clone() {
            network.start(id, CrashStorage::default());
        }
        Self { network, down: BTreeMap::new(), proposed: 0 }
    }

    fn any(&mut self) -> NodeId {
        let at = self.network.rng.random_range(0..self.network.voters.len());
        self.network.voters[at]
    }

    fn blow(&mut self) {
        let id = self.any();
        match self.network.rng.random_range(0..100) {
            0..40 => self.propose(id),
            40..43 => self.crash(id),
            43..46 => self.crash_in_a_write(id),
            46..56 => self.restart(id),
            56..58 => self.network.isolate(id, true),
            58..60 => {
                let other = self.any();
                self.network.cut_pair(id, other);
            }
            60..66 => {
                let loss = self.network.loss_percent;
                self.network.heal();
                self.network.loss_percent = loss;
            }
            66..68 => self.hand_over(id),
            68..72 if self.network.members.contains_key(&id) => {
                let keep = self.network.rng.random_range(0..10);
                if self.network.snapshot(id, keep).is_err() {
                    self.crash(id);
                }
            }
            _ => {}
        }
        let crashed = self.network.step();
        self.down.extend(crashed.into_iter().map(|(id, storage)| (id, storage.after_crash())));
    }

    fn propose(&mut self, id: NodeId) {
        let data = Bytes::from(format!("decision {}", self.proposed));
        if self.network.propose(id, data).is_some() {
            self.proposed += 1;
        }
    }

    fn crash(&mut self, id: NodeId) {
        if self.network.members.contains_key(&id) {
            let storage = self.network.stop(id).after_crash();
            self.down.insert(id, storage);
        }
    }

    /// A crash between the writes of one drain: after the vote, before the entries, before the sync.
    fn crash_in_a_write(&mut self, id: NodeId) {
        if self.network.members.contains_key(&id) {
            let mut storage = self.network.stop(id).after_crash();
            storage.crash_in = Some(self.network.rng.random_range(0..6));
            self.network.start(id, storage);
        }
    }

    fn restart(&mut self, id: NodeId) {
        if let Some(storage) = self.down.remove(&id) {
            self.network.start(id, storage);
        }
    }

    fn hand_over(&mut self, id: NodeId) {
        let now = self.network.clocks();
        if let Some(member) = self.network.members.get_mut(&id) {
            member.node.resign(&BTreeSet::new(), now);
        }
    }

    fn calm(mut self, seed: u64) -> (u32, usize) {
        self.network.heal();
        for id in self.network.voters.clone() {
            // Also those whose storage is still told to crash.
            self.crash(id);
            self.restart(id);
        }
        let level = |network: &Network<CrashStorage>| {
            network.is_level()
                && network
                    .leader()
                    .is_some_and(|id| network.members[&id].node.status().is_settled_leader)
        };
        assert!(self.network.run_until(Duration::from_secs(20), level), "seed {seed} gets level");
        (self.proposed, self.network.committed.len())
    }
}

fn storm(voters: i32, seed: u64) -> (u32, usize) {
    let mut storm = Storm::new(voters, seed);
    for _ in 0..600 {
        storm.blow();
    }
    storm.calm(seed)
}

#[test]
fn no_schedule_makes_two_leaders_of_an_epoch_or_two_committed_logs() {
    let mut committed = 0;
    for seed in 0..150 {
        committed += storm(3, seed).1;
    }
    assert!(committed > 150 * 15, "the storms leave room for decisions: {committed} committed");
}

#[test]
fn five_voters_keep_one_log_as_well() {
    for seed in 1000..1040 {
        storm(5, seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(storm(3, 77), storm(3, 77));
}
