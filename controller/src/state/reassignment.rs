//! Moving partitions to other brokers (C07, KIP-455).
//!
//! A reassignment makes the replica list the wanted replicas and behind them those to be removed.
//! The added ones catch up, the leader takes them into the ISR, and the change of ISR that completes
//! the wanted set drops the rest (see [`super::partition_change`]). Cancelling drops the added ones.

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use protocol::types::{NodeId, TopicId};

use super::partition_change::Election;
use super::{ApiError, ControllerState, code_and_message};
use crate::image::{PartitionImage, TopicImage};
use crate::records::raw_nodes;

impl ControllerState {
    pub(super) fn on_alter_reassignments(
        &mut self,
        request: &AlterPartitionReassignmentsRequest,
    ) -> AlterPartitionReassignmentsResponse {
        let may_resize = request.allow_replication_factor_change;
        let mut responses = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for wanted in &topic.partitions {
                let outcome = self.reassign(&topic.name, wanted, may_resize);
                let (error_code, error_message) = code_and_message(outcome);
                partitions.push(ReassignablePartitionResponse {
                    partition_index: wanted.partition_index,
                    error_code,
                    error_message,
                    ..Default::default()
                });
            }
            responses.push(ReassignableTopicResponse {
                name: topic.name.clone(),
                partitions,
                ..Default::default()
            });
        }
        AlterPartitionReassignmentsResponse {
            allow_replication_factor_change: may_resize,
            // Empty where nothing is asked, as Kafka's is.
            error_message: request.topics.is_empty().then(String::new),
            responses,
            ..Default::default()
        }
    }

    fn reassign(
        &mut self,
        name: &str,
        wanted: &ReassignablePartition,
        may_resize: bool,
    ) -> Result<(), ApiError> {
        let unknown = |text| ApiError::new(ErrorCode::UnknownTopicOrPartition, text);
        let index = wanted.partition_index;
        let topic = self
            .image
            .topic_id(name)
            .ok_or_else(|| unknown(format!("Unable to find a topic named {name}.")))?;
        let partition = self
            .image
            .partition(topic, index)
            .map(Arc::clone)
            .ok_or_else(|| unknown(format!("Unable to find partition {name}:{index}.")))?;
        match &wanted.replicas {
            None => self.cancel_reassignment(name, topic, index, &partition),
            Some(replicas) => {
                let target: Vec<NodeId> = replicas.iter().copied().map(NodeId).collect();
                self.check_manual_replicas(&target, None)?;
                let original = without(&partition.replicas, &partition.adding_replicas);
                if !may_resize && target.len() != original.len() {
                    return Err(ApiError::new(
                        ErrorCode::InvalidReplicationFactor,
                        format!(
                            "The replication factor is changed from {} to {}",
                            original.len(),
                            target.len()
                        ),
                    ));
                }
                self.begin_reassignment(topic, index, &partition, &target, &original);
                Ok(())
            }
        }
    }

    fn begin_reassignment(
        &mut self,
        topic: TopicId,
        index: i32,
        partition: &PartitionImage,
        target: &[NodeId],
        original: &[NodeId],
    ) {
        let mut removing: Vec<NodeId> = without(&partition.replicas, target);
        // A replica that an earlier reassignment was adding and nobody relies on yet just goes.
        removing.retain(|node| original.contains(node) || partition.isr.contains(node));
        removing.sort_unstable();
        let mut adding = without(target, original);
        adding.sort_unstable();
        self.elect(topic, index, Some(Election::Online), |builder| {
            builder.target_replicas = target.iter().chain(&removing).copied().collect();
            builder.target_adding = adding;
            builder.target_removing = removing;
        });
    }

    fn cancel_reassignment(
        &mut self,
        name: &str,
        topic: TopicId,
        index: i32,
        partition: &PartitionImage,
    ) -> Result<(), ApiError> {
        if !partition.is_reassigning() {
            return Err(ErrorCode::NoReassignmentInProgress.into());
        }
        let replicas = without(&partition.replicas, &partition.adding_replicas);
        let isr = without(&partition.isr, &partition.adding_replicas);
        let would_lose = isr.is_empty();
        // Without any of the ISR, only an unclean election among the old replicas could go back.
        let could_elect = self.is_unclean_election_enabled(topic)
            && replicas.iter().any(|replica| self.image.may_lead(*replica, partition));
        if replicas.is_empty() || would_lose && !could_elect {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "Unable to revert partition assignment for {name}:{index} because it would \
                     require an unclean leader election."
                ),
            ));
        }
        let election = if would_lose { Election::Unclean } else { Election::Online };
        self.elect(topic, index, Some(election), |builder| {
            builder.target_isr = isr;
            builder.target_replicas = replicas;
            builder.target_adding = Vec::new();
            builder.target_removing = Vec::new();
        });
        Ok(())
    }

    pub(super) fn on_list_reassignments(
        &self,
        request: &ListPartitionReassignmentsRequest,
    ) -> ListPartitionReassignmentsResponse {
        let topics: Vec<OngoingTopicReassignment> = match &request.topics {
            None => {
                let all = self.image.topics_by_name();
                all.filter_map(|topic| ongoing(topic, |_| true)).collect()
            }
            Some(wanted) => wanted
                .iter()
                .filter_map(|wanted| {
                    let topic = self.image.topic_by_name(&wanted.name)?;
                    ongoing(topic, |index| wanted.partition_indexes.contains(&index))
                })
                .collect(),
        };
        ListPartitionReassignmentsResponse { topics, error_message: None, ..Default::default() }
    }
}

/// The reassignments of a topic's partitions; `None` without any.
fn ongoing(
    topic: &TopicImage,
    is_wanted: impl Fn(i32) -> bool,
) -> Option<OngoingTopicReassignment> {
    let reassigning = topic
        .partitions
        .iter()
        .filter(|(index, partition)| is_wanted(**index) && partition.is_reassigning());
    let partitions: Vec<OngoingPartitionReassignment> = reassigning
        .map(|(index, partition)| OngoingPartitionReassignment {
            partition_index: *index,
            replicas: raw_nodes(&partition.replicas),
            adding_replicas: raw_nodes(&partition.adding_replicas),
            removing_replicas: raw_nodes(&partition.removing_replicas),
            ..Default::default()
        })
        .collect();
    (!partitions.is_empty()).then(|| OngoingTopicReassignment {
        name: topic.name.to_string(),
        partitions,
        ..Default::default()
    })
}

fn without(nodes: &[NodeId], dropped: &[NodeId]) -> Vec<NodeId> {
    nodes.iter().copied().filter(|node| !dropped.contains(node)).collect()
}
