//! Classic members of a consumer group (KIP-848, "online migration"): JoinGroup, SyncGroup, Heartbeat
//! and LeaveGroup answered from the consumer group. The coordinator assigns; nobody leads. A member's
//! generation is its epoch.
//!
//! A classic member moves one step with each rebalance of its own: its heartbeat tells it when to join
//! again, its JoinGroup says what it still owns, its SyncGroup fetches what it has then.

use std::sync::Arc;

use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    SyncGroupRequest, SyncGroupResponse,
};
use protocol::{ErrorCode, Offset};

use super::base;
use super::convert;
use super::draft::Draft;
use super::fault::Fault;
use super::group::ConsumerGroup;
use super::member::{Member, MemberState};
use super::membership::{self, Joiner, static_member};
use super::records::Records;
use super::{Then, settings, step, target, timers};
use crate::classic::{self, CONSUMER};
use crate::group::Groups;
use crate::shard::{Call, MigrationPolicy, Scope};

/// From this version on a member without an id is given one before it may join (KIP-394).
const NEEDS_MEMBER_ID: i16 = 4;

/// JoinGroup to a consumer group with members. (An empty one gives way to a new classic group.)
pub(crate) fn join(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: JoinGroupRequest,
) {
    if let Err(fault) = join_members(groups, scope, call, &request) {
        let response = classic::join_error(call.version, &request.member_id, fault.code);
        scope.output.answer(call.token, response);
    }
}

fn join_members(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: &JoinGroupRequest,
) -> Result<(), Fault> {
    let (group_id, group, seen) = base::existing(groups, &request.group_id)?;
    let instance_id = request.group_instance_id.as_deref();
    check_join(group, scope, request)?;
    let Some(member_id) = member_id(scope, call, request) else { return Ok(()) };

    let mut draft = Draft::of(group);
    let downgrades = instance_id
        .and_then(|instance_id| group.static_member(instance_id))
        .is_some_and(|(_, replaced)| convert::downgrades_when_replaced(group, scope, replaced));
    let joiner = Joiner {
        group_id: &group_id,
        member_id: &member_id,
        instance_id,
        create: instance_id.is_none() || request.member_id.is_empty(),
        classic: true,
        epoch: -1,
        owned: None,
    };
    let before = joiner.find_or_make(&mut draft)?;
    let metadata = &request.protocols.first().ok_or(ErrorCode::InconsistentGroupProtocol)?.metadata;
    let subscription = convert::read_subscription(metadata).ok_or(ErrorCode::UnknownServerError)?;
    let owned = convert::owned_of(&subscription, scope.topics);
    let changed = changed(&before, request, subscription, call);
    let subscription_changed =
        step::update_member(&mut draft, scope, &group_id, &member_id, &before, &changed)?;
    if !downgrades {
        target::maybe_update(&mut draft, scope, &group_id);
    }
    let after = if downgrades && subscription_changed {
        changed
    } else {
        let owned = Some(&owned);
        step::reconcile(
            &mut draft,
            scope,
            &group_id,
            &member_id,
            changed,
            subscription_changed,
            owned,
        )?
    };

    let response = joined(&after, &member_id, request);
    let checked = step::checked(&draft, scope);
    if downgrades {
        let records = replaced_by_classic(draft, scope, &group_id, &member_id, &after);
        let then = Then::Downgraded { group: group_id, rebalance: subscription_changed };
        base::write_then(scope, records, vec![(call.token, response.into())], then);
        return Ok(());
    }
    let session = settings::from_ms(request.session_timeout_ms);
    timers::start_session(scope, &group_id, &member_id, session);
    timers::expect_sync(scope, &group_id, &member_id, after.rebalance_timeout_ms);
    let records = draft.into_records();
    base::answer(scope, &group_id, call.token, records, response, seen);
    base::note_checked(groups, &group_id, checked);
    Ok(())
}

/// The member's id: its own, or a new one. A new member without an instance id is only told its id, and
/// joins with it the next time.
fn member_id(scope: &mut Scope<'_>, call: Call<'_>, request: &JoinGroupRequest) -> Option<String> {
    if !request.member_id.is_empty() {
        return Some(request.member_id.clone());
    }
    let made = membership::new_member_id(scope);
    if request.group_instance_id.is_none() && call.version >= NEEDS_MEMBER_ID {
        let response = classic::join_error(call.version, &made, ErrorCode::MemberIdRequired);
        scope.output.answer(call.token, response);
        return None;
    }
    Some(made)
}

/// What can be said of the request before it changes anything.
fn check_join(
    group: &ConsumerGroup,
    scope: &Scope<'_>,
    request: &JoinGroupRequest,
) -> Result<(), Fault> {
    if scope.config.migration_policy == MigrationPolicy::Disabled {
        return Err(ErrorCode::InconsistentGroupProtocol.into());
    }
    let instance_id = request.group_instance_id.as_deref();
    membership::check_room(group, scope.config, &request.member_id, instance_id)?;
    let names = request.protocols.iter().map(|protocol| protocol.name.as_str());
    if request.protocol_type != CONSUMER || !group.supports_one_of(names) {
        return Err(ErrorCode::InconsistentGroupProtocol.into());
    }
    Ok(())
}

/// The member with what its JoinGroup says of it.
fn changed(
    before: &Member,
    request: &JoinGroupRequest,
    subscription: protocol::messages::ConsumerProtocolSubscription,
    call: Call<'_>,
) -> Member {
    let mut member = before.clone();
    if request.group_instance_id.is_some() {
        member.instance_id.clone_from(&request.group_instance_id);
    }
    if subscription.rack_id.is_some() {
        member.rack_id = subscription.rack_id;
    }
    if request.rebalance_timeout_ms != -1 {
        member.rebalance_timeout_ms = request.rebalance_timeout_ms;
    }
    member.topics = subscription.topics.into_iter().collect();
    // Classic clients match regular expressions themselves.
    member.regex = String::new();
    member.client_id.clone_from(&call.caller.client_id);
    member.client_host.clone_from(&call.caller.client_host);
    let protocols = request.protocols.iter();
    member.classic = Some(convert::classic_metadata(
        request.session_timeout_ms,
        protocols.map(|protocol| (protocol.name.clone(), protocol.metadata.clone())),
    ));
    member
}

fn joined(member: &Member, member_id: &str, request: &JoinGroupRequest) -> JoinGroupResponse {
    JoinGroupResponse {
        generation_id: member.epoch,
        protocol_type: Some(CONSUMER.to_owned()),
        protocol_name: request.protocols.first().map(|protocol| protocol.name.clone()),
        member_id: member_id.to_owned(),
        ..JoinGroupResponse::default()
    }
}

/// The records of a static member's replacement, then those that make the group a classic one.
fn replaced_by_classic(
    mut draft: Draft<'_>,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    member_id: &str,
    after: &Member,
) -> Vec<crate::record::Record> {
    draft.push(Records::of(group_id).member(member_id, after));
    draft.push(Records::of(group_id).current(member_id, after));
    let group = draft.group();
    let classic = convert::classic_record(group.members().iter(), group.epoch, scope, group_id);
    let mut gone = group.tombstones(group_id);
    gone.push(classic);
    for id in draft.base().members().keys().chain(group.members().keys()) {
        timers::cancel(scope, group_id, id);
    }
    let mut records = draft.into_records();
    records.extend(gone);
    records
}

/// A classic member with its group.
struct Found<'g> {
    group_id: Arc<str>,
    group: &'g ConsumerGroup,
    member: &'g Member,
    /// The last offset written for the group.
    seen: Option<Offset>,
}

/// A classic member of the group, if that is what asks.
fn classic_member<'g>(
    groups: &'g Groups,
    group_id: &str,
    member_id: &str,
    instance_id: Option<&str>,
    generation: i32,
) -> Result<Found<'g>, ErrorCode> {
    let (group_id, group, seen) =
        base::existing(groups, group_id).map_err(|_| ErrorCode::UnknownMemberId)?;
    let member = match instance_id {
        None => group.member(member_id).ok_or(ErrorCode::UnknownMemberId)?,
        Some(instance_id) => {
            static_member(group, member_id, instance_id).map_err(|fault| fault.code)?
        }
    };
    if !member.is_classic() {
        return Err(ErrorCode::UnknownMemberId);
    }
    if member.epoch != generation {
        return Err(ErrorCode::IllegalGeneration);
    }
    Ok(Found { group_id, group, member, seen })
}

/// SyncGroup to a consumer group.
pub(crate) fn sync(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: SyncGroupRequest,
) {
    match sync_member(groups, scope, &request) {
        Ok((response, seen)) => scope.output.answer_seen(call.token, response, seen),
        Err(error) => scope.output.answer(call.token, classic::sync_error(error)),
    }
}

fn sync_member(
    groups: &Groups,
    scope: &mut Scope<'_>,
    request: &SyncGroupRequest,
) -> Result<(SyncGroupResponse, Option<Offset>), ErrorCode> {
    let Found { group_id, group, member, seen } = classic_member(
        groups,
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    )?;
    let known = member.classic.as_ref().and_then(|classic| classic.supported_protocols.first());
    let name = known.map(|protocol| protocol.name.as_str());
    let is_other_type = request.protocol_type.as_deref().is_some_and(|given| given != CONSUMER);
    let is_other_name = request.protocol_name.is_some() && request.protocol_name.as_deref() != name;
    if is_other_type || is_other_name {
        return Err(ErrorCode::InconsistentGroupProtocol);
    }
    // One that is to give partitions up has joined for that already; it gets its smaller assignment.
    if group.epoch > member.epoch && member.state != MemberState::UnrevokedPartitions {
        let timeout_ms = member.rebalance_timeout_ms;
        timers::expect_join(scope, &group_id, &request.member_id, timeout_ms);
        return Err(ErrorCode::RebalanceInProgress);
    }
    timers::synced(scope, &group_id, &request.member_id);
    renew_session(scope, &group_id, &request.member_id, member);
    let response = SyncGroupResponse {
        protocol_type: request.protocol_type.clone(),
        protocol_name: request.protocol_name.clone(),
        assignment: convert::write_assignment(member, scope.topics),
        ..SyncGroupResponse::default()
    };
    Ok((response, seen))
}

fn renew_session(scope: &mut Scope<'_>, group_id: &Arc<str>, member_id: &str, member: &Member) {
    if let Some(classic) = &member.classic {
        let timeout = settings::from_ms(classic.session_timeout_ms);
        timers::start_session(scope, group_id, member_id, timeout);
    }
}

/// Heartbeat of a classic member of a consumer group. It is to join again when the group has moved on,
/// when it has partitions to give up, or when all that it waits for is free.
pub(crate) fn classic_heartbeat(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: HeartbeatRequest,
) {
    let found = classic_member(
        groups,
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    );
    let error = match found {
        Err(error) => error,
        Ok(Found { group_id, group, member, .. }) => {
            renew_session(scope, &group_id, &request.member_id, member);
            let to_join = match member.state {
                _ if member.epoch < group.epoch => true,
                MemberState::UnrevokedPartitions => true,
                MemberState::UnreleasedPartitions => {
                    !convert::waits_for_others(group, &request.member_id, member)
                }
                MemberState::Stable | MemberState::Unknown(_) => false,
            };
            if to_join {
                let timeout_ms = member.rebalance_timeout_ms;
                timers::expect_join(scope, &group_id, &request.member_id, timeout_ms);
                ErrorCode::RebalanceInProgress
            } else {
                ErrorCode::None
            }
        }
    };
    let response = HeartbeatResponse { error_code: error.code(), ..HeartbeatResponse::default() };
    scope.output.answer(call.token, response);
}

/// LeaveGroup to a consumer group. Members of the new protocol can be sent away by it too.
pub(crate) fn leave(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: LeaveGroupRequest,
) {
    let Ok((group_id, group, seen)) = base::existing(groups, &request.group_id) else { return };
    let mut leaving: Vec<&str> = Vec::new();
    let mut results = Vec::new();
    for identity in classic::leaving_members(call.version, request) {
        let found =
            leaving_member(group, &identity.member_id, identity.group_instance_id.as_deref());
        leaving.extend(found.ok());
        results.push((identity, found.map(|_| ())));
    }
    leaving.sort_unstable();
    leaving.dedup();
    let response = classic::leave_response(call.version, results);
    let fenced = membership::fence(group, scope, &group_id, &leaving);
    fenced.answer(scope, &group_id, call.token, response, seen);
}

/// An administrator names a static member by its instance id alone.
fn leaving_member<'g>(
    group: &'g ConsumerGroup,
    member_id: &str,
    instance_id: Option<&str>,
) -> Result<&'g str, ErrorCode> {
    match instance_id {
        None => group
            .members()
            .get_key_value(member_id)
            .map(|(id, _)| &**id)
            .ok_or(ErrorCode::UnknownMemberId),
        Some(instance_id) => {
            let (id, _) = group.static_member(instance_id).ok_or(ErrorCode::UnknownMemberId)?;
            if member_id.is_empty() || **id == *member_id {
                Ok(id)
            } else {
                Err(ErrorCode::FencedInstanceId)
            }
        }
    }
}
