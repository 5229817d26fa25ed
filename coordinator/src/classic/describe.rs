//! DescribeGroups: classic groups only. Others are "dead" to it; since version 6 with an error besides.

use protocol::ErrorCode;
use protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::state::{ClassicGroup, Member, State};
use crate::group::Groups;
use crate::shard::{Call, Scope};

/// The first version that tells a missing group from an empty one.
const NOT_FOUND: i16 = 6;

/// DescribeGroups. Authorized operations are the host's to fill in.
pub(crate) fn describe(
    groups: &Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: DescribeGroupsRequest,
) {
    let described = request.groups.into_iter().map(|id| {
        let found = groups.get(&*id);
        match found.and_then(|group| group.as_classic()) {
            Some(group) => describe_one(id, group),
            None => {
                let why = if found.is_none() { "not found" } else { "is not a classic group" };
                missing(id, call.version, why)
            }
        }
    });
    let groups = described.collect();
    let response = DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() };
    scope.output.answer_seen(call.token, response, scope.written);
}

fn missing(id: String, version: i16, why: &str) -> DescribedGroup {
    let mut group = DescribedGroup { group_state: "Dead".to_owned(), ..Default::default() };
    if version >= NOT_FOUND {
        group.error_code = ErrorCode::GroupIdNotFound.code();
        group.error_message = Some(format!("Group {id} {why}."));
    }
    DescribedGroup { group_id: id, ..group }
}

fn describe_one(id: String, group: &ClassicGroup) -> DescribedGroup {
    // What members subscribe to is only told while the protocol it is written for is in use.
    let protocol = group.protocol.as_deref().filter(|_| group.state == State::Stable);
    DescribedGroup {
        group_id: id,
        group_state: group.state_name().to_owned(),
        protocol_type: group.protocol_type().to_owned(),
        protocol_data: protocol.unwrap_or("").to_owned(),
        members: group.members().map(|member| describe_member(member, protocol)).collect(),
        ..DescribedGroup::default()
    }
}

fn describe_member(member: &Member, protocol: Option<&str>) -> DescribedGroupMember {
    DescribedGroupMember {
        member_id: member.id.to_string(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        member_metadata: member.metadata(protocol),
        member_assignment: member.assignment.clone(),
        ..DescribedGroupMember::default()
    }
}
