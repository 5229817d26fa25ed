//! What stories and tests ask of a simulated cluster: who leads, who is in sync, what the logs hold;
//! and waiting until it is so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use broker::core::internal_topics::GROUP_TOPIC;
use broker::core::lifecycle::LifecycleState;
use bytes::Bytes;
use controller::PartitionImage;
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::{LeaderEpoch, NodeId, Offset, ResponseBody, TopicIdPartition, TopicPartition};

use super::world::Simulation;
use crate::invariants::{BatchEntry, RecordEntry, ReplicaFacts};

/// How long waits take before they fail, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);
const CREATE_TOPICS_VERSION: i16 = 7;

impl Simulation {
    /// Runs until a controller decides and every node's broker is alive.
    ///
    /// # Errors
    /// When that does not come, or an invariant is broken.
    pub fn wait_until_all_live(&mut self) -> Result<()> {
        self.run_until("all running brokers alive", PATIENCE, Simulation::all_live)
    }

    /// Whether every running node's broker is alive, knows it, and knows all others.
    pub fn all_live(&self) -> bool {
        self.nodes.values().filter_map(|node| node.running()).all(|process| {
            process.core.lifecycle.state() == LifecycleState::Running
                && self.nodes.values().filter(|node| node.running().is_some()).all(|other| {
                    process.core.directory().alive(other.id).is_some()
                        && self.cluster.is_active(other.id)
                })
        })
    }

    /// Creates a topic with one partition per list of replicas, and waits until its leaders lead.
    ///
    /// # Errors
    /// When the controller refuses it.
    pub fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[i32]],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let request = create_request(topic, partitions, configs);
        let to = self
            .nodes
            .values()
            .find(|node| node.is_responsive())
            .map(|node| node.id)
            .context("no node runs")?;
        match self.call(to, CREATE_TOPICS_VERSION, request)? {
            ResponseBody::CreateTopics(response) => {
                let result = response.topics.first().context("no topic in the answer")?;
                ensure!(
                    result.error_code == 0,
                    "creating {topic}: error {} {:?}",
                    result.error_code,
                    result.error_message
                );
            }
            other => bail!("no answer to CreateTopics but {other:?}"),
        }
        let count = partitions.len() as i32;
        self.run_until("the topic's leaders", PATIENCE, |simulation| {
            (0..count).all(|index| simulation.leads(topic, index).is_some())
        })
    }

    /// A partition with its topic's id.
    ///
    /// # Errors
    /// When there is no such topic.
    pub fn partition_id(&self, topic: &str, index: i32) -> Result<TopicIdPartition> {
        let topic_id = self.cluster.topic_id(topic).with_context(|| format!("no topic {topic}"))?;
        Ok(TopicIdPartition { topic_id, topic_partition: TopicPartition::new(topic, index) })
    }

    /// A partition as the controllers have it.
    pub fn partition_image(&self, topic: &str, index: i32) -> Option<&PartitionImage> {
        let id = self.cluster.topic_id(topic)?;
        self.cluster.partition(id, index).map(|image| &**image)
    }

    /// The node that the controllers have as leader and that knows it.
    pub fn leads(&self, topic: &str, index: i32) -> Option<NodeId> {
        let image = self.partition_image(topic, index)?;
        let facts = self.replica(image.leader, topic, index)?;
        (facts.is_leader && facts.leader_epoch == image.leader_epoch).then_some(image.leader)
    }

    /// The node that the controllers have as the leader of a group's partition.
    pub fn coordinates(&self, group: &str) -> Option<NodeId> {
        let topic = self.cluster.topic_by_name(GROUP_TOPIC)?;
        let count = i32::try_from(topic.partitions.len()).ok()?;
        let index = broker::core::internal_topics::partition_of(group, count)?;
        self.partition_image(GROUP_TOPIC, index).map(|image| image.leader)
    }

    /// A running node's replica as it is.
    pub fn replica(&self, node: NodeId, topic: &str, index: i32) -> Option<ReplicaFacts> {
        let process = self.nodes.get(&node)?.running()?;
        let partition = TopicPartition::new(topic, index);
        let found = process.core.replicas.partition(&partition, protocol::Uuid::ZERO).ok()?;
        let replica = found.lock();
        let mut facts = super::observe::facts_of(&replica);
        facts.sources = process.fetchers.sources(found.id());
        Some(facts)
    }

    /// The batches of a running node's replica.
    pub fn batches(&self, node: NodeId, topic: &str, index: i32) -> Vec<BatchEntry> {
        self.partition_id(topic, index)
            .map(|id| self.checker.batches(node, &id).to_vec())
            .unwrap_or_default()
    }

    /// The values of a running node's replica with their offsets.
    pub fn values(&self, node: NodeId, topic: &str, index: i32) -> Vec<(Offset, Bytes)> {
        let batches = self.batches(node, topic, index);
        batches.iter().flat_map(|batch| &batch.records).map(RecordEntry::value).collect()
    }

    /// A replica's log by epochs, as in `e1[0,2) e2[2,5)`.
    pub fn shape(&self, node: NodeId, topic: &str, index: i32) -> String {
        let mut spans: Vec<(LeaderEpoch, Offset, Offset)> = Vec::new();
        for batch in self.batches(node, topic, index) {
            match spans.last_mut() {
                Some((epoch, _, end)) if *epoch == batch.epoch => *end = batch.next,
                _ => spans.push((batch.epoch, batch.base, batch.next)),
            }
        }
        let mut text = String::new();
        for (epoch, from, to) in spans {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}e{epoch}[{from},{to})");
        }
        text
    }

    /// Runs until the partition is led by a node other than `not`, which knows it; gives the leader.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_for_leader(
        &mut self,
        topic: &str,
        index: i32,
        not: Option<NodeId>,
    ) -> Result<NodeId> {
        self.run_until("a leader", PATIENCE, |simulation| {
            simulation.leads(topic, index).is_some_and(|leader| Some(leader) != not)
        })?;
        self.leads(topic, index).context("the leader left")
    }

    /// Runs until the controllers' ISR is exactly this, in any order.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_for_isr(&mut self, topic: &str, index: i32, isr: &[i32]) -> Result<()> {
        let mut wanted: Vec<NodeId> = isr.iter().copied().map(NodeId).collect();
        wanted.sort_unstable();
        self.run_until(&format!("the ISR {isr:?}"), PATIENCE, |simulation| {
            let mut seen = simulation
                .partition_image(topic, index)
                .map(|image| image.isr.clone())
                .unwrap_or_default();
            seen.sort_unstable();
            seen == wanted
        })
    }

    /// Runs until a replica's high watermark is at least this.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_for_high_watermark(
        &mut self,
        node: NodeId,
        topic: &str,
        index: i32,
        offset: i64,
    ) -> Result<()> {
        self.run_until(&format!("high watermark {offset} at {node}"), PATIENCE, |simulation| {
            simulation
                .replica(node, topic, index)
                .is_some_and(|facts| facts.high_watermark >= Offset(offset))
        })
    }

    /// Runs until a replica's log ends here.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_for_log_end(
        &mut self,
        node: NodeId,
        topic: &str,
        index: i32,
        offset: i64,
    ) -> Result<()> {
        self.run_until(&format!("log end {offset} at {node}"), PATIENCE, |simulation| {
            simulation
                .replica(node, topic, index)
                .is_some_and(|facts| facts.log_end == Offset(offset))
        })
    }

    /// Whether all is as it was before anything broke: every node runs and is alive, every replica is
    /// in its ISR, all logs of a partition end where its leader's does and are committed to there, and
    /// no change of an ISR is under way.
    pub fn is_healthy(&self) -> bool {
        if !self.nodes.values().all(|node| node.is_responsive()) || !self.all_live() {
            return false;
        }
        self.cluster.partitions().all(|(topic, index, image)| {
            let whole = image.isr.len() == image.replicas.len() && !image.is_reassigning();
            let Some(leader) = self.leads(&topic.name, index) else {
                return false;
            };
            let Some(led) = self.replica(leader, &topic.name, index) else {
                return false;
            };
            whole
                && !led.alter_in_flight
                && image.replicas.iter().all(|node| {
                    self.replica(*node, &topic.name, index).is_some_and(|facts| {
                        facts.log_end == led.log_end
                            && facts.high_watermark == led.log_end
                            && facts.leader_epoch == led.leader_epoch
                    })
                })
        })
    }

    /// The cluster in a few words, for failures.
    pub fn describe(&self) -> String {
        let mut text = format!("controller {:?}; ", self.active_controller);
        for node in self.nodes.values() {
            let state = node.running().map(|process| process.core.lifecycle.state());
            let _ = write!(text, "node {} {state:?} frozen {}; ", node.id, node.frozen);
        }
        for (topic, index, image) in self.cluster.partitions() {
            let _ = write!(
                text,
                "{}-{index} leader {} epochs {}/{} ISR {:?}: ",
                topic.name, image.leader, image.leader_epoch, image.partition_epoch, image.isr
            );
            for node in &image.replicas {
                if let Some(facts) = self.replica(*node, &topic.name, index) {
                    let _ = write!(
                        text,
                        "[{node}{} e{} hw {} end {} in flight {}] ",
                        if facts.is_leader { " leads" } else { "" },
                        facts.leader_epoch,
                        facts.high_watermark,
                        facts.log_end,
                        facts.alter_in_flight
                    );
                }
            }
        }
        let clients: BTreeMap<u32, bool> = self
            .clients
            .keys()
            .filter_map(|id| self.producer(*id).map(|producer| (*id, producer.is_done())))
            .collect();
        let _ = write!(text, "producers done: {clients:?}");
        for member in self.clients.keys().filter_map(|id| self.member(*id)) {
            let _ = write!(text, "; {member}");
        }
        for member in self.clients.keys().filter_map(|id| self.subscriber(*id)) {
            let _ = write!(text, "; {member}");
        }
        text
    }
}

fn create_request(
    topic: &str,
    partitions: &[&[i32]],
    configs: &[(&str, &str)],
) -> CreateTopicsRequest {
    let assignments = (0..).zip(partitions).map(|(index, replicas)| CreatableReplicaAssignment {
        partition_index: index,
        broker_ids: replicas.to_vec(),
        ..CreatableReplicaAssignment::default()
    });
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: (*name).into(),
        value: Some((*value).into()),
        ..CreatableTopicConfig::default()
    });
    CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: configs.collect(),
            ..CreatableTopic::default()
        }],
        timeout_ms: 5000,
        ..CreateTopicsRequest::default()
    }
}
