//! Offsets of groups with members (KIP-211): what a member reads never expires, what nobody reads does,
//! whichever protocol the members speak.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::World;
use coordinator::ShardConfig;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};

const GROUP: &str = "g";
const MINUTE_MS: u64 = 60_000;

fn world() -> World {
    let minutes = |count: u64| Duration::from_millis(count * MINUTE_MS);
    let mut world = World::new(ShardConfig {
        initial_rebalance_delay: Duration::ZERO,
        consumer_session_timeout: minutes(30),
        consumer_max_session_timeout: minutes(30),
        offsets_retention: minutes(600),
        offsets_retention_check_interval: minutes(60),
        ..ShardConfig::default()
    });
    world.topics.create("t2", 2, 1);
    world
}

/// Commits both topics as this member.
fn commit(world: &mut World, member_id: &str, epoch: i32) {
    let topic = |name: &str| OffsetCommitRequestTopic {
        name: name.into(),
        partitions: vec![OffsetCommitRequestPartition {
            committed_offset: 5,
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: GROUP.into(),
        member_id: member_id.into(),
        generation_id_or_member_epoch: epoch,
        topics: vec![topic("t1"), topic("t2")],
        ..Default::default()
    };
    let response = world.call(9, request);
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    assert!(partitions.clone().count() == 2 && partitions.clone().all(|p| p.error_code == 0));
}

fn topics_with_offsets(world: &mut World) -> Vec<String> {
    let group =
        OffsetFetchRequestGroup { group_id: GROUP.into(), topics: None, ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let response = world.call(9, request);
    response.groups[0].topics.iter().map(|topic| topic.name.clone()).collect()
}

/// Eleven hours of a member that is heard every ten minutes: longer than the retention.
fn live_on(world: &mut World, mut heartbeat: impl FnMut(&mut World)) {
    for _ in 0..66 {
        world.pass_ms(10 * MINUTE_MS);
        heartbeat(world);
    }
}

/// What is left of the offsets of a classic group with a member that lives on.
fn left_to_classic(protocol_type: &str, metadata: &'static [u8]) -> Vec<String> {
    let mut world = world();
    let metadata = Bytes::from_static(metadata);
    let mut join = JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 1_800_000,
        rebalance_timeout_ms: 1000,
        protocol_type: protocol_type.into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata,
            ..Default::default()
        }],
        ..Default::default()
    };
    join.member_id = world.call(9, join.clone()).member_id;
    let token = world.send(9, join.clone());
    world.pass_ms(10);
    let joined = world.take::<JoinGroupRequest>(9, token).expect("alone, it is joined at once");
    let (member, generation) = (joined.member_id, joined.generation_id);
    let assignment = SyncGroupRequestAssignment { member_id: member.clone(), ..Default::default() };
    let sync = SyncGroupRequest {
        group_id: GROUP.into(),
        generation_id: generation,
        member_id: member.clone(),
        assignments: vec![assignment],
        ..Default::default()
    };
    assert_eq!(world.call(4, sync).error_code, 0);
    commit(&mut world, &member, generation);
    live_on(&mut world, |world| {
        let request = HeartbeatRequest {
            group_id: GROUP.into(),
            generation_id: generation,
            member_id: member.clone(),
            ..Default::default()
        };
        assert_eq!(world.call(4, request).error_code, 0);
    });
    topics_with_offsets(&mut world)
}

#[test]
fn what_a_classic_consumer_reads_does_not_expire_and_the_rest_of_the_group_does() {
    // A subscription to t1 in version 0.
    let metadata = b"\0\0\0\0\0\x01\0\x02t1\xff\xff\xff\xff";
    assert_eq!(left_to_classic("consumer", metadata), ["t1"]);
}

#[test]
fn nothing_expires_in_a_classic_group_whose_members_do_not_say_what_they_read() {
    assert_eq!(left_to_classic("connect", b"anything"), ["t1", "t2"]);
    assert_eq!(left_to_classic("consumer", b"?"), ["t1", "t2"]);
}

#[test]
fn what_a_member_of_the_new_protocol_reads_does_not_expire_and_the_rest_of_the_group_does() {
    let mut world = world();
    let first = ConsumerGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 1000,
        subscribed_topic_names: Some(vec!["t1".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let epoch = world.call(1, first).member_epoch;
    commit(&mut world, "m", epoch);
    live_on(&mut world, |world| {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: "m".into(),
            member_epoch: epoch,
            rebalance_timeout_ms: -1,
            ..Default::default()
        };
        assert_eq!(world.call(1, request).error_code, 0);
    });
    assert_eq!(topics_with_offsets(&mut world), ["t1"]);
}
