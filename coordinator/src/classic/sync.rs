//! SyncGroup to a classic group: members wait for the leader's assignment, which is written to the log
//! before anybody learns of it. So one generation has one assignment, whoever coordinates it.

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use super::Then;
use super::rebalance::{Room, sync_error};
use super::record;
use super::state::State;
use crate::shard::{Call, Then as After};

impl Room<'_, '_> {
    /// A SyncGroup whose group exists and is not empty.
    pub(super) fn sync(&mut self, call: Call<'_>, request: SyncGroupRequest) {
        if let Err(error) = self.check_sync(&request) {
            return self.scope.output.answer(call.token, sync_error(error));
        }
        match self.group.state {
            State::Empty => {
                self.scope.output.answer(call.token, sync_error(ErrorCode::UnknownMemberId));
            }
            State::PreparingRebalance => {
                self.scope.output.answer(call.token, sync_error(ErrorCode::RebalanceInProgress));
            }
            State::CompletingRebalance => {
                self.has_synced(&request.member_id);
                if let Some(earlier) = self.group.wait_to_sync(&request.member_id, call.token) {
                    let error = sync_error(ErrorCode::RebalanceInProgress);
                    self.scope.output.answer(earlier, error);
                }
                if self.group.is_leader(&request.member_id) {
                    self.assign(request);
                }
            }
            State::Stable => {
                self.has_synced(&request.member_id);
                let response = self.assigned(&request.member_id);
                self.scope.output.answer_seen(call.token, response, self.written);
            }
        }
    }

    fn check_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        self.group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, own: &Option<String>| {
            asked.is_some() && own.is_some() && asked != own
        };
        if differs(&request.protocol_type, &self.group.protocol_type)
            || differs(&request.protocol_name, &self.group.protocol)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn has_synced(&mut self, member: &str) {
        self.group.pending_sync.remove(member);
        if self.group.pending_sync.is_empty() {
            let key = crate::shard::TimerKey::ClassicSync { group: self.id.clone() };
            self.scope.timers.cancel(&key);
        }
    }

    fn assigned(&self, member: &str) -> SyncGroupResponse {
        let assignment = self.group.member(member).map(|member| member.assignment.clone());
        SyncGroupResponse {
            protocol_type: self.group.protocol_type.clone(),
            protocol_name: self.group.protocol.clone(),
            assignment: assignment.unwrap_or_default(),
            ..SyncGroupResponse::default()
        }
    }

    /// The leader's assignment; a member it does not name gets an empty one. Of two entries for one
    /// member the later counts.
    fn assign(&mut self, request: SyncGroupRequest) {
        for id in self.group.member_ids() {
            let given = request.assignments.iter().rfind(|given| given.member_id == *id);
            let assignment = given.map_or(Bytes::new(), |given| given.assignment.clone());
            if let Some(member) = self.group.member_mut(&id) {
                member.assignment = assignment;
            }
        }
        let then = Then::Assigned { group: self.id.clone(), generation: self.group.generation };
        let record = record::of_group(self.id, self.group);
        self.scope.output.write_unasked(vec![record], After::Classic(then));
    }

    /// The assignment of this generation is in the log: all who wait get theirs.
    pub(super) fn on_assigned(&mut self, generation: i32) {
        if self.group.state != State::CompletingRebalance || self.group.generation != generation {
            return;
        }
        self.group.move_to(State::Stable, self.scope.now.wall_clock_ms);
        for id in self.group.member_ids() {
            if let Some(token) = self.group.take_sync(&id) {
                let response = self.assigned(&id);
                self.scope.output.answer_seen(token, response, self.written);
                self.renew_session(&id);
            }
        }
    }

    /// The assignment of this generation is not in the log: nobody gets it, and all join again.
    pub(super) fn on_assignment_failed(&mut self, generation: i32, error: ErrorCode) {
        if self.group.state != State::CompletingRebalance || self.group.generation != generation {
            return;
        }
        self.drop_assignments(error);
        self.prepare_rebalance();
    }
}
