//! OffsetForLeaderEpoch (KIP-101, KIP-320): where an epoch ends here.
//!
//! Only the leader answers (E01, E02), whoever asks: a follower's idea of an epoch's end may be short of
//! what is acknowledged, and a client that believes it reports lost records. Version 2 carries no
//! replica id, and its default, -2, is that of a debugging consumer: it gets no exception here, as in
//! Kafka 4.4.0, although ListOffsets makes one. Version 3 adds the replica id, 4 is flexible.

use protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use protocol::{LeaderEpoch, TopicPartition};
use storage::Disk;

use crate::core::BrokerCore;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            let answer = core.replicas.end_offset_for_epoch_of(
                &TopicPartition::new(topic.topic.as_str(), wanted.partition),
                LeaderEpoch(wanted.current_leader_epoch),
                LeaderEpoch(wanted.leader_epoch),
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

#[cfg(test)]
mod tests {
    use protocol::ErrorCode;
    use protocol::messages::offset_for_leader_epoch_request::{
        OffsetForLeaderPartition, OffsetForLeaderTopic,
    };

    use super::*;
    use crate::handlers::testing::TestBroker;

    fn request(replica_id: i32, partition: i32) -> OffsetForLeaderEpochRequest {
        OffsetForLeaderEpochRequest {
            replica_id,
            topics: vec![OffsetForLeaderTopic {
                topic: "t".into(),
                partitions: vec![OffsetForLeaderPartition {
                    partition,
                    ..OffsetForLeaderPartition::default()
                }],
                ..OffsetForLeaderTopic::default()
            }],
            ..OffsetForLeaderEpochRequest::default()
        }
    }

    /// Measured: Kafka 4.4.0 says 6 on a follower to every replica id, in every version.
    #[test]
    fn e01_a_follower_answers_nobody_not_even_a_debugging_consumer() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (2, &[2, 1])]);
        for version in 2..=4 {
            for replica_id in [-2, -1, 3] {
                let error = |partition| {
                    let response = broker.ask(version, request(replica_id, partition));
                    response.topics[0].partitions[0].error_code
                };
                assert_eq!(error(0), 0, "version {version} from {replica_id}");
                assert_eq!(
                    error(1),
                    ErrorCode::NotLeaderOrFollower.code(),
                    "version {version} from {replica_id}"
                );
            }
        }
    }
}
