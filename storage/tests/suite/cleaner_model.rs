//! Random histories with cleanings that crash anywhere, against the plain model.

use std::path::Path;

use proptest::prelude::*;
use protocol::Offset;
use protocol::records::Compression;
use storage::cleaner::OffsetMap;
use storage::{Disk, LogConfig};

use crate::cleaner_world::{World, Write};
use crate::common::{DIR, now, small};
use crate::mem_disk::Crash;

#[derive(Clone, Debug)]
enum Action {
    Write(Write),
    EndTransaction(i64, bool),
    Commit,
    Wait(i64),
    Roll,
    /// Clean with a map for so many keys.
    Clean(usize),
    /// Clean, writing between the steps.
    CleanBeside(usize, Vec<Write>, bool),
    /// Clean on a disk that fails after so many changes; then crash.
    CrashInCleaning(u64, Crash),
    /// The same, and crash again so many changes into the recovery.
    CrashTwice(u64, Crash, u64, Crash),
    Crash(Crash),
    Flush,
    Truncate(i64),
    MoveStart(i64),
}

fn write() -> impl Strategy<Value = Write> {
    let record = (prop_oneof![9 => 0_u8..6, 1 => Just(255)], prop::bool::weighted(0.75));
    let compression = prop_oneof![
        4 => Just(Compression::None),
        1 => Just(Compression::Gzip),
        1 => Just(Compression::Snappy),
        1 => Just(Compression::Lz4),
        1 => Just(Compression::Zstd),
    ];
    (prop::collection::vec(record, 1..5), compression, 0_i64..4, any::<bool>()).prop_map(
        |(records, compression, producer, transactional)| Write {
            records,
            compression,
            producer,
            transactional,
        },
    )
}

fn crash() -> impl Strategy<Value = Crash> {
    prop_oneof![
        1 => Just(Crash::KeepAll),
        1 => Just(Crash::LoseUnsynced),
        4 => any::<u64>().prop_map(Crash::Torn),
    ]
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        16 => write().prop_map(Action::Write),
        4 => (1_i64..4, any::<bool>()).prop_map(|(id, commit)| Action::EndTransaction(id, commit)),
        4 => Just(Action::Commit),
        2 => (0_i64..400).prop_map(Action::Wait),
        2 => Just(Action::Roll),
        4 => (2_usize..12).prop_map(Action::Clean),
        2 => (2_usize..12, prop::collection::vec(write(), 1..6), any::<bool>())
            .prop_map(|(keys, writes, truncate)| Action::CleanBeside(keys, writes, truncate)),
        3 => (0_u64..60, crash()).prop_map(|(at, crash)| Action::CrashInCleaning(at, crash)),
        1 => (0_u64..60, crash(), 0_u64..12, crash())
            .prop_map(|(at, crash, again, second)| Action::CrashTwice(at, crash, again, second)),
        1 => crash().prop_map(Action::Crash),
        1 => Just(Action::Flush),
        1 => (0_i64..20).prop_map(Action::Truncate),
        1 => (0_i64..10).prop_map(Action::MoveStart),
    ];
    prop::collection::vec(action, 1..60)
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 700,
        index_interval_bytes: 100,
        compact: true,
        delete: false,
        delete_retention_ms: 200,
        ..small()
    }
}

fn clean_beside(world: &mut World, keys: usize, writes: &[Write], truncate: bool) {
    let mut map = OffsetMap::new(keys * 24, 0.9, [3, 4]);
    let Some(mut cleaning) = world.begin().expect("begins") else { return };
    let mut writes = writes.iter();
    while world.step(&mut cleaning, &mut map).expect("works") {
        match writes.next() {
            Some(write) => world.write(write),
            None if truncate => {
                world.truncate(world.model.end - 3);
                break;
            }
            None => {}
        }
        world.check();
    }
    cleaning.abandon().expect("removed");
}

fn crash_in_cleaning(world: &mut World, at: u64, crash: Crash) {
    world.disk.fail_after(at);
    let _ = world.clean(8);
    world.crash(crash);
}

fn take(world: &mut World, action: &Action) {
    match action {
        Action::Write(write) => world.write(write),
        Action::EndTransaction(producer, commit) => world.end_transaction(*producer, *commit),
        Action::Commit => world.commit_to(i64::MAX),
        Action::Wait(ms) => world.clock_ms += ms,
        Action::Roll => {
            world.log.roll(now(world.clock_ms)).expect("rolls");
        }
        Action::Clean(keys) => world.clean(*keys).expect("cleans"),
        Action::CleanBeside(keys, writes, truncate) => {
            clean_beside(world, *keys, writes, *truncate);
        }
        Action::CrashInCleaning(at, crash) => crash_in_cleaning(world, *at, *crash),
        Action::CrashTwice(at, crash, again, second) => {
            world.disk.fail_after(*at);
            let _ = world.clean(8);
            let disk = world.disk.crash(*crash);
            disk.fail_after(*again);
            let _ = world.try_reopen(&disk);
            world.disk = disk;
            // Both crashes together may have kept less than a killed process would.
            let kept = *crash == Crash::KeepAll && *second == Crash::KeepAll;
            world.disk = world.disk.crash(*second);
            world.log = world.try_reopen(&world.disk).expect("the log opens");
            world.after_reopening(if kept { Crash::KeepAll } else { Crash::LoseUnsynced });
        }
        Action::Crash(crash) => world.crash(*crash),
        Action::Flush => {
            world.log.flush().expect("flushed");
            world.flushed = world.log.recovery_point().0;
        }
        Action::Truncate(back) => world.truncate(world.model.end - back),
        Action::MoveStart(by) => {
            world.log.flush().expect("flushed");
            world.flushed = world.log.recovery_point().0;
            let start = (world.model.start + by).min(world.high_watermark);
            world.log.increment_log_start(Offset(start)).expect("moves");
            let high_watermark = Offset(world.high_watermark);
            world.log.delete_old_segments(high_watermark, now(world.clock_ms)).expect("deletes");
            world.model.start = world.log.log_start_offset().0;
            // Which of several removals a crash undoes is not what is tried here.
            world.disk.sync_dir(Path::new(DIR)).expect("synced");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..Default::default() })]

    #[test]
    fn cleaning_keeps_the_last_value_of_every_key_wherever_it_crashes(actions in actions()) {
        let mut world = World::new(config());
        for action in &actions {
            take(&mut world, action);
            world.check();
        }
    }
}
