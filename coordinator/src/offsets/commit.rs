//! OffsetCommit in all versions.
//!
//! | version | what it changed |
//! |---|---|
//! | 2-4 | a retention time of the request's own |
//! | 6 | leader epochs |
//! | 7 | static members |
//! | 9 | members of consumer groups: the generation is their epoch; a missing group is 69, before 22 |
//! | 10 | topics by id |
//!
//! Partitions that do not exist are refused one by one, and come first in the answer. Whether the member
//! may commit is asked for the rest; if it may not, all of those carry the error. A commit with no
//! member in a group without members is good (`group.id` for offsets alone), and makes that group.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use protocol::messages::{
    OffsetCommitKey, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitValue,
};
use protocol::{ErrorCode, Uuid};

use super::Offsets;
use crate::classic::State;
use crate::group::{GroupKind, Groups};
use crate::record::Record;
use crate::shard::{Call, Scope, TimerKey};

/// The first version with topic ids.
const TOPIC_IDS: i16 = 10;
/// The first version that can say that the group is not there.
const GROUP_NOT_FOUND: i16 = 9;

/// A topic of the request that exists, with those of its partitions that do.
struct Accepted {
    name: String,
    id: Uuid,
    partitions: Vec<OffsetCommitRequestPartition>,
}

/// OffsetCommit.
pub(crate) fn commit(
    groups: &mut Groups,
    offsets: &mut Offsets,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    mut request: OffsetCommitRequest,
) {
    let mut answer = AnswerTopics::new(call.version);
    let accepted = accept_partitions(scope, call.version, &mut request, &mut answer);
    if accepted.is_empty() {
        return scope.output.answer(call.token, answer.into_response());
    }
    if let Err(error) = check_member(groups, call.version, &request, &accepted) {
        for topic in &accepted {
            for partition in &topic.partitions {
                answer.add(&topic.name, topic.id, partition.partition_index, error);
            }
        }
        return scope.output.answer(call.token, answer.into_response());
    }
    renew_session(groups, scope, &request);
    let mut records = Vec::new();
    for topic in &accepted {
        offsets.seen_topics.insert(topic.name.as_str().into(), topic.id);
        for partition in &topic.partitions {
            let error = match record_of(scope, &request, topic, partition) {
                Ok(record) => {
                    records.push(record);
                    ErrorCode::None
                }
                Err(error) => error,
            };
            answer.add(&topic.name, topic.id, partition.partition_index, error);
        }
    }
    if records.is_empty() {
        scope.output.answer(call.token, answer.into_response());
    } else {
        scope.output.write(records, call, answer.into_response());
    }
}

/// Splits the request into partitions that exist and refusals.
fn accept_partitions(
    scope: &Scope<'_>,
    version: i16,
    request: &mut OffsetCommitRequest,
    answer: &mut AnswerTopics,
) -> Vec<Accepted> {
    let mut accepted = Vec::new();
    for topic in std::mem::take(&mut request.topics) {
        let (name, id, missing) = if version >= TOPIC_IDS {
            let name = Some(topic.topic_id)
                .filter(|id| !id.is_zero())
                .and_then(|id| scope.topics.topic_name(id));
            (name.unwrap_or_default(), topic.topic_id, ErrorCode::UnknownTopicId)
        } else {
            let id = scope.topics.topic_id(&topic.name).unwrap_or_default();
            (topic.name, id, ErrorCode::UnknownTopicOrPartition)
        };
        let count = scope.topics.partition_count(&name);
        let error = if count.is_some() { ErrorCode::UnknownTopicOrPartition } else { missing };
        let (good, bad): (Vec<_>, Vec<_>) = topic
            .partitions
            .into_iter()
            .partition(|partition| (0..count.unwrap_or(0)).contains(&partition.partition_index));
        for partition in bad {
            answer.add(&name, id, partition.partition_index, error);
        }
        if !good.is_empty() {
            accepted.push(Accepted { name, id, partitions: good });
        }
    }
    accepted
}

fn check_member(
    groups: &Groups,
    version: i16,
    request: &OffsetCommitRequest,
    accepted: &[Accepted],
) -> Result<(), ErrorCode> {
    let (id, generation) = (request.member_id.as_str(), request.generation_id_or_member_epoch);
    let instance_id = request.group_instance_id.as_deref();
    match groups.get(&*request.group_id).map(|group| &group.kind) {
        Some(GroupKind::Classic(group)) => group.check_commit(id, instance_id, generation),
        Some(GroupKind::Consumer(group)) => {
            group.check_commit(id, instance_id, generation, version)?;
            accepted.iter().try_for_each(|topic| {
                topic.partitions.iter().try_for_each(|partition| {
                    let at = partition.partition_index;
                    group.check_commit_partition(id, generation, topic.id, at)
                })
            })
        }
        None if generation < 0 => Ok(()),
        None if version >= GROUP_NOT_FOUND => Err(ErrorCode::GroupIdNotFound),
        None => Err(ErrorCode::IllegalGeneration),
    }
}

/// A commit is a sign of life of a classic member, but not while the group waits for its leader.
fn renew_session(groups: &Groups, scope: &mut Scope<'_>, request: &OffsetCommitRequest) {
    let Some((id, group)) = groups.get_key_value(&*request.group_id) else { return };
    let Some(group) = group.as_classic() else { return };
    if !matches!(group.state, State::Stable | State::PreparingRebalance) {
        return;
    }
    if let Some(member) = group.member(&request.member_id) {
        let key = TimerKey::ClassicMember { group: id.clone(), member: Arc::clone(&member.id) };
        let timeout = u64::try_from(member.session_timeout_ms).unwrap_or(0);
        let at = scope.now.monotonic + std::time::Duration::from_millis(timeout);
        scope.timers.set(key, at);
    }
}

fn record_of(
    scope: &Scope<'_>,
    request: &OffsetCommitRequest,
    topic: &Accepted,
    partition: &OffsetCommitRequestPartition,
) -> Result<Record, ErrorCode> {
    let metadata = partition.committed_metadata.as_deref().unwrap_or("");
    // Kafka measures the metadata in UTF-16 units, not in the bytes that the config's name speaks of.
    if metadata.encode_utf16().count() > scope.config.offset_metadata_max_bytes {
        return Err(ErrorCode::OffsetMetadataTooLarge);
    }
    let now_ms = scope.now.wall_clock_ms;
    let expire_timestamp = match request.retention_time_ms {
        -1 => -1,
        retention => now_ms.saturating_add(retention),
    };
    let key = OffsetCommitKey {
        group: request.group_id.clone(),
        topic: topic.name.clone(),
        partition: partition.partition_index,
    };
    let value = OffsetCommitValue {
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: metadata.to_owned(),
        commit_timestamp: now_ms,
        expire_timestamp,
        // The version with an expiry time has no room for the topic's id.
        topic_id: if expire_timestamp == -1 { topic.id } else { Uuid::ZERO },
        ..OffsetCommitValue::default()
    };
    Ok(Record::OffsetCommit(key, Some(value)))
}

/// The topics of an answer, each once, in the order in which they were first added.
struct AnswerTopics {
    by_id: bool,
    topics: Vec<OffsetCommitResponseTopic>,
    places: BTreeMap<(Uuid, String), usize>,
}

impl AnswerTopics {
    fn new(version: i16) -> AnswerTopics {
        AnswerTopics { by_id: version >= TOPIC_IDS, topics: Vec::new(), places: BTreeMap::new() }
    }

    fn add(&mut self, name: &str, id: Uuid, partition_index: i32, error: ErrorCode) {
        let key = if self.by_id { (id, String::new()) } else { (Uuid::ZERO, name.to_owned()) };
        let topics = &mut self.topics;
        let at = *self.places.entry(key).or_insert_with_key(|(id, name)| {
            topics.push(OffsetCommitResponseTopic {
                name: name.clone(),
                topic_id: *id,
                ..OffsetCommitResponseTopic::default()
            });
            topics.len() - 1
        });
        self.topics[at].partitions.push(OffsetCommitResponsePartition {
            partition_index,
            error_code: error.code(),
            ..OffsetCommitResponsePartition::default()
        });
    }

    fn into_response(self) -> OffsetCommitResponse {
        OffsetCommitResponse { topics: self.topics, ..OffsetCommitResponse::default() }
    }
}
