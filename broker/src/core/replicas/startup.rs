//! Opening the log directories: what is on disk becomes replicas that follow nobody until metadata says
//! more. Nothing is truncated at a start; only a leader's epochs do that (T01).

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use protocol::{Offset, TopicIdPartition, Uuid};
use replication::fetch_session::{FetchSessionCache, SeededSessionIds, SessionCacheConfig};
use replication::purgatory::Purgatory;
use replication::time::Now;
use replication::trace::{Event, Why};
use storage::log_dir::LoadedLogs;
use storage::{Disk, Identity, LoadOptions, LogDir, LogDirError};

use super::partition::Partition;
use super::upkeep::Schedule;
use super::{AlterPartitionQueue, DirState, ReplicaManager, ReplicaManagerConfig, Slot};
use crate::core::directory::Directory;
use crate::core::host::Host;

/// Why no replica manager could be made.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// A directory belongs to somebody else, is in use, or holds what is no Kafka log.
    #[error(transparent)]
    Dir(#[from] LogDirError),
    /// All directories failed.
    #[error("no log directory of {dirs:?} can be used")]
    NoDir {
        /// The directories tried.
        dirs: Vec<PathBuf>,
    },
}

/// What to open.
pub struct OpenReplicas<'a, D: Disk> {
    /// The disk.
    pub disk: &'a D,
    /// `log.dirs`.
    pub dirs: &'a [PathBuf],
    /// Whose they are.
    pub identity: Identity,
    /// Ids for directories that have none, in their order.
    pub new_directory_ids: &'a [Uuid],
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads: usize,
}

impl<D: Disk> ReplicaManager<D> {
    /// Opens the directories, recovering what was not closed cleanly (T12).
    ///
    /// # Errors
    /// A directory of another node or cluster, or none that works.
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
            fetches: Purgatory::new(),
            deletions: Purgatory::new(),
            sessions,
            alter_partition: Mutex::new(AlterPartitionQueue::default()),
        };
        for (at, path) in open.dirs.iter().enumerate() {
            let new_id = open.new_directory_ids.get(at).copied().unwrap_or_default();
            let dir = LogDir::open(open.disk, path, &open.identity, new_id)?;
            manager.load_dir(at, dir, open.recovery_threads, now)?;
        }
        if manager.dirs.lock().is_empty() {
            return Err(StartupError::NoDir { dirs: open.dirs.to_vec() });
        }
        Ok(Arc::new(manager))
    }

    fn load_dir(
        &self,
        at: usize,
        dir: LogDir<D>,
        threads: usize,
        now: Now,
    ) -> Result<(), StartupError> {
        let directory = self.directory();
        let reader = self.settings_reader(&directory);
        let config_of = |partition: &protocol::TopicPartition| reader.topic(&partition.topic).log;
        let loaded = dir.load(LoadOptions { config_of: &config_of, threads }, now)?;
        self.dirs.lock().push(DirState { dir, offline: false });
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
            let partition = Arc::new(Partition::new(id, at, replica, settings));
            self.partitions.write().insert(name, Slot::Online(partition));
        }
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
    pub fn log_end_offset(&self, partition: &protocol::TopicPartition) -> Option<Offset> {
        let found = self.partition(partition, Uuid::ZERO).ok()?;
        let end = found.lock().log.log_end_offset();
        Some(end)
    }
}
