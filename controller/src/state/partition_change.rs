//! One step of one partition: from what should be (ISR, replicas, who may lead) to the record that
//! brings it there, or none when nothing changes.
//!
//! In order: a reassignment whose target replicas are all in the ISR completes (C07); who leaves an ISR
//! that is under min.insync.replicas becomes an eligible leader replica (C06, KIP-966); the leader
//! stays when it may, else the first replica of the ISR that is active and whose log directory works
//! (C08) leads (C04), of the eligible ones when the ISR is empty; without any of both the last known
//! leader does, and without that one an unclean election takes any replica, where allowed (C05). These two
//! may have lost records: the leader is the whole ISR and the partition is marked as recovering. Else nobody
//! leads. The leader epoch grows with a new leader and when replicas are dropped, not with a plain ISR
//! change or added replicas (C07, I10).
//!
//! With eligible leader replicas off the ISR is never recorded empty: the last member stays in it, fenced,
//! so that it can lead again without loss (C03). With them on it is, and the last member is eligible.
//! Unlike Kafka, a replica that a reassignment dropped is no more eligible, and min.insync.replicas counts
//! no more than the replicas of the partition itself (Kafka: of the topic's first partition).

use std::collections::BTreeSet;

use protocol::types::{NodeId, TopicId, Uuid};

use crate::image::{ClusterImage, LeaderRecoveryState, PartitionImage, directory_id};
use crate::records::{Id, IdList, NodeList, PartitionChange};

/// How a leader is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Election {
    /// Keep the leader if it may lead, else any of the ISR.
    Online,
    /// The first replica if it may lead, else as [`Election::Online`].
    Preferred,
    /// As [`Election::Online`], and outside the ISR when nobody in it is active.
    Unclean,
}

/// Collects the targets of one step.
pub(super) struct PartitionChangeBuilder<'a> {
    partition: &'a PartitionImage,
    topic_id: TopicId,
    index: i32,
    pub election: Election,
    pub target_isr: Vec<NodeId>,
    pub target_replicas: Vec<NodeId>,
    pub target_adding: Vec<NodeId>,
    pub target_removing: Vec<NodeId>,
    pub target_recovery: LeaderRecoveryState,
    target_elr: Vec<NodeId>,
    /// `min.insync.replicas` of the topic; `None` with eligible leader replicas off.
    pub min_isr: Option<usize>,
    /// A broker whose last process did not end cleanly: what it held may be lost (C06).
    pub unclean_shutdown: Option<NodeId>,
    /// A broker that may not lead although the image shows it active: the one about to leave.
    pub excluded: Option<NodeId>,
    /// Where the replica of a broker lies from now on (KIP-858).
    pub target_directory: Option<(NodeId, Uuid)>,
}

/// Whether two lists hold the same nodes, in any order.
fn same_nodes(left: &[NodeId], right: &[NodeId]) -> bool {
    left.len() == right.len() && left.iter().all(|node| right.contains(node))
}

impl<'a> PartitionChangeBuilder<'a> {
    /// Starts from the partition as it is.
    pub fn new(partition: &'a PartitionImage, topic_id: TopicId, index: i32) -> Self {
        PartitionChangeBuilder {
            partition,
            topic_id,
            index,
            election: Election::Online,
            target_isr: partition.isr.clone(),
            target_replicas: partition.replicas.clone(),
            target_adding: partition.adding_replicas.clone(),
            target_removing: partition.removing_replicas.clone(),
            target_recovery: partition.leader_recovery_state,
            target_elr: partition.eligible_leader_replicas.clone(),
            min_isr: None,
            unclean_shutdown: None,
            excluded: None,
            target_directory: None,
        }
    }

    /// The record, given who is active in `image`.
    pub fn build(mut self, image: &ClusterImage) -> Option<PartitionChange> {
        let mut change = PartitionChange {
            topic_id: Some(self.topic_id.into()),
            partition: self.index,
            ..Default::default()
        };
        let unchanged = change.clone();
        self.complete_reassignment();
        self.populate_elr();
        self.elect(image, &mut change);
        let drops_replicas =
            self.partition.replicas.iter().any(|replica| !self.target_replicas.contains(replica));
        if change.leader.is_none() && drops_replicas {
            change.leader = Some(self.partition.leader.get());
        }
        if change.isr.is_none()
            && (!self.target_isr.is_empty() || self.min_isr.is_some())
            && !same_nodes(&self.target_isr, &self.partition.isr)
        {
            change.isr = Some(NodeList::of(&self.target_isr));
        }
        if self.target_elr != self.partition.eligible_leader_replicas {
            change.eligible_leader_replicas = Some(NodeList::of(&self.target_elr));
        }
        self.set_last_known_leader(&mut change);
        self.set_assignment(image, &mut change);
        if self.target_recovery != self.partition.leader_recovery_state {
            change.leader_recovery_state = Some(i32::from(self.target_recovery.code()));
        }
        (change != unchanged).then_some(change)
    }

    fn complete_reassignment(&mut self) {
        if self.target_adding.is_empty() && self.target_removing.is_empty() {
            return;
        }
        let stays = |node: &NodeId| !self.target_removing.contains(node);
        let replicas: Vec<NodeId> = self.target_replicas.iter().copied().filter(stays).collect();
        let is_complete = !replicas.is_empty()
            && replicas.iter().all(|replica| self.target_isr.contains(replica));
        if is_complete {
            self.target_isr.retain(|node| replicas.contains(node));
            self.target_replicas = replicas;
            self.target_adding.clear();
            self.target_removing.clear();
        }
    }

    /// Whether the target ISR is as large as min.insync.replicas wants it.
    fn has_min_isr(&self) -> bool {
        let wanted = self.min_isr.unwrap_or(0).min(self.target_replicas.len());
        self.target_isr.len() >= wanted
    }

    /// Below min.insync.replicas nothing commits (H06), so that who was in the ISR then has everything
    /// that is committed until the ISR is large enough again; unless its disk may have lost some.
    fn populate_elr(&mut self) {
        if self.min_isr.is_none() || self.has_min_isr() {
            self.target_elr.clear();
            return;
        }
        let candidates: BTreeSet<NodeId> =
            self.target_elr.iter().chain(&self.partition.isr).copied().collect();
        let is_eligible = |node: &NodeId| {
            !self.target_isr.contains(node)
                && self.target_replicas.contains(node)
                && self.unclean_shutdown != Some(*node)
        };
        self.target_elr = candidates.into_iter().filter(is_eligible).collect();
    }

    /// A partition whose ISR becomes empty remembers who led it, for as long as nobody does.
    fn set_last_known_leader(&self, change: &mut PartitionChange) {
        let known = &self.partition.last_known_elr;
        let leader = change.leader.map_or(self.partition.leader, NodeId);
        let becomes_empty = change.isr.as_ref().is_some_and(|isr| isr.nodes.is_empty());
        let mut now = if self.min_isr.is_none() || leader != NodeId::NONE {
            Vec::new()
        } else if becomes_empty {
            // One that has been without a leader since before KIP-966 was on has its last one in the ISR.
            let last = Some(self.partition.leader).filter(|last| *last != NodeId::NONE);
            last.or_else(|| self.partition.isr.first().copied()).into_iter().collect()
        } else {
            known.clone()
        };
        now.retain(|node| self.target_replicas.contains(node));
        if now != *known {
            change.last_known_elr = Some(NodeList::of(&now));
        }
    }

    fn may_lead(&self, image: &ClusterImage, node: NodeId) -> bool {
        let directory = self.directory_of(image, node);
        self.excluded != Some(node)
            && image.is_active(node)
            && image.broker(node).is_some_and(|broker| broker.has_online_dir(directory))
    }

    /// Where a replica lies after this step.
    fn directory_of(&self, image: &ClusterImage, replica: NodeId) -> Uuid {
        match self.target_directory {
            Some((node, directory)) if node == replica => directory,
            _ if self.partition.replicas.contains(&replica) => self.partition.directory_of(replica),
            _ => default_directory(image, replica),
        }
    }

    fn elect(&mut self, image: &ClusterImage, change: &mut PartitionChange) {
        let eligible = if self.target_isr.is_empty() { &self.target_elr } else { &self.target_isr };
        let is_valid = |node: NodeId| {
            eligible.contains(&node)
                && self.target_replicas.contains(&node)
                && self.may_lead(image, node)
        };
        let preferred = self.target_replicas.first().copied();
        let preferred = preferred.filter(|_| self.election == Election::Preferred);
        let clean = preferred
            .into_iter()
            .chain([self.partition.leader])
            .chain(self.target_replicas.iter().copied())
            .find(|node| is_valid(*node));
        let unclean = || {
            let mut replicas = self.target_replicas.iter().copied();
            replicas.find(|node| self.may_lead(image, *node))
        };
        let is_unclean_allowed = self.election == Election::Unclean;
        let elected = clean
            .or_else(|| self.last_known_leader(image))
            .or_else(|| is_unclean_allowed.then(unclean).flatten());
        let leader = elected.unwrap_or(NodeId::NONE);
        if leader == self.partition.leader {
            return;
        }
        change.leader = Some(leader.get());
        if clean.is_none() && elected.is_some() {
            change.isr = Some(NodeList::of(&[leader]));
            self.target_elr.clear();
            self.target_recovery = LeaderRecoveryState::Recovering;
        } else if elected.is_some() && self.target_isr.is_empty() {
            self.target_isr.push(leader);
            self.target_elr.retain(|node| *node != leader);
            if self.has_min_isr() {
                self.target_elr.clear();
            }
        }
    }

    /// Who led last, if it may lead and nobody is left who certainly has everything (C06).
    fn last_known_leader(&self, image: &ClusterImage) -> Option<NodeId> {
        let known = match self.partition.last_known_elr.as_slice() {
            [known] if self.min_isr.is_some() => *known,
            _ => return None,
        };
        let is_last = self.target_isr.is_empty() && self.target_elr.is_empty();
        let is_replica = self.target_replicas.contains(&known);
        (is_last && is_replica && self.may_lead(image, known)).then_some(known)
    }

    fn set_assignment(&self, image: &ClusterImage, change: &mut PartitionChange) {
        let partition = self.partition;
        if self.target_replicas != partition.replicas {
            change.replicas = Some(NodeList::of(&self.target_replicas));
        }
        let replicas = self.target_replicas.iter();
        let directories: Vec<Uuid> =
            replicas.map(|replica| self.directory_of(image, *replica)).collect();
        if directories != partition.directories {
            change.directories =
                Some(IdList { ids: directories.into_iter().map(Id::from).collect() });
        }
        if self.target_adding != partition.adding_replicas {
            change.adding_replicas = Some(NodeList::of(&self.target_adding));
        }
        if self.target_removing != partition.removing_replicas {
            change.removing_replicas = Some(NodeList::of(&self.target_removing));
        }
    }
}

/// Where a new replica on `node` will lie, as far as the controller can know: in its only log
/// directory, else unassigned until the broker says (KIP-858).
pub(super) fn default_directory(image: &ClusterImage, node: NodeId) -> Uuid {
    match image.broker(node).map(|broker| broker.log_dirs.as_slice()) {
        Some([only]) => *only,
        Some([]) => directory_id::MIGRATING,
        _ => directory_id::UNASSIGNED,
    }
}
