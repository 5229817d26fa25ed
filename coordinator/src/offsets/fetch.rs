//! OffsetFetch in all versions.
//!
//! | version | what it changed |
//! |---|---|
//! | 2 | null topics: all of the group's offsets; an error of the whole answer |
//! | 7 | `require_stable`: without transactions every offset is stable |
//! | 8 | several groups |
//! | 9 | members of consumer groups name themselves |
//! | 10 | topics by id |
//!
//! A partition without an offset is no error: its offset is -1. Nor is a group that is not there. The
//! answer waits until what it shows is committed.

use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use protocol::{ErrorCode, Uuid};

use super::{Committed, Offsets, later};
use crate::group::{GroupKind, Groups};
use crate::shard::{Call, Scope, Topics};

/// The first version that names several groups.
const SEVERAL_GROUPS: i16 = 8;
/// The first version with topic ids.
const TOPIC_IDS: i16 = 10;

/// OffsetFetch.
pub(crate) fn fetch(
    groups: &Groups,
    offsets: &Offsets,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: OffsetFetchRequest,
) {
    let asked = asked_groups(call.version, request);
    let mut seen = None;
    let mut answered = Vec::with_capacity(asked.len());
    for group in asked {
        // A group that is not there may have been deleted by what is not committed yet.
        let written = groups.get(&*group.group_id).map_or(scope.written, |found| found.written);
        seen = later(seen, written);
        answered.push(fetch_group(groups, offsets, scope.topics, call.version, group));
    }
    scope.output.answer_seen(call.token, in_version(call.version, answered), seen);
}

/// The groups of the request, in the form of the newest version.
fn asked_groups(version: i16, request: OffsetFetchRequest) -> Vec<OffsetFetchRequestGroup> {
    if version >= SEVERAL_GROUPS {
        return request.groups;
    }
    let topics = request.topics.map(|topics| {
        let newest = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..OffsetFetchRequestTopics::default()
        });
        newest.collect()
    });
    vec![OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..OffsetFetchRequestGroup::default()
    }]
}

fn fetch_group(
    groups: &Groups,
    offsets: &Offsets,
    topics: &dyn Topics,
    version: i16,
    asked: OffsetFetchRequestGroup,
) -> OffsetFetchResponseGroup {
    let mut group = OffsetFetchResponseGroup { group_id: asked.group_id, ..Default::default() };
    if let Some(GroupKind::Consumer(found)) = groups.get(&*group.group_id).map(|found| &found.kind)
    {
        let checked = found.check_fetch(asked.member_id.as_deref(), asked.member_epoch);
        if let Err(error) = checked {
            group.error_code = error.code();
            return group;
        }
    }
    group.topics = match asked.topics {
        None => all_topics(offsets, topics, version, &group.group_id),
        Some(asked) => asked
            .into_iter()
            .map(|topic| fetch_topic(offsets, topics, version, &group.group_id, topic))
            .collect(),
    };
    group
}

fn all_topics(
    offsets: &Offsets,
    topics: &dyn Topics,
    version: i16,
    group: &str,
) -> Vec<OffsetFetchResponseTopics> {
    let mut answered = Vec::new();
    for (name, partitions) in offsets.of_group(group).into_iter().flatten() {
        let mut topic = OffsetFetchResponseTopics::default();
        let mut id = Uuid::ZERO;
        if version >= TOPIC_IDS {
            // A topic without an id cannot be told of.
            let Some(known) = topics.topic_id(name) else { continue };
            topic.topic_id = known;
            id = known;
        } else {
            topic.name = name.to_string();
        }
        let found = partitions.iter().filter(|(_, committed)| is_of_topic(committed, id));
        topic.partitions = found.map(|(at, committed)| partition(*at, Some(committed))).collect();
        if !topic.partitions.is_empty() {
            answered.push(topic);
        }
    }
    answered
}

fn fetch_topic(
    offsets: &Offsets,
    topics: &dyn Topics,
    version: i16,
    group: &str,
    asked: OffsetFetchRequestTopics,
) -> OffsetFetchResponseTopics {
    let mut topic = OffsetFetchResponseTopics::default();
    let name = if version >= TOPIC_IDS {
        topic.topic_id = asked.topic_id;
        let id = Some(asked.topic_id).filter(|id| !id.is_zero());
        id.and_then(|id| topics.topic_name(id))
    } else {
        topic.name = asked.name.clone();
        Some(asked.name)
    };
    topic.partitions = asked
        .partition_indexes
        .into_iter()
        .map(|at| match &name {
            None => OffsetFetchResponsePartitions {
                error_code: ErrorCode::UnknownTopicId.code(),
                ..partition(at, None)
            },
            Some(name) => {
                let found = offsets.get(group, name, at);
                partition(at, found.filter(|found| is_of_topic(found, topic.topic_id)))
            }
        })
        .collect();
    topic
}

/// An offset of a deleted topic does not count for a later topic of the same name, when both ids are
/// known.
fn is_of_topic(committed: &Committed, id: Uuid) -> bool {
    id.is_zero() || committed.topic_id.is_zero() || committed.topic_id == id
}

fn partition(partition_index: i32, committed: Option<&Committed>) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: committed.map_or(-1, |committed| committed.offset),
        committed_leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: Some(committed.map_or(String::new(), |committed| committed.metadata.clone())),
        ..OffsetFetchResponsePartitions::default()
    }
}

/// The answer in the form of the version: before version 8 it is that of the one group.
pub(crate) fn in_version(
    version: i16,
    mut groups: Vec<OffsetFetchResponseGroup>,
) -> OffsetFetchResponse {
    if version >= SEVERAL_GROUPS {
        return OffsetFetchResponse { groups, ..OffsetFetchResponse::default() };
    }
    let Some(group) = groups.pop() else { return OffsetFetchResponse::default() };
    let topics = group.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: partition.committed_leader_epoch,
                metadata: partition.metadata,
                error_code: partition.error_code,
                ..OffsetFetchResponsePartition::default()
            })
            .collect(),
        ..OffsetFetchResponseTopic::default()
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: group.error_code,
        ..OffsetFetchResponse::default()
    }
}
