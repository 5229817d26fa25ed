//! The replica manager: all partitions of this broker, what waits for them, and the fetch sessions.
//!
//! The order of locks: a session, then a partition, then a purgatory's shard. The table of partitions is
//! locked only to look up or change entries. Replies, the controller and the trace are called with no
//! lock held.
//!
//! | file | what it does |
//! |---|---|
//! | `partition.rs` | state and log under one lock; carrying out effects |
//! | `append.rs` | produce (H06, H07, P04, X01) and its waiting |
//! | `fetch.rs` | fetch for consumers and followers (F01 to F06, T05, T08) |
//! | `parked.rs` | fetches and produces that wait, and how they end (F04) |
//! | `quiet.rs` | consumers that poll in vain again and again |
//! | `follower.rs` | what the fetchers do to a replica (T03 to T11) |
//! | `metadata.rs` | committed metadata: roles, new and deleted partitions (I01), configs |
//! | `isr.rs` | the ISR's timer, AlterPartition and its answers (H03, H04, H13) |
//! | `coordinated.rs` | a coordinator's reads and appends of its partition |
//! | `outbox.rs` | what waits to be told to the controller, one request at a time |
//! | `offsets.rs` | ListOffsets, OffsetForLeaderEpoch (F07, H02, E02) |
//! | `delete_records.rs` | DeleteRecords (I02) |
//! | `upkeep.rs` | checkpoints, flushes, retention, clean shutdown (H12) |
//! | `cleaning.rs` | when and how much the log cleaner works |
//! | `startup.rs` | opening the log directories |
//! | `dirs.rs` | the log directories, and what the failure of one does (C08) |
//! | `placing.rs` | whether a log may be made while a directory is out of use (C08) |
//! | `assignments.rs` | telling the controller which directory holds a replica (KIP-858) |

mod append;
mod assignments;
mod cleaning;
mod coordinated;
mod delete_records;
mod dirs;
mod fetch;
mod follower;
mod isr;
mod metadata;
mod offsets;
mod outbox;
mod parked;
mod partition;
mod placing;
mod quiet;
mod startup;
mod upkeep;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use protocol::{ErrorCode, NodeId, TopicId, TopicPartition, Uuid};
use replication::fetch_session::FetchSessionCache;
use replication::isr::IsrProposal;
use replication::partition::Wake;
use replication::purgatory::{Completed, DelayedOperation, Purgatory, Watch, WatchHandle};
use replication::time::{Instant, Now};
use storage::Disk;

use crate::core::counts::ReplicaCounts;
use crate::core::directory::Directory;
use crate::core::host::Host;
use crate::core::settings::StaticConfigs;

pub use append::{ProduceEntry, ProduceOutcome, ProduceReply};
pub use coordinated::{ProgressWatcher, Unsettled};
pub use delete_records::{DeleteRecordsOutcome, DeleteRecordsReply};
pub use dirs::{DirDescription, DirToLoad, open_dirs, previous_broker_epoch};
pub use fetch::{FetchParams, FetchReply, FetchResult};
pub use offsets::{EpochEndAnswer, OffsetAnswer, OffsetQuery, special};
pub use parked::Parked;
pub use partition::{AfterLock, Partition, Replica};
pub use startup::{OpenReplicas, StartupError};

use dirs::DirState;
use outbox::Outbox;
use parked::{DelayedDeleteRecords, DelayedFetch, DelayedProduce};

/// What of the broker's configuration the replica manager obeys.
#[derive(Clone, Debug)]
pub struct ReplicaManagerConfig {
    /// This broker.
    pub node: NodeId,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max: Duration,
    /// `fetch.max.bytes`: the most bytes in one answer.
    pub fetch_max_bytes: i32,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_interval: Duration,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub log_start_checkpoint_interval: Duration,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval: Duration,
    /// `replica.selector.class` is the rack-aware one (KIP-392).
    pub rack_aware_selector: bool,
    /// The node's own configs, below dynamic ones.
    pub static_configs: Arc<StaticConfigs>,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_session_slots: usize,
    /// Seeds session ids and folder names of deleted partitions.
    pub seed: u64,
}

/// A partition in the table.
#[derive(Debug)]
enum Slot<D: Disk> {
    Online(Arc<Partition<D>>),
    /// Its log directory failed, or did not work when this broker started (C08): everything about it is
    /// answered with 56.
    Offline(TopicId),
}

/// See [`ProgressWatcher`].
struct Watcher(ProgressWatcher);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watcher")
    }
}

/// All partitions of this broker.
#[derive(Debug)]
pub struct ReplicaManager<D: Disk> {
    disk: D,
    config: ReplicaManagerConfig,
    host: Host,
    dirs: Mutex<Vec<DirState<D>>>,
    partitions: RwLock<BTreeMap<TopicPartition, Slot<D>>>,
    directory: RwLock<Arc<Directory>>,
    produces: Purgatory<DelayedProduce<D>>,
    fetches: Purgatory<DelayedFetch<D>>,
    deletions: Purgatory<DelayedDeleteRecords<D>>,
    sessions: FetchSessionCache,
    /// Who is told of progress in which topic.
    progress: OnceLock<(Arc<str>, Watcher)>,
    /// ISR changes to be proposed.
    alter_partition: Mutex<Outbox<IsrProposal>>,
    /// The directories that replicas lie in, to be told.
    assignments: Mutex<Outbox<Uuid>>,
    /// Logs found at the start beside another of the same name and another topic id (I01).
    contested: Mutex<Vec<Arc<Partition<D>>>>,
    upkeep: Mutex<upkeep::Schedule>,
    cleaner: Mutex<cleaning::Cleaner<D>>,
    counts: ReplicaCounts,
}

/// A purgatory at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgatoryNumbers {
    /// Requests that wait.
    pub delayed: usize,
    /// Places under keys, leftovers included.
    pub watched: usize,
    /// Requests that waited.
    pub completed: Completed,
}

impl PurgatoryNumbers {
    fn of<O: DelayedOperation>(purgatory: &Purgatory<O>) -> Self {
        Self {
            delayed: purgatory.delayed(),
            watched: purgatory.watched(),
            completed: purgatory.completed(),
        }
    }
}

/// Why a partition cannot be used, told by the table alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// No such topic or partition in the metadata, by name (3).
    UnknownName,
    /// No topic of that id (100).
    UnknownId,
    /// The id is that of another topic of the same name (103).
    OtherId,
    /// The partition exists and this broker is no replica (6).
    NotReplica,
    /// Its log directory failed (56).
    Offline,
}

impl Missing {
    /// Kafka's error code.
    pub fn code(self) -> ErrorCode {
        match self {
            Missing::UnknownName => ErrorCode::UnknownTopicOrPartition,
            Missing::UnknownId => ErrorCode::UnknownTopicId,
            Missing::OtherId => ErrorCode::InconsistentTopicId,
            Missing::NotReplica => ErrorCode::NotLeaderOrFollower,
            Missing::Offline => ErrorCode::KafkaStorageError,
        }
    }

    /// The metadata has no such partition.
    fn is_unknown(self) -> bool {
        matches!(self, Missing::UnknownName | Missing::UnknownId)
    }
}

impl<D: Disk> ReplicaManager<D> {
    /// This broker.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// What this broker's random values are made from.
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// The metadata in force.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.read().clone()
    }

    /// The fetch sessions.
    pub fn sessions(&self) -> &FetchSessionCache {
        &self.sessions
    }

    /// The partition, by name and, when the id is not zero, of that id.
    pub fn partition(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
    ) -> Result<Arc<Partition<D>>, Missing> {
        {
            let partitions = self.partitions.read();
            match partitions.get(partition) {
                Some(Slot::Online(found)) => {
                    if topic_id.is_zero() || found.id().topic_id == topic_id {
                        return Ok(found.clone());
                    }
                    return Err(Missing::OtherId);
                }
                Some(Slot::Offline(_)) => return Err(Missing::Offline),
                None => {}
            }
        }
        let directory = self.directory();
        let Some(topic) = directory.image.topic_by_name(&partition.topic) else {
            return Err(if topic_id.is_zero() { Missing::UnknownName } else { Missing::UnknownId });
        };
        if !topic_id.is_zero() && topic.id != topic_id {
            return Err(Missing::OtherId);
        }
        if topic.partitions.contains_key(&partition.partition) {
            Err(Missing::NotReplica)
        } else {
            Err(Missing::UnknownName)
        }
    }

    /// All partitions that work, by name.
    pub fn online_partitions(&self) -> Vec<Arc<Partition<D>>> {
        let partitions = self.partitions.read();
        partitions
            .values()
            .filter_map(|slot| match slot {
                Slot::Online(partition) => Some(partition.clone()),
                Slot::Offline(_) => None,
            })
            .collect()
    }

    /// Partitions whose log directory failed.
    pub fn offline_count(&self) -> usize {
        let partitions = self.partitions.read();
        partitions.values().filter(|slot| matches!(slot, Slot::Offline(_))).count()
    }

    /// What waits, and what waited: the name Kafka has for each purgatory, and its numbers.
    pub fn purgatories(&self) -> [(&'static str, PurgatoryNumbers); 3] {
        [
            ("Produce", PurgatoryNumbers::of(&self.produces)),
            ("Fetch", PurgatoryNumbers::of(&self.fetches)),
            ("DeleteRecords", PurgatoryNumbers::of(&self.deletions)),
        ]
    }

    /// What was counted so far.
    pub fn counts(&self) -> &ReplicaCounts {
        &self.counts
    }

    fn now(&self) -> Now {
        self.host.clock.now()
    }

    /// Works off what a partition's lock had to be released for: trace, AlterPartition, waking.
    fn after(&self, partition: &Partition<D>, after: AfterLock) {
        if after.is_empty() {
            return;
        }
        if !after.events.is_empty() {
            let now = self.now();
            for event in after.events {
                self.host.trace.emit(now, self.config.node, event);
            }
        }
        if let Some(proposal) = after.propose {
            self.enqueue_proposal(partition.id().clone(), proposal, false);
        }
        if let Some(proposal) = after.propose_again {
            self.enqueue_proposal(partition.id().clone(), proposal, true);
        }
        self.wake(&partition.id().topic_partition, after.wake);
    }

    fn wake(&self, partition: &TopicPartition, wake: Wake) {
        if wake.produce {
            for produce in self.produces.check(partition) {
                self.complete_produce(produce);
            }
            self.tell_progress(partition);
        }
        if wake.fetch {
            for fetch in self.fetches.check(partition) {
                self.complete_fetch(fetch);
            }
        }
        if wake.delete_records {
            for deletion in self.deletions.check(partition) {
                self.complete_delete_records(deletion);
            }
        }
    }

    /// Answers everything whose time is up; gives the next instant at which something may be.
    pub fn expire(&self, now: Now) -> Option<Instant> {
        for produce in self.produces.expire(now.monotonic) {
            self.complete_produce(produce);
        }
        for expired in self.fetches.expire_standing(now.monotonic) {
            self.complete_in_vain(expired);
        }
        for deletion in self.deletions.expire(now.monotonic) {
            self.complete_delete_records(deletion);
        }
        let deadlines = [
            self.produces.next_deadline(),
            self.fetches.next_deadline(),
            self.deletions.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Parks an operation, tells the host of its deadline, and gives a handle to take it back with.
    fn park<O>(
        &self,
        purgatory: &Purgatory<O>,
        operation: O,
        keys: &[TopicPartition],
        deadline: Instant,
    ) -> Result<WatchHandle<O>, O>
    where
        O: DelayedOperation<Key = TopicPartition>,
    {
        self.parked(purgatory.watch_checked(operation, keys, deadline), deadline)
    }

    fn parked<O>(&self, watched: Watch<O>, deadline: Instant) -> Result<WatchHandle<O>, O> {
        match watched {
            Watch::Satisfied(operation) => Err(operation),
            Watch::Parked(handle) => {
                (self.host.wake_by)(deadline);
                Ok(handle)
            }
        }
    }

    /// The node's own configs, below dynamic ones.
    pub fn static_configs(&self) -> &StaticConfigs {
        &self.config.static_configs
    }
}
