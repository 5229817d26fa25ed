//! What members of groups of both protocols ask alike: the coordinator, their offsets, and commits; and the
//! bytes of consumers in the classic protocol.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::messages::consumer_protocol_assignment::TopicPartition;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, FindCoordinatorRequest,
    FindCoordinatorResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse,
};
use protocol::{ErrorCode, Message, NodeId};

use super::{Effect, PATIENCE};
use crate::invariants::GroupEvent;

const FIND_VERSION: i16 = 4;
const COMMIT_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 9;
/// The version in which classic consumers write their subscriptions and assignments.
const CONSUMER_VERSION: i16 = 1;

/// Who asks about offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker<'a> {
    pub(super) group: &'a str,
    pub(super) topic: &'a str,
    pub(super) member_id: &'a str,
    pub(super) instance_id: Option<&'a str>,
    /// The generation, or the member's epoch.
    pub(super) epoch: i32,
}

pub(super) fn find(to: NodeId, group: &str) -> Effect {
    let request = FindCoordinatorRequest {
        coordinator_keys: vec![group.to_owned()],
        ..FindCoordinatorRequest::default()
    };
    Effect::Send { to, version: FIND_VERSION, body: request.into(), timeout: PATIENCE }
}

pub(super) fn found(response: &FindCoordinatorResponse) -> Option<NodeId> {
    let found = response.coordinators.first().filter(|found| found.error_code == 0);
    found.map(|found| NodeId(found.node_id))
}

/// `tells_epoch` is for members of the new protocol: a stale one is refused.
pub(super) fn fetch(
    to: NodeId,
    asker: Asker<'_>,
    partitions: impl Iterator<Item = i32>,
    tells_epoch: bool,
) -> Effect {
    let topic = OffsetFetchRequestTopics {
        name: asker.topic.to_owned(),
        partition_indexes: partitions.collect(),
        ..OffsetFetchRequestTopics::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: asker.group.to_owned(),
        member_id: tells_epoch.then(|| asker.member_id.to_owned()),
        member_epoch: if tells_epoch { asker.epoch } else { -1 },
        topics: Some(vec![topic]),
        ..OffsetFetchRequestGroup::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
    Effect::Send { to, version: FETCH_VERSION, body: request.into(), timeout: PATIENCE }
}

/// Takes the offsets into `owned`. `at_least` is what had been acknowledged when they were asked for.
pub(super) fn fetched(
    owned: &mut BTreeMap<i32, Option<i64>>,
    at_least: &BTreeMap<i32, i64>,
    response: &OffsetFetchResponse,
) -> Result<Vec<Effect>, ErrorCode> {
    let group = response.groups.first().ok_or(ErrorCode::UnknownServerError)?;
    let error = ErrorCode::from_code(group.error_code);
    if error != ErrorCode::None {
        return Err(error);
    }
    let mut effects = Vec::new();
    for answered in group.topics.iter().flat_map(|topic| &topic.partitions) {
        let (partition, offset) = (answered.partition_index, answered.committed_offset);
        if let Some(known) = owned.get_mut(&partition) {
            *known = Some(known.unwrap_or(-1).max(offset));
        }
        let at_least = at_least.get(&partition).copied().unwrap_or(-1);
        effects.push(Effect::Group(GroupEvent::Fetched { partition, offset, at_least }));
    }
    Ok(effects)
}

pub(super) fn commit(to: NodeId, asker: Asker<'_>, offsets: &BTreeMap<i32, i64>) -> Effect {
    let partitions = offsets.iter().map(|(partition, offset)| OffsetCommitRequestPartition {
        partition_index: *partition,
        committed_offset: *offset,
        committed_leader_epoch: -1,
        ..OffsetCommitRequestPartition::default()
    });
    let request = OffsetCommitRequest {
        group_id: asker.group.to_owned(),
        generation_id_or_member_epoch: asker.epoch,
        member_id: asker.member_id.to_owned(),
        group_instance_id: asker.instance_id.map(str::to_owned),
        topics: vec![OffsetCommitRequestTopic {
            name: asker.topic.to_owned(),
            partitions: partitions.collect(),
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    Effect::Send { to, version: COMMIT_VERSION, body: request.into(), timeout: PATIENCE }
}

/// Each partition of a commit with how it ended.
pub(super) fn committed(
    response: &OffsetCommitResponse,
) -> impl Iterator<Item = (i32, ErrorCode)> + '_ {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|answered| (answered.partition_index, ErrorCode::from_code(answered.error_code)))
}

/// The subscription of an eager classic consumer: it owns nothing when it joins.
pub(super) fn subscription(topic: &str) -> Bytes {
    let subscription =
        ConsumerProtocolSubscription { topics: vec![topic.to_owned()], ..Default::default() };
    versioned(subscription.to_bytes(CONSUMER_VERSION).unwrap_or_default())
}

/// An assignment of a topic's partitions, as the leader of a classic group writes it.
pub(super) fn assignment(topic: &str, partitions: Vec<i32>) -> Bytes {
    let topic = TopicPartition { topic: topic.to_owned(), partitions };
    let assignment =
        ConsumerProtocolAssignment { assigned_partitions: vec![topic], user_data: None };
    versioned(assignment.to_bytes(CONSUMER_VERSION).unwrap_or_default())
}

/// The partitions in such an assignment; none when it is empty or no such thing.
pub(super) fn assigned(bytes: &Bytes) -> Vec<i32> {
    let mut rest = bytes.clone();
    if rest.len() < 2 {
        return Vec::new();
    }
    let version = rest.get_i16();
    let read = ConsumerProtocolAssignment::from_bytes(rest, version).unwrap_or_default();
    read.assigned_partitions.into_iter().flat_map(|topic| topic.partitions).collect()
}

fn versioned(message: Bytes) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(CONSUMER_VERSION);
    bytes.put(message);
    bytes.freeze()
}
