//! One partition over a run: what was committed, and the replicas measured against it.
//!
//! The committed log is kept apart from every replica: it grows when a leader's high watermark does,
//! by what that leader has below it, and is never changed afterwards. A replica's `matched` is the
//! offset up to which its log equals the committed one; most invariants compare that with a watermark.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, ProducerEpoch, ProducerId};

use super::clients::ReadCheck;
use super::compaction::Compaction;
use super::{
    BatchEntry, BrokerFacts, FaultModel, LogChange, PartitionFacts, RecordEntry, ReplicaFacts,
    Violation,
};

/// A replica as it was last seen.
#[derive(Clone, Debug)]
pub(super) struct ReplicaMemory {
    pub(super) facts: ReplicaFacts,
    pub(super) batches: Vec<BatchEntry>,
    matched: Offset,
    /// The highest watermark it had as leader of this epoch.
    led: Option<(LeaderEpoch, Offset)>,
    /// The watermark it had as leader under min.insync.replicas, since it is under it.
    under_min_isr: Option<(LeaderEpoch, Offset)>,
}

/// A partition over a run.
#[derive(Debug, Default)]
pub(super) struct PartitionMemory {
    committed: Vec<BatchEntry>,
    high_watermark: Offset,
    replicas: BTreeMap<NodeId, ReplicaMemory>,
    /// What may be missing, once a replica was seen to compact its log.
    compaction: Option<Compaction>,
    sequences: BTreeMap<(ProducerId, ProducerEpoch), i64>,
    /// Sequences that were found out of place, to be told at the next check.
    sequence_faults: Vec<Violation>,
}

fn broken(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

impl PartitionMemory {
    pub(super) fn true_high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub(super) fn replicas(&self) -> &BTreeMap<NodeId, ReplicaMemory> {
        &self.replicas
    }

    pub(super) fn batches(&self, node: NodeId) -> &[BatchEntry] {
        self.replicas.get(&node).map_or(&[], |replica| &replica.batches)
    }

    pub(super) fn compaction(&self) -> Option<&Compaction> {
        self.compaction.as_ref()
    }

    pub(super) fn committed(&self) -> &[BatchEntry] {
        &self.committed
    }

    pub(super) fn on_down(&mut self, node: NodeId) {
        if let Some(gone) = self.replicas.remove(&node)
            && let Some(compaction) = &mut self.compaction
        {
            compaction.on_down(node, gone.batches);
        }
    }

    pub(super) fn on_replica(
        &mut self,
        node: NodeId,
        facts: ReplicaFacts,
        change: LogChange,
        model: FaultModel,
        found: &mut Vec<Violation>,
    ) {
        if change.reopened {
            self.on_down(node);
        }
        if facts.compacts && self.compaction.is_none() {
            self.compaction = Some(Compaction::new(&self.committed));
        }
        let replica = self.replicas.entry(node).or_insert_with(|| ReplicaMemory {
            matched: facts.log_start,
            facts: facts.clone(),
            batches: Vec::new(),
            led: None,
            under_min_isr: None,
        });
        if let Some(cut) = change.cut_to {
            replica.batches.retain(|batch| batch.next <= cut);
            replica.matched = replica.matched.min(cut);
        }
        if let Some(compaction) = &mut self.compaction {
            let mut here = Vec::new();
            compaction.on_change(node, &replica.batches, &facts, &change, &mut here);
            if !model.unclean_elections {
                found.append(&mut here);
            }
        }
        if change.cleaned {
            replica.batches.clear();
            replica.matched = facts.log_start;
        }
        replica.batches.extend(change.appended);
        if facts.log_start > replica.matched {
            replica.matched = facts.log_start;
        }
        replica.facts = facts;
        replica.follow(&self.committed, self.compaction.as_ref());
    }

    /// Whether a compacted log may lack what was committed here.
    pub(super) fn is_replaced(&self, offset: Offset) -> bool {
        let record = self.committed_record(offset);
        let compaction = self.compaction.as_ref();
        record.is_some_and(|record| compaction.is_some_and(|known| known.may_lack(record)))
    }

    /// Takes a leader's high watermark over into what is committed.
    fn commit(&mut self, model: FaultModel, found: &mut Vec<Violation>) {
        for (node, replica) in &self.replicas {
            let facts = &replica.facts;
            if !facts.is_leader || facts.high_watermark <= self.high_watermark {
                continue;
            }
            if replica.matched < self.high_watermark {
                if !model.unclean_elections {
                    found.push(broken(
                        "I2",
                        format!(
                            "{node} leads at epoch {} and commits up to {}, but its log equals the \
                             committed one only up to {} of {}",
                            facts.leader_epoch,
                            facts.high_watermark,
                            replica.matched,
                            self.high_watermark
                        ),
                    ));
                    continue;
                }
                let keep = replica.matched;
                self.committed.retain(|batch| batch.next <= keep);
                if let Some(compaction) = &mut self.compaction {
                    *compaction = Compaction::new(&self.committed);
                }
            }
            let from = self.committed.last().map_or(Offset::ZERO, |last| last.next);
            let added: Vec<BatchEntry> = replica
                .batches
                .iter()
                .filter(|batch| batch.base >= from && batch.next <= facts.high_watermark)
                .cloned()
                .collect();
            for batch in &added {
                check_sequence(&mut self.sequences, batch, &mut self.sequence_faults);
            }
            if let Some(compaction) = &mut self.compaction {
                compaction.on_committed(&added);
            }
            self.committed.extend(added);
            self.high_watermark = facts.high_watermark;
        }
        for replica in self.replicas.values_mut() {
            replica.follow(&self.committed, self.compaction.as_ref());
        }
    }

    pub(super) fn check(
        &mut self,
        model: FaultModel,
        controller: Option<&PartitionFacts>,
        brokers: &BTreeMap<NodeId, BrokerFacts>,
        found: &mut Vec<Violation>,
    ) {
        self.commit(model, found);
        if !model.unclean_elections {
            found.append(&mut self.sequence_faults);
        }
        self.sequence_faults.clear();
        for (node, replica) in &mut self.replicas {
            check_order(*node, &replica.facts, found);
            check_epochs(*node, &replica.facts, found);
            check_sources(*node, &replica.facts, found);
            check_leader_watermark(*node, replica, found);
            check_min_isr(*node, replica, found);
        }
        self.check_one_leader_per_epoch(found);
        if let Some(controller) = controller {
            self.check_maximal_isr(controller, found);
        }
        if model.unclean_elections {
            return;
        }
        self.check_matching(found);
        if let Some(controller) = controller {
            self.check_leader_complete(controller, found);
            self.check_members_complete(controller, brokers, found);
        }
    }

    /// I1: below its high watermark every replica has the committed log.
    fn check_matching(&self, found: &mut Vec<Violation>) {
        for (node, replica) in &self.replicas {
            let facts = &replica.facts;
            if facts.high_watermark > self.high_watermark {
                found.push(broken(
                    "I1",
                    format!(
                        "{node} has the high watermark {}, and no leader ever had more than {}",
                        facts.high_watermark, self.high_watermark
                    ),
                ));
            } else if facts.high_watermark > replica.matched {
                found.push(broken(
                    "I1",
                    format!(
                        "{node} has the high watermark {}, and its log differs from the committed \
                         one at {}",
                        facts.high_watermark, replica.matched
                    ),
                ));
            }
        }
    }

    /// I2: the controller's leader, once it knows that it leads, has everything committed.
    fn check_leader_complete(&self, controller: &PartitionFacts, found: &mut Vec<Violation>) {
        let Some(replica) = self.replicas.get(&controller.leader) else {
            return;
        };
        let facts = &replica.facts;
        if facts.is_leader
            && facts.leader_epoch == controller.leader_epoch
            && replica.matched < self.high_watermark
        {
            found.push(broken(
                "I2",
                format!(
                    "leader {} of epoch {} has the committed log up to {} only, {} was committed",
                    controller.leader, facts.leader_epoch, replica.matched, self.high_watermark
                ),
            ));
        }
    }

    /// I3 and I5: so has every running member of the controller's ISR, and every eligible leader replica,
    /// whose registration is the one the controller knows.
    fn check_members_complete(
        &self,
        controller: &PartitionFacts,
        brokers: &BTreeMap<NodeId, BrokerFacts>,
        found: &mut Vec<Violation>,
    ) {
        for member in controller.isr.union(&controller.eligible) {
            let Some(replica) = self.replicas.get(member) else {
                continue;
            };
            let facts = &replica.facts;
            let registered = brokers.get(member).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
            if registered != facts.broker_epoch {
                continue;
            }
            if facts.log_end < self.high_watermark {
                found.push(broken(
                    "I3",
                    format!(
                        "{member} is in the ISR or eligible and ends at {}, {} was committed",
                        facts.log_end, self.high_watermark
                    ),
                ));
            } else if replica.matched < self.high_watermark {
                found.push(broken(
                    "I5",
                    format!(
                        "{member} is in the ISR or eligible and differs from the committed log at {}, below {}",
                        replica.matched, self.high_watermark
                    ),
                ));
            }
        }
    }

    /// I4: the leader waits for everybody whom the controller may elect.
    fn check_maximal_isr(&self, controller: &PartitionFacts, found: &mut Vec<Violation>) {
        let Some(replica) = self.replicas.get(&controller.leader) else {
            return;
        };
        let facts = &replica.facts;
        if !facts.is_leader || facts.leader_epoch != controller.leader_epoch {
            return;
        }
        if facts.effective_isr.len() >= facts.min_isr
            && !controller.isr.union(&controller.eligible).all(|id| facts.maximal_isr.contains(id))
        {
            found.push(broken(
                "I4",
                format!(
                    "leader {} waits for {:?}, the controller's ISR is {:?}, \
                     eligible are {:?}",
                    controller.leader,
                    ids(facts.maximal_isr.iter()),
                    ids(controller.isr.iter()),
                    ids(controller.eligible.iter())
                ),
            ));
        }
        if !facts.alter_in_flight && facts.maximal_isr != facts.effective_isr {
            found.push(broken(
                "I4",
                format!(
                    "leader {} has nothing in flight, but waits for {:?} with the ISR {:?}",
                    controller.leader,
                    ids(facts.maximal_isr.iter()),
                    ids(facts.effective_isr.iter())
                ),
            ));
        }
    }

    /// I10, as the replicas see it.
    fn check_one_leader_per_epoch(&self, found: &mut Vec<Violation>) {
        let mut leaders: BTreeMap<LeaderEpoch, NodeId> = BTreeMap::new();
        for (node, replica) in &self.replicas {
            if !replica.facts.is_leader {
                continue;
            }
            let epoch = replica.facts.leader_epoch;
            if let Some(other) = leaders.insert(epoch, *node) {
                found.push(broken("I10", format!("{other} and {node} lead in epoch {epoch}")));
            }
        }
    }

    pub(super) fn on_acked(
        &mut self,
        model: FaultModel,
        base: Offset,
        values: &[Bytes],
        found: &mut Vec<Violation>,
    ) {
        if model.unclean_elections {
            return;
        }
        for (at, value) in values.iter().enumerate() {
            let offset = Offset(base.get() + at as i64);
            if self.committed_value(offset).as_ref() != Some(value) {
                found.push(broken(
                    "I2",
                    format!(
                        "{value:?} was acknowledged with acks=all at {offset}; committed there is \
                         {:?}, up to {}",
                        self.committed_value(offset),
                        self.high_watermark
                    ),
                ));
            }
        }
    }

    pub(super) fn on_read(&mut self, read: &ReadCheck<'_>, found: &mut Vec<Violation>) {
        for (offset, value) in read.records {
            let committed = self.committed_value(*offset);
            if committed.as_ref() != Some(value) {
                found.push(broken(
                    "I6",
                    format!("a consumer read {value:?} at {offset}; committed is {committed:?}"),
                ));
            }
        }
    }

    fn committed_value(&self, offset: Offset) -> Option<Bytes> {
        self.committed_record(offset).map(|record| record.value().1)
    }

    fn committed_record(&self, offset: Offset) -> Option<&RecordEntry> {
        record_at(&self.committed, offset)
    }
}

/// The record at an offset.
pub(super) fn record_at(batches: &[BatchEntry], offset: Offset) -> Option<&RecordEntry> {
    let at = batches.partition_point(|batch| batch.next <= offset);
    batches.get(at)?.records.iter().find(|record| record.offset == offset)
}

fn ids<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> Vec<i32> {
    nodes.map(|node| node.get()).collect()
}

impl ReplicaMemory {
    /// Moves `matched` on as far as the logs agree.
    fn follow(&mut self, committed: &[BatchEntry], compaction: Option<&Compaction>) {
        let mut at = committed.partition_point(|batch| batch.next <= self.matched);
        let mut own = self.batches.partition_point(|batch| batch.next <= self.matched);
        while let Some(wanted) = committed.get(at) {
            let here = self.batches.get(own).filter(|batch| batch.base < wanted.next);
            let agrees = match (here, compaction) {
                (Some(here), None) => here == wanted,
                (Some(here), Some(compaction)) => compaction.is_what_stays(here, wanted),
                // A hole, and no end.
                (None, Some(compaction)) if self.facts.log_end >= wanted.next => {
                    wanted.records.iter().all(|record| compaction.may_lack(record))
                }
                (None, _) => false,
            };
            if !agrees {
                return;
            }
            self.matched = wanted.next;
            at += 1;
            own += usize::from(here.is_some());
        }
    }
}

/// I7 and I8: the marks of one log are in order.
fn check_order(node: NodeId, facts: &ReplicaFacts, found: &mut Vec<Violation>) {
    let marks = [facts.log_start, facts.last_stable, facts.high_watermark, facts.log_end];
    if marks.windows(2).any(|pair| pair[0] > pair[1]) {
        found.push(broken(
            "I7",
            format!("{node}: start, stable, high watermark and end are {marks:?}"),
        ));
    }
}

/// I9.
fn check_epochs(node: NodeId, facts: &ReplicaFacts, found: &mut Vec<Violation>) {
    let grows = |pair: &[(LeaderEpoch, Offset)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
    if !facts.epochs.windows(2).all(grows) {
        found.push(broken("I9", format!("{node}: the epochs are {:?}", facts.epochs)));
    }
    if facts.epochs.last().is_some_and(|(_, start)| *start > facts.log_end) {
        found.push(broken(
            "I9",
            format!("{node}: the epochs are {:?}, the log ends at {}", facts.epochs, facts.log_end),
        ));
    }
    if !facts.is_leader {
        return;
    }
    // A leader that was restarted within its epoch begins again at its log's end; the entry stays.
    // Deleting records moves the first entry up to the log's start.
    let is_own = |entry: &(LeaderEpoch, Offset)| {
        entry.0 == facts.leader_epoch
            && facts.epoch_start.is_some_and(|start| entry.1 <= start.max(facts.log_start))
    };
    if !facts.epochs.last().is_some_and(is_own) {
        found.push(broken(
            "I9",
            format!(
                "{node} leads epoch {} since {:?}, but its last epoch is {:?}",
                facts.leader_epoch,
                facts.epoch_start,
                facts.epochs.last()
            ),
        ));
    }
}

/// I12.
fn check_sources(node: NodeId, facts: &ReplicaFacts, found: &mut Vec<Violation>) {
    let wanted: &[NodeId] =
        if facts.is_leader || facts.leader == NodeId::NONE { &[] } else { &[facts.leader] };
    if facts.sources != wanted {
        found.push(broken(
            "I12",
            format!(
                "{node} (leader {}, epoch {}) is fetched from {:?}",
                facts.leader, facts.leader_epoch, facts.sources
            ),
        ));
    }
}

/// I8, at the leader.
fn check_leader_watermark(node: NodeId, replica: &mut ReplicaMemory, found: &mut Vec<Violation>) {
    if !replica.facts.is_leader {
        replica.led = None;
        return;
    }
    let now = (replica.facts.leader_epoch, replica.facts.high_watermark);
    if let Some((epoch, before)) = replica.led
        && epoch == now.0
        && now.1 < before
    {
        found.push(broken(
            "I8",
            format!("leader {node} went back from {before} to {} in epoch {epoch}", now.1),
        ));
    }
    replica.led = Some(now);
}

/// I16. A watermark may still move in the step in which the ISR falls under min.insync.replicas.
fn check_min_isr(node: NodeId, replica: &mut ReplicaMemory, found: &mut Vec<Violation>) {
    let facts = &replica.facts;
    let is_under = facts.is_leader && facts.effective_isr.len() < facts.min_isr;
    let now = is_under.then_some((facts.leader_epoch, facts.high_watermark));
    if let (Some((epoch, before)), Some(now)) = (replica.under_min_isr, now)
        && epoch == now.0
        && now.1 > before
    {
        found.push(broken(
            "I16",
            format!(
                "leader {node} moved its watermark from {before} to {} in epoch {epoch}, with the ISR {:?} \
                 and min.insync.replicas {}",
                now.1,
                ids(facts.effective_isr.iter()),
                facts.min_isr
            ),
        ));
    }
    replica.under_min_isr = now;
}

/// I14: the next batch of a producer continues its sequence.
fn check_sequence(
    sequences: &mut BTreeMap<(ProducerId, ProducerEpoch), i64>,
    batch: &BatchEntry,
    found: &mut Vec<Violation>,
) {
    if batch.producer.0 == ProducerId::NONE {
        return;
    }
    let expected = sequences.get(&batch.producer).copied().unwrap_or(0);
    let first = i64::from(batch.base_sequence);
    if first != expected {
        found.push(broken(
            "I14",
            format!(
                "producer {} epoch {} continues with {first} at {}, expected {expected}",
                batch.producer.0, batch.producer.1, batch.base
            ),
        ));
    }
    sequences.insert(batch.producer, first + batch.next.get() - batch.base.get());
}
