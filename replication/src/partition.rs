//! One partition on one node: its role, its epochs, its ISR and its high watermark.
//!
//! The state owns no bytes. The log's facts ([`LogFacts`]) and its epoch cache come as arguments, and
//! what must be done comes back as [`Effects`]; the host keeps one lock around state and log, so that
//! the facts are those of the moment. Role changes obey I10: leader and partition epochs never
//! decrease, and a record that would make them is ignored. See the head of the crate for the order in
//! which effects are carried out.
//!
//! `leader.rs` has what a leader decides, `isr_change.rs` the ISR's changes, `follower.rs` what a
//! follower decides, `admission.rs` who may ask what.

mod admission;
mod effects;
mod follower;
mod isr_change;
mod leader;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition};

pub use admission::{AckStatus, FetchIsolation, FetchReader};
pub use effects::{Effects, HighWatermarkMove, Wake};

use crate::high_watermark::{effective_min_isr, from_checkpoint};
use crate::isr::{IsrState, LeaderRecoveryState};
use crate::log_offset::LogOffsetMetadata;
use crate::replica_state::ReplicaState;
use crate::time::Instant;
use crate::trace::{Event, Why};

/// What the rules need to know of the partition's log, read under the same lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFacts {
    /// Offset of the first record that may be read.
    pub log_start: Offset,
    /// The log's end, exclusive, with its place.
    pub log_end: LogOffsetMetadata,
    /// Where the oldest undecided transaction starts.
    pub first_unstable: Option<LogOffsetMetadata>,
}

/// What the metadata says of a registered broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokerStatus {
    /// The epoch of its registration.
    pub epoch: BrokerEpoch,
    /// Whether it is fenced.
    pub fenced: bool,
    /// Whether it is in controlled shutdown.
    pub in_controlled_shutdown: bool,
}

/// The brokers as this node's metadata has them at the moment.
pub trait BrokerDirectory {
    /// A broker's status; `None` when it is not registered.
    fn broker(&self, id: NodeId) -> Option<BrokerStatus>;
    /// The epoch of this node's own registration.
    fn local_epoch(&self) -> BrokerEpoch;
}

/// Configuration that the rules obey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionSettings {
    /// `min.insync.replicas` of the topic.
    pub min_insync_replicas: usize,
    /// `replica.lag.time.max.ms` of the broker.
    pub replica_lag_time_max: Duration,
}

impl Default for PartitionSettings {
    /// Kafka's defaults: 1 and 30 s.
    fn default() -> Self {
        Self { min_insync_replicas: 1, replica_lag_time_max: Duration::from_secs(30) }
    }
}

/// A partition as the controller's records describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRegistration {
    /// The leader; [`NodeId::NONE`] when there is none.
    pub leader: NodeId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition's epoch.
    pub partition_epoch: PartitionEpoch,
    /// All replicas, those being added or removed included.
    pub replicas: Vec<NodeId>,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Vec<NodeId>,
    /// The in-sync replicas.
    pub isr: Vec<NodeId>,
    /// Whether the leader was elected uncleanly and has not recovered.
    pub leader_recovery_state: LeaderRecoveryState,
}

/// What a record about the partition did to this node's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoleChange {
    /// The record is older than what this node has: ignored.
    Stale,
    /// This node leads.
    Leader {
        /// It did not lead before: fetching must stop.
        newly: bool,
        /// The leader epoch grew: its start must be in the epoch cache before any answer.
        new_epoch: bool,
    },
    /// This node follows.
    Follower {
        /// Fetching must be stopped and started anew under the new epoch, even when the leader is the
        /// same node (T07). Without a leader it must only be stopped.
        restart_fetcher: bool,
    },
    /// This node is no replica any more; the host stops fetching and removes the log.
    NotReplica,
    /// The log directory is offline: epochs are noted, nothing else happens.
    Offline,
}

#[derive(Clone, Debug)]
enum Role {
    Leader(LeaderState),
    Follower,
    Offline,
}

#[derive(Clone, Debug)]
struct LeaderState {
    /// The log's end when this epoch began (H05, H02).
    epoch_start: Offset,
    /// The epoch since which this node has led without a break.
    leading_since: LeaderEpoch,
    isr: IsrState,
    followers: BTreeMap<NodeId, ReplicaState>,
}

/// One partition on one node.
#[derive(Clone, Debug)]
pub struct PartitionState {
    node: NodeId,
    topic_partition: TopicPartition,
    settings: PartitionSettings,
    role: Role,
    leader: NodeId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    replicas: Vec<NodeId>,
    adding_replicas: Vec<NodeId>,
    high_watermark: LogOffsetMetadata,
}

impl PartitionState {
    /// A partition whose log was just opened, before any record about it: a follower of nobody. The
    /// high watermark starts at `checkpoint`, or 0 without one, brought into the log (H12).
    pub fn new(
        node: NodeId,
        topic_partition: TopicPartition,
        settings: PartitionSettings,
        log: &LogFacts,
        checkpoint: Option<Offset>,
    ) -> Self {
        let high_watermark = from_checkpoint(checkpoint, log.log_start, log.log_end.offset);
        Self {
            node,
            topic_partition,
            settings,
            role: Role::Follower,
            leader: NodeId::NONE,
            leader_epoch: LeaderEpoch::NONE,
            partition_epoch: PartitionEpoch(-1),
            replicas: Vec::new(),
            adding_replicas: Vec::new(),
            high_watermark: LogOffsetMetadata::message_only(high_watermark),
        }
    }

    /// Takes over a record about the partition, or ignores an older one (I10). The effects of a new
    /// leader start with its epoch's entry; those of a follower wake whatever waits.
    pub fn on_metadata_change(
        &mut self,
        registration: &PartitionRegistration,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> (RoleChange, Effects) {
        if registration.partition_epoch < self.partition_epoch
            || registration.leader_epoch < self.leader_epoch
        {
            return (RoleChange::Stale, Effects::default());
        }
        if matches!(self.role, Role::Offline) {
            self.note(registration);
            return (RoleChange::Offline, Effects::default());
        }
        if !registration.replicas.contains(&self.node) {
            let (_, effects) = self.become_follower(registration);
            return (RoleChange::NotReplica, effects);
        }
        if registration.leader == self.node {
            self.become_leader(registration, log, brokers, now)
        } else {
            self.become_follower(registration)
        }
    }

    /// The log directory failed (C08): every request is refused with 56 from now on.
    pub fn mark_offline(&mut self) -> Effects {
        self.role = Role::Offline;
        Effects {
            wake: Wake::ALL,
            events: vec![Event::ReplicaOffline {
                partition: self.topic_partition.clone(),
                leader_epoch: self.leader_epoch,
                why: Why::LogDirectoryFailed,
            }],
            ..Effects::default()
        }
    }

    /// Takes over changed configuration. The caller then evaluates the high watermark anew.
    pub fn set_settings(&mut self, settings: PartitionSettings) {
        self.settings = settings;
    }

    fn note(&mut self, registration: &PartitionRegistration) {
        self.leader = registration.leader;
        self.leader_epoch = registration.leader_epoch;
        self.partition_epoch = registration.partition_epoch;
        self.replicas.clone_from(&registration.replicas);
        self.adding_replicas.clone_from(&registration.adding_replicas);
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The partition.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// The configuration in force.
    pub fn settings(&self) -> PartitionSettings {
        self.settings
    }

    /// Whether this node leads.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Whether the log directory has failed.
    pub fn is_offline(&self) -> bool {
        matches!(self.role, Role::Offline)
    }

    /// The leader; [`NodeId::NONE`] when there is none.
    pub fn leader(&self) -> NodeId {
        self.leader
    }

    /// The leader epoch; [`LeaderEpoch::NONE`] before the first record.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The partition epoch; -1 before the first record.
    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// All replicas.
    pub fn replicas(&self) -> &[NodeId] {
        &self.replicas
    }

    /// The high watermark: all below it is committed as far as this node knows.
    pub fn high_watermark(&self) -> LogOffsetMetadata {
        self.high_watermark
    }

    /// Replaces a message-only high watermark by the same offset with its place, which only the log
    /// can find. Ignored when the watermark has moved on meanwhile.
    pub fn place_high_watermark(&mut self, place: LogOffsetMetadata) {
        if place.offset == self.high_watermark.offset && self.high_watermark.is_message_only() {
            self.high_watermark = place;
        }
    }

    /// Where this leader's epoch started; `None` on a follower.
    pub fn leader_epoch_start(&self) -> Option<Offset> {
        self.leader_state().map(|leader| leader.epoch_start)
    }

    /// The ISR with its pending change; `None` on a follower.
    pub fn isr(&self) -> Option<&IsrState> {
        self.leader_state().map(|leader| &leader.isr)
    }

    /// What the leader knows of `replica`; `None` on a follower or for a stranger.
    pub fn follower(&self, replica: NodeId) -> Option<&ReplicaState> {
        self.leader_state().and_then(|leader| leader.followers.get(&replica))
    }

    /// What the leader knows of every follower, by id; empty on a follower.
    pub fn followers(&self) -> impl Iterator<Item = (NodeId, &ReplicaState)> {
        self.leader_state()
            .into_iter()
            .flat_map(|leader| leader.followers.iter().map(|(id, state)| (*id, state)))
    }

    /// min.insync.replicas, but never more than there are replicas (H06).
    pub fn effective_min_isr(&self) -> usize {
        effective_min_isr(self.settings.min_insync_replicas, self.replicas.len())
    }

    /// Whether the confirmed ISR is under the effective min.insync.replicas; false on a follower.
    pub fn is_under_min_isr(&self) -> bool {
        self.isr().is_some_and(|isr| isr.effective().len() < self.effective_min_isr())
    }

    /// Whether the confirmed ISR is exactly the effective min.insync.replicas; false on a follower.
    pub fn is_at_min_isr(&self) -> bool {
        self.isr().is_some_and(|isr| isr.effective().len() == self.effective_min_isr())
    }

    /// Whether the ISR lacks replicas; those being added do not count (C07). False on a follower.
    pub fn is_under_replicated(&self) -> bool {
        let wanted = self.replicas.iter().filter(|id| !self.adding_replicas.contains(id)).count();
        self.isr().is_some_and(|isr| isr.effective().len() < wanted)
    }

    fn leader_state(&self) -> Option<&LeaderState> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower | Role::Offline => None,
        }
    }
}
