//! DescribeProducers (KIP-664): the producers that a partition remembers here, leader or follower.
//!
//! A partition of which this broker is no replica is NOT_LEADER_OR_FOLLOWER, one that does not exist
//! UNKNOWN_TOPIC_OR_PARTITION, a name that no topic can have INVALID_TOPIC_EXCEPTION. Version 0
//! only.

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
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            describe(core, &TopicPartition::new(topic.name.as_str(), *index))
        });
        TopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..TopicResponse::default()
        }
    });
    DescribeProducersResponse {
        topics: topics.collect(),
        ..DescribeProducersResponse::default()
    }
}

fn describe<D: Disk>(core: &BrokerCore<D>, name: &TopicPartition) -> PartitionResponse {
    if !super::create_topics::is_valid_name(&name.topic) {
        return refused(name, ErrorCode::InvalidTopicException);
    }
    let partition = match core.replicas.partition(name, Uuid::ZERO) {
        Ok(partition) => partition,
        Err(missing) => return refused(name, missing.code()),
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

fn refused(name: &TopicPartition, error: ErrorCode) -> PartitionResponse {
    PartitionResponse {
        partition_index: name.partition,
        error_code: error.code(),
        ..PartitionResponse::default()
    }
}
