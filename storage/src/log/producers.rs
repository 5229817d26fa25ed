//! The producers' state on disk: a snapshot `<offset>.snapshot` at every roll and at a clean stop,
//! and its rebuilding from the newest good snapshot and the batches after it (X02). A snapshot that
//! does not hold together is removed and an older one taken: the log itself has the truth.

use std::io;
use std::path::Path;

use protocol::Offset;
use protocol::records::{BatchHeader, BatchView};
use replication::producer_state::{ProducerStateEntry, ProducerStateManager, snapshot};
use replication::time::Now;

use super::{Log, snapshot_path};
use crate::batches;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, LogError, Result};
use crate::files;
use crate::segment::{Segment, remove_if_there};

impl<D: Disk> Log<D> {
    /// Writes a snapshot if there is none at the end of the state. It is not synced: a torn one is
    /// found out by its checksum.
    pub(super) fn write_snapshot_if_due(&mut self) -> Result<()> {
        let offset = self.producers.map_end_offset();
        if offset == Offset::ZERO || self.snapshots.contains(&offset) {
            return Ok(());
        }
        let path = snapshot_path(&self.dir, offset);
        let file = self.disk.open(&path, OpenMode::Truncate).at("create", &path)?;
        file.write_at(&[&self.producers.encode_snapshot()], 0).at("write", &path)?;
        self.producers.on_snapshot_written(offset);
        self.snapshots.insert(offset);
        self.names_changed = true;
        Ok(())
    }

    /// Brings the producers' state to the log end after a truncation or at a start.
    pub(super) fn reload_producers(&mut self, now: Now) -> Result<()> {
        let end = self.log_end_offset();
        if self.producers.map_end_offset() == end {
            self.producers.on_log_start(self.log_start_offset);
            return Ok(());
        }
        self.producers = self.producers_at(end, now)?;
        Ok(())
    }

    /// The producers' state as it was when the log ended at `end`.
    pub(super) fn producers_at(&mut self, end: Offset, now: Now) -> Result<ProducerStateManager> {
        let mut producers = ProducerStateManager::new(self.config.producer_id_expiration);
        // Batches below the log start still tell what their producers did.
        producers.clear(self.segments[0].base_offset().min(end));
        if let Some((offset, entries)) = self.newest_snapshot(end)? {
            producers.load(offset, entries, now.wall_clock_ms);
        }
        let from = producers.map_end_offset();
        for segment in &self.segments[self.segment_at(from)..] {
            if segment.base_offset() >= end {
                break;
            }
            replay(segment, from, end, &mut producers)?;
        }
        producers.set_map_end_offset(end);
        Ok(producers)
    }

    fn newest_snapshot(
        &mut self,
        end: Offset,
    ) -> Result<Option<(Offset, Vec<ProducerStateEntry>)>> {
        let first = self.segments[0].base_offset().min(end);
        while let Some(offset) = self.snapshots.range(first..=end).next_back().copied() {
            let path = snapshot_path(&self.dir, offset);
            match read_snapshot(&self.disk, &path)? {
                Ok(entries) => return Ok(Some((offset, entries))),
                Err(reason) => {
                    tracing::warn!(path = %path.display(), reason, "removing a bad snapshot");
                    remove_if_there(&self.disk, &path)?;
                    self.snapshots.remove(&offset);
                }
            }
        }
        Ok(None)
    }
}

/// Feeds the batches of `segment` in `[from, to)` to `producers`.
fn replay<D: Disk>(
    segment: &Segment<D>,
    from: Offset,
    to: Offset,
    producers: &mut ProducerStateManager,
) -> Result<()> {
    let Some(start) = segment.locate(from)? else {
        return Ok(());
    };
    let mut scan = segment.headers_from(u64::from(start.position));
    while let Some((position, header)) = segment.next_header(&mut scan)? {
        if header.base_offset() >= to {
            break;
        }
        if header.base_offset() < from || !header.has_producer_id() {
            continue;
        }
        learn(segment, position, &header, producers)?;
    }
    Ok(())
}

fn learn<D: Disk>(
    segment: &Segment<D>,
    position: u64,
    header: &BatchHeader,
    producers: &mut ProducerStateManager,
) -> Result<()> {
    // Only a marker says more than its header does, and markers are small.
    let bytes = segment.read_batch(position, header.size_in_bytes())?;
    let broken = |error: protocol::records::BatchError| LogError::CorruptFile {
        path: segment.path(files::LOG),
        position,
        reason: error.to_string(),
    };
    let view = BatchView::parse(&bytes).map_err(broken)?;
    if let Some(batch) = batches::producer_batch(&view, view.base_offset()).map_err(broken)? {
        producers.update(&batch);
    }
    Ok(())
}

/// The entries of a snapshot, or why there are none to be had.
fn read_snapshot<D: Disk>(
    disk: &D,
    path: &Path,
) -> Result<std::result::Result<Vec<ProducerStateEntry>, String>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err("absent".into())),
        Err(error) => return Err(error).at("open", path),
    };
    let bytes = file.read_all().at("read", path)?;
    Ok(snapshot::decode(&bytes).map_err(|error| error.to_string()))
}
