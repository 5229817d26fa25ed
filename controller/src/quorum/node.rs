//! One member of the quorum: the consensus core with its time, its storage and its messages.
//!
//! It decides when to ask for votes (early after a start, patiently later: Q04), when a leader may
//! still speak for the quorum (the lease of Q03), and what of a peer's message is safe to hand to
//! the core. Ready work is done in one order only, in [`QuorumNode::drain`].

mod contacts;

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::types::NodeId;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};
use replication::time::{Instant, Now};

use super::storage::{RaftStorage, from_raft_entry};
use super::{
    HardState, LogEntry, QuorumConfig, QuorumError, QuorumSnapshot, QuorumStorage, codec, node_id,
    raft_id,
};

use contacts::Contact;
pub use contacts::VoterProgress;

/// Longest proposal, in bytes; larger decisions must be split by the caller.
const MAX_PROPOSAL_BYTES: usize = 16 * 1024 * 1024;
/// Ticks made up for at once after the host was late. A process that was frozen must first hear what
/// waits in its queues before it believes that its leader is silent.
const MAX_TICKS_AT_ONCE: u128 = 2;
/// Append messages on their way to one peer before the leader waits for answers.
const MAX_INFLIGHT_APPENDS: usize = 64;

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuorumRole {
    /// Follows a leader, or waits for one.
    Follower,
    /// Asks whether it could win (pre-vote, KIP-996); nothing is written for it.
    Prospective,
    /// Asks for votes in an epoch of its own.
    Candidate,
    /// Leads its epoch.
    Leader,
}

/// Where a member stands. Comparing two of them tells whether anything changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumStatus {
    /// This member's role.
    pub role: QuorumRole,
    /// The epoch it is in.
    pub epoch: i32,
    /// That epoch's leader, if it knows one.
    pub leader: Option<NodeId>,
    /// The last committed offset; 0 for none.
    pub committed: u64,
    /// The last offset in its log; 0 for none.
    pub last: u64,
    /// Whether it leads and an entry of its own epoch is committed: only then is what it has applied
    /// the whole committed state (Q01, last sentence).
    pub is_settled_leader: bool,
}

/// Something that became committed here, in log order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The next entry.
    Entry(LogEntry),
    /// A leader's snapshot that takes the place of everything before.
    Snapshot(QuorumSnapshot),
}

/// What one [`QuorumNode::drain`] brought about.
#[derive(Debug, Default)]
pub struct QuorumUpdate {
    /// Newly committed, each exactly once in the life of this member object.
    pub committed: Vec<Committed>,
}

/// Why a proposal was not taken. Nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Somebody else leads, or nobody, or this leader is handing over.
    #[error("not the leader of the metadata quorum")]
    NotLeader,
    /// More bytes than one entry may have.
    #[error("a decision of {0} bytes is too large for one entry")]
    TooLarge(usize),
}

/// One voter of the quorum. Every input is followed, sooner or later, by [`QuorumNode::drain`].
pub struct QuorumNode<S: QuorumStorage> {
    raw: RawNode<RaftStorage<S>>,
    config: QuorumConfig,
    last_tick: Instant,
    /// When and how often this member asked early for votes; `None` once it heard of a leader.
    startup: Option<(Instant, u32)>,
    /// When a candidate gives up waiting for votes.
    campaign_until: Option<Instant>,
    seen: (u64, StateRole),
    /// Campaigns in the current epoch, for the next draw.
    round: u64,
    leader_since: Instant,
    contacts: BTreeMap<u64, Contact>,
    /// Since when a snapshot is on its way to a peer.
    snapshots_sent: BTreeMap<u64, Instant>,
}

impl<S: QuorumStorage> QuorumNode<S> {
    /// Starts a member from what its storage holds.
    ///
    /// # Errors
    /// [`QuorumError::Config`] for voters that make no quorum, [`QuorumError::Corrupt`] when the
    /// storage claims more committed than it has.
    pub fn new(config: QuorumConfig, storage: S, now: Now) -> Result<Self, QuorumError> {
        let config = config.checked()?;
        let last_index = storage.last_index();
        let stored = storage.hard_state();
        if stored.commit > last_index {
            return Err(QuorumError::Corrupt {
                path: "the quorum's storage".to_owned(),
                reason: format!("{} committed but the log ends at {last_index}", stored.commit),
            });
        }
        let applied = storage.snapshot_position().0;
        let voters: Vec<_> = config.voters.iter().map(|voter| raft_id(*voter)).collect();
        let raft_config = raft::Config {
            id: raft_id(config.node_id),
            election_tick: config.lease_ticks(),
            heartbeat_tick: config.heartbeat_ticks(),
            applied,
            max_size_per_msg: config.max_message_bytes,
            max_inflight_msgs: MAX_INFLIGHT_APPENDS,
            check_quorum: true,
            pre_vote: true,
            min_election_tick: config.lease_ticks(),
            max_election_tick: config.max_election_ticks(),
            ..Default::default()
        };
        let logger = slog::Logger::root(WarningsToTracing, slog::o!());
        let raw = RawNode::new(&raft_config, RaftStorage { inner: storage, voters }, &logger)?;
        let first_try = now.monotonic + config.startup_patience(last_index == 0);
        let seen = (raw.raft.term, raw.raft.state);
        let mut node = Self {
            raw,
            config,
            last_tick: now.monotonic,
            startup: Some((first_try, 0)),
            campaign_until: None,
            seen,
            round: 0,
            leader_since: now.monotonic,
            contacts: BTreeMap::new(),
            snapshots_sent: BTreeMap::new(),
        };
        node.after_input(now);
        Ok(node)
    }

    /// Lets time pass. To be called at [`QuorumNode::next_wakeup`]; more often does no harm.
    pub fn tick(&mut self, now: Now) {
        let interval = self.config.tick_interval();
        let due = now.monotonic.since(self.last_tick).as_micros() / interval.as_micros().max(1);
        if due > MAX_TICKS_AT_ONCE {
            self.last_tick = now.monotonic;
        } else {
            self.last_tick = self.last_tick + interval * due as u32;
        }
        for _ in 0..due.min(MAX_TICKS_AT_ONCE) {
            self.raw.tick();
            self.after_input(now);
        }
        self.maybe_campaign(now);
        self.maybe_give_up_snapshots(now);
    }

    /// When [`QuorumNode::tick`] has something to do next.
    pub fn next_wakeup(&self) -> Instant {
        let tick = self.last_tick + self.config.tick_interval();
        let early = self.startup.map(|(at, _)| at).filter(|_| self.may_campaign_early());
        early.into_iter().chain(self.campaign_until).fold(tick, Instant::min)
    }

    /// Takes a peer's message.
    ///
    /// # Errors
    /// [`QuorumError::BadMessage`] for what no correct voter sends; the message is dropped.
    pub fn step(&mut self, bytes: Bytes, now: Now) -> Result<(), QuorumError> {
        let me = self.raw.raft.id;
        let message = codec::decode(bytes, me, &self.raw.raft.store().voters)?;
        self.step_message(message, now)
    }

    /// Appends `data` (not empty) to the log if this member leads, and returns its offset. It is
    /// committed when [`QuorumNode::drain`] returns that entry with the epoch of now; another entry
    /// at that offset, or a snapshot over it, means that it was lost.
    pub fn propose(&mut self, data: Bytes, now: Now) -> Result<u64, ProposeError> {
        assert!(!data.is_empty(), "an empty entry marks a new leader and is not for callers");
        if data.len() > MAX_PROPOSAL_BYTES {
            return Err(ProposeError::TooLarge(data.len()));
        }
        if !self.can_propose() {
            return Err(ProposeError::NotLeader);
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.raw.raft.id;
        let entry = Entry { data, ..Default::default() };
        message.set_entries(vec![entry].into());
        self.raw.raft.step(message).map_err(|_| ProposeError::NotLeader)?;
        self.after_input(now);
        Ok(self.raw.raft.raft_log.last_index())
    }

    /// Whether [`QuorumNode::propose`] would be taken now.
    pub fn can_propose(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && self.raw.raft.lead_transferee.is_none()
    }

    /// Does all outstanding work: a leader's messages are sent, then vote and entries are made
    /// durable, then other messages are sent, and what is committed is returned.
    ///
    /// # Errors
    /// Any error is final: the storage may be behind what the core believes, so this member must
    /// not be used again. Nothing that depends on the failed write was sent.
    pub fn drain(
        &mut self,
        now: Now,
        send: &mut dyn FnMut(NodeId, Bytes),
    ) -> Result<QuorumUpdate, QuorumError> {
        let mut update = QuorumUpdate::default();
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            self.send(ready.take_messages(), now, send);
            self.persist(&ready, &mut update)?;
            extend(&mut update, ready.take_committed_entries());
            self.send(ready.take_persisted_messages(), now, send);
            let mut light = self.raw.advance(ready);
            self.send(light.take_messages(), now, send);
            extend(&mut update, light.take_committed_entries());
            self.raw.advance_apply();
        }
        self.after_input(now);
        Ok(update)
    }

    fn persist(
        &mut self,
        ready: &raft::Ready,
        update: &mut QuorumUpdate,
    ) -> Result<(), QuorumError> {
        let storage = &mut self.raw.raft.mut_store().inner;
        let stored = storage.hard_state();
        if let Some(state) = ready.hs()
            && (state.term, state.vote) != (stored.term, stored.vote)
        {
            // The vote first: an entry of an epoch that is not on disk must not be there before it.
            // And it must not call committed what is only about to be written: a crash in between
            // would leave another leader's entries under that name.
            let written = ready.entries().first().map_or(state.commit, |entry| entry.index - 1);
            let is_replaced = !ready.snapshot().is_empty();
            let commit = if is_replaced { stored.commit } else { state.commit.min(written) };
            storage.set_hard_state(HardState { term: state.term, vote: state.vote, commit })?;
        }
        if !ready.snapshot().is_empty() {
            let metadata = ready.snapshot().get_metadata();
            let snapshot = QuorumSnapshot {
                index: metadata.index,
                term: metadata.term,
                data: ready.snapshot().data.clone(),
            };
            storage.install_snapshot(&snapshot)?;
            update.committed.push(Committed::Snapshot(snapshot));
        }
        if !ready.entries().is_empty() {
            let entries: Vec<_> = ready.entries().iter().cloned().map(from_raft_entry).collect();
            storage.append(&entries)?;
            storage.sync()?;
        }
        Ok(())
    }

    fn send(&mut self, messages: Vec<Message>, now: Now, send: &mut dyn FnMut(NodeId, Bytes)) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.snapshots_sent.insert(message.to, now.monotonic);
            }
            if let Some((to, bytes)) = codec::encode(message) {
                send(to, bytes);
            }
        }
    }

    fn step_message(&mut self, mut message: Message, now: Now) -> Result<(), QuorumError> {
        let (from, term) = (message.from, message.term);
        let last_index = self.raw.raft.raft_log.last_index();
        match message.get_msg_type() {
            // A leader that remembers more than this log has: the disk was lost or replaced. The
            // core would panic; instead the leader is told, and nothing is committed until then.
            MessageType::MsgHeartbeat if message.commit > last_index => {
                self.confess_loss(&message, last_index);
                message.commit = self.raw.raft.raft_log.committed;
            }
            MessageType::MsgAppendResponse if message.reject => {
                self.forget_lost_progress(&message);
            }
            MessageType::MsgAppendResponse
                if message.index > last_index
                    && term == self.term()
                    && self.raw.raft.state == StateRole::Leader =>
            {
                return Err(QuorumError::BadMessage(format!(
                    "{from} acknowledges {} but the log ends at {last_index}",
                    message.index
                )));
            }
            _ => {}
        }
        self.raw.step(message)?;
        if term == self.term() {
            self.note_contact(from, now);
        }
        self.after_input(now);
        Ok(())
    }

    /// Rejects what the leader `heartbeat` came from believes to be here.
    fn confess_loss(&mut self, heartbeat: &Message, last_index: u64) {
        let raft = &mut self.raw.raft;
        if heartbeat.term < raft.term {
            return;
        }
        tracing::error!(last_index, known = heartbeat.commit, "this log lost acknowledged entries");
        let mut rejection = Message::default();
        rejection.set_msg_type(MessageType::MsgAppendResponse);
        rejection.from = raft.id;
        rejection.to = heartbeat.from;
        rejection.term = heartbeat.term;
        rejection.index = heartbeat.commit;
        rejection.reject = true;
        rejection.reject_hint = last_index;
        rejection.log_term = raft.raft_log.term(last_index).unwrap_or(0);
        raft.msgs.push(rejection);
    }

    /// A follower that rejects below what it once acknowledged has lost its disk. Believing less of
    /// it is always safe; without this the leader would ask for the same append for ever.
    fn forget_lost_progress(&mut self, message: &Message) {
        if message.term != self.term() || self.raw.raft.state != StateRole::Leader {
            return;
        }
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(message.from)
            && progress.state == ProgressState::Replicate
            && message.reject_hint < progress.matched
        {
            progress.matched = message.reject_hint;
            progress.become_probe();
        }
    }

    fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// Follows the core's changes of epoch and role, and replaces its random timeout by ours.
    fn after_input(&mut self, now: Now) {
        let current = (self.raw.raft.term, self.raw.raft.state);
        if current != self.seen {
            if current.0 != self.seen.0 {
                self.round = 0;
            }
            let campaigns = matches!(current.1, StateRole::PreCandidate | StateRole::Candidate);
            if campaigns {
                self.round += 1;
                let patience = self.config.draw_candidate_patience(current.0, self.round);
                self.campaign_until = Some(now.monotonic + patience);
            } else {
                self.campaign_until = None;
            }
            if current.1 == StateRole::Leader {
                self.leader_since = now.monotonic;
                self.contacts.clear();
                self.snapshots_sent.clear();
            }
            self.seen = current;
        }
        if self.raw.raft.leader_id != 0 {
            self.startup = None;
        }
        let ticks = self.config.draw_election_ticks(current.0, self.round);
        if self.raw.raft.randomized_election_timeout() != ticks {
            self.raw.raft.set_randomized_election_timeout(ticks);
        }
    }

    /// Early tries are only for a member that heard nothing since its start; one that already asks
    /// for real votes, or gave its own away, waits for the outcome.
    fn may_campaign_early(&self) -> bool {
        let raft = &self.raw.raft;
        let waits_for_outcome = raft.state == StateRole::Candidate
            || (raft.vote != 0 && raft.vote != raft.id && self.round == 0 && self.voted_recently());
        raft.leader_id == 0 && !waits_for_outcome
    }

    fn voted_recently(&self) -> bool {
        self.raw.raft.election_elapsed < self.config.heartbeat_ticks()
    }

    fn maybe_campaign(&mut self, now: Now) {
        let early = match self.startup {
            Some((at, _)) => now.monotonic >= at && self.may_campaign_early(),
            None => false,
        };
        let again = self.campaign_until.is_some_and(|until| now.monotonic >= until);
        if !early && !again {
            return;
        }
        if let Some((at, tries)) = &mut self.startup {
            *at = now.monotonic + QuorumConfig::startup_retry(*tries);
            *tries += 1;
        }
        if again {
            // Draw anew even when the role stays the same.
            self.round += 1;
            let patience = self.config.draw_candidate_patience(self.term(), self.round);
            self.campaign_until = Some(now.monotonic + patience);
        }
        if let Err(error) = self.raw.campaign() {
            tracing::debug!(%error, "campaign refused");
        }
        self.after_input(now);
    }

    /// A snapshot whose message was lost would pause its peer for ever.
    fn maybe_give_up_snapshots(&mut self, now: Now) {
        let patience = self.config.fetch_timeout * 4;
        let overdue: Vec<_> = self
            .snapshots_sent
            .iter()
            .filter(|(_, sent)| now.monotonic.since(**sent) >= patience)
            .map(|(to, _)| *to)
            .collect();
        for to in overdue {
            self.snapshots_sent.remove(&to);
            self.raw.report_snapshot(to, SnapshotStatus::Failure);
        }
    }

    /// Where this member stands.
    pub fn status(&self) -> QuorumStatus {
        let raft = &self.raw.raft;
        let role = match raft.state {
            StateRole::Follower => QuorumRole::Follower,
            StateRole::PreCandidate => QuorumRole::Prospective,
            StateRole::Candidate => QuorumRole::Candidate,
            StateRole::Leader => QuorumRole::Leader,
        };
        QuorumStatus {
            role,
            epoch: i32::try_from(raft.term).unwrap_or(i32::MAX),
            leader: node_id(raft.leader_id),
            committed: raft.raft_log.committed,
            last: raft.raft_log.last_index(),
            is_settled_leader: role == QuorumRole::Leader && raft.commit_to_current_term(),
        }
    }

    /// Tells the core that messages to `peer` were lost, so that it probes instead of streaming.
    pub fn report_unreachable(&mut self, peer: NodeId) {
        if self.raw.raft.prs().get(raft_id(peer)).is_some() {
            self.raw.report_unreachable(raft_id(peer));
        }
    }

    /// Keeps `data` as the caller's state after the committed entry at `index`, and lets the log
    /// forget what lies more than `keep` entries behind it.
    ///
    /// # Errors
    /// The storage's; final, as in [`QuorumNode::drain`].
    pub fn create_snapshot(
        &mut self,
        index: u64,
        data: Bytes,
        keep: u64,
    ) -> Result<(), QuorumError> {
        let committed = self.raw.raft.raft_log.committed;
        assert!(index <= committed, "snapshot at {index} but only {committed} is committed");
        let storage = &mut self.raw.raft.mut_store().inner;
        let Some(term) = storage.term(index) else {
            return Ok(()); // A leader's snapshot further on has just been installed.
        };
        if index <= storage.snapshot_position().0 {
            return Ok(());
        }
        storage.create_snapshot(&QuorumSnapshot { index, term, data })?;
        storage.compact((index + 1).saturating_sub(keep).max(1))
    }

    /// Committed entries from `from` on, of about `max_bytes`; empty when there are none yet, and
    /// `None` when the log no longer reaches back that far.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_committed(
        &self,
        from: u64,
        max_bytes: u64,
    ) -> Result<Option<Vec<LogEntry>>, QuorumError> {
        let storage = self.storage();
        if from < storage.first_index() {
            return Ok(None);
        }
        let end = self.raw.raft.raft_log.committed.min(storage.last_index()) + 1;
        if from >= end {
            Ok(Some(Vec::new()))
        } else {
            storage.entries(from, end, max_bytes).map(Some)
        }
    }

    /// What this member keeps.
    pub fn storage(&self) -> &S {
        &self.raw.raft.store().inner
    }

    /// This member's fixed facts.
    pub fn config(&self) -> &QuorumConfig {
        &self.config
    }

    /// Ends this member and gives its storage back.
    pub fn into_storage(self) -> S {
        self.raw.raft.r.raft_log.store.inner
    }
}

fn extend(update: &mut QuorumUpdate, entries: Vec<Entry>) {
    update
        .committed
        .extend(entries.into_iter().map(|entry| Committed::Entry(from_raft_entry(entry))));
}

/// The core's own warnings, for the operator. Everything below is noise beside our own events.
struct WarningsToTracing;

impl slog::Drain for WarningsToTracing {
    type Ok = ();
    type Err = slog::Never;

    fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<(), slog::Never> {
        if record.level().is_at_least(slog::Level::Warning) {
            tracing::warn!(target: "controller::raft", "{}", record.msg());
        }
        Ok(())
    }
}
