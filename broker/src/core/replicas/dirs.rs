//! The log directories of this broker, and what the failure of one does (C08, KIP-112, KIP-858).
//!
//! A directory that fails takes its own replicas offline and nothing else: they are answered with 56,
//! not fetched any more and never made anew in another directory (KAFKA-16234). The controller hears of
//! it with the next heartbeat, at once, and gives their leaderships to others. A directory comes back
//! only with the next start of the process. One that cannot be used at the start, because of the disk
//! or of a damaged file, counts as failed from the beginning.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{BrokerEpoch, TopicIdPartition, Uuid};
use storage::{Disk, Identity, LogDir, LogDirError, LogError};

use super::partition::{AfterLock, Partition};
use super::{ReplicaManager, Slot};

/// One of `log.dirs`, opened and locked or out of use.
#[derive(Debug)]
pub struct DirToLoad<D: Disk> {
    /// Its path.
    pub path: PathBuf,
    /// The directory, or what the disk answered.
    pub opened: Result<LogDir<D>, LogError>,
}

/// Opens and locks directories for `identity`; one without an id gets one from `new_id`. A directory
/// whose disk fails does not keep the others from being used.
///
/// # Errors
/// A directory of somebody else, one that another process uses, or one whose `meta.properties` does not
/// say whose it is: the node must not start, as Kafka's does not.
pub fn open_dirs<D: Disk>(
    disk: &D,
    paths: &[PathBuf],
    identity: &Identity,
    mut new_id: impl FnMut() -> Uuid,
) -> Result<Vec<DirToLoad<D>>, LogDirError> {
    let mut dirs = Vec::with_capacity(paths.len());
    for path in paths {
        let opened = match LogDir::open(disk, path, identity, new_id()) {
            Ok(dir) => Ok(dir),
            Err(LogDirError::Log(error @ LogError::Storage { .. })) => Err(error),
            Err(fatal) => return Err(fatal),
        };
        dirs.push(DirToLoad { path: path.clone(), opened });
    }
    Ok(dirs)
}

/// The registration that the last clean stop ended in every directory that works; -1 when one of them was
/// not closed, or in another life. It proves to the controller that nothing is lost (C06).
pub fn previous_broker_epoch<D: Disk>(dirs: &[DirToLoad<D>]) -> BrokerEpoch {
    let working = dirs.iter().filter_map(|dir| dir.opened.as_ref().ok());
    let mut epochs =
        working.map(|dir| dir.clean_shutdown().map_or(BrokerEpoch::NONE, |left| left.broker_epoch));
    let first = epochs.next().unwrap_or(BrokerEpoch::NONE);
    if epochs.all(|epoch| epoch == first) { first } else { BrokerEpoch::NONE }
}

/// A log directory and whether it still works.
#[derive(Debug)]
pub(super) struct DirState<D: Disk> {
    pub(super) path: PathBuf,
    /// Zero when the directory could never be opened.
    pub(super) id: Uuid,
    /// The directory; `None` when it could not be opened. Kept, and locked, after it failed.
    pub(super) dir: Option<LogDir<D>>,
    pub(super) offline: bool,
}

impl<D: Disk> DirState<D> {
    /// The directory, if it works.
    pub(super) fn online(&self) -> Option<&LogDir<D>> {
        self.dir.as_ref().filter(|_| !self.offline)
    }
}

/// A log directory, to be told to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirDescription {
    /// Its path.
    pub path: String,
    /// Whether it failed.
    pub is_offline: bool,
    /// The room on its volume, where that is known.
    pub space: Option<storage::DiskSpace>,
}

impl<D: Disk> ReplicaManager<D> {
    /// The disk failed under `partition`: its whole log directory goes offline (C08).
    pub(super) fn on_storage_failure(&self, partition: &Partition<D>, error: &LogError) {
        let name = &partition.id().topic_partition;
        self.on_dir_failure(partition.dir(), &format!("{name}: {error}"));
    }

    /// Records in `folder` could not be read while they were sent to a client: the log directory around it
    /// failed, as it would have by any other read (F08).
    pub fn on_unreadable_folder(&self, folder: &Path, error: &io::Error) {
        let dir = self.dirs.lock().iter().position(|state| folder.starts_with(&state.path));
        if let Some(dir) = dir {
            self.on_dir_failure(dir, &format!("{}: {error}", folder.display()));
        }
    }

    /// Every partition of the directory is answered with 56 from now on, and not fetched any more.
    pub(super) fn on_dir_failure(&self, dir: usize, what: &str) {
        {
            let mut dirs = self.dirs.lock();
            let Some(state) = dirs.get_mut(dir).filter(|state| !state.offline) else {
                return;
            };
            state.offline = true;
            let path = state.path.display();
            tracing::error!(dir = %path, "log directory failed; its replicas go offline: {what}");
        }
        let mut lost: Vec<Arc<Partition<D>>> = Vec::new();
        {
            let mut partitions = self.partitions.write();
            for slot in partitions.values_mut() {
                let Slot::Online(partition) = slot else {
                    continue;
                };
                if partition.dir() == dir {
                    lost.push(partition.clone());
                    *slot = Slot::Offline(partition.id().topic_id);
                }
            }
        }
        let stop: Vec<TopicIdPartition> =
            lost.iter().map(|partition| partition.id().clone()).collect();
        self.host.fetchers.change(stop, Vec::new());
        for partition in lost {
            let effects = partition.lock().state.mark_offline();
            partition.mark_removed();
            let after =
                AfterLock { wake: effects.wake, events: effects.events, ..AfterLock::default() };
            self.after(&partition, after);
        }
        // The next tick has the lifecycle tell the controller.
        (self.host.wake_by)(self.now().monotonic);
    }

    /// The ids of the log directories that failed, for the controller.
    pub fn offline_dirs(&self) -> Vec<Uuid> {
        let dirs = self.dirs.lock();
        let offline = dirs.iter().filter(|state| state.offline && !state.id.is_zero());
        offline.map(|state| state.id).collect()
    }

    /// The ids of the log directories that work, in the order of `log.dirs`.
    pub fn online_dirs(&self) -> Vec<Uuid> {
        let dirs = self.dirs.lock();
        dirs.iter().filter(|state| !state.offline).map(|state| state.id).collect()
    }

    /// Whether no log directory is left that works: this broker can then be nobody's replica, and had
    /// better end, so that its partitions get other leaders (C08).
    pub fn have_all_dirs_failed(&self) -> bool {
        let dirs = self.dirs.lock();
        !dirs.is_empty() && dirs.iter().all(|state| state.offline)
    }

    /// Whether the log directory at `path` failed.
    pub fn has_dir_failed(&self, path: &Path) -> bool {
        self.dirs.lock().iter().any(|state| state.offline && state.path == path)
    }

    /// The id of the directory with index `dir`.
    pub(super) fn dir_id(&self, dir: usize) -> Uuid {
        self.dirs.lock().get(dir).map_or(Uuid::ZERO, |state| state.id)
    }

    /// The log directories, in the order of `log.dirs`.
    pub fn describe_dirs(&self) -> Vec<DirDescription> {
        let dirs = self.dirs.lock();
        dirs.iter()
            .map(|state| DirDescription {
                path: state.path.display().to_string(),
                is_offline: state.offline,
                space: self.disk.space(&state.path).ok().flatten(),
            })
            .collect()
    }
}
