//! ListOffsets: the offset at a time, or at one of the special places.
//!
//! Versions: 2 isolation level; 4 leader epochs; 5 may answer OFFSET_NOT_AVAILABLE, older clients get
//! LEADER_NOT_AVAILABLE (H02, KIP-207); 7 max timestamp; 8 local start; 9 tiered end; 11 pending upload.

use std::collections::BTreeSet;

use protocol::messages::list_offsets_request::ListOffsetsPartition;
use protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use protocol::{ErrorCode, LeaderEpoch, TopicPartition};
use replication::partition::FetchIsolation;
use storage::Disk;

use crate::core::replicas::{OffsetAnswer, OffsetQuery, special};
use crate::core::{BrokerCore, CallContext};

/// The replica id of a debugging consumer, which any replica answers (F07).
const DEBUGGING_REPLICA: i32 = -2;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &ListOffsetsRequest,
) -> ListOffsetsResponse {
    let version = context.api_version;
    let repeated = repeated_partitions(request);
    let mut refused = BTreeSet::new();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().filter_map(|wanted| {
            let key = (topic.name.as_str(), wanted.partition_index);
            let answer = if !repeated.contains(&key) {
                look_up(core, version, request, &topic.name, wanted)
            } else if refused.insert(key) {
                OffsetAnswer::refused(ErrorCode::InvalidRequest)
            } else {
                return None;
            };
            Some(partition_response(version, wanted.partition_index, answer))
        });
        ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..ListOffsetsTopicResponse::default()
        }
    });
    ListOffsetsResponse { topics: topics.collect(), ..ListOffsetsResponse::default() }
}

/// Partitions that are asked for more than once: each of them is answered with 42, once (F07).
fn repeated_partitions(request: &ListOffsetsRequest) -> BTreeSet<(&str, i32)> {
    let mut seen = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (topic.name.as_str(), partition.partition_index);
            if !seen.insert(key) {
                repeated.insert(key);
            }
        }
    }
    repeated
}

fn look_up<D: Disk>(
    core: &BrokerCore<D>,
    version: i16,
    request: &ListOffsetsRequest,
    topic: &str,
    wanted: &ListOffsetsPartition,
) -> OffsetAnswer {
    if !is_known_time(version, wanted.timestamp) {
        return OffsetAnswer::refused(ErrorCode::UnsupportedVersion);
    }
    let isolation = match (request.replica_id, request.isolation_level) {
        (-1, 0) => FetchIsolation::HighWatermark,
        (-1, 1) => FetchIsolation::TransactionCommitted,
        (-1, _) => return OffsetAnswer::refused(ErrorCode::UnknownServerError),
        _ => FetchIsolation::LogEnd,
    };
    core.replicas.list_offset(&OffsetQuery {
        partition: TopicPartition::new(topic, wanted.partition_index),
        current_leader_epoch: LeaderEpoch(wanted.current_leader_epoch),
        timestamp: wanted.timestamp,
        isolation,
        from_any_replica: request.replica_id == DEBUGGING_REPLICA,
    })
}

/// Whether the version knows this special time; ordinary times are known to all.
fn is_known_time(version: i16, time: i64) -> bool {
    match time {
        special::LATEST | special::EARLIEST => true,
        special::MAX_TIMESTAMP => version >= 7,
        special::EARLIEST_LOCAL => version >= 8,
        special::LATEST_TIERED => version >= 9,
        special::EARLIEST_PENDING_UPLOAD => version >= 11,
        time => time >= 0,
    }
}

fn partition_response(
    version: i16,
    index: i32,
    answer: OffsetAnswer,
) -> ListOffsetsPartitionResponse {
    let error = match answer.error {
        ErrorCode::OffsetNotAvailable if version < 5 => ErrorCode::LeaderNotAvailable,
        error => error,
    };
    ListOffsetsPartitionResponse {
        partition_index: index,
        error_code: error.code(),
        timestamp: answer.timestamp,
        offset: answer.offset.get(),
        leader_epoch: if version >= 4 { answer.leader_epoch.get() } else { -1 },
        ..ListOffsetsPartitionResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use protocol::messages::DeleteRecordsRequest;
    use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    use protocol::messages::list_offsets_request::ListOffsetsTopic;
    use protocol::records::ProducerStamp;

    use super::*;
    use crate::handlers::testing::{TestBroker, batch, produce};

    fn wanted(partition: i32, timestamp: i64) -> ListOffsetsPartition {
        ListOffsetsPartition {
            partition_index: partition,
            timestamp,
            ..ListOffsetsPartition::default()
        }
    }

    fn request(
        replica_id: i32,
        isolation: i8,
        partitions: Vec<ListOffsetsPartition>,
    ) -> ListOffsetsRequest {
        ListOffsetsRequest {
            replica_id,
            isolation_level: isolation,
            topics: vec![ListOffsetsTopic {
                name: "t".into(),
                partitions,
                ..ListOffsetsTopic::default()
            }],
            ..ListOffsetsRequest::default()
        }
    }

    /// Partition 0 holds records with times 10, 30, 20; partition 1 nothing; 2 is led by broker 2.
    fn broker() -> TestBroker {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (1, &[1]), (2, &[2, 1])]);
        broker.ask(9, produce(1, "t", &[(0, batch(&[10, 30, 20], ProducerStamp::NONE))]));
        broker
    }

    fn ask(broker: &TestBroker, version: i16, partition: i32, time: i64) -> (i16, i64, i64) {
        let response = broker.ask(version, request(-1, 0, vec![wanted(partition, time)]));
        let told = &response.topics[0].partitions[0];
        (told.error_code, told.timestamp, told.offset)
    }

    /// F07; the versions as Kafka 4.4.0 has them, measured.
    #[test]
    fn each_special_time_is_known_from_its_version_on_and_is_error_35_before() {
        let broker = broker();
        for (time, first_version, told) in [
            (special::LATEST, 1, (0, -1, 3)),
            (special::EARLIEST, 1, (0, -1, 0)),
            (special::MAX_TIMESTAMP, 7, (0, 30, 1)),
            (special::EARLIEST_LOCAL, 8, (0, -1, 0)),
            (special::LATEST_TIERED, 9, (0, -1, -1)),
            (special::EARLIEST_PENDING_UPLOAD, 11, (0, -1, -1)),
            (-7, 12, (0, -1, -1)),
        ] {
            for version in 1..=11 {
                let expected = if version < first_version { (35, -1, -1) } else { told };
                assert_eq!(ask(&broker, version, 0, time), expected, "{time} in {version}");
            }
        }
    }

    #[test]
    fn a_time_finds_the_first_record_that_is_not_older() {
        let broker = broker();
        for (time, told) in [(0, (0, 10, 0)), (11, (0, 30, 1)), (30, (0, 30, 1)), (31, (0, -1, -1))]
        {
            assert_eq!(ask(&broker, 7, 0, time), told, "{time}");
        }
        assert_eq!(ask(&broker, 7, 1, 0), (0, -1, -1));
        assert_eq!(ask(&broker, 7, 1, special::MAX_TIMESTAMP), (0, -1, -1));
    }

    /// Measured on Kafka 4.4.0: the record below the log's start is told, with its batch's epoch.
    #[test]
    fn the_newest_timestamp_of_a_log_whose_records_were_deleted_keeps_its_epoch() {
        let broker = broker();
        let deletion = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: "t".into(),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset: -1,
                    ..DeleteRecordsPartition::default()
                }],
                ..DeleteRecordsTopic::default()
            }],
            timeout_ms: 1000,
            ..DeleteRecordsRequest::default()
        };
        broker.ask(2, deletion);
        let asked = request(-1, 0, vec![wanted(0, special::MAX_TIMESTAMP)]);
        let told = &broker.ask(7, asked).topics[0].partitions[0];
        assert_eq!((told.timestamp, told.offset, told.leader_epoch), (30, 1, 5));
        assert_eq!(ask(&broker, 7, 0, 30), (0, -1, -1));
    }

    #[test]
    fn f07_a_partition_asked_for_twice_is_42_once_and_the_others_are_answered() {
        let asked = vec![wanted(0, -1), wanted(1, -1), wanted(0, -2)];
        let response = broker().ask(7, request(-1, 0, asked));
        let told: Vec<(i32, i16)> = response.topics[0]
            .partitions
            .iter()
            .map(|told| (told.partition_index, told.error_code))
            .collect();
        assert_eq!(told, [(0, 42), (1, 0)]);
    }

    #[test]
    fn only_the_leader_answers_but_for_a_debugging_consumer() {
        let broker = broker();
        assert_eq!(ask(&broker, 7, 2, -1), (ErrorCode::NotLeaderOrFollower.code(), -1, -1));
        assert_eq!(ask(&broker, 7, 9, -1), (ErrorCode::UnknownTopicOrPartition.code(), -1, -1));
        let response = broker.ask(7, request(DEBUGGING_REPLICA, 0, vec![wanted(2, -1)]));
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
    }

    #[test]
    fn leader_epochs_are_told_from_version_4_and_checked() {
        let broker = broker();
        let epoch = |version: i16| {
            let response = broker.ask(version, request(-1, 0, vec![wanted(0, -1)]));
            response.topics[0].partitions[0].leader_epoch
        };
        assert_eq!((epoch(3), epoch(4)), (-1, 5));
        for (current, error) in [(4, 74), (5, 0), (6, 75)] {
            let asked = ListOffsetsPartition { current_leader_epoch: current, ..wanted(0, -1) };
            let response = broker.ask(4, request(-1, 0, vec![asked]));
            assert_eq!(response.topics[0].partitions[0].error_code, error, "epoch {current}");
        }
    }

    #[test]
    fn an_isolation_level_that_does_not_exist_is_an_error_of_the_partition() {
        let response = broker().ask(7, request(-1, 7, vec![wanted(0, -1)]));
        assert_eq!(response.topics[0].partitions[0].error_code, -1);
    }
}
