//! Cutting a log at its end (a follower that parted from its leader, T01-T05), starting it over
//! elsewhere (T11), and moving its start up (DeleteRecords and retention, I02).
//!
//! A cut is on disk, file and names, before it is reported: otherwise a crash could bring batches
//! back below records that were written and synced after the cut.

use protocol::Offset;
use replication::bugs::{self, Bug};
use replication::time::Now;

use super::{Log, snapshot_path};
use crate::disk::{Disk, DiskFile};
use crate::error::{IoContext, LogError, Result};
use crate::segment::{Segment, remove_if_there};

impl<D: Disk> Log<D> {
    /// Drops every record at and above `target`. Gives whether anything was dropped. The end may come
    /// to lie below `target` when a batch lay across it: a batch goes as a whole.
    ///
    /// Below the first segment the log becomes empty and starts at `target`.
    ///
    /// # Errors
    /// A storage failure.
    pub fn truncate_to(&mut self, target: Offset, now: Now) -> Result<bool> {
        let end = self.log_end_offset();
        if target >= end {
            // An epoch that was opened here without a record may contradict the new leader's.
            if self.epochs.truncate_from_end(end) {
                self.write_epochs()?;
            }
            return Ok(false);
        }
        if target < self.segments[0].base_offset() {
            self.truncate_fully_and_start_at(target, None, now)?;
            return Ok(true);
        }
        self.truncations += 1;
        let keep = self.segment_at(target);
        self.delete_segments(keep + 1..self.segments.len(), now)?;
        let new_end = self.active_mut().truncate_to(target)?;
        let file = self.active().log_file();
        file.sync_data().at("sync", &self.dir)?;
        self.log_start_offset = self.log_start_offset.min(new_end);
        self.recovery_point = self.recovery_point.min(new_end);
        self.lower_cleaner_offset(new_end);
        self.remove_snapshots(|offset| offset > new_end)?;
        // With the bug on wrong (KAFKA-10706): the entries left may contradict the new leader's.
        if !bugs::is_on(Bug::EpochsOutliveTruncation) {
            self.epochs.truncate_from_end(new_end);
        }
        self.write_epochs()?;
        self.reload_producers(now)?;
        Ok(true)
    }

    /// Empties the log; it then starts and ends at `start`, or starts at `log_start_offset` where the
    /// first batch to come lies across that (T11).
    ///
    /// # Errors
    /// A storage failure.
    pub fn truncate_fully_and_start_at(
        &mut self,
        start: Offset,
        log_start_offset: Option<Offset>,
        now: Now,
    ) -> Result<()> {
        self.truncations += 1;
        let retired = self.segments.len();
        for at in 0..retired {
            self.retire_segment(at, now)?;
        }
        self.remove_snapshots(|_| true)?;
        let made = Segment::create(&self.disk, &self.dir, start, now.wall_clock_ms)?;
        self.segments.push(made);
        self.segments.drain(..retired);
        self.epochs.clear();
        self.producers.clear(start);
        self.log_start_offset = log_start_offset.unwrap_or(start);
        self.recovery_point = start;
        self.lower_cleaner_offset(start);
        // Writing the epochs syncs the folder, and with it the new names.
        self.write_epochs()
    }

    /// Moves the log start up to `new_start`; nothing happens when it is there already. The files
    /// below go with the next retention pass. Gives whether it moved.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] above the log end; a storage failure. Whether the offset is at
    /// most the high watermark is the caller's to check (I02).
    pub fn increment_log_start(&mut self, new_start: Offset) -> Result<bool> {
        if new_start > self.log_end_offset() {
            return Err(LogError::OffsetOutOfRange {
                requested: new_start,
                log_start_offset: self.log_start_offset,
                log_end_offset: self.log_end_offset(),
            });
        }
        if new_start <= self.log_start_offset {
            return Ok(false);
        }
        self.log_start_offset = new_start;
        if self.epochs.truncate_from_start(new_start) {
            self.write_epochs()?;
        }
        self.producers.on_log_start(new_start);
        Ok(true)
    }

    /// Removes the snapshots of the producers' state that `gone` picks.
    pub(super) fn remove_snapshots(&mut self, gone: impl Fn(Offset) -> bool) -> Result<()> {
        let picked: Vec<Offset> =
            self.snapshots.iter().copied().filter(|offset| gone(*offset)).collect();
        for offset in picked {
            remove_if_there(&self.disk, &snapshot_path(&self.dir, offset))?;
            self.snapshots.remove(&offset);
            self.names_changed = true;
        }
        Ok(())
    }
}
