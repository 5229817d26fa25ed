//! Single rules of the consumer group protocol, each by the smallest sequence that shows it.

use std::time::Duration;

use protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ConsumerProtocolSubscription,
    JoinGroupRequest, JoinGroupResponse, ResponseBody,
};
use protocol::{ErrorCode, Message};

use super::{Cluster, Host};
use crate::shard::{MigrationPolicy, ShardConfig};

fn host(config: ShardConfig) -> Host {
    let mut cluster = Cluster::default();
    cluster.put("a", 4);
    Host::new(config, cluster)
}

fn at_once() -> ShardConfig {
    ShardConfig {
        initial_rebalance_delay: Duration::ZERO,
        consumer_assignment_interval: Duration::ZERO,
        ..ShardConfig::default()
    }
}

fn heartbeat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: "g".to_owned(),
        member_id: member.to_owned(),
        member_epoch: epoch,
        ..Default::default()
    }
}

fn joining(member: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        rebalance_timeout_ms: 5000,
        subscribed_topic_names: Some(vec!["a".to_owned()]),
        topic_partitions: Some(Vec::new()),
        ..heartbeat(member, 0)
    }
}

fn send(host: &mut Host, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    match host.send(1, request).1 {
        Some(ResponseBody::ConsumerGroupHeartbeat(response)) => response,
        other => panic!("{other:?}"),
    }
}

fn error(response: &ConsumerGroupHeartbeatResponse) -> ErrorCode {
    ErrorCode::from_code(response.error_code)
}

fn partitions(response: &ConsumerGroupHeartbeatResponse) -> Vec<i32> {
    let topics = response.assignment.iter().flat_map(|assignment| &assignment.topic_partitions);
    topics.flat_map(|topic| topic.partitions.clone()).collect()
}

fn classic_join(host: &mut Host, member: &str) -> JoinGroupResponse {
    let subscription =
        ConsumerProtocolSubscription { topics: vec!["a".to_owned()], ..Default::default() };
    let mut metadata = vec![0, 1];
    metadata.extend(subscription.to_bytes(1).expect("a subscription"));
    let request = JoinGroupRequest {
        group_id: "g".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 5000,
        member_id: member.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: metadata.into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let (token, response) = host.send(5, request);
    host.pass(Duration::from_millis(1));
    match response.or_else(|| host.take_answer(token)) {
        Some(ResponseBody::JoinGroup(response)) => response,
        other => panic!("{other:?}"),
    }
}

/// A classic group with one member.
fn with_classic_member(config: ShardConfig) -> Host {
    let mut host = host(config);
    let member = classic_join(&mut host, "").member_id;
    assert_eq!(classic_join(&mut host, &member).error_code, 0);
    host
}

#[test]
fn a_classic_group_is_upgraded_only_if_the_policy_says_so() {
    for (policy, expected) in [
        (MigrationPolicy::Disabled, ErrorCode::GroupIdNotFound),
        (MigrationPolicy::Downgrade, ErrorCode::GroupIdNotFound),
        (MigrationPolicy::Upgrade, ErrorCode::None),
        (MigrationPolicy::Bidirectional, ErrorCode::None),
    ] {
        let mut host = with_classic_member(ShardConfig { migration_policy: policy, ..at_once() });
        assert_eq!(error(&send(&mut host, joining("m1"))), expected, "{policy:?}");
        assert_eq!(host.group("g").is_some(), expected == ErrorCode::None);
        host.assert_replay_equals_live();
    }
}

#[test]
fn a_group_goes_back_to_the_classic_protocol_only_if_the_policy_says_so() {
    for (policy, downgraded) in
        [(MigrationPolicy::Upgrade, false), (MigrationPolicy::Bidirectional, true)]
    {
        let mut host = with_classic_member(ShardConfig { migration_policy: policy, ..at_once() });
        send(&mut host, joining("m1"));
        assert_eq!(error(&send(&mut host, heartbeat("m1", -1))), ErrorCode::None);
        assert_eq!(host.group("g").is_none(), downgraded, "{policy:?}");
    }
}

#[test]
fn classic_members_may_not_join_a_consumer_group_when_migration_is_disabled() {
    for (policy, expected) in [
        (MigrationPolicy::Disabled, ErrorCode::InconsistentGroupProtocol),
        (MigrationPolicy::Upgrade, ErrorCode::MemberIdRequired),
    ] {
        let mut host = host(ShardConfig { migration_policy: policy, ..at_once() });
        send(&mut host, joining("m1"));
        assert_eq!(classic_join(&mut host, "").error_code, expected.code(), "{policy:?}");
    }
}

#[test]
fn a_full_group_takes_nobody_but_who_replaces_a_member() {
    let mut host = host(ShardConfig { consumer_max_size: 1, ..at_once() });
    let instance_id = Some("i".to_owned());
    let static_member = |id: &str| ConsumerGroupHeartbeatRequest {
        instance_id: instance_id.clone(),
        ..joining(id)
    };
    assert_eq!(error(&send(&mut host, static_member("m1"))), ErrorCode::None);
    assert_eq!(error(&send(&mut host, joining("m2"))), ErrorCode::GroupMaxSizeReached);
    let away =
        ConsumerGroupHeartbeatRequest { instance_id: instance_id.clone(), ..heartbeat("m1", -2) };
    send(&mut host, away);
    let back = send(&mut host, static_member("m3"));
    assert_eq!((error(&back), partitions(&back)), (ErrorCode::None, vec![0, 1, 2, 3]));
}

#[test]
fn sessions_and_heartbeats_follow_the_groups_own_config_within_the_brokers_bounds() {
    let mut host = host(at_once());
    host.cluster.configs.insert("consumer.session.timeout.ms".to_owned(), "50000".to_owned());
    host.cluster.configs.insert("consumer.heartbeat.interval.ms".to_owned(), "99999".to_owned());
    assert_eq!(send(&mut host, joining("m1")).heartbeat_interval_ms, 15_000);
    host.pass(Duration::from_millis(49_999));
    assert_eq!(host.group("g").expect("a group").state_name(), "Stable");
    host.pass(Duration::from_millis(1));
    assert_eq!(host.group("g").expect("a group").state_name(), "Empty");
}

#[test]
fn members_whose_sessions_end_together_are_thrown_out_one_after_the_other() {
    let mut host = host(at_once());
    for member in ["m1", "m2", "m3"] {
        send(&mut host, joining(member));
    }
    let epoch = host.group("g").expect("a group").epoch;
    host.pass(Duration::from_secs(46));
    let group = host.group("g").expect("a group");
    assert_eq!((group.state_name(), group.epoch), ("Empty", epoch + 3));
    host.assert_replay_equals_live();
}

#[test]
fn a_target_assignment_stands_for_the_assignment_interval() {
    let mut host = host(ShardConfig::default());
    let first = send(&mut host, joining("m1"));
    assert_eq!(partitions(&first), [0, 1, 2, 3]);
    let second = send(&mut host, joining("m2"));
    assert_eq!((error(&second), second.member_epoch), (ErrorCode::None, 2));
    assert_eq!(host.group("g").expect("a group").state_name(), "Assigning");
    host.pass(Duration::from_millis(999));
    assert!(send(&mut host, heartbeat("m1", 2)).assignment.is_none());
    host.pass(Duration::from_millis(1));
    assert_eq!(partitions(&send(&mut host, heartbeat("m1", 2))), [0, 1]);
}

#[test]
fn new_partitions_are_given_out_with_the_next_heartbeat_of_anybody() {
    let mut host = host(at_once());
    let epoch = send(&mut host, joining("m1")).member_epoch;
    host.cluster.put("a", 6);
    let next = send(&mut host, heartbeat("m1", epoch));
    assert_eq!((next.member_epoch, partitions(&next)), (epoch + 1, (0..6).collect()));
    host.cluster.put("unrelated", 1);
    let next = send(&mut host, heartbeat("m1", epoch + 1));
    assert_eq!((next.member_epoch, next.assignment), (epoch + 1, None));
}

#[test]
fn a_write_that_fails_changes_nothing_and_the_next_one_makes_up_for_it() {
    let mut host = host(at_once());
    host.fail_next = true;
    let refused = send(&mut host, joining("m1"));
    assert_eq!(error(&refused), ErrorCode::CoordinatorNotAvailable);
    assert!(host.group("g").is_none());
    assert_eq!(partitions(&send(&mut host, joining("m1"))), [0, 1, 2, 3]);
    host.fail_next = true;
    send(&mut host, heartbeat("m1", -1));
    host.pass(Duration::from_secs(46));
    assert!(host.group("g").expect("a group").is_empty(), "its session went on");
}

#[test]
fn a_member_of_version_0_gets_its_id_from_the_coordinator() {
    let mut host = host(at_once());
    let (_, response) = host.send(0, joining(""));
    let Some(ResponseBody::ConsumerGroupHeartbeat(response)) = response else {
        panic!("{response:?}")
    };
    let id = response.member_id.expect("a member id");
    assert_eq!(id.len(), 22);
    assert_eq!(error(&send(&mut host, heartbeat(&id, response.member_epoch))), ErrorCode::None);
}

#[test]
fn partitions_that_a_member_gave_up_may_come_back_to_it_before_anybody_has_them() {
    let mut host = host(at_once());
    send(&mut host, joining("m1"));
    send(&mut host, joining("m2"));
    assert_eq!(partitions(&send(&mut host, heartbeat("m1", 2))), [0, 1]);
    send(&mut host, heartbeat("m2", -1));
    let (id, _) = host.cluster.topics["a"];
    let owned =
        vec![TopicPartitions { topic_id: id, partitions: vec![0, 1], ..Default::default() }];
    let given_up =
        ConsumerGroupHeartbeatRequest { topic_partitions: Some(owned), ..heartbeat("m1", 2) };
    assert_eq!(partitions(&send(&mut host, given_up)), [0, 1, 2, 3]);
}
