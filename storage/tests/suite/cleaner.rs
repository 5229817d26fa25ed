//! The log cleaner's rules, one by one.

use std::path::Path;

use protocol::records::{BatchBuilder, BatchViews, Compression, TimestampType};
use protocol::{LeaderEpoch, Offset, ProducerId};
use storage::cleaner::{CleaningStep, OffsetMap};
use storage::{
    BatchTimestamp, Disk, DiskFile, LeaderAppend, LeaderAppendOptions, LogConfig, LogError,
    OpenMode,
};

use crate::cleaner_world::{World, Write, names};
use crate::common::{DIR, Given, now, read_all, records, small};
use crate::mem_disk::{Crash, MemDisk};

fn compacted() -> LogConfig {
    LogConfig {
        segment_bytes: 700,
        index_interval_bytes: 100,
        compact: true,
        delete: false,
        delete_retention_ms: 1_000,
        ..small()
    }
}

fn plain(keys: &[u8]) -> Write {
    let records = keys.iter().map(|key| (*key, true)).collect();
    Write { records, compression: Compression::None, producer: 0, transactional: false }
}

fn tombstone(key: u8) -> Write {
    Write { records: vec![(key, false)], ..plain(&[]) }
}

fn of_producer(keys: &[u8], producer: i64, transactional: bool) -> Write {
    Write { producer, transactional, ..plain(keys) }
}

/// Everything in closed segments below the high watermark, ready to be cleaned.
fn close(world: &mut World) {
    world.log.roll(now(world.clock_ms)).expect("rolls");
    world.commit_to(i64::MAX);
}

fn offsets(world: &World) -> Vec<i64> {
    let bytes = read_all(&world.log, Offset(0));
    records(&bytes).into_iter().map(|(offset, _)| offset).collect()
}

fn cleaned(writes: &[Write]) -> World {
    let mut world = World::new(compacted());
    for write in writes {
        world.write(write);
    }
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    world
}

#[test]
fn of_every_key_the_last_value_stays_at_its_offset() {
    let world = cleaned(&[plain(&[1, 2, 3]), plain(&[1, 2]), plain(&[4, 1])]);
    assert_eq!(offsets(&world), [2, 4, 5, 6]);
    assert_eq!(world.checkpoint, Some(Offset(7)));
    assert_eq!(world.log.log_end_offset(), Offset(7));
}

#[test]
fn a_batch_that_loses_records_keeps_its_offsets_codec_and_headers() {
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let batch = Write { compression, ..of_producer(&[1, 2, 3, 2], 1, false) };
        let world = cleaned(&[batch, plain(&[1]), plain(&[9])]);
        assert_eq!(offsets(&world), [2, 3, 4, 5]);
        let bytes = read_all(&world.log, Offset(0));
        let first = BatchViews::new(&bytes).next().expect("one").expect("whole");
        assert_eq!((first.base_offset().0, first.last_offset().0), (0, 3));
        assert_eq!(first.compression(), Ok(compression));
        assert_eq!((first.producer_id(), first.base_sequence()), (ProducerId(1), 0));
        assert_eq!(first.last_sequence(), 3);
        assert_eq!(first.partition_leader_epoch().0, 1);
    }
}

#[test]
fn the_active_segment_and_what_lies_above_the_last_stable_offset_are_never_touched() {
    let mut world = World::new(compacted());
    world.write(&plain(&[1]));
    world.write(&plain(&[1]));
    world.commit_to(i64::MAX);
    world.clean(100).expect("nothing to clean");
    assert_eq!(offsets(&world), [0, 1], "all is in the active segment");
    close(&mut world);
    world.write(&of_producer(&[1], 1, true));
    world.write(&plain(&[1]));
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    assert_eq!(offsets(&world), [1, 2, 3], "the transaction is open, and 3 lies above it");
    world.end_transaction(1, true);
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    assert_eq!(offsets(&world).first(), Some(&3));
}

#[test]
fn a_tombstone_stays_for_its_time_and_takes_its_key_with_it() {
    let mut world = cleaned(&[plain(&[1, 2]), tombstone(1)]);
    assert_eq!(offsets(&world), [1, 2]);
    let horizon = |world: &World| {
        let bytes = read_all(&world.log, Offset(2));
        let batch = BatchViews::new(&bytes).next().expect("one").expect("whole");
        batch.delete_horizon()
    };
    let due = horizon(&world).expect("the first cleaning sets it");
    assert_eq!(due, world.clock_ms + 1_000);
    for (wait, expected) in [(999, vec![1, 2, 3]), (1, vec![1, 3, 4])] {
        world.clock_ms += wait;
        world.write(&plain(&[3]));
        // Writing took time as well.
        world.clock_ms -= 7;
        close(&mut world);
        world.clean(100).expect("cleans");
        world.check();
        let mut found = offsets(&world);
        found.retain(|offset| expected.contains(offset) || *offset == 2);
        if wait == 999 {
            assert_eq!(horizon(&world), Some(due), "later cleanings leave it");
            assert!(found.contains(&2));
        } else {
            assert!(!found.contains(&2), "{found:?}");
        }
    }
}

#[test]
fn records_without_keys_go_and_those_beyond_the_map_stay() {
    let world = cleaned(&[plain(&[255, 1]), plain(&[2])]);
    assert_eq!(offsets(&world), [1, 2]);
    // A map for one key takes many rounds.
    let mut world = World::new(compacted());
    for key in [1, 255, 2, 1, 3, 2] {
        world.write(&plain(&[key]));
    }
    close(&mut world);
    let mut last = Offset(0);
    while world.checkpoint != Some(Offset(6)) {
        world.clean(2).expect("cleans");
        world.check();
        let reached = world.checkpoint.expect("a round is done");
        assert!(reached > last, "every round gets on");
        last = reached;
    }
    assert_eq!(offsets(&world), [3, 4, 5]);
}

#[test]
fn what_a_transaction_aborted_goes_and_its_marker_follows_after_its_time() {
    let mut world = World::new(compacted());
    world.write(&plain(&[1]));
    world.write(&of_producer(&[1, 2], 1, true));
    world.end_transaction(1, false);
    world.write(&of_producer(&[5], 1, true));
    world.end_transaction(1, true);
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    assert_eq!(offsets(&world), [0, 3, 4, 5], "markers count as records here");
    let aborted = |world: &World| {
        let end = world.log.log_end_offset();
        world.log.aborted_transactions(Offset(0), end).expect("searched").len()
    };
    assert_eq!(aborted(&world), 1, "the first round saw its batches");
    for (wait, left) in [(0, vec![0, 3, 4, 5, 6]), (2_000, vec![0, 4, 5, 6, 7])] {
        world.clock_ms += wait;
        world.write(&plain(&[9]));
        close(&mut world);
        world.clean(100).expect("cleans");
        world.check();
        assert_eq!(aborted(&world), 0, "nothing is left of it");
        let found = offsets(&world);
        assert_eq!(found.contains(&3), left.contains(&3), "{found:?}");
    }
}

#[test]
fn the_last_batch_of_a_producer_stays_as_an_empty_one_and_its_sequence_with_it() {
    let mut world = World::new(compacted());
    world.write(&of_producer(&[1], 1, false));
    world.write(&of_producer(&[1], 1, false));
    world.write(&plain(&[1]));
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    let bytes = read_all(&world.log, Offset(0));
    let empty = BatchViews::new(&bytes).next().expect("one").expect("whole");
    assert_eq!((empty.base_offset().0, empty.count(), empty.base_sequence()), (1, 0, 1));
    for crash in [Crash::KeepAll, Crash::LoseUnsynced] {
        world.log.flush().expect("flushed");
        world.flushed = world.log.recovery_point().0;
        world.crash(crash);
        world.check();
    }
    // A consumer or follower in front of the hole gets the empty batch and moves on.
    let info = world.log.read(Offset(0), 1, world.log.log_end(), true).expect("reads");
    let got = info.records.read().expect("reads");
    assert_eq!(BatchViews::new(&got).next().expect("one").expect("whole").next_offset().0, 2);
}

#[test]
fn small_segments_are_joined_and_a_segment_ends_where_it_ended() {
    let mut world = World::new(compacted());
    for _ in 0..40 {
        world.write(&plain(&[1, 2]));
    }
    close(&mut world);
    let before = world.log.segment_count();
    assert!(before > 5);
    world.clean(100).expect("cleans");
    world.check();
    assert_eq!(offsets(&world), [78, 79]);
    world.write(&plain(&[1, 2]));
    close(&mut world);
    world.clean(100).expect("cleans");
    world.check();
    assert_eq!(world.log.segment_count(), 2, "one clean and the active one");
    assert_eq!(offsets(&world), [80, 81]);
}

#[test]
fn the_dirty_ratio_and_the_lags_decide_when_and_how_far() {
    let mut world = World::new(compacted());
    world.write(&plain(&[1, 2]));
    close(&mut world);
    let cleanable = |world: &World| {
        let cleanable = world.log.cleanable(world.last_stable_offset(), now(world.clock_ms));
        cleanable.expect("told").expect("compacted")
    };
    assert_eq!(cleanable(&world).dirty_ratio(), 1.0);
    assert!(cleanable(&world).is_due(0.99) && !cleanable(&world).is_due(1.0));
    world.clean(100).expect("cleans");
    assert_eq!(cleanable(&world).dirty_ratio(), 0.0);
    assert!(!cleanable(&world).is_due(0.0));
    world.write(&plain(&[1, 2]));
    close(&mut world);
    assert_eq!(cleanable(&world).dirty_ratio(), 0.5);

    world.config.min_compaction_lag_ms = 100;
    world.log.set_config(world.config.clone());
    assert_eq!(cleanable(&world).dirty_bytes, 0, "too young");
    world.clock_ms += 110;
    assert!(cleanable(&world).dirty_bytes > 0);

    world.config.max_compaction_lag_ms = 200;
    world.log.set_config(world.config.clone());
    assert!(!cleanable(&world).is_due(0.9));
    world.clock_ms += 200;
    assert!(cleanable(&world).is_due(0.9), "overdue");
    // And a segment is not kept open for longer.
    world.write(&plain(&[1]));
    world.clock_ms += 300;
    let before = world.log.segment_count();
    world.write(&plain(&[1]));
    assert_eq!(world.log.segment_count(), before + 1);

    world.config.compact = false;
    world.log.set_config(world.config.clone());
    assert_eq!(world.log.cleanable(Offset(9), now(0)).expect("told"), None);
}

#[test]
fn f08_a_reader_keeps_the_old_bytes_of_a_segment_that_is_cleaned() {
    let mut world = World::new(compacted());
    for _ in 0..5 {
        world.write(&plain(&[1, 2]));
    }
    close(&mut world);
    let info = world.log.read(Offset(0), 10_000, world.log.log_end(), true).expect("reads");
    let before = read_all(&world.log, Offset(0));
    world.clean(100).expect("cleans");
    world.log.remove_deleted_files(now(i64::MAX / 4).monotonic).expect("removed");
    assert_eq!(&info.records.read().expect("reads")[..], &before[..]);
    assert_ne!(read_all(&world.log, Offset(0)), before);
}

#[test]
fn a_truncation_in_between_ends_a_cleaning_and_leaves_nothing_behind() {
    for steps in 0..12 {
        let mut world = World::new(compacted());
        for _ in 0..10 {
            world.write(&plain(&[1, 2]));
        }
        close(&mut world);
        world.write(&plain(&[1]));
        let mut map = OffsetMap::new(2_400, 0.9, [0, 0]);
        let mut cleaning = world.begin().expect("begins").expect("dirty");
        for _ in 0..steps {
            if !world.step(&mut cleaning, &mut map).expect("works") {
                break;
            }
        }
        world.truncate(20);
        while world.step(&mut cleaning, &mut map).expect("works") {}
        cleaning.abandon().expect("removed");
        world.check();
        let stray = |name: &String| name.ends_with(".cleaned") || name.ends_with(".swap");
        assert!(!names(&world.disk).iter().any(stray));
    }
}

#[test]
fn a_damaged_segment_is_told_and_the_log_stays_as_it_is() {
    let mut world = World::new(compacted());
    for _ in 0..10 {
        world.write(&plain(&[1, 2]));
    }
    close(&mut world);
    let path = Path::new(DIR).join("00000000000000000000.log");
    let file = world.disk.open(&path, OpenMode::ReadWrite).expect("there");
    file.write_at(&[b"x"], 80).expect("damaged");
    let before = read_all(&world.log, Offset(0));
    let mut map = OffsetMap::new(2_400, 0.9, [0, 0]);
    let mut cleaning = world.begin().expect("begins").expect("dirty");
    let error = loop {
        match cleaning.step(&mut map, 100) {
            Ok(CleaningStep::Worked(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    let LogError::CorruptFile { path: told, position: 0, .. } = &error else { panic!("{error}") };
    assert_eq!(*told, path);
    cleaning.abandon().expect("removed");
    assert_eq!(read_all(&world.log, Offset(0)), before);
}

#[test]
fn a_follower_copies_a_cleaned_log_to_its_end_and_recovers_it_whole() {
    let mut world = eventful();
    world.clean(100).expect("cleans");
    let disk = MemDisk::default();
    let mut config = LogConfig { segment_bytes: 400, ..compacted() };
    let mut follower = Given::new(&disk, Path::new(DIR), config.clone()).open();
    let mut fetches = 0;
    while follower.log_end_offset() < world.log.log_end_offset() {
        let from = follower.log_end_offset();
        let info = world.log.read(from, 200, world.log.log_end(), true).expect("reads");
        let bytes = info.records.read().expect("reads");
        let appended = follower.append_as_follower(&bytes, LeaderEpoch(1), now(1));
        assert!(appended.expect("appended").is_some(), "no progress at {from}");
        fetches += 1;
    }
    assert!(fetches > 3 && follower.segment_count() > 2);
    let all = read_all(&world.log, Offset(0));
    assert_eq!(read_all(&follower, Offset(0)), all);
    follower.flush().expect("flushed");
    let end = follower.log_end_offset();
    drop(follower);
    // The topic's configs are not known when a broker opens its logs.
    config.compact = false;
    for crash in [Crash::KeepAll, Crash::LoseUnsynced, Crash::Torn(5)] {
        let log = Given::new(&disk.crash(crash), Path::new(DIR), config.clone()).open();
        assert_eq!(log.log_end_offset(), end);
        assert_eq!(read_all(&log, Offset(0)), all);
    }
}

#[test]
fn a_batch_with_append_time_keeps_it_and_is_found_by_it() {
    let mut world = World::new(compacted());
    let options = LeaderAppendOptions {
        timestamp: BatchTimestamp::LogAppendTime,
        ..LeaderAppendOptions::CLIENT
    };
    for (at, compression) in [(5_000, Compression::Gzip), (6_000, Compression::None)] {
        let mut builder = BatchBuilder::new(Offset(0)).compression(compression);
        for (key, timestamp) in [("a", 1), ("b", at), ("c", 99_000)] {
            // The second batch takes `b` from the first.
            let key = if key == "b" { "b".to_owned() } else { format!("{key}{at}") };
            builder.append(timestamp, Some(key.as_bytes()), Some(b"v"), []).expect("fits");
        }
        let batch = builder.build().expect("builds");
        let appended = world.log.append_as_leader(&batch, LeaderEpoch(1), options, now(at));
        assert!(matches!(appended, Ok(LeaderAppend::Appended(_))));
    }
    world.model.end = world.log.log_end_offset().0;
    close(&mut world);
    world.clean(100).expect("cleans");
    let bytes = read_all(&world.log, Offset(0));
    let first = BatchViews::new(&bytes).next().expect("one").expect("whole");
    assert_eq!((first.count(), first.compression()), (2, Ok(Compression::Gzip)));
    assert_eq!(first.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(first.max_timestamp(), 5_000);
    assert_eq!(
        records(&bytes),
        [(0, 5_000), (2, 5_000), (3, 6_000), (4, 6_000), (5, 6_000)],
        "every record has its batch's time"
    );
    let found = |time| {
        let found = world.log.find_by_timestamp(time).expect("searched");
        found.map(|found| (found.offset.0, found.timestamp_ms))
    };
    assert_eq!(found(4_000), Some((0, 5_000)));
    assert_eq!(found(5_001), Some((3, 6_000)));
    assert_eq!(found(6_001), None);
}

/// A log whose cleaning joins segments, empties batches, drops a transaction and writes batches anew.
pub fn eventful() -> World {
    let mut world = World::new(compacted());
    for round in 0..6 {
        world.write(&plain(&[1, 2, 3]));
        world.write(&of_producer(&[1, 4], 1, true));
        world.end_transaction(1, round % 2 == 0);
        world.write(&Write { compression: Compression::Lz4, ..plain(&[5, 2, 6, 5]) });
        world.write(&tombstone(3));
    }
    close(&mut world);
    world
}

#[test]
fn a_crash_at_any_change_of_the_disk_leaves_whole_data() {
    let mut changes = 0;
    loop {
        let crashes = [Crash::KeepAll, Crash::LoseUnsynced];
        let torn = (0..6).map(|seed| Crash::Torn(seed * 7_919 + changes));
        let mut finished = false;
        for crash in crashes.into_iter().chain(torn) {
            let mut world = eventful();
            world.log.flush().expect("flushed");
            world.flushed = world.log.recovery_point().0;
            world.disk.fail_after(changes);
            finished = world.clean(100).is_ok();
            world.crash(crash);
            world.check();
            let stray = |name: &String| {
                [".cleaned", ".swap", ".deleted"].iter().any(|suffix| name.ends_with(suffix))
            };
            assert!(!names(&world.disk).iter().any(stray), "after {changes} changes");
            world.clean(100).expect("goes on");
            world.check();
        }
        if finished {
            break;
        }
        changes += 1;
    }
    assert!(changes > 40, "the cleaning made {changes} changes");
}

#[test]
fn a_crash_at_any_change_of_the_recovery_of_a_swap_leaves_whole_data() {
    let mut checked = 0;
    for changes in 0..120 {
        let mut world = eventful();
        world.log.flush().expect("flushed");
        world.flushed = world.log.recovery_point().0;
        world.disk.fail_after(changes);
        if world.clean(100).is_ok() {
            break;
        }
        let first = world.disk.crash(Crash::KeepAll);
        if !names(&first).iter().any(|name| name.ends_with(".log.swap")) {
            continue;
        }
        for again in 0.. {
            let disk = first.crash(Crash::KeepAll);
            disk.fail_after(again);
            let opened = world.try_reopen(&disk).is_ok();
            for seed in 0..6 {
                let disk = disk.crash(Crash::Torn(seed));
                world.log = world.try_reopen(&disk).expect("the log opens");
                world.after_reopening(Crash::LoseUnsynced);
                world.check();
                checked += 1;
            }
            if opened {
                break;
            }
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn the_checkpoint_survives_and_one_beyond_the_log_counts_for_nothing() {
    let mut world = eventful();
    world.clean(100).expect("cleans");
    let end = world.log.log_end_offset();
    assert_eq!(world.checkpoint, Some(end));
    world.crash(Crash::KeepAll);
    let told = |world: &World| {
        let last_stable = world.last_stable_offset();
        let cleanable = world.log.cleanable(last_stable, now(world.clock_ms)).expect("told");
        cleanable.expect("compacted").first_dirty
    };
    assert_eq!(told(&world), end);
    world.checkpoint = Some(end + 10);
    world.crash(Crash::KeepAll);
    assert_eq!(told(&world), Offset(0));
}
