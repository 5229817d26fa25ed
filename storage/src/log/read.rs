//! Reads. A read looks up positions and gives a slice of a file; it touches no record. It starts at
//! the batch that holds the offset (F05), goes up to an upper bound (high watermark, last stable
//! offset or log end), and gives one whole batch even beyond the limit when asked to (F01).

use protocol::{Offset, Records};
use replication::LogOffsetMetadata;

use super::Log;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::recent::BatchLocation;
use crate::txn_index::AbortedTransaction;

/// What a read found.
#[derive(Clone, Debug)]
pub struct FetchDataInfo {
    /// The offset asked for, with the place of the batch that holds it.
    pub start: LogOffsetMetadata,
    /// The batches, from the one that holds the offset; the last one may be cut short by the limit.
    pub records: Records,
    /// Not even the first batch fits the limit (and one whole batch was not asked for).
    pub first_batch_incomplete: bool,
    /// No record in `records` is at or above this offset; bounds the aborted transactions to send.
    pub upper_bound_offset: Offset,
}

impl FetchDataInfo {
    fn empty(start: LogOffsetMetadata) -> Self {
        Self {
            start,
            records: Records::empty(),
            first_batch_incomplete: false,
            upper_bound_offset: start.offset,
        }
    }
}

impl<D: Disk> Log<D> {
    /// Reads from `offset` at most `max_bytes`, below `upper_bound`; with `min_one_batch` at least
    /// one batch, whatever its size. Empty when `offset` is at or above `upper_bound`.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] outside `[log_start_offset, log_end_offset]`; a storage failure.
    pub fn read(
        &self,
        offset: Offset,
        max_bytes: usize,
        upper_bound: LogOffsetMetadata,
        min_one_batch: bool,
    ) -> Result<FetchDataInfo> {
        self.check_range(offset)?;
        let end = self.log_end();
        if offset == end.offset {
            return Ok(FetchDataInfo::empty(end));
        }
        if offset == upper_bound.offset && !upper_bound.is_message_only() {
            return Ok(FetchDataInfo::empty(upper_bound));
        }
        if offset >= upper_bound.offset {
            return Ok(FetchDataInfo::empty(self.offset_metadata(offset)?));
        }
        let bound = if upper_bound.offset >= end.offset {
            end
        } else if upper_bound.is_message_only() {
            self.offset_metadata(upper_bound.offset)?
        } else {
            upper_bound
        };
        match self.locate(offset)? {
            None => Ok(FetchDataInfo::empty(end)),
            Some((at, found)) => {
                self.slice_from(at, offset, found, bound, max_bytes, min_one_batch)
            }
        }
    }

    fn slice_from(
        &self,
        at: usize,
        offset: Offset,
        found: BatchLocation,
        bound: LogOffsetMetadata,
        max_bytes: usize,
        min_one_batch: bool,
    ) -> Result<FetchDataInfo> {
        let segment = &self.segments[at];
        let start = LogOffsetMetadata::new(offset, segment.base_offset(), found.position);
        let limit = match bound.segment_base_offset.cmp(&segment.base_offset()) {
            std::cmp::Ordering::Less => u64::from(found.position),
            std::cmp::Ordering::Equal => u64::from(bound.position).min(segment.size_bytes()),
            std::cmp::Ordering::Greater => segment.size_bytes(),
        };
        let readable = limit.saturating_sub(u64::from(found.position));
        if readable == 0 {
            return Ok(FetchDataInfo::empty(start));
        }
        let first_batch = found.size_bytes as usize;
        let wanted = if min_one_batch { max_bytes.max(first_batch) } else { max_bytes };
        let len = usize::try_from(readable).unwrap_or(usize::MAX).min(wanted);
        let records = if len == 0 {
            Records::empty()
        } else {
            Records::File(segment.slice(u64::from(found.position), len))
        };
        Ok(FetchDataInfo {
            start,
            first_batch_incomplete: wanted < first_batch,
            upper_bound_offset: self.bound_after(at, u64::from(found.position) + len as u64)?,
            records,
        })
    }

    /// An offset that no batch before `position` of segment `at` reaches.
    fn bound_after(&self, at: usize, position: u64) -> Result<Offset> {
        let segment = &self.segments[at];
        Ok(segment.offset_bound_at(position)?.unwrap_or(segment.next_offset()))
    }

    /// The transactions to skip in what a read_committed reader got from a read at `offset`: those
    /// aborted ones that overlap `[offset, upper_bound)`, first offsets ascending (F03).
    ///
    /// # Errors
    /// A storage failure.
    pub fn aborted_transactions(
        &self,
        offset: Offset,
        upper_bound: Offset,
    ) -> Result<Vec<AbortedTransaction>> {
        let mut found = Vec::new();
        for segment in &self.segments[self.segment_at(offset)..] {
            let index = segment.txn_index();
            let search = index.search(offset, upper_bound);
            let search = search.map_err(segment.failed("read", crate::files::TXN_INDEX))?;
            found.extend(search.found);
            if search.complete {
                break;
            }
        }
        found.sort_by_key(|txn| (txn.first_offset, txn.producer_id));
        Ok(found)
    }

    /// Where `offset` lies: the place of the batch that holds it, or of the first one after it.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] outside `[log_start_offset, log_end_offset]`; a storage failure.
    pub fn offset_metadata(&self, offset: Offset) -> Result<LogOffsetMetadata> {
        self.check_range(offset)?;
        let end = self.log_end();
        if offset == end.offset {
            return Ok(end);
        }
        Ok(match self.locate(offset)? {
            None => end,
            Some((at, found)) => {
                let base = self.segments[at].base_offset();
                LogOffsetMetadata::new(offset, base, found.position)
            }
        })
    }

    fn check_range(&self, offset: Offset) -> Result<()> {
        let log_end_offset = self.log_end_offset();
        if offset < self.log_start_offset || offset > log_end_offset {
            return Err(LogError::OffsetOutOfRange {
                requested: offset,
                log_start_offset: self.log_start_offset,
                log_end_offset,
            });
        }
        Ok(())
    }

    /// The segment and the batch that holds `offset`, or the first one after it (F05).
    pub(super) fn locate(&self, offset: Offset) -> Result<Option<(usize, BatchLocation)>> {
        for at in self.segment_at(offset)..self.segments.len() {
            if let Some(found) = self.segments[at].locate(offset)? {
                return Ok(Some((at, found)));
            }
        }
        Ok(None)
    }
}
