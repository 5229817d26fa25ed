//! `uniform` for a group whose members all subscribe to the same topics.
//!
//! Every member is due the same number of partitions, and some are due one more. Those that already
//! have more come first when the odd ones are given out, so that a partition only moves when its
//! member has more than anybody may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::Uuid;

use super::{Assignment, GroupSpec, Partitions, size};

/// Partitions and members differ by at most one in what each member gets.
pub(super) fn assign(group: &GroupSpec) -> Assignment {
    let (mut assignment, taken) = group.kept();
    let Some(first) = group.members.values().next() else { return assignment };

    let mut free: Vec<(Uuid, i32)> = Vec::new();
    let mut total = 0;
    for topic in first.topics.iter() {
        let count = group.partition_count(topic);
        total += usize::try_from(count).unwrap_or(0);
        free.extend((0..count).map(|at| (*topic, at)).filter(|at| !taken.contains(at)));
    }

    let quotas = quotas(&assignment, total);
    for (id, partitions) in &mut assignment {
        free.extend(cut_down_to(partitions, quotas[id]));
    }
    let mut free = free.into_iter();
    for (id, partitions) in &mut assignment {
        let missing = quotas[id] - size(partitions);
        for (topic, partition) in free.by_ref().take(missing) {
            partitions.entry(topic).or_default().insert(partition);
        }
    }
    assert!(free.next().is_none(), "the quotas of all members are all partitions");
    assignment
}

/// How many partitions each member is to have. The odd ones go to those that have the most.
fn quotas(kept: &Assignment, total: usize) -> BTreeMap<Arc<str>, usize> {
    let least = total / kept.len();
    let odd = total % kept.len();
    let mut members: Vec<(usize, &Arc<str>)> =
        kept.iter().map(|(id, partitions)| (size(partitions), id)).collect();
    // Stable, so members with equally many stay in the order of their ids.
    members.sort_by_key(|(has, _)| std::cmp::Reverse(*has));
    members
        .into_iter()
        .enumerate()
        .map(|(rank, (_, id))| (id.clone(), least + usize::from(rank < odd)))
        .collect()
}

/// Takes the last partitions of the last topics away until `quota` are left, and returns them.
fn cut_down_to(partitions: &mut Partitions, quota: usize) -> Vec<(Uuid, i32)> {
    let mut excess = size(partitions).saturating_sub(quota);
    let mut given_up = Vec::with_capacity(excess);
    while excess > 0 {
        let Some(mut last) = partitions.last_entry() else { break };
        let topic = *last.key();
        match last.get_mut().pop_last() {
            Some(partition) => {
                given_up.push((topic, partition));
                excess -= 1;
            }
            None => {
                last.remove();
            }
        }
    }
    partitions.retain(|_, of_topic| !of_topic.is_empty());
    given_up.sort_unstable();
    given_up
}
