//! What goes by age, by size and below the log start, and how segments are rolled.

use std::path::Path;

use protocol::Offset;
use storage::{Disk, Log, LogConfig, RealDisk};

use crate::common::{append_records, now, small, temporary};

fn files(dir: &Path, suffix: &str) -> usize {
    let all = RealDisk.list(dir).expect("listed");
    all.iter().filter(|entry| entry.name.ends_with(suffix)).count()
}

fn filled(config: LogConfig) -> (tempfile::TempDir, std::path::PathBuf, Log<RealDisk>) {
    let (root, dir, mut log) = temporary(config);
    for at in 0..40 {
        append_records(&mut log, 2, at * 10, 1);
    }
    assert!(log.segment_count() > 4);
    (root, dir, log)
}

#[test]
fn old_segments_go_by_their_largest_timestamp_and_never_above_the_high_watermark() {
    let (_root, _dir, mut log) = filled(LogConfig { retention_ms: 1_000, ..small() });
    assert_eq!(log.delete_old_segments(Offset(80), now(1_000)).expect("a pass"), 0);
    let count = log.segment_count();
    assert_eq!(log.delete_old_segments(Offset(0), now(9_000)).expect("a pass"), 0);
    let second = log.segment_base_offsets().nth(1).expect("two");
    assert_eq!(log.delete_old_segments(second, now(9_000)).expect("a pass"), 1);
    assert_eq!(log.log_start_offset(), second);
    assert_eq!(log.delete_old_segments(Offset(80), now(9_000)).expect("a pass"), count - 1);
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(80), Offset(80)));
    assert_eq!(log.segment_count(), 1);
}

#[test]
fn size_keeps_at_least_what_it_allows() {
    let (_root, _dir, mut log) = filled(LogConfig { retention_bytes: 2_500, ..small() });
    log.delete_old_segments(Offset(80), now(400)).expect("a pass");
    let first = log.segment_base_offsets().next().expect("one");
    assert!(log.size_bytes() >= 2_500 && log.size_bytes() < 3_500, "{}", log.size_bytes());
    assert_eq!(log.log_start_offset(), first);
}

#[test]
fn segments_below_the_log_start_go_in_two_steps() {
    let config = LogConfig { retention_ms: -1, delete: false, ..small() };
    let (_root, dir, mut log) = filled(config);
    let third = log.segment_base_offsets().nth(2).expect("three");
    log.increment_log_start(third + 1).expect("moves");
    assert_eq!(log.delete_old_segments(Offset(80), now(5_000)).expect("a pass"), 2);
    assert_eq!(files(&dir, ".deleted"), 6);
    assert_eq!(log.remove_deleted_files(now(64_999).monotonic).expect("none due"), 0);
    assert_eq!(log.next_file_removal(), Some(now(65_000).monotonic));
    assert_eq!(log.remove_deleted_files(now(65_000).monotonic).expect("due"), 6);
    assert_eq!(files(&dir, ".deleted"), 0);
    assert_eq!(log.log_start_offset(), third + 1);
}

#[test]
fn a_segment_is_rolled_when_a_batch_is_segment_ms_newer_than_its_first() {
    let (_root, _dir, mut log) = temporary(LogConfig { segment_ms: 100, ..small() });
    append_records(&mut log, 1, 1_000, 1);
    assert!(!append_records(&mut log, 1, 1_100, 1).rolled);
    assert!(append_records(&mut log, 1, 1_101, 1).rolled);
}

#[test]
fn a_segment_is_rolled_when_its_index_is_full() {
    let config = LogConfig {
        segment_bytes: 1 << 20,
        segment_index_bytes: 48,
        index_interval_bytes: 0,
        ..small()
    };
    let (_root, _dir, mut log) = temporary(config);
    for at in 0..20 {
        append_records(&mut log, 1, at, 1);
    }
    assert!(log.segment_count() > 3);
    assert_eq!(crate::common::read_all(&log, Offset(0)).len() as u64, log.size_bytes());
}

#[test]
fn flush_messages_and_flush_ms_ask_for_a_flush() {
    let (_root, _dir, mut log) = temporary(LogConfig { flush_messages: 4, ..small() });
    append_records(&mut log, 3, 1, 1);
    assert_eq!(log.recovery_point(), Offset(0));
    append_records(&mut log, 1, 1, 1);
    assert_eq!(log.recovery_point(), Offset(4));
    log.set_config(LogConfig { flush_ms: 500, ..small() });
    append_records(&mut log, 1, 1, 1);
    assert!(!log.maybe_flush(now(2_499)).expect("not yet"));
    assert!(log.maybe_flush(now(2_500)).expect("due"));
    assert_eq!(log.recovery_point(), Offset(5));
}

#[test]
fn a_flush_that_a_truncation_overtook_is_not_believed() {
    let (_root, _dir, mut log) = temporary(small());
    append_records(&mut log, 2, 1, 1);
    append_records(&mut log, 8, 1, 1);
    let ticket = log.begin_flush().expect("begun").expect("something to flush");
    log.truncate_to(Offset(2), now(1)).expect("cut");
    append_records(&mut log, 8, 1, 2);
    ticket.sync().expect("synced");
    log.complete_flush(&ticket);
    assert_eq!(log.recovery_point(), Offset(0));
}
