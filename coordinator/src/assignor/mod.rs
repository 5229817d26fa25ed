//! The assignors of the consumer protocol that run here (KIP-848): `uniform` and `range`.
//!
//! Both are functions of a [`GroupSpec`] alone. What they promise, and the tests hold them to:
//! every partition of every subscribed topic goes to exactly one member that subscribes to it;
//! `uniform` evens out how many partitions the members have and moves no partition without need;
//! `range` gives each member one run of neighbouring partitions in every topic, the same run in topics
//! of equal size.
//!
//! Where Kafka follows the order of its hash tables (who gets the odd partition) these follow the
//! order of member ids.

mod heterogeneous;
mod homogeneous;
mod range;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Uuid;

/// Partitions by topic. Holds no topic without partitions.
pub(crate) type Partitions = BTreeMap<Uuid, BTreeSet<i32>>;

/// What an assignor knows of a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberSpec {
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// The topics it subscribes to, of those that exist.
    pub topics: Arc<BTreeSet<Uuid>>,
    /// Its present target assignment.
    pub assigned: Partitions,
}

/// A group as an assignor sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupSpec {
    /// The members by id.
    pub members: BTreeMap<Arc<str>, MemberSpec>,
    /// How many partitions each subscribed topic has. A topic that is not here is not assigned.
    pub partition_counts: BTreeMap<Uuid, i32>,
}

/// The new target assignment of every member of the spec; empty where a member gets nothing.
pub(crate) type Assignment = BTreeMap<Arc<str>, Partitions>;

/// An assignor by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Assignor {
    /// `uniform`
    Uniform,
    /// `range`
    Range,
}

impl Assignor {
    /// The assignor of that name.
    pub(crate) fn named(name: &str) -> Option<Assignor> {
        match name {
            "uniform" => Some(Assignor::Uniform),
            "range" => Some(Assignor::Range),
            _ => None,
        }
    }

    /// Shares the partitions of the subscribed topics out among the members.
    pub(crate) fn assign(self, group: &GroupSpec) -> Assignment {
        match self {
            Assignor::Uniform if group.is_homogeneous() => homogeneous::assign(group),
            Assignor::Uniform => heterogeneous::assign(group),
            Assignor::Range => range::assign(group),
        }
    }
}

impl GroupSpec {
    /// Whether all members subscribe to the same topics.
    fn is_homogeneous(&self) -> bool {
        let mut members = self.members.values();
        let Some(first) = members.next() else { return true };
        members.all(|member| {
            Arc::ptr_eq(&member.topics, &first.topics) || member.topics == first.topics
        })
    }

    /// How many partitions the topic has; zero for one that does not exist.
    fn partition_count(&self, topic: &Uuid) -> i32 {
        self.partition_counts.get(topic).copied().unwrap_or(0)
    }

    /// What each member may keep of what it has: partitions that exist, of topics it subscribes to,
    /// each with its first holder only.
    fn kept(&self) -> (Assignment, BTreeSet<(Uuid, i32)>) {
        let mut taken = BTreeSet::new();
        let mut kept = Assignment::new();
        for (id, member) in &self.members {
            let mut partitions = Partitions::new();
            for (topic, assigned) in &member.assigned {
                if !member.topics.contains(topic) {
                    continue;
                }
                let count = self.partition_count(topic);
                let still: BTreeSet<i32> = assigned
                    .iter()
                    .copied()
                    .filter(|partition| (0..count).contains(partition))
                    .filter(|partition| taken.insert((*topic, *partition)))
                    .collect();
                if !still.is_empty() {
                    partitions.insert(*topic, still);
                }
            }
            kept.insert(id.clone(), partitions);
        }
        (kept, taken)
    }
}

/// How many partitions these are.
fn size(partitions: &Partitions) -> usize {
    partitions.values().map(BTreeSet::len).sum()
}
