//! C07: moving a partition to other brokers.

use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::{AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest};

use super::*;

pub(super) fn reassign(cluster: &mut Cluster, replicas: Option<&[i32]>) -> i16 {
    let partition = ReassignablePartition {
        partition_index: 0,
        replicas: replicas.map(<[i32]>::to_vec),
        ..Default::default()
    };
    let topic =
        ReassignableTopic { name: TOPIC.into(), partitions: vec![partition], ..Default::default() };
    let request = AlterPartitionReassignmentsRequest { topics: vec![topic], ..Default::default() };
    cluster.ask(1, request).responses[0].partitions[0].error_code
}

fn replicas(cluster: &Cluster) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
    let raw = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect();
    let p = cluster.partition(0);
    (raw(&p.replicas), raw(&p.adding_replicas), raw(&p.removing_replicas))
}

fn six() -> Cluster {
    let mut cluster = Cluster::of(&[1, 2, 3, 4, 5, 6]);
    cluster.create(&[&[1, 2, 3]], &[]);
    cluster
}

#[test]
fn a_reassignment_goes_through_adding_to_new_leader_elected_c07() {
    let mut cluster = six();
    assert_eq!(reassign(&mut cluster, Some(&[4, 5, 6])), 0);
    let expected = (vec![4, 5, 6, 1, 2, 3], vec![4, 5, 6], vec![1, 2, 3]);
    assert_eq!(replicas(&cluster), expected);
    // No new leader epoch when replicas are added.
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 2, 3]));
    cluster.set_isr(&[1, 2, 3, 4, 5]);
    assert_eq!(cluster.state_of(0), (1, 0, 2, vec![1, 2, 3, 4, 5]));
    let (_, answer) = cluster.alter(cluster.proposal(&[1, 2, 3, 4, 5, 6]));
    assert_eq!(answer.error_code, 108);
    assert_eq!(replicas(&cluster), (vec![4, 5, 6], vec![], vec![]));
    assert_eq!(cluster.state_of(0), (4, 1, 3, vec![4, 5, 6]));
}

#[test]
fn a_leader_that_stays_is_told_success_and_its_new_epoch_c07() {
    let mut cluster = six();
    reassign(&mut cluster, Some(&[1, 2, 4]));
    let (_, answer) = cluster.alter(cluster.proposal(&[1, 2, 3, 4]));
    assert_eq!((answer.error_code, answer.leader_epoch, answer.partition_epoch), (0, 1, 2));
    assert_eq!(answer.isr, [1, 2, 4]);
    assert_eq!(replicas(&cluster), (vec![1, 2, 4], vec![], vec![]));
}

#[test]
fn a_shrunken_isr_does_not_complete_a_reassignment_c07() {
    let mut cluster = six();
    reassign(&mut cluster, Some(&[1, 2, 4]));
    // 4 is in, 2 is not: dropping 3 would leave less than the wanted replicas.
    cluster.set_isr(&[1, 3, 4]);
    assert_eq!(replicas(&cluster), (vec![1, 2, 4, 3], vec![4], vec![3]));
    cluster.set_isr(&[1, 2, 3, 4]);
    assert_eq!(replicas(&cluster), (vec![1, 2, 4], vec![], vec![]));
}

#[test]
fn cancelling_restores_the_replicas_and_drops_the_added_from_the_isr_c07() {
    let mut cluster = six();
    assert_eq!(reassign(&mut cluster, None), 85);
    reassign(&mut cluster, Some(&[4, 5, 6]));
    cluster.set_isr(&[1, 2, 3, 4]);
    assert_eq!(reassign(&mut cluster, None), 0);
    let (mut restored, adding, removing) = replicas(&cluster);
    restored.sort_unstable();
    assert_eq!((restored, adding, removing), (vec![1, 2, 3], vec![], vec![]));
    assert_eq!(cluster.state_of(0), (1, 1, 3, vec![1, 2, 3]));
}

#[test]
fn cancelling_is_refused_when_only_added_replicas_hold_the_data_c07() {
    let mut cluster = six();
    reassign(&mut cluster, Some(&[4, 5, 6]));
    cluster.set_isr(&[1, 4]);
    cluster.fence(1);
    assert_eq!(cluster.state_of(0).0, 4);
    assert_eq!(reassign(&mut cluster, None), 39);
}

#[test]
fn a_smaller_replica_set_that_is_in_sync_applies_at_once_with_a_new_leader_epoch_c07() {
    let mut cluster = six();
    assert_eq!(reassign(&mut cluster, Some(&[1, 2])), 0);
    assert_eq!(replicas(&cluster), (vec![1, 2], vec![], vec![]));
    assert_eq!(cluster.state_of(0), (1, 1, 1, vec![1, 2]));
}

#[test]
fn reordering_replicas_only_changes_the_preferred_leader_c07() {
    let mut cluster = six();
    assert_eq!(reassign(&mut cluster, Some(&[3, 2, 1])), 0);
    assert_eq!(replicas(&cluster), (vec![3, 2, 1], vec![], vec![]));
    assert_eq!(cluster.state_of(0), (1, 0, 1, vec![1, 2, 3]));
}

#[test]
fn a_second_target_replaces_the_first_and_can_still_be_cancelled_c07() {
    let mut cluster = six();
    reassign(&mut cluster, Some(&[1, 2, 4]));
    reassign(&mut cluster, Some(&[1, 2, 5]));
    assert_eq!(replicas(&cluster), (vec![1, 2, 5, 3], vec![5], vec![3]));
    assert_eq!(reassign(&mut cluster, None), 0);
    assert_eq!(replicas(&cluster), (vec![1, 2, 3], vec![], vec![]));
}

#[test]
fn impossible_targets_are_refused_c07() {
    let mut cluster = six();
    assert_eq!(reassign(&mut cluster, Some(&[])), 39);
    assert_eq!(reassign(&mut cluster, Some(&[1, 1])), 39);
    assert_eq!(reassign(&mut cluster, Some(&[1, 99])), 39);
    assert_eq!(reassign(&mut cluster, Some(&[-1])), 39);
    let before = cluster.follower.offset();
    let mut request = AlterPartitionReassignmentsRequest {
        allow_replication_factor_change: false,
        ..Default::default()
    };
    request.topics = vec![ReassignableTopic {
        name: TOPIC.into(),
        partitions: vec![ReassignablePartition {
            replicas: Some(vec![1, 2]),
            ..Default::default()
        }],
        ..Default::default()
    }];
    assert_eq!(cluster.ask(1, request).responses[0].partitions[0].error_code, 38);
    assert_eq!(cluster.follower.offset(), before);
}

#[test]
fn only_reassignments_that_go_on_are_listed_c07() {
    let mut cluster = six();
    let list =
        |cluster: &mut Cluster| cluster.ask(0, ListPartitionReassignmentsRequest::default()).topics;
    assert!(list(&mut cluster).is_empty());
    reassign(&mut cluster, Some(&[4, 2, 3]));
    let ongoing = list(&mut cluster);
    let partition = &ongoing[0].partitions[0];
    assert_eq!(partition.replicas, [4, 2, 3, 1]);
    assert_eq!(
        (&partition.adding_replicas[..], &partition.removing_replicas[..]),
        (&[4][..], &[1][..])
    );
}
