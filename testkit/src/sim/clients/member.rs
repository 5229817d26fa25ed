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
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use protocol::{ErrorCode, NodeId, RequestBody, ResponseBody};

use super::{Effect, PATIENCE};
use crate::invariants::GroupEvent;

const FIND_VERSION: i16 = 4;
const JOIN_VERSION: i16 = 9;
const SYNC_VERSION: i16 = 5;
const HEARTBEAT_VERSION: i16 = 4;
const COMMIT_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 9;
const PAUSE: Duration = Duration::from_millis(100);
const PROTOCOL_TYPE: &str = "sim";
const PROTOCOL: &str = "in-turn";

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
}

/// What it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Coordinator,
    Join,
    Sync,
    Heartbeat,
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
    last_error: ErrorCode,
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
            last_error: ErrorCode::None,
        }
    }

    /// The generation and the partitions it has, if it has any.
    pub fn assignment(&self) -> Option<(i32, Vec<i32>)> {
        self.is_stable.then(|| (self.generation, self.owned.keys().copied().collect()))
    }

    /// Whether these, a whole group, have all partitions among them in one generation.
    pub(super) fn divide_everything(members: &[&SimMember]) -> bool {
        let assigned: Option<Vec<_>> = members.iter().map(|member| member.assignment()).collect();
        let Some(assigned) = assigned else {
            return false;
        };
        let mut partitions: Vec<i32> =
            assigned.iter().flat_map(|(_, partitions)| partitions.clone()).collect();
        partitions.sort_unstable();
        let all = members.first().map_or(0, |member| member.settings.partitions);
        assigned.windows(2).all(|pair| pair[0].0 == pair[1].0)
            && partitions == (0..all).collect::<Vec<_>>()
    }

    /// How many commits of it were acknowledged.
    pub fn commits(&self) -> u64 {
        self.commits
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
    pub(super) fn on_wake(&mut self, acknowledged: &dyn Fn(i32) -> i64) -> Vec<Effect> {
        if self.waiting != Waiting::Nothing || self.quiesced {
            return Vec::new();
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
        let waiting = std::mem::replace(&mut self.waiting, Waiting::Nothing);
        let mut effects = match (waiting, answer) {
            (Waiting::Coordinator, Some(ResponseBody::FindCoordinator(response))) => {
                self.on_found(&response);
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
            (Waiting::Commit(_), _) => {
                self.begin_anew();
                self.coordinator = None;
                Vec::new()
            }
            _ => {
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
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![self.settings.group.clone()],
            ..FindCoordinatorRequest::default()
        };
        self.send(to, FIND_VERSION, request.into(), PATIENCE)
    }

    fn on_found(&mut self, response: &FindCoordinatorResponse) {
        let found = response.coordinators.first().filter(|found| found.error_code == 0);
        self.coordinator = found.map(|found| NodeId(found.node_id));
    }

    fn join(&mut self, to: NodeId) -> Effect {
        self.waiting = Waiting::Join;
        let request = JoinGroupRequest {
            group_id: self.settings.group.clone(),
            session_timeout_ms: self.settings.session_timeout.as_millis() as i32,
            rebalance_timeout_ms: self.settings.rebalance_timeout.as_millis() as i32,
            member_id: self.member_id.clone(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: PROTOCOL.into(),
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
        let share = |at: usize| -> Bytes {
            let own = (0..self.settings.partitions)
                .filter(|partition| *partition as usize % members.len() == at);
            own.map(|partition| partition as u8).collect()
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
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(PROTOCOL.into()),
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
        let partitions: Vec<i32> =
            response.assignment.iter().map(|partition| i32::from(*partition)).collect();
        self.owned = partitions.iter().map(|partition| (*partition, None)).collect();
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
        let topic = OffsetFetchRequestTopics {
            name: self.settings.topic.clone(),
            partition_indexes: self.owned.keys().copied().collect(),
            ..OffsetFetchRequestTopics::default()
        };
        let group = OffsetFetchRequestGroup {
            group_id: self.settings.group.clone(),
            member_epoch: -1,
            topics: Some(vec![topic]),
            ..OffsetFetchRequestGroup::default()
        };
        let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
        self.send(to, FETCH_VERSION, request.into(), PATIENCE)
    }

    fn on_fetched(
        &mut self,
        at_least: &BTreeMap<i32, i64>,
        response: &OffsetFetchResponse,
    ) -> Vec<Effect> {
        let group = response.groups.first();
        let error = group
            .map_or(ErrorCode::UnknownServerError, |group| ErrorCode::from_code(group.error_code));
        if error != ErrorCode::None {
            self.on_error(error);
            return Vec::new();
        }
        let mut effects = Vec::new();
        let topics = group.map(|group| group.topics.as_slice()).unwrap_or_default();
        for answered in topics.iter().flat_map(|topic| &topic.partitions) {
            let (partition, offset) = (answered.partition_index, answered.committed_offset);
            if let Some(known) = self.owned.get_mut(&partition) {
                *known = Some(known.unwrap_or(-1).max(offset));
            }
            let at_least = at_least.get(&partition).copied().unwrap_or(-1);
            effects.push(Effect::Group(GroupEvent::Fetched { partition, offset, at_least }));
        }
        effects
    }

    fn commit(&mut self, to: NodeId) -> Effect {
        let next: BTreeMap<i32, i64> = self
            .owned
            .iter()
            .map(|(partition, last)| (*partition, last.unwrap_or(-1) + 1))
            .collect();
        let partitions = next.iter().map(|(partition, offset)| OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_leader_epoch: -1,
            ..OffsetCommitRequestPartition::default()
        });
        let request = OffsetCommitRequest {
            group_id: self.settings.group.clone(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone(),
            topics: vec![OffsetCommitRequestTopic {
                name: self.settings.topic.clone(),
                partitions: partitions.collect(),
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        self.waiting = Waiting::Commit(next);
        self.send(to, COMMIT_VERSION, request.into(), PATIENCE)
    }

    fn on_committed(
        &mut self,
        offsets: &BTreeMap<i32, i64>,
        response: &OffsetCommitResponse,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for answered in response.topics.iter().flat_map(|topic| &topic.partitions) {
            let partition = answered.partition_index;
            match ErrorCode::from_code(answered.error_code) {
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
