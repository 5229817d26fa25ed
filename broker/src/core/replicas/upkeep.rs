//! What has to be done from time to time: checkpoints of high watermarks, recovery points and log
//! starts, flushes, retention, the second step of deletions, the search for lagging ISR members; and
//! the last of all, the clean stop.
//!
//! The host calls [`ReplicaManager::on_tick`] and sleeps until the instant it gives.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{BrokerEpoch, Offset, TopicPartition};
use replication::time::{Instant, Now};
use storage::{Disk, LogError};

use super::partition::Partition;
use super::{ReplicaManager, ReplicaManagerConfig};

/// The longest that a file which became due since the last look waits, while ticks come.
const FILES_PAUSE: Duration = Duration::from_millis(100);

/// A job that is due every so often.
#[derive(Clone, Copy, Debug)]
struct Periodic {
    every: Duration,
    next: Instant,
}

impl Periodic {
    fn new(every: Duration, now: Instant) -> Self {
        Self { every, next: now + every }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.every;
        }
        due
    }
}

/// When everything is due.
pub(super) struct Schedule {
    high_watermarks: Periodic,
    recovery_points: Periodic,
    log_starts: Periodic,
    retention: Periodic,
    isr: Periodic,
    /// When the files of all partitions were last looked at, and when one of them is due.
    files_seen: Instant,
    files_due: Option<Instant>,
    /// Folders of deleted partitions, and when they go.
    removals: Vec<(Instant, PathBuf)>,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("removals", &self.removals.len()).finish_non_exhaustive()
    }
}

impl Schedule {
    pub(super) fn new(config: &ReplicaManagerConfig, now: Instant) -> Self {
        Self {
            high_watermarks: Periodic::new(config.high_watermark_checkpoint_interval, now),
            recovery_points: Periodic::new(config.recovery_point_checkpoint_interval, now),
            log_starts: Periodic::new(config.log_start_checkpoint_interval, now),
            retention: Periodic::new(config.retention_check_interval, now),
            isr: Periodic::new(config.replica_lag_time_max / 2, now),
            files_seen: now,
            files_due: Some(now),
            removals: Vec::new(),
        }
    }

    pub(super) fn remove_later(&mut self, folder: PathBuf, at: Instant) {
        self.removals.push((at, folder));
    }

    fn next(&self) -> Instant {
        let periodic =
            [self.high_watermarks, self.recovery_points, self.log_starts, self.retention, self.isr];
        let jobs = periodic.iter().map(|job| job.next);
        let removals = self.removals.iter().map(|(at, _)| *at);
        jobs.chain(removals).min().unwrap_or(self.isr.next)
    }
}

/// What a tick found due.
struct Due {
    high_watermarks: bool,
    recovery_points: bool,
    log_starts: bool,
    retention: bool,
    isr: bool,
    removals: Vec<PathBuf>,
}

impl<D: Disk> ReplicaManager<D> {
    /// Does what is due; gives the instant by which to be called again.
    pub fn on_tick(self: &Arc<Self>) -> Instant {
        let now = self.now();
        let expiry = self.expire(now);
        let due = self.take_due(now.monotonic);
        if due.isr {
            self.shrink_isrs(now);
        }
        let proposals = self.send_proposals(now);
        let assignments = self.send_assignments(now);
        if due.high_watermarks {
            self.checkpoint_high_watermarks();
        }
        if due.recovery_points {
            self.checkpoint_recovery_points();
        }
        if due.log_starts {
            self.checkpoint_log_starts();
        }
        if due.retention {
            self.delete_old_segments(now);
        }
        let files = self.tend_files_if_due(now);
        for folder in due.removals {
            if let Err(error) = storage::remove_folder(&self.disk, &folder) {
                tracing::warn!(%error, "cannot remove a deleted partition's folder");
            }
        }
        let next = self.upkeep.lock().next();
        [Some(next), expiry, proposals, assignments, files]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(next)
    }

    fn take_due(&self, now: Instant) -> Due {
        let mut schedule = self.upkeep.lock();
        let (ready, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut schedule.removals).into_iter().partition(|(at, _)| *at <= now);
        schedule.removals = later;
        Due {
            high_watermarks: schedule.high_watermarks.is_due(now),
            recovery_points: schedule.recovery_points.is_due(now),
            log_starts: schedule.log_starts.is_due(now),
            retention: schedule.retention.is_due(now),
            isr: schedule.isr.is_due(now),
            removals: ready.into_iter().map(|(_, folder)| folder).collect(),
        }
    }

    /// Tends the files when one is due, or not seen for a while: a tick comes for every fetch that waits
    /// in vain, and must not cost a look at every partition.
    fn tend_files_if_due(&self, now: Now) -> Option<Instant> {
        {
            let schedule = self.upkeep.lock();
            let is_due = schedule.files_due.is_some_and(|due| now.monotonic >= due);
            if !is_due && now.monotonic < schedule.files_seen + FILES_PAUSE {
                return schedule.files_due;
            }
        }
        let next = self.tend_files(now);
        let mut schedule = self.upkeep.lock();
        (schedule.files_seen, schedule.files_due) = (now.monotonic, next);
        next
    }

    /// Flushes that `flush.ms` asks for, and files whose second step of deletion is due.
    fn tend_files(&self, now: Now) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for partition in self.online_partitions() {
            let mut locked = partition.lock();
            let replica = locked.quietly();
            let tended = replica
                .log
                .maybe_flush(now)
                .and_then(|_| replica.log.remove_deleted_files(now.monotonic));
            let wanted = [replica.log.next_flush(), replica.log.next_file_removal()];
            drop(locked);
            if let Err(error) = tended {
                self.on_storage_failure(&partition, &error);
                continue;
            }
            next = wanted.into_iter().flatten().chain(next).min();
        }
        next
    }

    fn delete_old_segments(&self, now: Now) {
        for partition in self.online_partitions() {
            let mut locked = partition.lock();
            let replica = locked.quietly();
            let high_watermark = replica.state.high_watermark().offset;
            replica.log.remove_expired_producers(now);
            let before = replica.log.log_start_offset();
            let deleted = replica.log.delete_old_segments(high_watermark, now);
            let start = replica.log.log_start_offset();
            if start != before || deleted.is_err() {
                locked.note_change();
            }
            drop(locked);
            match deleted {
                Ok(0) => {}
                Ok(count) => {
                    tracing::info!(partition = %partition.id().topic_partition, count, %start, "old segments deleted");
                }
                Err(error) => self.on_storage_failure(&partition, &error),
            }
        }
    }

    /// A value of every partition, by directory.
    fn per_dir(
        &self,
        value: impl Fn(&Partition<D>) -> Option<Offset>,
    ) -> BTreeMap<usize, BTreeMap<TopicPartition, Offset>> {
        let mut values: BTreeMap<usize, BTreeMap<TopicPartition, Offset>> = BTreeMap::new();
        for partition in self.online_partitions() {
            let entry = values.entry(partition.dir()).or_default();
            if let Some(offset) = value(&partition) {
                entry.insert(partition.id().topic_partition.clone(), offset);
            }
        }
        values
    }

    fn write_checkpoints(
        &self,
        values: BTreeMap<usize, BTreeMap<TopicPartition, Offset>>,
        write: impl Fn(&storage::LogDir<D>, &BTreeMap<TopicPartition, Offset>) -> Result<(), LogError>,
    ) {
        let mut failed = Vec::new();
        {
            let dirs = self.dirs.lock();
            for (at, offsets) in values {
                let Some(dir) = dirs.get(at).and_then(|state| state.online()) else {
                    continue;
                };
                if let Err(error) = write(dir, &offsets) {
                    failed.push((at, error));
                }
            }
        }
        for (at, error) in failed {
            self.on_dir_failure(at, &error.to_string());
        }
    }

    /// Writes `replication-offset-checkpoint` of every directory (H12).
    pub fn checkpoint_high_watermarks(&self) {
        let values = self.per_dir(|partition| Some(partition.lock().state.high_watermark().offset));
        self.write_checkpoints(values, |dir, offsets| dir.write_high_watermarks(offsets));
    }

    fn checkpoint_recovery_points(&self) {
        let values = self.per_dir(|partition| Some(partition.lock().log.recovery_point()));
        self.write_checkpoints(values, |dir, offsets| dir.write_recovery_points(offsets));
    }

    fn checkpoint_log_starts(&self) {
        let values = self.per_dir(|partition| partition.lock().log.checkpointed_log_start());
        self.write_checkpoints(values, |dir, offsets| dir.write_log_start_offsets(offsets));
    }

    /// Writes `cleaner-offset-checkpoint` of every directory.
    pub(super) fn checkpoint_cleaner_offsets(&self) {
        let values = self.per_dir(|partition| partition.lock().log.cleaner_offset());
        self.write_checkpoints(values, |dir, offsets| dir.write_cleaner_offsets(offsets));
    }

    /// The clean stop: every log closed, every checkpoint written, the marker last. Nothing may be
    /// appended afterwards.
    pub fn shut_down(&self) {
        self.stop_cleaner();
        for produce in self.produces.drain() {
            self.complete_produce(produce);
        }
        for fetch in self.fetches.drain() {
            self.complete_fetch(fetch);
        }
        for deletion in self.deletions.drain() {
            self.complete_delete_records(deletion);
        }
        let epoch = self.directory().local_epoch;
        let partitions = self.online_partitions();
        let dirs = self.dirs.lock();
        for (at, state) in dirs.iter().enumerate() {
            let Some(dir) = state.online() else {
                continue;
            };
            let here: Vec<&Arc<Partition<D>>> =
                partitions.iter().filter(|partition| partition.dir() == at).collect();
            if let Err(error) = shut_down_dir(dir, &here, epoch) {
                tracing::error!(dir = %dir.path().display(), %error, "not stopped cleanly");
            }
        }
    }
}

fn shut_down_dir<D: Disk>(
    dir: &storage::LogDir<D>,
    partitions: &[&Arc<Partition<D>>],
    epoch: BrokerEpoch,
) -> Result<(), LogError> {
    let mut locked: Vec<_> = partitions.iter().map(|partition| partition.lock()).collect();
    let high_watermarks = locked
        .iter()
        .map(|replica| {
            let offset = replica.state.high_watermark().offset;
            (replica.state.topic_partition().clone(), offset)
        })
        .collect();
    let logs = locked.iter_mut().map(|replica| &mut replica.log);
    dir.shut_down(logs, &high_watermarks, epoch)
}
