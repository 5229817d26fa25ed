//! Random members of one group: they join, leave, are slow, lose answers, die; topics come, grow and
//! go; writes fail; the shard moves to another broker. Whatever happens: no partition is owned twice,
//! epochs do not go back, the log makes the same group; and left alone, the group comes to rest with
//! every partition given out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ResponseBody,
};
use protocol::{ErrorCode, Uuid};

use super::{Cluster, Host, cases};
use crate::shard::ShardConfig;

pub(super) const GROUP: &str = "g";
const TOPICS: [&str; 4] = ["a", "ab", "b", "c"];
const PATTERNS: [&str; 3] = ["a.*", "b|c", ".*"];

pub(super) type Owned = BTreeSet<(Uuid, i32)>;

/// A client of the new protocol, as the Java client behaves: it reports what it owns, gives up what it
/// is told to, in its own time, and takes what it is given.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub id: String,
    instance_id: Option<String>,
    /// Zero while it has to join.
    epoch: i32,
    topics: Vec<String>,
    regex: String,
    assignor: Option<String>,
    pub owned: Owned,
    told: Owned,
    /// It has to say again what it subscribes to.
    tell_subscription: bool,
    /// An answer was lost: it has to say everything again, and is told everything again.
    tell_all: bool,
    pub alive: bool,
}

impl Client {
    pub(super) fn new(instance_id: Option<String>, topics: &[&str]) -> Client {
        let topics = topics.iter().map(|name| (*name).to_owned()).collect();
        Client { instance_id, topics, ..Client::default() }
    }

    pub(super) fn die(&mut self) {
        self.alive = false;
        self.owned.clear();
    }

    pub(super) fn restart(&mut self, id: String) {
        *self = Client {
            id,
            instance_id: self.instance_id.take(),
            topics: std::mem::take(&mut self.topics),
            regex: std::mem::take(&mut self.regex),
            assignor: self.assignor.take(),
            tell_subscription: true,
            alive: true,
            ..Client::default()
        };
    }

    fn subscribe(&mut self, what: u8) {
        self.topics =
            (0..4).filter(|bit| what & (1 << bit) != 0).map(|bit| TOPICS[bit].to_owned()).collect();
        self.regex = match usize::from(what >> 4) {
            at if at < PATTERNS.len() => PATTERNS[at].to_owned(),
            _ => String::new(),
        };
        self.tell_subscription = true;
    }

    pub(super) fn leave(&mut self, host: &mut Host, epoch: i32) {
        if self.alive && self.epoch > 0 {
            let request = ConsumerGroupHeartbeatRequest {
                group_id: GROUP.to_owned(),
                member_id: self.id.clone(),
                member_epoch: epoch,
                instance_id: self.instance_id.clone(),
                ..Default::default()
            };
            send(host, request);
        }
        self.die();
    }

    pub(super) fn heartbeat(&mut self, host: &mut Host, diligent: bool, answered: bool) {
        if !self.alive {
            return;
        }
        if diligent {
            self.owned = self.owned.intersection(&self.told).copied().collect();
        }
        let joins = self.epoch == 0;
        let all = joins || self.tell_all;
        let tells = all || self.tell_subscription;
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.to_owned(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            instance_id: self.instance_id.clone(),
            rebalance_timeout_ms: if all { 5000 } else { -1 },
            subscribed_topic_names: tells.then(|| self.topics.clone()),
            subscribed_topic_regex: tells.then(|| self.regex.clone()),
            server_assignor: self.assignor.clone(),
            topic_partitions: (all || diligent).then(|| reported(&self.owned)),
            ..Default::default()
        };
        let response = send(host, request);
        self.tell_all = !answered;
        if answered {
            self.take(response);
        }
    }

    /// Takes an answer in.
    fn take(&mut self, response: ConsumerGroupHeartbeatResponse) {
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {
                self.epoch = response.member_epoch;
                self.tell_subscription = false;
                if let Some(assignment) = response.assignment {
                    self.told = assignment
                        .topic_partitions
                        .iter()
                        .flat_map(|topic| topic.partitions.iter().map(|at| (topic.topic_id, *at)))
                        .collect();
                }
                // All that is to go must be gone before anything is taken.
                if self.owned.is_subset(&self.told) {
                    self.owned.clone_from(&self.told);
                }
            }
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound => {
                self.epoch = 0;
                self.owned.clear();
                self.told.clear();
            }
            // Another process has its instance id: it ends.
            ErrorCode::FencedInstanceId => self.die(),
            // The coordinator could not write, or its predecessor is still there; it tries again.
            ErrorCode::CoordinatorNotAvailable | ErrorCode::UnreleasedInstanceId => {
                self.tell_all = true;
            }
            other => panic!("{other:?}: {:?}", response.error_message),
        }
    }
}

fn send(host: &mut Host, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    match host.send(1, request).1 {
        Some(ResponseBody::ConsumerGroupHeartbeat(response)) => response,
        other => panic!("not an answer to a heartbeat: {other:?}"),
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    /// The client does its duty: gives up, takes, reports.
    Heartbeat(usize),
    /// It says that it is there, but gives nothing up.
    Slow(usize),
    /// Its answer is lost on the way.
    Lost(usize),
    Leave(usize),
    LeaveForAWhile(usize),
    Die(usize),
    /// The process starts again, with nothing; a static one with a new member id.
    Restart(usize),
    Subscribe(usize, u8),
    Grow(u8, u8),
    Delete(u8),
    Pass(u16),
    FailWrite,
    Reload,
}

fn event() -> impl Strategy<Value = Event> {
    let client = 0..6usize;
    prop_oneof![
        12 => client.clone().prop_map(Event::Heartbeat),
        3 => client.clone().prop_map(Event::Slow),
        2 => client.clone().prop_map(Event::Lost),
        1 => client.clone().prop_map(Event::Leave),
        1 => client.clone().prop_map(Event::LeaveForAWhile),
        1 => client.clone().prop_map(Event::Die),
        4 => client.clone().prop_map(Event::Restart),
        2 => (client, any::<u8>()).prop_map(|(client, what)| Event::Subscribe(client, what)),
        2 => (0..4u8, 1..7u8).prop_map(|(topic, partitions)| Event::Grow(topic, partitions)),
        1 => (0..4u8).prop_map(Event::Delete),
        3 => (1..20_000u16).prop_map(Event::Pass),
        1 => Just(Event::FailWrite),
        1 => Just(Event::Reload),
    ]
}

struct World {
    host: Host,
    clients: Vec<Client>,
    made: u32,
    epochs: (i32, i32),
    member_epochs: BTreeMap<String, i32>,
}

impl World {
    fn new(interval_ms: u64) -> World {
        let mut cluster = Cluster::default();
        cluster.put("a", 3);
        cluster.put("b", 2);
        let config = ShardConfig {
            consumer_assignment_interval: Duration::from_millis(interval_ms),
            ..ShardConfig::default()
        };
        let clients = (0..6)
            .map(|number| Client {
                assignor: (number == 1).then(|| "range".to_owned()),
                ..Client::new((number % 3 == 0).then(|| format!("i{number}")), &["a", "b"])
            })
            .collect();
        World {
            host: Host::new(config, cluster),
            clients,
            made: 0,
            epochs: (0, 0),
            member_epochs: BTreeMap::new(),
        }
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Heartbeat(client) => self.clients[client].heartbeat(&mut self.host, true, true),
            Event::Slow(client) => self.clients[client].heartbeat(&mut self.host, false, true),
            Event::Lost(client) => self.clients[client].heartbeat(&mut self.host, true, false),
            Event::Leave(client) => self.clients[client].leave(&mut self.host, -1),
            Event::LeaveForAWhile(client) if self.clients[client].instance_id.is_some() => {
                self.clients[client].leave(&mut self.host, -2);
            }
            Event::LeaveForAWhile(_) => {}
            Event::Die(client) => self.clients[client].die(),
            Event::Restart(client) => {
                self.made += 1;
                self.clients[client].restart(format!("m{}", self.made));
            }
            Event::Subscribe(client, what) => self.clients[client].subscribe(what),
            Event::Grow(topic, partitions) => self.grow(topic, i32::from(partitions)),
            Event::Delete(topic) => {
                self.host.cluster.topics.remove(TOPICS[usize::from(topic)]);
                self.host.cluster.version += 1;
            }
            Event::Pass(ms) => self.host.pass(Duration::from_millis(u64::from(ms))),
            Event::FailWrite => self.host.fail_next = true,
            Event::Reload => self.host.reload(),
        }
    }

    fn grow(&mut self, topic: u8, partitions: i32) {
        let name = TOPICS[usize::from(topic)];
        let now = self.host.cluster.topics.get(name).map_or(0, |(_, count)| *count);
        self.host.cluster.put(name, now.max(partitions));
    }

    fn check(&mut self) {
        let Some(group) = self.host.group(GROUP) else { return };
        let mut held = BTreeSet::new();
        for (id, member) in group.members() {
            for partition in member.holds() {
                assert!(held.insert(partition), "{partition:?} is held twice");
                assert_eq!(group.owner(partition.0, partition.1), Some(id));
            }
            let before = self.member_epochs.insert(id.to_string(), member.epoch);
            let away = member.epoch == -2 || before == Some(-2);
            assert!(away || before.is_none_or(|before| before <= member.epoch), "{id} went back");
        }
        let mut owned = BTreeSet::new();
        let known = |client: &&Client| group.member(&client.id).is_some();
        for client in self.clients.iter().filter(|client| client.alive).filter(known) {
            for partition in &client.owned {
                assert!(owned.insert(*partition), "{partition:?} is read by two clients");
            }
        }
        let epochs = (group.epoch, group.assignment_epoch);
        assert!(epochs.0 >= self.epochs.0 && epochs.1 >= self.epochs.1, "the group went back");
        assert!(epochs.1 <= epochs.0);
        self.epochs = epochs;
    }

    /// Everybody does its duty for longer than any timeout.
    fn calm_down(&mut self) {
        self.host.fail_next = false;
        for _ in 0..90 {
            for client in 0..self.clients.len() {
                self.clients[client].heartbeat(&mut self.host, true, true);
                self.check();
            }
            self.host.pass(Duration::from_secs(1));
        }
        self.host.assert_replay_equals_live();
        let alive: Vec<&Client> = self.clients.iter().filter(|client| client.alive).collect();
        let Some(group) = self.host.group(GROUP) else {
            assert!(alive.is_empty());
            return;
        };
        assert_eq!(group.members().len(), alive.len(), "only those that are alive are members");
        if alive.is_empty() {
            return assert_eq!(group.state_name(), "Empty");
        }
        assert_eq!(group.state_name(), "Stable");
        let given: Owned = alive.iter().flat_map(|client| client.owned.clone()).collect();
        let wanted: Owned = group
            .subscribed_topics()
            .iter()
            .filter_map(|name| self.host.cluster.topics.get(name))
            .flat_map(|(id, count)| (0..*count).map(|at| (*id, at)))
            .collect();
        assert_eq!(given, wanted, "every partition of every subscribed topic has its reader");
    }
}

fn reported(owned: &Owned) -> Vec<TopicPartitions> {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in owned {
        topics.entry(*topic).or_default().push(*partition);
    }
    topics
        .into_iter()
        .map(|(topic_id, partitions)| TopicPartitions {
            topic_id,
            partitions,
            ..Default::default()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(100)))]

    #[test]
    fn no_partition_has_two_owners_and_the_group_comes_to_rest(
        events in prop::collection::vec(event(), 1..120),
        interval_ms in prop_oneof![Just(0u64), Just(1000)],
    ) {
        let mut world = World::new(interval_ms);
        for client in 0..3 {
            world.happen(&Event::Restart(client));
        }
        for event in &events {
            world.happen(event);
            world.check();
            world.host.assert_replay_equals_live();
        }
        world.calm_down();
    }
}
