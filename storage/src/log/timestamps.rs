//! Offsets by time, exact to the record (F07, ListOffsets): the time index leads near, batch headers
//! to the batch, and its records to the answer.

use protocol::records::{BatchView, ReadBuffer, Record};
use protocol::{LeaderEpoch, Offset};

use super::Log;
use crate::batches::MAX_RECORDS_BYTES;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::files;
use crate::segment::Segment;

/// A record's time and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimestampAndOffset {
    /// The record's timestamp in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its offset.
    pub offset: Offset,
    /// The leader epoch of its batch.
    pub leader_epoch: LeaderEpoch,
}

impl<D: Disk> Log<D> {
    /// The first record at or after the log start whose timestamp is at or above `timestamp_ms`.
    ///
    /// # Errors
    /// A storage failure.
    pub fn find_by_timestamp(&self, timestamp_ms: i64) -> Result<Option<TimestampAndOffset>> {
        for segment in &self.segments {
            if segment.largest_timestamp().timestamp_ms < timestamp_ms {
                continue;
            }
            if let Some(found) = segment.find_by_timestamp(timestamp_ms, self.log_start_offset)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The record with the largest timestamp of the log, of several the first (ListOffsets -3).
    ///
    /// # Errors
    /// A storage failure.
    pub fn max_timestamp(&self) -> Result<Option<TimestampAndOffset>> {
        let newest = self.segments.iter().map(|segment| segment.largest_timestamp().timestamp_ms);
        let Some(newest) = newest.max().filter(|newest| *newest >= 0) else {
            return Ok(None);
        };
        let holder =
            self.segments.iter().find(|segment| segment.largest_timestamp().timestamp_ms == newest);
        match holder {
            Some(segment) => segment.find_by_timestamp(newest, Offset::ZERO),
            None => Ok(None),
        }
    }
}

impl<D: Disk> Segment<D> {
    /// The first record at or above both `timestamp_ms` and `from`.
    fn find_by_timestamp(
        &self,
        timestamp_ms: i64,
        from: Offset,
    ) -> Result<Option<TimestampAndOffset>> {
        // Everything up to the entry below is older than what is sought, its own batch perhaps not.
        let older = self.time_index.lookup(timestamp_ms.saturating_sub(1));
        let older = older.map_err(self.failed("read", files::TIME_INDEX))?;
        let start = self.offset_index.lookup(older.offset.max(from));
        let start = start.map_err(self.failed("read", files::INDEX))?;
        let mut scan = self.headers_from(u64::from(start.position));
        while let Some((position, header)) = self.next_header(&mut scan)? {
            if header.max_timestamp() < timestamp_ms || header.last_offset() < from {
                continue;
            }
            let bytes = self.read_batch(position, header.size_in_bytes())?;
            let broken = |error: protocol::records::BatchError| LogError::CorruptFile {
                path: self.path(files::LOG),
                position,
                reason: error.to_string(),
            };
            let view = BatchView::parse(&bytes).map_err(broken)?;
            let mut buffer = ReadBuffer::new();
            let fits =
                |record: &Record<'_>| record.timestamp >= timestamp_ms && record.offset >= from;
            for record in view.records(&mut buffer, MAX_RECORDS_BYTES).map_err(broken)? {
                let record = record.map_err(broken)?;
                if fits(&record) {
                    return Ok(Some(TimestampAndOffset {
                        timestamp_ms: record.timestamp,
                        offset: record.offset,
                        leader_epoch: header.partition_leader_epoch(),
                    }));
                }
            }
        }
        Ok(None)
    }
}
