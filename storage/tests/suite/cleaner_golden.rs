//! Kafka's cleaner and ours, given the same segments, leave the same.
//!
//! `tests/data/compaction` was written by Apache Kafka 4.4.0: one partition with keys, tombstones, five
//! codecs, idempotent and transactional producers, copied before and after three rounds of its cleaner
//! (`delete.retention.ms=4000`; more than that lies between the second and the third). The zeros at the
//! ends of preallocated indexes are cut off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use protocol::records::{BatchView, BatchViews, Compression, ReadBuffer};
use protocol::{Offset, TopicPartition};
use storage::cleaner::{CleaningStep, OffsetMap};
use storage::{Log, LogConfig, OpenLog, RealDisk};

use crate::common::{copy_folder, now, read_all};

const DELETE_RETENTION_MS: i64 = 4_000;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/compaction").join(name)
}

fn checkpoint(name: &str) -> Option<Offset> {
    let text =
        std::fs::read_to_string(data(name).join("cleaner-offset-checkpoint")).expect("there");
    let offset = text.lines().nth(2)?.split(' ').nth(2)?;
    Some(Offset(offset.parse().expect("a number")))
}

fn open(root: &Path, name: &str, clean: bool) -> Log<RealDisk> {
    let dir = root.join(name).join("compacted3-0");
    copy_folder(&data(name), &dir);
    let open = OpenLog {
        disk: &RealDisk,
        dir,
        topic_partition: TopicPartition::new("compacted3", 0),
        config: LogConfig {
            compact: true,
            delete: false,
            segment_bytes: 1 << 20,
            index_interval_bytes: 200,
            delete_retention_ms: DELETE_RETENTION_MS,
            producer_id_expiration: Duration::from_secs(u64::MAX / 4000),
            ..LogConfig::default()
        },
        log_start_offset: Offset(0),
        recovery_point: Offset(0),
        cleaner_offset: checkpoint(name),
        clean_shutdown: clean,
    };
    Log::open(open, now(1_796_037_000_000)).expect("opens")
}

fn batches(log: &Log<RealDisk>) -> Vec<Bytes> {
    let bytes = Bytes::from(read_all(log, Offset(0)));
    let sizes = BatchViews::new(&bytes).map(|view| view.expect("whole").size_in_bytes());
    let mut at = 0;
    sizes
        .map(|size| {
            at += size;
            bytes.slice(at - size..at)
        })
        .collect()
}

/// All that a batch says, its records without their codec's bytes.
fn describe(batch: &BatchView<'_>) -> String {
    let mut header = format!("{:?} {:?}", batch.attributes(), batch.delete_horizon());
    for part in [
        batch.base_offset().0,
        batch.last_offset().0,
        batch.partition_leader_epoch().0.into(),
        batch.base_timestamp(),
        batch.max_timestamp(),
        batch.producer_id().0,
        batch.producer_epoch().0.into(),
        batch.base_sequence().into(),
        batch.count().into(),
    ] {
        header.push_str(&format!(" {part}"));
    }
    let mut buffer = ReadBuffer::new();
    for record in batch.records(&mut buffer, 1 << 20).expect("readable") {
        let record = record.expect("well formed");
        let headers: Vec<_> = record.headers.map(|header| (header.key, header.value)).collect();
        header.push_str(&format!(
            "\n  {} {} {:?} {:?} {headers:?}",
            record.offset, record.timestamp, record.key, record.value
        ));
    }
    header
}

/// When Kafka cleaned: the horizons that it set are that much later.
fn cleaned_at(before: &[Bytes], after: &[Bytes]) -> i64 {
    let horizons = |batches: &[Bytes]| -> Vec<i64> {
        let views = batches.iter().map(|batch| BatchView::parse(batch).expect("whole"));
        views.filter_map(|view| view.delete_horizon()).collect()
    };
    let old = horizons(before);
    let new: Vec<i64> = horizons(after).into_iter().filter(|one| !old.contains(one)).collect();
    let newest = *new.iter().max().expect("some are new");
    assert!(new.iter().all(|one| *one == newest), "one round, one horizon: {new:?}");
    newest - DELETE_RETENTION_MS
}

fn same_as_kafka(before: &str, after: &str) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let kafkas = open(root.path(), after, true);
    let expected = batches(&kafkas);
    let mut log = open(root.path(), before, false);
    let now = now(cleaned_at(&batches(&log), &expected));
    let cleanable = log.cleanable(log.log_end_offset(), now).expect("told").expect("compacted");
    let mut cleaning = log.begin_cleaning(&cleanable, now).expect("begins");
    let mut map = OffsetMap::new(1 << 20, 0.9, [1, 2]);
    loop {
        match cleaning.step(&mut map, 1_000).expect("works") {
            CleaningStep::Worked(_) => {}
            CleaningStep::Install => {
                assert!(log.install_cleaned(&mut cleaning, now).expect("installs"))
            }
            CleaningStep::Done => break,
        }
    }
    assert!(log.complete_cleaning(&cleaning).expect("completes"));
    assert_eq!(log.cleaner_offset(), checkpoint(after));
    let segments = |log: &Log<RealDisk>| log.segment_base_offsets().collect::<Vec<_>>();
    assert_eq!(segments(&log), segments(&kafkas));

    let ours = batches(&log);
    let mut mine = ours.iter().map(|batch| BatchView::parse(batch).expect("whole")).peekable();
    let mut extra = 0;
    for batch in &expected {
        let theirs = BatchView::parse(batch).expect("whole");
        // We keep a few more empty batches than Kafka does; see `filter.rs`.
        while let Some(empty) =
            mine.next_if(|one| one.count() == 0 && one.base_offset() < theirs.base_offset())
        {
            assert!(empty.last_offset() < theirs.base_offset());
            extra += 1;
        }
        let found = mine.next().expect("as many batches");
        assert_eq!(describe(&found), describe(&theirs));
        if theirs.compression() == Ok(Compression::None) {
            assert_eq!(found.as_bytes(), theirs.as_bytes(), "at {}", theirs.base_offset());
        }
    }
    assert_eq!(mine.next(), None);
    assert!(extra <= 8, "{extra} empty batches more than Kafka's");
    let end = log.log_end_offset();
    assert_eq!(
        log.aborted_transactions(Offset(0), end).expect("searched"),
        kafkas.aborted_transactions(Offset(0), end).expect("searched")
    );
}

#[test]
fn the_first_round_leaves_what_kafkas_leaves() {
    same_as_kafka("a-before", "b-cleaned");
}

#[test]
fn the_second_round_leaves_what_kafkas_leaves() {
    same_as_kafka("c-before", "d-cleaned");
}

#[test]
fn the_round_after_the_horizons_leaves_what_kafkas_leaves() {
    same_as_kafka("e-before", "f-cleaned");
}
