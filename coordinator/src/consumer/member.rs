//! A member of a consumer group: what it asked for, what it owns, and how far it has come towards
//! its target assignment.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Uuid;
use protocol::messages::consumer_group_current_member_assignment_value::TopicPartitions;
use protocol::messages::consumer_group_member_metadata_value::ClassicMemberMetadata;
use protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
};

use crate::assignor::Partitions;

/// Partitions that a member owns, each with the epoch at which it got it (KIP-1251). Holds no topic
/// without partitions.
pub(super) type Owned = BTreeMap<Uuid, BTreeMap<i32, i32>>;

/// The epoch of a member that leaves for good, in requests; also that of a member whose assignment
/// was taken back by a tombstone.
pub(super) const LEAVE_EPOCH: i32 = -1;
/// The epoch of a static member that leaves and means to come back.
pub(super) const LEAVE_STATIC_EPOCH: i32 = -2;

/// How far a member has come (KIP-848, "Member reconciliation").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum MemberState {
    /// It has what the epoch it is in gives it.
    #[default]
    Stable,
    /// It was told to give up partitions and has not said yet that it did.
    UnrevokedPartitions,
    /// It waits for partitions that other members have not given up yet.
    UnreleasedPartitions,
    /// A state written by another release.
    Unknown(i8),
}

impl MemberState {
    fn from_i8(value: i8) -> MemberState {
        match value {
            0 => MemberState::Stable,
            1 => MemberState::UnrevokedPartitions,
            2 => MemberState::UnreleasedPartitions,
            other => MemberState::Unknown(other),
        }
    }

    fn to_i8(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::UnrevokedPartitions => 1,
            MemberState::UnreleasedPartitions => 2,
            MemberState::Unknown(value) => value,
        }
    }
}

/// A member as the log has it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    /// The epoch it is in; the generation, for a classic member.
    pub epoch: i32,
    /// The epoch it was in before: its answer with the new one may have been lost.
    pub previous_epoch: i32,
    /// How far it has come.
    pub state: MemberState,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// `client.rack`
    pub rack_id: Option<String>,
    /// `client.id`
    pub client_id: String,
    /// The address of the client as Kafka writes it.
    pub client_host: String,
    /// Topics it names.
    pub topics: BTreeSet<String>,
    /// The regular expression it subscribes with; empty without one.
    pub regex: String,
    /// How long it may take to give partitions up, in milliseconds; -1 when it never said.
    pub rebalance_timeout_ms: i32,
    /// The assignor it asks for.
    pub server_assignor: Option<String>,
    /// Set while it speaks the classic protocol.
    pub classic: Option<ClassicMemberMetadata>,
    /// What it may read.
    pub assigned: Owned,
    /// What it must give up.
    pub revoking: Owned,
}

impl Default for Member {
    fn default() -> Member {
        Member {
            epoch: 0,
            previous_epoch: 0,
            state: MemberState::Stable,
            instance_id: None,
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            topics: BTreeSet::new(),
            regex: String::new(),
            rebalance_timeout_ms: -1,
            server_assignor: None,
            classic: None,
            assigned: Owned::new(),
            revoking: Owned::new(),
        }
    }
}

impl Member {
    /// Whether it has all that the target assignment of this epoch gives it.
    pub(super) fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }

    /// Whether it speaks the classic protocol.
    pub(super) fn is_classic(&self) -> bool {
        self.classic.is_some()
    }

    /// Everything that no other member may have while this one is here.
    pub(super) fn holds(&self) -> impl Iterator<Item = (Uuid, i32)> + '_ {
        self.assigned.iter().chain(&self.revoking).flat_map(|(topic, partitions)| {
            partitions.keys().map(move |partition| (*topic, *partition))
        })
    }

    /// Moves to an epoch, or confirms the one it is in: a client that still sends the epoch before the
    /// last change is then out of date.
    pub(super) fn advance_to(&mut self, epoch: i32) {
        self.previous_epoch = self.epoch;
        self.epoch = epoch;
    }

    /// What it has, whoever comes back as this static member has from its first epoch on.
    pub(super) fn forget_since_when(&mut self) {
        for epoch in self.assigned.values_mut().flat_map(|partitions| partitions.values_mut()) {
            *epoch = 0;
        }
    }

    /// Takes in what a record of kind 5 says.
    pub(super) fn update_metadata(&mut self, value: &ConsumerGroupMemberMetadataValue) {
        self.instance_id.clone_from(&value.instance_id);
        self.rack_id.clone_from(&value.rack_id);
        self.client_id.clone_from(&value.client_id);
        self.client_host.clone_from(&value.client_host);
        self.topics = value.subscribed_topic_names.iter().cloned().collect();
        self.regex = value.subscribed_topic_regex.clone().unwrap_or_default();
        self.rebalance_timeout_ms = value.rebalance_timeout_ms;
        self.server_assignor.clone_from(&value.server_assignor);
        self.classic.clone_from(&value.classic_member_metadata);
    }

    /// The record of kind 5.
    pub(super) fn metadata_value(&self) -> ConsumerGroupMemberMetadataValue {
        ConsumerGroupMemberMetadataValue {
            instance_id: self.instance_id.clone(),
            rack_id: self.rack_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            subscribed_topic_names: self.topics.iter().cloned().collect(),
            subscribed_topic_regex: Some(self.regex.clone()),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            server_assignor: self.server_assignor.clone(),
            classic_member_metadata: self.classic.clone(),
            ..Default::default()
        }
    }

    /// Takes in what a record of kind 8 says.
    pub(super) fn update_assignment(&mut self, value: &ConsumerGroupCurrentMemberAssignmentValue) {
        self.epoch = value.member_epoch;
        self.previous_epoch = value.previous_member_epoch;
        self.state = MemberState::from_i8(value.state);
        self.assigned = owned(&value.assigned_partitions, value.member_epoch);
        self.revoking = owned(&value.partitions_pending_revocation, value.member_epoch);
    }

    /// The record of kind 8.
    pub(super) fn assignment_value(&self) -> ConsumerGroupCurrentMemberAssignmentValue {
        ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous_epoch,
            state: self.state.to_i8(),
            assigned_partitions: topic_partitions(&self.assigned),
            partitions_pending_revocation: topic_partitions(&self.revoking),
            ..Default::default()
        }
    }

    /// The tombstone of kind 8: it owns nothing and is on its way out.
    pub(super) fn take_assignment_back(&mut self) {
        self.epoch = LEAVE_EPOCH;
        self.previous_epoch = LEAVE_EPOCH;
        self.assigned.clear();
        self.revoking.clear();
    }
}

/// Releases before KIP-1251 wrote no epochs: then the member's own stands for all.
fn owned(topics: &[TopicPartitions], member_epoch: i32) -> Owned {
    let mut owned = Owned::new();
    for topic in topics {
        let epochs = topic.assignment_epochs.as_deref().unwrap_or_default();
        let of_topic: &mut BTreeMap<i32, i32> = owned.entry(topic.topic_id).or_default();
        for (at, partition) in topic.partitions.iter().enumerate() {
            of_topic.insert(*partition, epochs.get(at).copied().unwrap_or(member_epoch));
        }
    }
    owned.retain(|_, partitions| !partitions.is_empty());
    owned
}

fn topic_partitions(owned: &Owned) -> Vec<TopicPartitions> {
    owned
        .iter()
        .map(|(topic, partitions)| TopicPartitions {
            topic_id: *topic,
            partitions: partitions.keys().copied().collect(),
            assignment_epochs: Some(partitions.values().copied().collect()),
            ..Default::default()
        })
        .collect()
}

/// The partitions without their epochs.
pub(super) fn partitions_of(owned: &Owned) -> Partitions {
    owned.iter().map(|(topic, of_topic)| (*topic, of_topic.keys().copied().collect())).collect()
}

/// Partitions that are all owned from one epoch on.
pub(super) fn owned_since(partitions: &Partitions, epoch: i32) -> Owned {
    partitions
        .iter()
        .map(|(topic, of_topic)| (*topic, of_topic.iter().map(|at| (*at, epoch)).collect()))
        .collect()
}
