//! The cluster's metadata as the group coordinator asks for it.

use std::sync::Arc;

use controller::{ConfigResource, ConfigResourceType};
use coordinator::Topics;
use protocol::Uuid;

use crate::core::directory::Directory;

/// One state of the metadata.
pub(super) struct TopicsView {
    pub(super) directory: Arc<Directory>,
    /// Grows whenever topics or partitions come or go.
    pub(super) version: u64,
}

impl Topics for TopicsView {
    fn topic_id(&self, name: &str) -> Option<Uuid> {
        self.directory.image.topic_id(name)
    }

    fn topic_name(&self, id: Uuid) -> Option<String> {
        self.directory.image.topic_name(id).map(|name| name.to_string())
    }

    fn partition_count(&self, name: &str) -> Option<i32> {
        let topic = self.directory.image.topic_by_name(name)?;
        i32::try_from(topic.partitions.len()).ok()
    }

    fn racks(&self, name: &str, partition: i32) -> Vec<String> {
        let image = &self.directory.image;
        let found = image.topic_by_name(name).and_then(|topic| topic.partitions.get(&partition));
        let replicas = found.map(|partition| partition.replicas.as_slice()).unwrap_or_default();
        let rack_of = |id: &protocol::NodeId| image.broker(*id)?.rack.as_deref().map(str::to_owned);
        replicas.iter().filter_map(rack_of).collect()
    }

    fn names(&self) -> Vec<String> {
        self.directory.image.topics_by_name().map(|topic| topic.name.to_string()).collect()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn group_config(&self, group: &str, key: &str) -> Option<String> {
        let resource = ConfigResource { kind: ConfigResourceType::Group, name: group.into() };
        let configs = self.directory.image.configs(&resource)?;
        configs.get(key).map(|value| value.to_string())
    }
}
