//! How a partition stands by DescribeTopicPartitions (KIP-966): the one answer that tells who is eligible
//! outside the ISR. Asked of one node, so it may be older than what another one knows.

use anyhow::{Context, Result, bail, ensure};
use protocol::ResponseBody;
use protocol::messages::DescribeTopicPartitionsRequest;
use protocol::messages::describe_topic_partitions_request::TopicRequest;

use super::{Node, Stage};

/// A partition as one node describes it; lists in the answer's order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The leader; -1 for none.
    pub leader: Node,
    /// Its epoch.
    pub leader_epoch: i32,
    /// The ISR.
    pub isr: Vec<Node>,
    /// The eligible leader replicas.
    pub eligible: Vec<Node>,
    /// The last known leader, if the partition has nobody better.
    pub last_known: Vec<Node>,
}

impl dyn Stage + '_ {
    /// How a node describes the topic's first partition.
    ///
    /// # Errors
    /// When it gives no answer, or does not know the topic.
    pub fn standing(&mut self, node: Node, topic: &str) -> Result<Standing> {
        let asked = TopicRequest { name: topic.to_owned(), ..TopicRequest::default() };
        let request = DescribeTopicPartitionsRequest {
            topics: vec![asked],
            response_partition_limit: 1,
            ..DescribeTopicPartitionsRequest::default()
        };
        let ResponseBody::DescribeTopicPartitions(response) = self.call(node, 0, request)? else {
            bail!("not an answer to DescribeTopicPartitions");
        };
        let topic = response.topics.into_iter().next().context("no topic in the answer")?;
        ensure!(topic.error_code == 0, "b{node} describes no topic: error {}", topic.error_code);
        let partition = topic.partitions.into_iter().next().context("no partition")?;
        Ok(Standing {
            leader: partition.leader_id,
            leader_epoch: partition.leader_epoch,
            isr: partition.isr_nodes,
            eligible: partition.eligible_leader_replicas.unwrap_or_default(),
            last_known: partition.last_known_elr.unwrap_or_default(),
        })
    }
}
