//! Opening the log directories: what is on disk becomes replicas that follow nobody until metadata says
//! more. Nothing is truncated at a start; only a leader's epochs do that (T01).

use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use protocol::{Offset, TopicIdPartition, TopicPartition, Uuid};
use replication::fetch_session::{FetchSessionCache, SeededSessionIds, SessionCacheConfig};
use replication::purgatory::Purgatory;
use replication::time::Now;
use replication::trace::{Event, Why};
use storage::log_dir::LoadedLogs;
use storage::{Disk, LoadOptions, LogDir, LogDirError};

use super::dirs::{DirState, DirToLoad};
use super::partition::Partition;
use super::upkeep::Schedule;
use super::{ReplicaManager, ReplicaManagerConfig, Slot};
use crate::core::counts::ReplicaCounts;
use crate::core::directory::Directory;
use crate::core::host::Host;

/// Why no replica manager could be made.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// A directory belongs to somebody else, is in use, or holds what is no Kafka log.
    #[error(transparent)]
    Dir(#[from] LogDirError),
    /// All directories failed.
    #[error("no log directory can be used: {}", .failures.join("; "))]
    NoDir {
        /// What is wrong with each.
        failures: Vec<String>,
    },
    /// One replica lies in two directories, and nobody can tell which of them is right.
    #[error("partition {partition} lies in both {first} and {second}; remove one of them")]
    TwoLogs {
        /// The partition.
        partition: TopicPartition,
        /// One directory.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
}

/// What to open.
pub struct OpenReplicas<'a, D: Disk> {
    /// The disk.
    pub disk: &'a D,
    /// `log.dirs`, as [`super::open_dirs`] gives them.
    pub dirs: Vec<DirToLoad<D>>,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads: usize,
}

impl<D: Disk> ReplicaManager<D> {
    /// Loads the directories, recovering what was not closed cleanly (T12). A directory whose disk fails,
    /// or with a file in it that is damaged, is out of use from the start (C08).
    ///
    /// # Errors
    /// No directory works, or one replica lies in two.
    pub fn open(
        open: OpenReplicas<'_, D>,
        config: ReplicaManagerConfig,
        host: Host,
    ) -> Result<Arc<Self>, StartupError> {
        let now = host.clock.now();
        let sessions = FetchSessionCache::new(
            SessionCacheConfig {
                slots: config.fetch_session_slots,
                ..SessionCacheConfig::default()
            },
            Box::new(SeededSessionIds::new(config.seed)),
        );
        let manager = Self {
            disk: open.disk.clone(),
            upkeep: Mutex::new(Schedule::new(&config, now.monotonic)),
            config,
            host,
            dirs: Mutex::new(Vec::new()),
            partitions: RwLock::new(std::collections::BTreeMap::new()),
            directory: RwLock::new(Arc::new(Directory::empty())),
            produces: Purgatory::new(),
            progress: std::sync::OnceLock::new(),
            fetches: Purgatory::new(),
            deletions: Purgatory::new(),
            sessions,
            alter_partition: Mutex::default(),
            assignments: Mutex::default(),
            contested: Mutex::new(Vec::new()),
            cleaner: Mutex::default(),
            counts: ReplicaCounts::default(),
        };
        let mut failures = Vec::new();
        for (at, DirToLoad { path, opened }) in open.dirs.into_iter().enumerate() {
            let id = opened.as_ref().map_or(Uuid::ZERO, LogDir::directory_id);
            let loaded = match &opened {
                Ok(dir) => manager.load_logs(dir, open.recovery_threads, now)?,
                Err(error) => Err(error.to_string()),
            };
            let offline = loaded.is_err();
            manager.dirs.lock().push(DirState {
                path: path.clone(),
                id,
                dir: opened.ok(),
                offline,
            });
            match loaded {
                Ok(loaded) => manager.take_logs(at, loaded, now)?,
                Err(error) => {
                    tracing::error!(dir = %path.display(), "log directory out of use: {error}");
                    failures.push(error);
                }
            }
        }
        if manager.have_all_dirs_failed() || manager.dirs.lock().is_empty() {
            return Err(StartupError::NoDir { failures });
        }
        Ok(Arc::new(manager))
    }

    /// The logs of a directory; within, why the directory cannot be used.
    fn load_logs(
        &self,
        dir: &LogDir<D>,
        threads: usize,
        now: Now,
    ) -> Result<Result<LoadedLogs<D>, String>, StartupError> {
        let directory = self.directory();
        let reader = self.settings_reader(&directory);
        let config_of = |partition: &TopicPartition| reader.topic(&partition.topic).log;
        match dir.load(LoadOptions { config_of: &config_of, threads }, now) {
            Ok(loaded) => Ok(Ok(loaded)),
            Err(LogDirError::Log(error)) => Ok(Err(error.to_string())),
            Err(fatal) => Err(fatal.into()),
        }
    }

    fn take_logs(&self, at: usize, loaded: LoadedLogs<D>, now: Now) -> Result<(), StartupError> {
        let directory = self.directory();
        let reader = self.settings_reader(&directory);
        let LoadedLogs { logs, high_watermarks, .. } = loaded;
        for log in logs {
            let name = log.topic_partition().clone();
            let id = TopicIdPartition {
                topic_id: log.topic_id().unwrap_or(Uuid::ZERO),
                topic_partition: name.clone(),
            };
            let settings = Arc::new(reader.topic(&name.topic));
            let checkpoint = high_watermarks.get(&name).copied();
            let replica = self.new_replica(log, &id, &settings, checkpoint);
            let event = Event::LogRecovered {
                partition: name.clone(),
                log_start: replica.log.log_start_offset(),
                log_end: replica.log.log_end_offset(),
                high_watermark: replica.state.high_watermark().offset,
                why: Why::RecoveredFromDisk,
            };
            self.host.trace.emit(now, self.config.node, event);
            let counts = self.counts.topic(&name.topic);
            let partition = Arc::new(Partition::new(id, at, replica, settings, counts));
            self.take_log(name, partition)?;
        }
        Ok(())
    }

    /// A second log of one name and another topic id is of a topic that was deleted, and made again in
    /// this directory while that one did not work (or the other way round); the metadata will tell which.
    fn take_log(
        &self,
        name: TopicPartition,
        partition: Arc<Partition<D>>,
    ) -> Result<(), StartupError> {
        let other = match self.partitions.write().entry(name) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::Online(partition));
                return Ok(());
            }
            Entry::Occupied(occupied) => match occupied.get() {
                Slot::Online(other) => other.clone(),
                Slot::Offline(_) => return Ok(()),
            },
        };
        let ids = [other.id().topic_id, partition.id().topic_id];
        if ids[0] == ids[1] || ids.iter().any(Uuid::is_zero) {
            let path = |at: usize| self.dirs.lock()[at].path.clone();
            return Err(StartupError::TwoLogs {
                partition: partition.id().topic_partition.clone(),
                first: path(other.dir()),
                second: path(partition.dir()),
            });
        }
        self.contested.lock().push(partition);
        Ok(())
    }

    /// Once the metadata is caught up: logs of topics that were deleted, or moved away, while this
    /// broker was down are removed; by id, never by name alone (I01, KAFKA-14616).
    pub fn remove_strays(&self) {
        let directory = self.directory();
        for partition in self.online_partitions() {
            let id = partition.id();
            let image = directory.image.partition(id.topic_id, id.topic_partition.partition);
            let ours = image.is_some_and(|image| image.replicas.contains(&self.config.node));
            if !ours {
                tracing::info!(partition = %id.topic_partition, topic_id = %id.topic_id, "stray log removed");
                self.remove_stray(&id.topic_partition, id.topic_id);
            }
        }
    }

    /// Where this broker's log of a partition ends, if it has one.
    pub fn log_end_offset(&self, partition: &TopicPartition) -> Option<Offset> {
        let found = self.partition(partition, Uuid::ZERO).ok()?;
        let end = found.lock().log.log_end_offset();
        Some(end)
    }
}
