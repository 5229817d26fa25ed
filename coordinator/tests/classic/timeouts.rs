//! Sessions, rebalance timeouts, and members that never come.

use std::time::Duration;

use coordinator::ShardConfig;
use protocol::messages::JoinGroupRequest;

use crate::common::{World, world};
use crate::{Steps, joining, syncing};

#[test]
fn a_silent_member_is_dropped_when_its_session_ends() {
    let mut world = world();
    let ids = world.stable(2);
    assert_eq!((world.beat(1, &ids[0]), world.beat(1, &ids[1])), (0, 0));
    world.pass_ms(9_999);
    assert_eq!(world.beat(1, &ids[0]), 0);
    world.pass_ms(1);
    assert_eq!(world.beat(1, &ids[0]), 27);
    assert_eq!(world.beat(1, &ids[1]), 25);
    world.pass_ms(10_000);
    assert_eq!(world.state(), "Empty");
}

#[test]
fn a_commit_is_a_sign_of_life() {
    let mut world = world();
    let ids = world.stable(2);
    for _ in 0..5 {
        world.pass_ms(6_000);
        assert_eq!((world.commit(1, &ids[0]), world.beat(1, &ids[1])), (0, 0));
    }
    assert_eq!(world.state(), "Stable");
}

#[test]
fn an_id_that_does_not_join_is_forgotten_after_its_session_timeout() {
    let mut world = world();
    let ids = world.stable(1);
    let pending = world.new_id();
    world.pass_ms(5_000);
    let join = world.send(9, joining(&ids[0]));
    assert!(world.joined(join).is_none(), "the pending id is waited for");
    world.pass_ms(5_000);
    assert_eq!(world.joined(join).expect("joined").generation_id, 2);
    assert_eq!(world.call(9, joining(&pending)).error_code, 25);
}

#[test]
fn members_that_do_not_come_to_a_rebalance_are_dropped_with_its_timeout() {
    let mut world = world();
    let ids = world.stable(3);
    let join = world.send(9, joining(&ids[1]));
    let change = JoinGroupRequest { reason: Some("changed".into()), ..joining(&ids[0]) };
    let leader = world.send(9, change);
    assert!(world.joined(join).is_some(), "a follower that changed nothing is told again");
    let again = world.send(9, joining(&ids[1]));
    for _ in 0..9 {
        world.pass_ms(1_000);
        assert_eq!(world.beat(1, &ids[2]), 27, "it is alive, but does not join");
    }
    world.pass_ms(1_000);
    assert_eq!(world.joined(leader).expect("joined").members.len(), 2);
    assert_eq!(world.joined(again).expect("joined").generation_id, 2);
    assert_eq!(world.beat(2, &ids[2]), 25);
}

#[test]
fn a_leader_that_does_not_come_back_is_followed_by_a_member_that_has() {
    let mut world = world();
    let ids = world.stable(2);
    let new = world.new_id();
    let tokens = [world.send(9, joining(&new)), world.send(9, joining(&ids[1]))];
    world.pass_ms(10_000);
    let joined = tokens.map(|token| world.joined(token).expect("joined"));
    assert_ne!(joined[0].leader, ids[0]);
    assert_eq!(joined.iter().filter(|response| response.members.len() == 2).count(), 1);
}

#[test]
fn members_that_do_not_ask_for_their_assignment_are_dropped() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let leader = joined[0].leader.clone();
    let follower = if leader == one { two } else { one };
    world.call(5, syncing(1, &leader, &[]));
    for _ in 0..4 {
        world.pass_ms(2_000);
        assert_eq!((world.beat(1, &leader), world.beat(1, &follower)), (0, 0));
    }
    world.pass_ms(2_000);
    assert_eq!((world.beat(1, &leader), world.beat(1, &follower)), (27, 25));
}

#[test]
fn a_leader_that_never_assigns_is_dropped_and_the_others_go_on() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let leader = joined[0].leader.clone();
    let follower = if leader == one { two } else { one };
    let sync = world.send(5, syncing(1, &follower, &[]));
    world.pass_ms(10_000);
    assert_eq!(world.synced(sync).expect("answered").error_code, 27);
    assert_eq!(world.beat(1, &leader), 25);
    assert_eq!(world.join_all(&[&follower])[0].leader, follower);
}

#[test]
fn a_new_member_whose_client_is_gone_is_dropped_after_a_while() {
    let mut world = World::new(ShardConfig {
        initial_rebalance_delay: Duration::from_millis(300),
        new_member_timeout: Duration::from_secs(5),
        ..ShardConfig::default()
    });
    let ids = world.stable(1);
    let new = world.new_id();
    let slow = JoinGroupRequest { rebalance_timeout_ms: 60_000, ..joining(&new) };
    let token = world.send(9, slow);
    for _ in 0..5 {
        world.pass_ms(1_000);
        assert_eq!(world.beat(1, &ids[0]), 27);
    }
    assert_eq!(world.joined(token).expect("answered").error_code, 25);
}

#[test]
fn sessions_begin_anew_with_a_new_coordinator() {
    let mut world = world();
    let ids = world.stable(2);
    world.pass_ms(9_000);
    world.reload();
    world.pass_ms(9_000);
    assert_eq!(world.beat(1, &ids[0]), 0);
    world.pass_ms(2_000);
    assert_eq!((world.beat(1, &ids[0]), world.beat(1, &ids[1])), (27, 25));
}
