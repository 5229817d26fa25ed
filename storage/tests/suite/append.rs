//! Appends and reads: places, limits, bounds, producers, times.

use bytes::Bytes;
use protocol::records::{BatchView, TimestampType};
use protocol::{LeaderEpoch, Offset};
use replication::LogOffsetMetadata;
use storage::{BatchTimestamp, LeaderAppend, LeaderAppendOptions, LogConfig, LogError, RealDisk};

use crate::common::{
    Given, append, append_records, batch, batch_at, epochs, marker, now, producer_batch, read_all,
    small, temporary,
};

#[test]
fn a_leader_fills_in_offset_and_epoch_and_changes_nothing_else() {
    let (_root, _dir, mut log) = temporary(small());
    append_records(&mut log, 3, 100, 4);
    let given = batch(&[200, 201]);
    let info = append(&mut log, &given, 5);
    assert_eq!(info.start, LogOffsetMetadata::new(Offset(3), Offset(0), info.start.position));
    let bytes = read_all(&log, Offset(3));
    assert_eq!(bytes[8..12], given[8..12]);
    assert_eq!(bytes[16..], given[16..]);
    let view = BatchView::parse(&bytes).expect("whole");
    assert_eq!((view.base_offset(), view.partition_leader_epoch()), (Offset(3), LeaderEpoch(5)));
    view.check_crc().expect("intact");
    assert_eq!(epochs(&log), [(4, 0), (5, 3)]);
}

#[test]
fn log_append_time_is_stamped_under_a_new_checksum() {
    let (_root, _dir, mut log) = temporary(small());
    let options = LeaderAppendOptions {
        timestamp: BatchTimestamp::LogAppendTime,
        ..LeaderAppendOptions::CLIENT
    };
    let answer = log.append_as_leader(&batch(&[7, 8]), LeaderEpoch(0), options, now(5_000));
    let Ok(LeaderAppend::Appended(info)) = answer else { panic!("{answer:?}") };
    assert_eq!(info.log_append_time_ms, 5_000);
    let bytes = read_all(&log, Offset(0));
    let view = BatchView::parse(&bytes).expect("whole");
    view.check_crc().expect("intact");
    assert_eq!(view.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(crate::common::records(&bytes), [(0, 5_000), (1, 5_000)]);
}

#[test]
fn damaged_or_oversized_batches_leave_no_trace() {
    let (_root, _dir, mut log) = temporary(LogConfig { max_message_bytes: 150, ..small() });
    let mut damaged = batch(&[1]).to_vec();
    *damaged.last_mut().expect("bytes") ^= 1;
    let mut try_append = |bytes: Bytes| {
        log.append_as_leader(&bytes, LeaderEpoch(1), LeaderAppendOptions::CLIENT, now(1))
    };
    assert!(matches!(try_append(damaged.into()), Err(LogError::CorruptBatch(_))));
    assert!(matches!(try_append(batch(&[1, 2, 3, 4])), Err(LogError::BatchTooLarge { .. })));
    assert!(matches!(try_append(batch(&[1]).slice(..70)), Err(LogError::InvalidRecord(_))));
    assert_eq!((log.log_end_offset(), log.size_bytes()), (Offset(0), 0));
    assert!(log.epochs().is_empty());
}

#[test]
fn a_checksum_is_computed_unless_the_caller_did_so() {
    let (_root, _dir, mut log) = temporary(small());
    let mut given = batch(&[1, 2]).to_vec();
    if let Some(last) = given.last_mut() {
        *last ^= 1;
    }
    let given = Bytes::from(given);
    let refused = log.append_as_leader(&given, LeaderEpoch(0), LeaderAppendOptions::CLIENT, now(1));
    assert!(matches!(refused, Err(LogError::CorruptBatch(_))));
    let options = LeaderAppendOptions { checksum_checked: true, ..LeaderAppendOptions::CLIENT };
    let trusted = log.append_as_leader(&given, LeaderEpoch(0), options, now(1));
    assert!(matches!(trusted, Ok(LeaderAppend::Appended(_))));
}

#[test]
fn an_older_leader_epoch_cannot_write() {
    let (_root, _dir, mut log) = temporary(small());
    log.assign_leader_epoch(LeaderEpoch(3)).expect("noted");
    let refused =
        log.append_as_leader(&batch(&[1]), LeaderEpoch(2), LeaderAppendOptions::CLIENT, now(1));
    assert!(matches!(refused, Err(LogError::StaleLeaderEpoch { .. })));
}

#[test]
fn f01_one_whole_batch_comes_even_beyond_the_limit() {
    let (_root, _dir, mut log) = temporary(small());
    let size = append_records(&mut log, 2, 100, 0).size_bytes;
    append_records(&mut log, 2, 200, 0);
    let read = |max, min_one| log.read(Offset(0), max, log.log_end(), min_one).expect("reads");
    assert_eq!(read(1, true).records.len(), size);
    let limited = read(1, false);
    assert!(limited.first_batch_incomplete);
    assert_eq!(limited.records.len(), 1);
    assert_eq!(read(size + 10, true).records.len(), size + 10);
    assert_eq!(read(usize::MAX, true).records.len(), 2 * size);
}

#[test]
fn f05_a_read_inside_a_batch_starts_at_its_base_and_stops_at_the_bound() {
    let (_root, _dir, mut log) = temporary(small());
    let first = append_records(&mut log, 5, 100, 0);
    let second = append_records(&mut log, 5, 200, 0);
    let third = append_records(&mut log, 5, 300, 0);
    let info = log.read(Offset(7), usize::MAX, third.start, true).expect("reads");
    assert_eq!(info.start.position, second.start.position);
    assert_eq!(info.records.len(), second.size_bytes);
    let by_offset = log.read(Offset(7), usize::MAX, Offset(10).into(), true).expect("reads");
    assert_eq!(by_offset.records.len(), second.size_bytes);
    assert!(log.read(Offset(12), 100, third.start, true).expect("reads").records.is_empty());
    assert!(log.read(Offset(15), 100, log.log_end(), true).expect("reads").records.is_empty());
    assert_eq!(first.start.position, 0);
    let beyond = log.read(Offset(16), 100, log.log_end(), true);
    assert!(matches!(beyond, Err(LogError::OffsetOutOfRange { .. })));
}

#[test]
fn f07_times_lead_to_the_record_and_the_largest_one_to_the_earliest_batch() {
    let (_root, _dir, mut log) = temporary(small());
    assert_eq!(log.max_timestamp().expect("reads"), None);
    for at in 0..40 {
        append(&mut log, &batch(&[at * 10, at * 10 + 5]), 2);
    }
    append(&mut log, &batch(&[395, 100]), 3);
    assert!(log.segment_count() > 3);
    for at in 0..40 {
        let found = log.find_by_timestamp(at * 10 + 1).expect("reads").expect("found");
        assert_eq!((found.timestamp_ms, found.offset), (at * 10 + 5, Offset(at * 2 + 1)));
    }
    let largest = log.max_timestamp().expect("reads").expect("found");
    assert_eq!(
        (largest.timestamp_ms, largest.offset, largest.leader_epoch.0),
        (395, Offset(79), 2)
    );
    assert_eq!(log.find_by_timestamp(396).expect("reads"), None);
    log.increment_log_start(Offset(5)).expect("moves");
    let found = log.find_by_timestamp(0).expect("reads").expect("found");
    assert_eq!((found.timestamp_ms, found.offset), (25, Offset(5)));
}

#[test]
fn x01_a_repeat_is_answered_with_the_first_offset_and_not_written() {
    let (_root, _dir, mut log) = temporary(small());
    append(&mut log, &producer_batch(7, 0, 2, false), 0);
    append(&mut log, &producer_batch(7, 2, 1, false), 0);
    let mut again = |sequence, count| {
        let bytes = producer_batch(7, sequence, count, false);
        log.append_as_leader(&bytes, LeaderEpoch(0), LeaderAppendOptions::CLIENT, now(1))
    };
    let Ok(LeaderAppend::Duplicate(known)) = again(0, 2) else { panic!("a repeat") };
    assert_eq!(known.last_offset, Offset(1));
    assert!(matches!(again(9, 1), Err(LogError::Producer(_))));
    assert_eq!(log.log_end_offset(), Offset(3));
}

#[test]
fn f03_aborted_transactions_are_found_from_any_offset_they_reach_over() {
    let (_root, dir, mut log) = temporary(small());
    append(&mut log, &producer_batch(1, 0, 2, true), 0);
    append(&mut log, &producer_batch(2, 0, 2, true), 0);
    for at in 0..10 {
        append_records(&mut log, 3, at, 0);
    }
    assert_eq!(log.first_unstable_offset(), Some(Offset(0)));
    let info = append(&mut log, &marker(1, false), 0);
    assert_eq!(info.completed.len(), 1);
    append(&mut log, &marker(2, true), 0);
    let end = log.log_end_offset();
    log.on_high_watermark(end);
    assert_eq!(log.first_unstable_offset(), None);
    let check = |log: &storage::Log<RealDisk>| {
        for from in [0, 1, 20, 34] {
            let found = log.aborted_transactions(Offset(from), end).expect("searched");
            assert_eq!(found.len(), 1, "from {from}");
            let txn = found[0];
            assert_eq!((txn.first_offset, txn.last_offset), (Offset(0), Offset(34)));
            assert_eq!(txn.last_stable_offset, Offset(2), "producer 2 was still open");
        }
        assert!(log.aborted_transactions(Offset(35), end).expect("searched").is_empty());
    };
    check(&log);
    drop(log);
    check(&Given::new(&RealDisk, &dir, small()).open());
}

#[test]
fn t11_an_empty_follower_accepts_the_batch_that_lies_across_its_start() {
    let (_root, _dir, mut log) = temporary(small());
    log.truncate_fully_and_start_at(Offset(15), None, now(1)).expect("emptied");
    let across = batch_at(10, 2, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let info = log.append_as_follower(&across, LeaderEpoch(2), now(1)).expect("accepted");
    assert_eq!(info.map(|info| info.last_offset), Some(Offset(19)));
    assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(15), Offset(20)));
    let read = log.read(Offset(15), usize::MAX, log.log_end(), true).expect("reads");
    assert_eq!(read.records.read().expect("reads"), across);
    let refused = log.append_as_follower(&across, LeaderEpoch(2), now(1));
    assert!(matches!(refused, Err(LogError::UnexpectedAppendOffset { .. })));
}

#[test]
fn a_follower_takes_whole_batches_up_to_the_first_newer_epoch() {
    let (_root, _dir, mut log) = temporary(small());
    let mut fetched = Vec::new();
    for at in 0..20 {
        fetched.extend_from_slice(&batch_at(at * 2, at as i32 / 10 + 1, &[at, at + 1]));
    }
    let whole = fetched.len();
    fetched.extend_from_slice(&batch_at(40, 2, &[1])[..50]);
    let fetched = Bytes::from(fetched);
    let info = log.append_as_follower(&fetched, LeaderEpoch(2), now(1)).expect("appends");
    assert_eq!(info.map(|info| info.size_bytes), Some(whole));
    assert!(log.segment_count() > 1, "segments stay within segment.bytes");
    assert_eq!(read_all(&log, Offset(0)), fetched[..whole]);
    assert_eq!(epochs(&log), [(1, 0), (2, 20)]);
    let newer = batch_at(40, 3, &[1]);
    assert_eq!(log.append_as_follower(&newer, LeaderEpoch(2), now(1)).expect("nothing"), None);
}
