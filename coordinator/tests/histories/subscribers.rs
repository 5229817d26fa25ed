//! Random histories of members of the new protocol (KIP-848), with appends that fail and coordinators that
//! fail with and without loss of what was not committed. Beside the shard stands the plainest model: what
//! each client was told. No two clients that may still read have the same partition; a member's epoch does
//! not go back until it joins anew; nobody else reads what a commit was acknowledged for; offsets are those
//! of [`GroupModel`]; the log alone gives the state that the shard has; and nothing stays unanswered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coordinator::{Shard, ShardConfig};
use proptest::prelude::*;
use protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    OffsetCommitRequest, OffsetFetchRequest,
};
use protocol::{ErrorCode, ResponseBody, Uuid};

use crate::common::{World, replayed};
use crate::model::{Fate, GroupModel};
use crate::{ask, cases, fate};

const GROUP: &str = "g";
const TOPIC: Uuid = Uuid([1; 16]);
const PARTITIONS: i32 = 4;
const SESSION: Duration = Duration::from_secs(6);
const REBALANCE: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
struct Client {
    instance: Option<String>,
    member: String,
    /// 0 while it has to join.
    epoch: i32,
    told: BTreeSet<i32>,
    owned: BTreeSet<i32>,
    tell_all: bool,
    /// It may read so long without another word.
    until: Duration,
    /// Its heartbeat that is not answered yet: when it was sent, and whether it joins.
    asked: Option<(Duration, bool)>,
}

impl Client {
    fn give_up(&mut self) {
        self.epoch = 0;
        self.told.clear();
        self.owned.clear();
    }
}

#[derive(Debug)]
enum Asked {
    /// With the member id that asked.
    Beat(usize, String),
    Commit(usize, i32, String),
    Read,
    Leave,
}

#[derive(Clone, Debug)]
enum Step {
    Beat { client: usize, gives_up: bool },
    Leave { client: usize, for_a_while: bool },
    Restart { client: usize },
    Commit { client: usize, partition: i32 },
    Read,
    Pass { ms: u64 },
    FailWrite,
    HoldWatermark,
    ReleaseWatermark,
    FailOver,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 0..4usize;
    let beat = (client.clone(), prop::bool::weighted(0.8));
    let step = prop_oneof![
        14 => beat.prop_map(|(client, gives_up)| Step::Beat { client, gives_up }),
        1 => (client.clone(), any::<bool>())
            .prop_map(|(client, for_a_while)| Step::Leave { client, for_a_while }),
        1 => client.clone().prop_map(|client| Step::Restart { client }),
        5 => (client, 0..PARTITIONS)
            .prop_map(|(client, partition)| Step::Commit { client, partition }),
        2 => Just(Step::Read),
        6 => (0..900u64).prop_map(|ms| Step::Pass { ms }),
        1 => (900..9000u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::FailWrite),
        1 => Just(Step::HoldWatermark),
        2 => Just(Step::ReleaseWatermark),
        1 => Just(Step::FailOver),
    ];
    prop::collection::vec(step, 1..200)
}

struct History {
    world: World,
    clients: Vec<Client>,
    asked: BTreeMap<u64, Asked>,
    offsets: GroupModel,
    counter: i64,
    made: u32,
}

impl History {
    fn new() -> History {
        let mut world = World::new(ShardConfig {
            consumer_session_timeout: SESSION,
            consumer_min_session_timeout: SESSION,
            consumer_assignment_interval: Duration::ZERO,
            offsets_retention_check_interval: Duration::from_secs(1 << 30),
            ..ShardConfig::default()
        });
        world.topics.create("t1", 1, PARTITIONS);
        let instance = |at: usize| (at == 3).then(|| format!("i{at}"));
        let clients = (0..4).map(|at| Client { instance: instance(at), ..Client::default() });
        let clients = clients.collect();
        let (asked, offsets) = (BTreeMap::new(), GroupModel::default());
        let mut history = History { world, clients, asked, offsets, counter: 0, made: 0 };
        for client in 0..4 {
            history.restart(client);
        }
        history
    }

    fn restart(&mut self, client: usize) {
        self.made += 1;
        let instance = self.clients[client].instance.take();
        let member = format!("m{}", self.made);
        self.clients[client] = Client { instance, member, ..Client::default() };
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Beat { client, gives_up } => self.beat(client, gives_up),
            Step::Leave { client, for_a_while } => self.leave(client, for_a_while),
            Step::Restart { client } => self.restart(client),
            Step::Commit { client, partition } => self.commit(client, partition),
            Step::Read => self.read(),
            Step::Pass { ms } => self.world.pass_ms(ms),
            Step::FailWrite => self.world.failures.push_back(Some(ErrorCode::NotEnoughReplicas)),
            Step::HoldWatermark if self.world.high_watermark.is_none() => {
                let end = i64::try_from(self.world.log.len()).expect("a short log");
                self.world.set_high_watermark(Some(end));
            }
            Step::HoldWatermark => {}
            Step::ReleaseWatermark => self.world.set_high_watermark(None),
            Step::FailOver => {
                self.world.fail_over();
                self.world.set_high_watermark(None);
            }
        }
        self.hear();
        self.check_owners();
        self.compare_with_log();
    }

    fn beat(&mut self, client: usize, gives_up: bool) {
        let now = self.world.clock;
        let own = &mut self.clients[client];
        if own.asked.is_some() {
            return;
        }
        if gives_up {
            own.owned = own.owned.intersection(&own.told).copied().collect();
        }
        let joins = own.epoch == 0;
        let all = joins || own.tell_all;
        own.asked = Some((now, joins));
        let reported = TopicPartitions {
            topic_id: TOPIC,
            partitions: own.owned.iter().copied().collect(),
            ..Default::default()
        };
        let reported = if own.owned.is_empty() { Vec::new() } else { vec![reported] };
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: own.member.clone(),
            member_epoch: own.epoch,
            instance_id: own.instance.clone(),
            rebalance_timeout_ms: if all { REBALANCE.as_millis() as i32 } else { -1 },
            subscribed_topic_names: all.then(|| vec!["t1".to_owned()]),
            topic_partitions: (all || gives_up).then_some(reported),
            ..Default::default()
        };
        let asked = Asked::Beat(client, own.member.clone());
        let token = self.world.send(1, request);
        self.asked.insert(token, asked);
    }

    fn leave(&mut self, client: usize, for_a_while: bool) {
        let own = &mut self.clients[client];
        if own.epoch > 0 && own.asked.is_none() {
            let is_static = for_a_while && own.instance.is_some();
            let request = ConsumerGroupHeartbeatRequest {
                group_id: GROUP.into(),
                member_id: own.member.clone(),
                member_epoch: if is_static { -2 } else { -1 },
                instance_id: own.instance.clone(),
                ..Default::default()
            };
            let token = self.world.send(1, request);
            self.asked.insert(token, Asked::Leave);
        }
        self.restart(client);
    }

    fn commit(&mut self, client: usize, partition: i32) {
        let own = &self.clients[client];
        if !own.owned.contains(&partition) {
            return;
        }
        self.counter += 1;
        let topic = OffsetCommitRequestTopic {
            name: "t1".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: self.counter,
                ..Default::default()
            }],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: own.epoch,
            member_id: own.member.clone(),
            group_instance_id: own.instance.clone(),
            topics: vec![topic],
            ..Default::default()
        };
        let asked = Asked::Commit(client, partition, own.member.clone());
        let token = self.world.send(9, request);
        self.offsets.asks_to_commit(token, partition, self.counter);
        self.asked.insert(token, asked);
    }

    fn read(&mut self) {
        let asked = OffsetFetchRequestGroup { group_id: GROUP.into(), ..Default::default() };
        let groups = vec![OffsetFetchRequestGroup { topics: None, ..asked }];
        let request = OffsetFetchRequest { groups, ..Default::default() };
        let token = self.world.send(9, request);
        self.asked.insert(token, Asked::Read);
    }

    fn hear(&mut self) {
        for (token, response) in std::mem::take(&mut self.world.answers) {
            match (self.asked.remove(&token).expect("a request"), response) {
                (Asked::Beat(client, member), ResponseBody::ConsumerGroupHeartbeat(answer)) => {
                    if self.clients[client].member == member {
                        self.on_heartbeat(client, answer);
                    }
                }
                (Asked::Commit(client, partition, member), ResponseBody::OffsetCommit(answer)) => {
                    let fate = fate(answer.topics[0].partitions[0].error_code);
                    self.offsets.learns(token, fate);
                    if fate == Fate::Done && self.clients[client].member == member {
                        self.nobody_else_reads(client, partition);
                    }
                }
                (Asked::Read, ResponseBody::OffsetFetch(answer)) => {
                    let answered = &answer.groups[0];
                    for partition in (0..PARTITIONS).filter(|_| answered.error_code == 0) {
                        let mut all = answered.topics.iter().flat_map(|topic| &topic.partitions);
                        let found = all.find(|found| found.partition_index == partition);
                        self.offsets.reads(partition, found.map_or(-1, |f| f.committed_offset));
                    }
                }
                (Asked::Leave, ResponseBody::ConsumerGroupHeartbeat(_)) => {}
                (asked, response) => panic!("{asked:?} was answered with {response:?}"),
            }
        }
    }

    fn on_heartbeat(&mut self, client: usize, answer: ConsumerGroupHeartbeatResponse) {
        let own = &mut self.clients[client];
        let (asked_at, joins) = own.asked.take().expect("it asked");
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::None => {
                assert!(joins || answer.member_epoch >= own.epoch, "{own:?}: {answer:?}");
                own.epoch = answer.member_epoch;
                own.tell_all = false;
                // The time to give partitions up runs on, however often it is heard meanwhile.
                if own.owned.is_subset(&own.told) {
                    own.until = asked_at + SESSION.min(REBALANCE);
                }
                if let Some(assignment) = answer.assignment {
                    let topics = assignment.topic_partitions.into_iter();
                    own.told = topics.flat_map(|topic| topic.partitions).collect();
                }
                if own.owned.is_subset(&own.told) {
                    own.owned.clone_from(&own.told);
                }
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound => own.give_up(),
            ErrorCode::CoordinatorNotAvailable
            | ErrorCode::NotCoordinator
            | ErrorCode::UnreleasedInstanceId => own.tell_all = true,
            // Another process has its instance id.
            ErrorCode::FencedInstanceId => self.restart(client),
            other => panic!("{other:?}: {:?}", answer.error_message),
        }
    }

    fn nobody_else_reads(&self, client: usize, partition: i32) {
        let now = self.world.clock;
        for (other, theirs) in self.clients.iter().enumerate() {
            let reads = theirs.until > now && theirs.owned.contains(&partition);
            assert!(other == client || !reads, "{partition} is read by {other} and {client}");
        }
    }

    fn check_owners(&self) {
        for (at, client) in self.clients.iter().enumerate() {
            if client.until > self.world.clock {
                client.owned.iter().for_each(|partition| self.nobody_else_reads(at, *partition));
            }
        }
    }

    /// The log, read by another shard, gives what this one says.
    fn compare_with_log(&mut self) {
        let (topics, now) = (&self.world.topics, self.world.now());
        let mut other = replayed(&self.world.log, self.world.config.clone(), 0);
        let _ = other.on_loaded(topics, now);
        let describe = |shard: &mut Shard| {
            let group_ids = vec![GROUP.to_owned()];
            let group = ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
            let asked = OffsetFetchRequestGroup { group_id: GROUP.into(), ..Default::default() };
            let groups = vec![OffsetFetchRequestGroup { topics: None, ..asked }];
            let offsets = OffsetFetchRequest { groups, ..Default::default() };
            let described = ask(shard, topics, now, 1, group.into());
            (described, ask(shard, topics, now, 9, offsets.into()))
        };
        assert_eq!(describe(&mut self.world.shard), describe(&mut other));
    }

    /// Everybody does its duty: the group comes to rest, and all partitions have their readers.
    fn end(mut self) {
        self.world.failures.clear();
        self.world.set_high_watermark(None);
        self.hear();
        for _ in 0..40 {
            for client in 0..self.clients.len() {
                self.take(&Step::Beat { client, gives_up: true });
            }
            self.world.pass_ms(500);
        }
        self.take(&Step::Read);
        assert!(self.asked.is_empty(), "without an answer: {:?}", self.asked);
        let read: Vec<i32> = self.clients.iter().flat_map(|c| c.owned.clone()).collect();
        assert_eq!(read.len(), PARTITIONS as usize, "{:?}", self.clients);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(50), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_of_the_new_protocol_keeps_what_the_clients_were_told(steps in steps()) {
        let mut history = History::new();
        for step in &steps {
            history.take(step);
        }
        history.end();
    }
}

#[test]
fn the_histories_of_the_new_protocol_reach_what_they_are_about() {
    let mut history = History::new();
    for _ in 0..4 {
        for client in 0..4 {
            history.take(&Step::Beat { client, gives_up: true });
        }
    }
    assert!(history.clients.iter().all(|client| client.owned.len() == 1));
    let partition = *history.clients[0].owned.first().expect("a partition");
    history.take(&Step::HoldWatermark);
    history.take(&Step::Commit { client: 0, partition });
    history.take(&Step::Leave { client: 1, for_a_while: false });
    history.take(&Step::Beat { client: 2, gives_up: true });
    assert_eq!(history.asked.len(), 3, "{:?}", history.asked);
    let before = history.world.log.len();
    history.take(&Step::FailOver);
    assert!(history.world.log.len() < before, "something was lost");
    assert!(history.clients[2].tell_all, "it was told so");
    history.end();
}
