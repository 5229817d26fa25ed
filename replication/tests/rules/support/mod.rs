//! A cluster of one partition, driven step by step: every message is a value that a test may hold,
//! drop or deliver late. It plays the host's part as the head of the crate says it.

mod controller;
mod log;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, TopicPartition};
use replication::partition::FetchReader;
use replication::trace::{Event, Why};
use replication::truncation::{
    FetchAnswer, FetchAnswerStep, FetchPoint, FollowerLog, OutOfRangeStep, on_fetch_answer,
};
use replication::{
    AlterPartitionResponse, BrokerDirectory, BrokerStatus, Effects, EpochEndOffset, FetchIsolation,
    FollowerFetch, Instant, IsrProposal, PartitionSettings, PartitionState, RoleChange,
};

pub use controller::Controller;
pub use log::{Record, TestLog};

pub fn seconds(seconds: u64) -> Instant {
    Instant(Duration::from_secs(seconds))
}

pub fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// The brokers as one node has them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pub local_epoch: i64,
    pub brokers: BTreeMap<i32, BrokerStatus>,
}

impl BrokerDirectory for Directory {
    fn broker(&self, id: NodeId) -> Option<BrokerStatus> {
        self.brokers.get(&id.get()).copied()
    }
    fn local_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.local_epoch)
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub state: PartitionState,
    pub log: TestLog,
    pub directory: Directory,
    /// Proposals to the controller that are to be sent.
    pub outbox: Vec<IsrProposal>,
    pub events: Vec<Event>,
    /// Whether the fetcher runs, and under which epoch.
    pub fetching: bool,
}

impl Node {
    fn fetch_point(&self) -> FetchPoint {
        FetchPoint {
            fetch_offset: Offset(self.log.end()),
            leader_epoch: self.state.leader_epoch(),
            last_fetched_epoch: self.log.epochs.latest_epoch().unwrap_or(LeaderEpoch::NONE),
        }
    }
}

#[derive(Clone, Debug)]
pub struct FetchRequest {
    pub replica: i32,
    pub to: i32,
    pub point: FetchPoint,
    pub log_start: Offset,
    pub broker_epoch: BrokerEpoch,
}

#[derive(Clone, Debug)]
pub struct FetchReply {
    pub error: ErrorCode,
    pub diverging: Option<EpochEndOffset>,
    pub records: Vec<Record>,
    pub high_watermark: Offset,
    pub log_start: Offset,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub nodes: BTreeMap<i32, Node>,
    pub controller: Controller,
    pub settings: PartitionSettings,
    pub now: Instant,
}

impl Cluster {
    /// Nodes 1 to `count` with empty logs, all in the ISR, node 1 leading at epoch 1.
    pub fn new(count: i32, min_isr: usize) -> Self {
        let settings =
            PartitionSettings { min_insync_replicas: min_isr, ..PartitionSettings::default() };
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            controller: Controller::new(count),
            settings,
            now: seconds(100),
        };
        for id in 1..=count {
            cluster.open(id, TestLog::default(), None);
        }
        cluster.publish_all();
        cluster
    }

    /// Opens node `id` on a log: the state of a process that has just started.
    pub fn open(&mut self, id: i32, mut log: TestLog, checkpoint: Option<i64>) {
        log.recover();
        let state = PartitionState::new(
            NodeId(id),
            partition(),
            self.settings,
            &log.facts(),
            checkpoint.map(Offset),
        );
        let node = Node {
            state,
            log,
            directory: Directory::default(),
            outbox: Vec::new(),
            events: Vec::new(),
            fetching: false,
        };
        self.nodes.insert(id, node);
    }

    /// Kills node `id` and opens it again on what it had, with its high watermark at the checkpoint.
    pub fn restart(&mut self, id: i32, checkpoint: i64) {
        let log = self.node(id).log.clone();
        self.open(id, log, Some(checkpoint));
    }

    pub fn node(&self, id: i32) -> &Node {
        &self.nodes[&id]
    }

    pub fn node_mut(&mut self, id: i32) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the cluster")
    }

    pub fn high_watermark(&self, id: i32) -> i64 {
        self.node(id).state.high_watermark().offset.get()
    }

    pub fn log_end(&self, id: i32) -> i64 {
        self.node(id).log.end()
    }

    /// Delivers the controller's present state to node `id`.
    pub fn publish(&mut self, id: i32) -> RoleChange {
        let registration = self.controller.registration();
        let brokers = self.controller.brokers.clone();
        let now = self.now;
        let node = self.node_mut(id);
        node.directory.local_epoch = brokers[&id].epoch.get();
        node.directory.brokers = brokers;
        let facts = node.log.facts();
        let (change, effects) =
            node.state.on_metadata_change(&registration, &facts, &node.directory, now);
        match change {
            RoleChange::Leader { .. } | RoleChange::NotReplica => node.fetching = false,
            RoleChange::Follower { restart_fetcher: true } => {
                node.fetching = registration.leader != NodeId::NONE;
            }
            _ => {}
        }
        self.perform(id, effects);
        change
    }

    pub fn publish_all(&mut self) {
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            self.publish(id);
        }
    }

    pub fn perform(&mut self, id: i32, effects: Effects) {
        let node = self.node_mut(id);
        if let Some(entry) = effects.assign_epoch {
            node.log.epochs.assign(entry.epoch, entry.start_offset);
        }
        if let Some(start) = effects.raise_log_start {
            node.log.raise_start(start.get());
        }
        node.outbox.extend(effects.propose);
        node.outbox.extend(effects.propose_again);
        node.events.extend(effects.events);
    }

    /// Appends records of `values` at the leader `id`.
    pub fn produce(&mut self, id: i32, values: &[u32]) {
        let now = self.now;
        let node = self.node_mut(id);
        assert!(node.state.is_leader(), "node {id} does not lead");
        let epoch = node.state.leader_epoch().get();
        for value in values {
            node.log.append(Record { epoch, value: *value });
        }
        let facts = node.log.facts();
        let effects = node.state.on_leader_append(&facts, &node.directory, now);
        self.perform(id, effects);
    }

    /// What follower `id` would send now.
    pub fn request(&self, id: i32) -> FetchRequest {
        let node = self.node(id);
        FetchRequest {
            replica: id,
            to: node.state.leader().get(),
            point: node.fetch_point(),
            log_start: Offset(node.log.start),
            broker_epoch: BrokerEpoch(node.directory.local_epoch),
        }
    }

    /// The leader's side of a fetch, in the order that the head of the crate gives.
    pub fn serve(&mut self, request: &FetchRequest) -> FetchReply {
        let at = self.now;
        let node = self.node_mut(request.to);
        let refused = |error: replication::PartitionError| FetchReply {
            error: error.code(),
            diverging: None,
            records: Vec::new(),
            high_watermark: Offset::NONE,
            log_start: Offset::NONE,
        };
        let reader = FetchReader::Replica(NodeId(request.replica));
        if let Err(error) = node.state.check_fetch(reader, request.point.leader_epoch) {
            return refused(error);
        }
        let facts = node.log.facts();
        let offset = request.point.fetch_offset;
        let high_watermark = node.state.high_watermark().offset;
        let reply = |diverging, records| FetchReply {
            error: ErrorCode::None,
            diverging,
            records,
            high_watermark,
            log_start: facts.log_start,
        };
        match node.state.check_fetch_offset(
            &node.log.epochs,
            &facts,
            Some(request.point.last_fetched_epoch),
            offset,
        ) {
            Err(error) => return refused(error),
            Ok(Some(diverging)) => return reply(Some(diverging), Vec::new()),
            Ok(None) => {}
        }
        let limit = node.state.last_fetchable_offset(FetchIsolation::LogEnd, &facts);
        let records = node.log.read(offset.get(), limit.offset.get());
        let fetch = FollowerFetch {
            fetch_offset: offset.into(),
            log_start_offset: request.log_start,
            leader_log_end: facts.log_end.offset,
            broker_epoch: request.broker_epoch,
            at,
        };
        let result =
            node.state.on_follower_fetch(NodeId(request.replica), &fetch, &facts, &node.directory);
        match result {
            Err(error) => refused(error),
            Ok(effects) => {
                self.perform(request.to, effects);
                reply(None, records)
            }
        }
    }

    /// The follower's side of an answer.
    pub fn apply(&mut self, request: &FetchRequest, reply: &FetchReply) -> FetchAnswerStep {
        let id = request.replica;
        let node = self.node_mut(id);
        let current = node.fetching.then(|| node.fetch_point());
        let log = FollowerLog {
            epochs: &node.log.epochs,
            log_end: Offset(node.log.end()),
            high_watermark: node.state.high_watermark().offset,
        };
        let answer = FetchAnswer { error: reply.error, diverging: reply.diverging };
        let step = on_fetch_answer(request.point, current, &answer, &log);
        let mut effects = Effects::default();
        match step {
            FetchAnswerStep::Drop | FetchAnswerStep::BackOff => {}
            FetchAnswerStep::StopUntilMetadata => node.fetching = false,
            FetchAnswerStep::Truncate(truncation) => {
                node.log.truncate_to(truncation.to.get());
                effects = node.state.on_truncated(&node.log.facts(), Why::CommonEpochEnd);
            }
            FetchAnswerStep::ResolveOutOfRange => {
                let leader = request.to;
                self.resolve_out_of_range(id, leader);
            }
            FetchAnswerStep::Append => {
                for record in &reply.records {
                    node.log.append(*record);
                }
                effects = node
                    .state
                    .on_fetch_response(
                        request.point.leader_epoch,
                        reply.high_watermark,
                        reply.log_start,
                        &node.log.facts(),
                    )
                    .expect("a current answer");
            }
        }
        self.perform(id, effects);
        step
    }

    fn resolve_out_of_range(&mut self, id: i32, leader: i32) {
        let leader_log = self.node(leader).log.clone();
        let node = self.node_mut(id);
        let log_end = Offset(node.log.end());
        let mut step = OutOfRangeStep::FIRST;
        loop {
            step = match step {
                OutOfRangeStep::AskLatest => {
                    OutOfRangeStep::on_leader_latest(Offset(leader_log.end()), log_end)
                }
                OutOfRangeStep::AskEarliest => {
                    OutOfRangeStep::on_leader_earliest(Offset(leader_log.start), log_end)
                }
                OutOfRangeStep::TruncateTo(to) => {
                    node.log.truncate_to(to.get());
                    break;
                }
                OutOfRangeStep::StartAt(start) => {
                    node.log.start_at(start.get());
                    break;
                }
                OutOfRangeStep::FetchFrom(_) => break,
            };
        }
        let effects = node.state.on_truncated(&node.log.facts(), Why::BelowLeaderLogStart);
        self.perform(id, effects);
    }

    /// One whole round trip of follower `id` with the leader it knows.
    pub fn fetch(&mut self, id: i32) -> FetchAnswerStep {
        let request = self.request(id);
        let reply = self.serve(&request);
        self.apply(&request, &reply)
    }

    /// Fetches until nothing changes any more.
    pub fn catch_up(&mut self, id: i32) {
        for _ in 0..20 {
            self.fetch(id);
        }
    }

    /// Delivers `response` to the leader `id` for the proposal it sent.
    pub fn respond(&mut self, id: i32, sent: &IsrProposal, response: &AlterPartitionResponse) {
        let now = self.now;
        let node = self.node_mut(id);
        let facts = node.log.facts();
        let effects =
            node.state.on_alter_partition_response(sent, response, &facts, &node.directory, now);
        self.perform(id, effects);
    }

    /// Lets the controller answer every proposal of `id`, and delivers the answers.
    pub fn settle(&mut self, id: i32) {
        for proposal in std::mem::take(&mut self.node_mut(id).outbox) {
            let response = self.controller.alter_partition(id, &proposal);
            self.respond(id, &proposal, &response);
        }
    }

    /// Runs the leader's lag check.
    pub fn check_lag(&mut self, id: i32) {
        let now = self.now;
        let node = self.node_mut(id);
        let facts = node.log.facts();
        let effects = node.state.maybe_shrink_isr(&facts, &node.directory, now);
        self.perform(id, effects);
    }

    /// Takes `id` out of the ISR by lag, with the controller's consent.
    pub fn shrink_away(&mut self, leader: i32, id: i32) {
        let value = 90_000 + id as u32;
        self.produce(leader, &[value]);
        let others: Vec<i32> =
            self.nodes.keys().copied().filter(|other| *other != leader && *other != id).collect();
        self.now = self.now + Duration::from_secs(31);
        for other in others {
            self.catch_up(other);
        }
        self.check_lag(leader);
        self.settle(leader);
    }

    /// Moves time on.
    pub fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }
}
