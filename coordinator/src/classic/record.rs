//! A classic group as its record, and back.

use protocol::messages::group_metadata_value::MemberMetadata;
use protocol::messages::{GroupMetadataKey, GroupMetadataValue};

use super::state::{ClassicGroup, NewMember, Offer, State};
use crate::record::Record;

/// The record of a group that nobody has joined yet.
pub(crate) fn of_new_group(id: &str, group: &ClassicGroup) -> Record {
    let value = GroupMetadataValue {
        protocol_type: String::new(),
        generation: 0,
        protocol: None,
        leader: None,
        current_state_timestamp: group.state_since_ms.unwrap_or(-1),
        ..GroupMetadataValue::default()
    };
    Record::GroupMetadata(GroupMetadataKey { group: id.to_owned() }, Some(value))
}

/// The record of a group with the members' present assignments.
pub(crate) fn of_group(id: &str, group: &ClassicGroup) -> Record {
    let protocol = group.protocol.as_deref();
    let members = group.members().map(|member| MemberMetadata {
        member_id: member.id.to_string(),
        group_instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        rebalance_timeout: member.rebalance_timeout_ms,
        session_timeout: member.session_timeout_ms,
        subscription: member.metadata(protocol),
        assignment: member.assignment.clone(),
        ..MemberMetadata::default()
    });
    let value = GroupMetadataValue {
        protocol_type: group.protocol_type().to_owned(),
        generation: group.generation,
        protocol: group.protocol.clone(),
        leader: group.leader.as_deref().map(str::to_owned),
        current_state_timestamp: group.state_since_ms.unwrap_or(-1),
        members: members.collect(),
        ..GroupMetadataValue::default()
    };
    Record::GroupMetadata(GroupMetadataKey { group: id.to_owned() }, Some(value))
}

/// The record that deletes a group.
pub(crate) fn tombstone(id: &str) -> Record {
    Record::GroupMetadata(GroupMetadataKey { group: id.to_owned() }, None)
}

/// The group that a record describes: with members it is stable, and goes on from there.
pub(crate) fn to_group(value: &GroupMetadataValue) -> ClassicGroup {
    let state = if value.members.is_empty() { State::Empty } else { State::Stable };
    let mut group = ClassicGroup {
        state,
        previous_state: state,
        state_since_ms: Some(value.current_state_timestamp).filter(|since| *since != -1),
        protocol_type: Some(value.protocol_type.clone()).filter(|name| !name.is_empty()),
        protocol: value.protocol.clone(),
        generation: value.generation,
        leader: value.leader.as_deref().map(Into::into),
        ..ClassicGroup::default()
    };
    for member in &value.members {
        let rebalance_timeout_ms = match member.rebalance_timeout {
            -1 => member.session_timeout,
            given => given,
        };
        let offer = Offer {
            name: value.protocol.clone().unwrap_or_default(),
            metadata: member.subscription.clone(),
        };
        let new = NewMember {
            id: member.member_id.as_str().into(),
            instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms,
            session_timeout_ms: member.session_timeout,
            protocols: vec![offer],
            assignment: member.assignment.clone(),
        };
        group.add(new, &value.protocol_type, None);
    }
    group.subscribed = group.read_subscriptions();
    group
}
