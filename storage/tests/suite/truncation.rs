//! Cutting a log (T02, T03), starting over (T11), and what readers keep meanwhile (F08).

use protocol::{LeaderEpoch, Offset, ProducerId};
use storage::LogError;

use crate::common::{
    append, append_records, epochs, now, producer_batch, read_all, small, temporary,
};

#[test]
fn t03_a_truncation_takes_records_epochs_and_producers_above_it() {
    let (_root, _dir, mut log) = temporary(small());
    for at in 0..10 {
        append(&mut log, &producer_batch(5, at, 1, false), 1);
    }
    for at in 10..15 {
        append(&mut log, &producer_batch(5, at, 1, false), 3);
    }
    log.flush().expect("flushed");
    assert!(log.truncate_to(Offset(10), now(1)).expect("cut"));
    assert_eq!(log.log_end_offset(), Offset(10));
    assert_eq!(log.recovery_point(), Offset(10));
    assert_eq!(epochs(&log), [(1, 0)]);
    let known = log.producers().entry(ProducerId(5)).map(|entry| entry.last_sequence());
    assert_eq!(known, Some(9), "X02: no phantom sequence");
    let info = append(&mut log, &producer_batch(5, 10, 1, false), 4);
    assert_eq!(info.base_offset, Offset(10));
    assert!(!log.truncate_to(Offset(50), now(1)).expect("nothing to cut"));
}

#[test]
fn a_cut_inside_a_batch_takes_the_whole_batch() {
    let (_root, _dir, mut log) = temporary(small());
    append_records(&mut log, 4, 1, 1);
    append_records(&mut log, 4, 9, 1);
    log.truncate_to(Offset(6), now(1)).expect("cut");
    assert_eq!(log.log_end_offset(), Offset(4));
    assert_eq!(log.max_timestamp().expect("reads").map(|found| found.timestamp_ms), Some(4));
}

#[test]
fn an_epoch_without_records_goes_with_a_truncation_that_cuts_nothing() {
    let (_root, _dir, mut log) = temporary(small());
    append_records(&mut log, 4, 1, 1);
    log.assign_leader_epoch(LeaderEpoch(2)).expect("noted");
    assert!(!log.truncate_to(Offset(4), now(1)).expect("nothing to cut"));
    assert_eq!(epochs(&log), [(1, 0)]);
}

#[test]
fn f08_a_reader_keeps_its_bytes_when_the_log_is_cut_and_written_again() {
    let (_root, dir, mut log) = temporary(small());
    append_records(&mut log, 2, 1, 1);
    append_records(&mut log, 2, 5, 1);
    let promised = log.read(Offset(0), usize::MAX, log.log_end(), true).expect("reads").records;
    let before = read_all(&log, Offset(0));
    log.truncate_to(Offset(2), now(1)).expect("cut");
    append_records(&mut log, 3, 700, 2);
    assert_eq!(promised.read().expect("still there"), before);
    assert_ne!(read_all(&log, Offset(0)), before);
    let on_disk = std::fs::read(dir.join("00000000000000000000.log")).expect("read");
    assert_eq!(on_disk, read_all(&log, Offset(0)));
}

#[test]
fn f08_a_reader_keeps_its_bytes_when_segment_and_log_are_deleted() {
    let (_root, dir, mut log) = temporary(small());
    for at in 0..20 {
        append_records(&mut log, 2, at, 1);
    }
    let promised = log.read(Offset(0), 500, log.log_end(), true).expect("reads").records;
    let before = promised.read().expect("reads");
    log.truncate_fully_and_start_at(Offset(100), None, now(1)).expect("emptied");
    log.remove_deleted_files(now(100_000).monotonic).expect("removed");
    assert_eq!(promised.read().expect("still there"), before);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(100), Offset(100)));
    let folder = log.rename_to_deleted("0123abcd").expect("renamed");
    assert!(folder.display().to_string().ends_with("t-0.0123abcd-delete"));
    log.remove().expect("removed");
    assert!(!folder.exists() && !dir.exists());
}

#[test]
fn i02_the_log_start_moves_up_only_and_not_beyond_the_end() {
    let (_root, _dir, mut log) = temporary(small());
    append_records(&mut log, 4, 1, 1);
    append_records(&mut log, 4, 9, 2);
    assert!(log.increment_log_start(Offset(5)).expect("moves"));
    assert!(!log.increment_log_start(Offset(3)).expect("stays"));
    assert_eq!(epochs(&log), [(2, 5)]);
    let below = log.read(Offset(4), 100, log.log_end(), true);
    assert!(matches!(below, Err(LogError::OffsetOutOfRange { .. })));
    let beyond = log.increment_log_start(Offset(9));
    assert!(matches!(beyond, Err(LogError::OffsetOutOfRange { .. })));
    assert_eq!(log.checkpointed_log_start(), Some(Offset(5)));
}
