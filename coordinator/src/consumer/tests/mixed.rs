//! Members of both protocols in one group that goes up and down between them (KIP-848, "online
//! migration"): no partition is read twice, epochs and generations do not go back, the log makes the
//! same group, and left alone everybody reads its share.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use protocol::messages::consumer_protocol_assignment::TopicPartition;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, ResponseBody, SyncGroupRequest, SyncGroupResponse,
};
use protocol::{ErrorCode, Message};

use super::random::{Client, GROUP, Owned};
use super::{Cluster, Host, cases};
use crate::group::GroupKind;
use crate::shard::{ShardConfig, Token, Topics};

const TOPICS: [(&str, i32); 2] = [("a", 3), ("b", 4)];

/// What a classic client does next.
#[derive(Clone, PartialEq, Debug, Default)]
enum Turn {
    #[default]
    Join,
    Joining(Token),
    Sync(Box<JoinGroupResponse>),
    Syncing(Token),
    Heartbeat,
}

/// An eager client of the classic protocol: it gives everything up before it joins again.
#[derive(Clone, Debug, Default)]
struct Classic {
    id: String,
    generation: i32,
    turn: Turn,
    owned: Owned,
    alive: bool,
}

fn versioned(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(1);
    bytes.put(message.to_bytes(1).expect("a message that can be written"));
    bytes.freeze()
}

impl Classic {
    fn start(&mut self) {
        *self = Classic { alive: true, ..Classic::default() };
    }

    fn again(&mut self) {
        self.owned.clear();
        self.turn = Turn::Join;
    }

    fn step(&mut self, host: &mut Host) {
        if !self.alive {
            return;
        }
        match std::mem::take(&mut self.turn) {
            Turn::Join => {
                let (token, response) = host.send(5, self.join());
                self.joined(token, response);
            }
            Turn::Joining(token) => self.joined(token, host.take_answer(token)),
            Turn::Sync(joined) => {
                let (token, response) = host.send(3, self.sync(&joined));
                self.synced(host, token, response);
            }
            Turn::Syncing(token) => {
                let response = host.take_answer(token);
                self.synced(host, token, response);
            }
            Turn::Heartbeat => self.heartbeat(host),
        }
    }

    fn join(&self) -> JoinGroupRequest {
        let subscription = ConsumerProtocolSubscription {
            topics: TOPICS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            ..Default::default()
        };
        JoinGroupRequest {
            group_id: GROUP.to_owned(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 8000,
            member_id: self.id.clone(),
            protocol_type: "consumer".to_owned(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".to_owned(),
                metadata: versioned(&subscription),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn joined(&mut self, token: Token, response: Option<ResponseBody>) {
        let Some(response) = response else {
            self.turn = Turn::Joining(token);
            return;
        };
        let ResponseBody::JoinGroup(response) = response else { panic!("{response:?}") };
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {
                self.id.clone_from(&response.member_id);
                self.generation = response.generation_id;
                self.turn = Turn::Sync(Box::new(response));
            }
            ErrorCode::MemberIdRequired => {
                self.id = response.member_id;
                self.turn = Turn::Join;
            }
            error => self.failed(error),
        }
    }

    /// A leader of a classic group shares everything out.
    fn sync(&self, joined: &JoinGroupResponse) -> SyncGroupRequest {
        let mut shares: BTreeMap<&str, Vec<(&str, i32)>> = BTreeMap::new();
        let members: Vec<&str> = joined.members.iter().map(|m| m.member_id.as_str()).collect();
        if !members.is_empty() {
            let all = TOPICS.iter().flat_map(|(name, count)| (0..*count).map(|at| (*name, at)));
            for (turn, partition) in all.enumerate() {
                shares.entry(members[turn % members.len()]).or_default().push(partition);
            }
        }
        let assignments = shares.into_iter().map(|(member, share)| {
            let assigned_partitions = share
                .into_iter()
                .map(|(topic, at)| TopicPartition { topic: topic.to_owned(), partitions: vec![at] })
                .collect();
            let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
            SyncGroupRequestAssignment {
                member_id: member.to_owned(),
                assignment: versioned(&assignment),
                ..Default::default()
            }
        });
        SyncGroupRequest {
            group_id: GROUP.to_owned(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            assignments: assignments.collect(),
            ..Default::default()
        }
    }

    fn synced(&mut self, host: &Host, token: Token, response: Option<ResponseBody>) {
        let Some(response) = response else {
            self.turn = Turn::Syncing(token);
            return;
        };
        let ResponseBody::SyncGroup(SyncGroupResponse { error_code, mut assignment, .. }) =
            response
        else {
            panic!("{response:?}")
        };
        match ErrorCode::from_code(error_code) {
            ErrorCode::None => {
                self.turn = Turn::Heartbeat;
                if assignment.is_empty() {
                    return;
                }
                assert_eq!(assignment.get_i16(), 1);
                let assignment = ConsumerProtocolAssignment::from_bytes(assignment, 1);
                for topic in assignment.expect("an assignment").assigned_partitions {
                    let id = host.cluster.topic_id(&topic.topic).expect("a topic");
                    self.owned.extend(topic.partitions.iter().map(|at| (id, *at)));
                }
            }
            error => self.failed(error),
        }
    }

    fn heartbeat(&mut self, host: &mut Host) {
        let request = HeartbeatRequest {
            group_id: GROUP.to_owned(),
            generation_id: self.generation,
            member_id: self.id.clone(),
            ..Default::default()
        };
        let (_, response) = host.send(3, request);
        let Some(ResponseBody::Heartbeat(response)) = response else { panic!("{response:?}") };
        self.turn = Turn::Heartbeat;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            error => self.failed(error),
        }
    }

    fn failed(&mut self, error: ErrorCode) {
        match error {
            ErrorCode::RebalanceInProgress
            | ErrorCode::IllegalGeneration
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator => self.again(),
            ErrorCode::UnknownMemberId => {
                self.id.clear();
                self.again();
            }
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, host: &mut Host) {
        if self.alive && !self.id.is_empty() {
            let member = MemberIdentity { member_id: self.id.clone(), ..Default::default() };
            let request = LeaveGroupRequest {
                group_id: GROUP.to_owned(),
                members: vec![member],
                ..Default::default()
            };
            host.send(3, request);
        }
        *self = Classic::default();
    }
}

#[derive(Clone, Debug)]
enum Event {
    Classic(usize),
    StartClassic(usize),
    LeaveClassic(usize),
    DieClassic(usize),
    Consumer(usize),
    StartConsumer(usize),
    LeaveConsumer(usize),
    DieConsumer(usize),
    Pass(u16),
    FailWrite,
    Reload,
}

fn event() -> impl Strategy<Value = Event> {
    let (classic, consumer) = (0..3usize, 0..2usize);
    prop_oneof![
        12 => classic.clone().prop_map(Event::Classic),
        3 => classic.clone().prop_map(Event::StartClassic),
        1 => classic.clone().prop_map(Event::LeaveClassic),
        1 => classic.prop_map(Event::DieClassic),
        8 => consumer.clone().prop_map(Event::Consumer),
        2 => consumer.clone().prop_map(Event::StartConsumer),
        2 => consumer.clone().prop_map(Event::LeaveConsumer),
        1 => consumer.prop_map(Event::DieConsumer),
        3 => (1..6000u16).prop_map(Event::Pass),
        1 => Just(Event::FailWrite),
        1 => Just(Event::Reload),
    ]
}

struct World {
    host: Host,
    classic: Vec<Classic>,
    consumers: Vec<Client>,
    made: u32,
    generation: i32,
}

impl World {
    fn new() -> World {
        let mut cluster = Cluster::default();
        for (name, count) in TOPICS {
            cluster.put(name, count);
        }
        let config = ShardConfig {
            initial_rebalance_delay: Duration::ZERO,
            consumer_assignment_interval: Duration::ZERO,
            ..ShardConfig::default()
        };
        World {
            host: Host::new(config, cluster),
            classic: vec![Classic::default(); 3],
            consumers: vec![Client::new(None, &["a", "b"]); 2],
            made: 0,
            generation: 0,
        }
    }

    fn happen(&mut self, event: &Event) {
        let host = &mut self.host;
        match *event {
            Event::Classic(client) => self.classic[client].step(host),
            Event::StartClassic(client) if !self.classic[client].alive => {
                self.classic[client].start();
            }
            Event::StartClassic(client) => self.classic[client].step(host),
            Event::LeaveClassic(client) => self.classic[client].leave(host),
            Event::DieClassic(client) => self.classic[client] = Classic::default(),
            Event::Consumer(client) => self.consumers[client].heartbeat(host, true, true),
            Event::StartConsumer(client) if !self.consumers[client].alive => {
                self.made += 1;
                self.consumers[client].restart(format!("m{}", self.made));
                self.consumers[client].heartbeat(host, true, true);
            }
            Event::StartConsumer(_) => {}
            Event::LeaveConsumer(client) => self.consumers[client].leave(host, -1),
            Event::DieConsumer(client) => self.consumers[client].die(),
            Event::Pass(ms) => host.pass(Duration::from_millis(u64::from(ms))),
            Event::FailWrite => host.fail_next = true,
            Event::Reload => {
                host.reload();
                // A classic generation is in the log once it has its assignment, not before.
                self.generation = 0;
            }
        }
    }

    fn members(&self) -> (BTreeSet<String>, i32) {
        match self.host.shard.groups().get(GROUP).map(|group| &group.kind) {
            Some(GroupKind::Consumer(group)) => {
                (group.members().keys().map(ToString::to_string).collect(), group.epoch)
            }
            Some(GroupKind::Classic(group)) => {
                (group.members().map(|member| member.id.to_string()).collect(), group.generation)
            }
            None => (BTreeSet::new(), 0),
        }
    }

    fn check(&mut self) {
        let (members, generation) = self.members();
        let mut owned = BTreeSet::new();
        let classic = self.classic.iter().filter(|c| c.alive).map(|c| (&c.id, &c.owned));
        let consumers = self.consumers.iter().filter(|c| c.alive).map(|c| (&c.id, &c.owned));
        for (id, has) in classic.chain(consumers).filter(|(id, _)| members.contains(*id)) {
            for partition in has {
                assert!(owned.insert(*partition), "{partition:?} is read twice, by {id} too");
            }
        }
        if members.is_empty() {
            self.generation = 0;
        } else {
            assert!(generation >= self.generation, "the group went back");
            self.generation = generation;
        }
    }

    fn calm_down(&mut self) {
        self.host.fail_next = false;
        for _ in 0..70 {
            for client in 0..self.classic.len() {
                for _ in 0..2 {
                    self.happen(&Event::Classic(client));
                    self.check();
                }
            }
            for client in 0..self.consumers.len() {
                self.happen(&Event::Consumer(client));
                self.check();
            }
            self.host.pass(Duration::from_secs(1));
        }
        self.host.assert_replay_equals_live();
        let classic = self.classic.iter().filter(|c| c.alive).map(|c| (&c.id, &c.owned));
        let consumers = self.consumers.iter().filter(|c| c.alive).map(|c| (&c.id, &c.owned));
        let alive: Vec<_> = classic.chain(consumers).collect();
        let (members, _) = self.members();
        let ids: BTreeSet<String> = alive.iter().map(|(id, _)| (*id).clone()).collect();
        assert_eq!(members, ids, "only those that are alive are members");
        if !alive.is_empty() {
            let read: usize = alive.iter().map(|(_, owned)| owned.len()).sum();
            assert_eq!(read, 7, "every partition has its reader");
            let is_consumer = self.host.group(GROUP).is_some();
            assert_eq!(is_consumer, self.consumers.iter().any(|client| client.alive));
        }
    }
}

/// The last member of the new protocol leaves, and the rebalance that this begins is lost with its
/// coordinator: the next one begins it anew, so that what the member read has a reader again.
#[test]
fn a_downgrade_whose_rebalance_is_cut_by_a_failover_is_rebalanced_by_who_loads_it() {
    let mut world = World::new();
    world.happen(&Event::StartConsumer(0));
    for client in 0..2 {
        world.happen(&Event::StartClassic(client));
    }
    world.calm_down();
    world.happen(&Event::LeaveConsumer(0));
    assert!(world.host.group(GROUP).is_none(), "a classic group");
    let records = world.host.log.len();
    for _ in 0..2 {
        world.happen(&Event::Reload);
    }
    let state = |world: &World| {
        let group = world.host.shard.groups().get(GROUP).and_then(|group| group.as_classic());
        group.map(|group| group.state_name().to_owned())
    };
    assert_eq!(state(&world).as_deref(), Some("PreparingRebalance"));
    assert_eq!(world.host.log.len(), records, "loading writes nothing");
    world.calm_down();
    // It is done with: whoever loads the group now leaves it alone.
    world.happen(&Event::Reload);
    assert_eq!(state(&world).as_deref(), Some("Stable"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn members_of_both_protocols_share_a_group_that_goes_up_and_down(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
            world.check();
            world.host.assert_replay_equals_live();
        }
        world.calm_down();
    }
}
