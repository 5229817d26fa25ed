//! The classic group protocol, call by call as Kafka 4.4.0 answers: the expected answers were taken from
//! it with the same requests.

#[path = "../common/mod.rs"]
mod common;
mod failures;
mod joining;
mod leaving;
mod statics;
mod syncing;
mod timeouts;

use bytes::Bytes;
use common::World;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, SyncGroupRequest, SyncGroupResponse,
};

/// The group of most tests.
pub(crate) const G: &str = "g";
/// A subscription to topic t1.
pub(crate) const T1: &[u8] = b"\0\0\0\0\0\x01\0\x02t1\xff\xff\xff\xff";

/// A JoinGroup of a consumer with 10 s of session and rebalance timeout, offering `range`.
pub(crate) fn joining(member: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: G.into(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member.into(),
        protocol_type: "consumer".into(),
        protocols: offers(&["range"]),
        ..Default::default()
    }
}

pub(crate) fn offers(names: &[&str]) -> Vec<JoinGroupRequestProtocol> {
    let offers = names.iter().map(|name| JoinGroupRequestProtocol {
        name: (*name).to_owned(),
        metadata: Bytes::from_static(T1),
        ..Default::default()
    });
    offers.collect()
}

pub(crate) fn joining_static(member: &str, instance: &str) -> JoinGroupRequest {
    JoinGroupRequest { group_instance_id: Some(instance.into()), ..joining(member) }
}

pub(crate) fn syncing(
    generation: i32,
    member: &str,
    assigned: &[(&str, &str)],
) -> SyncGroupRequest {
    let assignments = assigned.iter().map(|(member, bytes)| SyncGroupRequestAssignment {
        member_id: (*member).to_owned(),
        assignment: Bytes::copy_from_slice(bytes.as_bytes()),
        ..Default::default()
    });
    SyncGroupRequest {
        group_id: G.into(),
        generation_id: generation,
        member_id: member.into(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assignments.collect(),
        ..Default::default()
    }
}

pub(crate) trait Steps {
    /// An id for a new dynamic member.
    fn new_id(&mut self) -> String;
    /// Members with these ids join together; their answers, in the same order.
    fn join_all(&mut self, members: &[&str]) -> Vec<JoinGroupResponse>;
    /// The leader assigns each member its own id in capitals; then all ask for theirs.
    fn sync_all(&mut self, generation: i32, joined: &[JoinGroupResponse]);
    /// A stable group with so many dynamic members: generation 1, the leader first.
    fn stable(&mut self, size: usize) -> Vec<String>;
    fn joined(&mut self, token: u64) -> Option<JoinGroupResponse>;
    fn synced(&mut self, token: u64) -> Option<SyncGroupResponse>;
    /// The error code of a heartbeat.
    fn beat(&mut self, generation: i32, member: &str) -> i16;
    /// The error code of a commit.
    fn commit(&mut self, generation: i32, member: &str) -> i16;
    /// The error codes of a LeaveGroup.
    fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<i16>;
    /// State, protocol, and the members' ids and assignments.
    fn describe(&mut self) -> (String, String, Vec<(String, String)>);
    fn state(&mut self) -> String;
}

impl Steps for World {
    fn new_id(&mut self) -> String {
        let response = self.call(9, joining(""));
        assert_eq!(response.error_code, 79);
        response.member_id
    }

    fn join_all(&mut self, members: &[&str]) -> Vec<JoinGroupResponse> {
        let tokens: Vec<u64> = members.iter().map(|id| self.send(9, joining(id))).collect();
        self.pass_ms(2000);
        tokens.into_iter().map(|token| self.joined(token).expect("joined")).collect()
    }

    fn sync_all(&mut self, generation: i32, joined: &[JoinGroupResponse]) {
        let leader = joined[0].leader.clone();
        let ids: Vec<String> = joined.iter().map(|response| response.member_id.clone()).collect();
        let assigned: Vec<(String, String)> =
            ids.iter().map(|id| (id.clone(), id.to_uppercase())).collect();
        let assigned: Vec<(&str, &str)> =
            assigned.iter().map(|(id, bytes)| (id.as_str(), bytes.as_str())).collect();
        let own = self.send(5, syncing(generation, &leader, &assigned));
        assert_eq!(self.synced(own).expect("synced").error_code, 0);
        for id in ids.iter().filter(|id| **id != leader) {
            let response = self.call(5, syncing(generation, id, &[]));
            assert_eq!(response.assignment, id.to_uppercase().as_bytes());
        }
    }

    fn stable(&mut self, size: usize) -> Vec<String> {
        let ids: Vec<String> = (0..size).map(|_| self.new_id()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let joined = self.join_all(&ids);
        self.sync_all(1, &joined);
        let leader = joined[0].leader.clone();
        let mut all = vec![leader.clone()];
        all.extend(ids.iter().filter(|id| **id != leader).map(|id| (*id).to_owned()));
        all
    }

    fn joined(&mut self, token: u64) -> Option<JoinGroupResponse> {
        self.take::<JoinGroupRequest>(9, token)
    }

    fn synced(&mut self, token: u64) -> Option<SyncGroupResponse> {
        self.take::<SyncGroupRequest>(5, token)
    }

    fn beat(&mut self, generation: i32, member: &str) -> i16 {
        let request = HeartbeatRequest {
            group_id: G.into(),
            generation_id: generation,
            member_id: member.into(),
            ..Default::default()
        };
        self.call(4, request).error_code
    }

    fn commit(&mut self, generation: i32, member: &str) -> i16 {
        let partition = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
        let topic = OffsetCommitRequestTopic {
            name: "t1".into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: G.into(),
            generation_id_or_member_epoch: generation,
            member_id: member.into(),
            topics: vec![topic],
            ..Default::default()
        };
        self.call(9, request).topics[0].partitions[0].error_code
    }

    fn leave(&mut self, members: &[(&str, Option<&str>)]) -> Vec<i16> {
        let members = members.iter().map(|(id, instance)| MemberIdentity {
            member_id: (*id).to_owned(),
            group_instance_id: instance.map(str::to_owned),
            reason: Some("tired".into()),
            ..Default::default()
        });
        let request = LeaveGroupRequest {
            group_id: G.into(),
            members: members.collect(),
            ..Default::default()
        };
        let response = self.call(5, request);
        assert_eq!(response.error_code, 0);
        response.members.iter().map(|member| member.error_code).collect()
    }

    fn describe(&mut self) -> (String, String, Vec<(String, String)>) {
        let request = DescribeGroupsRequest { groups: vec![G.into()], ..Default::default() };
        let group = self.call(6, request).groups.remove(0);
        let members = group.members.into_iter().map(|member| {
            (member.member_id, String::from_utf8_lossy(&member.member_assignment).into_owned())
        });
        (group.group_state, group.protocol_data, members.collect())
    }

    fn state(&mut self) -> String {
        self.describe().0
    }
}
