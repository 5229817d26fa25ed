//! Simulated clients: producers, consumers and members of groups as real ones behave (metadata, leaders, retries), each
//! with one request at a time. What they learned goes to the invariants.

mod consumer;
mod member;
mod producer;
mod recording;
mod requests;
mod subscriber;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::{MetadataRequest, MetadataResponse};
use protocol::{LeaderEpoch, NodeId, Offset, RequestBody, ResponseBody, TopicIdPartition};
use replication::time::{Instant, Now};

pub use consumer::{ConsumerSettings, SimConsumer};
pub use member::{Language, MemberSettings, SimMember};
pub use producer::{ProducerSettings, SimProducer};
pub use subscriber::{SimSubscriber, SubscriberSettings};

use super::network::{Address, RpcAnswer, RpcRequest};
use super::world::{Purpose, Simulation, WorldEvent};
use crate::invariants::{Checker, GroupEvent, ReadCheck, SendRecord};

/// The client that sends single requests for stories.
pub const RAW_CLIENT: u32 = 0;
/// The version of Metadata that clients send.
pub(super) const METADATA_VERSION: i16 = 12;
/// How long clients wait for an answer beyond what the broker may hold it back.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// What a client wants.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// Send this and wait.
    Send { to: NodeId, version: i16, body: RequestBody, timeout: Duration },
    /// Wake it up after so long.
    Sleep(Duration),
    /// A write came to its end.
    Sent(SendRecord),
    /// An answer to a fetch.
    Read {
        consumer: (u32, u32),
        high_watermark: Offset,
        batch_bases: Vec<Offset>,
        records: Vec<(Offset, Bytes)>,
    },
    /// An answer to "latest".
    Latest(LeaderEpoch, Offset),
    /// An offset that came from reading is out of range.
    OutOfRange(Offset),
    /// What a member of a group learned or did.
    Group(GroupEvent),
    /// What a member reads just now. It may go on for the lease, from when it asked, if the group's
    /// coordinator has answered.
    Holds { partitions: Vec<i32>, answered_by: Option<NodeId>, asked_at: Instant, lease: Duration },
}

/// What a member has of its group's work: generation or epoch, and partitions, once it is settled; and how
/// many partitions there are.
pub(super) struct Share {
    assignment: Option<(i32, Vec<i32>)>,
    partitions: i32,
}

impl Share {
    /// Whether these, a whole group, have all partitions among them in one generation.
    fn divide_everything(shares: &[Share]) -> bool {
        let assigned: Option<Vec<_>> =
            shares.iter().map(|share| share.assignment.as_ref()).collect();
        let Some(assigned) = assigned else {
            return false;
        };
        let own = assigned.iter().flat_map(|(_, partitions)| partitions);
        let mut partitions: Vec<i32> = own.copied().collect();
        partitions.sort_unstable();
        let all = shares.first().map_or(0, |share| share.partitions);
        assigned.windows(2).all(|pair| pair[0].0 == pair[1].0)
            && partitions == (0..all).collect::<Vec<_>>()
    }
}

/// A client of the simulation.
#[derive(Debug)]
pub enum Client {
    /// Writes.
    Producer(SimProducer),
    /// Reads.
    Consumer(SimConsumer),
    /// Belongs to a group of the classic protocol.
    Member(SimMember),
    /// Belongs to a group of the new protocol.
    Subscriber(SimSubscriber),
}

impl Client {
    /// The partition it writes or reads.
    fn partition(&self) -> Option<&TopicIdPartition> {
        match self {
            Client::Producer(producer) => Some(producer.partition()),
            Client::Consumer(consumer) => Some(consumer.partition()),
            Client::Member(_) | Client::Subscriber(_) => None,
        }
    }

    fn on_wake(&mut self, checker: &Checker, now: Now) -> Vec<Effect> {
        match self {
            Client::Producer(producer) => producer.on_wake(now),
            Client::Consumer(consumer) => consumer.on_wake(),
            Client::Member(member) => {
                let group = member.group().to_owned();
                member.on_wake(&|partition| checker.committed(&group, partition), now.monotonic)
            }
            Client::Subscriber(member) => {
                let group = member.group().to_owned();
                member.on_wake(&|partition| checker.committed(&group, partition), now.monotonic)
            }
        }
    }

    /// The group it belongs to.
    fn group(&self) -> Option<&str> {
        match self {
            Client::Member(member) => Some(member.group()),
            Client::Subscriber(member) => Some(member.group()),
            Client::Producer(_) | Client::Consumer(_) => None,
        }
    }

    /// What it has of its group's work, unless it has left it.
    fn share(&self) -> Option<Share> {
        match self {
            Client::Member(member) if !member.has_left() => Some(member.share()),
            Client::Subscriber(member) if !member.has_left() => Some(member.share()),
            _ => None,
        }
    }

    fn on_answer(&mut self, answer: Option<ResponseBody>, now: Now) -> Vec<Effect> {
        match self {
            Client::Producer(producer) => producer.on_answer(answer, now),
            Client::Consumer(consumer) => consumer.on_answer(answer),
            Client::Member(member) => member.on_answer(answer),
            Client::Subscriber(member) => member.on_answer(answer),
        }
    }
}

/// Where a client believes the leader to be. The newest epoch wins: metadata of an older one, from a
/// broker that lags behind, is ignored.
#[derive(Clone, Debug)]
pub(super) struct LeaderView {
    partition: TopicIdPartition,
    nodes: Vec<NodeId>,
    next: usize,
    leader: Option<NodeId>,
    pub(super) epoch: LeaderEpoch,
}

impl LeaderView {
    pub(super) fn new(partition: TopicIdPartition, nodes: &[NodeId], first: usize) -> Self {
        Self {
            partition,
            nodes: nodes.to_vec(),
            next: first,
            leader: None,
            epoch: LeaderEpoch::NONE,
        }
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    pub(super) fn forget(&mut self) {
        self.leader = None;
    }

    /// Asks the next broker who leads.
    pub(super) fn ask(&mut self) -> Effect {
        let to = self.nodes[self.next % self.nodes.len()];
        self.next += 1;
        let topic = MetadataRequestTopic {
            name: Some(self.partition.topic_partition.topic.to_string()),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        Effect::Send { to, version: METADATA_VERSION, body: request.into(), timeout: PATIENCE }
    }

    /// Learns from an answer; false when there is no leader that is new enough.
    pub(super) fn learn(&mut self, response: &MetadataResponse) -> bool {
        let index = self.partition.topic_partition.partition;
        let found = response
            .topics
            .iter()
            .filter(|topic| topic.topic_id == self.partition.topic_id)
            .flat_map(|topic| &topic.partitions)
            .find(|partition| partition.partition_index == index);
        let Some(found) = found else {
            return false;
        };
        if found.leader_id < 0 || found.leader_epoch < self.epoch.get() {
            return false;
        }
        self.leader = Some(NodeId(found.leader_id));
        self.epoch = LeaderEpoch(found.leader_epoch);
        true
    }
}

impl Simulation {
    /// Adds a producer, which starts at once; gives its number.
    pub fn add_producer(&mut self, partition: TopicIdPartition, settings: ProducerSettings) -> u32 {
        let id = self.clients.len() as u32 + 1;
        let view = LeaderView::new(partition, &self.node_ids, id as usize);
        self.clients.insert(id, Client::Producer(SimProducer::new(id, view, settings)));
        self.schedule(self.now(), WorldEvent::ClientTimer { client: id });
        id
    }

    /// Adds a consumer, which reads from offset 0 on; gives its number.
    pub fn add_consumer(&mut self, partition: TopicIdPartition, settings: ConsumerSettings) -> u32 {
        let id = self.clients.len() as u32 + 1;
        let view = LeaderView::new(partition, &self.node_ids, id as usize);
        self.clients.insert(id, Client::Consumer(SimConsumer::new(id, view, settings)));
        self.schedule(self.now(), WorldEvent::ClientTimer { client: id });
        id
    }

    /// Adds a member of a group, which joins at once; gives its number.
    pub fn add_member(&mut self, settings: MemberSettings) -> u32 {
        let id = self.clients.len() as u32 + 1;
        let member = SimMember::new(&self.node_ids, id as usize, settings);
        self.clients.insert(id, Client::Member(member));
        self.schedule(self.now(), WorldEvent::ClientTimer { client: id });
        id
    }

    /// Adds a member of the new protocol, which joins at once; gives its number.
    ///
    /// # Panics
    /// When there is no such topic.
    pub fn add_subscriber(&mut self, settings: SubscriberSettings) -> u32 {
        let id = self.clients.len() as u32 + 1;
        let topic_id = self
            .cluster
            .topic_id(&settings.topic)
            .unwrap_or_else(|| panic!("no topic {}", settings.topic));
        let member = SimSubscriber::new(id, &self.node_ids, topic_id, settings);
        self.clients.insert(id, Client::Subscriber(member));
        self.schedule(self.now(), WorldEvent::ClientTimer { client: id });
        id
    }

    /// Has a member leave its group; one of the new protocol that is static perhaps for a while only.
    pub fn leave_group(&mut self, id: u32, for_a_while: bool) {
        match self.clients.get_mut(&id) {
            Some(Client::Member(member)) => member.leave(),
            Some(Client::Subscriber(member)) => member.leave(for_a_while),
            _ => {}
        }
    }

    /// Has a member of a group say nothing more, as a process that hangs.
    pub fn hang(&mut self, id: u32) {
        match self.clients.get_mut(&id) {
            Some(Client::Member(member)) => member.hang(),
            Some(Client::Subscriber(member)) => member.hang(),
            _ => {}
        }
    }

    /// Whether a member has left its group, or hangs.
    pub fn has_left_group(&self, id: u32) -> bool {
        match self.clients.get(&id) {
            Some(Client::Member(member)) => member.has_left(),
            Some(Client::Subscriber(member)) => member.has_left(),
            _ => false,
        }
    }

    /// A member of the new protocol.
    pub fn subscriber(&self, id: u32) -> Option<&SimSubscriber> {
        match self.clients.get(&id) {
            Some(Client::Subscriber(member)) => Some(member),
            _ => None,
        }
    }

    /// A member of a group.
    pub fn member(&self, id: u32) -> Option<&SimMember> {
        match self.clients.get(&id) {
            Some(Client::Member(member)) => Some(member),
            _ => None,
        }
    }

    /// A producer.
    pub fn producer(&self, id: u32) -> Option<&SimProducer> {
        match self.clients.get(&id) {
            Some(Client::Producer(producer)) => Some(producer),
            _ => None,
        }
    }

    /// A consumer.
    pub fn consumer(&self, id: u32) -> Option<&SimConsumer> {
        match self.clients.get(&id) {
            Some(Client::Consumer(consumer)) => Some(consumer),
            _ => None,
        }
    }

    /// Tells every producer and every member of a group to send nothing new.
    pub fn quiesce_clients(&mut self) {
        for client in self.clients.values_mut() {
            match client {
                Client::Producer(producer) => producer.quiesce(),
                Client::Member(member) => member.quiesce(),
                Client::Subscriber(member) => member.quiesce(),
                Client::Consumer(_) => {}
            }
        }
    }

    /// Whether every member of every group has an assignment of its newest generation, and the
    /// partitions are divided among them.
    pub fn groups_are_settled(&self) -> bool {
        let mut groups: BTreeMap<&str, Vec<Share>> = BTreeMap::new();
        for client in self.clients.values() {
            if let (Some(group), Some(share)) = (client.group(), client.share()) {
                groups.entry(group).or_default().push(share);
            }
        }
        groups.values().all(|shares| Share::divide_everything(shares))
    }

    /// Whether every producer knows how all its writes ended.
    pub fn producers_are_done(&self) -> bool {
        self.clients.values().all(|client| match client {
            Client::Producer(producer) => producer.is_done(),
            Client::Consumer(_) | Client::Member(_) | Client::Subscriber(_) => true,
        })
    }

    pub(super) fn wake_client(&mut self, id: u32) {
        let now = self.client_now();
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let effects = client.on_wake(&self.checker, now);
        self.record_client(id, recording::Answer::None, &effects);
        self.follow_client(id, effects);
    }

    pub(super) fn answer_client(&mut self, id: u32, answer: RpcAnswer) {
        let now = self.client_now();
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let body = match answer {
            RpcAnswer::Kafka(body) => Some(body),
            _ => None,
        };
        let told = recording::Answer::of(body.as_ref());
        let effects = client.on_answer(body, now);
        self.record_client(id, told, &effects);
        self.follow_client(id, effects);
    }

    fn client_now(&self) -> Now {
        super::clock::SimClock::new(self.time.clone()).read()
    }

    fn follow_client(&mut self, id: u32, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { to, version, body, timeout } => {
                    let request = RpcRequest::Kafka { version, body };
                    self.ask(Address::Client(id), to, request, Purpose::Client, timeout);
                }
                Effect::Sleep(duration) => {
                    self.schedule(self.now() + duration, WorldEvent::ClientTimer { client: id });
                }
                Effect::Group(event) => {
                    if let Some(group) = self.clients.get(&id).and_then(Client::group) {
                        self.checker.on_group(group, event);
                    }
                }
                Effect::Holds { partitions, answered_by, asked_at, lease } => {
                    let Some(group) = self.clients.get(&id).and_then(Client::group) else {
                        continue;
                    };
                    // One that is deposed and does not know it keeps nobody's session.
                    let is_true = answered_by.is_some() && answered_by == self.coordinates(group);
                    let until = is_true.then(|| asked_at + lease);
                    let (owner, now) = (id, self.now());
                    let event = GroupEvent::Holds { owner, partitions, now, until };
                    self.checker.on_group(group, event);
                }
                seen => self.follow_log_client(id, seen),
            }
        }
    }

    /// What a client of one partition did or saw.
    fn follow_log_client(&mut self, id: u32, seen: Effect) {
        let partition = self.clients.get(&id).and_then(|client| client.partition().cloned());
        let Some(partition) = partition else {
            return;
        };
        match seen {
            Effect::Send { .. } | Effect::Sleep(_) | Effect::Group(_) | Effect::Holds { .. } => {}
            Effect::Sent(send) => {
                if let crate::invariants::SendOutcome::Acked(base) = send.outcome
                    && send.acks == -1
                {
                    self.checker.on_acked(&partition, base, &send.values);
                }
                self.checker.on_send(send);
            }
            Effect::Read { consumer, high_watermark, batch_bases, records } => {
                let read = ReadCheck {
                    consumer,
                    high_watermark,
                    batch_bases: &batch_bases,
                    records: &records,
                };
                self.checker.on_read(&partition, &read);
            }
            Effect::Latest(epoch, offset) => {
                self.checker.on_latest_offset(id, &partition, epoch, offset);
            }
            Effect::OutOfRange(offset) => self.checker.on_out_of_range(&partition, offset),
        }
    }
}
