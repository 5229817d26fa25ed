//! A log with keys, tombstones and transactions, and a plain model of what cleaning must leave of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use protocol::records::{
    BatchBuilder, BatchViews, Compression, EndTransactionMarker, ProducerStamp, ReadBuffer,
};
use protocol::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use storage::cleaner::{Cleaning, CleaningStep, OffsetMap};
use storage::{Disk, LeaderAppend, LeaderAppendOptions, Log, LogConfig};

use crate::common::{DIR, Given, now, read_all};
use crate::mem_disk::{Crash, MemDisk};

pub const EPOCH: i32 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp: i64,
    pub producer: i64,
    pub transactional: bool,
}

/// What a batch holds: records by key number, each with a value or without.
#[derive(Clone, Debug)]
pub struct Write {
    pub records: Vec<(u8, bool)>,
    pub compression: Compression,
    /// 0 for a plain one.
    pub producer: i64,
    pub transactional: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    producer: i64,
    commit: bool,
}

/// Everything that was ever appended and is not cut off, by offset.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub sent: BTreeMap<i64, Sent>,
    markers: BTreeMap<i64, Marker>,
    /// Producer, first offset, last offset and last sequence of every batch with a producer.
    batches: Vec<(i64, i64, i64, i32)>,
    pub end: i64,
    pub start: i64,
    /// Records from here on were never in a cleaner's reach.
    pub untouched: i64,
}

impl Model {
    pub fn cut(&mut self, end: i64) {
        self.sent.split_off(&end);
        self.markers.split_off(&end);
        self.batches.retain(|(_, _, last, _)| *last < end);
        self.end = end;
        self.untouched = self.untouched.min(end);
    }

    /// How the transaction of the record at `offset` ended; plain records are committed at once.
    fn committed(&self, offset: i64, sent: &Sent) -> Option<bool> {
        if !sent.transactional {
            return Some(true);
        }
        let mut later = self.markers.range(offset..);
        later.find(|(_, marker)| marker.producer == sent.producer).map(|(_, marker)| marker.commit)
    }

    /// The records that count, by offset.
    fn committed_records(&self) -> impl Iterator<Item = (i64, &Sent)> {
        let all = self.sent.range(self.start..);
        all.filter(|(offset, sent)| self.committed(**offset, sent) == Some(true))
            .map(|(offset, sent)| (*offset, sent))
    }

    fn last_batch(&self, producer: i64) -> Option<(i64, i32)> {
        let found = self.batches.iter().rfind(|(id, ..)| *id == producer);
        found.map(|(_, _, last, sequence)| (*last, *sequence))
    }
}

pub struct World {
    pub disk: MemDisk,
    pub log: Log<MemDisk>,
    pub config: LogConfig,
    pub model: Model,
    pub high_watermark: i64,
    /// What `cleaner-offset-checkpoint` holds.
    pub checkpoint: Option<Offset>,
    pub flushed: i64,
    pub clock_ms: i64,
    sequences: BTreeMap<i64, i32>,
    /// Producers with an open transaction.
    open: BTreeSet<i64>,
}

impl World {
    pub fn new(config: LogConfig) -> Self {
        let disk = MemDisk::default();
        let log = Given::new(&disk, Path::new(DIR), config.clone()).open();
        let clock_ms = 10_000;
        Self {
            disk,
            log,
            config,
            model: Model::default(),
            high_watermark: 0,
            checkpoint: None,
            flushed: 0,
            clock_ms,
            sequences: BTreeMap::new(),
            open: BTreeSet::new(),
        }
    }

    fn append_bytes(&mut self, batch: &Bytes) -> i64 {
        let options = LeaderAppendOptions::CLIENT;
        let now = now(self.clock_ms);
        let appended = self.log.append_as_leader(batch, LeaderEpoch(EPOCH), options, now);
        let Ok(LeaderAppend::Appended(info)) = appended else { panic!("not appended") };
        self.model.end = info.last_offset.0 + 1;
        info.base_offset.0
    }

    pub fn write(&mut self, write: &Write) {
        self.clock_ms += 7;
        let mut stamp = ProducerStamp::NONE;
        let mut transactional = false;
        if write.producer > 0 {
            let sequence = self.sequences.get(&write.producer).map_or(0, |last| last + 1);
            let (id, epoch) = (ProducerId(write.producer), ProducerEpoch(0));
            stamp = ProducerStamp { id, epoch, base_sequence: sequence };
            // A batch outside of the open transaction would be refused.
            transactional = write.transactional || self.open.contains(&write.producer);
        }
        let mut builder =
            BatchBuilder::new(Offset(0)).compression(write.compression).producer(stamp);
        if transactional {
            builder = builder.transactional();
            self.open.insert(write.producer);
        }
        let mut sent = Vec::new();
        for (at, (key, has_value)) in write.records.iter().enumerate() {
            let timestamp = self.clock_ms + (at as i64 * 3) % 5;
            let key = (*key < 200).then(|| format!("key-{key}").into_bytes());
            let value = has_value.then(|| format!("value at {}", self.clock_ms).into_bytes());
            let headers = [(&b"h"[..], None), (&b"n"[..], Some(&b"1"[..]))];
            builder.append(timestamp, key.as_deref(), value.as_deref(), headers).expect("fits");
            sent.push(Sent { key, value, timestamp, producer: write.producer, transactional });
        }
        let base = self.append_bytes(&builder.build().expect("builds"));
        let last = base + sent.len() as i64 - 1;
        if write.producer > 0 {
            let sequence = stamp.base_sequence + sent.len() as i32 - 1;
            self.sequences.insert(write.producer, sequence);
            self.model.batches.push((write.producer, base, last, sequence));
        }
        self.model.sent.extend((base..).zip(sent));
    }

    pub fn end_transaction(&mut self, producer: i64, commit: bool) {
        if !self.open.remove(&producer) {
            return;
        }
        self.clock_ms += 3;
        let marker = EndTransactionMarker { commit, coordinator_epoch: 3 };
        let stamp = (ProducerId(producer), ProducerEpoch(0));
        let batch = marker.build(Offset(0), LeaderEpoch(0), self.clock_ms, stamp).expect("builds");
        let base = self.append_bytes(&batch);
        self.model.markers.insert(base, Marker { producer, commit });
    }

    pub fn commit_to(&mut self, high_watermark: i64) {
        self.high_watermark = self.high_watermark.max(high_watermark.min(self.model.end));
        self.log.on_high_watermark(Offset(self.high_watermark));
    }

    pub fn last_stable_offset(&self) -> Offset {
        let unstable = self.log.first_unstable_offset().unwrap_or(Offset(i64::MAX));
        unstable.min(Offset(self.high_watermark))
    }

    /// Begins a cleaning if there is anything to clean.
    pub fn begin(&mut self) -> storage::Result<Option<Cleaning<MemDisk>>> {
        let now = now(self.clock_ms);
        let cleanable = self.log.cleanable(self.last_stable_offset(), now)?.expect("compacted");
        assert!(
            cleanable.first_uncleanable <= self.last_stable_offset().max(cleanable.first_dirty)
        );
        if cleanable.dirty_bytes == 0 {
            return Ok(None);
        }
        self.model.untouched = self.model.untouched.max(cleanable.first_uncleanable.0);
        self.log.begin_cleaning(&cleanable, now).map(Some)
    }

    /// One step; gives whether the cleaning goes on.
    pub fn step(
        &mut self,
        cleaning: &mut Cleaning<MemDisk>,
        map: &mut OffsetMap,
    ) -> storage::Result<bool> {
        match cleaning.step(map, 150)? {
            CleaningStep::Worked(_) => Ok(true),
            CleaningStep::Install => self.log.install_cleaned(cleaning, now(self.clock_ms)),
            CleaningStep::Done => {
                if self.log.complete_cleaning(cleaning)? {
                    self.checkpoint = self.log.cleaner_offset();
                }
                self.flushed = self.log.recovery_point().0;
                Ok(false)
            }
        }
    }

    /// A whole cleaning; an error is that of the disk.
    pub fn clean(&mut self, keys: usize) -> storage::Result<()> {
        let mut map = OffsetMap::new(keys * 24, 0.9, [3, 4]);
        let Some(mut cleaning) = self.begin()? else { return Ok(()) };
        while self.step(&mut cleaning, &mut map)? {}
        self.log.remove_deleted_files(now(self.clock_ms).monotonic)?;
        Ok(())
    }

    pub fn try_reopen(&self, disk: &MemDisk) -> storage::Result<Log<MemDisk>> {
        let mut given = Given::new(disk, Path::new(DIR), self.config.clone());
        // The topic's configs are not known when a broker opens its logs.
        given.config.compact = false;
        given.start = self.model.start;
        given.recovery_point = self.flushed;
        given.cleaner_offset = self.checkpoint;
        let mut log = given.try_open()?;
        log.set_config(self.config.clone());
        Ok(log)
    }

    pub fn crash(&mut self, crash: Crash) {
        self.disk = self.disk.crash(crash);
        self.log = self.try_reopen(&self.disk).expect("the log opens");
        self.after_reopening(crash);
    }

    pub fn after_reopening(&mut self, crash: Crash) {
        let end = self.log.log_end_offset().0;
        assert!(end <= self.model.end, "nothing comes from nowhere: {end} > {}", self.model.end);
        assert!(end >= self.flushed, "{end} is below what was flushed, {}", self.flushed);
        if crash == Crash::KeepAll {
            assert_eq!(end, self.model.end, "a killed process loses nothing");
        }
        self.model.cut(end);
        self.high_watermark = self.high_watermark.min(end);
        self.log.on_high_watermark(Offset(self.high_watermark));
        self.resume();
    }

    pub fn truncate(&mut self, to: i64) {
        let to = to.clamp(self.high_watermark, self.model.end);
        if self.log.lower_cleaner_offset(Offset(to)) {
            self.checkpoint = self.log.cleaner_offset();
        }
        self.log.truncate_to(Offset(to), now(self.clock_ms)).expect("truncates");
        let end = self.log.log_end_offset().0;
        assert!(end >= self.high_watermark.min(self.model.end), "a batch was cut across");
        self.model.cut(end);
        self.flushed = self.flushed.min(end);
        self.resume();
    }

    /// The producers go on from what the log knows of them.
    fn resume(&mut self) {
        self.sequences.clear();
        self.open.clear();
        let ids: Vec<i64> = (1..4).collect();
        for id in ids {
            if let Some(entry) = self.log.producers().entry(ProducerId(id)) {
                self.sequences.insert(id, entry.last_sequence());
                if entry.current_transaction_first_offset.is_some() {
                    self.open.insert(id);
                }
            }
        }
    }

    /// All that a reader may rely on.
    pub fn check(&self) {
        let bytes = read_all(&self.log, self.log.log_start_offset());
        let there = self.check_batches(&bytes);
        self.check_untouched(&there);
        self.check_latest(&there);
        self.check_read_committed(&bytes);
        self.check_producers();
        self.check_lookups(&there);
    }

    /// Every record is one that was sent, at its own offset. Gives the records.
    fn check_batches(&self, bytes: &[u8]) -> BTreeMap<i64, Sent> {
        let mut there = BTreeMap::new();
        let mut next = Offset(0);
        let mut ends = BTreeSet::new();
        let mut buffer = ReadBuffer::new();
        for view in BatchViews::new(bytes) {
            let view = view.expect("whole");
            view.check_crc().expect("intact");
            view.check_counts().expect("sound");
            assert!(view.base_offset() >= next, "batches overlap");
            next = view.next_offset();
            ends.insert(next);
            if view.is_control() {
                continue;
            }
            for record in view.records(&mut buffer, 1 << 20).expect("readable") {
                let record = record.expect("well formed");
                let sent = self.model.sent.get(&record.offset.0).expect("was sent");
                assert_eq!(record.key, sent.key.as_deref(), "at {}", record.offset);
                assert_eq!(record.value, sent.value.as_deref(), "at {}", record.offset);
                assert_eq!(record.timestamp, sent.timestamp, "at {}", record.offset);
                assert_eq!(record.headers.len(), 2);
                if record.offset >= self.log.log_start_offset() {
                    there.insert(record.offset.0, sent.clone());
                }
            }
        }
        assert_eq!(self.log.log_end_offset().0, self.model.end);
        // A segment ends where the next one begins, so that recovery and followers miss nothing.
        let start = self.log.log_start_offset();
        for base in self.log.segment_base_offsets().filter(|base| *base > start) {
            assert!(ends.contains(&base), "no batch ends at segment {base}");
        }
        there
    }

    fn check_untouched(&self, there: &BTreeMap<i64, Sent>) {
        let from = self.model.untouched.max(self.log.log_start_offset().0);
        let expected: Vec<_> = self.model.sent.range(from..).collect();
        let found: Vec<_> = there.range(from..).collect();
        assert_eq!(found, expected, "what no cleaner may touch, from {from}");
    }

    /// The last value of every key is there; a tombstone may be gone, but then so is all before it.
    fn check_latest(&self, there: &BTreeMap<i64, Sent>) {
        let mut latest = BTreeMap::new();
        for (offset, sent) in self.model.committed_records() {
            if let Some(key) = &sent.key {
                latest.insert(key.clone(), (offset, sent));
            }
        }
        for (key, (offset, sent)) in latest {
            if there.contains_key(&offset) {
                continue;
            }
            assert!(sent.value.is_none(), "the last value of {key:?} at {offset} is gone");
            let older = there.iter().find(|(at, other)| {
                **at < offset
                    && other.key.as_ref() == Some(&key)
                    && self.model.committed(**at, other) == Some(true)
            });
            assert_eq!(older, None, "the tombstone at {offset} is gone");
        }
    }

    /// A consumer that skips aborted transactions as it is told sees no record of one.
    fn check_read_committed(&self, bytes: &[u8]) {
        let start = self.log.log_start_offset();
        let end = self.last_stable_offset();
        let aborted = self.log.aborted_transactions(start, end).expect("searched");
        let mut skipping: BTreeSet<i64> = BTreeSet::new();
        let mut ahead = aborted.iter().peekable();
        let mut buffer = ReadBuffer::new();
        for view in BatchViews::new(bytes) {
            let view = view.expect("whole");
            if view.base_offset() >= end {
                break;
            }
            while ahead.peek().is_some_and(|entry| entry.first_offset <= view.last_offset()) {
                skipping.extend(ahead.next().map(|entry| entry.producer_id.0));
            }
            let producer = view.producer_id().0;
            if view.is_control() {
                skipping.remove(&producer);
                continue;
            }
            let skipped = view.is_transactional() && skipping.contains(&producer);
            for record in view.records(&mut buffer, 1 << 20).expect("readable") {
                let offset = record.expect("well formed").offset.0;
                let committed = self.model.committed(offset, &self.model.sent[&offset]);
                assert_eq!(committed, Some(!skipped), "the record at {offset}");
            }
        }
    }

    fn check_producers(&self) {
        for id in 1..4 {
            let Some((last, sequence)) = self.model.last_batch(id) else { continue };
            if last < self.model.start {
                continue;
            }
            let entry = self.log.producers().entry(ProducerId(id)).expect("known");
            assert_eq!(entry.last_sequence(), sequence, "producer {id}");
            assert_eq!(entry.last_data_offset(), Offset(last), "producer {id}");
        }
    }

    /// Indexes lead to the records: by offset, also into holes, and by time.
    fn check_lookups(&self, there: &BTreeMap<i64, Sent>) {
        let start = self.log.log_start_offset().0;
        for offset in start..self.model.end {
            let info = self.log.read(Offset(offset), 1, self.log.log_end(), true).expect("reads");
            let bytes = info.records.read().expect("reads");
            let first = BatchViews::new(&bytes).next().expect("a batch").expect("whole");
            assert!(first.last_offset().0 >= offset, "{offset} gives an older batch");
        }
        for time in there.values().map(|sent| sent.timestamp) {
            for time in [time, time + 1] {
                let found = self.log.find_by_timestamp(time).expect("searched");
                let found = found.map(|found| (found.offset.0, found.timestamp_ms));
                let expected = there.iter().find(|(_, sent)| sent.timestamp >= time);
                let expected = expected.map(|(offset, sent)| (*offset, sent.timestamp));
                // Markers have timestamps too, and are found like records.
                if found != expected {
                    let at = found.map_or(-1, |found| found.0);
                    assert!(self.model.markers.contains_key(&at), "time {time} gives {at}");
                }
            }
        }
    }
}

/// The names in the log's folder.
pub fn names(disk: &MemDisk) -> Vec<String> {
    disk.list(Path::new(DIR)).expect("listed").into_iter().map(|entry| entry.name).collect()
}
