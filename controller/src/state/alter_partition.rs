//! A leader asks for another ISR (KIP-497). The checks and their order are H13; who may not join is
//! H10 (fenced, shutting down, unregistered) and H11 (another registration than the leader judged).

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::alter_partition_request::PartitionData as Wanted;
use protocol::messages::alter_partition_response::{PartitionData, TopicData};
use protocol::messages::{AlterPartitionRequest, AlterPartitionResponse};
use protocol::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId};

use replication::bugs::{self, Bug};

use super::ControllerState;
use super::partition_change::Election;
use crate::image::{LeaderRecoveryState, PartitionImage};

/// A proposed member of an ISR, with the registration that the leader judged; -1 for none.
type Member = (NodeId, BrokerEpoch);

impl ControllerState {
    pub(super) fn on_alter_partition(
        &mut self,
        api_version: i16,
        request: &AlterPartitionRequest,
    ) -> AlterPartitionResponse {
        let leader = match self.check_broker_epoch(request.broker_id, request.broker_epoch) {
            Ok(leader) => leader,
            Err(error) => {
                return AlterPartitionResponse { error_code: error.code(), ..Default::default() };
            }
        };
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for wanted in &topic.partitions {
                let answer = self.alter_partition(api_version, leader, topic.topic_id, wanted);
                partitions.push(answer.unwrap_or_else(|error| PartitionData {
                    partition_index: wanted.partition_index,
                    error_code: error.code(),
                    ..Default::default()
                }));
            }
            topics.push(TopicData { topic_id: topic.topic_id, partitions, ..Default::default() });
        }
        AlterPartitionResponse { topics, ..Default::default() }
    }

    fn alter_partition(
        &mut self,
        api_version: i16,
        sender: NodeId,
        topic_id: TopicId,
        wanted: &Wanted,
    ) -> Result<PartitionData, ErrorCode> {
        let index = wanted.partition_index;
        let topic = self.image.topic(topic_id).ok_or(ErrorCode::UnknownTopicId)?;
        let partition = topic.partitions.get(&index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let members: Vec<Member> = if api_version >= 3 {
            let members = wanted.new_isr_with_epochs.iter();
            members.map(|member| (member.broker_id.into(), member.broker_epoch.into())).collect()
        } else {
            wanted.new_isr.iter().map(|id| (NodeId(*id), BrokerEpoch::NONE)).collect()
        };
        let recovery = self.validate(sender, partition, wanted, &members)?;
        self.elect(topic_id, index, Some(Election::Online), |builder| {
            builder.target_isr = members.iter().map(|(id, _)| *id).collect();
            builder.target_recovery = recovery;
        });
        let after = self.image.partition(topic_id, index).map(Arc::clone);
        let after = after.ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if after.leader != sender {
            // The change completed a reassignment that leaves the sender out (C07). It stands; the
            // sender learns the rest from the metadata.
            return Err(ErrorCode::NewLeaderElected);
        }
        Ok(PartitionData {
            partition_index: index,
            leader_id: after.leader.get(),
            leader_epoch: after.leader_epoch.get(),
            isr: after.isr.iter().map(|member| member.get()).collect(),
            leader_recovery_state: after.leader_recovery_state.code(),
            partition_epoch: after.partition_epoch.get(),
            ..Default::default()
        })
    }

    /// The checks of H13 behind the unknown topic and partition, in their order.
    fn validate(
        &self,
        sender: NodeId,
        partition: &PartitionImage,
        wanted: &Wanted,
        members: &[Member],
    ) -> Result<LeaderRecoveryState, ErrorCode> {
        let leader_epoch = LeaderEpoch(wanted.leader_epoch);
        let partition_epoch = PartitionEpoch(wanted.partition_epoch);
        if leader_epoch > partition.leader_epoch || partition_epoch > partition.partition_epoch {
            // The sender knows more than this controller, which therefore is not the active one.
            return Err(ErrorCode::NotController);
        }
        // With the bug on wrong (KIP-320): a leader that was deposed would set the ISR of today.
        let is_fencing = !bugs::is_on(Bug::NoEpochFencing);
        if is_fencing && leader_epoch < partition.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if is_fencing && sender != partition.leader {
            return Err(ErrorCode::InvalidRequest);
        }
        if is_fencing && partition_epoch < partition.partition_epoch {
            return Err(ErrorCode::InvalidUpdateVersion);
        }
        let is_subset = members.iter().enumerate().all(|(at, (id, _))| {
            let is_repeated = members[..at].iter().any(|(earlier, _)| earlier == id);
            partition.replicas.contains(id) && !is_repeated
        });
        if !is_subset || !members.iter().any(|(id, _)| *id == sender) {
            return Err(ErrorCode::InvalidRequest);
        }
        let recovery = LeaderRecoveryState::from_code(wanted.leader_recovery_state)
            .ok_or(ErrorCode::InvalidRequest)?;
        if recovery == LeaderRecoveryState::Recovering
            && (members.len() > 1
                || partition.leader_recovery_state == LeaderRecoveryState::Recovered)
        {
            return Err(ErrorCode::InvalidRequest);
        }
        if members.iter().any(|member| !self.is_eligible(partition, *member)) {
            return Err(ErrorCode::IneligibleReplica);
        }
        Ok(recovery)
    }

    fn is_eligible(&self, partition: &PartitionImage, (id, epoch): Member) -> bool {
        // A replica whose directory failed since the leader judged it is no more use than a fenced
        // broker's (C08).
        let mut may_lead = self.image.may_lead(id, partition);
        if bugs::is_on(Bug::FencedReplicaJoins) {
            may_lead = self.image.has_online_replica(id, partition); // wrong (KIP-841)
        }
        let is_any_start = epoch == BrokerEpoch::NONE || bugs::is_on(Bug::StaleBrokerEpochJoins); // wrong (KIP-903)
        self.image
            .broker(id)
            .is_some_and(|broker| may_lead && (is_any_start || epoch == broker.epoch))
    }
}
