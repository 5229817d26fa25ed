//! Appends that fail: nobody is told what is not in the log.

use coordinator::fail_response;
use protocol::messages::{
    JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest, OffsetFetchResponse,
};
use protocol::{ErrorCode, ResponseBody};

use crate::common::world;
use crate::{G, Steps, joining, joining_static, syncing};

#[test]
fn a_group_that_cannot_be_written_is_not_there() {
    let mut world = world();
    world.failures.push_back(Some(ErrorCode::NotEnoughReplicas));
    let token = world.send(3, joining(""));
    let response = world.take::<JoinGroupRequest>(3, token).expect("refused");
    assert_eq!(response.error_code, 15);
    assert!(world.call(5, ListGroupsRequest::default()).groups.is_empty());
    world.pass_ms(20_000);
    assert!(world.answers.is_empty());
    // A dynamic member is given its id all the same, and finds out with the next request.
    world.failures.push_back(Some(ErrorCode::NotEnoughReplicas));
    let id = world.new_id();
    assert_eq!(world.call(9, joining(&id)).error_code, 25);
}

#[test]
fn an_assignment_that_cannot_be_written_is_nobodys() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let leader = joined[0].leader.clone();
    let follower = if leader == one { two } else { one };
    let waiting = world.send(5, syncing(1, &follower, &[]));
    world.failures.push_back(Some(ErrorCode::NotLeaderOrFollower));
    let own = world.call(5, syncing(1, &leader, &[(&leader, "A"), (&follower, "B")]));
    assert_eq!((own.error_code, own.assignment.len()), (16, 0));
    assert_eq!(world.synced(waiting).expect("answered").error_code, 16);
    assert_eq!(world.state(), "PreparingRebalance");
    assert!(world.describe().2.iter().all(|(_, assignment)| assignment.is_empty()));
    let joined = world.join_all(&[&leader, &follower]);
    assert_eq!(joined[0].generation_id, 2);
    world.sync_all(2, &joined);
}

#[test]
fn a_static_members_new_id_that_cannot_be_written_is_not_in_the_group() {
    let mut world = world();
    let token = world.send(9, joining_static("", "i1"));
    world.pass_ms(300);
    let joined = world.joined(token).expect("joined");
    let old = joined.member_id.clone();
    world.sync_all(1, &[joined]);
    world.failures.push_back(Some(ErrorCode::NotEnoughReplicas));
    let back = world.call(9, joining_static("", "i1"));
    assert_eq!((back.error_code, back.member_id.as_str()), (15, ""));
    assert_eq!(world.describe().2, [(old.clone(), old.to_uppercase())]);
    assert_eq!(world.beat(1, &old), 0);
    world.pass_ms(20_000);
    assert_eq!(world.state(), "Empty", "the sessions run on with the old id");
}

#[test]
fn an_empty_group_that_cannot_be_written_is_empty_all_the_same() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    world.failures.push_back(Some(ErrorCode::NotEnoughReplicas));
    let request =
        LeaveGroupRequest { group_id: G.into(), member_id: id.clone(), ..Default::default() };
    assert_eq!(world.call(2, request).error_code, 15);
    assert_eq!(world.state(), "Empty");
    // The log still has the member; a new coordinator waits for it, and loses it by its session.
    world.reload();
    assert_eq!(world.state(), "Stable");
    world.pass_ms(10_000);
    assert_eq!(world.state(), "Empty");
}

#[test]
fn answers_that_waited_for_the_watermark_can_be_turned_into_errors() {
    let error = ErrorCode::NotCoordinator;
    for version in 1..10 {
        let answer = ResponseBody::OffsetFetch(OffsetFetchResponse::default());
        let failed = fail_response(version, answer, error);
        assert!(failed.to_bytes(version).is_ok(), "version {version}");
    }
    let mut world = world();
    let ids = world.stable(1);
    world.set_high_watermark(Some(0));
    world.send(5, syncing(1, &ids[0], &[]));
    let parked = world.parked.remove(0);
    let ResponseBody::SyncGroup(failed) = fail_response(5, parked.response, error) else {
        panic!("another answer")
    };
    assert_eq!((failed.error_code, failed.assignment.len()), (16, 0));
}
