//! Opening a log, new or old. After a clean stop the files are believed. After any other stop every
//! segment that reaches beyond the recovery point is read and checked: the log ends before the first
//! batch that does not hold, later segments go, indexes and the index of aborted transactions are
//! made anew, and the epoch cache and the producers' state follow the batches that are left (T12).

use std::path::{Path, PathBuf};

use protocol::records::BatchView;
use protocol::{LeaderEpoch, Offset, TopicPartition};
use replication::LeaderEpochCache;
use replication::producer_state::ProducerStateManager;
use replication::time::Now;

use super::sweep::sweep;
use super::{Log, epoch_entries};
use crate::batches;
use crate::checkpoint;
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::error::{IoContext, LogError, Result};
use crate::files;
use crate::segment::{IndexLimits, Segment};

/// What is needed to open a log.
#[derive(Clone, Debug)]
pub struct OpenLog<'a, D> {
    /// Where.
    pub disk: &'a D,
    /// The partition's folder, `<log dir>/<topic>-<partition>`; made when it is absent.
    pub dir: PathBuf,
    /// The partition.
    pub topic_partition: TopicPartition,
    /// Its settings.
    pub config: LogConfig,
    /// From `log-start-offset-checkpoint`; 0 when it has none.
    pub log_start_offset: Offset,
    /// From `recovery-point-offset-checkpoint`; 0 when it has none.
    pub recovery_point: Offset,
    /// From `cleaner-offset-checkpoint`; `None` when it has none.
    pub cleaner_offset: Option<Offset>,
    /// Whether the log directory holds the marker of a clean stop.
    pub clean_shutdown: bool,
}

impl<D: Disk> Log<D> {
    /// Opens a log, recovering it if need be; an absent one is made, empty.
    ///
    /// # Errors
    /// A storage failure.
    pub fn open(open: OpenLog<'_, D>, now: Now) -> Result<Log<D>> {
        let OpenLog { disk, dir, topic_partition, config, .. } = open;
        make_folder(disk, &dir)?;
        let found = sweep(disk, &dir)?;
        let was_empty = found.snapshots.is_empty();
        let mut producers = ProducerStateManager::new(config.producer_id_expiration);
        producers.clear(Offset::ZERO);
        let mut log = Log {
            topic_id: checkpoint::read_topic_id(disk, &dir)?,
            epochs: LeaderEpochCache::from_entries(epoch_entries(checkpoint::read_leader_epochs(
                disk, &dir,
            )?)),
            disk: disk.clone(),
            dir,
            topic_partition,
            config,
            segments: Vec::with_capacity(found.segments.len().max(1)),
            log_start_offset: open.log_start_offset,
            recovery_point: open.recovery_point,
            producers,
            snapshots: found.snapshots.into_iter().collect(),
            deleted: Default::default(),
            unflushed_since: None,
            names_changed: true,
            was_empty,
            truncations: 0,
            cleaner_offset: open.cleaner_offset,
            swaps: 0,
        };
        let on_disk = log.epochs.clone();
        log.load_segments(found.segments, open.clean_shutdown, now)?;
        log.settle(open.clean_shutdown, now)?;
        let end = log.log_end_offset();
        log.epochs.trim_to(log.log_start_offset, end);
        if log.epochs != on_disk {
            log.write_epochs()?;
        }
        log.drop_stray_snapshots()?;
        log.reload_producers(now)?;
        if !open.clean_shutdown {
            // Segments and snapshots from above the end that went must not come back in a later
            // crash, once the log has grown past them with other records.
            disk.sync_dir(&log.dir).at("sync", &log.dir)?;
            log.names_changed = false;
        }
        Ok(log)
    }

    fn load_segments(&mut self, bases: Vec<Offset>, clean: bool, now: Now) -> Result<()> {
        let mut recover = Vec::with_capacity(bases.len());
        for base in &bases {
            let opened = Segment::open(&self.disk, &self.dir, *base, now.wall_clock_ms)?;
            self.was_empty &= *base == Offset::ZERO && opened.segment.is_empty();
            self.segments.push(opened.segment);
            recover.push(opened.needs_recovery);
        }
        for (segment, next) in self.segments.iter_mut().zip(bases.iter().skip(1)) {
            segment.set_next_offset(*next);
        }
        self.log_start_offset =
            self.log_start_offset.max(bases.first().copied().unwrap_or(Offset::ZERO));
        if !clean && !bases.is_empty() {
            // The segment that holds the last flushed batch, and all after it. A flush leaves out the
            // indexes of the active segment, also when that is closed right after it.
            let from = self.segment_at(self.recovery_point - 1);
            recover[from..].fill(true);
        }
        let mut state = None;
        let mut at = 0;
        while at < self.segments.len() {
            if recover[at] && !self.recover_segment(at, &mut state, now)? {
                self.delete_segments(at + 1..self.segments.len(), now)?;
            }
            at += 1;
        }
        if let Some(last) = self.segments.last_mut() {
            last.load_tail()?;
        }
        Ok(())
    }

    /// Recovers one segment; gives whether the log goes on in the next one. `state` carries the
    /// producers' state from one recovered segment to the next.
    ///
    /// A segment may have lost its end at a batch boundary while the next one reached the disk: then
    /// the next one does not go on where this one ends, and goes too. Our own cleaner leaves no such
    /// gaps; Kafka's does, below the point that it has reached.
    fn recover_segment(
        &mut self,
        at: usize,
        state: &mut Option<ProducerStateManager>,
        now: Now,
    ) -> Result<bool> {
        let base = self.segments[at].base_offset();
        let mut producers = match state.take() {
            Some(producers) if producers.map_end_offset() == base => producers,
            _ => self.producers_at(base, now)?,
        };
        let limits = IndexLimits {
            interval_bytes: self.config.index_interval_bytes,
            max_bytes: self.config.segment_index_bytes,
        };
        let mut epochs = std::mem::take(&mut self.epochs);
        let segment = &mut self.segments[at];
        let path = segment.path(files::LOG);
        let cut = segment.recover(limits, &mut |view: &BatchView<'_>| {
            follow_epoch(&mut epochs, view);
            let batch = batches::producer_batch(view, view.base_offset());
            let batch = batch.map_err(|error| LogError::CorruptFile {
                path: path.clone(),
                position: 0,
                reason: error.to_string(),
            })?;
            let ended = batch.and_then(|batch| producers.update(&batch));
            Ok(ended.as_ref().and_then(batches::aborted))
        });
        self.epochs = epochs;
        let cut = cut?;
        let next = self.segments.get(at + 1).map(Segment::base_offset);
        let compacted = |next| {
            self.config.compact || self.cleaner_offset.is_some_and(|cleaned| next <= cleaned)
        };
        let end = self.segments[at].next_offset();
        let goes_on = cut == 0 && next.is_none_or(|next| end == next || compacted(next));
        let segment = &mut self.segments[at];
        if let Some(next) = next.filter(|_| goes_on) {
            segment.set_next_offset(next);
        }
        producers.set_map_end_offset(segment.next_offset());
        if next.is_some() {
            segment.seal()?;
        }
        *state = Some(producers);
        Ok(goes_on)
    }

    /// Brings start, end and recovery point into their order.
    fn settle(&mut self, clean: bool, now: Now) -> Result<()> {
        let end = self.segments.last().map(Segment::next_offset);
        let start = self.log_start_offset;
        if end.is_none_or(|end| end < start) {
            // All that is left lies below the start: nothing of it may be read.
            let made = self.segments.len();
            for at in 0..made {
                self.retire_segment(at, now)?;
            }
            let segment = Segment::create(&self.disk, &self.dir, start, now.wall_clock_ms)?;
            self.segments.push(segment);
            self.segments.drain(..made);
        }
        let end = self.log_end_offset();
        self.recovery_point = if clean { end } else { self.recovery_point.min(end) };
        Ok(())
    }

    /// Keeps the snapshots at the segments' bases and the newest one that is not above the end. One
    /// below the first segment lacks what the deleted ones held, and is worse than none.
    fn drop_stray_snapshots(&mut self) -> Result<()> {
        let end = self.log_end_offset();
        let newest = self.snapshots.range(..=end).next_back().copied();
        let bases: Vec<Offset> = self.segment_base_offsets().collect();
        self.remove_snapshots(|offset| {
            offset < bases[0]
                || offset > end
                || (bases.binary_search(&offset).is_err() && Some(offset) != newest)
        })
    }
}

/// Recovery believes the batches: where the cache says otherwise, it is cut and follows them.
fn follow_epoch(epochs: &mut LeaderEpochCache, view: &BatchView<'_>) {
    let (epoch, base) = (view.partition_leader_epoch(), view.base_offset());
    if epoch > LeaderEpoch::NONE && epochs.epoch_at(base) != Some(epoch) {
        epochs.truncate_from_end(base);
        epochs.assign(epoch, base);
    }
}

fn make_folder<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    if !disk.exists(dir).at("look for", dir)? {
        disk.create_dir_all(dir).at("create", dir)?;
        let parent = dir.parent().unwrap_or(Path::new("."));
        disk.sync_dir(parent).at("sync", parent)?;
    }
    Ok(())
}
