//! `<base>.index`: a sparse map from offset to position. Entries of 8 bytes: the offset relative to
//! the segment's base (u32) and the position of a batch in the log file (u32).
//!
//! An entry's offset is the *last* offset of the batch that starts at its position, so a batch that
//! holds an offset never starts before the position that a look-up of that offset gives.

use std::io;

use protocol::Offset;

use crate::disk::DiskFile;
use crate::index_file::IndexFile;

/// Bytes of one entry.
pub(crate) const ENTRY_BYTES: usize = 8;

#[derive(Debug)]
pub(crate) struct OffsetIndex<F> {
    base_offset: Offset,
    entries: IndexFile<F, ENTRY_BYTES>,
}

/// An offset and where its batch starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OffsetPosition {
    pub(crate) offset: Offset,
    pub(crate) position: u32,
}

impl<F: DiskFile> OffsetIndex<F> {
    /// Opens an index and checks that its last entries make sense for a log of `log_bytes`;
    /// `None` asks the caller to rebuild it.
    pub(crate) fn open(file: F, base_offset: Offset, log_bytes: u64) -> io::Result<Option<Self>> {
        let Some(entries) = IndexFile::open(file)? else {
            return Ok(None);
        };
        let index = Self { base_offset, entries };
        let Some(last) = index.last()? else {
            return Ok(Some(index));
        };
        if u64::from(last.position) >= log_bytes {
            return Ok(None);
        }
        // Kafka preallocates the file with zeros, which stay behind after an unclean stop.
        let count = index.entries.count();
        if count > 1
            && let Some(before) = index.entries.get(count - 2)?
        {
            let before = index.decode(before);
            if before.offset >= last.offset || before.position >= last.position {
                return Ok(None);
            }
        }
        Ok(Some(index))
    }

    pub(crate) fn create(file: F, base_offset: Offset) -> io::Result<Self> {
        Ok(Self { base_offset, entries: IndexFile::create(file)? })
    }

    pub(crate) fn append(&mut self, offset: Offset, position: u32) -> io::Result<()> {
        let relative = u32::try_from(offset.distance_from(self.base_offset))
            .map_err(|_| io::Error::other("offset does not fit the segment"))?;
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&relative.to_be_bytes());
        entry[4..].copy_from_slice(&position.to_be_bytes());
        self.entries.append(entry)
    }

    /// The last entry at or below `offset`, or the start of the segment.
    pub(crate) fn lookup(&self, offset: Offset) -> io::Result<OffsetPosition> {
        let start = OffsetPosition { offset: self.base_offset, position: 0 };
        let count = self.entries.partition_point(|entry| self.decode(*entry).offset <= offset)?;
        match count.checked_sub(1) {
            None => Ok(start),
            Some(at) => Ok(self.entries.get(at)?.map_or(start, |entry| self.decode(entry))),
        }
    }

    /// The offset of the first entry at or after `position`; bounds what a read up to there holds.
    pub(crate) fn first_offset_at_or_after(&self, position: u64) -> io::Result<Option<Offset>> {
        let at = self
            .entries
            .partition_point(|entry| u64::from(self.decode(*entry).position) < position)?;
        Ok(self.entries.get(at)?.map(|entry| self.decode(entry).offset))
    }

    pub(crate) fn last(&self) -> io::Result<Option<OffsetPosition>> {
        Ok(self.entries.last()?.map(|entry| self.decode(entry)))
    }

    /// Drops the entries at and above `offset`.
    pub(crate) fn truncate_to(&mut self, offset: Offset) -> io::Result<()> {
        let base_offset = self.base_offset;
        let keep =
            self.entries.partition_point(|entry| decode(base_offset, *entry).offset < offset)?;
        self.entries.truncate(keep)
    }

    pub(crate) fn is_full(&self, max_bytes: usize) -> bool {
        self.entries.count() >= max_bytes / ENTRY_BYTES
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

    fn decode(&self, entry: [u8; ENTRY_BYTES]) -> OffsetPosition {
        decode(self.base_offset, entry)
    }
}

fn decode(base_offset: Offset, entry: [u8; ENTRY_BYTES]) -> OffsetPosition {
    let [a, b, c, d, e, f, g, h] = entry;
    OffsetPosition {
        offset: base_offset + i64::from(u32::from_be_bytes([a, b, c, d])),
        position: u32::from_be_bytes([e, f, g, h]),
    }
}
