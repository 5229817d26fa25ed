//! What of a log the cleaner may take, how much there is to gain, and putting a cleaned segment in the
//! place of those it was made from.
//!
//! The cleaner takes closed segments below the last stable offset, from the log's first one up to the
//! first that is younger than `min.compaction.lag.ms`. Everything below [`Log::cleaner_offset`] is
//! clean: no key stands there twice.
//!
//! The swap has Kafka's names and order. The new files are whole and synced as `.cleaned`; they become
//! `.swap`; the old ones become `.deleted`; `.swap` is taken off. The folder is synced before each step,
//! so that no crash leaves a state which `sweep.rs` would read wrongly. Readers that hold a slice of an
//! old file keep its bytes (F08).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use protocol::{Offset, ProducerId};
use replication::time::Now;

use super::Log;
use crate::cleaner::{Cleaning, LastRecord, Source};
use crate::disk::Disk;
use crate::error::{IoContext, Result};
use crate::scan::Step;
use crate::segment::Segment;

/// What the cleaner would do in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cleanable {
    /// Where the part begins that was never cleaned.
    pub first_dirty: Offset,
    /// The first offset that must not be touched.
    pub first_uncleanable: Offset,
    /// Bytes of the segments that begin below `first_dirty`.
    pub clean_bytes: u64,
    /// Bytes from there up to `first_uncleanable`.
    pub dirty_bytes: u64,
    /// How much longer the oldest dirty records have waited than `max.compaction.lag.ms` allows; 0
    /// when they have not.
    pub overdue_ms: i64,
}

impl Cleanable {
    /// The part of the cleanable log that was never cleaned.
    pub fn dirty_ratio(&self) -> f64 {
        let total = self.clean_bytes + self.dirty_bytes;
        if total == 0 { 0.0 } else { self.dirty_bytes as f64 / total as f64 }
    }

    /// Whether cleaning is worth it at `min.cleanable.dirty.ratio`, or overdue.
    pub fn is_due(&self, min_dirty_ratio: f64) -> bool {
        self.dirty_bytes > 0 && (self.overdue_ms > 0 || self.dirty_ratio() > min_dirty_ratio)
    }
}

impl<D: Disk> Log<D> {
    /// What there is to clean; `None` when `cleanup.policy` does not hold `compact`.
    ///
    /// # Errors
    /// A storage failure.
    pub fn cleanable(&self, last_stable_offset: Offset, now: Now) -> Result<Option<Cleanable>> {
        if !self.config.compact {
            return Ok(None);
        }
        let known = self.log_start_offset..=self.log_end_offset();
        let first_dirty =
            self.cleaner_offset.filter(|at| known.contains(at)).unwrap_or(self.log_start_offset);
        let active = self.segments.len() - 1;
        let from = self.segment_at(first_dirty);
        let dirty = &self.segments[from..active.max(from)];
        let mut bound = last_stable_offset;
        if self.config.min_compaction_lag_ms > 0 {
            let newest = now.wall_clock_ms.saturating_sub(self.config.min_compaction_lag_ms);
            let young = dirty.iter().find(|segment| segment.retention_timestamp_ms() > newest);
            bound = young.map_or(bound, |segment| bound.min(segment.base_offset()));
        }
        let end = self.segment_at(bound).min(active);
        let first_uncleanable = self.segments[end].base_offset().max(first_dirty);
        let sizes = |range: Range<usize>| -> u64 {
            self.segments.get(range).unwrap_or_default().iter().map(Segment::size_bytes).sum()
        };
        let clean = self.segments.partition_point(|segment| segment.base_offset() < first_dirty);
        Ok(Some(Cleanable {
            first_dirty,
            first_uncleanable,
            clean_bytes: sizes(0..clean),
            dirty_bytes: sizes(from..end),
            overdue_ms: self.overdue_ms(dirty, now)?,
        }))
    }

    fn overdue_ms(&self, dirty: &[Segment<D>], now: Now) -> Result<i64> {
        let allowed = self.config.max_compaction_lag_ms.max(0);
        if allowed == i64::MAX {
            return Ok(0);
        }
        let mut oldest = i64::MAX;
        for segment in dirty {
            let first = segment.headers_from(0).next();
            let first = first.map_err(segment.failed("read", crate::files::LOG))?;
            if let Step::Batch(_, header) = first
                && header.max_timestamp() > 0
            {
                oldest = oldest.min(header.max_timestamp());
            }
        }
        Ok(now.wall_clock_ms.saturating_sub(allowed).saturating_sub(oldest).max(0))
    }

    /// Begins to clean what `cleanable` says. The work is done by [`Cleaning::step`], which needs no
    /// lock on the log.
    ///
    /// # Errors
    /// A storage failure.
    pub fn begin_cleaning(&mut self, cleanable: &Cleanable, now: Now) -> Result<Cleaning<D>> {
        let flush = self.begin_flush()?;
        let active = self.segments.len() - 1;
        let end = cleanable.first_uncleanable;
        let sources: Vec<Source<D::File>> = self.segments[..active]
            .iter()
            .zip(&self.segments[1..])
            .take_while(|(segment, _)| segment.base_offset() < end)
            .map(|(segment, next)| Source {
                base_offset: segment.base_offset(),
                end_offset: next.base_offset(),
                file: Arc::clone(&segment.log),
                size_bytes: segment.size_bytes(),
                index_bytes: segment.index_bytes(),
                created_ms: segment.created_ms,
            })
            .collect();
        let first = self.segments[0].base_offset();
        let mut aborted = self.aborted_transactions(first, end)?;
        aborted.dedup();
        Ok(Cleaning::new(crate::cleaner::Plan {
            disk: self.disk.clone(),
            dir: self.dir.clone(),
            segment_bytes: self.config.segment_bytes.into(),
            limits: self.index_limits(),
            delete_retention_ms: self.config.delete_retention_ms,
            now_ms: now.wall_clock_ms,
            truncations: self.truncations,
            sources,
            first_dirty: cleanable.first_dirty,
            last_records: self.last_records(end),
            aborted,
            flush,
        }))
    }

    /// The last batch below `end` of every producer that is not forgotten. What lies above may still
    /// be cut off; then this one has to tell where the producer was.
    fn last_records(&self, end: Offset) -> BTreeMap<ProducerId, LastRecord> {
        let mut last_records = BTreeMap::new();
        for producer in self.producers.active_producers() {
            let id = producer.producer_id;
            let Some(entry) = self.producers.entry(id) else { continue };
            let below = entry.batches().map(|batch| batch.last_offset).filter(|last| *last < end);
            let last_data_offset = below.max();
            if last_data_offset.is_some() || entry.last_batch().is_none() {
                let producer_epoch = producer.producer_epoch;
                last_records.insert(id, LastRecord { last_data_offset, producer_epoch });
            }
        }
        last_records
    }

    /// Puts the segment that a cleaning has made ([`CleaningStep::Install`](crate::cleaner::CleaningStep))
    /// in its place. `false`, and the log is as it was, when the log has changed where it was made from;
    /// the cleaning is then over.
    ///
    /// # Errors
    /// A storage failure: the log is unusable.
    pub fn install_cleaned(&mut self, cleaning: &mut Cleaning<D>, now: Now) -> Result<bool> {
        if let Some(ticket) = cleaning.flushed() {
            self.complete_flush(&ticket);
        }
        let Some(made) = cleaning.take_made() else {
            return Ok(false);
        };
        let range = match self.place_of(&made.sources) {
            Some(range) if cleaning.truncations() == self.truncations => range,
            _ => {
                made.segment.remove_files()?;
                return Ok(false);
            }
        };
        let mut segment = made.segment;
        segment.rename_suffix(".swap")?;
        self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
        for at in range.clone() {
            self.retire_segment(at, now)?;
        }
        self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
        segment.rename_suffix("")?;
        self.names_changed = true;
        segment.set_next_offset(self.segments[range.end].base_offset());
        let gone: Vec<Offset> =
            self.segments[range.clone()].iter().skip(1).map(Segment::base_offset).collect();
        self.segments.splice(range, [segment]);
        self.swaps += 1;
        self.remove_snapshots(|offset| gone.contains(&offset))?;
        cleaning.installed();
        Ok(true)
    }

    /// Where the segments that `sources` were taken from stand, if they are all there unchanged.
    fn place_of(&self, sources: &[Source<D::File>]) -> Option<Range<usize>> {
        let first = sources.first()?;
        let start = self.segment_at(first.base_offset);
        let range = start..start + sources.len();
        // The active one takes appends and is never cleaned.
        let there = self.segments.get(range.clone()).filter(|_| range.end < self.segments.len())?;
        let same = there.iter().zip(sources).all(|(segment, source)| {
            segment.base_offset() == source.base_offset
                && segment.size_bytes() == source.size_bytes
                && Arc::ptr_eq(&segment.log, &source.file)
        });
        (same && self.segments[range.end].base_offset() == sources.last()?.end_offset)
            .then_some(range)
    }

    /// Ends a cleaning that is done: everything below its end is clean now. The checkpoint is the
    /// caller's to write. Gives whether it holds: not after a truncation in between.
    ///
    /// # Errors
    /// A storage failure.
    pub fn complete_cleaning(&mut self, cleaning: &Cleaning<D>) -> Result<bool> {
        if cleaning.truncations() != self.truncations {
            return Ok(false);
        }
        if self.names_changed {
            self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
            self.names_changed = false;
        }
        self.cleaner_offset = Some(cleaning.end_offset());
        Ok(true)
    }
}
