//! What must hold after every step of every run, stated once: the invariants I1 to I15 that head the
//! list of replication rules, as far as replicas, the cluster image, clients and the trace show them,
//! and some of our own.
//!
//! | id | says | where |
//! |---|---|---|
//! | I1 | below two replicas' high watermarks the logs are the same | `partition.rs`, whole logs in `logs.rs` |
//! | I2 | the leader has everything that was ever committed | `partition.rs` |
//! | I3 | so has every running member of the ISR, and every eligible leader replica | `partition.rs` |
//! | I4 | the leader's maximal ISR contains the controller's, and the eligible if it is large enough | `partition.rs` |
//! | I5 | what is committed is the same on the whole ISR | `partition.rs` |
//! | I6 | what was read once is there for every later reader | `clients.rs` |
//! | I7 | nobody reads beyond the high watermark; start <= stable <= high watermark <= end | both |
//! | I8 | a leader's high watermark grows; nobody's passes its log's end; latest offsets grow | both |
//! | I9 | the epoch cache grows in both columns and has the leader's epoch | `partition.rs` |
//! | I10 | epochs never decrease; one leader per epoch | `cluster.rs` |
//! | I11 | no fenced or stopping broker is in an ISR; who is eligible is outside it, and nobody is when it is large enough | `cluster.rs` |
//! | I12 | a follower is fetched by one fetcher, a leader by none | `partition.rs` |
//! | I14 | sequences are contiguous in the committed log | `partition.rs` |
//! | I15 | clients see one history | `clients.rs` |
//! | I16 | no leader's high watermark moves under min.insync.replicas (H06) | `partition.rs` |
//! | I17 | a confirmed ISR commits at once what all of it has (H04) | here |
//! | G1 | a partition has one owner in a generation of a group | `groups.rs` |
//! | G2 | a member's epoch does not go back, nor its generation, once it had an assignment | `groups.rs` |
//! | G3 | a committed offset does not go back once it was acknowledged | `groups.rs` |
//! | G4 | nobody reads a partition that another one may still read | `groups.rs` |
//! | K1 | cleaning takes what a later committed record of the key replaces, or a tombstone whose time is up | `compaction.rs` |
//! | K2 | cleaning changes nothing from the high watermark on | `compaction.rs` |
//! | K3 | what cleaning leaves is what was there, at its offset | `compaction.rs` |
//! | K4 | the last committed record of every key is on the whole ISR | `compaction.rs` |
//!
//! A log that is compacted still has the committed log in the sense of I1, I2, I3 and I5 when it lacks only
//! what K1 lets go; replicas may differ in how much of that they have cleaned already.
//!
//! I13 is checked where the quorum's messages are: one committed metadata log ([`Checker::on_committed_metadata`]).
//!
//! The fault model decides which of them can hold: an unclean election gives up committed records by
//! intention, so with it I1 (below the watermark), I2, I3, I5, I6 and the lost part of I15 are not
//! claimed, nor that offsets acknowledged to a producer grow. Everything else always is.

mod clients;
mod cluster;
mod compaction;
mod groups;
mod logs;
mod partition;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, ProducerEpoch, ProducerId,
    TopicIdPartition,
};

use clients::ClientMemory;
pub use clients::{ReadCheck, SendOutcome, SendRecord};
use cluster::ClusterMemory;
pub use cluster::{BrokerFacts, ClusterFacts, PartitionFacts};
pub use groups::GroupEvent;
use groups::GroupMemory;
use partition::PartitionMemory;

/// What a run may do to the cluster; the invariants that can hold follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultModel {
    /// `unclean.leader.election.enable`, or an election of that kind by request.
    pub unclean_elections: bool,
    /// Crashes that lose what was not synced. Claimed is what one such crash at a time may do, while
    /// every partition has another ISR member, or eligible leader replica, that keeps everything.
    pub lossy_crashes: bool,
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its id.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

impl std::error::Error for Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// A batch as it lies in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchEntry {
    /// Offset of its first record.
    pub base: Offset,
    /// Offset after its last record.
    pub next: Offset,
    /// The leader epoch it was written in.
    pub epoch: LeaderEpoch,
    /// The checksum of everything but base offset and epoch.
    pub crc: u32,
    /// Who produced it; [`ProducerId::NONE`] for nobody in particular.
    pub producer: (ProducerId, ProducerEpoch),
    /// Its first sequence.
    pub base_sequence: i32,
    /// When its tombstones may go, in milliseconds since 1970, once a cleaning has said so.
    pub delete_horizon: Option<i64>,
    /// Its records.
    pub records: Vec<RecordEntry>,
}

/// A record as it lies in a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordEntry {
    /// Its offset.
    pub offset: Offset,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its key; none in a control batch.
    pub key: Option<Bytes>,
    /// Its value; none is a tombstone.
    pub value: Option<Bytes>,
}

impl RecordEntry {
    /// Its offset and value, empty for a tombstone.
    pub fn value(&self) -> (Offset, Bytes) {
        (self.offset, self.value.clone().unwrap_or_default())
    }
}

/// A replica's state at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFacts {
    /// Whether it believes that it leads.
    pub is_leader: bool,
    /// Whom it believes to lead.
    pub leader: NodeId,
    /// The leader epoch it is in.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch it is in.
    pub partition_epoch: PartitionEpoch,
    /// Its high watermark.
    pub high_watermark: Offset,
    /// Its last stable offset.
    pub last_stable: Offset,
    /// Its log's start.
    pub log_start: Offset,
    /// Its log's end.
    pub log_end: Offset,
    /// Where its own epoch began, if it leads.
    pub epoch_start: Option<Offset>,
    /// The ISR it has from the controller, if it leads.
    pub effective_isr: BTreeSet<NodeId>,
    /// All who may be in the controller's ISR, if it leads.
    pub maximal_isr: BTreeSet<NodeId>,
    /// Whether an AlterPartition is on its way, if it leads.
    pub alter_in_flight: bool,
    /// min.insync.replicas as far as the number of replicas lets it.
    pub min_isr: usize,
    /// The epoch cache.
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// Whom its fetchers pull it from.
    pub sources: Vec<NodeId>,
    /// Whether its log is compacted.
    pub compacts: bool,
    /// The epoch of the registration that its process has; [`BrokerEpoch::NONE`] before it has one.
    pub broker_epoch: BrokerEpoch,
}

/// What happened to a replica's log since it was last looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogChange {
    /// It was opened anew: forget what was known.
    pub reopened: bool,
    /// It was cut to here.
    pub cut_to: Option<Offset>,
    /// The cleaner was at it, or may have been before it was opened: `appended` is all of it.
    pub cleaned: bool,
    /// It got these at its end.
    pub appended: Vec<BatchEntry>,
    /// The latest that its node's wall clock has shown, in milliseconds since 1970.
    pub wall_clock_ms: i64,
}

/// The memory behind the invariants, over one run.
#[derive(Debug)]
pub struct Checker {
    model: FaultModel,
    partitions: BTreeMap<TopicIdPartition, PartitionMemory>,
    cluster: ClusterMemory,
    clients: ClientMemory,
    groups: BTreeMap<String, GroupMemory>,
    violations: Vec<Violation>,
}

impl Checker {
    /// Nothing seen yet.
    pub fn new(model: FaultModel) -> Self {
        Self {
            model,
            partitions: BTreeMap::new(),
            cluster: ClusterMemory::default(),
            clients: ClientMemory::default(),
            groups: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// What was found broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes a replica's state after a step (I1 to I5, I7 to I9, I12, I14).
    pub fn on_replica(
        &mut self,
        node: NodeId,
        partition: &TopicIdPartition,
        facts: ReplicaFacts,
        change: LogChange,
    ) {
        let memory = self.partitions.entry(partition.clone()).or_default();
        let mut found = Vec::new();
        memory.on_replica(node, facts, change, self.model, &mut found);
        let controller = self.cluster.partition(partition);
        let brokers = self.cluster.brokers();
        memory.check(self.model, controller, brokers, &mut found);
        self.add(&partition.topic_partition.to_string(), found);
    }

    /// Takes what a member of a group learned or did (G1 to G4).
    pub fn on_group(&mut self, group: &str, event: GroupEvent) {
        let mut found = Vec::new();
        self.groups.entry(group.to_owned()).or_default().on_event(event, &mut found);
        self.add(group, found);
    }

    /// The newest offset of a partition whose commit the group's members know to be acknowledged.
    pub fn committed(&self, group: &str, partition: i32) -> i64 {
        self.groups.get(group).map_or(-1, |memory| memory.committed(partition))
    }

    /// A replica is gone with its process; its log may be back later.
    pub fn on_replica_down(&mut self, node: NodeId, partition: &TopicIdPartition) {
        if let Some(memory) = self.partitions.get_mut(partition) {
            memory.on_down(node);
        }
    }

    /// Takes the cluster as the controllers have committed it (I10, I11), and looks again at the
    /// partitions that changed.
    pub fn on_cluster(&mut self, facts: ClusterFacts) {
        let mut found = Vec::new();
        let changed = self.cluster.on_cluster(facts, &mut found);
        self.add("cluster", found);
        for partition in changed {
            let Some(memory) = self.partitions.get_mut(&partition) else {
                continue;
            };
            let mut found = Vec::new();
            memory.check(
                self.model,
                self.cluster.partition(&partition),
                self.cluster.brokers(),
                &mut found,
            );
            self.add(&partition.topic_partition.to_string(), found);
        }
    }

    /// A controller applied this batch of metadata (I13: one committed log). `content` is a hash.
    pub fn on_committed_metadata(&mut self, node: NodeId, offset: Offset, content: u64) {
        let mut found = Vec::new();
        self.cluster.on_committed_metadata(node, offset, content, &mut found);
        self.add("metadata", found);
    }

    /// An acks=all write was acknowledged at `base` (I2).
    pub fn on_acked(&mut self, partition: &TopicIdPartition, base: Offset, values: &[Bytes]) {
        let memory = self.partitions.entry(partition.clone()).or_default();
        let mut found = Vec::new();
        memory.on_acked(self.model, base, values, &mut found);
        self.add(&partition.topic_partition.to_string(), found);
    }

    /// A consumer got records in one answer that told it `high_watermark` (I6, I7, I15).
    pub fn on_read(&mut self, partition: &TopicIdPartition, read: &ReadCheck<'_>) {
        let mut found = Vec::new();
        clients::check_visibility(read, &mut found);
        if !self.model.unclean_elections {
            let memory = self.partitions.entry(partition.clone()).or_default();
            memory.on_read(read, &mut found);
        }
        self.clients.on_read(partition, read, &mut found);
        self.add(&partition.topic_partition.to_string(), found);
    }

    /// A client got the latest offset from a leader of that epoch (I8, KIP-207).
    pub fn on_latest_offset(
        &mut self,
        client: u32,
        partition: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: Offset,
    ) {
        let mut found = Vec::new();
        if !self.model.unclean_elections {
            self.clients.on_latest_offset(client, partition, epoch, offset, &mut found);
        }
        self.add(&partition.topic_partition.to_string(), found);
    }

    /// A consumer whose offset came from reading was told that it is out of range: in a log from which
    /// nothing is deleted that is a lost record (I6, H02).
    pub fn on_out_of_range(&mut self, partition: &TopicIdPartition, offset: Offset) {
        if !self.model.unclean_elections {
            let what = format!("a reader at {offset} was told that this is out of range");
            let found = vec![Violation { invariant: "I6", what }];
            self.add(&partition.topic_partition.to_string(), found);
        }
    }

    /// A leader learned that its ISR is confirmed, which lets it commit this much (I17).
    pub fn on_isr_confirmed(
        &mut self,
        node: NodeId,
        partition: &TopicIdPartition,
        high_watermark: Offset,
        attainable: Offset,
    ) {
        if high_watermark < attainable {
            let what = format!(
                "the ISR of leader {node} is confirmed and has everything below {attainable}, but its \
                 high watermark is {high_watermark}"
            );
            let found = vec![Violation { invariant: "I17", what }];
            self.add(&partition.topic_partition.to_string(), found);
        }
    }

    /// A write of a producer came to its end (I15).
    pub fn on_send(&mut self, send: SendRecord) {
        let mut found = Vec::new();
        self.clients.on_send(self.model, send, &mut found);
        self.add("client", found);
    }

    /// Compares all known logs of running replicas whole, each with each (I1), and looks for the last
    /// record of every key (K4).
    pub fn check_logs(&mut self) {
        let mut found = Vec::new();
        for (partition, memory) in &self.partitions {
            let mut here = Vec::new();
            logs::check_pairs(memory, &mut here);
            if let Some(controller) = self.cluster.partition(partition)
                && !self.model.unclean_elections
            {
                memory.check_last_of_keys(controller, self.cluster.brokers(), &mut here);
            }
            found.push((partition.topic_partition.to_string(), here));
        }
        for (place, found) in found {
            self.add(&place, found);
        }
    }

    /// The end of a run in which everything was healed and the partition read to its end: every
    /// acknowledged write is there, once, unless a compacted log has a later one of its key, and nothing
    /// that certainly failed (I15).
    pub fn check_final_reading(
        &mut self,
        partition: &TopicIdPartition,
        records: &[(Offset, Bytes)],
    ) {
        let mut found = Vec::new();
        let replaced = |offset: Offset| {
            self.partitions.get(partition).is_some_and(|memory| memory.is_replaced(offset))
        };
        self.clients.check_final(self.model, partition, records, &replaced, &mut found);
        self.add(&partition.topic_partition.to_string(), found);
    }

    /// How far anybody ever committed a partition.
    pub fn true_high_watermark(&self, partition: &TopicIdPartition) -> Offset {
        self.partitions.get(partition).map_or(Offset::ZERO, PartitionMemory::true_high_watermark)
    }

    /// The batches of a replica as last seen.
    pub fn batches(&self, node: NodeId, partition: &TopicIdPartition) -> &[BatchEntry] {
        self.partitions.get(partition).map_or(&[], |memory| memory.batches(node))
    }

    fn add(&mut self, place: &str, found: Vec<Violation>) {
        for violation in found {
            let what = format!("{place}: {}", violation.what);
            let violation = Violation { what, ..violation };
            // One line per breakage is enough, however long it lasts.
            if !self.violations.contains(&violation) {
                self.violations.push(violation);
            }
        }
    }
}
