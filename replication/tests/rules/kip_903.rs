//! KIP-903: a broker that lost its disk is another broker. H11.

use protocol::{BrokerEpoch, ErrorCode, NodeId};
use replication::IsrState;

use crate::support::{Cluster, TestLog};

/// Leader 1, ISR {1,2}; node 3 is outside with all ten records, its last fetch is held.
fn outside() -> Cluster {
    let mut cluster = Cluster::new(3, 1);
    cluster.controller.isr = vec![1, 2];
    cluster.controller.partition_epoch += 1;
    cluster.publish_all();
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.fetch(3);
    cluster
}

/// Node 3 comes back with an empty disk and a new epoch that only the controller knows.
fn lose_disk(cluster: &mut Cluster) {
    cluster.controller.register(3);
    cluster.controller.unfence(3);
    cluster.open(3, TestLog::default(), None);
}

#[test]
fn h11a_a_fetch_from_before_the_new_registration_is_refused() {
    let mut cluster = outside();
    let held = cluster.request(3);
    lose_disk(&mut cluster);
    cluster.publish(1);
    let before = cluster.node(1).state.follower(NodeId(3)).copied();
    assert_eq!(cluster.serve(&held).error, ErrorCode::NotLeaderOrFollower);
    assert_eq!(cluster.node(1).state.follower(NodeId(3)).copied(), before);
    assert!(cluster.node(1).outbox.is_empty());
}

#[test]
fn h11b_a_leader_with_old_metadata_is_refused_by_the_controller() {
    let mut cluster = outside();
    let held = cluster.request(3);
    lose_disk(&mut cluster);
    assert_eq!(cluster.serve(&held).error, ErrorCode::None);
    assert_eq!(cluster.node(1).outbox.len(), 1);
    cluster.settle(1);
    assert_eq!(cluster.controller.isr, [1, 2]);
    let isr = cluster.node(1).state.isr();
    assert_eq!(isr, Some(&IsrState::committed([1, 2].map(NodeId))));
}

#[test]
fn h11c_a_fetch_without_a_broker_epoch_is_judged_without_it() {
    let mut cluster = outside();
    let mut held = cluster.request(3);
    held.broker_epoch = BrokerEpoch::NONE;
    lose_disk(&mut cluster);
    cluster.publish(1);
    assert_eq!(cluster.serve(&held).error, ErrorCode::None);
    let proposal = &cluster.node(1).outbox[0];
    let member = proposal.new_isr.iter().find(|member| member.replica == NodeId(3));
    assert_eq!(member.map(|member| member.broker_epoch), Some(BrokerEpoch::NONE));
}

#[test]
fn h11d_the_proposal_carries_the_state_that_was_judged() {
    let mut cluster = outside();
    let held = cluster.request(3);
    lose_disk(&mut cluster);
    cluster.serve(&held);
    // A fetch of the new registration arrives before the proposal is sent.
    cluster.publish(1);
    cluster.publish(3);
    let fresh = cluster.request(3);
    assert_eq!(fresh.point.fetch_offset.get(), 0);
    cluster.serve(&fresh);
    let new_epoch = cluster.controller.brokers[&3].epoch;
    let state = cluster.node(1).state.follower(NodeId(3)).expect("a replica");
    assert_eq!(state.broker_epoch, Some(new_epoch));
    let proposal = cluster.node(1).outbox[0].clone();
    let member = proposal
        .new_isr
        .iter()
        .find(|member| member.replica == NodeId(3))
        .expect("node 3 was proposed");
    assert_eq!((member.broker_epoch, member.log_end_offset.get()), (BrokerEpoch(3), 10));
    cluster.settle(1);
    assert_eq!(cluster.controller.isr, [1, 2], "the empty node 3 is not in the ISR");
}

#[test]
fn h11_an_isr_member_that_has_not_fetched_yet_is_proposed_without_an_epoch() {
    let mut cluster = outside();
    cluster.controller.elect(2);
    cluster.publish_all();
    cluster.catch_up(3);
    let proposal = &cluster.node(2).outbox[0];
    let epochs: Vec<i64> = proposal.new_isr.iter().map(|m| m.broker_epoch.get()).collect();
    assert_eq!(epochs, [-1, 2, 3], "node 1 has not fetched from node 2");
}
