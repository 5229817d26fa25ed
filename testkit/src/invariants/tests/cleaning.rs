//! K1 to K4: what a cleaner may not do, done once each; and what it may.

use super::*;

const HORIZON: i64 = 1000;

fn record(offset: i64, key: &str, value: &str) -> BatchEntry {
    let mut made = batch(offset, 1, value);
    made.records[0].key = Some(Bytes::copy_from_slice(key.as_bytes()));
    made
}

fn tombstone(offset: i64, key: &str, horizon: Option<i64>) -> BatchEntry {
    let mut made = record(offset, key, "");
    made.records[0].value = None;
    made.delete_horizon = horizon;
    made
}

fn compacted(facts: ReplicaFacts) -> ReplicaFacts {
    ReplicaFacts { compacts: true, ..facts }
}

/// `a`, `b`, `a` again, `b` deleted, `c`.
fn log() -> Vec<BatchEntry> {
    let (a, b) = (record(0, "a", "a0"), record(1, "b", "b1"));
    vec![a, b, record(2, "a", "a2"), tombstone(3, "b", None), record(4, "c", "c4")]
}

/// Two replicas with all of that, committed.
fn whole() -> Checker {
    let mut checker = Checker::new(FaultModel::default());
    checker.on_cluster(cluster(LEADER, 1, 1, &[LEADER, FOLLOWER]));
    checker.on_replica(LEADER, &partition(), compacted(leader(0, 5)), appended(&log()));
    checker.on_replica(FOLLOWER, &partition(), compacted(follower(0, 5)), appended(&log()));
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 5)), LogChange::default());
    checker.on_replica(FOLLOWER, &partition(), compacted(follower(5, 5)), LogChange::default());
    checker
}

fn cleaned(batches: &[BatchEntry], wall_clock_ms: i64) -> LogChange {
    LogChange { cleaned: true, wall_clock_ms, ..appended(batches) }
}

fn leader_cleans(checker: &mut Checker, left: &[BatchEntry], wall_clock_ms: i64) {
    let change = cleaned(left, wall_clock_ms);
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 5)), change);
    checker.check_logs();
}

fn all_but(gone: &[i64]) -> Vec<BatchEntry> {
    log().into_iter().filter(|batch| !gone.contains(&batch.base.get())).collect()
}

#[test]
fn a_replica_may_clean_what_was_replaced_and_another_may_not_have_done_so_yet() {
    let mut checker = whole();
    let mut left = all_but(&[0, 1, 3]);
    left.insert(1, tombstone(3, "b", Some(HORIZON)));
    leader_cleans(&mut checker, &left, HORIZON - 100);
    assert_eq!(checker.violations(), []);
    // The tombstone's time is up.
    leader_cleans(&mut checker, &all_but(&[0, 1, 3]), HORIZON);
    assert_eq!(checker.violations(), []);
    // A new follower copies what is left.
    checker.on_replica_down(FOLLOWER, &partition());
    let anew = LogChange { reopened: true, ..appended(&all_but(&[0, 1, 3])) };
    checker.on_replica(FOLLOWER, &partition(), compacted(follower(5, 5)), anew);
    checker.check_logs();
    assert_eq!(checker.violations(), []);
}

#[test]
fn an_empty_batch_that_stays_for_its_offset_is_no_loss() {
    let mut checker = whole();
    let mut left = log();
    left[0].records.clear();
    leader_cleans(&mut checker, &left, 0);
    assert_eq!(checker.violations(), []);
}

#[test]
fn k1_and_k4_the_last_record_of_a_key_that_is_cleaned_away_is_found() {
    for gone in [2, 4] {
        let mut checker = whole();
        leader_cleans(&mut checker, &all_but(&[gone]), 0);
        for invariant in ["K1", "K4", "I2", "I5"] {
            assert_broken(&checker, invariant);
        }
    }
}

#[test]
fn k1_a_tombstone_that_goes_before_its_time_is_found() {
    let mut checker = whole();
    leader_cleans(&mut checker, &all_but(&[0, 1, 3]), i64::MAX);
    assert_broken(&checker, "K1");
    let mut checker = whole();
    let mut left = log();
    left[3] = tombstone(3, "b", Some(HORIZON));
    leader_cleans(&mut checker, &left, 0);
    leader_cleans(&mut checker, &all_but(&[3]), HORIZON - 1);
    assert_broken(&checker, "K1");
}

#[test]
fn k1_a_record_that_only_an_uncommitted_one_has_replaced_is_found() {
    let mut checker = whole();
    let more = [record(5, "c", "c5")];
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 6)), appended(&more));
    let mut left = all_but(&[4]);
    left.extend(more);
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 6)), cleaned(&left, 0));
    assert_broken(&checker, "K1");
}

#[test]
fn k1_a_crash_that_takes_the_record_that_replaced_another_is_found() {
    let mut checker = whole();
    checker.on_replica_down(FOLLOWER, &partition());
    let left = LogChange { reopened: true, ..appended(&all_but(&[0, 2, 3, 4])) };
    let facts = ReplicaFacts { log_end: Offset(2), ..compacted(follower(0, 2)) };
    checker.on_replica(FOLLOWER, &partition(), facts, left);
    assert_broken(&checker, "K1");
}

#[test]
fn k2_a_cleaning_above_the_high_watermark_is_found() {
    let mut checker = whole();
    let more = [record(5, "d", "d5"), record(6, "d", "d6")];
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 7)), appended(&more));
    let mut left = log();
    left.push(more[1].clone());
    checker.on_replica(LEADER, &partition(), compacted(leader(5, 7)), cleaned(&left, 0));
    assert_broken(&checker, "K2");
}

#[test]
fn k3_a_record_that_is_moved_or_changed_is_found() {
    let moved = BatchEntry { base: Offset(1), next: Offset(2), ..record(2, "a", "a2") };
    for changed in [record(2, "a", "other"), record(2, "z", "a2"), moved] {
        let mut checker = whole();
        let mut left = all_but(&[0, 1, 2]);
        left.insert(0, changed);
        leader_cleans(&mut checker, &left, 0);
        assert_broken(&checker, "K3");
    }
}

#[test]
fn i1_two_cleaned_logs_with_different_records_at_one_offset_are_found() {
    let mut checker = Checker::new(FaultModel::default());
    let one = [record(0, "a", "a0"), record(3, "b", "b3")];
    let other = [record(0, "a", "x0"), record(3, "b", "b3")];
    checker.on_replica(LEADER, &partition(), compacted(leader(0, 4)), appended(&one));
    checker.on_replica(FOLLOWER, &partition(), compacted(follower(0, 4)), appended(&other));
    checker.check_logs();
    assert_broken(&checker, "I1");
}
