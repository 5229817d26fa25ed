//! Who is a member: finding or making the member of a request, static members that come back under a
//! new id, leaving, and being thrown out.
//!
//! A member that is thrown out loses its partitions with the same records that remove it; nobody else
//! can have them earlier.

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

use super::base;
use super::convert;
use super::draft::Draft;
use super::fault::Fault;
use super::group::ConsumerGroup;
use super::member::{LEAVE_STATIC_EPOCH, Member, Owned};
use super::records::Records;
use super::{subscription, timers};
use crate::assignor::Partitions;
use crate::group::Groups;
use crate::shard::{Call, Scope, ShardConfig};

/// A random member id. One that starts with a dash would look like an option to Kafka's tools.
pub(super) fn new_member_id(scope: &mut Scope<'_>) -> String {
    loop {
        let id = scope.random.uuid().to_base64();
        if !id.starts_with('-') {
            return id;
        }
    }
}

/// Whether there is room for one that is not a member yet (`group.consumer.max.size`).
pub(super) fn check_room(
    group: &ConsumerGroup,
    config: &ShardConfig,
    member_id: &str,
    instance_id: Option<&str>,
) -> Result<(), Fault> {
    let replaces = instance_id.is_some_and(|id| group.static_member(id).is_some());
    let full = group.members().len() >= config.consumer_max_size;
    if full && !replaces && group.member(member_id).is_none() {
        return Err(Fault::new(
            ErrorCode::GroupMaxSizeReached,
            format!(
                "The consumer group has reached its maximum capacity of {} members.",
                config.consumer_max_size
            ),
        ));
    }
    Ok(())
}

/// Who sends a request, and what it may do.
#[derive(Clone, Copy)]
pub(super) struct Joiner<'a> {
    pub group_id: &'a Arc<str>,
    pub member_id: &'a str,
    pub instance_id: Option<&'a str>,
    /// It may become a member.
    pub create: bool,
    /// It speaks the classic protocol: its generation is looked at elsewhere.
    pub classic: bool,
    /// The member epoch in the request.
    pub epoch: i32,
    /// What it says it owns.
    pub owned: Option<&'a Partitions>,
}

impl Joiner<'_> {
    /// The member as it is before the request; a new one has not been written yet. Records of a static
    /// member's replacement are in the draft then.
    pub(super) fn find_or_make(&self, draft: &mut Draft<'_>) -> Result<Member, Fault> {
        match self.instance_id {
            None => self.dynamic(draft.group()),
            Some(instance_id) if self.create => self.static_joining(draft, instance_id),
            Some(instance_id) => {
                let member = self.static_known(draft.group(), instance_id)?;
                self.check_epoch(member)?;
                Ok(member.clone())
            }
        }
    }

    fn dynamic(&self, group: &ConsumerGroup) -> Result<Member, Fault> {
        match group.member(self.member_id) {
            Some(member) => {
                self.check_epoch(member)?;
                Ok(member.clone())
            }
            None if self.create => Ok(Member::default()),
            None => Err(Fault::unknown_member(self.member_id, self.group_id)),
        }
    }

    fn static_joining(&self, draft: &mut Draft<'_>, instance_id: &str) -> Result<Member, Fault> {
        let Some((old_id, old)) = draft.group().static_member(instance_id) else {
            return Ok(draft.group().member(self.member_id).cloned().unwrap_or_default());
        };
        // Between two that speak the new protocol, the one that is there must have said that it goes.
        if !self.classic && !old.is_classic() && old.epoch != LEAVE_STATIC_EPOCH {
            return Err(Fault::new(
                ErrorCode::UnreleasedInstanceId,
                format!(
                    "Static member {} with instance id {instance_id} cannot join the group because \
                     the instance id is owned by {old_id} member.",
                    self.member_id
                ),
            ));
        }
        let old_id = old_id.clone();
        let mut new = old.clone();
        new.epoch = 0;
        new.previous_epoch = 0;
        new.forget_since_when();
        let target = draft.group().target_of(&old_id, None);
        let records = Records::of(self.group_id);
        draft.extend(records.remove_member(&old_id));
        draft.push(records.member(self.member_id, &new));
        draft.push(records.target(self.member_id, &target));
        draft.push(records.current(self.member_id, &new));
        Ok(new)
    }

    fn static_known<'g>(
        &self,
        group: &'g ConsumerGroup,
        instance_id: &str,
    ) -> Result<&'g Member, Fault> {
        static_member(group, self.member_id, instance_id)
    }

    /// An epoch from the future, or one whose successor the client should know of, is fenced. The
    /// epoch before the present one is good if what the client owns is: then the last answer was lost.
    fn check_epoch(&self, member: &Member) -> Result<(), Fault> {
        if self.classic || self.epoch == 0 || self.epoch == member.epoch {
            return Ok(());
        }
        let lost_answer = self.epoch < member.epoch
            && self.epoch == member.previous_epoch
            && self.owned.is_some_and(|owned| is_part_of(owned, &member.assigned));
        if lost_answer {
            return Ok(());
        }
        let order = if self.epoch > member.epoch { "greater" } else { "smaller" };
        Err(Fault::new(
            ErrorCode::FencedMemberEpoch,
            format!(
                "The consumer group member has a {order} member epoch ({}) than the one known by the \
                 group coordinator ({}). The member must abandon all its partitions and rejoin.",
                self.epoch, member.epoch
            ),
        ))
    }
}

fn is_part_of(owned: &Partitions, assigned: &Owned) -> bool {
    owned.iter().all(|(topic, partitions)| {
        assigned.get(topic).is_some_and(|has| partitions.iter().all(|at| has.contains_key(at)))
    })
}

/// The static member, if it is the one that asks.
pub(super) fn static_member<'g>(
    group: &'g ConsumerGroup,
    member_id: &str,
    instance_id: &str,
) -> Result<&'g Member, Fault> {
    let Some((id, member)) = group.static_member(instance_id) else {
        return Err(Fault::new(
            ErrorCode::UnknownMemberId,
            format!("Instance id {instance_id} is unknown."),
        ));
    };
    if **id != *member_id {
        return Err(Fault::new(
            ErrorCode::FencedInstanceId,
            format!(
                "Static member {member_id} with instance id {instance_id} was fenced by member {id}."
            ),
        ));
    }
    Ok(member)
}

/// The heartbeat of a member that goes: for good, or (epoch -2) as a static member that will be back
/// before its session ends and keeps its partitions.
pub(super) fn leave(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<(), Fault> {
    let (group_id, group, seen) = base::existing(groups, &request.group_id)?;
    let member = match &request.instance_id {
        Some(instance_id) => static_member(group, &request.member_id, instance_id)?,
        None => group
            .member(&request.member_id)
            .ok_or_else(|| Fault::unknown_member(&request.member_id, &group_id))?,
    };
    let response = ConsumerGroupHeartbeatResponse {
        member_id: Some(request.member_id.clone()),
        member_epoch: request.member_epoch,
        ..Default::default()
    };
    if request.member_epoch == LEAVE_STATIC_EPOCH {
        let mut away = member.clone();
        away.epoch = LEAVE_STATIC_EPOCH;
        away.revoking.clear();
        away.forget_since_when();
        let record = Records::of(&group_id).current(&request.member_id, &away);
        base::answer(scope, &group_id, call.token, vec![record], response, seen);
        return Ok(());
    }
    let fenced = fence(group, scope, &group_id, &[&request.member_id]);
    fenced.answer(scope, &group_id, call.token, response, seen);
    Ok(())
}

/// What throwing members out writes, and whether the group changes its protocol by it.
pub(super) struct Fenced {
    pub records: Vec<crate::record::Record>,
    pub downgraded: bool,
}

impl Fenced {
    /// Writes, and answers a request with it.
    pub(super) fn answer(
        self,
        scope: &mut Scope<'_>,
        group_id: &Arc<str>,
        token: crate::shard::Token,
        response: impl Into<protocol::messages::ResponseBody>,
        seen: Option<protocol::Offset>,
    ) {
        if self.downgraded {
            convert::write_downgrade(scope, group_id, self.records, vec![(token, response.into())]);
        } else {
            base::answer(scope, group_id, token, self.records, response, seen);
        }
    }

    /// Writes; nobody asked for it.
    pub(super) fn write(self, scope: &mut Scope<'_>, group_id: &Arc<str>) {
        if self.downgraded {
            convert::write_downgrade(scope, group_id, self.records, Vec::new());
        } else {
            base::write(scope, group_id, self.records, Vec::new());
        }
    }
}

/// Throws members out: they, and regular expressions that only they had, are forgotten, and the group
/// moves to its next epoch. When only classic members are left, it becomes a classic group.
pub(super) fn fence(
    group: &ConsumerGroup,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    members: &[&str],
) -> Fenced {
    if members.is_empty() {
        return Fenced { records: Vec::new(), downgraded: false };
    }
    if let Some(records) = convert::downgrade_without(group, scope, group_id, members) {
        return Fenced { records, downgraded: true };
    }
    let records = Records::of(group_id);
    let mut draft = Draft::of(group);
    let mut regexes: Vec<&str> = Vec::new();
    for id in members {
        if let Some(member) = group.member(id).filter(|member| !member.regex.is_empty()) {
            regexes.push(&member.regex);
        }
        draft.extend(records.remove_member(id));
        timers::cancel(scope, group_id, id);
    }
    regexes.sort_unstable();
    regexes.dedup();
    for regex in regexes {
        if draft.group().regex_subscribers(regex) == 0 {
            draft.push(records.no_regex(regex));
        }
    }
    let names = draft.group().subscribed_topics();
    let hash = subscription::metadata_hash(names.iter().map(String::as_str), scope.topics);
    let epoch = group.epoch + 1;
    draft.push(records.epoch(epoch, hash));
    if draft.group().is_empty() {
        // Nothing to assign; and whoever joins next need not wait for the assignment interval.
        draft.push(records.target_epoch(epoch, 0));
    }
    Fenced { records: draft.into_records(), downgraded: false }
}
