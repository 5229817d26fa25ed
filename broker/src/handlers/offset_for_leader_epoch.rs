//! OffsetForLeaderEpoch (KIP-101, KIP-320): where an epoch ends here. Only the leader answers (E01,
//! E02), but for a debugging consumer.

use protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use protocol::{LeaderEpoch, TopicPartition};
use storage::Disk;

use crate::core::BrokerCore;

const DEBUGGING_REPLICA: i32 = -2;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let from_any_replica = request.replica_id == DEBUGGING_REPLICA;
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            let answer = core.replicas.end_offset_for_epoch_of(
                &TopicPartition::new(topic.topic.as_str(), wanted.partition),
                LeaderEpoch(wanted.current_leader_epoch),
                LeaderEpoch(wanted.leader_epoch),
                from_any_replica,
            );
            EpochEndOffset {
                error_code: answer.error.code(),
                partition: wanted.partition,
                leader_epoch: answer.leader_epoch.get(),
                end_offset: answer.end_offset.get(),
                ..EpochEndOffset::default()
            }
        });
        OffsetForLeaderTopicResult {
            topic: topic.topic.clone(),
            partitions: partitions.collect(),
            ..OffsetForLeaderTopicResult::default()
        }
    });
    OffsetForLeaderEpochResponse {
        topics: topics.collect(),
        ..OffsetForLeaderEpochResponse::default()
    }
}
