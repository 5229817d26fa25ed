//! Looks at a node after every step and tells the invariants what changed: each replica's marks, and
//! what was appended to or cut from its log, read from the log itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use broker::core::replicas::{Partition, Replica};
use bytes::Bytes;
use controller::config::ConfigLayers;
use controller::records::{MetadataRecord, encode_batch};
use controller::{ClusterImage, ConfigResource};
use protocol::records::{Batches, ReadBuffer};
use protocol::{LeaderEpoch, NodeId, Offset, TopicIdPartition, TopicPartition};
use replication::partition::FetchIsolation;
use replication::time::Instant;
use replication::trace::{Event, TraceSink};

use super::disk::SimDisk;
use super::links::TraceEntry;
use super::world::Simulation;
use crate::invariants::{
    BatchEntry, BrokerFacts, ClusterFacts, LogChange, PartitionFacts, RecordEntry, ReplicaFacts,
};

const MAX_RECORDS_BYTES: usize = 1 << 20;

/// What is known of a replica that was looked at.
#[derive(Debug)]
struct Seen {
    life: u32,
    log_end: Offset,
    /// How often the cleaner had put a segment in.
    swaps: u64,
    facts: ReplicaFacts,
}

/// What was looked at so far.
#[derive(Debug, Default)]
pub(super) struct Observer {
    seen: BTreeMap<(NodeId, TopicIdPartition), Seen>,
    /// The latest that each node's wall clock has shown.
    clocks: BTreeMap<NodeId, i64>,
    /// Events before this place were read.
    events: usize,
    /// Segments that the cleaners put in.
    cleaned: u64,
}

impl Simulation {
    /// Looks at everything a node has.
    pub(super) fn observe(&mut self, id: NodeId) -> Result<()> {
        let events = self.trace.since(self.observer.events);
        self.observer.events += events.len();
        let Some(node) = self.nodes.get(&id) else {
            return Ok(());
        };
        let Some(process) = &node.running else {
            return Ok(());
        };
        let latest = self.observer.clocks.entry(id).or_insert(i64::MIN);
        *latest = node.clock.read().wall_clock_ms.max(*latest);
        let life = process.life;
        let broker_epoch = process.core.lifecycle.epoch();
        let fetchers = process.fetchers.clone();
        let partitions = process.core.replicas.online_partitions();
        let mut online = BTreeSet::new();
        for partition in partitions {
            let name = &partition.id().topic_partition;
            let cut_to = events
                .iter()
                .filter(|entry| entry.node == id)
                .filter_map(|entry| cut_of(&entry.event, name))
                .min();
            let sources = fetchers.sources(partition.id());
            self.observe_replica(id, life, &partition, cut_to, |facts| {
                facts.sources = sources;
                facts.broker_epoch = broker_epoch;
            })?;
            online.insert(partition.id().clone());
        }
        let gone: Vec<TopicIdPartition> = self
            .observer
            .seen
            .keys()
            .filter(|(node, partition)| *node == id && !online.contains(partition))
            .map(|(_, partition)| partition.clone())
            .collect();
        for partition in gone {
            self.observe_last_watermark(id, &partition, &events);
            self.checker.on_replica_down(id, &partition);
            self.observer.seen.remove(&(id, partition));
        }
        Ok(())
    }

    /// A leader may commit a record, answer its producer and lose its log directory in one step. There is
    /// no replica left to look at then, but its trace tells how far it came (I2).
    fn observe_last_watermark(
        &mut self,
        id: NodeId,
        partition: &TopicIdPartition,
        events: &[TraceEntry],
    ) {
        let Some(seen) = self.observer.seen.get(&(id, partition.clone())) else {
            return;
        };
        let own = events.iter().filter(|entry| entry.node == id);
        let told = own.filter_map(|entry| watermark_of(&entry.event, &partition.topic_partition));
        let high_watermark = told.max().unwrap_or(Offset::NONE).min(seen.log_end);
        if !seen.facts.is_leader || high_watermark <= seen.facts.high_watermark {
            return;
        }
        let facts = ReplicaFacts { high_watermark, ..seen.facts.clone() };
        let wall_clock_ms = self.observer.clocks.get(&id).copied().unwrap_or(i64::MAX);
        let change = LogChange { wall_clock_ms, ..LogChange::default() };
        self.checker.on_replica(id, partition, facts, change);
    }

    fn observe_replica(
        &mut self,
        id: NodeId,
        life: u32,
        partition: &Arc<Partition<SimDisk>>,
        cut_to: Option<Cut>,
        complete: impl FnOnce(&mut ReplicaFacts),
    ) -> Result<()> {
        let replica = partition.lock();
        let mut facts = facts_of(&replica);
        complete(&mut facts);
        let key = (id, partition.id().clone());
        let seen = self.observer.seen.get(&key);
        let was_confirmed = seen.is_some_and(|seen| {
            seen.life == life
                && seen.facts.alter_in_flight
                && seen.facts.leader_epoch == facts.leader_epoch
        }) && !facts.alter_in_flight;
        let attainable = was_confirmed.then(|| attainable(&replica, self.time.now())).flatten();
        let reopened = seen.is_none_or(|seen| seen.life != life);
        let swaps = replica.log.swaps();
        let cleaned = !reopened && seen.is_some_and(|seen| seen.swaps != swaps);
        let put_in = seen.filter(|_| cleaned).map_or(0, |seen| swaps - seen.swaps);
        let mut known_end = match seen {
            Some(seen) if !reopened && !cleaned => seen.log_end,
            _ => facts.log_start,
        };
        let cut_to = cut_to.filter(|_| !reopened);
        if let Some(cut) = cut_to {
            known_end = cut.resumes_at().min(known_end).max(facts.log_start);
        }
        if cut_to.is_none()
            && !cleaned
            && known_end == facts.log_end
            && seen.is_some_and(|seen| !reopened && seen.facts == facts)
        {
            return Ok(());
        }
        ensure!(
            known_end <= facts.log_end,
            "node {id}: the log of {} went from {known_end} to {} without an event",
            partition.id().topic_partition,
            facts.log_end
        );
        let appended = read_batches(&replica, known_end)
            .with_context(|| format!("node {id}: {}", partition.id().topic_partition))?;
        drop(replica);
        self.observer.cleaned += put_in;
        let change = LogChange {
            reopened,
            cut_to: cut_to.map(Cut::keeps_below),
            cleaned,
            appended,
            wall_clock_ms: self.observer.clocks.get(&id).copied().unwrap_or(i64::MAX),
        };
        let seen = Seen { life, log_end: facts.log_end, swaps, facts: facts.clone() };
        self.observer.seen.insert(key, seen);
        if let Some(attainable) = attainable {
            self.checker.on_isr_confirmed(id, partition.id(), facts.high_watermark, attainable);
        }
        self.checker.on_replica(id, partition.id(), facts, change);
        Ok(())
    }

    /// How many segments the cleaners of all nodes have put in the place of others.
    pub fn cleaned(&self) -> u64 {
        self.observer.cleaned
    }

    /// A node's replicas are gone with its process.
    pub(super) fn forget_replicas(&mut self, id: NodeId) {
        let gone: Vec<TopicIdPartition> = self
            .observer
            .seen
            .keys()
            .filter(|(node, _)| *node == id)
            .map(|(_, partition)| partition.clone())
            .collect();
        for partition in gone {
            self.checker.on_replica_down(id, &partition);
            self.observer.seen.remove(&(id, partition));
        }
    }

    /// A controller applied a committed batch of metadata, which means these events: told by the first that
    /// does.
    pub(super) fn on_committed(
        &mut self,
        id: NodeId,
        offset: Offset,
        epoch: LeaderEpoch,
        records: &[MetadataRecord],
        events: Vec<Event>,
    ) -> Result<()> {
        self.checker.on_committed_metadata(id, offset, hash(epoch, &encode_batch(records)));
        if offset <= self.cluster.offset() {
            return Ok(());
        }
        let mut delta = controller::ImageDelta::default();
        self.cluster.apply_batch(offset, epoch, records, &mut delta)?;
        let now = self.nodes[&id].clock.read();
        for event in events {
            self.trace.emit(now, id, event);
        }
        self.checker.on_cluster(cluster_facts(&self.cluster));
        Ok(())
    }

    /// Reads every log of every running node anew and compares it with what was seen of it step by
    /// step, then the logs with each other.
    ///
    /// # Errors
    /// When a log changed behind the trace's back, or an invariant is broken.
    pub fn check_everything(&mut self) -> Result<()> {
        for node in self.nodes.values() {
            let Some(process) = &node.running else {
                continue;
            };
            for partition in process.core.replicas.online_partitions() {
                let replica = partition.lock();
                let whole = read_batches(&replica, replica.log.log_start_offset())?;
                let seen = self.checker.batches(node.id, partition.id());
                let from =
                    seen.partition_point(|batch| batch.next <= replica.log.log_start_offset());
                ensure!(
                    seen[from..] == whole,
                    "node {}: the log of {} is not what the steps made of it",
                    node.id,
                    partition.id().topic_partition
                );
            }
        }
        self.checker.check_logs();
        self.fail_on_violation()
    }
}

/// How a log was cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cut {
    /// Emptied, to go on here.
    Emptied(Offset),
    /// Cut to here.
    To(Offset),
}

impl Cut {
    fn keeps_below(self) -> Offset {
        match self {
            Cut::Emptied(_) => Offset::ZERO,
            Cut::To(offset) => offset,
        }
    }

    fn resumes_at(self) -> Offset {
        match self {
            Cut::Emptied(offset) | Cut::To(offset) => offset,
        }
    }
}

fn cut_of(event: &Event, name: &TopicPartition) -> Option<Cut> {
    match event {
        Event::Truncated { partition, to, .. } if partition == name => Some(Cut::To(*to)),
        Event::TruncatedFully { partition, to, .. } if partition == name => Some(Cut::Emptied(*to)),
        _ => None,
    }
}

/// Where an event moves the high watermark of `name` to.
fn watermark_of(event: &Event, name: &TopicPartition) -> Option<Offset> {
    match event {
        Event::HighWatermarkMoved { partition, to, .. } if partition == name => Some(*to),
        _ => None,
    }
}

pub(super) fn facts_of(replica: &Replica<SimDisk>) -> ReplicaFacts {
    let state = &replica.state;
    let facts = replica.facts();
    let isr = state.isr();
    ReplicaFacts {
        is_leader: state.is_leader(),
        leader: state.leader(),
        leader_epoch: state.leader_epoch(),
        partition_epoch: state.partition_epoch(),
        high_watermark: state.high_watermark().offset,
        last_stable: state
            .last_fetchable_offset(FetchIsolation::TransactionCommitted, &facts)
            .offset,
        log_start: facts.log_start,
        log_end: facts.log_end.offset,
        epoch_start: state.leader_epoch_start(),
        effective_isr: isr.map(|isr| isr.effective().clone()).unwrap_or_default(),
        maximal_isr: isr.map(|isr| isr.maximal()).unwrap_or_default(),
        alter_in_flight: isr.is_some_and(|isr| isr.in_flight().is_some()),
        min_isr: state.effective_min_isr(),
        epochs: replica
            .log
            .epochs()
            .entries()
            .iter()
            .map(|entry| (entry.epoch, entry.start_offset))
            .collect(),
        sources: Vec::new(),
        compacts: replica.log.config().compact,
        broker_epoch: protocol::BrokerEpoch::NONE,
    }
}

/// How far a leader may commit by what it knows of its ISR, by the definition of the high watermark;
/// `None` when it is under min.insync.replicas, or somebody else may still be waited for.
fn attainable(replica: &Replica<SimDisk>, now: Instant) -> Option<Offset> {
    let state = &replica.state;
    let isr = state.isr()?;
    let log_end = replica.facts().log_end.offset;
    if isr.effective().len() < state.effective_min_isr() {
        return None;
    }
    let limit = state.settings().replica_lag_time_max;
    let mut attainable = log_end;
    for (id, follower) in state.followers() {
        if isr.maximal().contains(&id) {
            attainable = attainable.min(follower.log_end.offset);
        } else if follower.is_caught_up(log_end, now, limit) {
            return None;
        }
    }
    Some(attainable)
}

/// The batches of a log from `from` on.
fn read_batches(replica: &Replica<SimDisk>, from: Offset) -> Result<Vec<BatchEntry>> {
    let mut found = Vec::new();
    let mut next = from;
    let end = replica.log.log_end();
    let mut buffer = ReadBuffer::default();
    while next < end.offset {
        let data = replica.log.read(next, usize::MAX >> 1, end, true)?;
        let bytes: Bytes = data.records.read()?;
        ensure!(!bytes.is_empty(), "nothing can be read at {next}, the log ends at {}", end.offset);
        for batch in Batches::new(bytes) {
            let batch = batch?;
            let view = batch.view();
            view.check_crc()?;
            let header = view.header();
            let mut records = Vec::new();
            for record in view.records(&mut buffer, MAX_RECORDS_BYTES)? {
                let record = record?;
                let key = record.key.filter(|_| !view.is_control());
                records.push(RecordEntry {
                    offset: record.offset,
                    timestamp_ms: record.timestamp,
                    key: key.map(Bytes::copy_from_slice),
                    value: record.value.map(Bytes::copy_from_slice),
                });
            }
            next = header.next_offset();
            found.push(BatchEntry {
                base: header.base_offset(),
                next,
                epoch: header.partition_leader_epoch(),
                crc: header.crc(),
                producer: (header.producer_id(), header.producer_epoch()),
                base_sequence: header.base_sequence(),
                delete_horizon: view.delete_horizon(),
                records,
            });
        }
    }
    Ok(found)
}

fn hash(epoch: LeaderEpoch, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(epoch.get().unsigned_abs());
    bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn cluster_facts(image: &ClusterImage) -> ClusterFacts {
    let brokers = image.brokers().map(|broker| {
        let facts = BrokerFacts {
            epoch: broker.epoch,
            fenced: broker.fenced,
            in_controlled_shutdown: broker.in_controlled_shutdown,
        };
        (broker.id, facts)
    });
    let partitions = image.partitions().map(|(topic, index, partition)| {
        let id = TopicIdPartition {
            topic_id: topic.id,
            topic_partition: TopicPartition::new(topic.name.clone(), index),
        };
        let facts = PartitionFacts {
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            partition_epoch: partition.partition_epoch,
            replicas: partition.replicas.iter().copied().collect(),
            isr: partition.isr.iter().copied().collect(),
            eligible: partition.eligible_leader_replicas.iter().copied().collect(),
            min_isr: min_isr(image, &topic.name).min(partition.replicas.len()),
        };
        (id, facts)
    });
    ClusterFacts { brokers: brokers.collect(), partitions: partitions.collect() }
}

/// `min.insync.replicas` as the metadata has it: the topic's, or that of all brokers.
fn min_isr(image: &ClusterImage, topic: &str) -> usize {
    let default = image.configs(&ConfigResource::default_broker());
    let layers = ConfigLayers { dynamic_default: default, ..ConfigLayers::default() };
    let value =
        layers.topic_value("min.insync.replicas", image.configs(&ConfigResource::topic(topic)));
    value.and_then(|value| value.as_i64()).and_then(|value| value.try_into().ok()).unwrap_or(1)
}
