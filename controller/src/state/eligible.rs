//! Eligible leader replicas (C06, KIP-966) as a feature of the cluster: whether it is on, and what else of
//! the metadata must hold for that. Who is eligible is decided step by step in
//! [`super::partition_change`].
//!
//! The rule rests on one value of `min.insync.replicas` at controllers and leaders. So with the feature on
//! the default of all brokers is recorded and stays, no broker has one of its own, and a change of the value,
//! for a topic or for all, forgets who was eligible under the former one.

use protocol::ErrorCode;
use protocol::types::TopicId;

use super::{ApiError, ControllerState};
use crate::config::{ConfigResource, ConfigResourceType};
use crate::image::PartitionImage;
use crate::records::{Config, NodeList, PartitionChange};

/// The feature's name.
pub(super) const ELR_FEATURE: &str = "eligible.leader.replicas.version";
/// The config that decides who becomes eligible.
pub(super) const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";

impl ControllerState {
    /// Whether the cluster keeps eligible leader replicas.
    pub(super) fn is_elr_enabled(&self) -> bool {
        self.image.features().get(ELR_FEATURE).is_some_and(|level| *level > 0)
    }

    /// What must be recorded before the feature is: the default of all brokers, from this controller's
    /// properties where there is none, and no broker's own value.
    pub(super) fn prepare_for_elr(&mut self) {
        let default = ConfigResource::default_broker();
        if !self.image.configs(&default).is_some_and(|set| set.contains_key(MIN_INSYNC_REPLICAS)) {
            let value = self.config.properties.get(MIN_INSYNC_REPLICAS).map(|text| text.trim());
            let value = value.unwrap_or("1").to_owned();
            self.decide(min_isr_record(&default, Some(value)));
        }
        let own = self.image.config_resources().filter(|(resource, configs)| {
            resource.kind == ConfigResourceType::Broker
                && !resource.name.is_empty()
                && configs.contains_key(MIN_INSYNC_REPLICAS)
        });
        let own: Vec<ConfigResource> = own.map(|(resource, _)| resource.clone()).collect();
        for resource in own {
            self.decide(min_isr_record(&resource, None));
        }
    }

    /// What goes with the feature: nobody is eligible any more. A partition without ISR gets back the one
    /// that it would have without the feature, its last leader (C03). Kafka leaves both as they are until
    /// the partition changes.
    pub(super) fn end_elr(&mut self) {
        let concerned = self.image.partitions().filter(|(_, _, partition)| knows_any(partition));
        let changes: Vec<PartitionChange> = concerned
            .map(|(topic, index, partition)| {
                let mut last = partition.last_known_elr.clone();
                last.retain(|node| partition.replicas.contains(node));
                let is_without = !partition.has_leader() && partition.isr.is_empty();
                let isr = is_without.then(|| NodeList::of(&last));
                PartitionChange { isr, ..forgets_eligible(topic.id, index) }
            })
            .collect();
        for change in changes {
            self.decide(change);
        }
    }

    /// Whether a resource's `min.insync.replicas` may get this value, or none.
    pub(super) fn check_min_isr_change(
        &self,
        resource: &ConfigResource,
        value: Option<&str>,
    ) -> Result<(), ApiError> {
        if !self.is_elr_enabled() || resource.kind != ConfigResourceType::Broker {
            return Ok(());
        }
        let refused = |text: &str| Err(ApiError::new(ErrorCode::InvalidConfig, text));
        match value {
            _ if !resource.name.is_empty() => {
                refused("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
            }
            None => {
                refused("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
            }
            Some(_) => Ok(()),
        }
    }

    /// `min.insync.replicas` of a resource changes: who is eligible by the former value is so no more.
    pub(super) fn forget_eligible(&mut self, resource: &ConfigResource) {
        let is_concerned = |topic: &str| match resource.kind {
            ConfigResourceType::Topic => *resource.name == *topic,
            _ => true,
        };
        let partitions = self
            .image
            .partitions()
            .filter(|(topic, _, partition)| knows_any(partition) && is_concerned(&topic.name));
        let changes: Vec<PartitionChange> =
            partitions.map(|(topic, index, _)| forgets_eligible(topic.id, index)).collect();
        for change in changes {
            self.decide(change);
        }
    }
}

/// Whether anybody is eligible, or was the last to lead.
fn knows_any(partition: &PartitionImage) -> bool {
    !partition.eligible_leader_replicas.is_empty() || !partition.last_known_elr.is_empty()
}

fn forgets_eligible(topic: TopicId, index: i32) -> PartitionChange {
    PartitionChange {
        topic_id: Some(topic.into()),
        partition: index,
        eligible_leader_replicas: Some(NodeList::default()),
        last_known_elr: Some(NodeList::default()),
        ..Default::default()
    }
}

fn min_isr_record(resource: &ConfigResource, value: Option<String>) -> Config {
    Config {
        resource_type: i32::from(resource.kind.code()),
        resource_name: resource.name.to_string(),
        key: MIN_INSYNC_REPLICAS.to_owned(),
        value,
    }
}
