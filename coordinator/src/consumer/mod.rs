//! The consumer group protocol (KIP-848).
//!
//! # The interface with the shard
//!
//! The shard calls, and this folder defines:
//!
//! - [`heartbeat`] and [`describe`] for the APIs 68 and 69, whatever the group is (or is not) now. They
//!   answer through `scope.output` (`answer`, `answer_seen`, `write`).
//! - [`join`], [`sync`], [`classic_heartbeat`] and [`leave`] for the classic APIs when the group is a
//!   consumer group.
//! - [`replay`] for every record of the kinds 3 to 8 and 16, while loading and after an own write.
//!   Only `replay` changes what the log holds.
//! - [`on_timer`] for due timers of the kinds `TimerKey::Consumer*`.
//! - [`on_written`] and [`on_write_failed`] for writes whose `then` is `Then::Consumer`; after the
//!   records were replayed, and before the answers of the write are given out.
//! - [`on_loaded`] once, and [`on_topics_changed`] whenever topics come or go, for all groups.
//! - the methods of [`ConsumerGroup`] that `group.rs` and `offsets/` use.
//!
//! A group is put in place of another kind (upgrade, downgrade) by records alone: tombstones of the old
//! kind, values of the new, in one write; `replay` of either kind replaces a group of the other.

use protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest,
};
use protocol::{ErrorCode, Offset};

use crate::group::Groups;
use crate::record::Record;
use crate::shard::{Call, Scope, TimerKey};

/// A consumer group.
#[derive(Debug, Default)]
pub(crate) struct ConsumerGroup {}

/// What follows a write of a consumer group.
#[derive(Debug)]
pub(crate) struct Then {}

impl ConsumerGroup {
    /// `Empty`, `Assigning`, `Reconciling`, `Stable` or `Dead`.
    pub(crate) fn state_name(&self) -> &'static str {
        "Empty"
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    /// Whether a member subscribes to the topic.
    pub(crate) fn is_subscribed_to(&self, _topic: &str) -> bool {
        false
    }

    /// The tombstones of everything the group has in the log but its offsets.
    pub(crate) fn tombstones(&self, _id: &str) -> Vec<Record> {
        Vec::new()
    }

    /// Whether this member may commit offsets. `version` is that of OffsetCommit.
    pub(crate) fn check_commit(
        &self,
        _member_id: &str,
        _instance_id: Option<&str>,
        _epoch: i32,
        _version: i16,
    ) -> Result<(), ErrorCode> {
        Ok(())
    }

    /// Whether this member may fetch offsets; `None` and a negative epoch come from outside the group.
    pub(crate) fn check_fetch(
        &self,
        _member_id: Option<&str>,
        _epoch: i32,
    ) -> Result<(), ErrorCode> {
        Ok(())
    }
}

/// ConsumerGroupHeartbeat.
pub(crate) fn heartbeat(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: ConsumerGroupHeartbeatRequest,
) {
}

/// ConsumerGroupDescribe.
pub(crate) fn describe(
    _groups: &Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: ConsumerGroupDescribeRequest,
) {
}

/// JoinGroup to a consumer group.
pub(crate) fn join(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: JoinGroupRequest,
) {
}

/// SyncGroup to a consumer group.
pub(crate) fn sync(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: SyncGroupRequest,
) {
}

/// Heartbeat of a classic member of a consumer group.
pub(crate) fn classic_heartbeat(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: HeartbeatRequest,
) {
}

/// LeaveGroup to a consumer group.
pub(crate) fn leave(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _call: Call<'_>,
    _request: LeaveGroupRequest,
) {
}

/// Takes in a record of a consumer group.
pub(crate) fn replay(_groups: &mut Groups, _record: &Record, _offset: Offset, _timestamp_ms: i64) {}

/// A timer of a consumer group is due.
pub(crate) fn on_timer(_groups: &mut Groups, _scope: &mut Scope<'_>, _key: TimerKey) {}

/// A write with this `then` is done and replayed.
pub(crate) fn on_written(_groups: &mut Groups, _scope: &mut Scope<'_>, _then: Then) {}

/// A write with this `then` has failed. Its answers are given out by the shard.
pub(crate) fn on_write_failed(
    _groups: &mut Groups,
    _scope: &mut Scope<'_>,
    _then: Then,
    _error: ErrorCode,
) {
}

/// The partition is loaded: sessions of all members begin anew.
pub(crate) fn on_loaded(_groups: &mut Groups, _scope: &mut Scope<'_>) {}

/// Topics or partitions came or went.
pub(crate) fn on_topics_changed(_groups: &mut Groups, _scope: &mut Scope<'_>) {}
