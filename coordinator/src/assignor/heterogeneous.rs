//! `uniform` for a group whose members subscribe to different topics.
//!
//! First what nobody has is given out, the topics with the most partitions for each subscriber first,
//! always to the subscriber with the fewest partitions. Then, topic by topic, partitions move from the
//! subscriber with the most to the one with the fewest while they differ by two or more. Every such
//! move lowers the sum of the squares of the members' sizes, so the moving ends; at the end no single
//! move can even the group out further.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Uuid;

use super::{Assignment, GroupSpec, Partitions, size};

/// A group being balanced. Members are numbered in the order of their ids.
struct Balance<'a> {
    ids: Vec<&'a Arc<str>>,
    has: Vec<Partitions>,
    sizes: Vec<usize>,
    subscribers: BTreeMap<Uuid, Vec<usize>>,
}

/// Loads evened out as far as moves of single partitions can.
pub(super) fn assign(group: &GroupSpec) -> Assignment {
    let (kept, taken) = group.kept();
    let mut balance = Balance::new(group, kept);
    let topics = balance.topics_by_partitions_per_subscriber(group);
    for topic in &topics {
        let free: Vec<i32> = (0..group.partition_count(topic))
            .filter(|at| !taken.contains(&(*topic, *at)))
            .collect();
        balance.give_out(topic, free);
    }
    let mut quiet = 0;
    for topic in topics.iter().cycle() {
        quiet = if balance.even_out(topic) { 0 } else { quiet + 1 };
        if quiet >= topics.len() {
            break;
        }
    }
    balance.into_assignment()
}

impl<'a> Balance<'a> {
    fn new(group: &'a GroupSpec, mut kept: Assignment) -> Balance<'a> {
        let ids: Vec<&Arc<str>> = group.members.keys().collect();
        let has: Vec<Partitions> =
            ids.iter().map(|id| kept.remove(*id).unwrap_or_default()).collect();
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (number, member) in group.members.values().enumerate() {
            for topic in member.topics.iter().filter(|topic| group.partition_count(topic) > 0) {
                subscribers.entry(*topic).or_default().push(number);
            }
        }
        let sizes = has.iter().map(size).collect();
        Balance { ids, has, sizes, subscribers }
    }

    /// The hardest to even out first: many partitions for each subscriber, then few subscribers.
    fn topics_by_partitions_per_subscriber(&self, group: &GroupSpec) -> Vec<Uuid> {
        let mut topics: Vec<(Uuid, i64, i64)> = self
            .subscribers
            .iter()
            .map(|(topic, members)| {
                (*topic, i64::from(group.partition_count(topic)), members.len() as i64)
            })
            .collect();
        topics.sort_by(|(_, count, members), (_, other_count, other_members)| {
            (other_count * members).cmp(&(count * other_members)).then(members.cmp(other_members))
        });
        topics.into_iter().map(|(topic, _, _)| topic).collect()
    }

    /// The topic's subscribers by how many partitions they have.
    fn by_size(&self, topic: &Uuid) -> BTreeSet<(usize, usize)> {
        self.subscribers[topic].iter().map(|member| (self.sizes[*member], *member)).collect()
    }

    fn give_out(&mut self, topic: &Uuid, free: Vec<i32>) {
        if free.is_empty() {
            return;
        }
        let mut by_size = self.by_size(topic);
        for partition in free {
            let Some((has, member)) = by_size.pop_first() else { return };
            by_size.insert((has + 1, member));
            self.has[member].entry(*topic).or_default().insert(partition);
            self.sizes[member] += 1;
        }
    }

    /// Moves partitions of the topic from those with the most to those with the fewest; says whether
    /// any moved.
    fn even_out(&mut self, topic: &Uuid) -> bool {
        let mut by_size = self.by_size(topic);
        let mut givers: BTreeSet<(usize, usize)> =
            by_size.iter().filter(|(_, m)| self.has[*m].contains_key(topic)).copied().collect();
        let mut moved = false;
        while let (Some(most), Some(fewest)) = (givers.last().copied(), by_size.first().copied()) {
            if most.0 < fewest.0 + 2 {
                break;
            }
            let (giver, taker) = (most.1, fewest.1);
            let Some(partition) = self.take_last(giver, topic) else {
                givers.remove(&most);
                continue;
            };
            self.has[taker].entry(*topic).or_default().insert(partition);
            by_size.remove(&most);
            by_size.remove(&fewest);
            givers.remove(&most);
            givers.remove(&fewest);
            self.sizes[giver] -= 1;
            self.sizes[taker] += 1;
            by_size.insert((self.sizes[giver], giver));
            by_size.insert((self.sizes[taker], taker));
            givers.insert((self.sizes[taker], taker));
            if self.has[giver].contains_key(topic) {
                givers.insert((self.sizes[giver], giver));
            }
            moved = true;
        }
        moved
    }

    fn take_last(&mut self, member: usize, topic: &Uuid) -> Option<i32> {
        let of_topic = self.has[member].get_mut(topic)?;
        let partition = of_topic.pop_last();
        if of_topic.is_empty() {
            self.has[member].remove(topic);
        }
        partition
    }

    fn into_assignment(self) -> Assignment {
        self.ids.into_iter().cloned().zip(self.has).collect()
    }
}
