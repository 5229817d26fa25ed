//! Three controllers in one thread: a reply leaves only when what it rests on is committed (Q07),
//! and a new leader decides from the committed image only (Q01).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use controller::node::{
    CollectedEffects, ControllerEndpoint, ControllerNode, MetadataRead, NodeConfig, Reply,
    ReplyToken,
};
use controller::quorum::{MemoryQuorumStorage, QuorumConfig, QuorumStorage};
use controller::records::MetadataSnapshot;
use controller::state::{ControllerConfig, RequestContext};
use controller::{ClusterImage, ImageDelta};
use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use protocol::messages::{
    BrokerRegistrationRequest, DescribeQuorumRequest, RequestBody, ResponseBody,
};
use protocol::{ErrorCode, NodeId, Offset, Uuid};
use replication::time::{Instant, Now};

const CLUSTER: &str = "node-test";

struct Controllers {
    nodes: BTreeMap<NodeId, ControllerNode<MemoryQuorumStorage>>,
    mail: VecDeque<(NodeId, NodeId, Bytes)>,
    replies: BTreeMap<u64, Reply>,
    cut: Vec<NodeId>,
    now: Instant,
    tokens: u64,
}

impl Controllers {
    fn start(count: i32) -> Self {
        let mut controllers = Self {
            nodes: BTreeMap::new(),
            mail: VecDeque::new(),
            replies: BTreeMap::new(),
            cut: Vec::new(),
            now: Instant::ZERO,
            tokens: 0,
        };
        for id in 1..=count {
            let storage = MemoryQuorumStorage::default();
            let node = ControllerNode::new(config(id, count), storage, controllers.clocks());
            controllers.nodes.insert(NodeId(id), node.expect("starts"));
        }
        controllers
    }

    fn clocks(&self) -> Now {
        Now { monotonic: self.now, wall_clock_ms: 5_000_000 + self.now.0.as_millis() as i64 }
    }

    fn drain(&mut self, id: NodeId) {
        let now = self.clocks();
        let mut effects = CollectedEffects::default();
        self.nodes.get_mut(&id).expect("runs").drain(now, &mut effects).expect("no failure");
        self.mail.extend(effects.messages.into_iter().map(|(to, message)| (id, to, message)));
        for (token, reply) in effects.replies {
            assert!(self.replies.insert(token.0, reply).is_none(), "one reply per request");
        }
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(10);
        let now = self.clocks();
        for (from, to, message) in std::mem::take(&mut self.mail) {
            if self.cut.contains(&from) || self.cut.contains(&to) {
                continue;
            }
            self.nodes.get_mut(&to).expect("runs").on_raft_message(message, now).expect("correct");
            self.drain(to);
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.nodes.get_mut(&id).expect("runs").on_tick(now);
            self.drain(id);
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..1000 {
            if done(self) {
                return true;
            }
            self.step();
        }
        false
    }

    fn active(&self) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.is_active()).map(|(id, _)| *id)
    }

    fn become_active(&mut self) -> NodeId {
        assert!(self.run_until(|all| {
            all.active().is_some_and(|id| all.nodes[&id].image().cluster_id() == CLUSTER)
        }));
        self.active().expect("one is active")
    }

    fn ask(&mut self, id: NodeId, version: i16, body: impl Into<RequestBody>) -> u64 {
        self.tokens += 1;
        let now = self.clocks();
        let token = ReplyToken(self.tokens);
        let context = RequestContext::default();
        let node = self.nodes.get_mut(&id).expect("runs");
        node.on_request(&context, version, &body.into(), token, now);
        self.drain(id);
        self.tokens
    }

    fn answer(&mut self, token: u64) -> ResponseBody {
        assert!(self.run_until(|all| all.replies.contains_key(&token)), "a reply");
        match self.replies.remove(&token) {
            Some(Reply::Answer(body)) => body,
            other => panic!("no answer: {other:?}"),
        }
    }
}

fn config(id: i32, count: i32) -> NodeConfig {
    let mut quorum = QuorumConfig::new(NodeId(id), (1..=count).map(NodeId).collect());
    quorum.election_timeout = Duration::from_millis(200);
    quorum.fetch_timeout = Duration::from_millis(400);
    quorum.seed = 9;
    let endpoints = (1..=count).map(|id| ControllerEndpoint {
        node_id: NodeId(id),
        listener: "CONTROLLER".into(),
        host: format!("host{id}"),
        port: 9093,
    });
    NodeConfig {
        endpoints: endpoints.collect(),
        ..NodeConfig::new(quorum, ControllerConfig::new(CLUSTER, NodeId(id), 9))
    }
}

fn registration(broker: i32) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: broker,
        cluster_id: CLUSTER.into(),
        incarnation_id: Uuid([broker as u8; 16]),
        ..Default::default()
    }
}

#[test]
fn a_reply_leaves_only_when_a_majority_has_its_records() {
    let mut all = Controllers::start(3);
    let leader = all.become_active();
    let token = all.ask(leader, 4, registration(7));
    assert!(!all.replies.contains_key(&token), "decided, but only the leader has it");
    assert!(all.nodes[&leader].image().broker(NodeId(7)).is_none());
    let ResponseBody::BrokerRegistration(answer) = all.answer(token) else { panic!("wrong api") };
    assert_eq!(answer.error_code, 0);
    let registered = all.nodes[&leader].image().broker(NodeId(7)).expect("committed");
    assert_eq!(registered.epoch.get(), answer.broker_epoch);
    assert_eq!(all.nodes[&leader].image().offset(), Offset(answer.broker_epoch), "C02");
}

#[test]
fn an_answer_without_records_waits_for_the_decisions_it_has_seen() {
    let mut all = Controllers::start(3);
    let leader = all.become_active();
    let first = all.ask(leader, 4, registration(7));
    // The same process again changes nothing, but tells the epoch of the first.
    let second = all.ask(leader, 4, registration(7));
    assert!(all.replies.is_empty());
    let (first, second) = (all.answer(first), all.answer(second));
    assert_eq!(first, second);
    let third = all.ask(leader, 4, registration(7));
    assert!(all.replies.contains_key(&third), "nothing to wait for");
}

#[test]
fn a_leader_that_is_cut_off_answers_nothing_and_finally_says_not_controller() {
    let mut all = Controllers::start(3);
    let old = all.become_active();
    all.cut.push(old);
    let decided = all.ask(old, 4, registration(7));
    for _ in 0..41 {
        all.step();
    }
    // Its lease is over though it may not have resigned yet (Q03).
    let read = all.ask(old, 4, registration(7));
    assert!(matches!(all.replies.get(&read), Some(Reply::NotController { .. })));
    assert!(all.run_until(|all| all.replies.contains_key(&decided)));
    assert!(matches!(all.replies.get(&decided), Some(Reply::NotController { .. })));
    // The others decide without it, from what is committed: the lost registration is not in it.
    let follows =
        |all: &Controllers| all.nodes.iter().any(|(id, node)| *id != old && node.is_active());
    assert!(all.run_until(follows));
    let new = *all.nodes.iter().find(|(id, node)| **id != old && node.is_active()).expect("one").0;
    assert!(all.nodes[&new].image().broker(NodeId(7)).is_none());
    // The broker asks again there (Q07), and the old leader takes over what was decided.
    let again = all.ask(new, 4, registration(7));
    all.answer(again);
    all.cut.clear();
    assert!(all.run_until(|all| all.nodes[&old].image() == all.nodes[&new].image()));
    assert!(all.nodes[&old].image().broker(NodeId(7)).is_some());
}

#[test]
fn a_follower_names_the_leader() {
    let mut all = Controllers::start(3);
    let leader = all.become_active();
    let follower = *all.nodes.keys().find(|id| **id != leader).expect("another");
    let token = all.ask(follower, 4, registration(7));
    let Some(Reply::NotController { leader: named, .. }) = all.replies.get(&token) else {
        panic!("{:?}", all.replies)
    };
    assert_eq!(*named, Some(leader));
}

#[test]
fn every_controller_reaches_the_same_image_and_readers_can_follow_any_of_them() {
    let mut all = Controllers::start(3);
    let leader = all.become_active();
    for broker in 10..30 {
        let token = all.ask(leader, 4, registration(broker));
        all.answer(token);
    }
    let reached = |all: &Controllers| {
        all.nodes.values().all(|node| node.image() == all.nodes[&leader].image())
    };
    assert!(all.run_until(reached));
    for node in all.nodes.values() {
        let mut image = match node.read_metadata(Offset(0), 100).expect("readable") {
            MetadataRead::Snapshot { data, .. } => {
                let snapshot = MetadataSnapshot::from_bytes(&data).expect("a snapshot");
                ClusterImage::from_snapshot(&snapshot).expect("valid")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(&image, node.image());
        // And by batches alone, from the first.
        image = ClusterImage::default();
        while image.offset() < node.image().offset() {
            let from = image.offset().next().max(Offset(1));
            let read = node.read_metadata(from, 100).expect("readable");
            let MetadataRead::Batches(batches) = read else { panic!("the log reaches back") };
            assert!(!batches.is_empty());
            for batch in batches {
                let records = controller::records::decode_batch(&batch.data).expect("records");
                let (offset, epoch) = (Offset(batch.index as i64), (batch.term as i32).into());
                image
                    .apply_batch(offset, epoch, &records, &mut ImageDelta::default())
                    .expect("applies");
            }
        }
        assert_eq!(&image, node.image());
    }
}

#[test]
fn a_controller_restarts_from_its_snapshot_and_log() {
    let mut config = config(1, 1);
    config.snapshot_batches = 10;
    config.kept_batches = 2;
    let now = |ms| Now { monotonic: Instant(Duration::from_millis(ms)), wall_clock_ms: 0 };
    let storage = MemoryQuorumStorage::default();
    let mut node = ControllerNode::new(config.clone(), storage, now(0)).expect("starts");
    let mut effects = CollectedEffects::default();
    node.on_tick(now(1));
    node.drain(now(1), &mut effects).expect("works");
    assert!(node.is_active(), "a single controller is active at once");
    for broker in 0..35 {
        let body = registration(broker).into();
        node.on_request(&RequestContext::default(), 4, &body, ReplyToken(broker as u64), now(2));
        node.drain(now(2), &mut effects).expect("works");
    }
    assert_eq!(effects.replies.len(), 35);
    let image = node.image().clone();
    let storage = node.into_storage();
    assert!(storage.snapshot_position().0 >= 30 && storage.first_index() > 20);
    let mut node = ControllerNode::new(config, storage, now(0)).expect("starts again");
    node.on_tick(now(1));
    node.drain(now(1), &mut CollectedEffects::default()).expect("works");
    assert!(node.image().brokers().eq(image.brokers()), "nothing is lost");
    assert!(node.is_active());
    let old = node.read_metadata(Offset(3), 100).expect("readable");
    assert!(matches!(old, MetadataRead::Snapshot { .. }), "the log no longer reaches back");
}

#[test]
fn describe_quorum_tells_the_voters_and_observers() {
    let mut all = Controllers::start(3);
    let leader = all.become_active();
    all.run_until(|_| false);
    let now = all.clocks();
    let end = all.nodes[&leader].image().offset().next();
    let node = all.nodes.get_mut(&leader).expect("runs");
    node.on_observer(NodeId(55), end, now);
    node.on_observer(NodeId(1), end, now);
    let topic = |name: &str| TopicData {
        topic_name: name.into(),
        partitions: vec![PartitionData::default()],
        ..Default::default()
    };
    let mut ask = |topics: Vec<TopicData>| {
        let token = all.ask(leader, 2, DescribeQuorumRequest { topics, ..Default::default() });
        let ResponseBody::DescribeQuorum(answer) = all.answer(token) else { panic!("wrong api") };
        answer
    };
    let answer = ask(vec![topic("__cluster_metadata")]);
    assert_eq!(answer.nodes.len(), 3);
    let quorum = &answer.topics[0].partitions[0];
    assert_eq!((quorum.error_code, quorum.leader_id), (0, leader.get()));
    assert_eq!(quorum.high_watermark, end.get());
    assert_eq!(quorum.current_voters.len(), 3);
    for voter in &quorum.current_voters {
        assert_eq!(voter.log_end_offset, end.get(), "voter {}", voter.replica_id);
        assert!(voter.last_caught_up_timestamp > 5_000_000);
    }
    let observers: Vec<_> =
        quorum.observers.iter().map(|o| (o.replica_id, o.log_end_offset)).collect();
    assert_eq!(observers, [(55, end.get())], "voters are no observers");
    // As Kafka answers: for anything beside the one partition, all that was asked for is unknown.
    let mut two = topic("__cluster_metadata");
    two.partitions.push(PartitionData { partition_index: 1, ..Default::default() });
    for topics in [vec![topic("__cluster_metadata"), topic("other")], vec![two], vec![]] {
        let answer = ask(topics);
        let mut told = answer.topics.iter().flat_map(|topic| &topic.partitions);
        assert!(told.all(|told| told.error_code == ErrorCode::UnknownTopicOrPartition.code()));
        assert!(answer.nodes.is_empty());
    }
}
