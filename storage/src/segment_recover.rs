//! Opening, recovering and cutting a segment.
//!
//! After a clean stop a segment is believed: only the ends of its indexes are looked at, and of the
//! last segment the batches behind the last index entry. After an unclean stop every batch is read
//! and checked; the first one that does not hold cuts the file there, and the indexes are made anew.

use std::io;
use std::path::Path;
use std::sync::Arc;

use protocol::Offset;
use protocol::records::BatchView;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, LogError, Result};
use crate::files;
use crate::offset_index::OffsetIndex;
use crate::recent::BatchLocation;
use crate::scan::{BatchScan, HeaderScan, Step};
use crate::segment::{BatchSummary, IndexLimits, Segment};
use crate::time_index::{TimeIndex, TimestampOffset};
use crate::txn_index::{AbortedTransaction, TxnIndex};

/// A segment as found on disk.
#[derive(Debug)]
pub(crate) struct Opened<D: Disk> {
    pub(crate) segment: Segment<D>,
    /// An index was missing or damaged and is empty now: [`Segment::recover`] must run.
    pub(crate) needs_recovery: bool,
}

/// Told of every batch that recovery keeps; gives the transaction that the batch aborted, if any.
pub(crate) type OnBatch<'a> =
    &'a mut dyn FnMut(&BatchView<'_>) -> Result<Option<AbortedTransaction>>;

impl<D: Disk> Segment<D> {
    /// Opens the files of a segment. `next_offset` stays at the base until it is scanned or set.
    pub(crate) fn open(disk: &D, dir: &Path, base: Offset, now_ms: i64) -> Result<Opened<D>> {
        let path = |extension: &str| dir.join(files::file_name(base, extension));
        let log_path = path(files::LOG);
        let log = disk.open(&log_path, OpenMode::ReadWrite).at("open", &log_path)?;
        let size_bytes = log.len().at("read", &log_path)?;
        if size_bytes > u64::from(u32::MAX) {
            let reason = "a segment cannot be larger than 4 GiB".to_string();
            return Err(LogError::CorruptFile { path: log_path, position: size_bytes, reason });
        }
        let index_path = path(files::INDEX);
        let offset_index = match open_existing(disk, &index_path)? {
            Some(file) => OffsetIndex::open(file, base, size_bytes).at("read", &index_path)?,
            None => None,
        };
        let time_path = path(files::TIME_INDEX);
        let time_index = match open_existing(disk, &time_path)? {
            Some(file) => TimeIndex::open(file, base).at("read", &time_path)?,
            None => None,
        };
        let txn_path = path(files::TXN_INDEX);
        let txn_index = match open_existing(disk, &txn_path)? {
            Some(file) => TxnIndex::open(file, base).at("read", &txn_path)?,
            None => Some(TxnIndex::absent()),
        };
        let last = match &time_index {
            Some(index) => index.last().at("read", &time_path)?,
            None => None,
        };
        // A segment with batches has at least the time entry of its end.
        let needs_recovery = offset_index.is_none()
            || time_index.is_none()
            || txn_index.is_none()
            || (size_bytes > 0 && last.is_none());
        let empty = |path: &Path| disk.open(path, OpenMode::Create).at("create", path);
        let offset_index = match offset_index {
            Some(index) => index,
            None => OffsetIndex::create(empty(&index_path)?, base).at("create", &index_path)?,
        };
        let time_index = match time_index {
            Some(index) => index,
            None => TimeIndex::create(empty(&time_path)?, base).at("create", &time_path)?,
        };
        let segment = Segment {
            disk: disk.clone(),
            dir: dir.into(),
            base_offset: base,
            suffix: "",
            log: Arc::new(log),
            size_bytes,
            next_offset: base,
            offset_index,
            time_index,
            txn_index: txn_index.unwrap_or_else(TxnIndex::absent),
            bytes_since_index: 0,
            largest: last.unwrap_or(TimestampOffset { timestamp_ms: -1, offset: base }),
            first_timestamp_ms: None,
            recent: Default::default(),
            created_ms: now_ms,
            synced: !needs_recovery,
        };
        Ok(Opened { segment, needs_recovery })
    }

    /// Makes the segment ready for appends: finds its end and its largest timestamp from the batches
    /// behind the last index entry. Bytes at the end that are no whole batch are cut off; gives how
    /// many there were.
    pub(crate) fn load_tail(&mut self) -> Result<u64> {
        let index_path = self.path(files::INDEX);
        self.offset_index.file_mut().make_resident().at("read", &index_path)?;
        self.time_index.file_mut().make_resident().at("read", &index_path)?;
        let start = self.offset_index.last().at("read", &index_path)?;
        let start = start.map_or(0, |entry| u64::from(entry.position));
        self.next_offset = self.base_offset;
        self.recent.clear();
        self.largest = self
            .time_index
            .last()
            .at("read", &index_path)?
            .unwrap_or(TimestampOffset { timestamp_ms: -1, offset: self.base_offset });
        let log = Arc::clone(&self.log);
        let log_path = self.path(files::LOG);
        let mut scan = HeaderScan::new(&*log, start, self.size_bytes);
        let end = loop {
            match scan.next().at("read", &log_path)? {
                Step::Batch(position, header) => {
                    let batch = BatchSummary::from(&header);
                    if batch.max_timestamp_ms > self.largest.timestamp_ms {
                        self.largest = TimestampOffset {
                            timestamp_ms: batch.max_timestamp_ms,
                            offset: batch.last_offset,
                        };
                    }
                    self.next_offset = batch.last_offset.next();
                    self.recent.push(BatchLocation {
                        base_offset: batch.base_offset,
                        last_offset: batch.last_offset,
                        position: position as u32,
                        size_bytes: batch.size_bytes as u32,
                    });
                }
                Step::End => break self.size_bytes,
                Step::Broken(position, reason) => {
                    tracing::warn!(path = %log_path.display(), position, reason, "cutting the tail");
                    break position;
                }
            }
        };
        let cut = self.size_bytes - end;
        if cut > 0 {
            self.set_end(end)?;
            self.size_bytes = end;
            self.synced = false;
        }
        self.bytes_since_index = end - start.min(end);
        self.first_timestamp_ms = match self.headers_from(0).next().at("read", &log_path)? {
            Step::Batch(_, header) => Some(header.max_timestamp()),
            _ => None,
        };
        Ok(cut)
    }

    /// Reads and checks every batch, cuts the file at the first one that does not hold, makes the
    /// indexes anew. Batches must begin at or after the base and follow one another. Gives the number
    /// of bytes cut off.
    pub(crate) fn recover(&mut self, limits: IndexLimits, on_batch: OnBatch<'_>) -> Result<u64> {
        let log_path = self.path(files::LOG);
        let found = self.log.len().at("read", &log_path)?;
        self.reset_indexes()?;
        self.size_bytes = 0;
        self.next_offset = self.base_offset;
        let log = Arc::clone(&self.log);
        let mut scan = BatchScan::new(&*log, 0, found);
        loop {
            let (position, reason) = match scan.next().at("read", &log_path)? {
                Step::Batch(position, view) => match self.out_of_place(&view) {
                    None => {
                        let aborted = on_batch(&view)?;
                        self.note(&BatchSummary::from(view.header()), limits)?;
                        if let Some(txn) = aborted {
                            self.append_aborted(&txn)?;
                        }
                        continue;
                    }
                    Some(reason) => (position, reason),
                },
                Step::End => break,
                Step::Broken(position, reason) => (position, reason),
            };
            tracing::warn!(path = %log_path.display(), position, reason, "cutting the log here");
            break;
        }
        let cut = found - self.size_bytes;
        if cut > 0 {
            self.set_end(self.size_bytes)?;
        }
        self.finish_indexes()?;
        self.synced = false;
        Ok(cut)
    }

    /// Cuts the file for good: were the cut lost in a later crash, what it took would stand behind
    /// batches that are flushed by then and not looked at again.
    fn set_end(&self, end: u64) -> Result<()> {
        let path = self.path(files::LOG);
        self.log.set_len(end).at("truncate", &path)?;
        self.log.sync_data().at("sync", &path)
    }

    fn out_of_place(&self, view: &BatchView<'_>) -> Option<String> {
        let at_least = self.next_offset;
        let relative = view.last_offset().distance_from(self.base_offset);
        if view.base_offset() < at_least {
            return Some(format!("base offset {} is below {at_least}", view.base_offset()));
        }
        (relative > i64::from(i32::MAX))
            .then(|| format!("last offset {} is too far from the base", view.last_offset()))
    }

    fn reset_indexes(&mut self) -> Result<()> {
        let index_path = self.path(files::INDEX);
        self.offset_index.file_mut().make_resident().at("read", &index_path)?;
        self.offset_index.file_mut().truncate(0).at("truncate", &index_path)?;
        let time_path = self.path(files::TIME_INDEX);
        self.time_index.file_mut().make_resident().at("read", &time_path)?;
        self.time_index.file_mut().truncate(0).at("truncate", &time_path)?;
        self.txn_index = TxnIndex::absent();
        crate::segment::remove_if_there(&self.disk, &self.path(files::TXN_INDEX))?;
        self.bytes_since_index = 0;
        self.largest = TimestampOffset { timestamp_ms: -1, offset: self.base_offset };
        self.first_timestamp_ms = None;
        self.recent.clear();
        Ok(())
    }

    /// Drops every batch that reaches `offset` or beyond, and gives the end offset that is left:
    /// `offset`, or the base of a batch that lay across it.
    pub(crate) fn truncate_to(&mut self, offset: Offset) -> Result<Offset> {
        let Some(first_dropped) = self.locate(offset)? else {
            self.load_tail()?;
            self.next_offset = offset;
            return Ok(offset);
        };
        let end = offset.min(first_dropped.base_offset);
        let index_path = self.path(files::INDEX);
        self.offset_index.truncate_to(end).at("truncate", &index_path)?;
        self.time_index.truncate_to(end).at("truncate", &index_path)?;
        self.txn_index.truncate_to(end).at("truncate", &self.path(files::TXN_INDEX))?;
        self.cut_log(u64::from(first_dropped.position))?;
        self.load_tail()?;
        self.next_offset = end;
        Ok(end)
    }

    /// Cuts the batch file. When a reader still holds a slice of it, the kept bytes move to a new
    /// file, so that what was promised to the reader stays as it was (rule F08).
    fn cut_log(&mut self, position: u64) -> Result<()> {
        let path = self.path(files::LOG);
        if Arc::strong_count(&self.log) == 1 {
            self.log.set_len(position).at("truncate", &path)?;
        } else {
            self.log = Arc::new(self.copy_prefix(&path, position)?);
        }
        self.size_bytes = position;
        self.synced = false;
        Ok(())
    }

    fn copy_prefix(&self, path: &Path, len: u64) -> Result<D::File> {
        const COPY_BYTES: u64 = 1 << 20;
        // A crash leaves a `.tmp` file behind, which counts for nothing. The log cleaner may be
        // writing a `.cleaned` one of this segment.
        let temporary = self.path(&format!("{}.{}", files::LOG, files::TEMPORARY));
        let copy = self.disk.open(&temporary, OpenMode::Truncate).at("create", &temporary)?;
        let mut position = 0;
        while position < len {
            let bytes = self.read_batch(position, (len - position).min(COPY_BYTES) as usize)?;
            copy.write_at(&[&bytes], position).at("write", &temporary)?;
            position += bytes.len() as u64;
        }
        copy.sync_data().at("sync", &temporary)?;
        self.disk.rename(&temporary, path).at("rename", &temporary)?;
        self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
        Ok(copy)
    }
}

fn open_existing<D: Disk>(disk: &D, path: &Path) -> Result<Option<D::File>> {
    match disk.open(path, OpenMode::ReadWrite) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at("open", path),
    }
}
