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
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            let key = (topic.name.as_str(), wanted.partition_index);
            let answer = if repeated.contains(&key) {
                OffsetAnswer::refused(ErrorCode::InvalidRequest)
            } else {
                look_up(core, version, request, &topic.name, wanted)
            };
            partition_response(version, wanted.partition_index, answer)
        });
        ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: partitions.collect(),
            ..ListOffsetsTopicResponse::default()
        }
    });
    ListOffsetsResponse {
        topics: topics.collect(),
        ..ListOffsetsResponse::default()
    }
}

/// Partitions that are asked for more than once: each of them is answered with 42.
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
