//! An image as the shortest sequence of records that gives it again.

use protocol::types::{LeaderEpoch, Offset, ProducerId};

use super::{ApplyError, ClusterImage, ImageDelta};
use crate::records::{
    ClusterBoot, Config, FeatureLevel, MetadataRecord, MetadataSnapshot, ProducerIds, Topic,
};

impl ClusterImage {
    /// The records that, applied to an empty image, give this one (without its offset).
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        if !self.cluster_id.is_empty() {
            records.push(ClusterBoot { cluster_id: self.cluster_id.to_string() }.into());
        }
        for (name, level) in self.features.iter() {
            records.push(FeatureLevel { name: name.clone(), level: i32::from(*level) }.into());
        }
        records.extend(self.brokers.values().map(|broker| broker.to_record().into()));
        for topic in self.topics.values() {
            let record = Topic { name: topic.name.to_string(), topic_id: Some(topic.id.into()) };
            records.push(record.into());
            for (index, partition) in &topic.partitions {
                records.push(partition.to_record(topic.id, *index).into());
            }
        }
        for (resource, configs) in self.configs.iter() {
            records.extend(configs.iter().map(|(key, value)| {
                let record = Config {
                    resource_type: i32::from(resource.kind.code()),
                    resource_name: resource.name.to_string(),
                    key: key.clone(),
                    value: Some(value.clone()),
                };
                record.into()
            }));
        }
        if self.next_producer_id > ProducerId(0) {
            let next_producer_id = self.next_producer_id.get();
            let block = ProducerIds { broker_id: -1, broker_epoch: -1, next_producer_id };
            records.push(block.into());
        }
        records
    }

    /// The image as a snapshot, with its offset and epoch.
    pub fn to_snapshot(&self) -> MetadataSnapshot {
        MetadataSnapshot {
            offset: self.offset.get(),
            epoch: self.epoch.get(),
            records: self.to_records(),
        }
    }

    /// The image that a snapshot holds.
    pub fn from_snapshot(snapshot: &MetadataSnapshot) -> Result<Self, ApplyError> {
        let mut image = ClusterImage::default();
        let mut delta = ImageDelta::default();
        for record in &snapshot.records {
            image.apply(record, &mut delta)?;
        }
        image.offset = Offset(snapshot.offset);
        image.epoch = LeaderEpoch(snapshot.epoch);
        Ok(image)
    }
}
