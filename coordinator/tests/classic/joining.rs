//! JoinGroup: ids, limits, protocols, rebalances.

use std::collections::BTreeSet;
use std::time::Duration;

use coordinator::{Record, ShardConfig};
use protocol::messages::{JoinGroupRequest, JoinGroupResponse, ListGroupsRequest};

use crate::common::{World, world};
use crate::{G, Steps, joining, joining_static, offers};

fn error(response: &JoinGroupResponse) -> (i16, &str, i32) {
    (response.error_code, &response.member_id, response.generation_id)
}

#[test]
fn a_request_that_cannot_be_right_is_refused_before_the_group_is_looked_for() {
    let mut world = world();
    let no_group = JoinGroupRequest { group_id: String::new(), ..joining("zz") };
    assert_eq!(error(&world.call(9, no_group)), (24, "zz", -1));
    for (version, timeout) in [(0, 1), (5, 5999), (6, 99_999_999), (9, -1)] {
        let request = JoinGroupRequest { session_timeout_ms: timeout, ..joining("zz") };
        let response = world.call(version, request);
        assert_eq!(error(&response), (26, "zz", -1));
        let name = if version < 7 { Some("") } else { None };
        assert_eq!(response.protocol_name.as_deref(), name, "version {version}");
    }
    assert_eq!(error(&world.call(9, joining("zz"))), (25, "zz", -1), "no such group");
    assert!(world.log.is_empty());
}

#[test]
fn a_dynamic_member_gets_its_id_first_and_joins_with_it() {
    let mut world = world();
    let token = world.send_as("kcat", 9, joining(""));
    let response = world.joined(token).expect("an answer at once");
    assert_eq!((response.error_code, response.generation_id), (79, -1));
    assert_eq!(response.member_id.len(), "kcat-".len() + 36);
    assert!(response.member_id.starts_with("kcat-"));
    // The group is in the log before anybody is in it.
    let (key, value) = world.last_record().encode().expect("writable");
    assert_eq!(&key[..], b"\0\x02\0\x01g");
    let mut expected = b"\0\x03\0\0\0\0\0\0\xff\xff\xff\xff".to_vec();
    expected.extend(world.now_ms().to_be_bytes());
    expected.extend([0; 4]);
    assert_eq!(value.expect("a value"), expected);
    assert_eq!(world.state(), "Empty");
    // Until it joins the id is good for nothing else.
    let id = response.member_id;
    assert_eq!(world.beat(0, &id), 25);
    assert_eq!(error(&world.call(9, joining_static(&id, "i1"))), (-1, "", -1));
    let token = world.send(9, joining(&id));
    assert_eq!(world.state(), "PreparingRebalance");
    assert_eq!((world.beat(0, &id), world.beat(1, &id)), (27, 22));
    assert_eq!(world.commit(0, &id), 0, "the old generation may still commit");
    assert!(world.joined(token).is_none());
    world.pass_ms(300);
    let response = world.joined(token).expect("the first rebalance has waited for its delay");
    assert_eq!((response.error_code, response.generation_id), (0, 1));
    assert_eq!((response.leader.as_str(), response.members.len()), (id.as_str(), 1));
    assert_eq!(response.protocol_name.as_deref(), Some("range"));
    assert_eq!(response.protocol_type.as_deref(), Some("consumer"));
    assert_eq!(world.state(), "CompletingRebalance");
    assert_eq!((world.beat(1, &id), world.beat(0, &id), world.beat(1, "zz")), (0, 22, 25));
    assert_eq!(world.commit(1, &id), 27);
}

#[test]
fn before_version_4_a_member_joins_at_once() {
    let mut world = world();
    for version in 0..4 {
        let token = world.send(version, joining(""));
        assert!(world.answers.is_empty());
        world.pass_ms(600);
        let response = world.take::<JoinGroupRequest>(version, token).expect("joined");
        assert_eq!((response.error_code, response.members.len()), (0, 1), "version {version}");
        assert_eq!(world.leave(&[(&response.member_id, None)]), [0]);
    }
}

#[test]
fn version_0_has_its_session_timeout_for_the_rebalance_too() {
    let mut world = world();
    let slow = JoinGroupRequest { session_timeout_ms: 7000, ..joining("") };
    let first = world.send(0, slow.clone());
    world.pass_ms(300);
    let first = world.take::<JoinGroupRequest>(0, first).expect("joined").member_id;
    let second = world.send(0, slow);
    world.pass_ms(6999);
    assert!(world.take::<JoinGroupRequest>(0, second).is_none());
    // The first has been silent for as long as its session lasts: it is dropped, the second goes on.
    world.pass_ms(1);
    let second = world.take::<JoinGroupRequest>(0, second).expect("joined");
    assert_eq!((second.generation_id, second.members.len()), (2, 1));
    assert_ne!(second.member_id, first);
}

#[test]
fn the_first_rebalance_waits_longer_while_members_come_but_no_longer_than_the_rebalance_timeout() {
    let mut world = world();
    let ids: Vec<String> = (0..40).map(|_| world.new_id()).collect();
    let mut tokens = Vec::new();
    for id in &ids {
        let request = JoinGroupRequest { rebalance_timeout_ms: 2000, ..joining(id) };
        tokens.push(world.send(9, request));
        world.pass_ms(100);
        if world.state() == "CompletingRebalance" {
            break;
        }
    }
    assert!((19..=21).contains(&tokens.len()), "{} members in 2 s", tokens.len());
    let leader = world.joined(tokens[0]).expect("joined");
    assert_eq!(leader.generation_id, 1);
    assert!(leader.members.len() >= 19);
}

#[test]
fn members_that_share_no_protocol_or_type_are_refused() {
    let mut world = world();
    for request in [
        JoinGroupRequest { protocols: Vec::new(), ..joining("") },
        JoinGroupRequest { protocol_type: String::new(), ..joining("") },
    ] {
        assert_eq!(error(&world.call(9, request)), (23, "", -1));
    }
    let listed = world.call(5, ListGroupsRequest::default()).groups;
    assert_eq!(listed.len(), 1, "the group was made all the same");
    let ids = world.stable(1);
    for request in [
        JoinGroupRequest { protocols: offers(&["zz"]), ..joining("") },
        JoinGroupRequest { protocol_type: "connect".into(), ..joining("") },
    ] {
        assert_eq!(error(&world.call(9, request)), (23, "", -1));
    }
    let request = JoinGroupRequest { protocols: offers(&["zz"]), ..joining(&ids[0]) };
    assert_eq!(error(&world.call(9, request)), (23, ids[0].as_str(), -1));
    assert_eq!(world.state(), "Stable");
}

#[test]
fn the_protocol_with_most_first_votes_among_the_common_ones_is_chosen() {
    let mut world = world();
    let ids = [world.new_id(), world.new_id(), world.new_id()];
    let prefer =
        |id: &str, names: &[&str]| JoinGroupRequest { protocols: offers(names), ..joining(id) };
    let tokens = [
        world.send(9, prefer(&ids[0], &["only-mine", "range", "sticky"])),
        world.send(9, prefer(&ids[1], &["sticky", "range"])),
        world.send(9, prefer(&ids[2], &["sticky", "range"])),
    ];
    world.pass_ms(1000);
    for token in tokens {
        let response = world.joined(token).expect("joined");
        assert_eq!(response.protocol_name.as_deref(), Some("sticky"));
    }
}

#[test]
fn a_group_at_its_largest_size_refuses_new_members_and_keeps_its_own() {
    let config = ShardConfig {
        max_size: 2,
        initial_rebalance_delay: Duration::from_millis(300),
        ..ShardConfig::default()
    };
    let mut world = World::new(config);
    let ids = world.stable(2);
    assert_eq!(error(&world.call(9, joining(""))), (81, "", -1));
    // Ids are given out without regard to the size while nothing is known of the others.
    let tokens: Vec<u64> = ids.iter().map(|id| world.send(9, joining(id))).collect();
    let generations: Vec<i32> =
        tokens.iter().map(|t| world.joined(*t).map_or(0, |joined| joined.generation_id)).collect();
    assert_eq!(generations, [2, 2]);
}

#[test]
fn a_member_that_has_changed_nothing_is_told_the_generation_again() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let (leader, follower) =
        (joined[0].leader.clone(), if joined[0].leader == one { two } else { one });
    for version in [6, 9] {
        let again = world.call(version, joining(&leader));
        assert_eq!((again.error_code, again.generation_id, again.members.len()), (0, 1, 2));
        let again = world.call(version, joining(&follower));
        assert_eq!((again.generation_id, again.members.len()), (1, 0));
    }
    world.sync_all(1, &joined);
    let again = world.call(9, joining(&follower));
    assert_eq!((again.generation_id, again.leader.as_str()), (1, leader.as_str()));
    assert_eq!(world.state(), "Stable");
}

#[test]
fn the_leader_of_a_stable_group_and_a_member_that_changes_its_offer_begin_a_rebalance() {
    let mut world = world();
    let ids = world.stable(2);
    for (round, changed) in [(1, false), (2, true)] {
        let mut request = joining(&ids[usize::from(changed)]);
        if changed {
            request.protocols[0].metadata = bytes::Bytes::from_static(b"other");
        }
        let first =
            world.send(9, JoinGroupRequest { reason: Some("why".into()), ..request.clone() });
        assert!(world.joined(first).is_none());
        assert_eq!(world.state(), "PreparingRebalance");
        let other = &ids[usize::from(!changed)];
        assert_eq!(world.beat(round, other), 27);
        let second = world.send(9, joining(other));
        let joined =
            [world.joined(first), world.joined(second)].map(|joined| joined.expect("all joined"));
        assert_eq!(joined[0].generation_id, round + 1);
        world.sync_all(round + 1, &joined);
    }
}

#[test]
fn a_new_member_of_a_stable_group_waits_for_the_others() {
    let mut world = world();
    let ids = world.stable(2);
    let new = world.new_id();
    assert_eq!(world.state(), "Stable", "an id alone changes nothing");
    let newcomer = world.send(9, joining(&new));
    let others = [world.send(9, joining(&ids[0])), world.send(9, joining(&ids[1]))];
    let response = world.joined(newcomer).expect("all have joined");
    assert_eq!((response.generation_id, response.leader.as_str()), (2, ids[0].as_str()));
    let listed: BTreeSet<String> = world
        .joined(others[0])
        .map(|leader| leader.members.into_iter().map(|member| member.member_id).collect())
        .expect("joined");
    assert_eq!(listed, BTreeSet::from([ids[0].clone(), ids[1].clone(), new]));
}

#[test]
fn a_second_join_of_a_member_takes_the_place_of_the_one_that_waits() {
    let mut world = world();
    let id = world.new_id();
    let first = world.send(9, joining(&id));
    let second = world.send(9, joining(&id));
    assert_eq!(world.joined(first).expect("answered").error_code, 27);
    world.pass_ms(1000);
    assert_eq!(world.joined(second).expect("joined").generation_id, 1);
}

#[test]
fn a_reloaded_group_goes_on_with_its_members_and_generation() {
    let mut world = world();
    let ids = world.stable(2);
    let before = world.describe();
    let waiting = world.send(9, joining(&ids[0]));
    world.reload();
    assert_eq!(world.joined(waiting).expect("answered").error_code, 16);
    assert_eq!(world.describe(), before);
    assert_eq!((world.beat(1, &ids[0]), world.beat(1, &ids[1])), (0, 0));
    assert_eq!(world.commit(1, &ids[1]), 0);
    let joined = world.join_all(&[&ids[0], &ids[1]]);
    assert_eq!(joined[0].generation_id, 2);
    let Record::GroupMetadata(key, Some(value)) = &world.log[1].0 else { panic!("not a group") };
    assert_eq!((key.group.as_str(), value.generation), (G, 1));
}

#[test]
fn a_loaded_group_beyond_the_largest_size_is_rebalanced_and_loses_the_last() {
    let mut world = world();
    let ids = world.stable(3);
    world.config.max_size = 2;
    world.reload();
    assert_eq!(world.state(), "PreparingRebalance");
    let tokens: Vec<u64> = ids.iter().map(|id| world.send(9, joining(id))).collect();
    assert_eq!(world.joined(tokens[2]).expect("refused").error_code, 81);
    // The one that was refused is not waited for any more, but Kafka looks again only in time.
    world.pass_ms(10_000);
    assert_eq!(world.joined(tokens[0]).expect("joined").members.len(), 2);
}
