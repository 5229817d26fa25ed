//! The steps of one cleaning: a value that remembers where it is, reads closed segments through handles
//! of its own and writes new ones beside them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::records::{BatchView, ReadBuffer};
use protocol::{Offset, ProducerId};

use super::filter::{LastRecord, Rules, Standing, Verdict};
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::batches::MAX_RECORDS_BYTES;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::files;
use crate::log::FlushTicket;
use crate::scan::{BatchScan, Step};
use crate::segment::{BatchSummary, IndexLimits, Segment};
use crate::txn_index::AbortedTransaction;

/// Cleaned batches are gathered to this size before they are written.
const WRITE_BYTES: usize = 256 * 1024;
/// Decompressed records leave no more memory than this behind.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

/// A closed segment to clean.
#[derive(Clone, Debug)]
pub(crate) struct Source<F> {
    pub(crate) base_offset: Offset,
    /// Where the next one begins.
    pub(crate) end_offset: Offset,
    pub(crate) file: Arc<F>,
    pub(crate) size_bytes: u64,
    /// Sizes of its offset index and its time index.
    pub(crate) index_bytes: [usize; 2],
    pub(crate) created_ms: i64,
}

/// All that a cleaning knows of its log.
#[derive(Debug)]
pub(crate) struct Plan<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    pub(crate) segment_bytes: u64,
    pub(crate) limits: IndexLimits,
    pub(crate) delete_retention_ms: i64,
    pub(crate) now_ms: i64,
    pub(crate) truncations: u64,
    pub(crate) sources: Vec<Source<D::File>>,
    pub(crate) first_dirty: Offset,
    pub(crate) last_records: BTreeMap<ProducerId, LastRecord>,
    /// The aborted transactions of all sources, first offsets ascending.
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) flush: Option<FlushTicket<D>>,
}

/// What a cleaning has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CleaningStats {
    /// Bytes read to build the map.
    pub map_bytes: u64,
    /// Keys in the map.
    pub map_keys: u64,
    /// Bytes of the segments that were cleaned.
    pub read_bytes: u64,
    /// Bytes of the segments that took their place.
    pub written_bytes: u64,
    /// Segments before.
    pub segments_before: usize,
    /// Segments after.
    pub segments_after: usize,
}

/// What a step did, or what is wanted next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleaningStep {
    /// This many bytes were read and written; there is more to do.
    Worked(u64),
    /// A segment is whole: [`crate::Log::install_cleaned`] comes next, under the log's lock.
    Install,
    /// All is done: [`crate::Log::complete_cleaning`] comes next.
    Done,
}

/// A segment ready to take the place of those it was made from.
#[derive(Debug)]
pub(crate) struct Made<D: Disk> {
    pub(crate) sources: Vec<Source<D::File>>,
    pub(crate) segment: Segment<D>,
}

/// A segment in the making.
#[derive(Debug)]
struct Group<D: Disk> {
    sources: Range<usize>,
    at: usize,
    position: u64,
    segment: Segment<D>,
    pending: Vec<u8>,
    batches: Vec<BatchSummary>,
    /// Bytes of the batches that were taken so far.
    taken_bytes: u64,
}

#[derive(Debug)]
enum Phase<D: Disk> {
    Flush,
    Map { at: usize, position: u64 },
    Begin(usize),
    Copy(Box<Group<D>>),
    Install(Range<usize>),
    Done,
}

/// One cleaning of one log.
#[derive(Debug)]
pub struct Cleaning<D: Disk> {
    plan: Plan<D>,
    phase: Phase<D>,
    end_offset: Offset,
    transactions: Transactions,
    next_offset: Offset,
    made: Option<Made<D>>,
    flushed: bool,
    buffer: ReadBuffer,
    stats: CleaningStats,
}

impl<D: Disk> Cleaning<D> {
    pub(crate) fn new(plan: Plan<D>) -> Self {
        Self {
            phase: Phase::Flush,
            end_offset: plan.first_dirty,
            transactions: Transactions::new(&plan.aborted),
            next_offset: Offset::ZERO,
            made: None,
            flushed: false,
            buffer: ReadBuffer::new(),
            stats: CleaningStats::default(),
            plan,
        }
    }

    /// Where the clean part will end. Known once the map is built.
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// What it has done so far.
    pub fn stats(&self) -> CleaningStats {
        self.stats
    }

    /// Does a little, about `max_bytes` of reading. `map` is empty at the first step and this
    /// cleaning's alone until the end.
    ///
    /// # Errors
    /// [`LogError::CorruptFile`] when a segment of the log does not hold together: the log cannot be
    /// cleaned. Else a storage failure. Either way [`Cleaning::abandon`] comes next.
    pub fn step(&mut self, map: &mut OffsetMap, max_bytes: u64) -> Result<CleaningStep> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Flush => {
                if let Some(ticket) = &self.plan.flush {
                    ticket.sync()?;
                    self.flushed = true;
                }
                map.clear();
                let start = self.plan.first_dirty;
                let at = self.plan.sources.partition_point(|source| source.end_offset <= start);
                self.phase = Phase::Map { at, position: 0 };
                Ok(CleaningStep::Worked(0))
            }
            Phase::Map { at, position } => self.build_map(map, at, position, max_bytes),
            Phase::Begin(at) => self.begin_group(at),
            Phase::Copy(group) => self.copy(map, group, max_bytes),
            Phase::Install(range) => {
                self.phase = Phase::Install(range);
                Ok(CleaningStep::Install)
            }
            Phase::Done => Ok(CleaningStep::Done),
        }
    }

    /// Removes what is not in place yet. The log itself is whole at any time.
    ///
    /// # Errors
    /// A storage failure.
    pub fn abandon(self) -> Result<()> {
        if let Phase::Copy(group) = self.phase {
            group.segment.remove_files()?;
        }
        self.made.map_or(Ok(()), |made| made.segment.remove_files())
    }

    pub(crate) fn truncations(&self) -> u64 {
        self.plan.truncations
    }

    /// The flush, the first time that it is asked for after it reached the disk.
    pub(crate) fn flushed(&mut self) -> Option<FlushTicket<D>> {
        if self.flushed { self.plan.flush.take() } else { None }
    }

    pub(crate) fn take_made(&mut self) -> Option<Made<D>> {
        self.made.take()
    }

    /// The segment that was made last is in place.
    pub(crate) fn installed(&mut self) {
        if let Phase::Install(range) = &self.phase {
            self.stats.segments_before += range.len();
            self.stats.segments_after += 1;
            self.phase = Phase::Begin(range.end);
        }
    }

    fn corrupt(&self, at: usize, position: u64, reason: String) -> LogError {
        let name = files::file_name(self.plan.sources[at].base_offset, files::LOG);
        LogError::CorruptFile { path: self.plan.dir.join(name), position, reason }
    }

    fn build_map(
        &mut self,
        map: &mut OffsetMap,
        at: usize,
        position: u64,
        max_bytes: u64,
    ) -> Result<CleaningStep> {
        let Some(source) = self.plan.sources.get(at).cloned() else {
            self.map_is_built(map);
            return Ok(CleaningStep::Worked(0));
        };
        let mut scan = BatchScan::new(&*source.file, position, source.size_bytes);
        let mut read = 0;
        let worked = loop {
            if read >= max_bytes {
                self.phase = Phase::Map { at, position: position + read };
                break read;
            }
            let step = scan.next().map_err(|error| LogError::Storage {
                path: self.plan.dir.join(files::file_name(source.base_offset, files::LOG)),
                action: "read",
                source: error,
            })?;
            match step {
                Step::Batch(place, batch) => {
                    read += batch.size_in_bytes() as u64;
                    // The offset is not under the checksum.
                    let next = batch.next_offset();
                    if batch.base_offset() < source.base_offset || next > source.end_offset {
                        let reason = format!("a batch that ends at {next} is out of place");
                        return Err(self.corrupt(at, place, reason));
                    }
                    let noted = self.note_keys(map, &batch);
                    if !noted.map_err(|error| self.corrupt(at, place, error.to_string()))? {
                        self.map_is_built(map);
                        break read;
                    }
                }
                Step::End => {
                    map.advance(source.end_offset - 1);
                    self.phase = Phase::Map { at: at + 1, position: 0 };
                    break read;
                }
                Step::Broken(place, reason) => return Err(self.corrupt(at, place, reason)),
            }
        };
        self.stats.map_bytes += worked;
        Ok(CleaningStep::Worked(worked))
    }

    /// Notes the keys of a batch; `false` when the map is full.
    fn note_keys(
        &mut self,
        map: &mut OffsetMap,
        batch: &BatchView<'_>,
    ) -> std::result::Result<bool, protocol::records::BatchError> {
        let start = self.plan.first_dirty;
        if batch.is_control() {
            self.transactions.on_control(batch)?;
        } else if !self.transactions.on_data(batch) {
            for record in batch.records(&mut self.buffer, MAX_RECORDS_BYTES)? {
                let record = record?;
                if let Some(key) = record.key.filter(|_| record.offset >= start)
                    && !map.put(key, record.offset)
                {
                    return Ok(false);
                }
            }
        }
        if batch.last_offset() >= start {
            map.advance(batch.last_offset());
        }
        Ok(true)
    }

    fn map_is_built(&mut self, map: &OffsetMap) {
        self.stats.map_keys = map.len() as u64;
        self.end_offset = self.plan.first_dirty.max(map.latest_offset().next());
        self.transactions = Transactions::new(&self.plan.aborted);
        self.phase =
            if self.end_offset > self.plan.first_dirty { Phase::Begin(0) } else { Phase::Done };
    }

    fn begin_group(&mut self, at: usize) -> Result<CleaningStep> {
        let end = self.end_offset;
        let sources = self.plan.sources.partition_point(|source| source.base_offset < end);
        if at >= sources {
            return Ok(CleaningStep::Done);
        }
        let count = self.group_len(&self.plan.sources[at..sources]);
        let first = &self.plan.sources[at];
        let (disk, dir) = (&self.plan.disk, &self.plan.dir);
        let created_ms = self.plan.sources[at + count - 1].created_ms;
        let segment = Segment::create_as(disk, dir, first.base_offset, created_ms, ".cleaned")?;
        self.next_offset = first.base_offset;
        self.phase = Phase::Copy(Box::new(Group {
            sources: at..at + count,
            at,
            position: 0,
            segment,
            pending: Vec::new(),
            batches: Vec::new(),
            taken_bytes: 0,
        }));
        Ok(CleaningStep::Worked(0))
    }

    /// How many of the sources go into one segment: together they take no more room, on disk, in the
    /// indexes and in offsets, than one may.
    fn group_len(&self, sources: &[Source<D::File>]) -> usize {
        let mut size = 0;
        let mut indexes = [0, 0];
        let fits = sources.iter().take_while(|source| {
            size += source.size_bytes;
            indexes[0] += source.index_bytes[0];
            indexes[1] += source.index_bytes[1];
            let span = source.end_offset.distance_from(sources[0].base_offset);
            size <= self.plan.segment_bytes
                && indexes.iter().all(|bytes| *bytes <= self.plan.limits.max_bytes)
                && span <= i64::from(i32::MAX)
        });
        fits.count().max(1)
    }

    fn copy(
        &mut self,
        map: &OffsetMap,
        mut group: Box<Group<D>>,
        max_bytes: u64,
    ) -> Result<CleaningStep> {
        let mut read = 0;
        let before = group.taken_bytes;
        while read < max_bytes {
            if group.at == group.sources.end {
                let worked = read + group.taken_bytes - before;
                self.finish(*group)?;
                return Ok(CleaningStep::Worked(worked));
            }
            match self.copy_some(map, &mut group, max_bytes - read) {
                Ok(bytes) => read += bytes,
                Err(error) => {
                    // For `abandon`.
                    self.phase = Phase::Copy(group);
                    return Err(error);
                }
            }
        }
        let worked = read + group.taken_bytes - before;
        self.phase = Phase::Copy(group);
        Ok(CleaningStep::Worked(worked))
    }

    /// Goes on in the source at hand, to its end at most.
    fn copy_some(&mut self, map: &OffsetMap, group: &mut Group<D>, max_bytes: u64) -> Result<u64> {
        let at = group.at;
        let source = self.plan.sources[at].clone();
        let mut scan = BatchScan::new(&*source.file, group.position, source.size_bytes);
        let mut read = 0;
        while read < max_bytes {
            let step = scan.next().map_err(|error| LogError::Storage {
                path: self.plan.dir.join(files::file_name(source.base_offset, files::LOG)),
                action: "read",
                source: error,
            })?;
            match step {
                Step::Batch(place, batch) => {
                    read += batch.size_in_bytes() as u64;
                    group.position = place + batch.size_in_bytes() as u64;
                    if let Err(reason) = self.copy_batch(map, group, &source, &batch)? {
                        return Err(self.corrupt(at, place, reason));
                    }
                }
                Step::End => {
                    group.at += 1;
                    group.position = 0;
                    break;
                }
                Step::Broken(place, reason) => return Err(self.corrupt(at, place, reason)),
            }
        }
        self.stats.read_bytes += read;
        self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        Ok(read)
    }

    /// Copies what stays of a batch; the inner error is what is wrong with it.
    fn copy_batch(
        &mut self,
        map: &OffsetMap,
        group: &mut Group<D>,
        source: &Source<D::File>,
        batch: &BatchView<'_>,
    ) -> Result<std::result::Result<(), String>> {
        if batch.base_offset() < self.next_offset || batch.next_offset() > source.end_offset {
            let (base, next) = (batch.base_offset(), batch.next_offset());
            return Ok(Err(format!("a batch [{base}, {next}) is out of place")));
        }
        self.next_offset = batch.next_offset();
        let mut aborted = None;
        let standing = if batch.is_control() {
            match self.transactions.on_control(batch) {
                Ok(control) => {
                    aborted = control.aborted;
                    Standing::Marker { is_pointless: control.is_pointless }
                }
                Err(error) => return Ok(Err(error.to_string())),
            }
        } else if self.transactions.on_data(batch) {
            Standing::Aborted
        } else {
            Standing::Data
        };
        let rules = Rules {
            map,
            now_ms: self.plan.now_ms,
            delete_retention_ms: self.plan.delete_retention_ms,
            last_records: &self.plan.last_records,
            end_offset: self.plan.sources[group.sources.end - 1].end_offset,
        };
        let verdict = match rules.judge(batch, standing, &mut self.buffer) {
            Ok(verdict) => verdict,
            Err(error) => return Ok(Err(error.to_string())),
        };
        match verdict {
            Verdict::Keep => group.take(batch.as_bytes(), batch),
            Verdict::Rewrite(bytes) => match BatchView::parse(&bytes) {
                Ok(rewritten) => group.take(&bytes, &rewritten),
                Err(error) => return Ok(Err(error.to_string())),
            },
            Verdict::Drop => {}
        }
        if let Some(transaction) = &aborted {
            group.segment.append_aborted(transaction)?;
        }
        if group.pending.len() >= WRITE_BYTES {
            group.write(self.plan.limits)?;
        }
        Ok(Ok(()))
    }

    /// Makes the new segment whole and durable.
    fn finish(&mut self, mut group: Group<D>) -> Result<()> {
        let written = group.write(self.plan.limits).and_then(|()| {
            group.segment.seal()?;
            group.segment.sync()
        });
        if let Err(error) = written {
            self.phase = Phase::Copy(Box::new(group));
            return Err(error);
        }
        group.segment.mark_synced();
        self.stats.written_bytes += group.segment.size_bytes();
        let sources = self.plan.sources[group.sources.clone()].to_vec();
        self.made = Some(Made { sources, segment: group.segment });
        self.phase = Phase::Install(group.sources);
        Ok(())
    }
}

impl<D: Disk> Group<D> {
    fn take(&mut self, bytes: &[u8], batch: &BatchView<'_>) {
        self.taken_bytes += bytes.len() as u64;
        self.pending.extend_from_slice(bytes);
        self.batches.push(BatchSummary::from(batch.header()));
    }

    fn write(&mut self, limits: IndexLimits) -> Result<()> {
        if !self.batches.is_empty() {
            self.segment.append(&[&self.pending], &self.batches, limits)?;
        }
        self.pending.clear();
        self.batches.clear();
        Ok(())
    }
}
