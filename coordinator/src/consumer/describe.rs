//! ConsumerGroupDescribe (API 69), and what OffsetCommit and OffsetFetch ask of a consumer group.
//!
//! Version 1 tells which members speak the classic protocol.

use std::sync::Arc;

use protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use protocol::messages::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};
use protocol::{ErrorCode, Uuid};

use super::base;
use super::group::ConsumerGroup;
use super::member::{Member, partitions_of};
use super::target;
use crate::assignor::Partitions;
use crate::group::Groups;
use crate::shard::{Call, Scope, Topics};

/// From this version of OffsetCommit on a member can name its epoch.
const MEMBER_EPOCHS: i16 = 9;

const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

/// ConsumerGroupDescribe.
pub(crate) fn describe(
    groups: &Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: ConsumerGroupDescribeRequest,
) {
    let mut seen = None;
    let mut described = Vec::with_capacity(request.group_ids.len());
    for id in &request.group_ids {
        if id.is_empty() {
            let error_code = ErrorCode::InvalidGroupId.code();
            described.push(DescribedGroup { error_code, ..Default::default() });
            continue;
        }
        described.push(match base::existing(groups, id) {
            Ok((_, group, written)) => {
                seen = seen.max(written);
                of_group(id, group, scope)
            }
            Err(fault) => DescribedGroup {
                error_code: fault.code.code(),
                error_message: fault.message,
                group_id: id.clone(),
                ..Default::default()
            },
        });
    }
    let response = ConsumerGroupDescribeResponse { groups: described, ..Default::default() };
    scope.output.answer_seen(call.token, response, seen);
}

fn of_group(id: &str, group: &ConsumerGroup, scope: &Scope<'_>) -> DescribedGroup {
    DescribedGroup {
        group_id: id.to_owned(),
        group_state: group.state_name().to_owned(),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: target::preferred_assignor(scope.config, group).to_owned(),
        members: group
            .members()
            .iter()
            .map(|(id, member)| of_member(id, member, group, scope.topics))
            .collect(),
        ..Default::default()
    }
}

fn of_member(
    id: &Arc<str>,
    member: &Member,
    group: &ConsumerGroup,
    topics: &dyn Topics,
) -> DescribedMember {
    // What it is to give up it still has.
    let mut current = partitions_of(&member.assigned);
    for (topic, partitions) in partitions_of(&member.revoking) {
        current.entry(topic).or_default().extend(partitions);
    }
    DescribedMember {
        member_id: id.to_string(),
        instance_id: member.instance_id.clone(),
        rack_id: member.rack_id.clone(),
        member_epoch: member.epoch,
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: member.topics.iter().cloned().collect(),
        subscribed_topic_regex: Some(member.regex.clone()),
        assignment: assignment(&current, topics),
        target_assignment: assignment(&group.target_of(id, None), topics),
        member_type: if member.is_classic() { CLASSIC_MEMBER } else { CONSUMER_MEMBER },
        ..Default::default()
    }
}

/// Partitions of topics that exist.
fn assignment(partitions: &Partitions, topics: &dyn Topics) -> Assignment {
    let topic_partitions = partitions
        .iter()
        .filter_map(|(topic, of_topic)| {
            Some(TopicPartitions {
                topic_id: *topic,
                topic_name: topics.topic_name(*topic)?,
                partitions: of_topic.iter().copied().collect(),
                ..Default::default()
            })
        })
        .collect();
    Assignment { topic_partitions, ..Default::default() }
}

impl ConsumerGroup {
    /// Whether this member may commit offsets. `version` is that of OffsetCommit. A member that has
    /// moved on since its client last heard is looked at by [`ConsumerGroup::check_commit_partition`].
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        _instance_id: Option<&str>,
        epoch: i32,
        version: i16,
    ) -> Result<(), ErrorCode> {
        // Tools, and clients without group management, may commit while nobody is a member.
        if epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let member = self.member(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !member.is_classic() && version < MEMBER_EPOCHS {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if epoch < 0 || epoch > member.epoch { Err(stale(member)) } else { Ok(()) }
    }

    /// Whether a member that names an epoch which is not its present one may commit for this
    /// partition: it may if it has had it since then (KIP-1251).
    pub(crate) fn check_commit_partition(
        &self,
        member_id: &str,
        epoch: i32,
        topic: Uuid,
        partition: i32,
    ) -> Result<(), ErrorCode> {
        let Some(member) = self.member(member_id) else { return Ok(()) };
        if epoch == member.epoch {
            return Ok(());
        }
        let since = member.assigned.get(&topic).and_then(|partitions| partitions.get(&partition));
        match since {
            Some(since) if *since <= epoch => Ok(()),
            _ => Err(stale(member)),
        }
    }

    /// Whether this member may fetch offsets; `None` and a negative epoch come from outside the group.
    pub(crate) fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let member_id = match member_id {
            None if epoch < 0 => return Ok(()),
            given => given.unwrap_or_default(),
        };
        let member = self.member(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if member.epoch == epoch { Ok(()) } else { Err(stale(member)) }
    }
}

fn stale(member: &Member) -> ErrorCode {
    if member.is_classic() { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch }
}
