//! KIP-966: nothing commits under min.insync.replicas. H06, H07.

use std::time::Duration;

use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset};
use replication::{AckStatus, PartitionError};

use crate::support::Cluster;

fn admitted(cluster: &Cluster, acks: i16) -> ErrorCode {
    let result = cluster.node(1).state.check_produce(acks);
    result.err().map_or(ErrorCode::None, |error| error.code())
}

fn status(cluster: &Cluster, epoch: i32, required: i64) -> AckStatus {
    cluster.node(1).state.check_enough_replicas(LeaderEpoch(epoch), Offset(required))
}

/// RF 3, min.insync.replicas 2, ten records committed, then the ISR is the leader alone.
fn under_min_isr() -> Cluster {
    let mut cluster = Cluster::new(3, 2);
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.controller.leave_isr(2);
    cluster.controller.leave_isr(3);
    cluster.publish(1);
    cluster
}

#[test]
fn h06_under_min_isr_the_watermark_stands_still() {
    let mut cluster = under_min_isr();
    assert!(cluster.node(1).state.is_under_min_isr());
    assert_eq!(admitted(&cluster, 1), ErrorCode::None);
    cluster.produce(1, &(10..15).collect::<Vec<_>>());
    cluster.pass(Duration::from_secs(60));
    cluster.produce(1, &[]);
    assert_eq!(cluster.high_watermark(1), 10, "acks=1 records are there, and nobody sees them");
    assert_eq!(admitted(&cluster, -1), ErrorCode::NotEnoughReplicas);
    assert_eq!(cluster.log_end(1), 15);
    cluster.fetch(2);
    cluster.fetch(2);
    cluster.settle(1);
    assert_eq!(cluster.controller.isr, [1, 2]);
    assert_eq!(cluster.high_watermark(1), 15);
}

#[test]
fn h06_one_replica_commits_whatever_min_isr_says() {
    let mut cluster = Cluster::new(1, 2);
    assert_eq!(admitted(&cluster, -1), ErrorCode::None);
    cluster.produce(1, &[1, 2]);
    assert_eq!(cluster.high_watermark(1), 2);
    assert!(!cluster.node(1).state.is_under_min_isr());
    assert!(cluster.node(1).state.is_at_min_isr());
}

#[test]
fn h07_acks_are_minus_one_zero_or_one() {
    let cluster = Cluster::new(2, 1);
    for (acks, expected) in [
        (-2, ErrorCode::InvalidRequiredAcks),
        (-1, ErrorCode::None),
        (0, ErrorCode::None),
        (1, ErrorCode::None),
        (2, ErrorCode::InvalidRequiredAcks),
    ] {
        assert_eq!(admitted(&cluster, acks), expected, "acks {acks}");
    }
    let follower = cluster.node(2).state.check_produce(1);
    assert_eq!(follower, Err(PartitionError::NotLeaderOrFollower));
}

#[test]
fn h07_a_write_caught_by_a_shrinking_isr_waits_and_does_not_fail() {
    let mut cluster = Cluster::new(2, 2);
    cluster.produce(1, &[1]);
    assert_eq!(status(&cluster, 1, 1), AckStatus::Waiting);
    cluster.pass(Duration::from_secs(31));
    cluster.check_lag(1);
    cluster.settle(1);
    assert_eq!(cluster.controller.isr, [1]);
    assert_eq!(status(&cluster, 1, 1), AckStatus::Waiting, "the request's timeout decides");
    assert_eq!(cluster.high_watermark(1), 0);
}

#[test]
fn h07_code_20_needs_a_committed_write_and_a_maximal_isr_that_is_too_small() {
    let mut cluster = Cluster::new(2, 2);
    cluster.produce(1, &[1]);
    cluster.catch_up(2);
    assert_eq!(status(&cluster, 1, 1), AckStatus::Acknowledged);
    cluster.controller.leave_isr(2);
    cluster.publish(1);
    let expected = PartitionError::NotEnoughReplicasAfterAppend { in_sync: 1, min: 2 };
    assert_eq!(status(&cluster, 1, 1), AckStatus::Failed(expected));
    assert_eq!(expected.code(), ErrorCode::NotEnoughReplicasAfterAppend);
    // A pending member counts here: the set that may be in the ISR is large enough.
    cluster.fetch(2);
    assert_eq!(cluster.node(1).outbox.len(), 1);
    assert_eq!(status(&cluster, 1, 1), AckStatus::Acknowledged);
    assert_eq!(admitted(&cluster, -1), ErrorCode::NotEnoughReplicas, "not before it is confirmed");
}

#[test]
fn h07_lost_leadership_fails_a_waiting_write_even_when_it_is_won_back() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.controller.elect(2);
    cluster.publish_all();
    let lost = AckStatus::Failed(PartitionError::NotLeaderOrFollower);
    assert_eq!(status(&cluster, 1, 1), lost);
    cluster.produce(2, &[2]);
    cluster.catch_up(1);
    cluster.controller.elect(1);
    cluster.publish_all();
    cluster.catch_up(2);
    assert_eq!(cluster.high_watermark(1), 1);
    assert_eq!(cluster.node(1).log.at(0).map(|record| record.value), Some(2));
    assert_eq!(status(&cluster, 1, 1), lost, "another record is at its offset");
}

#[test]
fn h07_a_new_epoch_without_a_break_keeps_waiting_writes() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.controller.elect(1);
    cluster.publish_all();
    assert_eq!(status(&cluster, 1, 1), AckStatus::Waiting);
    cluster.catch_up(2);
    assert_eq!(status(&cluster, 1, 1), AckStatus::Acknowledged);
}

#[test]
fn h06_replicas_being_added_do_not_make_a_partition_under_replicated() {
    let mut cluster = Cluster::new(3, 1);
    cluster.controller.isr = vec![1, 2];
    let mut registration = cluster.controller.registration();
    registration.partition_epoch = 9.into();
    registration.adding_replicas = vec![NodeId(3)];
    let now = cluster.now;
    let node = cluster.node_mut(1);
    let facts = node.log.facts();
    let _ = node.state.on_metadata_change(&registration, &facts, &node.directory, now);
    assert!(!node.state.is_under_replicated());
    registration.partition_epoch = 10.into();
    registration.adding_replicas.clear();
    let _ = node.state.on_metadata_change(&registration, &facts, &node.directory, now);
    assert!(node.state.is_under_replicated());
}
