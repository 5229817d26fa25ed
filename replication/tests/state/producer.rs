//! Rules X01, X02, X03 and X05, and the snapshot's bytes.

use protocol::types::{Offset, ProducerEpoch, ProducerId};
use replication::producer_state::{
    AppendCheck, AppendOrigin, BatchKind, EndTransactionMarker, ProducerBatch, ProducerStateError,
    ProducerStateManager, SnapshotError, last_stable_offset, snapshot,
};
use std::path::PathBuf;
use std::time::Duration;

pub fn data(pid: i64, epoch: i16, sequence: i32, offset: i64, count: i32) -> ProducerBatch {
    ProducerBatch {
        producer_id: ProducerId(pid),
        producer_epoch: ProducerEpoch(epoch),
        base_offset: Offset(offset),
        last_offset_delta: count - 1,
        max_timestamp_ms: 1000 + offset,
        kind: BatchKind::Data { base_sequence: sequence, is_transactional: false },
    }
}

fn transactional(pid: i64, epoch: i16, sequence: i32, offset: i64, count: i32) -> ProducerBatch {
    ProducerBatch {
        kind: BatchKind::Data { base_sequence: sequence, is_transactional: true },
        ..data(pid, epoch, sequence, offset, count)
    }
}

fn marker(
    pid: i64,
    epoch: i16,
    offset: i64,
    coordinator_epoch: i32,
    is_abort: bool,
) -> ProducerBatch {
    ProducerBatch {
        kind: BatchKind::Control(Some(EndTransactionMarker { coordinator_epoch, is_abort })),
        ..data(pid, epoch, -1, offset, 1)
    }
}

pub fn manager() -> ProducerStateManager {
    ProducerStateManager::new(Duration::from_secs(86_400))
}

fn check(state: &ProducerStateManager, batch: &ProducerBatch) -> Result<AppendCheck, i16> {
    state.check_append(batch, AppendOrigin::Client).map_err(|error| error.code())
}

/// Appends as a leader does: check, then update.
fn append(state: &mut ProducerStateManager, batch: &ProducerBatch) -> Result<AppendCheck, i16> {
    let answer = check(state, batch)?;
    if answer == AppendCheck::Append {
        state.update(batch);
    }
    Ok(answer)
}

#[test]
fn x01_a_repeat_of_any_of_the_last_five_batches_answers_its_original_offset() {
    let mut state = manager();
    for batch in 0..6 {
        append(&mut state, &data(1, 0, batch * 3, i64::from(batch) * 3, 3)).unwrap();
    }
    for batch in 1..6 {
        let repeat = data(1, 0, batch * 3, 999, 3);
        match check(&state, &repeat) {
            Ok(AppendCheck::Duplicate(known)) => {
                assert_eq!(known.first_offset(), Offset(i64::from(batch) * 3));
                assert_eq!(known.timestamp_ms, 1000 + i64::from(batch) * 3);
            }
            other => panic!("batch {batch}: {other:?}"),
        }
    }
    assert_eq!(check(&state, &data(1, 0, 0, 999, 3)), Err(45), "the sixth last is too old");
    assert_eq!(check(&state, &data(1, 0, 15, 999, 2)), Err(45), "a part of a batch is no repeat");
    assert_eq!(check(&state, &data(1, 0, 18, 18, 1)), Ok(AppendCheck::Append));
}

#[test]
fn x01_a_gap_an_old_epoch_and_a_new_epoch_that_starts_late_are_refused() {
    let mut state = manager();
    append(&mut state, &data(1, 3, 0, 0, 2)).unwrap();
    assert_eq!(check(&state, &data(1, 3, 3, 2, 1)), Err(45));
    assert_eq!(check(&state, &data(1, 2, 2, 2, 1)), Err(47));
    assert_eq!(check(&state, &data(1, 4, 2, 2, 1)), Err(45));
    assert_eq!(append(&mut state, &data(1, 4, 0, 2, 1)), Ok(AppendCheck::Append));
    assert_eq!(check(&state, &data(1, 3, 2, 3, 1)), Err(47));
    assert_eq!(
        check(&state, &data(1, 4, 0, 3, 1)).map(|answer| answer != AppendCheck::Append),
        Ok(true),
        "the new epoch's own first batch is a repeat, not the old epoch's"
    );
}

#[test]
fn x01_an_unknown_producer_may_start_anywhere() {
    let mut state = manager();
    assert_eq!(append(&mut state, &data(7, 5, 1234, 0, 1)), Ok(AppendCheck::Append));
    assert_eq!(check(&state, &data(7, 5, 1235, 1, 1)), Ok(AppendCheck::Append));
}

#[test]
fn x01_sequences_wrap_to_zero_inside_and_between_batches() {
    let mut state = manager();
    append(&mut state, &data(1, 0, i32::MAX - 1, 0, 4)).unwrap();
    assert_eq!(state.entry(ProducerId(1)).unwrap().last_sequence(), 1);
    assert!(matches!(
        check(&state, &data(1, 0, i32::MAX - 1, 9, 4)),
        Ok(AppendCheck::Duplicate(_))
    ));
    assert_eq!(append(&mut state, &data(1, 0, 2, 4, 1)), Ok(AppendCheck::Append));

    let mut state = manager();
    append(&mut state, &data(1, 0, i32::MAX, 0, 1)).unwrap();
    assert_eq!(check(&state, &data(1, 0, 0, 1, 1)), Ok(AppendCheck::Append));
}

#[test]
fn x02_after_a_cut_the_snapshot_and_the_log_below_it_are_all_that_is_known() {
    let mut state = manager();
    append(&mut state, &data(1, 0, 0, 0, 1)).unwrap();
    append(&mut state, &data(1, 0, 1, 1, 1)).unwrap();
    let bytes = state.encode_snapshot();
    assert_eq!(state.snapshot_due(), Some(Offset(2)));
    state.on_snapshot_written(Offset(2));
    append(&mut state, &data(1, 0, 2, 2, 1)).unwrap();
    append(&mut state, &data(2, 0, 0, 3, 1)).unwrap();

    let entries = snapshot::decode(&bytes).unwrap();
    let replay_from =
        state.truncate_and_reload(Offset(0), Offset(2), Some((Offset(2), entries)), 0);
    assert_eq!(replay_from, Offset(2));
    assert_eq!(state.entry(ProducerId(1)).unwrap().last_sequence(), 1, "no phantom sequence 2");
    assert!(state.entry(ProducerId(2)).is_none());
    assert_eq!(append(&mut state, &data(1, 0, 2, 2, 1)), Ok(AppendCheck::Append));
    assert!(matches!(check(&state, &data(1, 0, 1, 9, 1)), Ok(AppendCheck::Duplicate(_))));
}

#[test]
fn x02_reloading_at_the_known_end_keeps_the_state() {
    let mut state = manager();
    append(&mut state, &data(1, 0, 0, 0, 5)).unwrap();
    assert_eq!(state.truncate_and_reload(Offset(0), Offset(5), None, 0), Offset(5));
    assert_eq!(state.len(), 1);
    assert_eq!(state.truncate_and_reload(Offset(0), Offset(3), None, 0), Offset(0));
    assert!(state.is_empty());
}

#[test]
fn x03_the_last_stable_offset_waits_for_the_marker_to_be_replicated() {
    let mut state = manager();
    let lso = |state: &ProducerStateManager, hw: i64, start: i64| {
        last_stable_offset(state.first_unstable_offset(), Offset(hw), Offset(start)).get()
    };
    state.update(&transactional(1, 0, 0, 10, 20));
    assert_eq!(lso(&state, 50, 0), 10);
    state.update(&transactional(2, 0, 0, 30, 20));
    let ended = state.update(&marker(1, 0, 50, 0, true)).unwrap();
    assert_eq!((ended.first_offset, ended.last_offset), (Offset(10), Offset(50)));
    assert!(ended.is_aborted);
    assert_eq!(ended.last_stable_offset, Offset(30));
    state.on_high_watermark(Offset(50));
    assert_eq!(lso(&state, 50, 0), 10, "the marker at 50 is on the leader alone");
    state.on_high_watermark(Offset(51));
    assert_eq!(lso(&state, 51, 0), 30, "the other transaction is still open");
    let ended = state.update(&marker(2, 0, 51, 0, false)).unwrap();
    assert_eq!(ended.last_stable_offset, Offset(52));
    state.on_high_watermark(Offset(52));
    assert_eq!(lso(&state, 52, 0), 52);
    state.update(&transactional(1, 0, 20, 52, 1));
    assert_eq!(lso(&state, 52, 0), 52, "never above the high watermark");
    state.on_high_watermark(Offset(60));
    assert_eq!(lso(&state, 60, 55), 55, "never below the log start");
}

#[test]
fn x03_a_marker_without_records_ends_nothing_but_raises_the_epoch() {
    let mut state = manager();
    assert_eq!(state.update(&marker(1, 2, 0, 4, false)), None);
    assert_eq!(state.first_unstable_offset(), None);
    assert_eq!(check(&state, &data(1, 1, 0, 1, 1)), Err(47));
    assert_eq!(check(&state, &data(1, 2, 1, 1, 1)), Err(45), "the epoch is known, it starts at 0");
    assert_eq!(check(&state, &data(1, 2, 0, 1, 1)), Ok(AppendCheck::Append));
    let old = marker(1, 2, 1, 3, false);
    let refused = state.check_append(&old, AppendOrigin::Coordinator).unwrap_err();
    assert_eq!(refused.code(), 52);
}

#[test]
fn a_plain_batch_inside_a_transaction_is_refused() {
    let mut state = manager();
    state.update(&transactional(1, 0, 0, 0, 1));
    assert_eq!(check(&state, &data(1, 0, 1, 1, 1)), Err(48));
    assert_eq!(check(&state, &transactional(1, 0, 1, 1, 1)), Ok(AppendCheck::Append));
    let refused = state.check_append(&data(1, 0, 1, 1, 1), AppendOrigin::Client);
    assert!(matches!(refused, Err(ProducerStateError::InvalidTransactionState { .. })));
}

#[test]
fn x05_a_follower_takes_every_batch_and_learns_it() {
    let mut state = manager();
    state.update(&data(1, 5, 0, 0, 1));
    for odd in [data(1, 5, 9, 1, 1), data(1, 4, 7, 2, 1), data(1, 6, 3, 3, 1)] {
        assert_eq!(state.check_append(&odd, AppendOrigin::Replication), Ok(AppendCheck::Append));
        state.update(&odd);
        let entry = state.entry(ProducerId(1)).unwrap();
        assert_eq!(entry.producer_epoch, odd.producer_epoch);
        assert_eq!(entry.last_data_offset(), odd.base_offset);
    }
    assert_eq!(state.map_end_offset(), Offset(4));
}

#[test]
fn a_coordinators_append_is_not_checked_for_sequence() {
    let mut state = manager();
    state.update(&data(1, 0, 0, 0, 1));
    let batch = data(1, 0, 7, 1, 1);
    assert!(state.check_append(&batch, AppendOrigin::Coordinator).is_ok());
    assert_eq!(check(&state, &batch), Err(45));
}

#[test]
fn idle_producers_expire_but_not_those_with_an_open_transaction() {
    let mut state = ProducerStateManager::new(Duration::from_millis(100));
    state.update(&data(1, 0, 0, 0, 1));
    state.update(&transactional(2, 0, 0, 1, 1));
    assert_eq!(state.remove_expired(1099), 0);
    assert_eq!(state.remove_expired(1100), 1);
    assert!(state.entry(ProducerId(1)).is_none());
    assert_eq!(check(&state, &data(1, 0, 44, 2, 1)), Ok(AppendCheck::Append));
    assert_eq!(state.remove_expired(i64::MAX), 0);
    assert!(state.has_late_transaction(Duration::from_millis(10), 1012));
    assert!(!state.has_late_transaction(Duration::from_millis(10), 1011));
}

#[test]
fn describe_producers_lists_them_by_id() {
    let mut state = manager();
    state.update(&data(9, 1, 4, 0, 2));
    state.update(&transactional(3, 0, 0, 2, 1));
    let listed: Vec<_> = state.active_producers().collect();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0].producer_id, ProducerId(3));
    assert_eq!(listed[0].current_transaction_start_offset, Offset(2));
    assert_eq!((listed[1].last_sequence, listed[1].coordinator_epoch), (5, -1));
    assert_eq!(listed[1].current_transaction_start_offset, Offset(-1));
}

fn golden_snapshots() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/logdir");
    let mut found = Vec::new();
    for partition in ["orders-0", "transfers-0"] {
        let Ok(folder) = std::fs::read_dir(root.join(partition)) else {
            println!("SKIPPED: no golden log folder {partition}");
            continue;
        };
        found.extend(folder.map(|file| file.unwrap().path()));
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "snapshot"));
    found.sort();
    found
}

#[test]
fn snapshots_written_by_kafka_read_and_write_back_to_the_same_bytes() {
    let mut read = 0;
    for path in golden_snapshots() {
        let bytes = std::fs::read(&path).unwrap();
        let entries = snapshot::decode(&bytes).unwrap();
        assert_eq!(entries.len(), 1, "{path:?}");
        assert_eq!(snapshot::encode(entries.iter()), bytes, "{path:?}");
        if path.ends_with("transfers-0/00000000000000000030.snapshot") {
            assert_eq!(entries[0].producer_id, ProducerId(1));
            assert_eq!(entries[0].producer_epoch, ProducerEpoch(0));
            assert_eq!(entries[0].last_sequence(), 24);
            assert_eq!(entries[0].last_data_offset(), Offset(28));
            assert_eq!(entries[0].coordinator_epoch, 0);
        }
        read += 1;
    }
    println!("{read} snapshots compared");
}

#[test]
fn a_damaged_snapshot_is_an_error_and_never_a_panic() {
    let mut state = manager();
    state.update(&data(1, 0, 0, 0, 1));
    state.update(&marker(2, 0, 1, 3, true));
    let good = state.encode_snapshot();
    assert_eq!(snapshot::decode(&good).unwrap().len(), 2);
    for length in 0..good.len() {
        assert!(snapshot::decode(&good[..length]).is_err(), "cut to {length}");
    }
    for place in 6..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1;
        assert!(matches!(snapshot::decode(&bad), Err(SnapshotError::Corrupt { .. })));
    }
    let mut version = good.clone();
    version[1] = 2;
    assert_eq!(snapshot::decode(&version), Err(SnapshotError::UnknownVersion(2)));
}
