//! The group coordinator's host inside the broker: the shards of the partitions of `__consumer_offsets`
//! that this broker leads, loaded when it becomes their leader and given up when it is not.
//!
//! `hosted.rs` is one partition and its shard, `topics.rs` the metadata as shards see it. What groups do
//! is decided in the crate `coordinator`; this only feeds it: requests, committed metadata, time, and the
//! outcome of appends. The lock of a shard comes before that of its partition, and nothing is called out
//! to with a shard's lock held.

mod hosted;
mod topics;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use controller::ImageDelta;
use coordinator::{Caller, Shard, ShardConfig, refuse_request};
use parking_lot::{Mutex, RwLock};
use protocol::records::Codec;
use protocol::{ErrorCode, LeaderEpoch, RequestBody, ResponseBody, TopicId, TopicPartition};
use replication::time::Instant;
use storage::Disk;

use crate::core::host::Host;
use crate::core::internal_topics::{GROUP_TOPIC, partition_of};
use crate::core::replicas::{Partition, ReplicaManager};
use hosted::{Afterwards, Hosted, Surroundings};
use topics::TopicsView;

/// What of the broker's configuration the host of the coordinator obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// What the coordinator itself obeys.
    pub shard: ShardConfig,
    /// `offsets.commit.timeout.ms`: how long an answer waits for its records to be committed.
    pub commit_timeout: Duration,
    /// `offsets.load.buffer.size`: how much of a partition is read at once when it is loaded.
    pub load_bytes: usize,
    /// `offsets.topic.compression.codec`.
    pub compression: Codec,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            shard: ShardConfig::default(),
            commit_timeout: Duration::from_secs(5),
            load_bytes: 5 * 1024 * 1024,
            compression: Codec::default(),
        }
    }
}

/// Takes the answer of the coordinator. Called once, from any thread.
pub type GroupReply = Box<dyn FnOnce(ResponseBody) + Send>;

/// What a coordinator has at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupCensus {
    /// Partitions that answer.
    pub active: u64,
    /// Partitions that are being loaded.
    pub loading: u64,
    /// Groups by type (`classic`, `consumer`) and state, as ListGroups names them.
    pub groups: BTreeMap<(&'static str, &'static str), u64>,
}

/// How the topics were when the shards were last told of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct TopicsSeen {
    partitions: usize,
    version: u64,
}

/// The group coordinator of this broker.
pub struct GroupCoordinator<D: Disk> {
    replicas: Arc<ReplicaManager<D>>,
    host: Host,
    config: GroupConfig,
    seed: u64,
    shards: RwLock<BTreeMap<i32, Arc<Hosted<D>>>>,
    seen: Mutex<TopicsSeen>,
}

impl<D: Disk> fmt::Debug for GroupCoordinator<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let led: Vec<i32> = self.shards.read().keys().copied().collect();
        f.debug_struct("GroupCoordinator").field("partitions", &led).finish_non_exhaustive()
    }
}

impl<D: Disk> GroupCoordinator<D> {
    /// A coordinator of no partition. `seed` is what the ids of members are made from.
    pub fn new(
        replicas: Arc<ReplicaManager<D>>,
        host: Host,
        config: GroupConfig,
        seed: u64,
    ) -> Arc<Self> {
        let coordinator = Arc::new(Self {
            replicas,
            host,
            config,
            seed,
            shards: RwLock::default(),
            seen: Mutex::default(),
        });
        let weak = Arc::downgrade(&coordinator);
        let watcher = Box::new(move |partition: &TopicPartition| {
            if let Some(coordinator) = weak.upgrade() {
                coordinator.on_progress(partition.partition);
            }
        });
        coordinator.replicas.watch_progress(GROUP_TOPIC, watcher);
        coordinator
    }

    /// The partition of the topic that keeps a group; `None` while there is no topic.
    pub fn partition_of(&self, group: &str) -> Option<i32> {
        let directory = self.replicas.directory();
        let topic = directory.image.topic_by_name(GROUP_TOPIC)?;
        let count = i32::try_from(topic.partitions.len()).ok()?;
        partition_of(group, count)
    }

    /// The partitions whose shards this broker has.
    pub fn partitions(&self) -> Vec<i32> {
        self.shards.read().keys().copied().collect()
    }

    /// How many partitions are loaded, how many are not, and how many groups there are of each type and
    /// state.
    pub fn census(&self) -> GroupCensus {
        let mut census = GroupCensus::default();
        for hosted in self.all() {
            let Some(states) = hosted.group_states() else {
                census.loading += 1;
                continue;
            };
            census.active += 1;
            for state in states {
                *census.groups.entry(state).or_default() += 1;
            }
        }
        census
    }

    /// Takes a request about groups that all are kept in `partition` (or, for ListGroups, about all of
    /// the partition's groups).
    pub fn request(
        &self,
        partition: Option<i32>,
        caller: &Caller,
        version: i16,
        request: RequestBody,
        reply: GroupReply,
    ) {
        let hosted = partition.and_then(|index| self.shards.read().get(&index).cloned());
        let Some(hosted) = hosted else {
            if let Some(refusal) = refuse_request(version, &request, ErrorCode::NotCoordinator) {
                reply(refusal);
            }
            return;
        };
        self.with(&hosted, |around| hosted.on_request(caller, version, request, reply, around));
    }

    /// The replica manager has applied metadata: shards come and go with the leadership of their
    /// partitions.
    pub fn on_metadata(&self, delta: &ImageDelta) {
        let led = self.led();
        let mut lost = Vec::new();
        let mut bumped = Vec::new();
        {
            let mut shards = self.shards.write();
            shards.retain(|index, hosted| {
                let (kept, epoch) = match led.get(index) {
                    Some((partition, epoch)) => {
                        (Arc::ptr_eq(partition, hosted.partition()), *epoch)
                    }
                    None => (false, LeaderEpoch::NONE),
                };
                if kept {
                    bumped.push((hosted.clone(), epoch));
                } else {
                    lost.push(hosted.clone());
                }
                kept
            });
            for (index, (partition, epoch)) in led {
                shards.entry(index).or_insert_with(|| {
                    let shard = Shard::new(self.config.shard.clone(), self.seed_of(index, epoch));
                    Arc::new(Hosted::new(partition, epoch, shard))
                });
            }
        }
        for hosted in lost {
            let afterwards = hosted.on_lost();
            hosted.finish(&self.replicas, afterwards);
        }
        for (hosted, epoch) in bumped {
            self.with(&hosted, |around| hosted.on_new_epoch(epoch, around));
        }
        if self.have_topics_changed(delta) {
            for hosted in self.all() {
                self.with(&hosted, |around| hosted.on_topics_changed(around));
            }
        }
        if !self.shards.read().is_empty() {
            (self.host.wake_by)(self.host.clock.now().monotonic);
        }
    }

    /// Goes on loading, and does what is due; gives the instant by which to be called again.
    pub fn on_tick(&self) -> Option<Instant> {
        let topics = self.topics();
        let around = self.surroundings(&topics);
        let mut next = None;
        for hosted in self.all() {
            let afterwards = hosted.on_tick(&around);
            next = next.into_iter().chain(afterwards.next).min();
            hosted.finish(&self.replicas, afterwards);
        }
        next
    }

    fn on_progress(&self, partition: i32) {
        let hosted = self.shards.read().get(&partition).cloned();
        if let Some(hosted) = hosted {
            self.with(&hosted, |around| hosted.on_progress(around));
        }
    }

    /// Does `other` while the shard of a partition is busy.
    #[cfg(test)]
    pub(crate) fn while_busy(&self, partition: i32, other: impl FnOnce()) {
        self.shards.read()[&partition].clone().while_busy(other);
    }

    fn all(&self) -> Vec<Arc<Hosted<D>>> {
        self.shards.read().values().cloned().collect()
    }

    /// The partitions of the topic that this broker leads, and in which epoch.
    fn led(&self) -> BTreeMap<i32, (Arc<Partition<D>>, LeaderEpoch)> {
        let directory = self.replicas.directory();
        let Some(topic) = directory.image.topic_by_name(GROUP_TOPIC) else {
            return BTreeMap::new();
        };
        let mut led = BTreeMap::new();
        for (index, image) in &topic.partitions {
            if image.leader != self.replicas.node() {
                continue;
            }
            if let Some((partition, epoch)) = self.leadership(topic.id, *index) {
                led.insert(*index, (partition, epoch));
            }
        }
        led
    }

    fn leadership(&self, topic: TopicId, index: i32) -> Option<(Arc<Partition<D>>, LeaderEpoch)> {
        let name = TopicPartition::new(GROUP_TOPIC, index);
        let partition = self.replicas.partition(&name, topic).ok()?;
        let epoch = {
            let replica = partition.lock();
            replica.state.is_leader().then(|| replica.state.leader_epoch())?
        };
        Some((partition, epoch))
    }

    /// Whether topics or partitions came or went; the version grows then.
    fn have_topics_changed(&self, delta: &ImageDelta) -> bool {
        if delta.changed_partitions.is_empty() && delta.deleted_topics.is_empty() {
            return false;
        }
        let directory = self.replicas.directory();
        let partitions = directory.image.topics().map(|topic| topic.partitions.len()).sum();
        let mut seen = self.seen.lock();
        let changed = !delta.created_topics.is_empty()
            || !delta.deleted_topics.is_empty()
            || seen.partitions != partitions;
        if changed {
            *seen = TopicsSeen { partitions, version: seen.version + 1 };
        }
        changed
    }

    /// Gives a shard an input and then, with its lock free, does what is left to do.
    fn with(&self, hosted: &Hosted<D>, input: impl FnOnce(&Surroundings<'_, D>) -> Afterwards) {
        let topics = self.topics();
        let afterwards = input(&self.surroundings(&topics));
        if let Some(at) = afterwards.next {
            (self.host.wake_by)(at);
        }
        hosted.finish(&self.replicas, afterwards);
    }

    fn topics(&self) -> TopicsView {
        TopicsView { directory: self.replicas.directory(), version: self.seen.lock().version }
    }

    fn surroundings<'a>(&'a self, topics: &'a TopicsView) -> Surroundings<'a, D> {
        Surroundings {
            replicas: &self.replicas,
            config: &self.config,
            topics,
            now: self.host.clock.now(),
        }
    }

    /// Another one for each partition and epoch, with nothing in common: ids made by an earlier leader
    /// of the same seed live on in the log.
    fn seed_of(&self, index: i32, epoch: LeaderEpoch) -> u64 {
        let place = (u64::from(index.unsigned_abs()) << 32) | u64::from(epoch.get().unsigned_abs());
        mix(self.seed ^ mix(place))
    }
}

/// The finalizer of MurmurHash3: spreads every input bit over the whole word.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}
