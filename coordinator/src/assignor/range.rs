//! `range`: in every topic the subscribers get one run of partitions each, in one order for all
//! topics, so that topics of equal size are shared out alike.
//!
//! Static members come first, by instance id: a restart under a new member id keeps its place. The
//! present assignment plays no part; members keep their runs as long as the members before them stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::Uuid;

use super::{Assignment, GroupSpec, MemberSpec, Partitions};

/// What of a topic is still to be given out.
struct Rest {
    next: i32,
    least: i32,
    odd: i32,
}

/// One run of neighbouring partitions for each subscriber of each topic.
pub(super) fn assign(group: &GroupSpec) -> Assignment {
    let mut subscribers: BTreeMap<Uuid, i32> = BTreeMap::new();
    for member in group.members.values() {
        for topic in member.topics.iter() {
            *subscribers.entry(*topic).or_default() += 1;
        }
    }
    let mut rests: BTreeMap<Uuid, Rest> = subscribers
        .into_iter()
        .map(|(topic, members)| {
            let count = group.partition_count(&topic);
            (topic, Rest { next: 0, least: count / members, odd: count % members })
        })
        .collect();

    let mut assignment = Assignment::new();
    for (id, member) in in_order(group) {
        let mut partitions = Partitions::new();
        for topic in member.topics.iter() {
            let Some(rest) = rests.get_mut(topic) else { continue };
            let run = rest.take();
            if !run.is_empty() {
                partitions.insert(*topic, run.collect());
            }
        }
        assignment.insert(id.clone(), partitions);
    }
    assignment
}

impl Rest {
    fn take(&mut self) -> std::ops::Range<i32> {
        let start = self.next;
        self.next += self.least + i32::from(self.odd > 0);
        self.odd = (self.odd - 1).max(0);
        start..self.next
    }
}

/// Static members by instance id, then the others by member id.
fn in_order(group: &GroupSpec) -> Vec<(&Arc<str>, &MemberSpec)> {
    let mut members: Vec<_> = group.members.iter().collect();
    members.sort_by(|(_, one), (_, other)| match (&one.instance_id, &other.instance_id) {
        (None, None) => std::cmp::Ordering::Equal,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (Some(_), None) => std::cmp::Ordering::Less,
        (Some(one), Some(other)) => one.cmp(other),
    });
    members
}
