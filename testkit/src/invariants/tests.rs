//! Each invariant can fail: states made by hand, right but for one rule each.

mod cleaning;

use std::collections::BTreeSet;

use bytes::Bytes;
use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, ProducerEpoch, ProducerId,
    TopicIdPartition, TopicPartition, Uuid,
};

use super::*;

const LEADER: NodeId = NodeId(1);
const FOLLOWER: NodeId = NodeId(2);

fn partition() -> TopicIdPartition {
    TopicIdPartition { topic_id: Uuid([7; 16]), topic_partition: TopicPartition::new("t", 0) }
}

fn batch(offset: i64, epoch: i32, value: &str) -> BatchEntry {
    BatchEntry {
        base: Offset(offset),
        next: Offset(offset + 1),
        epoch: LeaderEpoch(epoch),
        crc: value.bytes().map(u32::from).sum(),
        producer: (ProducerId::NONE, ProducerEpoch::NONE),
        base_sequence: -1,
        delete_horizon: None,
        records: vec![RecordEntry {
            offset: Offset(offset),
            timestamp_ms: 0,
            key: None,
            value: Some(Bytes::copy_from_slice(value.as_bytes())),
        }],
    }
}

fn both() -> BTreeSet<NodeId> {
    [LEADER, FOLLOWER].into()
}

fn leader(high_watermark: i64, log_end: i64) -> ReplicaFacts {
    ReplicaFacts {
        is_leader: true,
        leader: LEADER,
        leader_epoch: LeaderEpoch(1),
        partition_epoch: PartitionEpoch(1),
        high_watermark: Offset(high_watermark),
        last_stable: Offset(high_watermark),
        log_start: Offset(0),
        log_end: Offset(log_end),
        epoch_start: Some(Offset(0)),
        effective_isr: both(),
        maximal_isr: both(),
        alter_in_flight: false,
        min_isr: 1,
        epochs: vec![(LeaderEpoch(1), Offset(0))],
        sources: Vec::new(),
        compacts: false,
        broker_epoch: BrokerEpoch(1),
    }
}

fn follower(high_watermark: i64, log_end: i64) -> ReplicaFacts {
    ReplicaFacts {
        is_leader: false,
        epoch_start: None,
        effective_isr: BTreeSet::new(),
        maximal_isr: BTreeSet::new(),
        sources: vec![LEADER],
        broker_epoch: BrokerEpoch(2),
        ..leader(high_watermark, log_end)
    }
}

fn appended(batches: &[BatchEntry]) -> LogChange {
    LogChange { appended: batches.to_vec(), ..LogChange::default() }
}

fn cluster(
    leader: NodeId,
    leader_epoch: i32,
    partition_epoch: i32,
    isr: &[NodeId],
) -> ClusterFacts {
    let broker = |epoch| BrokerFacts {
        epoch: BrokerEpoch(epoch),
        fenced: false,
        in_controlled_shutdown: false,
    };
    let facts = PartitionFacts {
        leader,
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: both(),
        isr: isr.iter().copied().collect(),
        eligible: BTreeSet::new(),
        min_isr: 1,
    };
    ClusterFacts {
        brokers: [(LEADER, broker(1)), (FOLLOWER, broker(2))].into(),
        partitions: [(partition(), facts)].into(),
    }
}

/// Two replicas with `m0` and `m1` committed, and nothing wrong.
fn healthy() -> Checker {
    let mut checker = Checker::new(FaultModel::default());
    checker.on_cluster(cluster(LEADER, 1, 1, &[LEADER, FOLLOWER]));
    let log = [batch(0, 1, "m0"), batch(1, 1, "m1")];
    checker.on_replica(LEADER, &partition(), leader(0, 2), appended(&log));
    checker.on_replica(FOLLOWER, &partition(), follower(0, 2), appended(&log));
    checker.on_replica(LEADER, &partition(), leader(2, 2), LogChange::default());
    checker.on_replica(FOLLOWER, &partition(), follower(2, 2), LogChange::default());
    checker.on_acked(&partition(), Offset(1), &[Bytes::from_static(b"m1")]);
    checker.check_logs();
    assert_eq!(checker.violations(), []);
    checker
}

#[track_caller]
fn assert_broken(checker: &Checker, invariant: &str) {
    let found: Vec<_> = checker.violations().iter().map(|found| found.invariant).collect();
    assert!(found.contains(&invariant), "{invariant} was not found broken, but {found:?}");
}

#[test]
fn i1_a_watermark_over_another_record_is_found() {
    let mut checker = healthy();
    let cut = LogChange {
        cut_to: Some(Offset(1)),
        appended: vec![batch(1, 1, "other")],
        ..LogChange::default()
    };
    checker.on_replica(FOLLOWER, &partition(), follower(2, 2), cut);
    assert_broken(&checker, "I1");
    assert_broken(&checker, "I5");
}

#[test]
fn i1_the_same_offset_and_epoch_over_another_prefix_is_found() {
    let mut checker = Checker::new(FaultModel::default());
    let one = [batch(0, 1, "m0"), batch(1, 2, "m1")];
    let other = [batch(0, 1, "x"), batch(1, 2, "m1")];
    checker.on_replica(LEADER, &partition(), leader(0, 2), appended(&one));
    checker.on_replica(FOLLOWER, &partition(), follower(0, 2), appended(&other));
    checker.check_logs();
    assert_broken(&checker, "I1");
}

#[test]
fn i1_a_follower_with_a_watermark_no_leader_had_is_found() {
    let mut checker = healthy();
    checker.on_replica(LEADER, &partition(), leader(2, 3), appended(&[batch(2, 1, "m2")]));
    checker.on_replica(FOLLOWER, &partition(), follower(3, 3), appended(&[batch(2, 1, "m2")]));
    assert_broken(&checker, "I1");
}

#[test]
fn i2_a_leader_without_a_committed_record_is_found() {
    let mut checker = healthy();
    checker.on_replica_down(LEADER, &partition());
    let cut = LogChange { cut_to: Some(Offset(1)), ..LogChange::default() };
    let new = ReplicaFacts {
        leader: FOLLOWER,
        leader_epoch: LeaderEpoch(2),
        epoch_start: Some(Offset(1)),
        epochs: vec![(LeaderEpoch(1), Offset(0)), (LeaderEpoch(2), Offset(1))],
        broker_epoch: BrokerEpoch(2),
        ..leader(1, 1)
    };
    checker.on_replica(FOLLOWER, &partition(), new, cut);
    assert_eq!(checker.violations().iter().find(|found| found.invariant == "I2"), None);
    checker.on_cluster(cluster(FOLLOWER, 2, 2, &[FOLLOWER]));
    assert_broken(&checker, "I2");
}

#[test]
fn i2_an_acknowledged_record_that_is_not_committed_is_found() {
    let mut checker = healthy();
    checker.on_acked(&partition(), Offset(2), &[Bytes::from_static(b"m2")]);
    assert_broken(&checker, "I2");
}

#[test]
fn i3_a_running_isr_member_that_lacks_a_committed_record_is_found() {
    let mut checker = healthy();
    let log = [batch(2, 1, "m2")];
    checker.on_replica(LEADER, &partition(), leader(3, 3), appended(&log));
    assert_broken(&checker, "I3");
}

#[test]
fn i3_says_nothing_of_a_process_that_the_controller_does_not_know_yet() {
    let mut checker = healthy();
    let unregistered = ReplicaFacts { broker_epoch: BrokerEpoch::NONE, ..follower(0, 0) };
    let reopened = LogChange { reopened: true, ..LogChange::default() };
    checker.on_replica(FOLLOWER, &partition(), unregistered, reopened);
    assert_eq!(checker.violations(), []);
}

#[test]
fn i4_a_leader_that_does_not_wait_for_an_isr_member_is_found() {
    let mut checker = healthy();
    let alone = ReplicaFacts {
        effective_isr: [LEADER].into(),
        maximal_isr: [LEADER].into(),
        ..leader(2, 2)
    };
    checker.on_replica(LEADER, &partition(), alone, LogChange::default());
    assert_broken(&checker, "I4");
}

#[test]
fn i4_a_pending_change_without_a_request_is_found() {
    let mut checker = healthy();
    let pending = ReplicaFacts { effective_isr: [LEADER].into(), ..leader(2, 2) };
    checker.on_replica(LEADER, &partition(), pending, LogChange::default());
    assert_broken(&checker, "I4");
}

#[test]
fn i6_a_reader_that_sees_another_record_is_found() {
    let mut checker = healthy();
    let records = [(Offset(1), Bytes::from_static(b"other"))];
    checker.on_read(
        &partition(),
        &ReadCheck {
            consumer: (1, 0),
            high_watermark: Offset(2),
            batch_bases: &[Offset(1)],
            records: &records,
        },
    );
    assert_broken(&checker, "I6");
}

#[test]
fn i6_a_reader_that_is_suddenly_out_of_range_is_found() {
    let mut checker = healthy();
    checker.on_out_of_range(&partition(), Offset(2));
    assert_broken(&checker, "I6");
}

#[test]
fn i7_a_batch_beyond_the_watermark_is_found() {
    let mut checker = healthy();
    let records = [(Offset(1), Bytes::from_static(b"m1"))];
    checker.on_read(
        &partition(),
        &ReadCheck {
            consumer: (1, 0),
            high_watermark: Offset(1),
            batch_bases: &[Offset(1)],
            records: &records,
        },
    );
    assert_broken(&checker, "I7");
}

#[test]
fn i7_and_i8_marks_out_of_order_are_found() {
    for broken in [
        ReplicaFacts { last_stable: Offset(3), ..leader(2, 2) },
        ReplicaFacts { log_start: Offset(3), ..leader(2, 2) },
        ReplicaFacts { high_watermark: Offset(3), last_stable: Offset(2), ..leader(2, 2) },
    ] {
        let mut checker = healthy();
        checker.on_replica(LEADER, &partition(), broken, LogChange::default());
        assert_broken(&checker, "I7");
    }
}

#[test]
fn i8_a_leader_that_goes_back_within_its_epoch_is_found() {
    let mut checker = healthy();
    checker.on_replica(LEADER, &partition(), leader(1, 2), LogChange::default());
    assert_broken(&checker, "I8");
}

#[test]
fn i8_a_latest_offset_that_goes_back_is_found_but_not_from_a_deposed_leader() {
    let mut checker = healthy();
    let mut answer = |epoch, offset| {
        checker.on_latest_offset(1, &partition(), LeaderEpoch(epoch), Offset(offset));
        checker.violations().len()
    };
    assert_eq!(answer(2, 10), 0);
    assert_eq!(answer(1, 8), 0, "an older epoch's answer");
    assert_eq!(answer(3, 7), 1);
    assert_broken(&checker, "I8");
}

#[test]
fn i9_an_epoch_cache_out_of_order_beyond_the_end_or_without_the_leader_is_found() {
    let entry = |epoch, start| (LeaderEpoch(epoch), Offset(start));
    for epochs in [
        vec![entry(1, 0), entry(1, 1)],
        vec![entry(2, 0), entry(1, 1)],
        vec![entry(0, 1), entry(1, 1)],
        vec![entry(1, 3)],
        vec![entry(0, 0)],
        vec![],
    ] {
        let mut checker = healthy();
        let broken = ReplicaFacts { epochs, ..leader(2, 2) };
        checker.on_replica(LEADER, &partition(), broken, LogChange::default());
        assert_broken(&checker, "I9");
    }
}

#[test]
fn i10_epochs_that_go_back_or_stand_still_over_a_change_are_found() {
    for (leader_epoch, partition_epoch) in [(0, 2), (1, 0), (1, 1)] {
        let mut checker = healthy();
        checker.on_cluster(cluster(LEADER, leader_epoch, partition_epoch, &[LEADER]));
        assert_broken(&checker, "I10");
    }
}

#[test]
fn i10_two_leaders_of_one_epoch_are_found_in_the_metadata_and_on_the_brokers() {
    let mut checker = healthy();
    checker.on_cluster(cluster(FOLLOWER, 1, 2, &[LEADER, FOLLOWER]));
    assert_broken(&checker, "I10");
    let mut checker = healthy();
    let second = ReplicaFacts { leader: FOLLOWER, broker_epoch: BrokerEpoch(2), ..leader(2, 2) };
    checker.on_replica(FOLLOWER, &partition(), second, LogChange::default());
    assert_broken(&checker, "I10");
}

#[test]
fn i11_a_fenced_or_stopping_member_is_found_but_not_the_last_one_of_a_leaderless_partition() {
    let fence = |facts: &mut ClusterFacts| {
        let broker = facts.brokers.get_mut(&FOLLOWER).expect("a broker");
        broker.fenced = true;
    };
    let mut checker = healthy();
    let mut facts = cluster(LEADER, 1, 2, &[LEADER, FOLLOWER]);
    fence(&mut facts);
    checker.on_cluster(facts);
    assert_broken(&checker, "I11");
    let mut checker = healthy();
    let mut facts = cluster(NodeId::NONE, 2, 2, &[FOLLOWER]);
    fence(&mut facts);
    checker.on_cluster(facts);
    assert_eq!(checker.violations(), []);
}

#[test]
fn i12_two_fetchers_none_and_one_at_a_leader_are_found() {
    for sources in [vec![], vec![LEADER, LEADER], vec![FOLLOWER]] {
        let mut checker = healthy();
        let broken = ReplicaFacts { sources, ..follower(2, 2) };
        checker.on_replica(FOLLOWER, &partition(), broken, LogChange::default());
        assert_broken(&checker, "I12");
    }
    let mut checker = healthy();
    let broken = ReplicaFacts { sources: vec![FOLLOWER], ..leader(2, 2) };
    checker.on_replica(LEADER, &partition(), broken, LogChange::default());
    assert_broken(&checker, "I12");
}

#[test]
fn i13_two_controllers_that_apply_different_metadata_are_found() {
    let mut checker = healthy();
    checker.on_committed_metadata(LEADER, Offset(5), 1);
    checker.on_committed_metadata(FOLLOWER, Offset(5), 1);
    assert_eq!(checker.violations(), []);
    checker.on_committed_metadata(NodeId(3), Offset(5), 2);
    assert_broken(&checker, "I13");
}

#[test]
fn i14_a_sequence_that_leaves_a_gap_or_comes_twice_is_found() {
    let numbered = |offset, sequence, value| BatchEntry {
        producer: (ProducerId(9), ProducerEpoch(0)),
        base_sequence: sequence,
        ..batch(offset, 1, value)
    };
    for second in [0, 2] {
        let mut checker = Checker::new(FaultModel::default());
        let log = [numbered(0, 0, "m0"), numbered(1, second, "m1")];
        checker.on_replica(LEADER, &partition(), leader(2, 2), appended(&log));
        assert_broken(&checker, "I14");
    }
    let mut checker = Checker::new(FaultModel::default());
    let log = [numbered(0, 0, "m0"), numbered(1, 1, "m1")];
    checker.on_replica(LEADER, &partition(), leader(2, 2), appended(&log));
    assert_eq!(checker.violations(), []);
}

fn send(value: &'static str, outcome: SendOutcome) -> SendRecord {
    SendRecord {
        producer: 1,
        partition: partition(),
        acks: -1,
        values: vec![Bytes::from_static(value.as_bytes())],
        outcome,
        may_repeat: false,
    }
}

fn read_at(offset: i64, value: &'static str) -> (Offset, Bytes) {
    (Offset(offset), Bytes::from_static(value.as_bytes()))
}

#[test]
fn i15_what_was_acknowledged_and_is_gone_elsewhere_or_twice_is_found() {
    for reading in [
        vec![read_at(0, "m0")],
        vec![read_at(0, "m1"), read_at(1, "m0")],
        vec![read_at(0, "m0"), read_at(1, "m1"), read_at(2, "m1")],
    ] {
        let mut checker = Checker::new(FaultModel::default());
        checker.on_send(send("m1", SendOutcome::Acked(Offset(1))));
        checker.check_final_reading(&partition(), &reading);
        assert_broken(&checker, "I15");
    }
}

#[test]
fn i15_a_record_that_certainly_failed_and_is_there_is_found() {
    let mut checker = Checker::new(FaultModel::default());
    checker.on_send(send("m0", SendOutcome::Failed));
    checker.on_send(send("m1", SendOutcome::Unknown));
    checker.check_final_reading(&partition(), &[read_at(0, "m1")]);
    assert_eq!(checker.violations(), []);
    checker.check_final_reading(&partition(), &[read_at(0, "m0")]);
    assert_broken(&checker, "I15");
}

#[test]
fn i15_a_consumer_or_a_producer_that_goes_back_is_found() {
    let mut checker = healthy();
    for _ in 0..2 {
        checker.on_read(
            &partition(),
            &ReadCheck {
                consumer: (1, 0),
                high_watermark: Offset(2),
                batch_bases: &[Offset(0)],
                records: &[read_at(0, "m0")],
            },
        );
    }
    assert_broken(&checker, "I15");
    let mut checker = Checker::new(FaultModel::default());
    checker.on_send(send("m1", SendOutcome::Acked(Offset(1))));
    checker.on_send(send("m2", SendOutcome::Acked(Offset(0))));
    assert_broken(&checker, "I15");
}

#[test]
fn an_unclean_election_may_give_committed_records_up_and_nothing_else() {
    let mut checker = Checker::new(FaultModel { unclean_elections: true, ..FaultModel::default() });
    checker.on_cluster(cluster(LEADER, 1, 1, &[LEADER]));
    let log = [batch(0, 1, "m0"), batch(1, 1, "m1")];
    checker.on_replica(LEADER, &partition(), leader(2, 2), appended(&log));
    checker.on_replica_down(LEADER, &partition());
    let new = ReplicaFacts {
        leader: FOLLOWER,
        leader_epoch: LeaderEpoch(2),
        epoch_start: Some(Offset(0)),
        epochs: vec![(LeaderEpoch(2), Offset(0))],
        broker_epoch: BrokerEpoch(2),
        ..leader(1, 1)
    };
    checker.on_cluster(cluster(FOLLOWER, 2, 2, &[FOLLOWER]));
    checker.on_replica(FOLLOWER, &partition(), new, appended(&[batch(0, 2, "n0")]));
    assert_eq!(checker.violations(), []);
    checker.on_replica(
        FOLLOWER,
        &partition(),
        ReplicaFacts { high_watermark: Offset(5), ..follower(0, 1) },
        LogChange::default(),
    );
    assert_broken(&checker, "I7");
}

#[test]
fn i16_a_watermark_that_moves_under_min_isr_is_seen() {
    let mut checker = Checker::new(FaultModel::default());
    let alone = |high_watermark| ReplicaFacts {
        effective_isr: [LEADER].into(),
        maximal_isr: [LEADER].into(),
        min_isr: 2,
        ..leader(high_watermark, 2)
    };
    checker.on_cluster(cluster(LEADER, 1, 1, &[LEADER]));
    let log = [batch(0, 1, "m0"), batch(1, 1, "m1")];
    checker.on_replica(LEADER, &partition(), alone(1), appended(&log));
    assert_eq!(checker.violations(), []);
    checker.on_replica(LEADER, &partition(), alone(2), LogChange::default());
    assert_eq!(checker.violations().iter().map(|v| v.invariant).collect::<Vec<_>>(), ["I16"]);
}

#[test]
fn i17_a_confirmed_isr_that_commits_less_than_it_has_is_seen() {
    let mut checker = Checker::new(FaultModel::default());
    checker.on_isr_confirmed(LEADER, &partition(), Offset(2), Offset(2));
    assert_eq!(checker.violations(), []);
    checker.on_isr_confirmed(LEADER, &partition(), Offset(1), Offset(2));
    assert_broken(&checker, "I17");
}

/// The follower left an ISR that is too small, and is eligible (C06).
fn with_eligible(min_isr: usize) -> Checker {
    let mut checker = healthy();
    let mut facts = cluster(LEADER, 1, 2, &[LEADER]);
    for partition in facts.partitions.values_mut() {
        partition.eligible = [FOLLOWER].into();
        partition.min_isr = min_isr;
    }
    checker.on_cluster(facts);
    checker
}

#[test]
fn i3_an_eligible_leader_replica_without_a_committed_record_is_found() {
    let mut checker = with_eligible(2);
    assert_eq!(checker.violations(), []);
    let cut = LogChange { cut_to: Some(Offset(1)), ..LogChange::default() };
    checker.on_replica(FOLLOWER, &partition(), follower(1, 1), cut);
    assert_broken(&checker, "I3");
}

#[test]
fn i11_an_eligible_leader_replica_beside_an_isr_that_is_large_enough_is_found() {
    assert_broken(&with_eligible(1), "I11");
}
