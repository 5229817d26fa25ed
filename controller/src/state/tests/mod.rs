//! The deciding state under test. [`Cluster`] plays brokers and clock; after every input it checks
//! that applying the decided records to a second image gives the working image, and the invariants
//! on what the controller may decide (I10, I11, leaders within ISRs within replicas).

mod alter_partition;
mod brokers;
mod configs;
mod directories;
mod elections;
mod eligible;
mod events;
mod random;
mod reassignment;
mod topics;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::messages::broker_registration_request::Listener;
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::messages::{
    AlterPartitionRequest, AlterPartitionResponse, BrokerHeartbeatRequest, BrokerHeartbeatResponse,
    BrokerRegistrationRequest, BrokerRegistrationResponse, CreateTopicsRequest, Request,
    RequestBody, alter_partition_request, alter_partition_response,
};
use protocol::types::{LeaderEpoch, NodeId, Offset, TopicId, Uuid};
use replication::time::{Instant, Now};

use super::*;
use crate::image::PartitionImage;

const CLUSTER: &str = "cluster";
const TOPIC: &str = "t";

/// A heartbeat's wishes.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    fence: bool,
    shut_down: bool,
    /// What the broker has read; everything when absent.
    offset: Option<i64>,
}

struct Cluster {
    state: ControllerState,
    follower: ClusterImage,
    now: Now,
    epoch: i32,
}

fn config() -> ControllerConfig {
    ControllerConfig::new(CLUSTER, NodeId(100), 7)
}

impl Cluster {
    fn empty() -> Self {
        Self::with_config(config())
    }

    fn with_config(config: ControllerConfig) -> Self {
        let now = Now { monotonic: Instant(Duration::from_secs(1000)), wall_clock_ms: 0 };
        let (state, records) =
            ControllerState::become_active(config, ClusterImage::default(), LeaderEpoch(1), now);
        let mut cluster = Cluster { state, follower: ClusterImage::default(), now, epoch: 1 };
        cluster.follow(&records);
        cluster
    }

    /// A cluster of these brokers, all unfenced.
    fn of(brokers: &[i32]) -> Self {
        let mut cluster = Self::empty();
        for id in brokers {
            cluster.join(*id);
        }
        cluster
    }

    /// Three brokers and a topic of one partition on `[1, 2, 3]`.
    fn with_topic() -> Self {
        let mut cluster = Self::of(&[1, 2, 3]);
        cluster.create(&[&[1, 2, 3]], &[]);
        cluster
    }

    fn follow(&mut self, records: &[MetadataRecord]) {
        let before = self.follower.clone();
        if !records.is_empty() {
            let offset = self.follower.offset().next();
            let mut delta = ImageDelta::default();
            let epoch = LeaderEpoch(self.epoch);
            self.follower.apply_batch(offset, epoch, records, &mut delta).unwrap();
        }
        assert_eq!(self.follower, *self.state.image(), "the records give the working image");
        check_step(&before, &self.follower);
        check_image(&self.follower);
    }

    fn ask<R: Request>(&mut self, version: i16, request: R) -> R::Response {
        let body: RequestBody = request.into();
        let decision = self.state.on_request(&RequestContext::default(), version, &body, self.now);
        self.follow(&decision.records);
        R::Response::try_from(decision.response).unwrap_or_else(|error| panic!("{error}"))
    }

    fn pass(&mut self, millis: u64) {
        self.now.monotonic = self.now.monotonic + Duration::from_millis(millis);
    }

    fn tick(&mut self) -> usize {
        let records = self.state.on_tick(self.now);
        self.follow(&records);
        records.len()
    }

    /// Another controller takes over with everything that was decided.
    fn fail_over(&mut self) {
        self.epoch += 1;
        let (state, records) = ControllerState::become_active(
            config(),
            self.follower.clone(),
            LeaderEpoch(self.epoch),
            self.now,
        );
        self.state = state;
        self.follow(&records);
    }

    fn registration(id: i32, incarnation: u8) -> BrokerRegistrationRequest {
        BrokerRegistrationRequest {
            broker_id: id,
            cluster_id: CLUSTER.into(),
            incarnation_id: Uuid([incarnation; 16]),
            listeners: vec![Listener {
                name: "PLAINTEXT".into(),
                host: "localhost".into(),
                port: 9092,
                security_protocol: 0,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn register(&mut self, id: i32, incarnation: u8) -> BrokerRegistrationResponse {
        self.ask(4, Self::registration(id, incarnation))
    }

    fn broker_epoch(&self, id: i32) -> i64 {
        self.state.image().broker(NodeId(id)).map_or(-1, |broker| broker.epoch.get())
    }

    fn heartbeat(&mut self, id: i32, wish: Wish) -> BrokerHeartbeatResponse {
        let request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: self.broker_epoch(id),
            current_metadata_offset: wish.offset.unwrap_or(self.follower.offset().get()),
            want_fence: wish.fence,
            want_shut_down: wish.shut_down,
            ..Default::default()
        };
        self.ask(1, request)
    }

    /// As [`Self::register`], by a process that knows that the last one ended cleanly.
    fn register_after_clean_stop(&mut self, id: i32, incarnation: u8) -> i16 {
        let mut request = Self::registration(id, incarnation);
        request.previous_broker_epoch = self.broker_epoch(id);
        self.ask(4, request).error_code
    }

    /// Registers a new process of a broker and unfences it.
    fn join(&mut self, id: i32) {
        let incarnation = 1 + self.follower.offset().get().max(0) as u8;
        assert_eq!(self.register(id, incarnation).error_code, 0);
        assert!(!self.heartbeat(id, Wish::default()).is_fenced);
    }

    fn fence(&mut self, id: i32) {
        assert!(self.heartbeat(id, Wish { fence: true, ..Default::default() }).is_fenced);
    }

    fn unfence(&mut self, id: i32) {
        assert!(!self.heartbeat(id, Wish::default()).is_fenced);
    }

    fn create(&mut self, assignments: &[&[i32]], configs: &[(&str, &str)]) {
        let topic = manual_topic(TOPIC, assignments, configs);
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let response = self.ask(7, request);
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
    }

    fn topic_id(&self) -> TopicId {
        self.follower.topic_id(TOPIC).unwrap()
    }

    fn partition(&self, index: i32) -> &PartitionImage {
        self.follower.partition(self.topic_id(), index).unwrap()
    }

    /// Leader, ISR, eligible leader replicas and last known leader of partition 0.
    fn standing(&self) -> (i32, Vec<i32>, Vec<i32>, Vec<i32>) {
        let p = self.partition(0);
        let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect::<Vec<i32>>();
        let (eligible, last) = (&p.eligible_leader_replicas, &p.last_known_elr);
        (p.leader.get(), ids(&p.isr), ids(eligible), ids(last))
    }

    /// Leader, leader epoch, partition epoch and ISR of partition 0.
    fn state_of(&self, index: i32) -> (i32, i32, i32, Vec<i32>) {
        let p = self.partition(index);
        let isr = p.isr.iter().map(|node| node.get()).collect();
        (p.leader.get(), p.leader_epoch.get(), p.partition_epoch.get(), isr)
    }

    /// The leader's proposal of `isr` for partition 0, with every epoch right.
    fn proposal(&self, isr: &[i32]) -> AlterPartitionRequest {
        let p = self.partition(0);
        let members = isr.iter().map(|id| alter_partition_request::BrokerState {
            broker_id: *id,
            broker_epoch: self.broker_epoch(*id),
            ..Default::default()
        });
        let partition = alter_partition_request::PartitionData {
            partition_index: 0,
            leader_epoch: p.leader_epoch.get(),
            partition_epoch: p.partition_epoch.get(),
            leader_recovery_state: p.leader_recovery_state.code(),
            new_isr_with_epochs: members.collect(),
            ..Default::default()
        };
        AlterPartitionRequest {
            broker_id: p.leader.get(),
            broker_epoch: self.broker_epoch(p.leader.get()),
            topics: vec![alter_partition_request::TopicData {
                topic_id: self.topic_id(),
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    /// Sends a proposal; the whole answer and its one partition's, if there is one.
    fn alter(
        &mut self,
        request: AlterPartitionRequest,
    ) -> (AlterPartitionResponse, alter_partition_response::PartitionData) {
        let response = self.ask(3, request);
        let partition = response.topics.first().and_then(|topic| topic.partitions.first()).cloned();
        (response, partition.unwrap_or_default())
    }

    /// Changes the ISR of partition 0 successfully.
    fn set_isr(&mut self, isr: &[i32]) {
        let (_, partition) = self.alter(self.proposal(isr));
        assert_eq!(partition.error_code, 0);
    }
}

fn manual_topic(name: &str, assignments: &[&[i32]], configs: &[(&str, &str)]) -> CreatableTopic {
    let assignments =
        assignments.iter().enumerate().map(|(index, replicas)| CreatableReplicaAssignment {
            partition_index: index as i32,
            broker_ids: replicas.to_vec(),
            ..Default::default()
        });
    CreatableTopic {
        name: name.into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: assignments.collect(),
        configs: creatable_configs(configs),
        ..Default::default()
    }
}

fn creatable_configs(configs: &[(&str, &str)]) -> Vec<CreatableTopicConfig> {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: name.to_string(),
        value: Some(value.to_string()),
        ..Default::default()
    });
    configs.collect()
}

/// I10: epochs never go back, and the leader epoch does not move without the partition epoch.
fn check_step(before: &ClusterImage, after: &ClusterImage) {
    let earlier: BTreeMap<_, _> =
        before.partitions().map(|(topic, index, p)| ((topic.id, index), p)).collect();
    for (topic, index, now) in after.partitions() {
        let Some(then) = earlier.get(&(topic.id, index)) else {
            continue;
        };
        assert!(now.leader_epoch >= then.leader_epoch, "{}-{index}", topic.name);
        assert!(now.partition_epoch >= then.partition_epoch, "{}-{index}", topic.name);
        if now.leader_epoch != then.leader_epoch || now != *then {
            assert!(now.partition_epoch > then.partition_epoch, "{}-{index}", topic.name);
        }
        if now.leader != then.leader {
            assert!(now.leader_epoch > then.leader_epoch, "{}-{index}", topic.name);
        }
    }
}

/// I11 and what makes a partition's state sound. With eligible leader replicas off, and where they have
/// just been put on, a replica that may not lead (its broker is not active, or its directory failed: C08)
/// may stay in an ISR only as its last member, and then nobody leads.
fn check_image(image: &ClusterImage) {
    let is_elr_on = image.features().contains_key(super::eligible::ELR_FEATURE);
    for (topic, index, p) in image.partitions() {
        let at = format!("{}-{index}: {p:?}", topic.name);
        let mut distinct = p.replicas.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), p.replicas.len(), "{at}");
        assert_eq!(p.directories.len(), p.replicas.len(), "{at}");
        // The leaderless may have lost their ISR while the feature was on.
        assert!(!p.has_leader() || !p.isr.is_empty(), "{at}");
        check_eligible(image, topic, p, is_elr_on, &at);
        assert!(p.isr.iter().all(|member| p.replicas.contains(member)), "{at}");
        assert!(p.adding_replicas.iter().all(|node| p.replicas.contains(node)), "{at}");
        assert!(p.removing_replicas.iter().all(|node| p.replicas.contains(node)), "{at}");
        if p.has_leader() {
            assert!(p.isr.contains(&p.leader), "{at}");
            assert!(p.isr.iter().all(|member| image.may_lead(*member, p)), "{at}");
        } else {
            assert!(p.isr.len() <= 1 && !p.isr.iter().any(|node| image.may_lead(*node, p)), "{at}");
        }
    }
}

/// What holds of eligible leader replicas (C06, I11).
fn check_eligible(
    image: &ClusterImage,
    topic: &crate::image::TopicImage,
    p: &PartitionImage,
    is_on: bool,
    at: &str,
) {
    let eligible = &p.eligible_leader_replicas;
    assert!(is_on || eligible.is_empty() && p.last_known_elr.is_empty(), "{at}");
    assert!(eligible.is_sorted(), "{at}");
    assert!(eligible.iter().all(|node| p.replicas.contains(node) && !p.isr.contains(node)), "{at}");
    let own = image.configs(&ConfigResource::topic(&*topic.name));
    let default = image.configs(&ConfigResource::default_broker());
    let layers = ConfigLayers { dynamic_default: default, ..Default::default() };
    let min_isr = layers.topic_value("min.insync.replicas", own).unwrap().as_i64().unwrap();
    assert!(eligible.is_empty() || (p.isr.len() as i64) < min_isr, "{at}, {min_isr}");
    let is_without_isr = !p.has_leader() && p.isr.is_empty();
    assert!(is_without_isr || p.last_known_elr.is_empty(), "{at}");
    assert!(p.last_known_elr.len() <= 1, "{at}");
    if is_without_isr {
        assert!(!eligible.iter().any(|node| image.may_lead(*node, p)), "{at}");
        let is_last = eligible.is_empty();
        let may_last_lead = p.last_known_elr.iter().any(|node| image.may_lead(*node, p));
        assert!(!is_last || !may_last_lead, "{at}");
    }
}

#[test]
fn the_first_leader_of_a_cluster_writes_its_id_and_features_and_later_ones_nothing() {
    let mut cluster = Cluster::empty();
    assert_eq!(cluster.follower.cluster_id(), CLUSTER);
    assert_eq!(cluster.follower.features().get("metadata.version"), Some(&METADATA_VERSION));
    let offset = cluster.follower.offset();
    cluster.fail_over();
    assert_eq!(cluster.follower.offset(), offset);
    assert_eq!(cluster.state.next_offset(), offset.next());
    assert_eq!(cluster.state.next_offset(), Offset(offset.get() + 1));
}

#[test]
fn producer_id_blocks_are_a_thousand_ids_each_and_never_overlap() {
    let mut cluster = Cluster::of(&[1]);
    let ask = |cluster: &mut Cluster, epoch| {
        let request = protocol::messages::AllocateProducerIdsRequest {
            broker_id: 1,
            broker_epoch: epoch,
            ..Default::default()
        };
        cluster.ask(0, request)
    };
    let epoch = cluster.broker_epoch(1);
    let first = ask(&mut cluster, epoch);
    assert_eq!((first.producer_id_start, first.producer_id_len), (0, 1000));
    cluster.fail_over();
    assert_eq!(ask(&mut cluster, epoch).producer_id_start, 1000);
    assert_eq!(ask(&mut cluster, epoch - 1).error_code, 77);
}

#[test]
fn the_same_inputs_decide_the_same_records() {
    let run = || {
        let mut cluster = Cluster::of(&[1, 2, 3]);
        let topic = CreatableTopic {
            name: "random".into(),
            num_partitions: 5,
            replication_factor: 2,
            ..Default::default()
        };
        cluster.ask(7, CreateTopicsRequest { topics: vec![topic], ..Default::default() });
        cluster.follower.to_records()
    };
    assert_eq!(run(), run());
}
