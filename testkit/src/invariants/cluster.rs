//! The committed metadata over a run: epochs that only grow, one leader per epoch (I10), nobody in an
//! ISR who may not be (I11), and one committed log (I13).

use std::collections::{BTreeMap, BTreeSet};

use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicIdPartition};

use super::Violation;

/// A broker as the metadata has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BrokerFacts {
    /// The epoch of its registration.
    pub epoch: BrokerEpoch,
    /// Whether it is fenced.
    pub fenced: bool,
    /// Whether it is in controlled shutdown.
    pub in_controlled_shutdown: bool,
}

/// A partition as the metadata has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionFacts {
    /// The leader; -1 for none.
    pub leader: NodeId,
    /// The leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch.
    pub partition_epoch: PartitionEpoch,
    /// The replicas.
    pub replicas: BTreeSet<NodeId>,
    /// The ISR.
    pub isr: BTreeSet<NodeId>,
    /// Replicas outside the ISR that the controller would elect without one (C06).
    pub eligible: BTreeSet<NodeId>,
    /// min.insync.replicas by the metadata, as far as the number of replicas lets it.
    pub min_isr: usize,
}

/// The cluster as the controllers have committed it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterFacts {
    /// The brokers.
    pub brokers: BTreeMap<NodeId, BrokerFacts>,
    /// The partitions.
    pub partitions: BTreeMap<TopicIdPartition, PartitionFacts>,
}

#[derive(Debug, Default)]
pub(super) struct ClusterMemory {
    facts: ClusterFacts,
    leaders: BTreeMap<(TopicIdPartition, LeaderEpoch), NodeId>,
    committed: BTreeMap<Offset, u64>,
}

fn broken(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

impl ClusterMemory {
    pub(super) fn partition(&self, partition: &TopicIdPartition) -> Option<&PartitionFacts> {
        self.facts.partitions.get(partition)
    }

    pub(super) fn brokers(&self) -> &BTreeMap<NodeId, BrokerFacts> {
        &self.facts.brokers
    }

    /// Takes the next committed state; gives the partitions that changed.
    pub(super) fn on_cluster(
        &mut self,
        facts: ClusterFacts,
        found: &mut Vec<Violation>,
    ) -> Vec<TopicIdPartition> {
        let mut changed = Vec::new();
        for (id, now) in &facts.partitions {
            let before = self.facts.partitions.get(id);
            if before == Some(now) {
                continue;
            }
            changed.push(id.clone());
            if let Some(before) = before {
                check_epochs(id, before, now, found);
            }
            if now.leader != NodeId::NONE {
                let key = (id.clone(), now.leader_epoch);
                let known = *self.leaders.entry(key).or_insert(now.leader);
                if known != now.leader {
                    found.push(broken(
                        "I10",
                        format!(
                            "{known} and {} lead {id:?} in epoch {}",
                            now.leader, now.leader_epoch
                        ),
                    ));
                }
            }
        }
        check_members(&facts, found);
        if self.facts.brokers != facts.brokers {
            changed = facts.partitions.keys().cloned().collect();
        }
        self.facts = facts;
        changed
    }

    /// I13: what one controller applies at an offset, all do.
    pub(super) fn on_committed_metadata(
        &mut self,
        node: NodeId,
        offset: Offset,
        content: u64,
        found: &mut Vec<Violation>,
    ) {
        let known = *self.committed.entry(offset).or_insert(content);
        if known != content {
            let what = format!("{node} applied other metadata at {offset} than others did");
            found.push(broken("I13", what));
        }
    }
}

/// I10.
fn check_epochs(
    id: &TopicIdPartition,
    before: &PartitionFacts,
    now: &PartitionFacts,
    found: &mut Vec<Violation>,
) {
    let epochs = |facts: &PartitionFacts| (facts.leader_epoch, facts.partition_epoch);
    let ((leader_before, partition_before), (leader_now, partition_now)) =
        (epochs(before), epochs(now));
    let name = &id.topic_partition;
    if leader_now < leader_before || partition_now < partition_before {
        found.push(broken(
            "I10",
            format!(
                "{name} went back from epochs ({leader_before}, {partition_before}) to \
                 ({leader_now}, {partition_now})"
            ),
        ));
    }
    if partition_now == partition_before {
        found.push(broken(
            "I10",
            format!("{name} changed within partition epoch {partition_now}: {before:?}, {now:?}"),
        ));
    }
}

/// I11. Without eligible leader replicas the last member stays in the ISR of a partition that has no
/// leader (C03), fenced as it is. With them, they are outside the ISR, and none when that is large enough.
fn check_members(facts: &ClusterFacts, found: &mut Vec<Violation>) {
    for (id, partition) in &facts.partitions {
        let (isr, eligible) = (&partition.isr, &partition.eligible);
        if !eligible.is_empty() && (isr.len() >= partition.min_isr || !isr.is_disjoint(eligible)) {
            let name = &id.topic_partition;
            let what = format!(
                "{eligible:?} are eligible for {name} beside the ISR {isr:?}, min.insync.replicas is {}",
                partition.min_isr
            );
            found.push(broken("I11", what));
        }
        if partition.leader == NodeId::NONE && partition.isr.len() == 1 {
            continue;
        }
        for member in &partition.isr {
            let is_live = facts
                .brokers
                .get(member)
                .is_some_and(|broker| !broker.fenced && !broker.in_controlled_shutdown);
            if !is_live {
                found.push(broken(
                    "I11",
                    format!(
                        "{member} is in the ISR {:?} of {} and is {:?}",
                        partition.isr,
                        id.topic_partition,
                        facts.brokers.get(member)
                    ),
                ));
            }
        }
        let is_member = partition.isr.contains(&partition.leader);
        if partition.leader != NodeId::NONE && !is_member {
            let what =
                format!("the leader {} is not in the ISR {:?}", partition.leader, partition.isr);
            found.push(broken("I11", what));
        }
    }
}
