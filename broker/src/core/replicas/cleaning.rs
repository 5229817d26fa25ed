//! When the log cleaner works, on what, and how much at a time.
//!
//! Of the logs that are worth it (`min.cleanable.dirty.ratio`, `max.compaction.lag.ms`) the one with the
//! largest dirty part comes first; `log.cleaner.threads` of them are worked on in turn. A log is cleaned
//! up to its last stable offset, by leaders and followers alike, each for itself. One call does one
//! bounded step of each, with no lock held but for the swap of a finished segment; the host calls again
//! when `log.cleaner.io.max.bytes.per.second` allows it, or after `log.cleaner.backoff.ms` when there was
//! nothing to do.
//!
//! A log that is damaged is told once and left alone until the next start; it serves on as it is. Only a
//! disk that fails takes its directory offline (C08).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use controller::ConfigCatalogue;
use controller::config::{ConfigLayers, ConfigValue};
use protocol::{Offset, TopicIdPartition};
use replication::time::{Instant, Now};
use storage::cleaner::{Cleaning, CleaningStep, OffsetMap};
use storage::{Cleanable, Disk, LogError};

use super::ReplicaManager;
use super::partition::{Partition, Replica};
use crate::core::settings::broker_layers;

/// When the cleaner is off, it looks at its settings this often.
const OFF: Duration = Duration::from_secs(1);

/// `log.cleaner.*`, as in force now.
#[derive(Clone, Copy, PartialEq, Debug)]
struct CleanerSettings {
    enabled: bool,
    threads: usize,
    /// For all threads together.
    map_bytes: usize,
    load_factor: f64,
    step_bytes: u64,
    bytes_per_second: f64,
    backoff: Duration,
}

impl CleanerSettings {
    fn read(layers: &ConfigLayers<'_>) -> Self {
        let value = |key: &str| -> Option<ConfigValue> {
            let def = ConfigCatalogue::broker().get(key)?;
            let text = layers.broker_config(def).value?;
            def.kind.parse(def.name, &text).ok().or(def.default_value())
        };
        let number = |key: &str, default: u64| {
            let set = value(key).and_then(|value| value.as_i64());
            set.map_or(default, |number| u64::try_from(number).unwrap_or(0))
        };
        let fraction = |key: &str, default: f64| {
            value(key).and_then(|value| value.as_f64()).unwrap_or(default)
        };
        let size =
            |key: &str, default: u64| usize::try_from(number(key, default)).unwrap_or(usize::MAX);
        Self {
            enabled: value("log.cleaner.enable").and_then(|value| value.as_bool()).unwrap_or(true),
            threads: size("log.cleaner.threads", 1),
            map_bytes: size("log.cleaner.dedupe.buffer.size", 128 << 20),
            load_factor: fraction("log.cleaner.io.buffer.load.factor", 0.9),
            step_bytes: number("log.cleaner.io.buffer.size", 512 << 10).max(1),
            bytes_per_second: fraction("log.cleaner.io.max.bytes.per.second", f64::MAX),
            backoff: Duration::from_millis(number("log.cleaner.backoff.ms", 15_000)),
        }
    }

    /// How long the work on `bytes` should take at least.
    fn pause(&self, bytes: u64) -> Duration {
        let seconds = bytes as f64 / self.bytes_per_second.max(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(3600))
    }
}

/// One log that is being cleaned.
#[derive(Debug)]
struct Job<D: Disk> {
    partition: Arc<Partition<D>>,
    cleaning: Cleaning<D>,
    map: OffsetMap,
    began: Instant,
}

/// What became of a job's step.
enum Outcome {
    Worked(u64),
    Over,
}

/// The cleaner of one broker.
#[derive(Debug)]
pub(super) struct Cleaner<D: Disk> {
    jobs: Vec<Job<D>>,
    next: Instant,
    /// When logs are looked through again for one that is worth cleaning.
    next_look: Instant,
    /// Damaged logs.
    uncleanable: BTreeSet<TopicIdPartition>,
    stopped: bool,
}

impl<D: Disk> Default for Cleaner<D> {
    fn default() -> Self {
        Self {
            jobs: Vec::new(),
            next: Instant::ZERO,
            next_look: Instant::ZERO,
            uncleanable: BTreeSet::new(),
            stopped: false,
        }
    }
}

impl<D: Disk> ReplicaManager<D> {
    /// Cleans a little if that is due; gives the instant by which to be called again. Meant for one
    /// caller at a time that may wait for the disk.
    pub fn on_cleaner_tick(&self) -> Instant {
        let now = self.now();
        let mut cleaner = self.cleaner.lock();
        if cleaner.stopped {
            return now.monotonic + OFF;
        }
        if now.monotonic < cleaner.next {
            return cleaner.next;
        }
        let settings = self.cleaner_settings();
        let threads = if settings.enabled { settings.threads } else { 0 };
        while cleaner.jobs.len() > threads {
            cleaner.jobs.pop().into_iter().for_each(abandon);
        }
        if threads == 0 {
            cleaner.next = now.monotonic + OFF;
            return cleaner.next;
        }
        while cleaner.jobs.len() < threads && now.monotonic >= cleaner.next_look {
            match self.begin_job(&mut cleaner, &settings, now) {
                Some(job) => cleaner.jobs.push(job),
                None => cleaner.next_look = now.monotonic + settings.backoff,
            }
        }
        let mut worked = 0;
        for mut job in std::mem::take(&mut cleaner.jobs) {
            match self.step_job(&mut cleaner, &mut job, &settings, now) {
                Outcome::Worked(bytes) => {
                    worked += bytes;
                    cleaner.jobs.push(job);
                }
                Outcome::Over => {
                    abandon(job);
                    cleaner.next_look = now.monotonic;
                }
            }
        }
        let rest = if cleaner.jobs.is_empty() {
            cleaner.next_look
        } else {
            now.monotonic + settings.pause(worked)
        };
        cleaner.next = rest;
        rest
    }

    /// The damaged logs that the cleaner leaves alone, each with the index of its log directory.
    pub fn uncleanable(&self) -> Vec<(usize, TopicIdPartition)> {
        let uncleanable: Vec<TopicIdPartition> =
            self.cleaner.lock().uncleanable.iter().cloned().collect();
        let here = uncleanable.into_iter().filter_map(|id| {
            let partition = self.partition(&id.topic_partition, id.topic_id).ok()?;
            Some((partition.dir(), id))
        });
        here.collect()
    }

    /// Ends the cleaner: what it had begun is given up, the logs are whole.
    pub(super) fn stop_cleaner(&self) {
        let mut cleaner = self.cleaner.lock();
        cleaner.stopped = true;
        cleaner.jobs.drain(..).for_each(abandon);
    }

    /// Before a truncation of `partition` to `offset`: what is written there later is not clean, and that
    /// has to be on disk before it is written ([`storage::Log::lower_cleaner_offset`]).
    pub(super) fn before_truncation(&self, partition: &TopicIdPartition, offset: Offset) {
        let Ok(found) = self.partition(&partition.topic_partition, partition.topic_id) else {
            return;
        };
        let lowered = found.lock().log.lower_cleaner_offset(offset);
        if lowered {
            self.checkpoint_cleaner_offsets();
        }
    }

    fn cleaner_settings(&self) -> CleanerSettings {
        let directory = self.directory();
        let static_configs = &self.config.static_configs;
        CleanerSettings::read(&broker_layers(&directory.image, self.config.node, static_configs))
    }

    /// Begins with the log that has most to gain.
    fn begin_job(
        &self,
        cleaner: &mut Cleaner<D>,
        settings: &CleanerSettings,
        now: Now,
    ) -> Option<Job<D>> {
        let (partition, cleanable) = self.dirtiest(cleaner, now)?;
        let cleaning = {
            let mut replica = partition.lock();
            replica.log.begin_cleaning(&cleanable, now)
        };
        match cleaning {
            Ok(cleaning) => {
                let seed = [self.config.seed, cleanable.first_dirty.0.unsigned_abs()];
                let bytes = settings.map_bytes / settings.threads.max(1);
                let map = OffsetMap::new(bytes, settings.load_factor, seed);
                Some(Job { partition, cleaning, map, began: now.monotonic })
            }
            Err(error) => {
                self.on_cleaning_failed(cleaner, &partition, &error);
                None
            }
        }
    }

    fn dirtiest(
        &self,
        cleaner: &mut Cleaner<D>,
        now: Now,
    ) -> Option<(Arc<Partition<D>>, Cleanable)> {
        let mut best: Option<(Arc<Partition<D>>, Cleanable)> = None;
        let (mut dirtiest, mut most_overdue_ms) = (0.0_f64, 0);
        for partition in self.online_partitions() {
            let id = partition.id();
            let busy = cleaner.jobs.iter().any(|job| job.partition.id() == id);
            let settings = partition.settings();
            if busy || !settings.log.compact || cleaner.uncleanable.contains(id) {
                continue;
            }
            let cleanable = {
                let replica = partition.lock();
                replica.log.cleanable(last_stable_offset(&replica), now)
            };
            match cleanable {
                Ok(Some(cleanable)) => {
                    dirtiest = dirtiest.max(cleanable.dirty_ratio());
                    most_overdue_ms = most_overdue_ms.max(cleanable.overdue_ms);
                    let more = best
                        .as_ref()
                        .is_none_or(|(_, other)| cleanable.dirty_ratio() > other.dirty_ratio());
                    if more && cleanable.is_due(settings.log.min_cleanable_dirty_ratio) {
                        best = Some((partition, cleanable));
                    }
                }
                Ok(None) => {}
                Err(error) => self.on_cleaning_failed(cleaner, &partition, &error),
            }
        }
        let counts = &self.counts.cleaner;
        counts.max_dirty_percent.set((dirtiest * 100.0) as u64);
        counts.max_compaction_delay_ms.set(most_overdue_ms.unsigned_abs());
        counts.last_run_ms.set(now.monotonic.0.as_millis() as u64);
        best
    }

    fn step_job(
        &self,
        cleaner: &mut Cleaner<D>,
        job: &mut Job<D>,
        settings: &CleanerSettings,
        now: Now,
    ) -> Outcome {
        let partition = &job.partition;
        if partition.is_removed() || !partition.settings().log.compact {
            return Outcome::Over;
        }
        let done = match job.cleaning.step(&mut job.map, settings.step_bytes) {
            Ok(CleaningStep::Worked(bytes)) => return Outcome::Worked(bytes),
            Ok(CleaningStep::Install) => {
                let mut replica = partition.lock();
                if partition.is_removed() {
                    return Outcome::Over;
                }
                match replica.log.install_cleaned(&mut job.cleaning, now) {
                    Ok(true) => return Outcome::Worked(0),
                    Ok(false) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            Ok(CleaningStep::Done) => partition.lock().log.complete_cleaning(&job.cleaning),
            Err(error) => Err(error),
        };
        match done {
            Ok(true) => {
                self.checkpoint_cleaner_offsets();
                let (stats, end) = (job.cleaning.stats(), job.cleaning.end_offset());
                let took = now.monotonic.since(job.began);
                let counts = &self.counts.cleaner;
                counts.cleaned.add(1);
                counts.last_clean_ms.set(took.as_millis() as u64);
                let recopied = stats.written_bytes * 100 / stats.read_bytes.max(1);
                counts.recopy_percent.set(recopied);
                tracing::info!(
                    partition = %partition.id().topic_partition, %end, ?stats, ?took, "log cleaned"
                );
            }
            Ok(false) => {
                let name = &partition.id().topic_partition;
                tracing::info!(partition = %name, "cleaning given up: the log has changed");
            }
            Err(error) => self.on_cleaning_failed(cleaner, partition, &error),
        }
        Outcome::Over
    }

    fn on_cleaning_failed(
        &self,
        cleaner: &mut Cleaner<D>,
        partition: &Partition<D>,
        error: &LogError,
    ) {
        if partition.is_removed() {
            // Its folder may have been renamed or removed under the cleaning.
            return;
        }
        if let LogError::CorruptFile { .. } = error {
            let name = &partition.id().topic_partition;
            tracing::error!(partition = %name, %error, "the log cannot be cleaned and is left as it is");
            cleaner.uncleanable.insert(partition.id().clone());
        } else {
            self.on_storage_failure(partition, error);
        }
    }
}

fn last_stable_offset<D: Disk>(replica: &Replica<D>) -> Offset {
    let high_watermark = replica.state.high_watermark().offset;
    replica.log.first_unstable_offset().map_or(high_watermark, |first| first.min(high_watermark))
}

fn abandon<D: Disk>(job: Job<D>) {
    let name = job.partition.id().topic_partition.clone();
    if let Err(error) = job.cleaning.abandon() {
        tracing::warn!(partition = %name, %error, "a file of the cleaner is left behind");
    }
}
