//! Topics and the state of each partition at the controller: replicas, ISR, leader, epochs. The
//! epoch rules (I10) live in [`PartitionImage::apply_change`]: every change bumps the partition
//! epoch, every election the leader epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::types::{LeaderEpoch, NodeId, PartitionEpoch, TopicId, Uuid};

use super::directory_id;
use crate::records::{self, Partition, PartitionChange, typed_nodes};

/// Whether the leader still has to bring the partition together after an unclean election (C05).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaderRecoveryState {
    /// The ordinary state.
    #[default]
    Recovered,
    /// Elected uncleanly; the ISR may not grow until the leader says it recovered.
    Recovering,
}

impl LeaderRecoveryState {
    /// The wire value.
    pub fn code(self) -> i8 {
        match self {
            LeaderRecoveryState::Recovered => 0,
            LeaderRecoveryState::Recovering => 1,
        }
    }

    /// From the wire value; `None` for anything but 0 and 1.
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(LeaderRecoveryState::Recovered),
            1 => Some(LeaderRecoveryState::Recovering),
            _ => None,
        }
    }
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionImage {
    /// Its replicas; the first is the preferred leader.
    pub replicas: Vec<NodeId>,
    /// The log directory of each replica, in the order of `replicas`, or one of [`directory_id`]'s.
    pub directories: Vec<Uuid>,
    /// The replicas that hold everything committed. Empty only with eligible leader replicas on, and then
    /// nobody leads.
    pub isr: Vec<NodeId>,
    /// Replicas that left the ISR under min.insync.replicas and hold everything committed all the same,
    /// ascending (C06).
    pub eligible_leader_replicas: Vec<NodeId>,
    /// The last leader of a partition whose ISR is empty; empty otherwise (C06).
    pub last_known_elr: Vec<NodeId>,
    /// Replicas that a reassignment brings in (C07).
    pub adding_replicas: Vec<NodeId>,
    /// Replicas that a reassignment takes out.
    pub removing_replicas: Vec<NodeId>,
    /// The leader, or [`NodeId::NONE`].
    pub leader: NodeId,
    /// Grows with every election.
    pub leader_epoch: LeaderEpoch,
    /// Grows with every change.
    pub partition_epoch: PartitionEpoch,
    /// Whether an unclean election is still being repaired.
    pub leader_recovery_state: LeaderRecoveryState,
}

impl PartitionImage {
    /// Whether some broker leads it.
    pub fn has_leader(&self) -> bool {
        self.leader != NodeId::NONE
    }

    /// The first replica; [`NodeId::NONE`] without replicas.
    pub fn preferred_leader(&self) -> NodeId {
        self.replicas.first().copied().unwrap_or(NodeId::NONE)
    }

    /// Whether the first replica leads.
    pub fn has_preferred_leader(&self) -> bool {
        self.leader == self.preferred_leader()
    }

    /// Whether a reassignment is going on.
    pub fn is_reassigning(&self) -> bool {
        !self.adding_replicas.is_empty() || !self.removing_replicas.is_empty()
    }

    /// The log directory assigned to the replica on `node`; [`directory_id::MIGRATING`] where none is
    /// recorded, and without such a replica.
    pub fn directory_of(&self, node: NodeId) -> Uuid {
        let position = self.replicas.iter().position(|replica| *replica == node);
        let assigned = position.and_then(|at| self.directories.get(at).copied());
        assigned.unwrap_or(directory_id::MIGRATING)
    }

    pub(crate) fn from_record(record: &Partition) -> Self {
        PartitionImage {
            replicas: typed_nodes(&record.replicas),
            directories: record.directories.iter().copied().map(Uuid::from).collect(),
            isr: typed_nodes(&record.isr),
            eligible_leader_replicas: typed_nodes(&record.eligible_leader_replicas),
            last_known_elr: typed_nodes(&record.last_known_elr),
            adding_replicas: typed_nodes(&record.adding_replicas),
            removing_replicas: typed_nodes(&record.removing_replicas),
            leader: NodeId(record.leader),
            leader_epoch: LeaderEpoch(record.leader_epoch),
            partition_epoch: PartitionEpoch(record.partition_epoch),
            leader_recovery_state: recovery_state(record.leader_recovery_state),
        }
    }

    /// The record that gives this partition again.
    pub fn to_record(&self, topic_id: TopicId, partition: i32) -> Partition {
        Partition {
            topic_id: Some(topic_id.into()),
            partition,
            replicas: records::raw_nodes(&self.replicas),
            directories: self.directories.iter().copied().map(records::Id::from).collect(),
            isr: records::raw_nodes(&self.isr),
            eligible_leader_replicas: records::raw_nodes(&self.eligible_leader_replicas),
            last_known_elr: records::raw_nodes(&self.last_known_elr),
            adding_replicas: records::raw_nodes(&self.adding_replicas),
            removing_replicas: records::raw_nodes(&self.removing_replicas),
            leader: self.leader.get(),
            leader_epoch: self.leader_epoch.get(),
            partition_epoch: self.partition_epoch.get(),
            leader_recovery_state: i32::from(self.leader_recovery_state.code()),
        }
    }

    /// The partition after `change` (I10).
    pub fn apply_change(&mut self, change: &PartitionChange) {
        let take = |list: &Option<records::NodeList>, into: &mut Vec<NodeId>| {
            if let Some(list) = list {
                *into = typed_nodes(&list.nodes);
            }
        };
        take(&change.replicas, &mut self.replicas);
        take(&change.isr, &mut self.isr);
        take(&change.eligible_leader_replicas, &mut self.eligible_leader_replicas);
        take(&change.last_known_elr, &mut self.last_known_elr);
        take(&change.adding_replicas, &mut self.adding_replicas);
        take(&change.removing_replicas, &mut self.removing_replicas);
        if let Some(directories) = &change.directories {
            self.directories = directories.ids.iter().copied().map(Uuid::from).collect();
        }
        if let Some(leader) = change.leader {
            self.leader = NodeId(leader);
            self.leader_epoch = LeaderEpoch(self.leader_epoch.get() + 1);
        }
        if let Some(state) = change.leader_recovery_state {
            self.leader_recovery_state = recovery_state(state);
        }
        self.partition_epoch = PartitionEpoch(self.partition_epoch.get() + 1);
    }
}

/// Anything but 1 is the ordinary state: records are ours, and a third state does not exist.
fn recovery_state(code: i32) -> LeaderRecoveryState {
    if code == 1 { LeaderRecoveryState::Recovering } else { LeaderRecoveryState::Recovered }
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    /// Its name, unique among the topics that exist.
    pub name: Arc<str>,
    /// Its id, unique for ever (I01).
    pub id: TopicId,
    /// Its partitions by index.
    pub partitions: BTreeMap<i32, Arc<PartitionImage>>,
}
