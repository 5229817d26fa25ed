//! What a shard may ask of the cluster's metadata.

use protocol::Uuid;

/// The topics and the groups' configs as the broker knows them. The host implements it over its image.
pub trait Topics {
    /// The id of the topic with this name.
    fn topic_id(&self, name: &str) -> Option<Uuid>;
    /// The name of the topic with this id.
    fn topic_name(&self, id: Uuid) -> Option<String>;
    /// How many partitions the topic has.
    fn partition_count(&self, name: &str) -> Option<i32>;
    /// The racks of the partition's replicas, those that have one, in any order.
    fn racks(&self, name: &str, partition: i32) -> Vec<String>;
    /// The names of all topics.
    fn names(&self) -> Vec<String>;
    /// A number that grows whenever topics or partitions come or go.
    fn version(&self) -> u64;
    /// A config set on the group itself (resource type GROUP).
    fn group_config(&self, group: &str, key: &str) -> Option<String>;
}
