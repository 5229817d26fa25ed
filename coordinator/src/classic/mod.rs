//! The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, as Kafka's coordinator runs
//! it. Here the requests find their group; `state` is the group as a value, `rebalance` its turns,
//! `join`, `sync` and `leave` the requests.
//!
//! Invariants: a generation's assignment is in the log before anybody learns of it (`sync`); generations
//! do not go back (`state`); every request is answered exactly once.
//!
//! What the log holds of a group is its last assignment. A group that is loaded is stable with that one;
//! its members find out by their next heartbeat or JoinGroup whether it still holds.

mod describe;
mod join;
mod leave;
mod rebalance;
mod record;
mod state;
mod subscription;
mod sync;

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::messages::{
    GroupMetadataKey, GroupMetadataValue, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
};
use protocol::{ErrorCode, ResponseBody};

pub(crate) use describe::describe;
pub(crate) use leave::{leave_response, leaving_members};
use rebalance::Room;
pub(crate) use rebalance::{join_error, sync_error};
pub(crate) use record::{of_group, tombstone};
pub(crate) use state::{CONSUMER, ClassicGroup, Member, NewMember, Offer, State};

use crate::consumer::{self, ConsumerGroup};
use crate::group::{Group, GroupKind, Groups};
use crate::shard::{Answer, Call, Scope, Then as After, TimerKey};

/// What follows a write of a classic group.
#[derive(Debug)]
pub(crate) enum Then {
    /// The group is new; if it cannot be written there is none.
    Created {
        group: Arc<str>,
        /// The empty consumer group whose place it took.
        replaced: Option<Box<ConsumerGroup>>,
    },
    /// The leader's assignment of the generation.
    Assigned { group: Arc<str>, generation: i32 },
    /// A static member has a new id.
    StaticReplaced(Box<Replaced>),
}

/// A static member with a new id, and how it was before.
#[derive(Debug)]
pub(crate) struct Replaced {
    pub group: Arc<str>,
    pub instance_id: String,
    pub old_id: Arc<str>,
    pub new_id: Arc<str>,
    pub leader_before: Option<Arc<str>>,
    pub protocols: Vec<Offer>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
}

impl ClassicGroup {
    /// The tombstones that delete the group, its offsets not included.
    pub(crate) fn tombstones(&self, id: &str) -> Vec<crate::record::Record> {
        vec![tombstone(id)]
    }

    /// Answers everything that waits in the group with an error: it is about to go, or to become a
    /// group of the other kind.
    pub(crate) fn refuse_all_waiting(&mut self, scope: &mut Scope<'_>, error: ErrorCode) {
        let (joins, syncs) = self.take_waiting();
        for (id, join) in joins {
            scope.output.answer(join.token, join_error(join.version, &id, error));
        }
        for token in syncs {
            scope.output.answer(token, sync_error(error));
        }
    }
}

/// Works in a classic group; `None` when there is no such group, or it is of the other kind.
fn with_room<T>(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    group: &str,
    work: impl FnOnce(&mut Room<'_, '_>) -> T,
) -> Option<T> {
    let id = groups.get_key_value(group)?.0.clone();
    let found = groups.get_mut(group)?;
    let written = found.written;
    let group = found.as_classic_mut()?;
    Some(work(&mut Room { id: &id, group, written, scope }))
}

/// Begins a rebalance of a group that has just become classic (KIP-848's downgrade).
pub(crate) fn rebalance(groups: &mut Groups, scope: &mut Scope<'_>, group: &str) {
    with_room(groups, scope, group, |room| room.rebalance());
}

/// Starts the sessions of all members of a group that has just become classic.
pub(crate) fn start_sessions(groups: &mut Groups, scope: &mut Scope<'_>, group: &str) {
    with_room(groups, scope, group, |room| {
        for id in room.group.member_ids() {
            room.renew_session(&id);
        }
    });
}

/// JoinGroup.
pub(crate) fn join(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    mut request: JoinGroupRequest,
) {
    if call.version == 0 {
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    if let Err(error) = check_join(scope, &request) {
        return scope
            .output
            .answer(call.token, join_error(call.version, &request.member_id, error));
    }
    let id = request.group_id.clone();
    let replaced = match groups.get(&*id).map(|group| &group.kind) {
        Some(GroupKind::Consumer(group)) if !group.is_empty() => {
            return consumer::join(groups, scope, call, request);
        }
        Some(GroupKind::Classic(_)) => {
            with_room(groups, scope, &id, |room| room.join(call, request));
            return;
        }
        Some(GroupKind::Consumer(_)) | None if !request.member_id.is_empty() => {
            let error = ErrorCode::UnknownMemberId;
            let response = join_error(call.version, &request.member_id, error);
            return scope.output.answer(call.token, response);
        }
        Some(GroupKind::Consumer(_)) => groups.remove(&*id),
        None => None,
    };
    create_and_join(groups, scope, call, request, replaced);
}

/// The group is created by its first member, and written before that member has joined.
fn create_and_join(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: JoinGroupRequest,
    replaced: Option<Group>,
) {
    let id: Arc<str> = request.group_id.as_str().into();
    let group = ClassicGroup::empty(scope.now.wall_clock_ms);
    let mut records = Vec::new();
    let written = replaced.as_ref().and_then(|group| group.written);
    let replaced = match replaced.map(|group| group.kind) {
        Some(GroupKind::Consumer(before)) => {
            records = before.tombstones(&id);
            Some(Box::new(before))
        }
        Some(GroupKind::Classic(_)) | None => None,
    };
    records.push(record::of_new_group(&id, &group));
    groups.insert(id.clone(), Group { written, kind: GroupKind::Classic(group) });
    let then = After::Classic(Then::Created { group: id.clone(), replaced });
    scope.output.write_unasked(records, then);
    with_room(groups, scope, &id, |room| room.join(call, request));
}

fn check_join(scope: &Scope<'_>, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let timeout = i64::from(request.session_timeout_ms);
    let ms = |limit: std::time::Duration| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    let (least, most) = (scope.config.min_session_timeout, scope.config.max_session_timeout);
    if timeout < ms(least) || timeout > ms(most) {
        return Err(ErrorCode::InvalidSessionTimeout);
    }
    Ok(())
}

/// SyncGroup.
pub(crate) fn sync(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: SyncGroupRequest,
) {
    let names_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    let error = if call.version >= 5 && !names_protocol {
        ErrorCode::InconsistentGroupProtocol
    } else if request.group_id.is_empty() {
        ErrorCode::InvalidGroupId
    } else {
        match groups.get(&*request.group_id).map(|group| (group.is_empty(), &group.kind)) {
            Some((false, GroupKind::Consumer(_))) => {
                return consumer::sync(groups, scope, call, request);
            }
            Some((false, GroupKind::Classic(_))) => {
                let id = request.group_id.clone();
                with_room(groups, scope, &id, |room| room.sync(call, request));
                return;
            }
            Some((true, _)) | None => ErrorCode::UnknownMemberId,
        }
    };
    scope.output.answer(call.token, sync_error(error));
}

/// Heartbeat.
pub(crate) fn heartbeat(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: HeartbeatRequest,
) {
    let error = if request.group_id.is_empty() {
        ErrorCode::InvalidGroupId
    } else {
        match groups.get(&*request.group_id).map(|group| &group.kind) {
            Some(GroupKind::Consumer(_)) => {
                return consumer::classic_heartbeat(groups, scope, call, request);
            }
            Some(GroupKind::Classic(_)) => {
                with_room(groups, scope, &request.group_id, |room| {
                    room.heartbeat(call, &request);
                });
                return;
            }
            None => ErrorCode::UnknownMemberId,
        }
    };
    let response = HeartbeatResponse { error_code: error.code(), ..Default::default() };
    scope.output.answer(call.token, response);
}

/// LeaveGroup.
pub(crate) fn leave(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: LeaveGroupRequest,
) {
    let response = if request.group_id.is_empty() {
        let error_code = ErrorCode::InvalidGroupId.code();
        LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() }
    } else {
        match groups.get(&*request.group_id).map(|group| &group.kind) {
            Some(GroupKind::Consumer(_)) => {
                return consumer::leave(groups, scope, call, request);
            }
            Some(GroupKind::Classic(_)) => {
                let id = request.group_id.clone();
                with_room(groups, scope, &id, |room| room.leave(call, request));
                return;
            }
            None => {
                let members = leaving_members(call.version, request);
                let unknown = members.into_iter().map(|m| (m, Err(ErrorCode::UnknownMemberId)));
                leave_response(call.version, unknown.collect())
            }
        }
    };
    scope.output.answer(call.token, response);
}

/// Takes in the record of a classic group. While loading it is what the group is. Of a live group it
/// tells nothing new, but when it puts a classic group in place of one of the other kind.
pub(crate) fn replay(
    groups: &mut Groups,
    key: &GroupMetadataKey,
    value: Option<&GroupMetadataValue>,
    is_loading: bool,
) {
    match value {
        None => {
            if groups.get(&*key.group).is_some_and(|group| group.as_classic().is_some()) {
                groups.remove(&*key.group);
            }
        }
        Some(value) => {
            let live = groups.get(&*key.group).and_then(Group::as_classic);
            if is_loading || live.is_none() {
                let group = Group::classic(record::to_group(value));
                groups.insert(key.group.as_str().into(), group);
            }
        }
    }
}

/// The partition is loaded: sessions begin anew. A group beyond `group.max.size` is rebalanced, to drop
/// those that are too many; and so are those that became classic and have not rebalanced since.
pub(crate) fn on_loaded(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    not_rebalanced: &BTreeSet<String>,
) {
    let ids: Vec<Arc<str>> = groups.keys().cloned().collect();
    for id in ids {
        with_room(groups, scope, &id, |room| {
            for member in room.group.member_ids() {
                room.renew_session(&member);
            }
            let is_too_large = room.group.size() > room.scope.config.max_size;
            let is_unfinished = not_rebalanced.contains(&**room.id) && room.group.size() > 0;
            if is_too_large || is_unfinished {
                room.prepare_rebalance();
            }
        });
    }
}

/// A timer of a classic group is due.
pub(crate) fn on_timer(groups: &mut Groups, scope: &mut Scope<'_>, key: &TimerKey) {
    match key {
        TimerKey::ClassicJoin { group } => {
            with_room(groups, scope, group, |room| room.on_join_timer());
        }
        TimerKey::ClassicSync { group } => {
            with_room(groups, scope, group, |room| room.on_sync_timer());
        }
        TimerKey::ClassicMember { group, member } => {
            with_room(groups, scope, group, |room| room.on_member_timer(member));
        }
        _ => {}
    }
}

/// A write is done.
pub(crate) fn on_written(groups: &mut Groups, scope: &mut Scope<'_>, then: Then) {
    match then {
        Then::Created { .. } => {}
        Then::Assigned { group, generation } => {
            with_room(groups, scope, &group, |room| room.on_assigned(generation));
        }
        Then::StaticReplaced(replaced) => {
            with_room(groups, scope, &replaced.group, |room| room.on_static_replaced(&replaced));
        }
    }
}

/// A write has failed with `error`, as clients are to see it.
pub(crate) fn on_write_failed(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    then: Then,
    error: ErrorCode,
) {
    match then {
        Then::Created { group: id, replaced } => {
            with_room(groups, scope, &id, |room| room.refuse_all_waiting(error));
            groups.remove(&*id);
            if let Some(before) = replaced {
                groups.insert(id, Group::consumer(*before));
            }
        }
        Then::Assigned { group, generation } => {
            with_room(groups, scope, &group, |room| room.on_assignment_failed(generation, error));
        }
        Then::StaticReplaced(replaced) => {
            let group = replaced.group.clone();
            with_room(groups, scope, &group, |room| {
                room.on_static_replacement_failed(*replaced, error);
            });
        }
    }
}

/// Leadership is lost: the answers to everything that waits.
pub(crate) fn on_unloaded(groups: &mut Groups) -> Vec<Answer> {
    let error = ErrorCode::NotCoordinator;
    let mut answers = Vec::new();
    for group in groups.values_mut().filter_map(Group::as_classic_mut) {
        let (joins, syncs) = group.take_waiting();
        answers.extend(joins.into_iter().map(|(id, join)| Answer {
            token: join.token,
            response: ResponseBody::from(join_error(join.version, &id, error)),
            seen: None,
        }));
        answers.extend(syncs.into_iter().map(|token| Answer {
            token,
            response: ResponseBody::from(sync_error(error)),
            seen: None,
        }));
    }
    answers
}
