//! A member of the new protocol (KIP-848), as a client behaves: it joins under an id of its own making,
//! gives up what it is told to before it says so, takes what it is then given, reads the committed offsets
//! of its partitions and commits ever larger ones with its member epoch. Fenced, it gives everything up and
//! joins again; after a lost answer it tells everything again.
//!
//! A commit whose end is not known makes it begin anew as another member: see the invariants of groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, OffsetCommitResponse,
    OffsetFetchResponse,
};
use protocol::{ErrorCode, NodeId, ResponseBody, TopicId};
use replication::time::Instant;

use super::requests::{self, Asker};
use super::{Effect, PATIENCE, Share};
use crate::invariants::GroupEvent;

const HEARTBEAT_VERSION: i16 = 1;
const PAUSE: Duration = Duration::from_millis(100);
const LEAVE_EPOCH: i32 = -1;
const LEAVE_STATIC_EPOCH: i32 = -2;

/// How a member behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberSettings {
    /// The group.
    pub group: String,
    /// The topic it subscribes to.
    pub topic: String,
    /// How many partitions it has.
    pub partitions: i32,
    /// `group.instance.id`, for a static member.
    pub instance_id: Option<String>,
    /// The session's timeout that the coordinator has for the group.
    pub session_timeout: Duration,
    /// How long it may take to give partitions up.
    pub rebalance_timeout: Duration,
    /// The pause between two requests.
    pub interval: Duration,
    /// How long it takes to give partitions up.
    pub revocation: Duration,
}

/// What it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Waiting {
    Nothing,
    Coordinator,
    Heartbeat,
    Leave,
    Commit(BTreeMap<i32, i64>),
    /// With what had been acknowledged when it asked.
    Fetch(BTreeMap<i32, i64>),
}

/// A member of the new protocol.
#[derive(Debug)]
pub struct SimSubscriber {
    id: u32,
    settings: SubscriberSettings,
    topic_id: TopicId,
    nodes: Vec<NodeId>,
    next_node: usize,
    coordinator: Option<NodeId>,
    /// How often it began anew.
    lives: u32,
    member_id: String,
    /// 0 while it has to join.
    epoch: i32,
    /// What it was told to have.
    told: BTreeSet<i32>,
    /// Its partitions with the offsets it has committed last, once it knows them.
    owned: BTreeMap<i32, Option<i64>>,
    /// When it has done what is to be done before it gives partitions up.
    revoked_at: Option<Instant>,
    /// It owns something else than it has said.
    has_news: bool,
    /// An answer was lost, so it says everything again.
    tell_all: bool,
    waiting: Waiting,
    asked_at: Instant,
    turns: u64,
    commits: u64,
    quiesced: bool,
    /// It leaves with this epoch.
    leaving: Option<i32>,
    last_error: ErrorCode,
}

impl fmt::Display for SimSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned: Vec<_> = self.owned.keys().collect();
        write!(
            f,
            "subscriber {:?} epoch {} owns {owned:?} of {:?}, coordinator {:?}, waits for {:?}, last \
             error {}",
            self.member_id,
            self.epoch,
            self.told,
            self.coordinator,
            self.waiting,
            self.last_error.kafka_name()
        )
    }
}

impl SimSubscriber {
    pub(super) fn new(
        id: u32,
        nodes: &[NodeId],
        topic_id: TopicId,
        settings: SubscriberSettings,
    ) -> Self {
        let mut made = Self {
            id,
            settings,
            topic_id,
            nodes: nodes.to_vec(),
            next_node: id as usize,
            coordinator: None,
            lives: 0,
            member_id: String::new(),
            epoch: 0,
            told: BTreeSet::new(),
            owned: BTreeMap::new(),
            revoked_at: None,
            has_news: false,
            tell_all: false,
            waiting: Waiting::Nothing,
            asked_at: Instant::ZERO,
            turns: 0,
            commits: 0,
            quiesced: false,
            leaving: None,
            last_error: ErrorCode::None,
        };
        made.begin_anew();
        made
    }

    /// Its epoch and the partitions it has, once it has all that it was told to.
    pub fn assignment(&self) -> Option<(i32, Vec<i32>)> {
        let is_settled = self.epoch > 0 && !self.has_news && self.owned.keys().eq(&self.told);
        is_settled.then(|| (self.epoch, self.owned.keys().copied().collect()))
    }

    /// How many commits of it were acknowledged.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Whether it has an instance id.
    pub fn is_static(&self) -> bool {
        self.settings.instance_id.is_some()
    }

    /// Whether it was told to give partitions up and still has them.
    pub fn is_revoking(&self) -> bool {
        self.owned.keys().any(|partition| !self.told.contains(partition))
    }

    pub(super) fn group(&self) -> &str {
        &self.settings.group
    }

    pub(super) fn share(&self) -> Share {
        Share { assignment: self.assignment(), partitions: self.settings.partitions }
    }

    /// Says nothing more, and counts for nothing more.
    pub(super) fn hang(&mut self) {
        self.quiesced = true;
        self.leaving = Some(LEAVE_EPOCH);
    }

    /// Says nothing more, as a client that hangs.
    pub(super) fn quiesce(&mut self) {
        self.quiesced = true;
    }

    /// Leaves the group with its next request, and is quiet then; a static member perhaps for a while
    /// only.
    pub(super) fn leave(&mut self, for_a_while: bool) {
        let is_static = for_a_while && self.settings.instance_id.is_some();
        self.leaving = Some(if is_static { LEAVE_STATIC_EPOCH } else { LEAVE_EPOCH });
    }

    pub(super) fn has_left(&self) -> bool {
        self.leaving.is_some() && self.quiesced
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
        if let Some(epoch) = self.leaving {
            return self.say_goodbye(epoch);
        }
        let Some(coordinator) = self.coordinator else {
            self.waiting = Waiting::Coordinator;
            let to = self.nodes[self.next_node % self.nodes.len()];
            self.next_node += 1;
            return vec![requests::find(to, &self.settings.group)];
        };
        if self.epoch == 0 {
            return vec![self.heartbeat(coordinator)];
        }
        if self.is_revoking() {
            let at = *self.revoked_at.get_or_insert(now + self.settings.revocation);
            if at <= now {
                self.revoked_at = None;
                self.owned.retain(|partition, _| self.told.contains(partition));
                self.has_news = true;
                return vec![self.holds(None), self.heartbeat(coordinator)];
            }
        }
        self.turns += 1;
        if self.has_news || self.tell_all || self.owned.is_empty() || self.turns.is_multiple_of(3) {
            return vec![self.heartbeat(coordinator)];
        }
        if self.owned.values().any(Option::is_none) || self.turns.is_multiple_of(7) {
            let at_least = self.owned.keys().map(|at| (*at, acknowledged(*at))).collect();
            self.waiting = Waiting::Fetch(at_least);
            let partitions = self.owned.keys().copied();
            return vec![requests::fetch(coordinator, self.asker(), partitions, true)];
        }
        let known = self.owned.iter();
        let next: BTreeMap<i32, i64> =
            known.map(|(partition, last)| (*partition, last.unwrap_or(-1) + 1)).collect();
        let request = requests::commit(coordinator, self.asker(), &next);
        self.waiting = Waiting::Commit(next);
        vec![request]
    }

    pub(super) fn on_answer(&mut self, answer: Option<ResponseBody>) -> Vec<Effect> {
        let answered_by = self.coordinator;
        let is_heartbeat = self.waiting == Waiting::Heartbeat;
        self.last_error = ErrorCode::None;
        let mut effects = self.take_answer(answer);
        if self.quiesced {
            return effects;
        }
        let is_good = is_heartbeat && self.last_error == ErrorCode::None;
        effects.push(self.holds(answered_by.filter(|_| is_good)));
        effects.push(Effect::Sleep(if self.epoch > 0 { self.settings.interval } else { PAUSE }));
        effects
    }

    fn take_answer(&mut self, answer: Option<ResponseBody>) -> Vec<Effect> {
        let waiting = std::mem::replace(&mut self.waiting, Waiting::Nothing);
        match (waiting, answer) {
            (Waiting::Coordinator, Some(ResponseBody::FindCoordinator(response))) => {
                self.coordinator = requests::found(&response);
                Vec::new()
            }
            (Waiting::Heartbeat, Some(ResponseBody::ConsumerGroupHeartbeat(response))) => {
                self.on_heartbeat(response)
            }
            (Waiting::Commit(offsets), Some(ResponseBody::OffsetCommit(response))) => {
                self.on_committed(&offsets, &response)
            }
            (Waiting::Fetch(at_least), Some(ResponseBody::OffsetFetch(response))) => {
                self.on_fetched(&at_least, &response)
            }
            (Waiting::Leave, _) => {
                self.quiesced = true;
                Vec::new()
            }
            (waiting, _) => {
                self.last_error = ErrorCode::NetworkException;
                self.coordinator = None;
                self.tell_all = true;
                if let Waiting::Commit(_) = waiting {
                    self.begin_anew();
                }
                Vec::new()
            }
        }
    }

    fn asker(&self) -> Asker<'_> {
        Asker {
            group: &self.settings.group,
            topic: &self.settings.topic,
            member_id: &self.member_id,
            instance_id: self.settings.instance_id.as_deref(),
            epoch: self.epoch,
        }
    }

    fn holds(&self, answered_by: Option<NodeId>) -> Effect {
        Effect::Holds {
            partitions: self.owned.keys().copied().collect(),
            answered_by,
            asked_at: self.asked_at,
            lease: self.settings.session_timeout.min(self.settings.rebalance_timeout),
        }
    }

    fn heartbeat(&mut self, to: NodeId) -> Effect {
        self.waiting = Waiting::Heartbeat;
        let joins = self.epoch == 0;
        let all = joins || self.tell_all;
        let owned = TopicPartitions {
            topic_id: self.topic_id,
            partitions: self.owned.keys().copied().collect(),
            ..TopicPartitions::default()
        };
        let owned = if self.owned.is_empty() { Vec::new() } else { vec![owned] };
        let request = ConsumerGroupHeartbeatRequest {
            group_id: self.settings.group.clone(),
            member_id: self.member_id.clone(),
            member_epoch: self.epoch,
            instance_id: self.settings.instance_id.clone(),
            rebalance_timeout_ms: if all {
                self.settings.rebalance_timeout.as_millis() as i32
            } else {
                -1
            },
            subscribed_topic_names: all.then(|| vec![self.settings.topic.clone()]),
            topic_partitions: (all || self.has_news).then_some(owned),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        Effect::Send { to, version: HEARTBEAT_VERSION, body: request.into(), timeout: PATIENCE * 2 }
    }

    fn on_heartbeat(&mut self, response: ConsumerGroupHeartbeatResponse) -> Vec<Effect> {
        let error = ErrorCode::from_code(response.error_code);
        if error != ErrorCode::None {
            self.on_error(error);
            return Vec::new();
        }
        let (member, epoch) = (self.member_id.clone(), response.member_epoch);
        let joins = self.epoch == 0;
        self.epoch = epoch;
        self.has_news = false;
        self.tell_all = false;
        if let Some(assignment) = response.assignment {
            let topics = assignment.topic_partitions.into_iter();
            self.told = topics
                .filter(|topic| topic.topic_id == self.topic_id)
                .flat_map(|topic| topic.partitions)
                .collect();
        }
        // All that is to go must be gone before anything is taken.
        if !self.is_revoking() {
            let new = self.told.iter().filter(|partition| !self.owned.contains_key(partition));
            let new: Vec<i32> = new.copied().collect();
            self.has_news = !new.is_empty();
            self.owned.extend(new.into_iter().map(|partition| (partition, None)));
        }
        vec![Effect::Group(GroupEvent::Epoch { member, epoch, joins })]
    }

    /// Gives everything up and leaves, as far as anybody hears of it.
    fn say_goodbye(&mut self, epoch: i32) -> Vec<Effect> {
        self.owned.clear();
        let Some(to) = self.coordinator.filter(|_| self.epoch > 0) else {
            self.quiesced = true;
            return vec![self.holds(None)];
        };
        self.waiting = Waiting::Leave;
        let request = ConsumerGroupHeartbeatRequest {
            group_id: self.settings.group.clone(),
            member_id: self.member_id.clone(),
            member_epoch: epoch,
            instance_id: self.settings.instance_id.clone(),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        let (version, timeout) = (HEARTBEAT_VERSION, PATIENCE * 2);
        vec![self.holds(None), Effect::Send { to, version, body: request.into(), timeout }]
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
                // These leave open whether the commit is in the log.
                ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                    self.begin_anew();
                    self.on_error(error);
                }
                error => self.on_error(error),
            }
        }
        effects
    }

    fn on_error(&mut self, error: ErrorCode) {
        self.last_error = error;
        match error {
            // The next heartbeat tells the newer epoch.
            ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::StaleMemberEpoch
            | ErrorCode::UnreleasedInstanceId => {}
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                self.coordinator = None;
                self.tell_all = true;
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound => self.give_up(),
            _ => self.begin_anew(),
        }
    }

    /// It is no member any more, and joins again.
    fn give_up(&mut self) {
        self.epoch = 0;
        self.told.clear();
        self.owned.clear();
        self.revoked_at = None;
        self.has_news = false;
    }

    fn begin_anew(&mut self) {
        self.give_up();
        self.lives += 1;
        self.member_id = format!("subscriber-{}-{}", self.id, self.lives);
    }
}
