//! For each request of a group API the answer that names what it names, and says nothing of it.

use protocol::messages::consumer_group_describe_response::DescribedGroup as ConsumerGroup;
use protocol::messages::delete_groups_response::DeletableGroupResult;
use protocol::messages::describe_groups_response::DescribedGroup;
use protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use protocol::messages::{
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, DeleteGroupsResponse,
    DescribeGroupsResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, SyncGroupResponse,
};
use protocol::{RequestBody, ResponseBody};

/// The answer's frame; `None` for APIs that are not the coordinator's.
pub(super) fn empty_answer(version: i16, request: &RequestBody) -> Option<ResponseBody> {
    Some(match request {
        RequestBody::OffsetCommit(request) => of_commit(request).into(),
        RequestBody::OffsetFetch(request) => of_fetch(version, request).into(),
        RequestBody::OffsetDelete(_) => OffsetDeleteResponse::default().into(),
        RequestBody::JoinGroup(request) => JoinGroupResponse {
            member_id: request.member_id.clone(),
            ..JoinGroupResponse::default()
        }
        .into(),
        RequestBody::SyncGroup(_) => SyncGroupResponse::default().into(),
        RequestBody::Heartbeat(_) => HeartbeatResponse::default().into(),
        RequestBody::LeaveGroup(_) => LeaveGroupResponse::default().into(),
        RequestBody::ListGroups(_) => ListGroupsResponse::default().into(),
        RequestBody::DescribeGroups(request) => {
            let named = request
                .groups
                .iter()
                .map(|id| DescribedGroup { group_id: id.clone(), ..DescribedGroup::default() });
            DescribeGroupsResponse { groups: named.collect(), ..Default::default() }.into()
        }
        RequestBody::DeleteGroups(request) => {
            let named = request.groups_names.iter().map(|id| DeletableGroupResult {
                group_id: id.clone(),
                ..DeletableGroupResult::default()
            });
            DeleteGroupsResponse { results: named.collect(), ..Default::default() }.into()
        }
        RequestBody::ConsumerGroupHeartbeat(_) => ConsumerGroupHeartbeatResponse::default().into(),
        RequestBody::ConsumerGroupDescribe(request) => {
            let named = request
                .group_ids
                .iter()
                .map(|id| ConsumerGroup { group_id: id.clone(), ..ConsumerGroup::default() });
            ConsumerGroupDescribeResponse { groups: named.collect(), ..Default::default() }.into()
        }
        _ => return None,
    })
}

fn of_commit(request: &OffsetCommitRequest) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                ..OffsetCommitResponsePartition::default()
            })
            .collect(),
        ..OffsetCommitResponseTopic::default()
    });
    OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() }
}

fn of_fetch(version: i16, request: &OffsetFetchRequest) -> OffsetFetchResponse {
    let mut response = OffsetFetchResponse::default();
    if version >= 8 {
        let groups = request.groups.iter().map(|group| OffsetFetchResponseGroup {
            group_id: group.group_id.clone(),
            ..OffsetFetchResponseGroup::default()
        });
        response.groups = groups.collect();
        return response;
    }
    let topics = request.topics.iter().flatten().map(|topic| OffsetFetchResponseTopic {
        name: topic.name.clone(),
        partitions: topic
            .partition_indexes
            .iter()
            .map(|index| OffsetFetchResponsePartition {
                partition_index: *index,
                ..OffsetFetchResponsePartition::default()
            })
            .collect(),
        ..OffsetFetchResponseTopic::default()
    });
    response.topics = topics.collect();
    response
}
