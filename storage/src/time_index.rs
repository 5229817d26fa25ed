//! `<base>.timeindex`: a sparse map from timestamp to offset. Entries of 12 bytes: the largest
//! timestamp so far (i64, milliseconds) and the last offset of the batch that brought it, relative
//! to the segment's base (u32). All records after that offset and before the next entry's are older.
//!
//! When a segment is sealed or closed its last entry is its true maximum; retention and look-ups by
//! time rely on it.

use std::io;

use protocol::Offset;

use crate::disk::DiskFile;
use crate::index_file::IndexFile;

/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: usize = 12;

#[derive(Debug)]
pub(crate) struct TimeIndex<F> {
    base_offset: Offset,
    entries: IndexFile<F, ENTRY_BYTES>,
}

/// A timestamp in milliseconds and the offset it was reached at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimestampOffset {
    pub(crate) timestamp_ms: i64,
    pub(crate) offset: Offset,
}

impl<F: DiskFile> TimeIndex<F> {
    /// Opens an index; `None` asks the caller to rebuild it because its end makes no sense.
    pub(crate) fn open(file: F, base_offset: Offset) -> io::Result<Option<Self>> {
        let Some(entries) = IndexFile::open(file)? else {
            return Ok(None);
        };
        let index = Self { base_offset, entries };
        let count = index.entries.count();
        if count > 1
            && let (Some(before), Some(last)) = (index.entries.get(count - 2)?, index.last()?)
        {
            let before = decode(base_offset, before);
            if before.timestamp_ms >= last.timestamp_ms || before.offset >= last.offset {
                return Ok(None);
            }
        }
        Ok(Some(index))
    }

    pub(crate) fn create(file: F, base_offset: Offset) -> io::Result<Self> {
        Ok(Self { base_offset, entries: IndexFile::create(file)? })
    }

    /// Adds an entry unless the timestamp is not above the last one.
    pub(crate) fn maybe_append(&mut self, timestamp_ms: i64, offset: Offset) -> io::Result<()> {
        if self.last()?.map_or(-1, |last| last.timestamp_ms) >= timestamp_ms {
            return Ok(());
        }
        let relative = u32::try_from(offset.distance_from(self.base_offset))
            .map_err(|_| io::Error::other("offset does not fit the segment"))?;
        let mut entry = [0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&timestamp_ms.to_be_bytes());
        entry[8..].copy_from_slice(&relative.to_be_bytes());
        self.entries.append(entry)
    }

    /// The last entry at or below `timestamp_ms`, or the start of the segment.
    pub(crate) fn lookup(&self, timestamp_ms: i64) -> io::Result<TimestampOffset> {
        let start = TimestampOffset { timestamp_ms: -1, offset: self.base_offset };
        let base_offset = self.base_offset;
        let count = self
            .entries
            .partition_point(|entry| decode(base_offset, *entry).timestamp_ms <= timestamp_ms)?;
        match count.checked_sub(1) {
            None => Ok(start),
            Some(at) => Ok(self.entries.get(at)?.map_or(start, |entry| decode(base_offset, entry))),
        }
    }

    pub(crate) fn last(&self) -> io::Result<Option<TimestampOffset>> {
        Ok(self.entries.last()?.map(|entry| decode(self.base_offset, entry)))
    }

    /// Drops the entries at and above `offset`.
    pub(crate) fn truncate_to(&mut self, offset: Offset) -> io::Result<()> {
        let base_offset = self.base_offset;
        let keep =
            self.entries.partition_point(|entry| decode(base_offset, *entry).offset < offset)?;
        self.entries.truncate(keep)
    }

    /// One slot is kept for the entry that sealing adds.
    pub(crate) fn is_full(&self, max_bytes: usize) -> bool {
        self.entries.count() + 1 >= max_bytes / ENTRY_BYTES
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.entries.count() * ENTRY_BYTES
    }

    pub(crate) fn file_mut(&mut self) -> &mut IndexFile<F, ENTRY_BYTES> {
        &mut self.entries
    }

    pub(crate) fn file(&self) -> &F {
        self.entries.file()
    }
}

fn decode(base_offset: Offset, entry: [u8; ENTRY_BYTES]) -> TimestampOffset {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = entry;
    TimestampOffset {
        timestamp_ms: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        offset: base_offset + i64::from(u32::from_be_bytes([i, j, k, l])),
    }
}
