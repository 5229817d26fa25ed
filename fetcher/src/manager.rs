//! Which fetcher follows which partition (`num.replica.fetchers`), as a plan of removals and
//! additions.
//!
//! Invariant (I12): a partition is in at most one fetcher. A plan's removals are to be carried out
//! before its additions, so that the new fetcher reads the log's end after the old one let go (T10).

use crate::partition::FollowAssignment;
use protocol::{LeaderEpoch, NodeId, TopicIdPartition, TopicPartition};
use std::collections::BTreeMap;

/// Names a fetcher of this broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetcherKey {
    /// The leader it pulls from.
    pub leader: NodeId,
    /// Which of the fetchers for that leader, below `num.replica.fetchers`.
    pub fetcher_id: u32,
}

/// The fetcher id of a partition: Kafka's hash, so that a partition's place is predictable.
pub fn fetcher_id(partition: &TopicPartition, fetchers: u32) -> u32 {
    let hash = partition
        .topic
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let mixed = hash.wrapping_mul(31).wrapping_add(partition.partition);
    // Kafka's absolute value: the most negative number counts as zero.
    let absolute = if mixed == i32::MIN { 0 } else { mixed.unsigned_abs() };
    absolute % fetchers.max(1)
}

/// A partition to be followed, and whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Follow {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Its leader.
    pub leader: NodeId,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
}

/// What to tell the fetchers, removals first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Partitions to take out.
    pub removals: BTreeMap<FetcherKey, Vec<TopicIdPartition>>,
    /// Partitions to put in; a fetcher that does not exist yet is to be started.
    pub additions: BTreeMap<FetcherKey, Vec<FollowAssignment>>,
    /// Fetchers that have no partition left once the plan is carried out; they may be shut down.
    pub idle: Vec<FetcherKey>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.removals.is_empty() && self.additions.is_empty() && self.idle.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    fetcher: FetcherKey,
    leader_epoch: LeaderEpoch,
}

/// Who follows what.
#[derive(Clone, Debug)]
pub struct FetcherManager {
    fetchers_per_leader: u32,
    places: BTreeMap<TopicIdPartition, Place>,
    sizes: BTreeMap<FetcherKey, usize>,
}

impl FetcherManager {
    /// No partition yet. `fetchers_per_leader` is `num.replica.fetchers`.
    pub fn new(fetchers_per_leader: u32) -> Self {
        let fetchers_per_leader = fetchers_per_leader.max(1);
        Self { fetchers_per_leader, places: BTreeMap::new(), sizes: BTreeMap::new() }
    }

    /// Partitions that this broker follows now, at these leaders and epochs. A partition already
    /// followed at this leader and epoch is left alone; one at a lower epoch than before too.
    pub fn follow(&mut self, follows: impl IntoIterator<Item = Follow>) -> Plan {
        let mut plan = Plan::default();
        for follow in follows {
            let id = fetcher_id(&follow.partition.topic_partition, self.fetchers_per_leader);
            let fetcher = FetcherKey { leader: follow.leader, fetcher_id: id };
            if let Some(place) = self.places.get(&follow.partition).copied() {
                if follow.leader_epoch <= place.leader_epoch {
                    continue;
                }
                self.take_out(&follow.partition, &mut plan);
            }
            let place = Place { fetcher, leader_epoch: follow.leader_epoch };
            self.places.insert(follow.partition.clone(), place);
            *self.sizes.entry(fetcher).or_insert(0) += 1;
            plan.additions.entry(fetcher).or_default().push(FollowAssignment {
                partition: follow.partition,
                leader_epoch: follow.leader_epoch,
            });
        }
        self.finish(plan)
    }

    /// Partitions that this broker does not follow any more: it leads them, lost them, or their
    /// leader is unknown.
    pub fn unfollow<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicIdPartition>,
    ) -> Plan {
        let mut plan = Plan::default();
        for partition in partitions {
            self.take_out(partition, &mut plan);
        }
        self.finish(plan)
    }

    fn take_out(&mut self, partition: &TopicIdPartition, plan: &mut Plan) {
        let Some(place) = self.places.remove(partition) else {
            return;
        };
        if let Some(size) = self.sizes.get_mut(&place.fetcher) {
            *size -= 1;
        }
        // Put in by this very plan: then the fetcher has never heard of it.
        if let Some(added) = plan.additions.get_mut(&place.fetcher) {
            added.retain(|assignment| assignment.partition != *partition);
        }
        plan.removals.entry(place.fetcher).or_default().push(partition.clone());
    }

    fn finish(&mut self, mut plan: Plan) -> Plan {
        plan.additions.retain(|_, added| !added.is_empty());
        self.sizes.retain(|fetcher, size| {
            if *size == 0 {
                plan.idle.push(*fetcher);
            }
            *size > 0
        });
        plan
    }

    /// The fetcher that follows a partition.
    pub fn fetcher_of(&self, partition: &TopicIdPartition) -> Option<FetcherKey> {
        self.places.get(partition).map(|place| place.fetcher)
    }

    /// How many partitions are followed.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
