//! Whole logs compared, each with each: the same offset in the same epoch means the same record and
//! the same prefix (the strong form of I1).

use super::compaction::Compaction;
use super::partition::PartitionMemory;
use super::{BatchEntry, Violation};
use protocol::{NodeId, Offset};

pub(super) fn check_pairs(memory: &PartitionMemory, found: &mut Vec<Violation>) {
    let replicas: Vec<_> = memory.replicas().iter().collect();
    for (at, (first, one)) in replicas.iter().enumerate() {
        for (second, other) in &replicas[at + 1..] {
            let start = one.facts.log_start.max(other.facts.log_start);
            let pair = [(**first, &*one.batches), (**second, &*other.batches)];
            check_pair(pair, start, memory.compaction(), found);
        }
    }
}

/// From the last batch that both logs have at the same offset in the same epoch downwards, all must be
/// the same, but for what cleaning may take from either.
fn check_pair(
    [one, other]: [(NodeId, &[BatchEntry]); 2],
    start: Offset,
    compaction: Option<&Compaction>,
    found: &mut Vec<Violation>,
) {
    let above = |batches: &[BatchEntry]| batches.partition_point(|batch| batch.base < start);
    let (first, second) = (&one.1[above(one.1)..], &other.1[above(other.1)..]);
    let common = first.iter().enumerate().rev().find_map(|(at, batch)| {
        let there = second.partition_point(|candidate| candidate.base < batch.base);
        let same = second
            .get(there)
            .is_some_and(|found| (found.base, found.epoch) == (batch.base, batch.epoch));
        same.then_some((at, there))
    });
    let Some((at, there)) = common else {
        return;
    };
    if first[..=at] == second[..=there] {
        return;
    }
    let differing = match compaction {
        Some(compaction) => compaction.difference(&first[..=at], &second[..=there]),
        None => {
            let differing = first[..=at].iter().zip(&second[..=there]).find(|(a, b)| a != b);
            Some(format!("{differing:?}"))
        }
    };
    if let Some(differing) = differing {
        found.push(Violation {
            invariant: "I1",
            what: format!(
                "{} and {} share offset {} of epoch {}, and differ below it: {differing}",
                one.0, other.0, first[at].base, first[at].epoch
            ),
        });
    }
}
