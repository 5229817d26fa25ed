//! Bringing batches to the disk itself, and closing.
//!
//! A flush may be slow, so it comes in three steps: [`Log::begin_flush`] under the partition's lock,
//! [`FlushTicket::sync`] outside of it, [`Log::complete_flush`] under it again. The recovery point
//! moves only in the last step, to what the first one saw, and only if no truncation came between.

use std::path::PathBuf;

use protocol::Offset;
use replication::time::{Instant, Now};

use super::Log;
use crate::disk::{Disk, DiskFile};
use crate::error::{IoContext, Result};

/// A flush on its way.
#[derive(Debug)]
pub struct FlushTicket<D: Disk> {
    disk: D,
    dir: PathBuf,
    files: Vec<D::File>,
    sync_names: bool,
    up_to: Offset,
    sealed: Vec<Offset>,
    truncations: u64,
}

impl<D: Disk> FlushTicket<D> {
    /// Waits for the disk.
    ///
    /// # Errors
    /// A storage failure.
    pub fn sync(&self) -> Result<()> {
        for file in &self.files {
            file.sync_data().at("sync", &self.dir)?;
        }
        if self.sync_names {
            self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
        }
        Ok(())
    }
}

impl<D: Disk> Log<D> {
    /// Notes what must reach the disk; `None` when everything has.
    ///
    /// # Errors
    /// A storage failure.
    pub fn begin_flush(&mut self) -> Result<Option<FlushTicket<D>>> {
        let up_to = self.log_end_offset();
        if up_to <= self.recovery_point && !self.names_changed {
            return Ok(None);
        }
        let active = self.segments.len() - 1;
        let mut files = Vec::new();
        let mut sealed = Vec::new();
        for (at, segment) in self.segments.iter_mut().enumerate() {
            if segment.is_synced() {
                continue;
            }
            // The indexes of the active segment are made anew after a crash; those of a sealed one
            // below the recovery point are believed.
            if at == active {
                files.push(segment.log_file());
            } else {
                segment.persist_indexes()?;
                files.extend(segment.files());
                sealed.push(segment.base_offset());
            }
        }
        Ok(Some(FlushTicket {
            disk: self.disk.clone(),
            dir: self.dir.clone(),
            files,
            sync_names: self.names_changed,
            up_to,
            sealed,
            truncations: self.truncations,
        }))
    }

    /// A flush has reached the disk.
    pub fn complete_flush(&mut self, ticket: &FlushTicket<D>) {
        if ticket.truncations != self.truncations {
            return;
        }
        let last = self.segments.len() - 1;
        for segment in &mut self.segments[..last] {
            if ticket.sealed.contains(&segment.base_offset()) {
                segment.mark_synced();
            }
        }
        self.recovery_point = self.recovery_point.max(ticket.up_to);
        if self.recovery_point == self.log_end_offset() {
            self.unflushed_since = None;
        }
        if ticket.sync_names {
            self.names_changed = false;
        }
    }

    /// Flushes at once.
    ///
    /// # Errors
    /// A storage failure.
    pub fn flush(&mut self) -> Result<()> {
        if let Some(ticket) = self.begin_flush()? {
            ticket.sync()?;
            self.complete_flush(&ticket);
        }
        Ok(())
    }

    /// When `flush.ms` asks for the next flush.
    pub fn next_flush(&self) -> Option<Instant> {
        let wait = u64::try_from(self.config.flush_ms).ok()?;
        self.unflushed_since.map(|since| since + std::time::Duration::from_millis(wait))
    }

    /// Flushes if `flush.ms` asks for it; gives whether it did.
    ///
    /// # Errors
    /// A storage failure.
    pub fn maybe_flush(&mut self, now: Now) -> Result<bool> {
        match self.next_flush() {
            Some(due) if due <= now.monotonic => self.flush().map(|()| true),
            _ => Ok(false),
        }
    }

    /// Makes everything durable, the ends of the indexes and a snapshot of the producers included, so
    /// that a start after a clean stop need not read batches.
    ///
    /// # Errors
    /// A storage failure.
    pub fn close(&mut self) -> Result<()> {
        let end = self.log_end_offset();
        if self.is_as_made() {
            return Ok(());
        }
        self.active_mut().finish_indexes()?;
        self.producers.set_map_end_offset(end);
        self.write_snapshot_if_due()?;
        for segment in &mut self.segments {
            if !segment.is_synced() {
                segment.sync()?;
            }
        }
        self.disk.sync_dir(&self.dir).at("sync", &self.dir)?;
        self.names_changed = false;
        self.recovery_point = end;
        self.unflushed_since = None;
        Ok(())
    }

    /// Whether nothing ever was in this log, so that what a start after a lost flush would find, its
    /// empty files or none of them, is the same to it. Most partitions of the internal topics are so.
    fn is_as_made(&self) -> bool {
        self.was_empty && self.truncations == 0 && self.log_end_offset() == Offset::ZERO
    }
}
