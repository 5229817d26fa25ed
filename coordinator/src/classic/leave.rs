//! LeaveGroup and Heartbeat to a classic group.
//!
//! LeaveGroup names members in a batch since version 3; an administrator may name a static member by
//! its instance id alone. The reasons (KIP-800) are for people who read logs, and decide nothing.

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::leave_group_response::MemberResponse;
use protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse,
};

use super::rebalance::Room;
use super::state::State;
use crate::shard::Call;

/// The first version that names several members.
const BATCHES: i16 = 3;

/// The members that a request names, in any version.
pub(crate) fn leaving_members(version: i16, request: LeaveGroupRequest) -> Vec<MemberIdentity> {
    if version >= BATCHES {
        return request.members;
    }
    vec![MemberIdentity { member_id: request.member_id, ..MemberIdentity::default() }]
}

/// The answer with one error for each member, in the order of the request.
pub(crate) fn leave_response(
    version: i16,
    results: Vec<(MemberIdentity, Result<(), ErrorCode>)>,
) -> LeaveGroupResponse {
    let code = |result: &Result<(), ErrorCode>| result.err().unwrap_or(ErrorCode::None).code();
    if version < BATCHES {
        let error_code = results.first().map_or(0, |(_, result)| code(result));
        return LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() };
    }
    let members = results.into_iter().map(|(member, result)| MemberResponse {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        error_code: code(&result),
        ..MemberResponse::default()
    });
    LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
}

impl Room<'_, '_> {
    /// A LeaveGroup whose group exists. It is answered when an empty group is in the log, if it
    /// leaves one.
    pub(super) fn leave(&mut self, call: Call<'_>, request: LeaveGroupRequest) {
        let members = leaving_members(call.version, request);
        let results: Vec<_> = members
            .into_iter()
            .map(|member| {
                let result = self.leave_one(&member);
                (member, result)
            })
            .collect();
        let writes = self.scope.output.writes.len();
        if results.iter().any(|(_, result)| result.is_ok()) {
            match self.group.state {
                State::Stable | State::CompletingRebalance => self.prepare_rebalance(),
                State::PreparingRebalance => self.complete_join_if_all_joined(),
                State::Empty => {}
            }
        }
        let response = leave_response(call.version, results);
        match self.scope.output.writes.get_mut(writes) {
            Some(write) => write.answers.push((call.token, response.into())),
            None => self.scope.output.answer(call.token, response),
        }
    }

    fn leave_one(&mut self, member: &MemberIdentity) -> Result<(), ErrorCode> {
        let id: Arc<str> = match (&*member.member_id, &member.group_instance_id) {
            ("", Some(instance_id)) => {
                self.group.static_member(instance_id).cloned().ok_or(ErrorCode::UnknownMemberId)?
            }
            ("", None) => return Err(ErrorCode::UnknownMemberId),
            (id, _) => id.into(),
        };
        if !member.member_id.is_empty() && !self.group.is_pending(&id) {
            self.group.check_member(&id, member.group_instance_id.as_deref())?;
        }
        self.remove_member(&id);
        Ok(())
    }

    /// A Heartbeat whose group exists.
    pub(super) fn heartbeat(&mut self, call: Call<'_>, request: &HeartbeatRequest) {
        let error = match self.check_heartbeat(request) {
            Err(error) => error,
            Ok(()) => {
                self.renew_session(&request.member_id);
                match self.group.state {
                    State::PreparingRebalance => ErrorCode::RebalanceInProgress,
                    _ => ErrorCode::None,
                }
            }
        };
        let response = HeartbeatResponse { error_code: error.code(), ..Default::default() };
        self.scope.output.answer(call.token, response);
    }

    fn check_heartbeat(&self, request: &HeartbeatRequest) -> Result<(), ErrorCode> {
        self.group.check_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        if self.group.is_empty() { Err(ErrorCode::UnknownMemberId) } else { Ok(()) }
    }
}
