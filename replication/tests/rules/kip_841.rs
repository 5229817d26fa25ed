//! KIP-841: a fenced or stopping broker cannot join an ISR. H10.

use std::time::Duration;

use protocol::NodeId;
use replication::IsrState;

use crate::support::Cluster;

/// Node 2 has left the ISR and is again at the leader's end, but has not been proposed.
fn outside_and_caught_up(prepare: impl Fn(&mut Cluster)) -> Cluster {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2]);
    cluster.catch_up(2);
    prepare(&mut cluster);
    cluster.pass(Duration::from_secs(1));
    cluster
}

#[test]
fn h10_a_leader_does_not_propose_a_stopping_or_fenced_broker() {
    let stopping = |cluster: &mut Cluster| {
        cluster.controller.status(2).in_controlled_shutdown = true;
        cluster.controller.leave_isr(2);
        cluster.publish_all();
    };
    let fenced = |cluster: &mut Cluster| {
        cluster.controller.fence(2);
        cluster.publish_all();
    };
    let unregistered = |cluster: &mut Cluster| {
        cluster.controller.leave_isr(2);
        cluster.publish_all();
        cluster.node_mut(1).directory.brokers.remove(&2);
    };
    for prepare in [stopping as fn(&mut Cluster), fenced, unregistered] {
        let mut cluster = outside_and_caught_up(prepare);
        cluster.catch_up(2);
        assert!(cluster.node(1).outbox.is_empty());
        // Nor is it waited for.
        cluster.produce(1, &[3]);
        assert_eq!(cluster.high_watermark(1), 3);
    }
}

#[test]
fn h10_with_stale_metadata_the_controller_refuses_and_the_leader_reverts() {
    let mut cluster = outside_and_caught_up(|cluster| {
        cluster.controller.leave_isr(2);
        cluster.publish_all();
        cluster.controller.status(2).in_controlled_shutdown = true;
    });
    cluster.fetch(2);
    assert_eq!(cluster.node(1).outbox.len(), 1);
    let epoch = cluster.controller.partition_epoch;
    cluster.settle(1);
    assert_eq!(cluster.node(1).state.isr(), Some(&IsrState::committed([NodeId(1)])));
    assert_eq!(cluster.controller.partition_epoch, epoch);
    assert_eq!(cluster.node(1).state.partition_epoch().get(), epoch);
}

#[test]
fn h10_a_broker_that_came_back_joins() {
    let mut cluster = outside_and_caught_up(|cluster| {
        cluster.controller.fence(2);
        cluster.publish_all();
        cluster.controller.unfence(2);
        cluster.publish_all();
    });
    cluster.fetch(2);
    cluster.settle(1);
    assert_eq!(cluster.controller.isr, [1, 2]);
}
