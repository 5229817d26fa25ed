//! C01, C02, C03, H11: the life of brokers.

use protocol::messages::{
    BrokerHeartbeatRequest, UnregisterBrokerRequest, broker_registration_request::Feature,
};

use super::*;

const SHUT_DOWN: Wish = Wish { fence: false, shut_down: true, offset: None };

#[test]
fn a_registration_starts_fenced_with_its_batch_s_offset_as_epoch_c02() {
    let mut cluster = Cluster::empty();
    let expected = cluster.state.next_offset().get();
    let response = cluster.register(1, 9);
    assert_eq!((response.error_code, response.broker_epoch), (0, expected));
    assert_eq!(cluster.follower.offset().get(), expected);
    assert!(cluster.follower.broker(NodeId(1)).unwrap().fenced);
}

#[test]
fn a_broker_unfences_when_it_wants_to_and_has_read_its_registration_c02() {
    let mut cluster = Cluster::empty();
    let epoch = cluster.register(1, 9).broker_epoch;
    let behind = cluster.heartbeat(1, Wish { offset: Some(epoch - 1), ..Default::default() });
    assert!(behind.is_fenced && !behind.is_caught_up);
    let unwilling = cluster.heartbeat(1, Wish { fence: true, ..Default::default() });
    assert!(unwilling.is_fenced && unwilling.is_caught_up);
    assert!(!cluster.heartbeat(1, Wish::default()).is_fenced);
    assert!(cluster.follower.is_active(NodeId(1)));
}

#[test]
fn another_process_is_refused_while_the_session_is_valid_and_the_same_keeps_its_epoch_c02() {
    let mut cluster = Cluster::empty();
    let epoch = cluster.register(1, 9).broker_epoch;
    cluster.heartbeat(1, Wish::default());
    assert_eq!(cluster.register(1, 8).error_code, 101);
    let again = cluster.register(1, 9);
    assert_eq!((again.error_code, again.broker_epoch), (0, epoch));
    assert!(cluster.follower.is_active(NodeId(1)));
    cluster.pass(9000);
    let newer = cluster.register(1, 8);
    assert_eq!(newer.error_code, 0);
    assert!(newer.broker_epoch > epoch);
    assert!(cluster.follower.broker(NodeId(1)).unwrap().fenced);
}

#[test]
fn a_registration_for_another_cluster_or_without_a_finalized_feature_is_refused_c02() {
    let mut cluster = Cluster::empty();
    let mut request = Cluster::registration(1, 9);
    request.cluster_id = "other".into();
    assert_eq!(cluster.ask(4, request).error_code, 104);
    let mut request = Cluster::registration(1, 9);
    request.features = vec![Feature {
        name: "metadata.version".into(),
        min_supported_version: 1,
        max_supported_version: METADATA_VERSION - 1,
        ..Default::default()
    }];
    assert_eq!(cluster.ask(4, request).error_code, 35);
    assert!(cluster.follower.broker(NodeId(1)).is_none());
}

#[test]
fn a_heartbeat_of_an_older_registration_is_stale_c02() {
    let mut cluster = Cluster::of(&[1]);
    let broker_epoch = cluster.broker_epoch(1) - 1;
    let request = BrokerHeartbeatRequest { broker_id: 1, broker_epoch, ..Default::default() };
    assert_eq!(cluster.ask(1, request).error_code, 77);
    let unknown = BrokerHeartbeatRequest { broker_id: 5, broker_epoch: 1, ..Default::default() };
    assert_eq!(cluster.ask(1, unknown).error_code, 77);
}

#[test]
fn a_silent_broker_is_fenced_and_its_leadership_moves_c01() {
    let mut cluster = Cluster::with_topic();
    cluster.pass(8000);
    cluster.heartbeat(2, Wish::default());
    cluster.heartbeat(3, Wish::default());
    assert_eq!(cluster.tick(), 0);
    cluster.pass(1000);
    cluster.tick();
    assert_eq!(cluster.state_of(0), (2, 1, 1, vec![2, 3]));
    assert!(cluster.follower.broker(NodeId(1)).unwrap().fenced);
    // A zombie's proposal never lands: its registration is the same, its leadership is not.
    let mut request = cluster.proposal(&[2, 3]);
    request.broker_id = 1;
    request.broker_epoch = cluster.broker_epoch(1);
    request.topics[0].partitions[0].leader_epoch = 0;
    request.topics[0].partitions[0].partition_epoch = 0;
    assert_eq!(cluster.alter(request).1.error_code, 74);
    cluster.unfence(1);
    assert_eq!(cluster.state_of(0), (2, 1, 1, vec![2, 3]));
}

#[test]
fn one_stale_broker_is_fenced_per_pass_the_longest_silent_first_c01() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.pass(100);
    cluster.heartbeat(1, Wish::default());
    cluster.pass(20_000);
    let fenced = |cluster: &Cluster| {
        let brokers = cluster.follower.brokers().filter(|broker| broker.fenced);
        brokers.map(|broker| broker.id.get()).collect::<Vec<_>>()
    };
    cluster.tick();
    assert_eq!(fenced(&cluster), [2]);
    cluster.tick();
    assert_eq!(fenced(&cluster), [2, 3]);
    // A late heartbeat counts like any other.
    cluster.heartbeat(1, Wish::default());
    cluster.tick();
    assert_eq!(fenced(&cluster), [2, 3]);
}

#[test]
fn a_new_controller_gives_every_unfenced_broker_a_fresh_session_c01() {
    let mut cluster = Cluster::of(&[1]);
    cluster.pass(8999);
    cluster.fail_over();
    cluster.pass(8999);
    assert_eq!(cluster.tick(), 0);
    assert_eq!(cluster.register(1, 77).error_code, 101);
    cluster.pass(1);
    assert_eq!(cluster.tick(), 1);
}

#[test]
fn a_restarted_broker_leaves_the_isrs_it_was_in_h11() {
    let mut cluster = Cluster::with_topic();
    cluster.pass(9000);
    cluster.heartbeat(1, Wish::default());
    cluster.heartbeat(2, Wish::default());
    // Not fenced yet, but its session is over: the new process may have lost everything.
    assert_eq!(cluster.register(3, 99).error_code, 0);
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 2]));
}

#[test]
fn controlled_shutdown_moves_leaders_and_waits_for_the_lowest_active_offset_c03() {
    let mut cluster = Cluster::with_topic();
    let before = cluster.follower.offset().get();
    for id in [2, 3] {
        cluster.heartbeat(id, Wish::default());
    }
    let first = cluster.heartbeat(1, SHUT_DOWN);
    assert!(!first.should_shut_down && !first.is_fenced);
    assert_eq!(cluster.state_of(0), (2, 1, 1, vec![2, 3]));
    assert!(cluster.follower.broker(NodeId(1)).unwrap().in_controlled_shutdown);
    // Broker 3 has not read that leadership moved.
    cluster.heartbeat(2, Wish::default());
    cluster.heartbeat(3, Wish { offset: Some(before), ..Default::default() });
    assert!(!cluster.heartbeat(1, SHUT_DOWN).should_shut_down);
    cluster.heartbeat(3, Wish::default());
    let last = cluster.heartbeat(1, SHUT_DOWN);
    assert!(last.should_shut_down && last.is_fenced);
    assert!(cluster.follower.broker(NodeId(1)).unwrap().fenced);
}

#[test]
fn the_lowest_active_offset_rule_holds_across_a_controller_failover_c03() {
    let mut cluster = Cluster::with_topic();
    cluster.heartbeat(1, SHUT_DOWN);
    cluster.fail_over();
    // The new controller has not heard from 2 and 3 and may not let 1 go.
    assert!(!cluster.heartbeat(1, SHUT_DOWN).should_shut_down);
    cluster.heartbeat(2, Wish::default());
    cluster.heartbeat(3, Wish::default());
    assert!(cluster.heartbeat(1, SHUT_DOWN).should_shut_down);
}

#[test]
fn a_broker_that_leads_nothing_or_is_fenced_may_shut_down_at_once_c03() {
    let mut cluster = Cluster::with_topic();
    assert!(cluster.heartbeat(3, SHUT_DOWN).should_shut_down);
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 2]));
    assert!(cluster.heartbeat(3, SHUT_DOWN).should_shut_down);
    // The next process need not wait for the session of the one that left.
    assert_eq!(cluster.register(3, 99).error_code, 0);
}

#[test]
fn without_eligible_replicas_the_last_isr_member_stays_in_the_isr_and_leads_again_on_return_c03() {
    let mut cluster = Cluster::without_elr(&[1, 2]);
    cluster.create(&[&[1, 2]], &[]);
    cluster.set_isr(&[1]);
    cluster.heartbeat(1, SHUT_DOWN);
    assert_eq!(cluster.state_of(0), (-1, 1, 2, vec![1]));
    cluster.heartbeat(2, Wish::default());
    assert!(cluster.heartbeat(1, SHUT_DOWN).should_shut_down);
    cluster.join(1);
    assert_eq!(cluster.state_of(0), (1, 2, 3, vec![1]));
}

#[test]
fn a_broker_in_controlled_shutdown_may_restart_before_its_session_ends_c02() {
    let mut cluster = Cluster::with_topic();
    cluster.heartbeat(1, SHUT_DOWN);
    assert_eq!(cluster.register(1, 200).error_code, 0);
    let broker = cluster.follower.broker(NodeId(1)).unwrap();
    assert!(broker.fenced && !broker.in_controlled_shutdown);
}

#[test]
fn an_unregistered_broker_is_in_no_isr_and_unknown_afterwards() {
    let mut cluster = Cluster::with_topic();
    let ask = |cluster: &mut Cluster| {
        cluster.ask(0, UnregisterBrokerRequest { broker_id: 2, ..Default::default() }).error_code
    };
    assert_eq!(ask(&mut cluster), 0);
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 3]));
    assert_eq!(ask(&mut cluster), 102);
}
