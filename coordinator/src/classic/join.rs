//! JoinGroup to a classic group.
//!
//! - Without a member id: a dynamic member gets an id first and joins with it (79, KIP-394; before
//!   version 4 it joins at once). A static member (KIP-345) takes the place of its former self, or a
//!   new one; in a stable group whose protocol stays the same that needs no rebalance.
//! - With one: by the state. A member that has changed nothing is told the present generation again;
//!   the leader of a stable group always begins a rebalance.
//! - Version 9 tells a leader that has come back not to assign anew (KIP-814).
//!
//! A second JoinGroup of a member takes the place of the one that waits; that one is answered
//! REBALANCE_IN_PROGRESS, where Kafka leaves it without an answer.

use std::sync::Arc;

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use super::rebalance::{Room, join_error, sync_error};
use super::record;
use super::state::{NewMember, Offer, State, WaitingJoin};
use super::{Replaced, Then};
use crate::shard::{Call, Then as After};

/// The first version whose dynamic members must come back with the id they were given.
const MEMBER_ID_REQUIRED: i16 = 4;
/// The first version whose leaders can skip the assignment.
const SKIP_ASSIGNMENT: i16 = 9;

impl Room<'_, '_> {
    /// A JoinGroup whose group exists, be it only since now.
    pub(super) fn join(&mut self, call: Call<'_>, request: JoinGroupRequest) {
        let join = WaitingJoin { token: call.token, version: call.version };
        let id = request.member_id.as_str();
        let names = request.protocols.iter().map(|protocol| protocol.name.as_str());
        if !self.has_room_for(id) {
            let id: Arc<str> = id.into();
            self.remove_member(&id);
            self.refuse_join(join, "", ErrorCode::GroupMaxSizeReached);
        } else if !self.group.supports(&request.protocol_type, names) {
            self.refuse_join(join, id, ErrorCode::InconsistentGroupProtocol);
        } else if id.is_empty() {
            self.join_without_id(call, join, request);
        } else if self.group.is_pending(id) {
            if request.group_instance_id.is_some() {
                // Ids are only handed out to dynamic members.
                self.refuse_join(join, "", ErrorCode::UnknownServerError);
            } else {
                let id = id.into();
                self.add_member(call, join, request, id);
            }
        } else {
            self.join_again(join, request);
        }
    }

    /// `group.max.size`: while members are joining those that wait count, for the others may not
    /// come back.
    fn has_room_for(&self, id: &str) -> bool {
        let most = self.scope.config.max_size;
        let member = self.group.member(id);
        match self.group.state {
            State::Empty => true,
            State::PreparingRebalance => {
                member.is_some_and(|member| member.is_waiting_to_join())
                    || self.group.waiting_joins() < most
            }
            State::CompletingRebalance | State::Stable => {
                member.is_some() || self.group.size() < most
            }
        }
    }

    fn join_without_id(&mut self, call: Call<'_>, join: WaitingJoin, request: JoinGroupRequest) {
        let prefix = request.group_instance_id.as_deref().unwrap_or(&call.caller.client_id);
        let new_id: Arc<str> = format!("{prefix}-{}", self.scope.random.dashed_uuid()).into();
        match &request.group_instance_id {
            Some(instance_id) if self.group.static_member(instance_id).is_some() => {
                self.replace_static_member(join, request, new_id);
            }
            None if call.version >= MEMBER_ID_REQUIRED => {
                self.group.add_pending(new_id.clone());
                self.set_session(&new_id, i64::from(request.session_timeout_ms));
                self.refuse_join(join, &new_id, ErrorCode::MemberIdRequired);
            }
            _ => self.add_member(call, join, request, new_id),
        }
    }

    fn add_member(
        &mut self,
        call: Call<'_>,
        join: WaitingJoin,
        request: JoinGroupRequest,
        id: Arc<str>,
    ) {
        if self.group.state == State::PreparingRebalance
            && self.group.previous_state == State::Empty
        {
            self.group.new_member_added = true;
        }
        let new = NewMember {
            id: id.clone(),
            instance_id: request.group_instance_id,
            client_id: call.caller.client_id.clone(),
            client_host: call.caller.client_host.clone(),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: request.protocols.into_iter().map(Offer::from).collect(),
            assignment: Bytes::new(),
        };
        self.group.add(new, &request.protocol_type, Some(join));
        if let Some(member) = self.group.member_mut(&id) {
            member.is_new = true;
        }
        // Its heartbeats begin with the answer. A client that has gone away meanwhile is found out
        // by this time, and one that has not may try again.
        let most = i64::try_from(self.scope.config.new_member_timeout.as_millis());
        self.set_session(&id, most.unwrap_or(i64::MAX));
        self.rebalance();
    }

    fn join_again(&mut self, join: WaitingJoin, request: JoinGroupRequest) {
        let id = request.member_id.as_str();
        if let Err(error) = self.group.check_member(id, request.group_instance_id.as_deref()) {
            return self.refuse_join(join, id, error);
        }
        let Some(member) = self.group.member(id) else { return };
        let same = member.protocols.len() == request.protocols.len()
            && member
                .protocols
                .iter()
                .zip(&request.protocols)
                .all(|(own, new)| own.name == new.name && own.metadata == new.metadata);
        let is_told_again = match self.group.state {
            State::CompletingRebalance => same,
            State::Stable => same && !self.group.is_leader(id),
            State::PreparingRebalance | State::Empty => false,
        };
        if is_told_again {
            let response = self.joined(id, join.version);
            self.scope.output.answer(join.token, response);
        } else if self.group.is_empty() {
            self.refuse_join(join, id, ErrorCode::UnknownMemberId);
        } else {
            let id = member.id.clone();
            self.update_and_wait(&id, join, request);
            self.rebalance();
        }
    }

    fn update_and_wait(&mut self, id: &Arc<str>, join: WaitingJoin, request: JoinGroupRequest) {
        let protocols = request.protocols.into_iter().map(Offer::from).collect();
        self.group.update_member(
            id,
            protocols,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
        );
        if let Some(earlier) = self.group.wait_to_join(id, join) {
            self.refuse_join(earlier, id, ErrorCode::RebalanceInProgress);
        }
    }

    /// A static member has been started again.
    fn replace_static_member(
        &mut self,
        join: WaitingJoin,
        request: JoinGroupRequest,
        new_id: Arc<str>,
    ) {
        let instance_id = request.group_instance_id.clone().unwrap_or_default();
        let Some(old_id) = self.group.static_member(&instance_id).cloned() else { return };
        let leader_before = self.group.leader.clone();
        let Some(member) = self.group.member(&old_id) else { return };
        let before =
            (member.protocols.clone(), member.rebalance_timeout_ms, member.session_timeout_ms);
        if let Some((waiting_join, waiting_sync)) = self.group.replace_static(&instance_id, &new_id)
        {
            if let Some(waiting) = waiting_join {
                self.refuse_join(waiting, &old_id, ErrorCode::FencedInstanceId);
            }
            if let Some(token) = waiting_sync {
                self.scope.output.answer(token, sync_error(ErrorCode::FencedInstanceId));
            }
        }
        self.end_session(&old_id);
        self.renew_session(&new_id);
        self.update_and_wait(&new_id, join, request);
        match self.group.state {
            State::Stable if self.group.protocol == self.group.select_protocol() => {
                let record = record::of_group(self.id, self.group);
                let (protocols, rebalance_timeout_ms, session_timeout_ms) = before;
                let then = Then::StaticReplaced(Box::new(Replaced {
                    group: self.id.clone(),
                    instance_id,
                    old_id,
                    new_id,
                    leader_before,
                    protocols,
                    rebalance_timeout_ms,
                    session_timeout_ms,
                }));
                self.scope.output.write_unasked(vec![record], After::Classic(then));
            }
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(),
            State::PreparingRebalance => self.complete_join_if_all_joined(),
            State::Empty => {}
        }
    }

    /// The new id of a static member is in the log.
    pub(super) fn on_static_replaced(&mut self, replaced: &Replaced) {
        let id = &replaced.new_id;
        let Some(join) = self.group.take_join(id) else { return };
        let is_leader = self.group.is_leader(id);
        let response = if join.version >= SKIP_ASSIGNMENT {
            JoinGroupResponse { skip_assignment: is_leader, ..self.joined(id, join.version) }
        } else {
            // An older leader would assign anew if it were told that it leads.
            let leader = replaced.leader_before.as_deref().unwrap_or("").to_owned();
            JoinGroupResponse { leader, members: Vec::new(), ..self.joined(id, join.version) }
        };
        self.scope.output.answer_seen(join.token, response, self.written);
    }

    /// The new id of a static member is not in the log: the old one has its place again.
    pub(super) fn on_static_replacement_failed(&mut self, replaced: Replaced, error: ErrorCode) {
        let join = self.group.take_join(&replaced.new_id);
        self.group.update_member(
            &replaced.new_id,
            replaced.protocols,
            replaced.rebalance_timeout_ms,
            replaced.session_timeout_ms,
        );
        self.group.replace_static(&replaced.instance_id, &replaced.old_id);
        self.end_session(&replaced.new_id);
        self.renew_session(&replaced.old_id);
        if let Some(join) = join {
            let leader = replaced.leader_before.as_deref().unwrap_or("").to_owned();
            let response = JoinGroupResponse {
                generation_id: self.group.generation,
                protocol_type: self.group.protocol_type.clone(),
                leader,
                ..join_error(join.version, "", error)
            };
            let protocol_name = self.group.protocol.clone();
            let response = JoinGroupResponse { protocol_name, ..response };
            self.scope.output.answer(join.token, response);
        }
    }
}
