//! A group of either kind, and what both answer to.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{ErrorCode, Offset};

use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::record::Record;

/// The groups of a shard by id.
pub(crate) type Groups = BTreeMap<Arc<str>, Group>;

/// A group. That it is here says that its records, or offsets committed under its name, are in the
/// log, or that a member is about to join it.
#[derive(Debug)]
pub(crate) struct Group {
    /// The offset of the last record written or replayed for the group, its offsets included.
    pub written: Option<Offset>,
    /// Which protocol it runs.
    pub kind: GroupKind,
}

/// The protocol of a group, with its state.
#[derive(Debug)]
pub(crate) enum GroupKind {
    /// The protocol of JoinGroup and SyncGroup, or no protocol at all (offsets alone).
    Classic(ClassicGroup),
    /// The protocol of ConsumerGroupHeartbeat (KIP-848).
    Consumer(ConsumerGroup),
}

impl Group {
    pub(crate) fn classic(group: ClassicGroup) -> Group {
        Group { written: None, kind: GroupKind::Classic(group) }
    }

    pub(crate) fn consumer(group: ConsumerGroup) -> Group {
        Group { written: None, kind: GroupKind::Consumer(group) }
    }

    pub(crate) fn as_classic(&self) -> Option<&ClassicGroup> {
        match &self.kind {
            GroupKind::Classic(group) => Some(group),
            GroupKind::Consumer(_) => None,
        }
    }

    pub(crate) fn as_classic_mut(&mut self) -> Option<&mut ClassicGroup> {
        match &mut self.kind {
            GroupKind::Classic(group) => Some(group),
            GroupKind::Consumer(_) => None,
        }
    }

    pub(crate) fn as_consumer(&self) -> Option<&ConsumerGroup> {
        match &self.kind {
            GroupKind::Consumer(group) => Some(group),
            GroupKind::Classic(_) => None,
        }
    }

    pub(crate) fn as_consumer_mut(&mut self) -> Option<&mut ConsumerGroup> {
        match &mut self.kind {
            GroupKind::Consumer(group) => Some(group),
            GroupKind::Classic(_) => None,
        }
    }

    /// The name that ListGroups gives the kind.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.kind {
            GroupKind::Classic(_) => "classic",
            GroupKind::Consumer(_) => "consumer",
        }
    }

    /// The name of the state as ListGroups shows it.
    pub(crate) fn state_name(&self) -> &'static str {
        match &self.kind {
            GroupKind::Classic(group) => group.state_name(),
            GroupKind::Consumer(group) => group.state_name(),
        }
    }

    /// The protocol type: "consumer" for all groups of consumers; empty for offsets alone.
    pub(crate) fn protocol_type(&self) -> &str {
        match &self.kind {
            GroupKind::Classic(group) => group.protocol_type(),
            GroupKind::Consumer(_) => "consumer",
        }
    }

    /// Whether the group has no members.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.kind {
            GroupKind::Classic(group) => group.is_empty(),
            GroupKind::Consumer(group) => group.is_empty(),
        }
    }

    /// Whether a member reads this topic; unknown subscriptions count as reading it.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.kind {
            GroupKind::Classic(group) => group.is_subscribed_to(topic),
            GroupKind::Consumer(group) => group.is_subscribed_to(topic),
        }
    }

    /// The tombstones that delete the group, its offsets not included.
    pub(crate) fn tombstones(&self, id: &str) -> Vec<Record> {
        match &self.kind {
            GroupKind::Classic(group) => group.tombstones(id),
            GroupKind::Consumer(group) => group.tombstones(id),
        }
    }

    /// Whether the group may be deleted.
    pub(crate) fn check_delete(&self) -> Result<(), ErrorCode> {
        if self.is_empty() { Ok(()) } else { Err(ErrorCode::NonEmptyGroup) }
    }
}
