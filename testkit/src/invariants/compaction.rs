//! What the log cleaner may take (K1 to K4).
//!
//! The committed log as the checker keeps it is never cleaned: it knows of every key at which offsets it
//! was written. A record may be missing from a replica when a later one of its key is committed, when it
//! was a tombstone that somebody has rightly removed, or when it has no key. What one replica's cleaner did
//! is measured more strictly: what it took must have been replaced below that replica's own high watermark,
//! and a tombstone must have lain in a batch with a delete horizon that its clock has passed (KIP-534).
//!
//! A crash must not take a record without the one that replaced it: a log that is opened again is compared
//! with what it was, as a cleaning is, up to its new end.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::{BrokerEpoch, NodeId, Offset};

use super::partition::{PartitionMemory, record_at};
use super::{
    BatchEntry, BrokerFacts, LogChange, PartitionFacts, RecordEntry, ReplicaFacts, Violation,
};

/// What is known of a compacted partition.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// Where each key was committed, ascending.
    offsets: BTreeMap<Bytes, Vec<Offset>>,
    /// Tombstones that somebody has rightly removed.
    expired: BTreeSet<Offset>,
    /// The logs of replicas that are down, as last seen.
    down: BTreeMap<NodeId, Vec<BatchEntry>>,
}

fn broken(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

impl Compaction {
    pub(super) fn new(committed: &[BatchEntry]) -> Self {
        let mut new = Self::default();
        new.on_committed(committed);
        new
    }

    /// Takes what was committed next.
    pub(super) fn on_committed(&mut self, batches: &[BatchEntry]) {
        for record in batches.iter().flat_map(|batch| &batch.records) {
            if let Some(key) = &record.key {
                self.offsets.entry(key.clone()).or_default().push(record.offset);
            }
        }
    }

    pub(super) fn on_down(&mut self, node: NodeId, batches: Vec<BatchEntry>) {
        self.down.insert(node, batches);
    }

    /// Whether a log may lack this record of the committed one.
    pub(super) fn may_lack(&self, record: &RecordEntry) -> bool {
        self.is_replaced_below(record, Offset(i64::MAX)) || self.expired.contains(&record.offset)
    }

    /// Whether a later record of its key is committed below `end`. What has no key goes as well.
    fn is_replaced_below(&self, record: &RecordEntry, end: Offset) -> bool {
        let Some(key) = &record.key else {
            return true;
        };
        let Some(offsets) = self.offsets.get(key) else {
            return false;
        };
        let later = &offsets[offsets.partition_point(|offset| *offset <= record.offset)..];
        later.first().is_some_and(|offset| *offset < end)
    }

    /// Whether `here` is what cleaning may leave of the committed batch.
    pub(super) fn is_what_stays(&self, here: &BatchEntry, committed: &BatchEntry) -> bool {
        here == committed
            || (is_same_batch(here, committed)
                && here.records.iter().all(|record| committed.records.contains(record))
                && committed
                    .records
                    .iter()
                    .all(|record| here.records.contains(record) || self.may_lack(record)))
    }

    /// Takes what happened to a replica's log: a cleaning, or a start after which it is as a cleaning or
    /// a crash has left it.
    pub(super) fn on_change(
        &mut self,
        node: NodeId,
        before: &[BatchEntry],
        facts: &ReplicaFacts,
        change: &LogChange,
        found: &mut Vec<Violation>,
    ) {
        if change.reopened {
            if let Some(before) = self.down.remove(&node) {
                let end = facts.log_end;
                self.check_cleaned(node, &before, &change.appended, (end, change), found);
            }
        } else if change.cleaned {
            let end = facts.high_watermark;
            self.check_cleaned(node, before, &change.appended, (end, change), found);
            if let Some(changed) = first_change_from(end, before, &change.appended) {
                let what = format!(
                    "{node} cleaned its log with the high watermark {end}, and at {changed} it is \
                     not what it was"
                );
                found.push(broken("K2", what));
            }
            check_what_is_left(node, before, &change.appended, found);
        }
    }

    /// K1: what was there below `end` and is not.
    fn check_cleaned(
        &mut self,
        node: NodeId,
        before: &[BatchEntry],
        after: &[BatchEntry],
        (end, change): (Offset, &LogChange),
        found: &mut Vec<Violation>,
    ) {
        let kept: BTreeSet<Offset> =
            after.iter().flat_map(|batch| &batch.records).map(|record| record.offset).collect();
        for batch in before {
            for record in &batch.records {
                let is_there = kept.contains(&record.offset);
                if is_there || record.offset >= end || self.is_replaced_below(record, end) {
                    continue;
                }
                let time_is_up = record.value.is_none()
                    && batch.delete_horizon.is_some_and(|at| at <= change.wall_clock_ms);
                if time_is_up || self.expired.contains(&record.offset) {
                    self.expired.insert(record.offset);
                    continue;
                }
                let what = format!(
                    "{node} lost the record at {} of key {:?}: nothing later of the key is committed \
                     below {end}; tombstone {}, delete horizon {:?} at {}",
                    record.offset,
                    record.key,
                    record.value.is_none(),
                    batch.delete_horizon,
                    change.wall_clock_ms
                );
                found.push(broken("K1", what));
            }
        }
    }

    /// Where two logs differ in what cleaning may not change, up to where both end with the same batch.
    pub(super) fn difference(&self, one: &[BatchEntry], other: &[BatchEntry]) -> Option<String> {
        for (here, there) in [(one, other), (other, one)] {
            for batch in here {
                let at = there.partition_point(|candidate| candidate.base < batch.base);
                let same = there.get(at).filter(|found| found.base == batch.base);
                if same.is_some_and(|found| !is_same_batch(found, batch)) {
                    return Some(format!("{batch:?} and {same:?}"));
                }
                let missing = batch.records.iter().find(|record| {
                    !same.is_some_and(|found| found.records.contains(record))
                        && !self.may_lack(record)
                });
                if let Some(missing) = missing {
                    return Some(format!("one has {missing:?}, the other has {same:?}"));
                }
            }
        }
        None
    }
}

/// Whether two batches are one but for what was cleaned from them.
fn is_same_batch(one: &BatchEntry, other: &BatchEntry) -> bool {
    let facts = |batch: &BatchEntry| {
        (batch.base, batch.next, batch.epoch, batch.producer, batch.base_sequence)
    };
    facts(one) == facts(other)
        && one.records.iter().all(|record| {
            let there = other.records.iter().find(|found| found.offset == record.offset);
            there.is_none_or(|found| found == record)
        })
}

/// K2: the first offset from `end` on at which the log is not what it was.
fn first_change_from(end: Offset, before: &[BatchEntry], after: &[BatchEntry]) -> Option<Offset> {
    let from = |batches: &[BatchEntry]| batches.partition_point(|batch| batch.next <= end);
    let (old, new) = (&before[from(before)..], &after[from(after)..]);
    // What was appended since is there, too.
    let differing = old.iter().zip(new).find(|(old, new)| old != new);
    let lacking = old.get(new.len());
    differing.map(|(old, _)| old.base).or(lacking.map(|batch| batch.base))
}

/// K3: all that is left was there.
fn check_what_is_left(
    node: NodeId,
    before: &[BatchEntry],
    after: &[BatchEntry],
    found: &mut Vec<Violation>,
) {
    let end = before.last().map_or(Offset::ZERO, |last| last.next);
    for batch in after.iter().filter(|batch| batch.next <= end) {
        let at = before.partition_point(|candidate| candidate.base < batch.base);
        let was = before.get(at).filter(|was| {
            is_same_batch(was, batch)
                && batch.records.iter().all(|record| was.records.contains(record))
        });
        if was.is_none() {
            let what = format!("{node} has {batch:?} after a cleaning, which was not there before");
            found.push(broken("K3", what));
        }
    }
}

impl PartitionMemory {
    /// K4: every member of the controller's ISR that has all that is committed has the last record of
    /// every key.
    pub(super) fn check_last_of_keys(
        &self,
        controller: &PartitionFacts,
        brokers: &BTreeMap<NodeId, BrokerFacts>,
        found: &mut Vec<Violation>,
    ) {
        let Some(compaction) = self.compaction() else {
            return;
        };
        for member in &controller.isr {
            let Some(replica) = self.replicas().get(member) else {
                continue;
            };
            let registered = brokers.get(member).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
            if registered != replica.facts.broker_epoch {
                continue;
            }
            for (key, offsets) in &compaction.offsets {
                let Some(last) = offsets.last().copied() else { continue };
                let is_gone = compaction.expired.contains(&last) || last < replica.facts.log_start;
                let wanted = record_at(self.committed(), last);
                if !is_gone && record_at(&replica.batches, last) != wanted {
                    let what = format!(
                        "ISR member {member} lacks the last record of key {key:?}, at {last}: {wanted:?}"
                    );
                    found.push(broken("K4", what));
                }
            }
        }
    }
}
