//! Questions about the controllers, and a leader's proposal of an ISR with every field in hand.

use anyhow::{Context, Result, bail};
use protocol::messages::alter_partition_request::{
    BrokerState, PartitionData as ProposedPartition, TopicData as ProposedTopic,
};
use protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use protocol::messages::{AlterPartitionRequest, CreateTopicsRequest, DescribeQuorumRequest};
use protocol::{ResponseBody, Uuid};

use super::{Node, Sent, Stage};

/// The topic of Kafka's name for the controllers' log.
const METADATA: &str = "__cluster_metadata";
const TIMEOUT_MS: i32 = 5000;

/// Who decides, as a broker knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuorumView {
    /// The controller that decides.
    pub leader: Node,
    /// Since which epoch.
    pub epoch: i32,
}

/// A proposal of an ISR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Who proposes, and the epoch of its registration.
    pub sender: (Node, i64),
    /// The partition's topic.
    pub topic_id: Uuid,
    /// The partition.
    pub partition: i32,
    /// The leader epoch that the sender knows.
    pub leader_epoch: i32,
    /// The partition epoch that it knows.
    pub partition_epoch: i32,
    /// The proposed ISR, each member with the epoch of its registration.
    pub isr: Vec<(Node, i64)>,
    /// Whether the leader says that it recovers from an unclean election.
    pub is_recovering: bool,
}

impl dyn Stage + '_ {
    /// Who decides, by DescribeQuorum to a node; Kafka's error code where it cannot tell.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn quorum(&mut self, node: Node) -> Result<std::result::Result<QuorumView, i16>> {
        let request = DescribeQuorumRequest {
            topics: vec![TopicData {
                topic_name: METADATA.into(),
                partitions: vec![PartitionData { partition_index: 0, ..PartitionData::default() }],
                ..TopicData::default()
            }],
            ..DescribeQuorumRequest::default()
        };
        let ResponseBody::DescribeQuorum(response) = self.call(node, 1, request)? else {
            bail!("not an answer to DescribeQuorum");
        };
        if response.error_code != 0 {
            return Ok(Err(response.error_code));
        }
        let told = response.topics.first().and_then(|topic| topic.partitions.first());
        let told = told.context("no partition in the answer")?;
        if told.error_code != 0 {
            return Ok(Err(told.error_code));
        }
        Ok(Ok(QuorumView { leader: told.leader_id, epoch: told.leader_epoch }))
    }

    /// Asks a node for a new topic, and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_create_topic(
        &mut self,
        node: Node,
        topic: &str,
        replicas: &[Node],
    ) -> Result<Sent> {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.into(),
                num_partitions: -1,
                replication_factor: -1,
                assignments: vec![CreatableReplicaAssignment {
                    partition_index: 0,
                    broker_ids: replicas.to_vec(),
                    ..CreatableReplicaAssignment::default()
                }],
                ..CreatableTopic::default()
            }],
            timeout_ms: TIMEOUT_MS,
            ..CreateTopicsRequest::default()
        };
        self.send(node, 5, request.into())
    }

    /// How the wish for a topic was answered: its error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn topic_created(&mut self, sent: Sent) -> Result<i16> {
        let ResponseBody::CreateTopics(response) = self.answer(sent)? else {
            bail!("not an answer to CreateTopics");
        };
        Ok(response.topics.first().context("no topic in the answer")?.error_code)
    }

    /// Proposes an ISR to the controller as a leader would: the error code of the whole or of the
    /// partition, and the partition epoch that was answered.
    ///
    /// # Errors
    /// When there is no answer, or the stage has no way to the controller.
    pub fn propose_isr(&mut self, proposal: &Proposal) -> Result<(i16, i32)> {
        let members = proposal.isr.iter().map(|(broker_id, broker_epoch)| BrokerState {
            broker_id: *broker_id,
            broker_epoch: *broker_epoch,
            ..BrokerState::default()
        });
        let request = AlterPartitionRequest {
            broker_id: proposal.sender.0,
            broker_epoch: proposal.sender.1,
            topics: vec![ProposedTopic {
                topic_id: proposal.topic_id,
                partitions: vec![ProposedPartition {
                    partition_index: proposal.partition,
                    leader_epoch: proposal.leader_epoch,
                    partition_epoch: proposal.partition_epoch,
                    new_isr_with_epochs: members.collect(),
                    leader_recovery_state: i8::from(proposal.is_recovering),
                    ..ProposedPartition::default()
                }],
                ..ProposedTopic::default()
            }],
            ..AlterPartitionRequest::default()
        };
        let ResponseBody::AlterPartition(response) = self.ask_controller(3, request.into())? else {
            bail!("not an answer to AlterPartition");
        };
        if response.error_code != 0 {
            return Ok((response.error_code, -1));
        }
        let told = response.topics.first().and_then(|topic| topic.partitions.first());
        let told = told.context("no partition in the answer")?;
        Ok((told.error_code, told.partition_epoch))
    }
}
