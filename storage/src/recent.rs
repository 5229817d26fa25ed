//! The last few batches of the active segment, in memory: a consumer or follower that keeps up, and
//! the high watermark, find their positions without a look at the disk.

use std::collections::VecDeque;

use protocol::Offset;

/// Batches remembered per log.
const CAPACITY: usize = 128;

/// Where a batch lies in its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchLocation {
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) position: u32,
    pub(crate) size_bytes: u32,
}

/// An unbroken run of batches that ends at the segment's end.
#[derive(Debug, Default)]
pub(crate) struct RecentBatches(VecDeque<BatchLocation>);

impl RecentBatches {
    pub(crate) fn push(&mut self, batch: BatchLocation) {
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back(batch);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The first batch that ends at or after `offset`, if the run reaches back that far.
    pub(crate) fn find(&self, offset: Offset) -> Option<BatchLocation> {
        if self.0.front()?.base_offset > offset {
            return None;
        }
        let at = self.0.partition_point(|batch| batch.last_offset < offset);
        self.0.get(at).copied()
    }
}
