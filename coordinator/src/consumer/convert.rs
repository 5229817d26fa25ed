//! Groups that change their protocol while they have members (KIP-848, "online migration"), as
//! `group.consumer.migration.policy` allows.
//!
//! Up: a member joins a classic group of consumers with the new protocol. The classic members come
//! along with what they own; generation and epoch are one number. Down: the last member of the new
//! protocol leaves a group with classic members. They come along the same way, and rebalance.
//!
//! Either way the log gets the tombstones of the old kind and the records of the new in one write.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use protocol::messages::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use protocol::messages::consumer_protocol_assignment::TopicPartition;
use protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription, ResponseBody};
use protocol::{Decoder, ErrorCode, Message};

use super::base;
use super::draft::Draft;
use super::fault::Fault;
use super::group::ConsumerGroup;
use super::member::{Member, Owned, owned_since};
use super::records::Records;
use super::{Then, subscription, timers};
use crate::assignor::Partitions;
use crate::classic::{self, ClassicGroup, NewMember, Offer};
use crate::record::Record;
use crate::shard::{Scope, Token, Topics};

/// Puts the records into the draft that make a consumer group of the classic one.
pub(super) fn upgrade(
    draft: &mut Draft<'_>,
    classic: &ClassicGroup,
    scope: &Scope<'_>,
    group_id: &Arc<str>,
) -> Result<(), Fault> {
    let refused = |reason: &str| {
        Fault::new(
            ErrorCode::GroupIdNotFound,
            format!("Cannot upgrade classic group {group_id} to consumer group because {reason}."),
        )
    };
    if !scope.config.migration_policy.upgrades() {
        return Err(refused("online upgrade is disabled"));
    }
    if !classic.is_consumer() {
        return Err(refused("the group does not use the consumer embedded protocol"));
    }
    if classic.size() > scope.config.consumer_max_size {
        return Err(refused("the group size exceeds the consumer group maximum size"));
    }
    let mut members: Vec<(Arc<str>, Member, Partitions)> = Vec::new();
    for member in classic.members() {
        let (converted, owned) =
            upgraded(member, classic, scope.topics).map_err(|problem| refused(problem.reason()))?;
        members.push((member.id.clone(), converted, owned));
    }
    let epoch = classic.generation;
    let records = Records::of(group_id);
    draft.extend(classic.tombstones(group_id));
    draft.extend(members.iter().map(|(id, member, _)| records.member(id, member)));
    let names = draft.group().subscribed_topics();
    let hash = subscription::metadata_hash(names.iter().map(String::as_str), scope.topics);
    draft.push(records.epoch(epoch, hash));
    draft.extend(members.iter().map(|(id, _, owned)| records.target(id, owned)));
    draft.push(records.target_epoch(epoch, 0));
    draft.extend(members.iter().map(|(id, member, _)| records.current(id, member)));
    Ok(())
}

/// Why a classic member cannot come along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Problem {
    Malformed,
    CustomAssignor,
}

impl Problem {
    fn reason(self) -> &'static str {
        match self {
            Problem::Malformed => "the embedded consumer protocol is malformed",
            Problem::CustomAssignor => {
                "an unsupported custom assignor is in use. Please refer to the documentation or \
                 switch to a default assignor before re-attempting the upgrade"
            }
        }
    }
}

fn upgraded(
    member: &classic::Member,
    group: &ClassicGroup,
    topics: &dyn Topics,
) -> Result<(Member, Partitions), Problem> {
    let chosen = group.protocol.as_deref();
    let offer = member
        .protocols
        .iter()
        .find(|offer| Some(offer.name.as_str()) == chosen)
        .or(member.protocols.first())
        .ok_or(Problem::Malformed)?;
    let subscribed = read_subscription(&offer.metadata).ok_or(Problem::Malformed)?;
    let owned = read_assignment(&member.assignment, topics)?;
    let epoch = group.generation;
    let converted = Member {
        epoch,
        previous_epoch: epoch,
        instance_id: member.instance_id.clone(),
        rack_id: subscribed.rack_id,
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        topics: subscribed.topics.into_iter().collect(),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        classic: Some(classic_metadata(
            member.session_timeout_ms,
            member.protocols.iter().map(|offer| (offer.name.clone(), offer.metadata.clone())),
        )),
        assigned: owned_since(&owned, epoch),
        ..Member::default()
    };
    Ok((converted, owned))
}

/// What is kept of a classic member besides the rest.
pub(super) fn classic_metadata(
    session_timeout_ms: i32,
    protocols: impl Iterator<Item = (String, Bytes)>,
) -> ClassicMemberMetadata {
    let supported_protocols = protocols
        .map(|(name, metadata)| ClassicProtocol { name, metadata, ..Default::default() })
        .collect();
    ClassicMemberMetadata { session_timeout_ms, supported_protocols, ..Default::default() }
}

/// The subscription in a classic member's metadata: an int16, its version, then the fields. A version
/// from the future is read as the newest known; what follows is left alone.
pub(super) fn read_subscription(bytes: &Bytes) -> Option<ConsumerProtocolSubscription> {
    let (version, rest) = versioned(bytes)?;
    let version = version.min(*ConsumerProtocolSubscription::VERSIONS.end());
    ConsumerProtocolSubscription::decode(&mut Decoder::new(rest), version).ok()
}

fn versioned(bytes: &Bytes) -> Option<(i16, Bytes)> {
    let mut rest = bytes.clone();
    if rest.len() < 2 {
        return None;
    }
    let version = rest.get_i16();
    (version >= 0).then_some((version, rest))
}

/// What a classic assignment gives, of the topics that exist. No bytes at all: nothing.
fn read_assignment(bytes: &Bytes, topics: &dyn Topics) -> Result<Partitions, Problem> {
    if bytes.is_empty() {
        return Ok(Partitions::new());
    }
    let (version, rest) = versioned(bytes).ok_or(Problem::Malformed)?;
    let version = version.min(*ConsumerProtocolAssignment::VERSIONS.end());
    let assignment = ConsumerProtocolAssignment::decode(&mut Decoder::new(rest), version)
        .map_err(|_| Problem::Malformed)?;
    if assignment.user_data.is_some_and(|data| !data.is_empty()) {
        return Err(Problem::CustomAssignor);
    }
    let mut partitions = Partitions::new();
    for topic in assignment.assigned_partitions {
        if let Some(id) = topics.topic_id(&topic.topic).filter(|_| !topic.partitions.is_empty()) {
            partitions.entry(id).or_default().extend(topic.partitions);
        }
    }
    Ok(partitions)
}

/// What a member of a consumer group owns, as a classic assignment in the version that its client
/// speaks.
pub(super) fn write_assignment(member: &Member, topics: &dyn Topics) -> Bytes {
    let version = member
        .classic
        .as_ref()
        .and_then(|classic| classic.supported_protocols.first())
        .and_then(|protocol| versioned(&protocol.metadata))
        .map_or(0, |(version, _)| version.min(*ConsumerProtocolAssignment::VERSIONS.end()));
    let mut assigned_partitions: Vec<TopicPartition> = member
        .assigned
        .iter()
        .filter_map(|(topic, partitions)| {
            let topic = topics.topic_name(*topic)?;
            Some(TopicPartition { topic, partitions: partitions.keys().copied().collect() })
        })
        .collect();
    assigned_partitions.sort_by(|one, other| one.topic.cmp(&other.topic));
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    // Every version has all of these fields; a topic's name that came from the cluster fits.
    bytes.put(assignment.to_bytes(version).unwrap_or_default());
    bytes.freeze()
}

/// The records that make a classic group of what is left without these members, if that is to be.
pub(super) fn downgrade_without(
    group: &ConsumerGroup,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    leaving: &[&str],
) -> Option<Vec<Record>> {
    let leaving: BTreeSet<&str> = leaving.iter().copied().collect();
    let left = || group.members().iter().filter(|(id, _)| !leaving.contains(&***id));
    let size = left().count();
    let all_classic = left().all(|(_, member)| member.is_classic());
    if size == 0 || !all_classic || !may_downgrade(scope, size) {
        return None;
    }
    let mut records = group.tombstones(group_id);
    records.push(classic_record(left(), group.epoch, scope, group_id));
    for id in group.members().keys() {
        timers::cancel(scope, group_id, id);
    }
    Some(records)
}

/// Whether the group becomes a classic one when this static member, of the new protocol and the last
/// of it, is replaced by a classic one.
pub(super) fn downgrades_when_replaced(
    group: &ConsumerGroup,
    scope: &Scope<'_>,
    replaced: &Member,
) -> bool {
    !replaced.is_classic()
        && group.classic_members() + 1 == group.members().len()
        && may_downgrade(scope, group.members().len())
}

fn may_downgrade(scope: &Scope<'_>, size: usize) -> bool {
    scope.config.migration_policy.downgrades() && size <= scope.config.max_size
}

/// The record of a classic group with these members.
pub(super) fn classic_record<'m>(
    members: impl Iterator<Item = (&'m Arc<str>, &'m Member)>,
    generation: i32,
    scope: &Scope<'_>,
    group_id: &Arc<str>,
) -> Record {
    let mut group = ClassicGroup { generation, ..ClassicGroup::default() };
    for (id, member) in members {
        let Some(classic) = &member.classic else { continue };
        let protocols = classic
            .supported_protocols
            .iter()
            .map(|protocol| Offer {
                name: protocol.name.clone(),
                metadata: protocol.metadata.clone(),
            })
            .collect();
        let new = NewMember {
            id: id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            session_timeout_ms: classic.session_timeout_ms,
            protocols,
            assignment: write_assignment(member, scope.topics),
        };
        group.add(new, classic::CONSUMER, None);
    }
    group.move_to(classic::State::Stable, scope.now.wall_clock_ms);
    group.protocol = group.select_protocol();
    classic::of_group(group_id, &group)
}

/// Writes a downgrade; the classic group then rebalances.
pub(super) fn write_downgrade(
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    records: Vec<Record>,
    answers: Vec<(Token, ResponseBody)>,
) {
    let then = Then::Downgraded { group: group_id.clone(), rebalance: true };
    base::write_then(scope, records, answers, then);
}

/// The partitions that a classic client says it owns.
pub(super) fn owned_of(
    subscription: &ConsumerProtocolSubscription,
    topics: &dyn Topics,
) -> Partitions {
    let mut owned = Partitions::new();
    for topic in &subscription.owned_partitions {
        if let Some(id) = topics.topic_id(&topic.topic).filter(|_| !topic.partitions.is_empty()) {
            owned.entry(id).or_default().extend(&topic.partitions);
        }
    }
    owned
}

/// Whether a member waits for partitions that others still hold.
pub(super) fn waits_for_others(group: &ConsumerGroup, id: &str, member: &Member) -> bool {
    let held: &Owned = &member.assigned;
    group.target_of(id, None).iter().any(|(topic, partitions)| {
        partitions.iter().any(|partition| {
            !held.get(topic).is_some_and(|of_topic| of_topic.contains_key(partition))
                && group.owner(*topic, *partition).is_some()
        })
    })
}
