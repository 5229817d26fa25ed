//! From one image to the next. Records of a batch apply together; the caller gives the batch's
//! offset and epoch.

use std::sync::Arc;

use protocol::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, ProducerId, TopicId, Uuid};

use super::{BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage};
use crate::config::{ConfigResource, ConfigResourceType};
use crate::records::{
    self, BrokerChange, Kind, MetadataRecord, Partition, PartitionChange, UnregisterBroker, uuid_of,
};

/// A record that cannot follow the image. The log is damaged or from another cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A record without content, from a newer version of the records.
    #[error("a metadata record of a kind this version does not know")]
    UnknownKind,
    /// A topic that does not exist.
    #[error("metadata record names topic {0}, which does not exist")]
    UnknownTopic(TopicId),
    /// A topic whose name or id is taken.
    #[error("metadata record creates topic {name} with id {id}, which exists")]
    DuplicateTopic {
        /// The topic's name.
        name: String,
        /// The topic's id.
        id: TopicId,
    },
    /// A partition that does not exist.
    #[error("metadata record changes partition {partition} of topic {topic}, which does not exist")]
    UnknownPartition {
        /// The topic's id.
        topic: TopicId,
        /// The partition's index.
        partition: i32,
    },
    /// A broker that is not registered, or not with this epoch.
    #[error("metadata record names broker {broker} with epoch {epoch}, which is not registered")]
    UnknownBroker {
        /// The broker's id.
        broker: NodeId,
        /// The epoch in the record.
        epoch: BrokerEpoch,
    },
    /// A resource type that is none of Kafka's.
    #[error("metadata record has the unknown resource type {0}")]
    UnknownResourceType(i32),
    /// A number that its field on the wire cannot hold.
    #[error("metadata record sets {what} to {value}, out of range")]
    OutOfRange {
        /// Which field.
        what: &'static str,
        /// The value.
        value: i64,
    },
    /// A batch at or below the image's offset.
    #[error("metadata batch at offset {given} after offset {have}")]
    OutOfOrder {
        /// The image's offset.
        have: Offset,
        /// The batch's offset.
        given: Offset,
    },
}

impl ClusterImage {
    /// Applies the batch at `offset`, written in quorum epoch `epoch`. On an error the image is
    /// between two batches and must be dropped.
    pub fn apply_batch(
        &mut self,
        offset: Offset,
        epoch: LeaderEpoch,
        records: &[MetadataRecord],
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        if offset <= self.offset {
            return Err(ApplyError::OutOfOrder { have: self.offset, given: offset });
        }
        for record in records {
            self.apply(record, delta)?;
        }
        self.offset = offset;
        self.epoch = epoch;
        Ok(())
    }

    /// Applies one record and notes in `delta` what it changed. The offset stays.
    pub fn apply(
        &mut self,
        record: &MetadataRecord,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        match record.kind.as_ref().ok_or(ApplyError::UnknownKind)? {
            Kind::ClusterBoot(boot) => self.cluster_id = boot.cluster_id.as_str().into(),
            Kind::NoOp(_) => {}
            Kind::FeatureLevel(feature) => self.apply_feature(feature, delta)?,
            Kind::RegisterBroker(broker) => self.apply_register_broker(broker, delta)?,
            Kind::UnregisterBroker(broker) => self.apply_unregister_broker(broker, delta)?,
            Kind::BrokerChange(change) => self.apply_broker_change(change, delta)?,
            Kind::Topic(topic) => self.apply_topic(topic, delta)?,
            Kind::Partition(partition) => self.apply_partition(partition, delta)?,
            Kind::PartitionChange(change) => self.apply_partition_change(change, delta)?,
            Kind::RemoveTopic(topic) => self.apply_remove_topic(uuid_of(&topic.topic_id), delta)?,
            Kind::Config(config) => self.apply_config(config, delta)?,
            Kind::ProducerIds(block) => {
                self.next_producer_id = ProducerId(block.next_producer_id);
            }
        }
        Ok(())
    }

    fn apply_feature(
        &mut self,
        feature: &records::FeatureLevel,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let level = i16::try_from(feature.level).map_err(|_| ApplyError::OutOfRange {
            what: "a feature's level",
            value: i64::from(feature.level),
        })?;
        let features = Arc::make_mut(&mut self.features);
        if level == 0 {
            features.remove(&feature.name);
        } else {
            features.insert(feature.name.clone(), level);
        }
        delta.features_changed = true;
        Ok(())
    }

    fn apply_register_broker(
        &mut self,
        record: &records::RegisterBroker,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        for endpoint in &record.endpoints {
            u16::try_from(endpoint.port).map_err(|_| ApplyError::OutOfRange {
                what: "a port",
                value: i64::from(endpoint.port),
            })?;
        }
        let broker = BrokerImage::from_record(record);
        delta.changed_brokers.insert(broker.id);
        Arc::make_mut(&mut self.brokers).insert(broker.id, Arc::new(broker));
        Ok(())
    }

    fn apply_unregister_broker(
        &mut self,
        record: &UnregisterBroker,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let id = NodeId(record.broker_id);
        self.expect_broker(id, BrokerEpoch(record.broker_epoch))?;
        Arc::make_mut(&mut self.brokers).remove(&id);
        delta.changed_brokers.insert(id);
        Ok(())
    }

    fn apply_broker_change(
        &mut self,
        change: &BrokerChange,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let id = NodeId(change.broker_id);
        let mut broker = self.expect_broker(id, BrokerEpoch(change.broker_epoch))?;
        let changed = Arc::make_mut(&mut broker);
        changed.fenced = change.fenced.unwrap_or(changed.fenced);
        changed.in_controlled_shutdown =
            change.in_controlled_shutdown.unwrap_or(changed.in_controlled_shutdown);
        if let Some(log_dirs) = &change.log_dirs {
            changed.log_dirs = log_dirs.ids.iter().copied().map(Uuid::from).collect();
        }
        Arc::make_mut(&mut self.brokers).insert(id, broker);
        delta.changed_brokers.insert(id);
        Ok(())
    }

    fn expect_broker(
        &self,
        broker: NodeId,
        epoch: BrokerEpoch,
    ) -> Result<Arc<BrokerImage>, ApplyError> {
        self.brokers
            .get(&broker)
            .filter(|registered| registered.epoch == epoch)
            .cloned()
            .ok_or(ApplyError::UnknownBroker { broker, epoch })
    }

    fn apply_topic(
        &mut self,
        record: &records::Topic,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let id = uuid_of(&record.topic_id);
        if self.topics.contains_key(&id) || self.topic_ids.contains_key(record.name.as_str()) {
            return Err(ApplyError::DuplicateTopic { name: record.name.clone(), id });
        }
        let name: Arc<str> = record.name.as_str().into();
        Arc::make_mut(&mut self.topic_ids).insert(Arc::clone(&name), id);
        let topic = TopicImage { name, id, partitions: Default::default() };
        Arc::make_mut(&mut self.topics).insert(id, Arc::new(topic));
        delta.created_topics.insert(id);
        Ok(())
    }

    fn topic_mut(&mut self, id: TopicId) -> Result<&mut TopicImage, ApplyError> {
        let topics = Arc::make_mut(&mut self.topics);
        topics.get_mut(&id).map(Arc::make_mut).ok_or(ApplyError::UnknownTopic(id))
    }

    fn apply_partition(
        &mut self,
        record: &Partition,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let topic_id = uuid_of(&record.topic_id);
        let partition = Arc::new(PartitionImage::from_record(record));
        self.topic_mut(topic_id)?.partitions.insert(record.partition, partition);
        delta.changed_partitions.insert((topic_id, record.partition));
        Ok(())
    }

    fn apply_partition_change(
        &mut self,
        change: &PartitionChange,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let topic = uuid_of(&change.topic_id);
        let partition = change.partition;
        let image = self
            .topic_mut(topic)?
            .partitions
            .get_mut(&partition)
            .ok_or(ApplyError::UnknownPartition { topic, partition })?;
        Arc::make_mut(image).apply_change(change);
        delta.changed_partitions.insert((topic, partition));
        Ok(())
    }

    fn apply_remove_topic(
        &mut self,
        id: TopicId,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let topic =
            Arc::make_mut(&mut self.topics).remove(&id).ok_or(ApplyError::UnknownTopic(id))?;
        Arc::make_mut(&mut self.topic_ids).remove(&topic.name);
        let resource = ConfigResource::topic(&*topic.name);
        if self.configs.contains_key(&resource) {
            Arc::make_mut(&mut self.configs).remove(&resource);
            delta.changed_configs.insert(resource);
        }
        delta.changed_partitions.retain(|(topic_id, _)| *topic_id != id);
        // A topic that came and went within the delta was never there.
        if !delta.created_topics.remove(&id) {
            delta.deleted_topics.insert(id, topic);
        }
        Ok(())
    }

    fn apply_config(
        &mut self,
        record: &records::Config,
        delta: &mut ImageDelta,
    ) -> Result<(), ApplyError> {
        let kind = i8::try_from(record.resource_type)
            .ok()
            .and_then(ConfigResourceType::from_code)
            .ok_or(ApplyError::UnknownResourceType(record.resource_type))?;
        let resource = ConfigResource { kind, name: record.resource_name.as_str().into() };
        let all = Arc::make_mut(&mut self.configs);
        let configs = Arc::make_mut(all.entry(resource.clone()).or_default());
        match &record.value {
            Some(value) => configs.insert(record.key.clone(), value.clone()),
            None => configs.remove(&record.key),
        };
        if configs.is_empty() {
            all.remove(&resource);
        }
        delta.changed_configs.insert(resource);
        Ok(())
    }
}
