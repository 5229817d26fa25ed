//! DescribeQuorum: the voters and observers as the leader sees them. Offsets are those of Kafka's
//! answer: an end offset is one more than the last entry's, the high watermark likewise.

use std::time::Duration;

use protocol::ErrorCode;
use protocol::messages::describe_quorum_request::DescribeQuorumRequest;
use protocol::messages::describe_quorum_response::{
    DescribeQuorumResponse, Listener, Node, PartitionData, ReplicaState, TopicData,
};
use protocol::types::{NodeId, Offset};
use replication::time::Now;

use super::{ControllerNode, Observer};
use crate::quorum::QuorumStorage;

/// The one topic that DescribeQuorum knows.
pub const METADATA_TOPIC: &str = "__cluster_metadata";
/// How long an observer that reads nothing is still listed.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(300);
/// More observers than any cluster has brokers; beyond it the new ones are not listed.
const MAX_OBSERVERS: usize = 10_000;

impl<S: QuorumStorage> ControllerNode<S> {
    /// Notes that `observer`, a node that reads the committed metadata, has everything before
    /// `next_offset`. Voters are no observers.
    pub fn on_observer(&mut self, observer: NodeId, next_offset: Offset, now: Now) {
        let is_voter = self.config.quorum.voters.contains(&observer);
        if observer.get() < 0 || is_voter {
            return;
        }
        self.observers.retain(|_, known| now.monotonic.since(known.at) < OBSERVER_TIMEOUT);
        if self.observers.len() >= MAX_OBSERVERS && !self.observers.contains_key(&observer) {
            return;
        }
        let has_all = next_offset > self.committed.offset();
        let before = self.observers.get(&observer).map_or(-1, |known| known.last_caught_up_ms);
        let observed = Observer {
            next_offset: u64::try_from(next_offset.get()).unwrap_or(0),
            last_fetch_ms: now.wall_clock_ms,
            last_caught_up_ms: if has_all { now.wall_clock_ms } else { before },
            at: now.monotonic,
        };
        self.observers.insert(observer, observed);
    }

    pub(super) fn describe_quorum(
        &self,
        request: &DescribeQuorumRequest,
        api_version: i16,
        now: Now,
    ) -> DescribeQuorumResponse {
        let is_known = asks_for_the_metadata_partition(request);
        let topics = request.topics.iter().map(|topic| TopicData {
            topic_name: topic.topic_name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    if is_known {
                        self.describe_partition(now)
                    } else {
                        unknown_partition(partition.partition_index)
                    }
                })
                .collect(),
            ..Default::default()
        });
        let nodes = self.config.endpoints.iter().map(|endpoint| Node {
            node_id: endpoint.node_id.get(),
            listeners: vec![Listener {
                name: endpoint.listener.clone(),
                host: endpoint.host.clone(),
                port: endpoint.port,
                ..Default::default()
            }],
            ..Default::default()
        });
        DescribeQuorumResponse {
            topics: topics.collect(),
            // Versions below 2 have no place for them, and refusals tell none.
            nodes: if api_version >= 2 && is_known { nodes.collect() } else { Vec::new() },
            ..Default::default()
        }
    }

    fn describe_partition(&self, now: Now) -> PartitionData {
        let status = self.quorum.status();
        let voters = self.quorum.voters(now);
        let current_voters = voters.iter().map(|voter| ReplicaState {
            replica_id: voter.node_id.get(),
            log_end_offset: if voter.last < 0 { -1 } else { voter.last + 1 },
            last_fetch_timestamp: voter.last_contact_ms,
            last_caught_up_timestamp: voter.last_caught_up_ms,
            ..Default::default()
        });
        let is_listed = |known: &&Observer| now.monotonic.since(known.at) < OBSERVER_TIMEOUT;
        let observers = self.observers.iter().filter(|(_, known)| is_listed(known));
        PartitionData {
            partition_index: 0,
            leader_id: status.leader.map_or(-1, NodeId::get),
            leader_epoch: status.epoch,
            high_watermark: status.committed as i64 + 1,
            current_voters: current_voters.collect(),
            observers: observers
                .map(|(id, known)| ReplicaState {
                    replica_id: id.get(),
                    log_end_offset: known.next_offset as i64,
                    last_fetch_timestamp: known.last_fetch_ms,
                    last_caught_up_timestamp: known.last_caught_up_ms,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
    }
}

/// The quorum has one partition, and a request must ask for that one and nothing else.
fn asks_for_the_metadata_partition(request: &DescribeQuorumRequest) -> bool {
    match request.topics.as_slice() {
        [topic] if topic.topic_name == METADATA_TOPIC => {
            matches!(topic.partitions.as_slice(), [partition] if partition.partition_index == 0)
        }
        _ => false,
    }
}

fn unknown_partition(partition_index: i32) -> PartitionData {
    PartitionData {
        partition_index,
        error_code: ErrorCode::UnknownTopicOrPartition.code(),
        error_message: Some("This server does not host this topic-partition.".to_owned()),
        ..Default::default()
    }
}
