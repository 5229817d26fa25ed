//! Static members (KIP-345): they come back to their place, and fence who they were before.

use protocol::messages::{HeartbeatRequest, JoinGroupRequest};

use crate::common::{World, world};
use crate::{G, Steps, joining, joining_static, offers, syncing};

/// A stable group of a dynamic leader and the static member `i1`: their ids.
fn leader_and_static(world: &mut World) -> (String, String) {
    let leader = world.new_id();
    let tokens = [world.send(9, joining(&leader)), world.send(9, joining_static("", "i1"))];
    world.pass_ms(1000);
    let joined = tokens.map(|token| world.joined(token).expect("joined"));
    assert_eq!(joined[1].leader, leader);
    world.sync_all(1, &joined);
    (leader, joined[1].member_id.clone())
}

fn static_beat(world: &mut World, member: &str) -> i16 {
    let request = HeartbeatRequest {
        group_id: G.into(),
        generation_id: 1,
        member_id: member.into(),
        group_instance_id: Some("i1".into()),
        ..Default::default()
    };
    world.call(4, request).error_code
}

#[test]
fn a_restarted_follower_takes_its_place_without_a_rebalance() {
    let mut world = world();
    let (leader, old) = leader_and_static(&mut world);
    for version in [9, 5] {
        let token = world.send(version, joining_static("", "i1"));
        let response = world.take::<JoinGroupRequest>(version, token).expect("joined at once");
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!((response.leader.as_str(), response.skip_assignment), (leader.as_str(), false));
        assert!(response.members.is_empty());
        assert_ne!(response.member_id, old);
        let sync = world.call(
            3,
            protocol::messages::SyncGroupRequest {
                group_instance_id: Some("i1".into()),
                ..syncing(1, &response.member_id, &[])
            },
        );
        assert_eq!(sync.assignment, old.to_uppercase().as_bytes());
        assert_eq!(static_beat(&mut world, &response.member_id), 0);
    }
    assert_eq!(world.state(), "Stable");
    // Who has the old id is fenced, if it says which instance it is.
    assert_eq!((static_beat(&mut world, &old), world.beat(1, &old)), (82, 25));
    let fenced = world.call(9, joining_static(&old, "i1"));
    assert_eq!((fenced.error_code, fenced.member_id.as_str()), (82, old.as_str()));
    assert_eq!(world.leave(&[(&old, Some("i1"))]), [82]);
    world.reload();
    assert_eq!(world.describe().2.len(), 2);
    assert_eq!(static_beat(&mut world, &old), 82);
}

#[test]
fn a_restarted_leader_is_told_to_skip_the_assignment_if_its_version_can() {
    let mut world = world();
    let token = world.send(9, joining_static("", "i1"));
    world.pass_ms(300);
    let joined = world.joined(token).expect("joined");
    let old = joined.member_id.clone();
    world.sync_all(1, &[joined]);
    let back = world.call(9, joining_static("", "i1"));
    assert_eq!((back.skip_assignment, back.members.len()), (true, 1));
    assert_eq!(back.leader, back.member_id);
    // An older version would assign anew: it is told that somebody else leads.
    let token = world.send(8, joining_static("", "i1"));
    let older = world.take::<JoinGroupRequest>(8, token).expect("joined");
    assert_eq!((older.leader.as_str(), older.members.len()), (back.member_id.as_str(), 0));
    assert_ne!(older.leader, old);
}

#[test]
fn a_restarted_member_with_other_protocols_begins_a_rebalance_if_the_choice_changes() {
    let mut world = world();
    let offer =
        |id: &str, names: &[&str]| JoinGroupRequest { protocols: offers(names), ..joining(id) };
    let leader = world.new_id();
    let of_static =
        |names: &[&str]| JoinGroupRequest { protocols: offers(names), ..joining_static("", "i1") };
    let tokens = [
        world.send(9, offer(&leader, &["range", "sticky"])),
        world.send(9, of_static(&["range", "sticky"])),
    ];
    world.pass_ms(1000);
    let joined = tokens.map(|token| world.joined(token).expect("joined"));
    world.sync_all(1, &joined);
    let back = world.send(9, of_static(&["sticky"]));
    assert!(world.joined(back).is_none());
    assert_eq!((world.state().as_str(), world.beat(1, &leader)), ("PreparingRebalance", 27));
    let again = world.send(9, offer(&leader, &["range", "sticky"]));
    assert_eq!(world.joined(back).expect("joined").protocol_name.as_deref(), Some("sticky"));
    assert_eq!(world.joined(again).expect("joined").generation_id, 2);
}

#[test]
fn a_restart_before_the_assignment_begins_the_rebalance_anew() {
    let mut world = world();
    let leader = world.new_id();
    let tokens = [world.send(9, joining(&leader)), world.send(9, joining_static("", "i1"))];
    world.pass_ms(1000);
    let old = tokens.map(|token| world.joined(token).expect("joined"))[1].member_id.clone();
    let mut request = syncing(1, &old, &[]);
    request.group_instance_id = Some("i1".into());
    let old_sync = world.send(5, request);
    let back = world.send(9, joining_static("", "i1"));
    assert_eq!(world.synced(old_sync).expect("answered").error_code, 82);
    assert_eq!(world.call(5, syncing(1, &leader, &[])).error_code, 27);
    let again = world.send(9, joining(&leader));
    assert_eq!(world.joined(back).expect("joined").generation_id, 2);
    assert_eq!(world.joined(again).expect("joined").members.len(), 2);
}

#[test]
fn a_static_member_that_does_not_come_to_a_rebalance_keeps_its_place_until_its_session_ends() {
    let mut world = world();
    let (leader, old) = leader_and_static(&mut world);
    let long = JoinGroupRequest { session_timeout_ms: 60_000, ..joining_static(&old, "i1") };
    let tokens = [world.send(9, joining(&leader)), world.send(9, long)];
    let joined = tokens.map(|token| world.joined(token).expect("joined"));
    world.sync_all(2, &joined);
    let again = world.send(9, joining(&leader));
    world.pass_ms(9_999);
    assert!(world.joined(again).is_none());
    world.pass_ms(1);
    let response = world.joined(again).expect("joined");
    assert_eq!((response.generation_id, response.members.len()), (3, 2));
    // It did not ask for its assignment either: with that time it is dropped.
    world.call(5, syncing(3, &leader, &[(&leader, "A")]));
    for _ in 0..12 {
        world.beat(3, &leader);
        world.pass_ms(1000);
    }
    assert_eq!(world.beat(3, &leader), 27);
    assert_eq!(world.describe().2.len(), 1);
}

#[test]
fn a_second_instance_of_the_same_name_fences_the_first_while_it_waits() {
    let mut world = world();
    let first = world.send(9, joining_static("", "i1"));
    let second = world.send(9, joining_static("", "i1"));
    let fenced = world.joined(first).expect("answered");
    assert_eq!((fenced.error_code, fenced.member_id.starts_with("i1-")), (82, true));
    world.pass_ms(1000);
    assert_eq!(world.joined(second).expect("joined").members.len(), 1);
}

#[test]
fn a_rebalance_timeout_of_nothing_does_not_keep_the_coordinator_busy() {
    let mut world = world();
    let hasty = || JoinGroupRequest { rebalance_timeout_ms: 0, ..joining_static("", "i1") };
    let token = world.send(9, hasty());
    world.pass_ms(300);
    let joined = world.joined(token).expect("joined");
    let id = joined.member_id.clone();
    // Both are dropped at once for not having asked for their assignment in no time.
    assert_eq!(world.beat(1, &id), 25);
    let leader = world.new_id();
    let tokens = [
        world.send(9, JoinGroupRequest { rebalance_timeout_ms: 0, ..joining(&leader) }),
        world.send(9, hasty()),
    ];
    world.pass_ms(5_000);
    assert!(tokens.into_iter().all(|token| world.joined(token).is_some()));
    assert_eq!(world.state(), "Empty");
}
