//! OffsetDelete and DeleteGroups: tombstones for single offsets, and for whole groups.

use protocol::ErrorCode;
use protocol::messages::delete_groups_response::DeletableGroupResult;
use protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, OffsetDeleteRequest, OffsetDeleteResponse,
};

use super::{Offsets, tombstone};
use crate::group::{Group, GroupKind, Groups};
use crate::shard::{Call, Scope};

/// OffsetDelete. Partitions that do not exist come first in the answer; topics that a member reads keep
/// their offsets (86).
pub(crate) fn delete_offsets(
    groups: &Groups,
    offsets: &Offsets,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: OffsetDeleteRequest,
) {
    let group = match check_group(groups, &request.group_id) {
        Ok(group) => group,
        Err(error) => {
            let error_code = error.code();
            let response = OffsetDeleteResponse { error_code, ..OffsetDeleteResponse::default() };
            return scope.output.answer_seen(call.token, response, scope.written);
        }
    };
    let mut topics: Vec<OffsetDeleteResponseTopic> = Vec::new();
    let mut rest = Vec::new();
    for topic in &request.topics {
        let count = scope.topics.partition_count(&topic.name).unwrap_or(0);
        for partition in &topic.partitions {
            let at = partition.partition_index;
            if (0..count).contains(&at) {
                rest.push((topic.name.as_str(), at));
            } else {
                add(&mut topics, &topic.name, at, ErrorCode::UnknownTopicOrPartition);
            }
        }
    }
    let mut records = Vec::new();
    for (topic, at) in rest {
        let is_read = group.is_subscribed_to(topic);
        let error = if is_read { ErrorCode::GroupSubscribedToTopic } else { ErrorCode::None };
        let is_first = add(&mut topics, topic, at, error);
        if !is_read && is_first && offsets.get(&request.group_id, topic, at).is_some() {
            records.push(tombstone(&request.group_id, topic, at));
        }
    }
    let response = OffsetDeleteResponse { topics, ..OffsetDeleteResponse::default() };
    if records.is_empty() {
        scope.output.answer_seen(call.token, response, group.written);
    } else {
        scope.output.write(records, call, response);
    }
}

fn check_group<'g>(groups: &'g Groups, id: &str) -> Result<&'g Group, ErrorCode> {
    if id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let group = groups.get(id).ok_or(ErrorCode::GroupIdNotFound)?;
    match &group.kind {
        GroupKind::Classic(classic) => classic.check_delete_offsets()?,
        GroupKind::Consumer(_) => {}
    }
    Ok(group)
}

/// Adds a partition to the answer, where each is named once. Whether it was not there yet.
fn add(
    topics: &mut Vec<OffsetDeleteResponseTopic>,
    name: &str,
    partition_index: i32,
    error: ErrorCode,
) -> bool {
    let at = topics.iter().position(|topic| topic.name == name).unwrap_or_else(|| {
        topics.push(OffsetDeleteResponseTopic { name: name.to_owned(), ..Default::default() });
        topics.len() - 1
    });
    let partitions = &mut topics[at].partitions;
    if partitions.iter().any(|partition| partition.partition_index == partition_index) {
        return false;
    }
    partitions.push(OffsetDeleteResponsePartition { partition_index, error_code: error.code() });
    true
}

/// DeleteGroups: empty groups with all their offsets, in one write. A name that is given twice is
/// answered once.
pub(crate) fn delete_groups(
    groups: &Groups,
    offsets: &Offsets,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: DeleteGroupsRequest,
) {
    let mut records = Vec::new();
    let mut results: Vec<DeletableGroupResult> = Vec::new();
    let mut named = std::collections::BTreeSet::new();
    for id in request.groups_names {
        if !named.insert(id.clone()) {
            continue;
        }
        let error = match groups.get(&*id).map(|group| (group, group.check_delete())) {
            None => ErrorCode::GroupIdNotFound,
            Some((_, Err(error))) => error,
            Some((group, Ok(()))) => {
                records.extend(offsets.tombstones(&id));
                records.extend(group.tombstones(&id));
                ErrorCode::None
            }
        };
        let error_code = error.code();
        results.push(DeletableGroupResult { group_id: id, error_code, ..Default::default() });
    }
    let response = DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() };
    if records.is_empty() {
        scope.output.answer_seen(call.token, response, scope.written);
    } else {
        scope.output.write(records, call, response);
    }
}
