//! The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use crate::record::Record;

/// A classic group.
#[derive(Debug, Default)]
pub(crate) struct ClassicGroup {}

/// What follows a write of a classic group.
#[derive(Debug)]
pub(crate) struct Then {}

impl ClassicGroup {
    pub(crate) fn state_name(&self) -> &'static str {
        "Empty"
    }

    pub(crate) fn protocol_type(&self) -> &str {
        ""
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn is_subscribed_to(&self, _topic: &str) -> bool {
        false
    }

    pub(crate) fn tombstones(&self, _id: &str) -> Vec<Record> {
        Vec::new()
    }
}
