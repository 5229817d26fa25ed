//! One segment: a batch file named by its first offset, with its three indexes.
//!
//! Kept true at all times: batches stand in offset order; every index entry points to a batch that
//! is in the file; `next_offset` is one more than the last offset of the last batch. Indexes get an
//! entry per batch at most, once more than `index.interval.bytes` passed since the last entry, in
//! exactly the places where Kafka puts them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use protocol::Offset;
use protocol::records::BatchHeader;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, LogError, Result};
use crate::files;
use crate::offset_index::OffsetIndex;
use crate::recent::{BatchLocation, RecentBatches};
use crate::scan::{HeaderScan, Step};
use crate::slice::LogSlice;
use crate::time_index::{TimeIndex, TimestampOffset};
use crate::txn_index::{AbortedTransaction, TxnIndex};

/// How dense and how large the indexes get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexLimits {
    pub(crate) interval_bytes: u32,
    pub(crate) max_bytes: usize,
}

/// What the segment must know of a batch it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchSummary {
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) max_timestamp_ms: i64,
    pub(crate) size_bytes: usize,
}

impl From<&BatchHeader> for BatchSummary {
    fn from(header: &BatchHeader) -> Self {
        Self {
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            max_timestamp_ms: header.max_timestamp(),
            size_bytes: header.size_in_bytes(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Segment<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: Arc<Path>,
    pub(crate) base_offset: Offset,
    /// Behind the names of the files; empty for a segment of the log.
    pub(crate) suffix: &'static str,
    /// Shared with the slices that readers hold; their number is what `Arc` counts.
    pub(crate) log: Arc<D::File>,
    pub(crate) size_bytes: u64,
    pub(crate) next_offset: Offset,
    pub(crate) offset_index: OffsetIndex<D::File>,
    pub(crate) time_index: TimeIndex<D::File>,
    pub(crate) txn_index: TxnIndex<D::File>,
    pub(crate) bytes_since_index: u64,
    pub(crate) largest: TimestampOffset,
    /// Largest timestamp of the first batch, from which `segment.ms` counts.
    pub(crate) first_timestamp_ms: Option<i64>,
    pub(crate) recent: RecentBatches,
    /// Wall clock when this segment was made or opened, for `segment.ms` without timestamps.
    pub(crate) created_ms: i64,
    /// Log and indexes are on disk and will not change any more.
    pub(crate) synced: bool,
}

impl<D: Disk> Segment<D> {
    /// Makes an empty segment, emptying files of the same names.
    pub(crate) fn create(disk: &D, dir: &Path, base_offset: Offset, now_ms: i64) -> Result<Self> {
        Self::create_as(disk, dir, base_offset, now_ms, "")
    }

    /// The same with `suffix` behind every name: such files count for nothing yet.
    pub(crate) fn create_as(
        disk: &D,
        dir: &Path,
        base_offset: Offset,
        now_ms: i64,
        suffix: &'static str,
    ) -> Result<Self> {
        let path = |extension| dir.join(files::file_name(base_offset, extension) + suffix);
        let open = |extension| {
            let path = path(extension);
            disk.open(&path, OpenMode::Truncate).at("create", &path)
        };
        remove_if_there(disk, &path(files::TXN_INDEX))?;
        Ok(Self {
            log: Arc::new(open(files::LOG)?),
            size_bytes: 0,
            next_offset: base_offset,
            offset_index: OffsetIndex::create(open(files::INDEX)?, base_offset)
                .at("create", dir)?,
            time_index: TimeIndex::create(open(files::TIME_INDEX)?, base_offset)
                .at("create", dir)?,
            txn_index: TxnIndex::absent(),
            bytes_since_index: 0,
            largest: TimestampOffset { timestamp_ms: -1, offset: base_offset },
            first_timestamp_ms: None,
            recent: RecentBatches::default(),
            created_ms: now_ms,
            synced: false,
            disk: disk.clone(),
            dir: dir.into(),
            base_offset,
            suffix,
        })
    }

    pub(crate) fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// The end offset, exclusive. Of a sealed segment that was opened and not scanned, an upper bound.
    pub(crate) fn next_offset(&self) -> Offset {
        self.next_offset
    }

    pub(crate) fn set_next_offset(&mut self, next_offset: Offset) {
        self.next_offset = next_offset;
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Largest timestamp and the last offset of the batch that brought it; timestamp -1 for none.
    pub(crate) fn largest_timestamp(&self) -> TimestampOffset {
        self.largest
    }

    /// The age by which retention judges: the largest timestamp, or else when it was made.
    pub(crate) fn retention_timestamp_ms(&self) -> i64 {
        if self.largest.timestamp_ms >= 0 { self.largest.timestamp_ms } else { self.created_ms }
    }

    pub(crate) fn path(&self, extension: &str) -> PathBuf {
        self.dir.join(files::file_name(self.base_offset, extension) + self.suffix)
    }

    /// Turns an `io::Error` into ours; costs nothing while all is well.
    pub(crate) fn failed(
        &self,
        action: &'static str,
        extension: &str,
    ) -> impl FnOnce(io::Error) -> LogError {
        move |source| LogError::Storage { path: self.path(extension), action, source }
    }

    /// The folder was renamed; open files stay what they are.
    pub(crate) fn set_dir(&mut self, dir: &Path) {
        self.dir = dir.into();
    }

    /// Writes batches behind the last one. `parts` are their bytes in order, in any division.
    pub(crate) fn append(
        &mut self,
        parts: &[&[u8]],
        batches: &[BatchSummary],
        limits: IndexLimits,
    ) -> Result<()> {
        self.log.write_at(parts, self.size_bytes).map_err(self.failed("append to", files::LOG))?;
        self.synced = false;
        for batch in batches {
            self.note(batch, limits)?;
        }
        Ok(())
    }

    /// Takes account of a batch whose bytes stand at the current end.
    pub(crate) fn note(&mut self, batch: &BatchSummary, limits: IndexLimits) -> Result<()> {
        let position = u32::try_from(self.size_bytes).map_err(|_| self.too_large())?;
        if batch.max_timestamp_ms > self.largest.timestamp_ms {
            self.largest =
                TimestampOffset { timestamp_ms: batch.max_timestamp_ms, offset: batch.last_offset };
        }
        if self.bytes_since_index > u64::from(limits.interval_bytes) {
            let indexed = self.index_batch(batch.last_offset, position, limits);
            indexed.map_err(self.failed("append to", files::INDEX))?;
            self.bytes_since_index = 0;
        }
        if self.size_bytes == 0 {
            self.first_timestamp_ms = Some(batch.max_timestamp_ms);
        }
        self.recent.push(BatchLocation {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            position,
            size_bytes: u32::try_from(batch.size_bytes).map_err(|_| self.too_large())?,
        });
        self.size_bytes += batch.size_bytes as u64;
        self.bytes_since_index += batch.size_bytes as u64;
        self.next_offset = batch.last_offset.next();
        Ok(())
    }

    fn index_batch(&mut self, last: Offset, position: u32, limits: IndexLimits) -> io::Result<()> {
        // The batches of one append may reach the limit between them; then the rest goes unindexed.
        if !self.offset_index.is_full(limits.max_bytes) {
            self.offset_index.append(last, position)?;
        }
        if !self.time_index.is_full(limits.max_bytes) {
            self.time_index.maybe_append(self.largest.timestamp_ms, self.largest.offset)?;
        }
        Ok(())
    }

    fn too_large(&self) -> LogError {
        LogError::CorruptFile {
            path: self.path(files::LOG),
            position: self.size_bytes,
            reason: "a segment cannot be larger than 4 GiB".into(),
        }
    }

    pub(crate) fn append_aborted(&mut self, txn: &AbortedTransaction) -> Result<()> {
        let path = self.path(files::TXN_INDEX);
        if self.txn_index.is_absent() {
            let file = self.disk.open(&path, OpenMode::Truncate).at("create", &path)?;
            self.txn_index.start(file).at("create", &path)?;
        }
        self.txn_index.append(txn).at("append to", &path)
    }

    pub(crate) fn txn_index(&self) -> &TxnIndex<D::File> {
        &self.txn_index
    }

    /// Whether a batch that ends at `last_offset`, is `size_bytes` large and as new as
    /// `max_timestamp_ms` must go to a new segment.
    pub(crate) fn should_roll(&self, batch: &BatchSummary, rules: &RollRules) -> bool {
        let waited_ms = match self.first_timestamp_ms {
            Some(first) if first >= 0 => batch.max_timestamp_ms.saturating_sub(first),
            _ => rules.now_ms.saturating_sub(self.created_ms),
        };
        let relative = batch.last_offset.distance_from(self.base_offset);
        self.size_bytes + batch.size_bytes as u64 > u64::from(rules.segment_bytes)
            || (self.size_bytes > 0 && waited_ms > rules.segment_ms)
            || self.offset_index.is_full(rules.index.max_bytes)
            || self.time_index.is_full(rules.index.max_bytes)
            || relative > i64::from(i32::MAX)
    }

    /// The batch that holds `offset`, or the first one after it; `None` when there is none.
    pub(crate) fn locate(&self, offset: Offset) -> Result<Option<BatchLocation>> {
        if let Some(found) = self.recent.find(offset) {
            return Ok(Some(found));
        }
        if offset >= self.next_offset {
            return Ok(None);
        }
        let start = self.offset_index.lookup(offset).map_err(self.failed("read", files::INDEX))?;
        let mut scan = self.headers_from(u64::from(start.position));
        while let Some((position, header)) = self.next_header(&mut scan)? {
            if header.last_offset() >= offset {
                return Ok(Some(BatchLocation {
                    base_offset: header.base_offset(),
                    last_offset: header.last_offset(),
                    position: position as u32,
                    size_bytes: header.size_in_bytes() as u32,
                }));
            }
        }
        Ok(None)
    }

    pub(crate) fn headers_from(&self, position: u64) -> HeaderScan<'_, D::File> {
        HeaderScan::new(&*self.log, position, self.size_bytes)
    }

    /// The next header of a scan over bytes that were checked when they came.
    pub(crate) fn next_header(
        &self,
        scan: &mut HeaderScan<'_, D::File>,
    ) -> Result<Option<(u64, BatchHeader)>> {
        match scan.next().map_err(self.failed("read", files::LOG))? {
            Step::Batch(position, header) => Ok(Some((position, header))),
            Step::End => Ok(None),
            Step::Broken(position, reason) => {
                Err(LogError::CorruptFile { path: self.path(files::LOG), position, reason })
            }
        }
    }

    /// The bytes `[position, position + len)`, not read yet.
    pub(crate) fn slice(&self, position: u64, len: usize) -> Arc<LogSlice<D::File>> {
        let folder = Arc::clone(&self.dir);
        Arc::new(LogSlice::new(Arc::clone(&self.log), position, len, folder))
    }

    /// Reads one batch.
    pub(crate) fn read_batch(&self, position: u64, size_bytes: usize) -> Result<Bytes> {
        let path = self.path(files::LOG);
        let mut bytes = vec![0; size_bytes];
        if self.log.read_at(&mut bytes, position).at("read", &path)? != size_bytes {
            let reason = "the file is shorter than it was".to_string();
            return Err(LogError::CorruptFile { path, position, reason });
        }
        Ok(bytes.into())
    }

    /// An offset that no batch before `position` reaches.
    pub(crate) fn offset_bound_at(&self, position: u64) -> Result<Option<Offset>> {
        if position >= self.size_bytes {
            return Ok(None);
        }
        let bound = self.offset_index.first_offset_at_or_after(position);
        bound.map_err(self.failed("read", files::INDEX))
    }

    /// Whether its files hold nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.size_bytes == 0 && self.index_bytes() == [0, 0]
    }

    /// Sizes of the offset index and the time index.
    pub(crate) fn index_bytes(&self) -> [usize; 2] {
        [self.offset_index.size_bytes(), self.time_index.size_bytes()]
    }

    /// Ends the segment: its indexes are complete on file and leave memory.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.synced = false;
        self.finish_indexes()?;
        let path = self.path(files::INDEX);
        self.offset_index.file_mut().seal().at("write", &path)?;
        self.time_index.file_mut().seal().at("write", &path)?;
        self.recent.clear();
        Ok(())
    }

    /// Writes what the indexes lack, the entry of the largest timestamp included.
    pub(crate) fn finish_indexes(&mut self) -> Result<()> {
        let path = self.path(files::TIME_INDEX);
        let largest = self.largest;
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset).at("write", &path)?;
        self.persist_indexes()
    }

    /// Writes the index entries that are only in memory.
    pub(crate) fn persist_indexes(&mut self) -> Result<()> {
        let path = self.path(files::INDEX);
        self.offset_index.file_mut().persist().at("write", &path)?;
        self.time_index.file_mut().persist().at("write", &path)
    }

    /// Makes everything durable, the names aside.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.persist_indexes()?;
        for file in self.files() {
            file.sync_data().at("sync", &self.path(files::LOG))?;
        }
        Ok(())
    }

    /// Handles of the segment's files.
    pub(crate) fn files(&self) -> Vec<D::File> {
        let mut all = vec![
            (*self.log).clone(),
            self.offset_index.file().clone(),
            self.time_index.file().clone(),
        ];
        all.extend(self.txn_index.file().cloned());
        all
    }

    /// The handle of the batch file.
    pub(crate) fn log_file(&self) -> D::File {
        (*self.log).clone()
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn mark_synced(&mut self) {
        self.synced = true;
    }

    /// Gives the files another suffix, the batch file first, as Kafka does.
    pub(crate) fn rename_suffix(&mut self, suffix: &'static str) -> Result<()> {
        let from: Vec<PathBuf> = self.present().map(|extension| self.path(extension)).collect();
        self.suffix = suffix;
        let to: Vec<PathBuf> = self.present().map(|extension| self.path(extension)).collect();
        for (from, to) in from.iter().zip(&to) {
            self.disk.rename(from, to).at("rename", from)?;
        }
        Ok(())
    }

    /// Removes the files.
    pub(crate) fn remove_files(&self) -> Result<()> {
        for extension in self.present() {
            remove_if_there(&self.disk, &self.path(extension))?;
        }
        Ok(())
    }

    /// The files that the segment has.
    fn present(&self) -> impl Iterator<Item = &'static str> {
        let txn = (!self.txn_index.is_absent()).then_some(files::TXN_INDEX);
        [files::LOG, files::INDEX, files::TIME_INDEX].into_iter().chain(txn)
    }

    /// Renames the files to `.deleted`; readers keep theirs (rule F08). Gives the new names.
    pub(crate) fn mark_deleted(&self) -> Result<Vec<PathBuf>> {
        let mut renamed = Vec::new();
        for extension in self.present() {
            let path = self.path(extension);
            let mut name = path.clone().into_os_string();
            name.push(".");
            name.push(files::DELETED);
            let target = PathBuf::from(name);
            match self.disk.rename(&path, &target) {
                Ok(()) => renamed.push(target),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).at("rename", &path),
            }
        }
        Ok(renamed)
    }
}

/// When a segment is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollRules {
    pub(crate) segment_bytes: u32,
    /// `segment.ms` less this segment's jitter.
    pub(crate) segment_ms: i64,
    pub(crate) index: IndexLimits,
    pub(crate) now_ms: i64,
}

/// Removes a file, content with its absence.
pub(crate) fn remove_if_there<D: Disk>(disk: &D, path: &Path) -> Result<bool> {
    match disk.remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("remove", path),
    }
}
