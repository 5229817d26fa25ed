//! The cluster as its metadata records add up to: what the active controller decides from and what
//! every broker answers Metadata from.
//!
//! An image is a value. Cloning it copies a few pointers; applying records to one clone does not
//! show in the others. Applying is total on records that a controller of ours decided; a record that
//! contradicts the image (from a damaged disk) is an [`ApplyError`], never a panic.

mod apply;
mod broker;
mod delta;
pub mod directory_id;
mod snapshot;
mod topic;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::types::{LeaderEpoch, NodeId, Offset, ProducerId, TopicId};

use crate::config::ConfigResource;

pub use apply::ApplyError;
pub use broker::{BrokerImage, BrokerListener, SupportedFeature};
pub use delta::ImageDelta;
pub use topic::{LeaderRecoveryState, PartitionImage, TopicImage};

/// The configs of one resource: key to value.
pub type ConfigMap = BTreeMap<String, String>;

/// Everything the metadata log says, up to an offset.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterImage {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) offset: Offset,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) brokers: Arc<BTreeMap<NodeId, Arc<BrokerImage>>>,
    pub(crate) topics: Arc<BTreeMap<TopicId, Arc<TopicImage>>>,
    pub(crate) topic_ids: Arc<BTreeMap<Arc<str>, TopicId>>,
    pub(crate) configs: Arc<BTreeMap<ConfigResource, Arc<ConfigMap>>>,
    pub(crate) features: Arc<BTreeMap<String, i16>>,
    pub(crate) next_producer_id: ProducerId,
}

impl Default for ClusterImage {
    /// The image before the first record.
    fn default() -> Self {
        ClusterImage {
            cluster_id: Arc::from(""),
            offset: Offset::NONE,
            epoch: LeaderEpoch::NONE,
            brokers: Arc::default(),
            topics: Arc::default(),
            topic_ids: Arc::default(),
            configs: Arc::default(),
            features: Arc::default(),
            next_producer_id: ProducerId(0),
        }
    }
}

impl ClusterImage {
    /// The cluster's id; empty before the first record.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The offset of the last batch applied; -1 before the first.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// The quorum epoch of the last batch applied.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// A registered broker, fenced or not.
    pub fn broker(&self, id: NodeId) -> Option<&Arc<BrokerImage>> {
        self.brokers.get(&id)
    }

    /// All registered brokers, by id.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerImage>> {
        self.brokers.values()
    }

    /// Whether `id` is registered, not fenced and not shutting down.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_active())
    }

    /// Whether `node` could lead `partition` or be in its ISR as far as broker and disk go: it is active
    /// and the replica's log directory works (I11, C08).
    pub fn may_lead(&self, node: NodeId, partition: &PartitionImage) -> bool {
        self.is_active(node) && self.has_online_replica(node, partition)
    }

    /// Whether the log directory of the replica on `node` works, whatever the broker's state; false
    /// when no such broker is registered.
    pub fn has_online_replica(&self, node: NodeId, partition: &PartitionImage) -> bool {
        let directory = partition.directory_of(node);
        self.broker(node).is_some_and(|broker| broker.has_online_dir(directory))
    }

    /// All topics, by id.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topics.values()
    }

    /// All topics, by name.
    pub fn topics_by_name(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topic_ids.values().filter_map(|id| self.topics.get(id))
    }

    /// A topic by its id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    /// A topic by its name.
    pub fn topic_by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.topic_ids.get(name)?)
    }

    /// The id of the topic with this name.
    pub fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.topic_ids.get(name).copied()
    }

    /// The name of the topic with this id.
    pub fn topic_name(&self, id: TopicId) -> Option<&Arc<str>> {
        self.topics.get(&id).map(|topic| &topic.name)
    }

    /// One partition.
    pub fn partition(&self, topic: TopicId, partition: i32) -> Option<&Arc<PartitionImage>> {
        self.topics.get(&topic)?.partitions.get(&partition)
    }

    /// Every partition with its topic, by topic id and index.
    pub fn partitions(
        &self,
    ) -> impl Iterator<Item = (&Arc<TopicImage>, i32, &Arc<PartitionImage>)> {
        self.topics.values().flat_map(|topic| {
            topic.partitions.iter().map(move |(index, partition)| (topic, *index, partition))
        })
    }

    /// The dynamic configs of a resource; `None` when it has none.
    pub fn configs(&self, resource: &ConfigResource) -> Option<&ConfigMap> {
        self.configs.get(resource).map(|configs| &**configs)
    }

    /// Every resource that has dynamic configs.
    pub fn config_resources(&self) -> impl Iterator<Item = (&ConfigResource, &ConfigMap)> {
        self.configs.iter().map(|(resource, configs)| (resource, &**configs))
    }

    /// The finalized features and their levels.
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// The lowest producer id that no block has.
    pub fn next_producer_id(&self) -> ProducerId {
        self.next_producer_id
    }
}
