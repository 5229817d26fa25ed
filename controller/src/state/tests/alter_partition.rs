//! H10, H11, H13: who may be in an ISR, and what a wrong proposal is told.

use super::*;
use crate::image::LeaderRecoveryState;

/// The error of a proposal of `[1, 2]` after `spoil` changed it. Nothing may change.
fn refusal(cluster: &mut Cluster, spoil: impl FnOnce(&mut AlterPartitionRequest)) -> i16 {
    let mut request = cluster.proposal(&[1, 2]);
    spoil(&mut request);
    let before = cluster.follower.offset();
    let (response, partition) = cluster.alter(request);
    assert_eq!(cluster.follower.offset(), before, "a refused proposal changes nothing");
    if response.error_code != 0 { response.error_code } else { partition.error_code }
}

fn partition(request: &mut AlterPartitionRequest) -> &mut alter_partition_request::PartitionData {
    &mut request.topics[0].partitions[0]
}

#[test]
fn a_plain_isr_change_bumps_the_partition_epoch_only_h13() {
    let mut cluster = Cluster::with_topic();
    let (_, answer) = cluster.alter(cluster.proposal(&[1, 2]));
    assert_eq!((answer.error_code, answer.leader_id, answer.leader_epoch), (0, 1, 0));
    assert_eq!((answer.isr, answer.partition_epoch), (vec![1, 2], 1));
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 2]));
}

#[test]
fn proposing_the_isr_in_force_succeeds_and_changes_nothing_h13() {
    let mut cluster = Cluster::with_topic();
    let before = cluster.follower.offset();
    let (_, answer) = cluster.alter(cluster.proposal(&[3, 1, 2]));
    assert_eq!((answer.error_code, answer.partition_epoch), (0, 0));
    assert_eq!(cluster.follower.offset(), before);
}

#[test]
fn each_wrong_proposal_has_its_error_h13() {
    let mut cluster = Cluster::with_topic();
    // Leader epoch 1 and partition epoch 2, so that lower ones exist.
    cluster.fence(1);
    cluster.unfence(1);
    cluster.set_isr(&[1, 2, 3]);
    let epoch_3 = cluster.broker_epoch(3);
    assert_eq!(cluster.state_of(0), (2, 1, 2, vec![1, 2, 3]));
    let cluster = &mut cluster;
    assert_eq!(refusal(cluster, |r| r.topics[0].topic_id = Uuid([1; 16])), 100);
    assert_eq!(refusal(cluster, |r| partition(r).partition_index = 7), 3);
    assert_eq!(refusal(cluster, |r| partition(r).leader_epoch = 2), 41);
    assert_eq!(refusal(cluster, |r| partition(r).partition_epoch = 3), 41);
    assert_eq!(refusal(cluster, |r| partition(r).leader_epoch = 0), 74);
    let from_3 = |r: &mut AlterPartitionRequest| (r.broker_id, r.broker_epoch) = (3, epoch_3);
    assert_eq!(refusal(cluster, from_3), 42);
    assert_eq!(refusal(cluster, |r| partition(r).partition_epoch = 1), 95);
    assert_eq!(refusal(cluster, |r| partition(r).new_isr_with_epochs[0].broker_id = 9), 42);
    assert_eq!(refusal(cluster, |r| partition(r).new_isr_with_epochs[0].broker_id = 2), 42);
    assert_eq!(refusal(cluster, |r| drop(partition(r).new_isr_with_epochs.remove(1))), 42);
    assert_eq!(refusal(cluster, |r| partition(r).new_isr_with_epochs.clear()), 42);
    assert_eq!(refusal(cluster, |r| partition(r).leader_recovery_state = 1), 42);
    assert_eq!(refusal(cluster, |r| partition(r).leader_recovery_state = 5), 42);
    assert_eq!(refusal(cluster, |r| r.broker_epoch += 1), 77);
}

#[test]
fn the_checks_come_in_their_order_h13() {
    let mut cluster = Cluster::with_topic();
    cluster.fence(1);
    cluster.unfence(1);
    cluster.set_isr(&[1, 2, 3]);
    let epoch_3 = cluster.broker_epoch(3);
    let cluster = &mut cluster;
    // Everything wrong at once, then one fault less at a time.
    let spoil = |faults: usize| {
        move |r: &mut AlterPartitionRequest| {
            let p = partition(r);
            p.new_isr_with_epochs[0].broker_epoch += 1;
            if faults > 1 {
                p.leader_recovery_state = 1;
            }
            if faults > 2 {
                p.new_isr_with_epochs[0].broker_id = 9;
            }
            if faults > 3 {
                p.partition_epoch = 1;
            }
            if faults > 4 {
                (r.broker_id, r.broker_epoch) = (3, epoch_3);
            }
            let p = partition(r);
            if faults > 5 {
                p.leader_epoch = 0;
            }
            if faults > 6 {
                p.partition_epoch = 9;
            }
        }
    };
    let expected = [107, 42, 42, 95, 42, 74, 41];
    for (at, error) in expected.into_iter().enumerate() {
        assert_eq!(refusal(cluster, spoil(at + 1)), error, "with {} faults", at + 1);
    }
}

#[test]
fn replicas_that_are_fenced_shutting_down_or_unregistered_may_not_join_h10() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.create(&[&[1, 2, 3], &[3, 1, 2]], &[]);
    cluster.fence(2);
    assert_eq!(refusal(&mut cluster, |_| {}), 107);
    cluster.unfence(2);
    // Broker 3 leads partition 1, so it goes through a controlled shutdown.
    cluster.heartbeat(3, Wish { shut_down: true, ..Default::default() });
    assert!(cluster.follower.broker(NodeId(3)).unwrap().in_controlled_shutdown);
    let mut request = cluster.proposal(&[1, 3]);
    assert_eq!(cluster.alter(request.clone()).1.error_code, 107);
    // Without epochs (version 2) too.
    request.topics[0].partitions[0].new_isr = vec![1, 3];
    let response = cluster.ask(2, request);
    assert_eq!(response.topics[0].partitions[0].error_code, 107);
    let gone = protocol::messages::UnregisterBrokerRequest { broker_id: 2, ..Default::default() };
    cluster.ask(0, gone);
    assert_eq!(refusal(&mut cluster, |_| {}), 107);
    assert_eq!(cluster.partition(0).isr, [NodeId(1)]);
}

#[test]
fn a_member_judged_by_an_older_registration_may_not_join_h11() {
    let mut cluster = Cluster::with_topic();
    let old = cluster.broker_epoch(2);
    cluster.heartbeat(2, Wish { shut_down: true, ..Default::default() });
    cluster.join(2);
    let spoil = |epoch: i64| {
        move |r: &mut AlterPartitionRequest| {
            partition(r).new_isr_with_epochs[1].broker_epoch = epoch
        }
    };
    assert_eq!(refusal(&mut cluster, spoil(old)), 107);
    // -1 comes from versions that cannot know and is not checked.
    let mut request = cluster.proposal(&[1, 2]);
    spoil(-1)(&mut request);
    assert_eq!(cluster.alter(request).1.error_code, 0);
}

#[test]
fn a_recovering_leader_stays_alone_until_it_recovered_h13() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1, 2]], &[("unclean.leader.election.enable", "true")]);
    cluster.set_isr(&[1]);
    cluster.fence(1);
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovering);
    cluster.unfence(1);
    let mut request = cluster.proposal(&[2, 1]);
    assert_eq!(cluster.alter(request.clone()).1.error_code, 42);
    request.topics[0].partitions[0].new_isr_with_epochs.truncate(1);
    assert_eq!(cluster.alter(request.clone()).1.error_code, 0);
    request.topics[0].partitions[0].leader_recovery_state = 0;
    let (_, answer) = cluster.alter(request);
    assert_eq!(
        (answer.error_code, answer.leader_recovery_state, answer.partition_epoch),
        (0, 0, 3)
    );
    cluster.set_isr(&[2, 1]);
}
