//! DescribeProducers (KIP-664): the producers that a partition remembers here, leader or follower.
//!
//! A partition of which this broker is no replica is NOT_LEADER_OR_FOLLOWER, one that does not exist
//! UNKNOWN_TOPIC_OR_PARTITION, a name that no topic can have INVALID_TOPIC_EXCEPTION. Version 0
//! only.

use std::collections::BTreeSet;

use protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use protocol::{ErrorCode, TopicPartition, Uuid};
use storage::Disk;

use crate::core::BrokerCore;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    request: &DescribeProducersRequest,
) -> DescribeProducersResponse {
    // A partition is told once, however often it is named: its answer may be a million times larger
    // than its number.
    let mut told = BTreeSet::new();
    let topics = request.topics.iter().map(|topic| {
        let name = topic.name.as_str();
        let mut indexes = topic.partition_indexes.clone();
        indexes.retain(|index| told.insert((name, *index)));
        let partitions =
            indexes.into_iter().map(|index| describe(core, &TopicPartition::new(name, index)));
        TopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..TopicResponse::default()
        }
    });
    DescribeProducersResponse { topics: topics.collect(), ..DescribeProducersResponse::default() }
}

fn describe<D: Disk>(core: &BrokerCore<D>, name: &TopicPartition) -> PartitionResponse {
    if !super::create_topics::is_valid_name(&name.topic) {
        let message = format!("'{}' cannot be a topic's name", name.topic);
        return refused(name, ErrorCode::InvalidTopicException, Some(message));
    }
    let partition = match core.replicas.partition(name, Uuid::ZERO) {
        Ok(partition) => partition,
        Err(missing) => {
            // Kafka has words for a missing topic, and none for a missing partition.
            let is_topic = core.directory().image.topic_by_name(&name.topic).is_none();
            let message = is_topic.then(|| format!("there is no topic {}", name.topic));
            return refused(name, missing.code(), message);
        }
    };
    let replica = partition.lock();
    let producers = replica.log.producers().active_producers().map(|producer| ProducerState {
        producer_id: producer.producer_id.get(),
        producer_epoch: i32::from(producer.producer_epoch.get()),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp_ms,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.current_transaction_start_offset.get(),
        ..ProducerState::default()
    });
    PartitionResponse {
        partition_index: name.partition,
        active_producers: producers.collect(),
        ..PartitionResponse::default()
    }
}

fn refused(
    name: &TopicPartition,
    error: ErrorCode,
    error_message: Option<String>,
) -> PartitionResponse {
    PartitionResponse {
        partition_index: name.partition,
        error_code: error.code(),
        error_message,
        ..PartitionResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use protocol::messages::describe_producers_request::TopicRequest;
    use protocol::records::ProducerStamp;
    use protocol::{ProducerEpoch, ProducerId};

    use super::*;
    use crate::handlers::testing::{TestBroker, batch, produce};

    fn ask(broker: &TestBroker, name: &str, index: i32) -> PartitionResponse {
        let mut response = broker.ask(
            0,
            DescribeProducersRequest {
                topics: vec![TopicRequest {
                    name: name.to_owned(),
                    partition_indexes: vec![index],
                    ..TopicRequest::default()
                }],
                ..DescribeProducersRequest::default()
            },
        );
        response.topics.remove(0).partitions.remove(0)
    }

    #[test]
    fn a_partition_tells_the_producers_that_wrote_to_it() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (2, &[2])]);
        let stamp = ProducerStamp { id: ProducerId(77), epoch: ProducerEpoch(4), base_sequence: 0 };
        let appended = broker.ask(9, produce(1, "t", &[(0, batch(&[10, 20, 15], stamp))]));
        assert_eq!(appended.responses[0].partition_responses[0].error_code, 0);
        let told = ask(&broker, "t", 0);
        assert_eq!(told.error_code, 0);
        assert_eq!(
            told.active_producers,
            [ProducerState {
                producer_id: 77,
                producer_epoch: 4,
                last_sequence: 2,
                last_timestamp: 20,
                coordinator_epoch: -1,
                current_txn_start_offset: -1,
                ..ProducerState::default()
            }]
        );
    }

    #[test]
    fn partitions_elsewhere_missing_ones_and_impossible_names_have_errors_of_their_own() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (2, &[2])]);
        for (name, index, error) in [
            ("t", 1, ErrorCode::NotLeaderOrFollower),
            ("t", 9, ErrorCode::UnknownTopicOrPartition),
            ("u", 0, ErrorCode::UnknownTopicOrPartition),
            ("no name", 0, ErrorCode::InvalidTopicException),
        ] {
            assert_eq!(ask(&broker, name, index).error_code, error.code(), "{name}-{index}");
        }
    }

    #[test]
    fn a_partition_that_is_named_again_is_told_once() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (1, &[1])]);
        let topic = |indexes: &[i32]| TopicRequest {
            name: "t".to_owned(),
            partition_indexes: indexes.to_vec(),
            ..TopicRequest::default()
        };
        let topics = vec![topic(&[0, 0, 1, 0]), topic(&[1, 0])];
        let request = DescribeProducersRequest { topics, ..DescribeProducersRequest::default() };
        let response = broker.ask(0, request);
        let told = response.topics.iter().map(|topic| {
            topic.partitions.iter().map(|told| told.partition_index).collect::<Vec<i32>>()
        });
        assert_eq!(told.collect::<Vec<_>>(), [vec![0, 1], vec![]]);
    }
}
