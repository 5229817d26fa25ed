//! Quorum members, the messages between them, and what must always hold: at most one leader per
//! epoch, and one committed log that every member's commits are a part of (I13).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use controller::quorum::{
    Committed, HardState, LogEntry, MemoryQuorumStorage, QuorumConfig, QuorumError, QuorumNode,
    QuorumRole, QuorumSnapshot, QuorumStorage,
};
use protocol::NodeId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use replication::time::{Instant, Now};

/// One virtual step.
pub const STEP: Duration = Duration::from_millis(5);

/// A storage whose unsynced appends die in a crash, and which can be told to crash in the middle.
#[derive(Clone, Debug, Default)]
pub struct CrashStorage {
    seen: MemoryQuorumStorage,
    durable: MemoryQuorumStorage,
    /// Writes until the crash; `None` for never.
    pub crash_in: Option<u32>,
}

impl CrashStorage {
    /// An empty one that fails after `writes` writes.
    pub fn crashing_in(writes: u32) -> Self {
        Self { crash_in: Some(writes), ..Default::default() }
    }

    /// What a restart finds.
    pub fn after_crash(&self) -> Self {
        Self { seen: self.durable.clone(), durable: self.durable.clone(), crash_in: None }
    }

    fn write(&mut self) -> Result<(), QuorumError> {
        match &mut self.crash_in {
            Some(0) => Err(QuorumError::Io {
                path: "simulated".to_owned(),
                source: std::io::Error::other("crash"),
            }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl QuorumStorage for CrashStorage {
    fn hard_state(&self) -> HardState {
        self.seen.hard_state()
    }
    fn first_index(&self) -> u64 {
        self.seen.first_index()
    }
    fn last_index(&self) -> u64 {
        self.seen.last_index()
    }
    fn term(&self, index: u64) -> Option<u64> {
        self.seen.term(index)
    }
    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<LogEntry>, QuorumError> {
        self.seen.entries(low, high, max_bytes)
    }
    fn snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError> {
        self.seen.snapshot()
    }
    fn snapshot_position(&self) -> (u64, u64) {
        self.seen.snapshot_position()
    }
    fn append(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError> {
        self.write()?;
        self.seen.append(entries)
    }
    fn set_hard_state(&mut self, state: HardState) -> Result<(), QuorumError> {
        self.write()?;
        self.durable.set_hard_state(state)?;
        self.seen.set_hard_state(state)
    }
    fn install_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.write()?;
        self.durable.install_snapshot(snapshot)?;
        self.seen.install_snapshot(snapshot)
    }
    fn create_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.write()?;
        self.durable.create_snapshot(snapshot)?;
        self.seen.create_snapshot(snapshot)
    }
    fn compact(&mut self, index: u64) -> Result<(), QuorumError> {
        self.durable.compact(index)?;
        self.seen.compact(index)
    }
    fn sync(&mut self) -> Result<(), QuorumError> {
        self.write()?;
        self.durable = self.seen.clone();
        Ok(())
    }
}

pub struct Member<S: QuorumStorage> {
    pub node: QuorumNode<S>,
    /// Data of what it committed in this life, by offset; a snapshot fills in what is before it.
    pub applied: BTreeMap<u64, Bytes>,
}

struct InFlight {
    due: Instant,
    order: u64,
    from: NodeId,
    to: NodeId,
    message: Bytes,
}

pub struct Network<S: QuorumStorage> {
    pub members: BTreeMap<NodeId, Member<S>>,
    pub voters: Vec<NodeId>,
    pub rng: StdRng,
    pub now: Instant,
    /// Chance that a message is lost, of 100.
    pub loss_percent: u32,
    /// Longest way of a message.
    pub delay: Duration,
    cut: BTreeSet<(NodeId, NodeId)>,
    in_flight: Vec<InFlight>,
    sent: u64,
    seed: u64,
    /// The leader of every epoch that had one.
    pub leaders: BTreeMap<i32, NodeId>,
    /// The one committed log.
    pub committed: BTreeMap<u64, (u64, Bytes)>,
}

impl<S: QuorumStorage> Network<S> {
    pub fn new(voters: i32, seed: u64) -> Self {
        Self {
            members: BTreeMap::new(),
            voters: (1..=voters).map(NodeId).collect(),
            rng: StdRng::seed_from_u64(seed),
            now: Instant::ZERO,
            loss_percent: 0,
            delay: Duration::from_millis(1),
            cut: BTreeSet::new(),
            in_flight: Vec::new(),
            sent: 0,
            seed,
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
        }
    }

    pub fn clocks(&self) -> Now {
        let wall_clock_ms = 1_000_000 + self.now.0.as_millis() as i64;
        Now { monotonic: self.now, wall_clock_ms }
    }

    pub fn start(&mut self, id: NodeId, storage: S) {
        let mut config = QuorumConfig::new(id, self.voters.clone());
        config.election_timeout = Duration::from_millis(100);
        config.fetch_timeout = Duration::from_millis(200);
        config.max_message_bytes = 256;
        config.seed = self.seed;
        // The snapshot's data is the applied log itself.
        let applied = storage.snapshot().expect("readable").map(|s| decode(&s.data));
        let node = QuorumNode::new(config, storage, self.clocks()).expect("a usable storage");
        let member = Member { node, applied: applied.unwrap_or_default() };
        self.members.insert(id, member);
    }

    /// Takes a member away and gives what it had stored.
    pub fn stop(&mut self, id: NodeId) -> S {
        self.members.remove(&id).expect("a running member").node.into_storage()
    }

    /// Cuts or heals both directions between `id` and all others.
    pub fn isolate(&mut self, id: NodeId, cut: bool) {
        for other in self.voters.clone() {
            for pair in [(id, other), (other, id)] {
                if cut {
                    self.cut.insert(pair)
                } else {
                    self.cut.remove(&pair)
                };
            }
        }
    }

    pub fn heal(&mut self) {
        self.cut.clear();
        self.loss_percent = 0;
    }

    pub fn cut_pair(&mut self, a: NodeId, b: NodeId) {
        self.cut.extend([(a, b), (b, a)]);
    }

    /// The member that leads in the highest epoch.
    pub fn leader(&self) -> Option<NodeId> {
        let statuses = self.members.iter().map(|(id, member)| (member.node.status(), *id));
        statuses
            .filter(|(status, _)| status.role == QuorumRole::Leader)
            .max_by_key(|(status, _)| status.epoch)
            .map(|(_, id)| id)
    }

    pub fn propose(&mut self, id: NodeId, data: impl Into<Bytes>) -> Option<u64> {
        let now = self.clocks();
        self.members.get_mut(&id)?.node.propose(data.into(), now).ok()
    }

    /// Lets one member work; false when its storage crashed and it is gone.
    pub fn drain(&mut self, id: NodeId) -> Result<(), S> {
        let now = self.clocks();
        let Some(member) = self.members.get_mut(&id) else { return Ok(()) };
        let mut messages = Vec::new();
        let drained = member.node.drain(now, &mut |to, message| messages.push((to, message)));
        for (to, message) in messages {
            self.post(id, to, message);
        }
        match drained {
            Ok(update) => {
                for committed in update.committed {
                    self.on_committed(id, committed);
                }
                self.check_leader(id);
                Ok(())
            }
            Err(_) => Err(self.stop(id)),
        }
    }

    fn post(&mut self, from: NodeId, to: NodeId, message: Bytes) {
        if self.cut.contains(&(from, to)) || self.rng.random_range(0..100) < self.loss_percent {
            return;
        }
        let way = self.rng.random_range(0..=self.delay.as_micros() as u64);
        self.sent += 1;
        let due = self.now + Duration::from_micros(way);
        self.in_flight.push(InFlight { due, order: self.sent, from, to, message });
    }

    fn on_committed(&mut self, id: NodeId, committed: Committed) {
        let member = self.members.get_mut(&id).expect("running");
        match committed {
            Committed::Entry(entry) => {
                let before = member.applied.last_key_value().map_or(0, |(index, _)| *index);
                assert_eq!(entry.index, before + 1, "node {id} skips or repeats an entry");
                member.applied.insert(entry.index, entry.data.clone());
                let value = (entry.term, entry.data);
                let known = self.committed.entry(entry.index).or_insert_with(|| value.clone());
                assert_eq!(*known, value, "I13: node {id} commits another entry {}", entry.index);
            }
            Committed::Snapshot(snapshot) => {
                member.applied = decode(&snapshot.data);
                for (index, data) in &member.applied {
                    assert_eq!(self.committed[index].1, *data, "I13: snapshot at {id}");
                }
            }
        }
    }

    fn check_leader(&mut self, id: NodeId) {
        let status = self.members[&id].node.status();
        if status.role == QuorumRole::Leader {
            let first = *self.leaders.entry(status.epoch).or_insert(id);
            assert_eq!(first, id, "I13: two leaders in epoch {}", status.epoch);
        }
    }

    /// Moves time by one step: messages that are due, ticks, work. Gives the storages that crashed.
    pub fn step(&mut self) -> Vec<(NodeId, S)> {
        let mut crashed = Vec::new();
        let end = self.now + STEP;
        while let Some(at) = self.earliest(end) {
            let mail = self.in_flight.swap_remove(at);
            self.now = self.now.max(mail.due);
            let now = self.clocks();
            if self.cut.contains(&(mail.from, mail.to)) {
                continue;
            }
            if let Some(member) = self.members.get_mut(&mail.to) {
                member.node.step(mail.message, now).expect("a correct message");
                crashed.extend(self.drain(mail.to).err().map(|storage| (mail.to, storage)));
            }
        }
        self.now = end;
        let now = self.clocks();
        for id in self.voters.clone() {
            if let Some(member) = self.members.get_mut(&id) {
                member.node.tick(now);
                crashed.extend(self.drain(id).err().map(|storage| (id, storage)));
            }
        }
        crashed
    }

    fn earliest(&self, end: Instant) -> Option<usize> {
        let due = self.in_flight.iter().enumerate().filter(|(_, mail)| mail.due < end);
        due.min_by_key(|(_, mail)| (mail.due, mail.order)).map(|(at, _)| at)
    }

    /// Steps until `done`, at most for `patience`; true when it happened.
    pub fn run_until(&mut self, patience: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + patience;
        while self.now < end {
            if done(self) {
                return true;
            }
            assert!(self.step().is_empty(), "no crash was ordered");
        }
        done(self)
    }

    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Whether every running member applied everything that was ever committed.
    pub fn is_level(&self) -> bool {
        let last = self.committed.last_key_value().map_or(0, |(index, _)| *index);
        self.members.values().all(|member| {
            member.node.status().committed == last
                && member.applied.last_key_value().map_or(0, |(index, _)| *index) == last
        })
    }

    /// Makes `id` snapshot all it applied and forget its log but for `keep` entries.
    pub fn snapshot(&mut self, id: NodeId, keep: u64) -> Result<(), QuorumError> {
        let member = self.members.get_mut(&id).expect("running");
        match member.applied.last_key_value() {
            Some((index, _)) => {
                let data = encode(&member.applied);
                member.node.create_snapshot(*index, data, keep)
            }
            None => Ok(()),
        }
    }
}

fn encode(applied: &BTreeMap<u64, Bytes>) -> Bytes {
    let mut bytes = Vec::new();
    for data in applied.values() {
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    }
    bytes.into()
}

fn decode(bytes: &Bytes) -> BTreeMap<u64, Bytes> {
    let mut applied = BTreeMap::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        applied.insert(applied.len() as u64 + 1, bytes.slice(at + 4..at + 4 + length));
        at += 4 + length;
    }
    applied
}
