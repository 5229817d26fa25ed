//! One of a broker's `log.dirs`: whose it is, which partitions it holds, and how it was left.
//!
//! A directory belongs to one node of one cluster and says so in `meta.properties`; that of another
//! is refused, since mixing two would destroy both. It is locked while in use. The marker of a clean
//! stop is removed, durably, before any log may change.

use std::path::{Path, PathBuf};

use protocol::{BrokerEpoch, NodeId, Offset, TopicId, TopicPartition, Uuid};
use replication::time::Now;

use crate::checkpoint::{self, CleanShutdown, MetaProperties, PartitionOffsets};
use crate::config::LogConfig;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, LogError};
use crate::files::{FolderKind, METADATA_FOLDER, folder_kind};
use crate::log::{Log, OpenLog, remove_folder};

const LOCK: &str = ".lock";

/// Who opens the directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster's id.
    pub cluster_id: String,
    /// The node's id.
    pub node_id: NodeId,
}

/// Why a log directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogDirError {
    /// The disk failed, or a file is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Another process uses the directory.
    #[error("{path} is in use by another process")]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// There are files and no `meta.properties`: nobody knows whose they are.
    #[error("{path} is not empty and has no meta.properties; it holds {found}")]
    NotFormatted {
        /// The directory.
        path: PathBuf,
        /// A name found in it.
        found: String,
    },
    /// The directory belongs to another cluster.
    #[error("{path} belongs to cluster {found}, this is cluster {expected}")]
    WrongCluster {
        /// The directory.
        path: PathBuf,
        /// The cluster id in `meta.properties`.
        found: String,
        /// Our own.
        expected: String,
    },
    /// The directory belongs to another node of the cluster.
    #[error("{path} belongs to node {found}, this is node {expected}")]
    WrongNode {
        /// The directory.
        path: PathBuf,
        /// The node id in `meta.properties`.
        found: NodeId,
        /// Our own.
        expected: NodeId,
    },
}

/// A log directory, formatted, locked and ours.
#[derive(Debug)]
pub struct LogDir<D: Disk> {
    disk: D,
    path: PathBuf,
    meta: MetaProperties,
    clean_shutdown: Option<CleanShutdown>,
    /// Holds the lock for as long as it lives.
    _lock: D::File,
}

/// What a directory held.
#[derive(Debug)]
pub struct LoadedLogs<D: Disk> {
    /// The partitions, by name.
    pub logs: Vec<Log<D>>,
    /// Their high watermarks as last written (H12); those that are missing start at the log start.
    pub high_watermarks: PartitionOffsets,
    /// Folders of deleted partitions whose removal was completed.
    pub removed: Vec<String>,
    /// Folders that were left as they are: unknown names, `-future` and `-stray` ones.
    pub left_alone: Vec<String>,
}

/// How to open the partitions of a directory.
pub struct LoadOptions<'a> {
    /// The settings of each partition's topic.
    pub config_of: &'a (dyn Fn(&TopicPartition) -> LogConfig + Sync),
    /// `num.recovery.threads.per.data.dir`; 1 keeps everything on the caller's thread.
    pub threads: usize,
}

impl<D: Disk> LogDir<D> {
    /// Opens the directory at `path` for `identity`, formatting it with `new_directory_id` if it is
    /// empty or absent.
    ///
    /// # Errors
    /// See [`LogDirError`].
    pub fn open(
        disk: &D,
        path: &Path,
        identity: &Identity,
        new_directory_id: Uuid,
    ) -> Result<Self, LogDirError> {
        disk.create_dir_all(path).at("create", path)?;
        let lock_path = path.join(LOCK);
        let lock = disk.open(&lock_path, OpenMode::Create).at("create", &lock_path)?;
        if !lock.try_lock().at("lock", &lock_path)? {
            return Err(LogDirError::Locked { path: path.to_path_buf() });
        }
        let mut meta = match checkpoint::read_meta_properties(disk, path)? {
            Some(meta) => meta,
            None => format(disk, path, identity, new_directory_id)?,
        };
        check_owner(path, &meta, identity)?;
        if meta.directory_id.is_zero() {
            // Formatted before directories had ids (KIP-858).
            meta.directory_id = new_directory_id;
            checkpoint::write_meta_properties(disk, path, &meta)?;
        }
        let clean_shutdown = checkpoint::read_clean_shutdown(disk, path)?;
        Ok(Self { disk: disk.clone(), path: path.to_path_buf(), meta, clean_shutdown, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its id (KIP-858).
    pub fn directory_id(&self) -> Uuid {
        self.meta.directory_id
    }

    /// How the last broker left it; `None` after a crash, and for a new directory.
    pub fn clean_shutdown(&self) -> Option<CleanShutdown> {
        self.clean_shutdown
    }

    /// Opens all partitions, recovering them after an unclean stop, and completes the removal of
    /// deleted ones. The marker of the clean stop is gone afterwards.
    ///
    /// # Errors
    /// A storage failure of any partition: the directory is not usable as a whole.
    pub fn load(&self, options: LoadOptions<'_>, now: Now) -> Result<LoadedLogs<D>, LogDirError> {
        let starts =
            checkpoint::read_offsets(&self.disk, &self.path, checkpoint::LOG_START_OFFSETS)?;
        let points = checkpoint::read_offsets(&self.disk, &self.path, checkpoint::RECOVERY_POINTS)?;
        let cleaned = self.read_cleaner_offsets();
        let high_watermarks =
            checkpoint::read_offsets(&self.disk, &self.path, checkpoint::HIGH_WATERMARKS)?;
        checkpoint::remove_clean_shutdown(&self.disk, &self.path)?;
        let mut loaded = LoadedLogs {
            logs: Vec::new(),
            high_watermarks,
            removed: Vec::new(),
            left_alone: Vec::new(),
        };
        let mut work = Vec::new();
        for entry in self.disk.list(&self.path).at("list", &self.path)? {
            if !entry.is_dir {
                continue;
            }
            if entry.name == METADATA_FOLDER {
                // The controllers' own log; it is theirs to open.
                continue;
            }
            match folder_kind(&entry.name) {
                FolderKind::Partition(partition) => work.push(OpenLog {
                    disk: &self.disk,
                    dir: self.path.join(&entry.name),
                    config: (options.config_of)(&partition),
                    log_start_offset: starts.get(&partition).copied().unwrap_or(Offset::ZERO),
                    recovery_point: points.get(&partition).copied().unwrap_or(Offset::ZERO),
                    cleaner_offset: cleaned.get(&partition).copied(),
                    clean_shutdown: self.clean_shutdown.is_some(),
                    topic_partition: partition,
                }),
                FolderKind::Deleted => {
                    remove_folder(&self.disk, &self.path.join(&entry.name))?;
                    loaded.removed.push(entry.name);
                }
                FolderKind::Future | FolderKind::Stray | FolderKind::Other => {
                    tracing::warn!(dir = %self.path.display(), folder = entry.name, "left alone");
                    loaded.left_alone.push(entry.name);
                }
            }
        }
        loaded.logs = open_all(work, options.threads, now)?;
        Ok(loaded)
    }

    /// Makes the log of a new partition, with its `partition.metadata`.
    ///
    /// # Errors
    /// A storage failure; [`LogError::CorruptFile`] when a folder of another topic id is in the way.
    pub fn create_log(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        now: Now,
    ) -> Result<Log<D>, LogDirError> {
        // How far the cleaner got in an earlier partition of that name says nothing of this one.
        let mut cleaned = self.read_cleaner_offsets();
        if cleaned.remove(partition).is_some() {
            self.write_cleaner_offsets(&cleaned)?;
        }
        let open = OpenLog {
            disk: &self.disk,
            dir: self.path.join(partition.to_string()),
            topic_partition: partition.clone(),
            config,
            log_start_offset: Offset::ZERO,
            recovery_point: Offset::ZERO,
            cleaner_offset: None,
            clean_shutdown: false,
        };
        let mut log = Log::open(open, now)?;
        if !topic_id.is_zero() {
            log.assign_topic_id(topic_id)?;
        }
        Ok(log)
    }

    /// Writes the high watermarks of the directory's partitions (H12).
    ///
    /// # Errors
    /// A storage failure.
    pub fn write_high_watermarks(&self, offsets: &PartitionOffsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.disk, &self.path, checkpoint::HIGH_WATERMARKS, offsets)
    }

    /// Writes recovery points, as [`Log::recovery_point`] gives them.
    ///
    /// # Errors
    /// A storage failure.
    pub fn write_recovery_points(&self, offsets: &PartitionOffsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.disk, &self.path, checkpoint::RECOVERY_POINTS, offsets)
    }

    /// Writes log start offsets, as [`Log::checkpointed_log_start`] gives them.
    ///
    /// # Errors
    /// A storage failure.
    pub fn write_log_start_offsets(&self, offsets: &PartitionOffsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.disk, &self.path, checkpoint::LOG_START_OFFSETS, offsets)
    }

    /// Writes how far the cleaner got, as [`Log::cleaner_offset`] gives it.
    ///
    /// # Errors
    /// A storage failure.
    pub fn write_cleaner_offsets(&self, offsets: &PartitionOffsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.disk, &self.path, checkpoint::CLEANER_OFFSETS, offsets)
    }

    /// How far the cleaner got. Without the file, or when it does not hold together, the cleaner
    /// begins again at the logs' starts: it does more than it must and nothing wrong.
    fn read_cleaner_offsets(&self) -> PartitionOffsets {
        let name = checkpoint::CLEANER_OFFSETS;
        checkpoint::read_offsets(&self.disk, &self.path, name).unwrap_or_else(|error| {
            tracing::warn!(%error, "the cleaner begins again");
            PartitionOffsets::new()
        })
    }

    /// A clean stop: closes the logs, writes all checkpoints and, last, the marker.
    ///
    /// # Errors
    /// A storage failure; then there is no marker and the next start recovers.
    pub fn shut_down<'a>(
        &self,
        logs: impl Iterator<Item = &'a mut Log<D>>,
        high_watermarks: &PartitionOffsets,
        broker_epoch: BrokerEpoch,
    ) -> Result<(), LogError> {
        let mut points = PartitionOffsets::new();
        let mut starts = PartitionOffsets::new();
        for log in logs {
            log.close()?;
            points.insert(log.topic_partition().clone(), log.recovery_point());
            starts
                .extend(log.checkpointed_log_start().map(|at| (log.topic_partition().clone(), at)));
        }
        self.write_recovery_points(&points)?;
        self.write_log_start_offsets(&starts)?;
        self.write_high_watermarks(high_watermarks)?;
        checkpoint::write_clean_shutdown(&self.disk, &self.path, broker_epoch)
    }
}

/// Index of the directory for a new partition: the one with the fewest, of several the first.
pub fn choose_dir(partition_counts: &[usize]) -> Option<usize> {
    (0..partition_counts.len()).min_by_key(|at| partition_counts[*at])
}

fn format<D: Disk>(
    disk: &D,
    path: &Path,
    identity: &Identity,
    directory_id: Uuid,
) -> Result<MetaProperties, LogDirError> {
    let ours = [LOCK, "lost+found", "meta.properties.tmp"];
    let entries = disk.list(path).at("list", path)?;
    if let Some(found) = entries.into_iter().find(|entry| !ours.contains(&entry.name.as_str())) {
        return Err(LogDirError::NotFormatted { path: path.to_path_buf(), found: found.name });
    }
    let meta = MetaProperties {
        cluster_id: identity.cluster_id.clone(),
        node_id: identity.node_id,
        directory_id,
    };
    checkpoint::write_meta_properties(disk, path, &meta)?;
    Ok(meta)
}

fn check_owner(path: &Path, meta: &MetaProperties, identity: &Identity) -> Result<(), LogDirError> {
    let path = path.to_path_buf();
    if meta.cluster_id != identity.cluster_id {
        let (found, expected) = (meta.cluster_id.clone(), identity.cluster_id.clone());
        return Err(LogDirError::WrongCluster { path, found, expected });
    }
    if meta.node_id != identity.node_id {
        return Err(LogDirError::WrongNode {
            path,
            found: meta.node_id,
            expected: identity.node_id,
        });
    }
    Ok(())
}

fn open_all<D: Disk>(
    work: Vec<OpenLog<'_, D>>,
    threads: usize,
    now: Now,
) -> Result<Vec<Log<D>>, LogError> {
    if threads <= 1 || work.len() <= 1 {
        return work.into_iter().map(|open| Log::open(open, now)).collect();
    }
    let share = work.len().div_ceil(threads);
    let mut work = work.into_iter();
    let shares: Vec<Vec<OpenLog<'_, D>>> = std::iter::from_fn(|| {
        let next: Vec<_> = work.by_ref().take(share).collect();
        (!next.is_empty()).then_some(next)
    })
    .collect();
    std::thread::scope(|scope| {
        let running: Vec<_> = shares
            .into_iter()
            .map(|share| {
                scope.spawn(move || {
                    share
                        .into_iter()
                        .map(|open| Log::open(open, now))
                        .collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut logs = Vec::new();
        for thread in running {
            match thread.join() {
                Ok(opened) => logs.extend(opened?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(logs)
    })
}
