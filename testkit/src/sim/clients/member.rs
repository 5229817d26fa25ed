//! A member of a classic consumer group, as a client behaves: it looks for the coordinator, joins, takes
//! its assignment (and makes everybody's when it is asked to lead), reads the committed offsets of its
//! partitions and commits ever larger ones, with heartbeats in between.
//!
//! A commit whose end is not known makes it begin anew as another member: see the invariants of groups.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitResponse,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use protocol::{ErrorCode, NodeId, RequestBody, ResponseBody};
use replication::time::Instant;

use super::requests::{self, Asker};
use super::{Effect, PATIENCE, Share};
use crate::invariants::GroupEvent;

const JOIN_VERSION: i16 = 9;
const SYNC_VERSION: i16 = 5;
const HEARTBEAT_VERSION: i16 = 4;
const LEAVE_VERSION: i16 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// How a member behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// The group.
    pub group: String,
    /// The topic whose partitions the group divides.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// Its session's timeout.
    pub session_timeout: Duration,
    /// How long the others wait for it in a rebalance.
    pub rebalance_timeout: Duration,
    /// The pause between two requests.
    pub interval: Duration,
    /// What it speaks inside the classic protocol.
    pub language: Language,
}

/// What the members of a classic group tell each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Language {
    /// Bytes of their own, which the coordinator cannot read.
    #[default]
    Opaque,
    /// Those of consumers (eager, `range`): such a group can be converted to the new protocol.
    Consumer,
}

impl Language {
    /// Protocol type and protocol.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Language::Opaque => ("sim", "in-turn"),
            Language::Consumer => ("consumer", "range"),
        }
    }
}

/// What it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Coordinator,
    Join,
    Sync,
    Heartbeat,
    Leave,
    Commit(BTreeMap<i32, i64>),
    /// With what had been acknowledged when it asked.
    Fetch(BTreeMap<i32, i64>),
}

/// A member.
#[derive(Debug)]
pub struct SimMember {
    settings: MemberSettings,
    nodes: Vec<NodeId>,
    next_node: usize,
    coordinator: Option<NodeId>,
    member_id: String,
    generation: i32,
    /// Joined and assigned.
    is_stable: bool,
    /// Its partitions with the offsets it has committed last, once it knows them.
    owned: BTreeMap<i32, Option<i64>>,
    waiting: Waiting,
    turns: u64,
    commits: u64,
    quiesced: bool,
    leaving: bool,
    last_error: ErrorCode,
    /// When it asked what it waits for.
    asked_at: Instant,
}

impl fmt::Display for SimMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned: Vec<_> = self.owned.keys().collect();
        write!(
            f,
            "member {:?} generation {} owns {owned:?}, stable {}, coordinator {:?}, waits for {:?}, \
             last error {}",
            self.member_id,
            self.generation,
            self.is_stable,
            self.coordinator,
            self.waiting,
            self.last_error.kafka_name()
        )
    }
}

impl SimMember {
    pub(super) fn new(nodes: &[NodeId], first: usize, settings: MemberSettings) -> Self {
        Self {
            settings,
            nodes: nodes.to_vec(),
            next_node: first,
            coordinator: None,
            member_id: String::new(),
            generation: -1,
            is_stable: false,
            owned: BTreeMap::new(),
            waiting: Waiting::Nothing,
            turns: 0,
            commits: 0,
            quiesced: false,
            leaving: false,
            last_error: ErrorCode::None,
            asked_at: Instant::ZERO,
        }
    }

    /// The generation and the partitions it has, if it has any.
    pub fn assignment(&self) -> Option<(i32, Vec<i32>)> {
        self.is_stable.then(|| (self.generation, self.owned.keys().copied().collect()))
    }

    /// What it has of the group's work.
    pub(super) fn share(&self) -> Share {
        Share { assignment: self.assignment(), partitions: self.settings.partitions }
    }

    /// Leaves the group with its next request, and is quiet then.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Whether it has left, or hangs for good.
    pub(super) fn has_left(&self) -> bool {
        self.leaving && self.quiesced
    }

    /// How many commits of it were acknowledged.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Says nothing more, and counts for nothing more.
    pub(super) fn hang(&mut self) {
        self.quiesced = true;
        self.leaving = true;
    }

    /// Says nothing more, as a client that hangs.
    pub(super) fn quiesce(&mut self) {
        self.quiesced = true;
    }

    /// The group it belongs to.
    pub(super) fn group(&self) -> &str {
        &self.settings.group
    }

    /// `acknowledged` tells the newest acknowledged offset of a partition.
    pub(super) fn on_wake(
        &mut self,
        acknowledged: &dyn Fn(i32) -> i64,
        now: Instant,
    ) -> Vec<Effect> {
        if self.waiting != Waiting::Nothing || self.quiesced {
            return Vec::new();
        }
        self.asked_at = now;
        if self.leaving {
            return self.say_goodbye();
        }
        let Some(coordinator) = self.coordinator else {
            return vec![self.find()];
        };
        if !self.is_stable {
            return vec![self.join(coordinator)];
        }
        self.turns += 1;
        if self.owned.values().any(Option::is_none) || self.turns.is_multiple_of(7) {
            return vec![self.fetch(coordinator, acknowledged)];
        }
        if self.turns.is_multiple_of(3) || self.owned.is_empty() {
            return vec![self.heartbeat(coordinator)];
        }
        vec![self.commit(coordinator)]
    }

    pub(super) fn on_answer(&mut self, answer: Option<ResponseBody>) -> Vec<Effect> {
        let answered_by = self.coordinator;
        let keeps_session =
            matches!(self.waiting, Waiting::Join | Waiting::Sync | Waiting::Heartbeat);
        self.last_error = ErrorCode::None;
        let mut effects = self.take_answer(answer);
        let is_good = keeps_session && self.last_error == ErrorCode::None;
        effects.insert(
            0,
            Effect::Holds {
                partitions: self.assignment().map(|(_, own)| own).unwrap_or_default(),
                answered_by: answered_by.filter(|_| is_good),
                asked_at: self.asked_at,
                lease: self.settings.session_timeout.min(self.settings.rebalance_timeout),
            },
        );
        effects
    }

    fn take_answer(&mut self, answer: Option<ResponseBody>) -> Vec<Effect> {
        let waiting = std::mem::replace(&mut self.waiting, Waiting::Nothing);
        let mut effects = match (waiting, answer) {
            (Waiting::Coordinator, Some(ResponseBody::FindCoordinator(response))) => {
                self.coordinator = requests::found(&response);
                Vec::new()
            }
            (Waiting::Join, Some(ResponseBody::JoinGroup(response))) => {
                return self.on_joined(response);
            }
            (Waiting::Sync, Some(ResponseBody::SyncGroup(response))) => self.on_synced(response),
            (Waiting::Heartbeat, Some(ResponseBody::Heartbeat(response))) => {
                self.on_error(ErrorCode::from_code(response.error_code));
                Vec::new()
            }
            (Waiting::Commit(offsets), Some(ResponseBody::OffsetCommit(response))) => {
                self.on_committed(&offsets, &response)
            }
            (Waiting::Fetch(at_least), Some(ResponseBody::OffsetFetch(response))) => {
                self.on_fetched(&at_least, &response)
            }
            (Waiting::Leave, _) => {
                self.quiesced = true;
                return Vec::new();
            }
            (Waiting::Commit(_), _) => {
                self.last_error = ErrorCode::NetworkException;
                self.begin_anew();
                self.coordinator = None;
                Vec::new()
            }
            _ => {
                self.last_error = ErrorCode::NetworkException;
                self.coordinator = None;
                Vec::new()
            }
        };
        effects.push(Effect::Sleep(if self.is_stable { self.settings.interval } else { PAUSE }));
        effects
    }

    fn send(&self, to: NodeId, version: i16, body: RequestBody, timeout: Duration) -> Effect {
        Effect::Send { to, version, body, timeout }
    }

    fn find(&mut self) -> Effect {
        self.waiting = Waiting::Coordinator;
        let to = self.nodes[self.next_node % self.nodes.len()];
        self.next_node += 1;
        requests::find(to, &self.settings.group)
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            group: &self.settings.group,
            topic: &self.settings.topic,
            member_id: &self.member_id,
            instance_id: None,
            epoch: self.generation,
        }
    }

    /// Gives everything up and leaves, as far as anybody hears of it.
    fn say_goodbye(&mut self) -> Vec<Effect> {
        self.is_stable = false;
        self.owned.clear();
        let Some(coordinator) = self.coordinator.filter(|_| !self.member_id.is_empty()) else {
            self.quiesced = true;
            return vec![self.holds_nothing()];
        };
        self.waiting = Waiting::Leave;
        let identity =
            MemberIdentity { member_id: self.member_id.clone(), ..MemberIdentity::default() };
        let request = LeaveGroupRequest {
            group_id: self.settings.group.clone(),
            members: vec![identity],
            ..LeaveGroupRequest::default()
        };
        vec![self.holds_nothing(), self.send(coordinator, LEAVE_VERSION, request.into(), PATIENCE)]
    }

    fn holds_nothing(&self) -> Effect {
        Effect::Holds {
            partitions: Vec::new(),
            answered_by: None,
            asked_at: self.asked_at,
            lease: Duration::ZERO,
        }
    }

    fn join(&mut self, to: NodeId) -> Effect {
        self.waiting = Waiting::Join;
        let (protocol_type, protocol) = self.settings.language.names();
        let request = JoinGroupRequest {
            group_id: self.settings.group.clone(),
            session_timeout_ms: self.settings.session_timeout.as_millis() as i32,
            rebalance_timeout_ms: self.settings.rebalance_timeout.as_millis() as i32,
            member_id: self.member_id.clone(),
            protocol_type: protocol_type.into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: protocol.into(),
                metadata: match self.settings.language {
                    Language::Opaque => Bytes::new(),
                    Language::Consumer => requests::subscription(&self.settings.topic),
                },
                ..JoinGroupRequestProtocol::default()
            }],
            ..JoinGroupRequest::default()
        };
        let timeout = PATIENCE + self.settings.rebalance_timeout * 2;
        self.send(to, JOIN_VERSION, request.into(), timeout)
    }

    fn on_joined(&mut self, response: JoinGroupResponse) -> Vec<Effect> {
        let error = ErrorCode::from_code(response.error_code);
        if error == ErrorCode::MemberIdRequired {
            self.member_id = response.member_id;
            return vec![Effect::Sleep(Duration::ZERO)];
        }
        let Some(coordinator) = self.coordinator.filter(|_| error == ErrorCode::None) else {
            self.on_error(error);
            return vec![Effect::Sleep(PAUSE)];
        };
        self.member_id = response.member_id.clone();
        self.generation = response.generation_id;
        let joined =
            GroupEvent::Joined { member: self.member_id.clone(), generation: self.generation };
        vec![Effect::Group(joined), self.sync(coordinator, &response)]
    }

    fn sync(&mut self, to: NodeId, joined: &JoinGroupResponse) -> Effect {
        self.waiting = Waiting::Sync;
        let members = &joined.members;
        let (protocol_type, protocol) = self.settings.language.names();
        let share = |at: usize| -> Bytes {
            let own = (0..self.settings.partitions)
                .filter(|partition| *partition as usize % members.len() == at);
            match self.settings.language {
                Language::Opaque => own.map(|partition| partition as u8).collect(),
                Language::Consumer => requests::assignment(&self.settings.topic, own.collect()),
            }
        };
        let assignments =
            members.iter().enumerate().map(|(at, member)| SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: share(at),
                ..SyncGroupRequestAssignment::default()
            });
        let request = SyncGroupRequest {
            group_id: self.settings.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            protocol_type: Some(protocol_type.into()),
            protocol_name: Some(protocol.into()),
            // Only the leader is told of the members.
            assignments: assignments.collect(),
            ..SyncGroupRequest::default()
        };
        let timeout = PATIENCE + self.settings.rebalance_timeout;
        self.send(to, SYNC_VERSION, request.into(), timeout)
    }

    fn on_synced(&mut self, response: SyncGroupResponse) -> Vec<Effect> {
        let error = ErrorCode::from_code(response.error_code);
        if error != ErrorCode::None {
            self.on_error(error);
            return Vec::new();
        }
        self.is_stable = true;
        let partitions: Vec<i32> = match self.settings.language {
            Language::Opaque => response.assignment.iter().map(|at| i32::from(*at)).collect(),
            Language::Consumer => requests::assigned(&response.assignment),
        };
        self.owned = partitions.iter().map(|partition| (*partition, None)).collect();
        if self.settings.language == Language::Consumer {
            // The group may have been another kind of group in between, which counts anew: see G4.
            return Vec::new();
        }
        let (member, generation) = (self.member_id.clone(), self.generation);
        vec![Effect::Group(GroupEvent::Assigned { member, generation, partitions })]
    }

    fn heartbeat(&mut self, to: NodeId) -> Effect {
        self.waiting = Waiting::Heartbeat;
        let request = HeartbeatRequest {
            group_id: self.settings.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            ..HeartbeatRequest::default()
        };
        self.send(to, HEARTBEAT_VERSION, request.into(), PATIENCE)
    }

    fn fetch(&mut self, to: NodeId, acknowledged: &dyn Fn(i32) -> i64) -> Effect {
        let partitions = self.owned.keys();
        let at_least = partitions.map(|partition| (*partition, acknowledged(*partition)));
        self.waiting = Waiting::Fetch(at_least.collect());
        requests::fetch(to, self.asker(), self.owned.keys().copied(), false)
    }

    fn on_fetched(
        &mut self,
        at_least: &BTreeMap<i32, i64>,
        response: &OffsetFetchResponse,
    ) -> Vec<Effect> {
        requests::fetched(&mut self.owned, at_least, response).unwrap_or_else(|error| {
            self.on_error(error);
            Vec::new()
        })
    }

    fn commit(&mut self, to: NodeId) -> Effect {
        let next: BTreeMap<i32, i64> = self
            .owned
            .iter()
            .map(|(partition, last)| (*partition, last.unwrap_or(-1) + 1))
            .collect();
        let request = requests::commit(to, self.asker(), &next);
        self.waiting = Waiting::Commit(next);
        request
    }

    fn on_committed(
        &mut self,
        offsets: &BTreeMap<i32, i64>,
        response: &OffsetCommitResponse,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (partition, error) in requests::committed(response) {
            match error {
                ErrorCode::None => {
                    let offset = offsets.get(&partition).copied().unwrap_or(-1);
                    self.owned.insert(partition, Some(offset));
                    self.commits += 1;
                    effects.push(Effect::Group(GroupEvent::Committed { partition, offset }));
                }
                error => self.on_commit_error(error),
            }
        }
        effects
    }

    /// Some errors leave open whether the commit is in the log.
    fn on_commit_error(&mut self, error: ErrorCode) {
        if matches!(error, ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) {
            self.begin_anew();
        }
        self.on_error(error);
    }

    fn on_error(&mut self, error: ErrorCode) {
        if error != ErrorCode::None {
            self.last_error = error;
        }
        match error {
            ErrorCode::None => {}
            ErrorCode::CoordinatorLoadInProgress => {}
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                self.coordinator = None;
            }
            ErrorCode::UnknownMemberId => self.begin_anew(),
            _ => self.is_stable = false,
        }
    }

    fn begin_anew(&mut self) {
        self.member_id.clear();
        self.generation = -1;
        self.is_stable = false;
        self.owned.clear();
    }
}
