//! Batches, clocks and logs for the tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use protocol::records::{
    BatchBuilder, BatchViews, EndTransactionMarker, ProducerStamp, ReadBuffer,
};
use protocol::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicPartition};
use replication::time::{Instant, Now};
use storage::{
    AppendInfo, Disk, LeaderAppend, LeaderAppendOptions, Log, LogConfig, OpenLog, RealDisk,
};

pub const DIR: &str = "/data/t-0";

pub fn now(ms: i64) -> Now {
    Now { monotonic: Instant(Duration::from_millis(ms as u64)), wall_clock_ms: ms }
}

pub fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// Small segments and a dense index, as in the golden folder.
pub fn small() -> LogConfig {
    LogConfig { segment_bytes: 1000, index_interval_bytes: 200, ..LogConfig::default() }
}

pub struct Given<'a, D> {
    pub disk: &'a D,
    pub dir: &'a Path,
    pub config: LogConfig,
    pub start: i64,
    pub recovery_point: i64,
    pub cleaner_offset: Option<Offset>,
    pub clean: bool,
}

impl<'a, D: Disk> Given<'a, D> {
    pub fn new(disk: &'a D, dir: &'a Path, config: LogConfig) -> Self {
        Self { disk, dir, config, start: 0, recovery_point: 0, cleaner_offset: None, clean: false }
    }

    pub fn clean(mut self) -> Self {
        self.clean = true;
        self
    }

    pub fn try_open(self) -> storage::Result<Log<D>> {
        let open = OpenLog {
            disk: self.disk,
            dir: self.dir.to_path_buf(),
            topic_partition: partition(),
            config: self.config,
            log_start_offset: Offset(self.start),
            recovery_point: Offset(self.recovery_point),
            cleaner_offset: self.cleaner_offset,
            clean_shutdown: self.clean,
        };
        Log::open(open, now(1_000))
    }

    pub fn open(self) -> Log<D> {
        self.try_open().expect("the log opens")
    }
}

/// A log in a folder of its own that lives as long as the first value.
pub fn temporary(config: LogConfig) -> (tempfile::TempDir, PathBuf, Log<RealDisk>) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let dir = root.path().join("t-0");
    let log = Given::new(&RealDisk, &dir, config).open();
    (root, dir, log)
}

/// A batch of one record per timestamp, at `base`, of `epoch`.
pub fn batch_at(base: i64, epoch: i32, timestamps: &[i64]) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(base)).leader_epoch(LeaderEpoch(epoch));
    for timestamp in timestamps {
        builder.append(*timestamp, Some(b"key"), Some(b"a value of some bytes"), []).expect("fits");
    }
    builder.build().expect("builds")
}

pub fn batch(timestamps: &[i64]) -> Bytes {
    batch_at(0, -1, timestamps)
}

/// A batch of `count` records of an idempotent or transactional producer.
pub fn producer_batch(id: i64, sequence: i32, count: usize, transactional: bool) -> Bytes {
    let stamp =
        ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence: sequence };
    let mut builder = BatchBuilder::new(Offset(0)).producer(stamp);
    if transactional {
        builder = builder.transactional();
    }
    for at in 0..count {
        builder.append(500 + at as i64, None, Some(b"some value"), []).expect("fits");
    }
    builder.build().expect("builds")
}

pub fn marker(id: i64, commit: bool) -> Bytes {
    let marker = EndTransactionMarker { commit, coordinator_epoch: 3 };
    let producer = (ProducerId(id), ProducerEpoch(0));
    marker.build(Offset(0), LeaderEpoch(0), 600, producer).expect("builds")
}

pub fn append<D: Disk>(log: &mut Log<D>, batch: &Bytes, epoch: i32) -> AppendInfo {
    let options = LeaderAppendOptions::CLIENT;
    match log.append_as_leader(batch, LeaderEpoch(epoch), options, now(2_000)) {
        Ok(LeaderAppend::Appended(info)) => info,
        other => panic!("not appended: {other:?}"),
    }
}

/// One batch of `count` records with timestamps from `from` on.
pub fn append_records<D: Disk>(
    log: &mut Log<D>,
    count: usize,
    from: i64,
    epoch: i32,
) -> AppendInfo {
    let timestamps: Vec<i64> = (0..count as i64).map(|at| from + at).collect();
    append(log, &batch(&timestamps), epoch)
}

/// All bytes from `offset` to the end, read segment by segment.
pub fn read_all<D: Disk>(log: &Log<D>, offset: Offset) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut offset = offset;
    while offset < log.log_end_offset() {
        let info = log.read(offset, usize::MAX, log.log_end(), true).expect("reads");
        let part = info.records.read().expect("reads");
        let mut next = offset;
        for view in BatchViews::new(&part) {
            next = view.expect("whole").next_offset();
        }
        if next <= offset {
            break;
        }
        offset = next;
        bytes.extend_from_slice(&part);
    }
    bytes
}

/// Offsets and timestamps of all records in `bytes`.
pub fn records(bytes: &[u8]) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    for view in BatchViews::new(bytes) {
        let view = view.expect("whole");
        view.check_crc().expect("intact");
        let mut buffer = ReadBuffer::new();
        for record in view.records(&mut buffer, 1 << 20).expect("readable") {
            let record = record.expect("well formed");
            all.push((record.offset.0, record.timestamp));
        }
    }
    all
}

pub fn epochs<D: Disk>(log: &Log<D>) -> Vec<(i32, i64)> {
    log.epochs().entries().iter().map(|entry| (entry.epoch.0, entry.start_offset.0)).collect()
}

pub fn golden() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/logdir");
    if dir.exists() {
        return Some(dir);
    }
    println!("SKIPPED: no golden folder at {}", dir.display());
    None
}

pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            // The original is read-only; its copy must not be.
            let bytes = std::fs::read(entry.path()).expect("read");
            std::fs::write(&target, bytes).expect("written");
        }
    }
}
