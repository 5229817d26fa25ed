//! Errors: what clients see of a failed append, and any answer turned into its error.

use protocol::messages::{
    ConsumerGroupHeartbeatResponse, HeartbeatResponse, LeaveGroupResponse, ListGroupsResponse,
    OffsetDeleteResponse, OffsetFetchResponse,
};
use protocol::{ErrorCode, RequestBody, ResponseBody};

use super::refusal::empty_answer;
use crate::classic::{join_error, sync_error};

/// The error that a client sees when an append to the coordinator's partition fails with `error`.
pub fn append_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::MessageTooLarge
        | ErrorCode::RecordListTooLarge
        | ErrorCode::InvalidFetchSize => ErrorCode::UnknownServerError,
        other => other,
    }
}

/// The answer with `error` in the place of what it says; answers that name topics or groups name them
/// still. For hosts whose answer waits for the high watermark when the leadership is lost.
pub fn fail_response(version: i16, response: ResponseBody, error: ErrorCode) -> ResponseBody {
    let error_code = error.code();
    match response {
        ResponseBody::OffsetCommit(mut response) => {
            for topic in &mut response.topics {
                for partition in &mut topic.partitions {
                    // What was refused for itself stays refused for that.
                    if partition.error_code == 0 {
                        partition.error_code = error_code;
                    }
                }
            }
            response.into()
        }
        ResponseBody::OffsetFetch(mut response) => {
            for group in &mut response.groups {
                group.topics.clear();
                group.error_code = error_code;
            }
            fail_old_fetch(version, response, error_code).into()
        }
        ResponseBody::OffsetDelete(_) => {
            OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() }.into()
        }
        ResponseBody::DeleteGroups(mut response) => {
            for result in &mut response.results {
                result.error_code = error_code;
            }
            response.into()
        }
        ResponseBody::DescribeGroups(mut response) => {
            for group in &mut response.groups {
                *group = protocol::messages::describe_groups_response::DescribedGroup {
                    group_id: std::mem::take(&mut group.group_id),
                    error_code,
                    ..Default::default()
                };
            }
            response.into()
        }
        ResponseBody::ConsumerGroupDescribe(mut response) => {
            for group in &mut response.groups {
                *group = protocol::messages::consumer_group_describe_response::DescribedGroup {
                    group_id: std::mem::take(&mut group.group_id),
                    error_code,
                    ..Default::default()
                };
            }
            response.into()
        }
        ResponseBody::ListGroups(_) => {
            ListGroupsResponse { error_code, ..ListGroupsResponse::default() }.into()
        }
        ResponseBody::JoinGroup(response) => join_error(version, &response.member_id, error).into(),
        ResponseBody::SyncGroup(_) => sync_error(error).into(),
        ResponseBody::Heartbeat(_) => {
            HeartbeatResponse { error_code, ..HeartbeatResponse::default() }.into()
        }
        ResponseBody::LeaveGroup(_) => {
            LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() }.into()
        }
        ResponseBody::ConsumerGroupHeartbeat(_) => {
            let response = ConsumerGroupHeartbeatResponse::default();
            ConsumerGroupHeartbeatResponse { error_code, ..response }.into()
        }
        other => other,
    }
}

/// Before version 8 an error is that of the whole answer, before version 2 that of each partition.
fn fail_old_fetch(
    version: i16,
    mut response: OffsetFetchResponse,
    error_code: i16,
) -> OffsetFetchResponse {
    if version >= 8 {
        return response;
    }
    if version >= 2 {
        response.topics.clear();
        response.error_code = error_code;
        return response;
    }
    for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.error_code = error_code;
        partition.committed_offset = -1;
        partition.committed_leader_epoch = -1;
        partition.metadata = Some(String::new());
    }
    response
}

/// The answer that refuses a whole request of a group API; `None` for other APIs. For hosts that are
/// not the coordinator, or not yet.
pub fn refuse_request(
    version: i16,
    request: &RequestBody,
    error: ErrorCode,
) -> Option<ResponseBody> {
    empty_answer(version, request).map(|answer| fail_response(version, answer, error))
}
