//! ListGroups: the shard's groups, those of one state or type if that is asked for. States and types are
//! compared without regard to case; unknown ones match nothing.

use std::collections::BTreeSet;

use protocol::messages::list_groups_response::ListedGroup;
use protocol::messages::{ListGroupsRequest, ListGroupsResponse};

use super::{Call, Scope};
use crate::group::{Group, Groups};

/// ListGroups.
pub(crate) fn list(
    groups: &Groups,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: ListGroupsRequest,
) {
    let lower = |names: Vec<String>| -> BTreeSet<String> {
        names.into_iter().map(|name| name.trim().to_lowercase()).collect()
    };
    let (states, types) = (lower(request.states_filter), lower(request.types_filter));
    let is_asked = |group: &Group| {
        (states.is_empty() || states.contains(&group.state_name().to_lowercase()))
            && (types.is_empty() || types.contains(group.type_name()))
    };
    let listed =
        groups.iter().filter(|(_, group)| is_asked(group)).map(|(id, group)| ListedGroup {
            group_id: id.to_string(),
            protocol_type: group.protocol_type().to_owned(),
            group_state: group.state_name().to_owned(),
            group_type: group.type_name().to_owned(),
            ..ListedGroup::default()
        });
    let response = ListGroupsResponse { groups: listed.collect(), ..Default::default() };
    scope.output.answer_seen(call.token, response, scope.written);
}
