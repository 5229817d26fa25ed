//! LeaveGroup in single requests and batches, and what remains.

use protocol::messages::{
    DeleteGroupsRequest, HeartbeatRequest, LeaveGroupRequest, ListGroupsRequest,
};

use crate::common::world;
use crate::{G, Steps, joining, joining_static, syncing};

fn single(group: &str, member: &str) -> LeaveGroupRequest {
    LeaveGroupRequest { group_id: group.into(), member_id: member.into(), ..Default::default() }
}

#[test]
fn the_last_member_leaves_an_empty_group_one_generation_on() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    assert_eq!(
        world.leave(&[(&id, None), ("zz", None), ("", Some("i")), (&id, None)]),
        [0, 25, 25, 25]
    );
    assert_eq!(world.describe(), ("Empty".into(), String::new(), vec![]));
    let listed = world.call(5, ListGroupsRequest::default()).groups.remove(0);
    assert_eq!((listed.protocol_type.as_str(), listed.group_state.as_str()), ("consumer", "Empty"));
    let (_, value) = world.last_record().encode().expect("writable");
    let mut expected = b"\0\x03\0\x08consumer\0\0\0\x02\xff\xff\xff\xff".to_vec();
    expected.extend(world.now_ms().to_be_bytes());
    expected.extend([0; 4]);
    assert_eq!(value.expect("a value"), expected);
    assert_eq!(world.beat(2, &id), 25);
    assert_eq!(world.call(5, syncing(2, &id, &[])).error_code, 25);
    assert_eq!(world.leave(&[("zz", None)]), [25]);
    assert_eq!(world.call(9, joining("zz")).error_code, 25);
    world.reload();
    let new = world.new_id();
    assert_eq!(world.join_all(&[&new])[0].generation_id, 3);
}

#[test]
fn the_answer_to_the_last_member_waits_for_the_log() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    world.set_high_watermark(Some(world.log.len() as i64));
    let token = world.send(2, single(G, &id));
    assert!(world.answers.is_empty());
    world.set_high_watermark(None);
    assert_eq!(world.take::<LeaveGroupRequest>(2, token).expect("answered").error_code, 0);
}

#[test]
fn errors_of_single_requests_are_those_of_the_whole_answer() {
    let mut world = world();
    let ids = world.stable(2);
    for version in 0..3 {
        assert_eq!(world.call(version, single("", "x")).error_code, 24);
        assert_eq!(world.call(version, single("nope", "x")).error_code, 25);
        assert_eq!(world.call(version, single(G, "x")).error_code, 25);
    }
    assert_eq!(world.call(2, single(G, &ids[1])).error_code, 0);
    assert_eq!(world.call(5, single("", "")).error_code, 24);
    let request = LeaveGroupRequest {
        group_id: "nope".into(),
        members: vec![Default::default(), Default::default()],
        ..Default::default()
    };
    let response = world.call(5, request);
    assert_eq!((response.error_code, response.members.len()), (0, 2));
    assert!(response.members.iter().all(|member| member.error_code == 25));
}

#[test]
fn the_others_are_rebalanced_and_a_leaving_leader_is_followed() {
    let mut world = world();
    let ids = world.stable(3);
    assert_eq!(world.leave(&[(&ids[0], None)]), [0]);
    assert_eq!((world.beat(1, &ids[1]), world.beat(1, &ids[0])), (27, 25));
    let joined = world.join_all(&[&ids[1], &ids[2]]);
    assert!(ids[1..].contains(&joined[0].leader));
    assert_eq!(joined[0].generation_id, 2);
}

#[test]
fn a_member_that_leaves_while_its_requests_wait_is_told_that_it_is_unknown() {
    let mut world = world();
    let ids = world.stable(2);
    let join = world.send(9, joining(&ids[0]));
    assert_eq!(world.leave(&[(&ids[0], None)]), [0]);
    let response = world.joined(join).expect("answered");
    assert_eq!((response.error_code, response.member_id.as_str()), (25, ""));
    let joined = world.join_all(&[&ids[1]]);
    let new = world.new_id();
    assert_eq!(joined[0].members.len(), 1);
    let join = world.send(9, joining(&new));
    let again = world.send(9, joining(&ids[1]));
    assert!(world.joined(join).is_some() && world.joined(again).is_some());
    let sync = world.send(5, syncing(3, &new, &[]));
    world.leave(&[(&new, None)]);
    assert_eq!(world.synced(sync).expect("answered").error_code, 25);
}

#[test]
fn the_last_one_to_be_waited_for_may_leave_instead() {
    let mut world = world();
    let ids = world.stable(2);
    let join = world.send(9, joining(&ids[0]));
    assert!(world.joined(join).is_none());
    world.leave(&[(&ids[1], None)]);
    assert_eq!(world.joined(join).expect("joined").generation_id, 2);
}

#[test]
fn an_id_that_never_joined_leaves_too() {
    let mut world = world();
    let ids = world.stable(1);
    let pending = world.new_id();
    let join = world.send(9, joining(&ids[0]));
    assert!(world.joined(join).is_none(), "the pending id is waited for");
    assert_eq!(world.leave(&[(&pending, None)]), [0]);
    assert_eq!(world.joined(join).expect("joined").generation_id, 2);
}

#[test]
fn a_static_member_is_removed_by_its_instance_alone() {
    let mut world = world();
    let join = world.send(9, joining_static("", "i1"));
    world.pass_ms(300);
    let id = world.joined(join).expect("joined").member_id;
    assert!(id.starts_with("i1-"));
    assert_eq!(world.leave(&[(&id, Some("i2")), ("zz", Some("i1"))]), [25, 82]);
    assert_eq!(world.leave(&[("", Some("i1"))]), [0]);
    assert_eq!(world.state(), "Empty");
}

#[test]
fn a_group_with_members_is_not_deleted_and_an_empty_one_is() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    let delete = || DeleteGroupsRequest { groups_names: vec![G.into()], ..Default::default() };
    assert_eq!(world.call(2, delete()).results[0].error_code, 68);
    world.leave(&[(&id, None)]);
    assert_eq!(world.call(2, delete()).results[0].error_code, 0);
    assert_eq!(world.state(), "Dead");
    let request = HeartbeatRequest { group_id: String::new(), ..Default::default() };
    assert_eq!(world.call(4, request).error_code, 24);
}
