//! The turns of a classic group: prepare a rebalance, wait for the members, begin the next generation,
//! and drop who does not come.
//!
//! | from | to | when |
//! |---|---|---|
//! | Empty | PreparingRebalance | the first member joins; more are waited for (`group.initial.rebalance.delay.ms`) |
//! | Stable, CompletingRebalance | PreparingRebalance | a member joins, leaves, is lost or changes what it offers |
//! | PreparingRebalance | CompletingRebalance | all members have joined again, or the rebalance timeout drops those that have not |
//! | PreparingRebalance | Empty | nobody is left; the generation counts all the same, and is written |
//! | CompletingRebalance | Stable | the leader's assignment is in the log |
//!
//! A static member (KIP-345) that does not join again keeps its place until its session ends.

use std::sync::Arc;
use std::time::Duration;

use protocol::messages::join_group_response::JoinGroupResponseMember;
use protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use protocol::{ErrorCode, Offset};
use replication::time::Instant;

use super::record;
use super::state::{ClassicGroup, State, WaitingJoin};
use crate::shard::{Scope, Then, TimerKey};

/// A rebalance that nobody came to is looked at again after the rebalance timeout, but not sooner than
/// this: clients may ask for a timeout of nothing.
const LOOKS_AGAIN_AFTER_MS: i64 = 1000;

/// One classic group with the surroundings of the input that it is given.
pub(crate) struct Room<'r, 's> {
    pub id: &'r Arc<str>,
    pub group: &'r mut ClassicGroup,
    /// The last offset written for the group.
    pub written: Option<Offset>,
    pub scope: &'r mut Scope<'s>,
}

impl Room<'_, '_> {
    fn after_ms(&self, ms: i64) -> Instant {
        self.scope.now.monotonic + Duration::from_millis(ms.max(0).unsigned_abs())
    }

    fn join_timer(&self) -> TimerKey {
        TimerKey::ClassicJoin { group: self.id.clone() }
    }

    fn sync_timer(&self) -> TimerKey {
        TimerKey::ClassicSync { group: self.id.clone() }
    }

    pub(super) fn member_timer(&self, member: &Arc<str>) -> TimerKey {
        TimerKey::ClassicMember { group: self.id.clone(), member: member.clone() }
    }

    /// The member may be silent for this long from now on.
    pub(super) fn set_session(&mut self, member: &Arc<str>, timeout_ms: i64) {
        let (key, at) = (self.member_timer(member), self.after_ms(timeout_ms));
        self.scope.timers.set(key, at);
    }

    /// The member was heard.
    pub(super) fn renew_session(&mut self, member: &str) {
        if let Some(member) = self.group.member(member) {
            let (id, timeout_ms) = (member.id.clone(), member.session_timeout_ms);
            self.set_session(&id, i64::from(timeout_ms));
        }
    }

    pub(super) fn end_session(&mut self, member: &Arc<str>) {
        let key = self.member_timer(member);
        self.scope.timers.cancel(&key);
    }

    /// Begins a rebalance where that is possible; where one is being prepared, looks whether all
    /// are there.
    pub(super) fn rebalance(&mut self) {
        if self.group.state == State::PreparingRebalance {
            self.complete_join_if_all_joined();
        } else {
            self.prepare_rebalance();
        }
    }

    /// Has all members join again.
    pub(super) fn prepare_rebalance(&mut self) {
        if self.group.state == State::CompletingRebalance {
            self.drop_assignments(ErrorCode::RebalanceInProgress);
        }
        self.group.pending_sync.clear();
        let sync_timer = self.sync_timer();
        self.scope.timers.cancel(&sync_timer);
        let is_first = self.group.is_empty();
        self.group.move_to(State::PreparingRebalance, self.scope.now.wall_clock_ms);
        if is_first {
            let delay = self.initial_delay_ms();
            let left = (self.group.rebalance_timeout_ms() - delay).max(0);
            self.wait_for_first_members(delay, left);
        } else if self.group.all_have_joined() {
            self.complete_join();
        } else {
            self.wait_for_members();
        }
    }

    fn initial_delay_ms(&self) -> i64 {
        i64::try_from(self.scope.config.initial_rebalance_delay.as_millis()).unwrap_or(i64::MAX)
    }

    fn wait_for_first_members(&mut self, delay_ms: i64, left_ms: i64) {
        self.group.initial_delay_ms = Some((delay_ms, left_ms));
        let (key, at) = (self.join_timer(), self.after_ms(delay_ms));
        self.scope.timers.set(key, at);
    }

    fn wait_for_members(&mut self) {
        self.group.initial_delay_ms = None;
        let (key, at) = (self.join_timer(), self.after_ms(self.group.rebalance_timeout_ms()));
        self.scope.timers.set(key, at);
    }

    /// The first rebalance of a group only ends with its delay: more members may be on their way.
    pub(super) fn complete_join_if_all_joined(&mut self) {
        if self.group.state == State::PreparingRebalance
            && self.group.previous_state != State::Empty
            && self.group.all_have_joined()
        {
            self.complete_join();
        }
    }

    /// The time to join is over.
    pub(super) fn on_join_timer(&mut self) {
        if self.group.state != State::PreparingRebalance {
            return;
        }
        match self.group.initial_delay_ms {
            Some((delay, left)) if self.group.new_member_added && left != 0 => {
                self.group.new_member_added = false;
                let next = self.initial_delay_ms().min(left);
                self.wait_for_first_members(next, (left - delay).max(0));
            }
            _ => self.complete_join(),
        }
    }

    /// Ends the joining: who has not joined again is dropped, and the next generation begins.
    pub(super) fn complete_join(&mut self) {
        let join_timer = self.join_timer();
        self.scope.timers.cancel(&join_timer);
        self.group.initial_delay_ms = None;
        self.group.new_member_added = false;
        let missing: Vec<Arc<str>> = self
            .group
            .members()
            .filter(|member| !member.is_waiting_to_join() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in &missing {
            self.group.remove(id);
            self.end_session(id);
        }
        if !self.group.elect_joined_leader() && self.group.size() > 0 {
            // Only static members that are away: they may come back until their sessions end.
            self.wait_for_members();
            let (key, soonest) = (self.join_timer(), self.after_ms(LOOKS_AGAIN_AFTER_MS));
            if self.scope.timers.get(&key).is_some_and(|at| at < soonest) {
                self.scope.timers.set(key, soonest);
            }
            return;
        }
        self.group.begin_generation(self.scope.now.wall_clock_ms);
        if self.group.is_empty() {
            let record = record::of_group(self.id, self.group);
            // If this write fails, the last generation stays in the log; a new leader would bring it
            // back without members that are alive, and lose them by their sessions.
            self.scope.output.write_unasked(vec![record], Then::Nothing);
        } else {
            self.announce_generation();
        }
    }

    fn announce_generation(&mut self) {
        for id in self.group.member_ids() {
            if let Some(join) = self.group.take_join(&id) {
                let response = self.joined(&id, join.version);
                self.scope.output.answer(join.token, response);
            }
            self.renew_session(&id);
            if let Some(member) = self.group.member_mut(&id) {
                member.is_new = false;
            }
            self.group.pending_sync.insert(id);
        }
        let (key, at) = (self.sync_timer(), self.after_ms(self.group.rebalance_timeout_ms()));
        self.scope.timers.set(key, at);
    }

    /// The answer to a member of the current generation; the leader gets all members.
    pub(super) fn joined(&self, member: &str, version: i16) -> JoinGroupResponse {
        let members = if self.group.is_leader(member) { self.listed_members() } else { Vec::new() };
        JoinGroupResponse {
            generation_id: self.group.generation,
            protocol_type: self.group.protocol_type.clone(),
            protocol_name: name_for(version, self.group.protocol.clone()),
            leader: self.group.leader.as_deref().unwrap_or("").to_owned(),
            member_id: member.to_owned(),
            members,
            ..JoinGroupResponse::default()
        }
    }

    pub(super) fn listed_members(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.group.protocol.as_deref();
        let listed = self.group.members().map(|member| JoinGroupResponseMember {
            member_id: member.id.to_string(),
            group_instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol),
            ..JoinGroupResponseMember::default()
        });
        listed.collect()
    }

    /// The members have no assignment any more; those that wait for one are told why.
    pub(super) fn drop_assignments(&mut self, error: ErrorCode) {
        for id in self.group.member_ids() {
            if let Some(member) = self.group.member_mut(&id) {
                member.assignment.clear();
            }
            if let Some(token) = self.group.take_sync(&id) {
                self.scope.output.answer(token, sync_error(error));
                self.renew_session(&id);
            }
        }
    }

    /// Members that have not asked for their assignment in time are dropped.
    pub(super) fn on_sync_timer(&mut self) {
        let is_due = matches!(self.group.state, State::CompletingRebalance | State::Stable);
        if !is_due || self.group.pending_sync.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.group.pending_sync) {
            self.group.remove(&id);
            self.end_session(&id);
        }
        self.prepare_rebalance();
    }

    /// The member has been silent for too long. While it waits for an answer of ours it cannot speak,
    /// unless it is new: then its client may have gone away with the connection.
    pub(super) fn on_member_timer(&mut self, id: &Arc<str>) {
        if self.group.is_pending(id) {
            self.group.remove(id);
            if self.group.state == State::PreparingRebalance && self.group.all_have_joined() {
                self.complete_join();
            }
            return;
        }
        let Some(member) = self.group.member(id) else { return };
        let waits = member.is_waiting_to_join() || member.is_waiting_to_sync();
        if waits && !member.is_new {
            return;
        }
        self.remove_member(id);
        match self.group.state {
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(),
            State::PreparingRebalance if self.group.all_have_joined() => self.complete_join(),
            State::PreparingRebalance | State::Empty => {}
        }
    }

    /// Takes a member out; what it waits for is answered UNKNOWN_MEMBER_ID.
    pub(super) fn remove_member(&mut self, id: &Arc<str>) {
        if let Some(join) = self.group.take_join(id) {
            self.refuse_join(join, "", ErrorCode::UnknownMemberId);
        }
        if let Some(token) = self.group.take_sync(id) {
            self.scope.output.answer(token, sync_error(ErrorCode::UnknownMemberId));
        }
        self.group.remove(id);
        self.end_session(id);
    }

    /// Answers a JoinGroup with an error.
    pub(super) fn refuse_join(&mut self, join: WaitingJoin, member_id: &str, error: ErrorCode) {
        self.scope.output.answer(join.token, join_error(join.version, member_id, error));
    }

    /// Answers everything that waits with an error.
    pub(super) fn refuse_all_waiting(&mut self, error: ErrorCode) {
        let (joins, syncs) = self.group.take_waiting();
        for (id, join) in joins {
            self.refuse_join(join, &id, error);
        }
        for token in syncs {
            self.scope.output.answer(token, sync_error(error));
        }
    }
}

/// Before version 7 a protocol's name cannot be null.
fn name_for(version: i16, name: Option<String>) -> Option<String> {
    if version < 7 { Some(name.unwrap_or_default()) } else { name }
}

/// An answer to JoinGroup with an error and nothing else.
pub(crate) fn join_error(version: i16, member_id: &str, error: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code: error.code(),
        member_id: member_id.to_owned(),
        protocol_name: name_for(version, None),
        ..JoinGroupResponse::default()
    }
}

/// An answer to SyncGroup with an error and nothing else.
pub(crate) fn sync_error(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse { error_code: error.code(), ..SyncGroupResponse::default() }
}
