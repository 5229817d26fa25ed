//! What goes away by itself: whole segments at the front, by age, by size, and below the log start.
//! Only what lies below the high watermark may go.
//!
//! Deletion has two steps. A segment leaves the log and its files are renamed to `.deleted`; after
//! `file.delete.delay.ms` the files are removed. Readers that hold a slice keep the bytes anyway (F08).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use protocol::Offset;
use replication::time::{Instant, Now};

use super::Log;
use crate::disk::Disk;
use crate::error::{IoContext, Result};
use crate::files;
use crate::segment::{Segment, remove_if_there};

/// Files that wait for their removal.
#[derive(Debug)]
pub(crate) struct DeletedFiles {
    due: Instant,
    paths: Vec<PathBuf>,
}

impl<D: Disk> Log<D> {
    /// One pass of retention: drops the segments at the front that are too old, more than the size
    /// allows, or wholly below the log start. Gives how many were dropped; the log start moves up.
    ///
    /// # Errors
    /// A storage failure.
    pub fn delete_old_segments(&mut self, high_watermark: Offset, now: Now) -> Result<usize> {
        let expired = self.count_expired(high_watermark, now);
        if expired == 0 {
            return Ok(0);
        }
        if expired == self.segments.len() {
            // The active one goes as well; a log always has one.
            self.roll(now)?;
        }
        self.delete_segments(0..expired, now)?;
        let first = self.segments[0].base_offset();
        self.increment_log_start(first)?;
        self.remove_snapshots(|offset| offset < first)?;
        Ok(expired)
    }

    /// How many segments at the front may go now.
    fn count_expired(&self, high_watermark: Offset, now: Now) -> usize {
        let limits_apply = self.config.delete;
        let limit_bytes = u64::try_from(self.config.retention_bytes).ok();
        let mut excess_bytes =
            limit_bytes.map_or(0, |limit| self.size_bytes().saturating_sub(limit));
        let last = self.segments.len() - 1;
        let mut count = 0;
        for (at, segment) in self.segments.iter().enumerate() {
            let next = self.segments.get(at + 1).map(Segment::base_offset);
            let end = next.unwrap_or(segment.next_offset());
            if end > high_watermark || (at == last && segment.size_bytes() == 0) {
                break;
            }
            let below_start = next.is_some_and(|next| next <= self.log_start_offset);
            let age_ms = now.wall_clock_ms.saturating_sub(segment.retention_timestamp_ms());
            let too_old =
                limits_apply && self.config.retention_ms >= 0 && age_ms > self.config.retention_ms;
            let too_much = limits_apply && excess_bytes > 0 && excess_bytes >= segment.size_bytes();
            if !(below_start || too_old || too_much) {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(segment.size_bytes());
            count += 1;
        }
        count
    }

    /// Drops segments from the log; their files are renamed and queued for removal.
    pub(super) fn delete_segments(&mut self, range: Range<usize>, now: Now) -> Result<()> {
        for at in range.clone() {
            self.retire_segment(at, now)?;
        }
        self.segments.drain(range);
        Ok(())
    }

    /// Renames a segment's files and queues them; the segment itself is the caller's to drop.
    pub(super) fn retire_segment(&mut self, at: usize, now: Now) -> Result<()> {
        let paths = self.segments[at].mark_deleted()?;
        let due = now.monotonic + self.config.file_delete_delay;
        self.deleted.push_back(DeletedFiles { due, paths });
        self.names_changed = true;
        Ok(())
    }

    /// Removes the files whose delay has passed; gives how many.
    ///
    /// # Errors
    /// A storage failure.
    pub fn remove_deleted_files(&mut self, now: Instant) -> Result<usize> {
        let mut removed = 0;
        while self.deleted.front().is_some_and(|files| files.due <= now) {
            for path in self.deleted.pop_front().into_iter().flat_map(|files| files.paths) {
                removed += usize::from(remove_if_there(&self.disk, &path)?);
            }
        }
        Ok(removed)
    }

    /// When [`Log::remove_deleted_files`] has something to do next.
    pub fn next_file_removal(&self) -> Option<Instant> {
        self.deleted.front().map(|files| files.due)
    }

    /// First step of the removal of the whole log: its folder gets the name
    /// `topic-partition.<unique>-delete`, under which a restart finishes the removal. A replica that
    /// came back and went again may find its former folder under that name; then a number makes it
    /// another. Slices and the log itself stay readable. Gives the new folder.
    ///
    /// # Errors
    /// A storage failure.
    pub fn rename_to_deleted(&mut self, unique: &str) -> Result<PathBuf> {
        let parent = self.parent_dir().to_path_buf();
        let target_of =
            |unique: &str| parent.join(files::deleted_folder_name(&self.topic_partition, unique));
        let mut target = target_of(unique);
        let mut taken = 0;
        while self.disk.exists(&target).at("look at", &target)? {
            taken += 1;
            target = target_of(&format!("{unique}.{taken}"));
        }
        self.disk.rename(&self.dir, &target).at("rename", &self.dir)?;
        self.disk.sync_dir(&parent).at("sync", &parent)?;
        for waiting in &mut self.deleted {
            for path in &mut waiting.paths {
                if let Some(name) = path.file_name() {
                    *path = target.join(name);
                }
            }
        }
        for segment in &mut self.segments {
            segment.set_dir(&target);
        }
        self.dir.clone_from(&target);
        Ok(target)
    }

    /// Second step: removes the folder and all files in it.
    ///
    /// # Errors
    /// A storage failure.
    pub fn remove(self) -> Result<()> {
        remove_folder(&self.disk, &self.dir)
    }
}

/// Removes a partition's folder with all that is in it; content with its absence.
///
/// # Errors
/// A storage failure.
pub fn remove_folder<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let entries = match disk.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).at("list", dir),
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            remove_folder(disk, &path)?;
        } else {
            remove_if_there(disk, &path)?;
        }
    }
    disk.remove_dir(dir).at("remove", dir)?;
    let parent = dir.parent().unwrap_or(Path::new("."));
    disk.sync_dir(parent).at("sync", parent)
}
