//! SyncGroup: who may ask, when the assignment comes, and what is in the log.

use coordinator::Record;
use protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use protocol::messages::{OffsetDeleteRequest, SyncGroupRequest};

use crate::common::world;
use crate::{G, Steps, joining, syncing};

#[test]
fn requests_that_do_not_fit_the_generation_are_refused() {
    let mut world = world();
    let id = world.new_id();
    assert_eq!(world.call(5, syncing(0, &id, &[])).error_code, 25, "empty group");
    let join = world.send(9, joining(&id));
    assert_eq!(world.call(5, syncing(0, &id, &[])).error_code, 27);
    world.pass_ms(300);
    assert!(world.joined(join).is_some());
    let wrong = |change: fn(&mut SyncGroupRequest)| {
        let mut request = syncing(1, "", &[]);
        change(&mut request);
        request
    };
    let cases: [(SyncGroupRequest, i16); 7] = [
        (wrong(|r| r.protocol_name = Some("zz".into())), 23),
        (wrong(|r| r.protocol_type = Some("zz".into())), 23),
        (wrong(|r| r.protocol_name = None), 23),
        (wrong(|r| r.generation_id = 2), 22),
        (wrong(|r| r.group_instance_id = Some("q".into())), 25),
        (wrong(|r| r.group_id = "nope".into()), 25),
        (wrong(|r| r.group_id = String::new()), 24),
    ];
    for (mut request, error) in cases {
        request.member_id = id.clone();
        let response = world.call(5, request);
        assert_eq!(response.error_code, error);
        assert_eq!((response.protocol_name, response.assignment.len()), (None, 0));
    }
    assert_eq!(world.call(5, syncing(1, "zz", &[])).error_code, 25);
    assert_eq!(world.call(4, syncing(2, &id, &[])).error_code, 22);
}

#[test]
fn followers_wait_for_the_leader_and_all_learn_after_the_log() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let leader = joined[0].leader.clone();
    let follower = if leader == one { two } else { one };
    let waiting = world.send(5, syncing(1, &follower, &[]));
    assert!(world.synced(waiting).is_none());
    assert_eq!(world.beat(1, &follower), 0);
    world.set_high_watermark(Some(world.log.len() as i64));
    let own =
        world.send(5, syncing(1, &leader, &[(&leader, "A"), (&follower, "B"), ("other", "C")]));
    let late = world.send(5, syncing(1, &follower, &[]));
    assert!(world.answers.is_empty(), "nobody knows what a failover could take back");
    world.set_high_watermark(None);
    assert_eq!(world.synced(own).expect("synced").assignment, &b"A"[..]);
    assert_eq!(world.synced(waiting).expect("synced").assignment, &b"B"[..]);
    assert_eq!(world.synced(late).expect("synced").assignment, &b"B"[..]);
    let Record::GroupMetadata(_, Some(value)) = world.last_record() else { panic!("not a group") };
    assert_eq!((value.generation, value.protocol.as_deref()), (1, Some("range")));
    assert_eq!(value.leader.as_deref(), Some(leader.as_str()));
    let stored: Vec<_> =
        value.members.iter().map(|m| (m.member_id.as_str(), &m.assignment[..])).collect();
    assert!(
        stored.contains(&(leader.as_str(), b"A")) && stored.contains(&(follower.as_str(), b"B"))
    );
    assert_eq!(stored.len(), 2);
}

#[test]
fn a_stable_group_gives_the_same_assignment_again_whatever_the_leader_sends() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    let writes = world.log.len();
    for version in [0, 3, 5] {
        let response = world.call(version, syncing(1, &id, &[(&id, "C")]));
        assert_eq!(response.assignment, id.to_uppercase().as_bytes());
    }
    assert_eq!(world.log.len(), writes);
}

#[test]
fn a_member_that_the_leader_forgets_gets_an_empty_assignment() {
    let mut world = world();
    let (one, two) = (world.new_id(), world.new_id());
    let joined = world.join_all(&[&one, &two]);
    let leader = joined[0].leader.clone();
    let follower = if leader == one { two } else { one };
    world.call(5, syncing(1, &leader, &[(&leader, "A"), (&leader, "B")]));
    assert_eq!(world.call(5, syncing(1, &leader, &[])).assignment, &b"B"[..]);
    let response = world.call(5, syncing(1, &follower, &[]));
    assert_eq!((response.error_code, response.assignment.len()), (0, 0));
}

#[test]
fn commits_come_from_members_of_the_generation() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    assert_eq!(world.commit(1, &id), 0);
    for (generation, member, error) in
        [(-1, "", 25), (0, &*id, 22), (1, "zz", 25), (-1, &*id, 22), (1, "", 25)]
    {
        assert_eq!(world.commit(generation, member), error, "{generation} {member}");
    }
}

#[test]
fn offsets_of_topics_that_consumers_read_are_not_deleted() {
    let mut world = world();
    let id = world.stable(1).remove(0);
    world.topics.create("t2", 2, 1);
    world.commit(1, &id);
    let topic = |name: &str| OffsetDeleteRequestTopic {
        name: name.into(),
        partitions: vec![OffsetDeleteRequestPartition::default()],
    };
    let request =
        OffsetDeleteRequest { group_id: G.into(), topics: vec![topic("t1"), topic("t2")] };
    let response = world.call(0, request);
    let errors: Vec<i16> = response.topics.iter().map(|t| t.partitions[0].error_code).collect();
    assert_eq!(errors, [86, 0]);
}
