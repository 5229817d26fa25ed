//! The consumer group protocol (KIP-848): the coordinator assigns partitions, and members follow at
//! their own pace.
//!
//! Three epochs tell where things stand. The *group epoch* grows when something changed that the target
//! assignment depends on. The *assignment epoch* is the group epoch that the target assignment was
//! computed for. A *member's epoch* is the assignment epoch it has come to. They follow each other, and
//! none goes back.
//!
//! | file | what it decides |
//! |---|---|
//! | `heartbeat` | the heartbeat, from request to answer |
//! | `base` | which group a request finds, begins or converts |
//! | `draft` | records as they are decided on; replaying them |
//! | `membership` | who is a member: joining, static members, leaving, being thrown out |
//! | `step` | what a member's change means for the group; its step towards the target |
//! | `target` | when the target assignment is computed, and with which assignor |
//! | `reconcile` | the member's state machine |
//! | `regexes`, `pattern`, `subscription` | regular expressions, and the topics that members subscribe to |
//! | `classic`, `convert` | members of the classic protocol; groups that change their protocol |
//! | `describe` | the description, and the epochs that commits and fetches carry |
//! | `group`, `member` | the state that records make |
//!
//! Invariants: a partition has one owner at most (`reconcile`, and the index in `group`); epochs do not
//! go back; what is in the log makes the same group as living through it (`draft`).
//!
//! # The interface with the shard
//!
//! The shard calls [`heartbeat`] and [`describe`] for the APIs 68 and 69, whatever the group is now;
//! [`join`], [`sync`], [`classic_heartbeat`] and [`leave`] for the classic APIs when the group is a
//! consumer group; [`replay`] for every record of the kinds 3 to 8 and 16, while loading and after an
//! own write; [`on_timer`] for due timers of the kinds `TimerKey::Consumer*`; [`on_written`] and
//! [`on_write_failed`] for writes whose `then` is `Then::Consumer`, after the records were replayed;
//! [`on_loaded`] once, and [`on_topics_changed`] whenever topics come or go.

mod base;
mod classic;
mod convert;
mod describe;
mod draft;
mod fault;
mod group;
mod heartbeat;
mod member;
mod membership;
mod pattern;
mod reconcile;
mod records;
mod regexes;
mod settings;
mod step;
mod subscription;
mod target;
#[cfg(test)]
mod tests;
mod timers;

use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, Offset};

pub(crate) use classic::{classic_heartbeat, join, leave, sync};
pub(crate) use describe::describe;
pub(crate) use group::ConsumerGroup;
pub(crate) use heartbeat::heartbeat;

use crate::group::{Group, GroupKind, Groups};
use crate::record::Record;
use crate::shard::{Scope, TimerKey};
use member::{LEAVE_STATIC_EPOCH, Member, MemberState};
use records::Records;

/// What follows a write of a consumer group.
#[derive(Debug)]
pub(crate) enum Then {
    /// Nothing; if it failed, the group's timers are looked after.
    Nothing { group: Arc<str> },
    /// The group is a classic one now.
    Downgraded {
        group: Arc<str>,
        /// Its members must join again.
        rebalance: bool,
    },
}

impl ConsumerGroup {
    /// The tombstones of everything the group has in the log but its offsets.
    pub(crate) fn tombstones(&self, id: &str) -> Vec<Record> {
        let records = Records::of(&Arc::from(id));
        let mut tombstones = Vec::with_capacity(3 * self.members().len() + self.regexes.len() + 3);
        tombstones.extend(self.members().keys().map(|member| records.no_current(member)));
        tombstones.extend(self.members().keys().map(|member| records.no_target(member)));
        tombstones.push(records.no_target_epoch());
        tombstones.extend(self.members().keys().map(|member| records.no_member(member)));
        tombstones.extend(self.regexes.keys().map(|regex| records.no_regex(regex)));
        tombstones.push(records.no_partition_metadata());
        tombstones.push(records.no_epoch());
        tombstones
    }
}

/// Takes in a record of a consumer group. A value begins the group, in place of a classic one if need
/// be; the tombstone of its epoch ends it.
pub(crate) fn replay(groups: &mut Groups, record: &Record, _offset: Offset, _timestamp_ms: i64) {
    let Some((id, is_value)) = of_group(record) else { return };
    if let Record::ConsumerGroupMetadata(_, None) = record {
        if groups.get(id).is_some_and(|group| group.as_consumer().is_some()) {
            groups.remove(id);
        }
        return;
    }
    if is_value {
        let group = groups
            .entry(Arc::from(id))
            .or_insert_with(|| Group::consumer(ConsumerGroup::default()));
        if group.as_consumer().is_none() {
            group.kind = GroupKind::Consumer(ConsumerGroup::default());
        }
    }
    if let Some(group) = groups.get_mut(id).and_then(Group::as_consumer_mut) {
        draft::apply(group, record);
    }
}

/// The group of a record of these kinds, and whether it has a value.
fn of_group(record: &Record) -> Option<(&str, bool)> {
    Some(match record {
        Record::ConsumerGroupMetadata(key, value) => (&key.group_id, value.is_some()),
        Record::ConsumerGroupPartitionMetadata(key, value) => (&key.group_id, value.is_some()),
        Record::ConsumerGroupMemberMetadata(key, value) => (&key.group_id, value.is_some()),
        Record::ConsumerGroupTargetAssignmentMetadata(key, value) => {
            (&key.group_id, value.is_some())
        }
        Record::ConsumerGroupTargetAssignmentMember(key, value) => (&key.group_id, value.is_some()),
        Record::ConsumerGroupCurrentMemberAssignment(key, value) => {
            (&key.group_id, value.is_some())
        }
        Record::ConsumerGroupRegularExpression(key, value) => (&key.group_id, value.is_some()),
        _ => return None,
    })
}

/// A timer of a consumer group is due.
pub(crate) fn on_timer(groups: &mut Groups, scope: &mut Scope<'_>, key: TimerKey) {
    if is_about_to_change(scope, &key) {
        // What it decides must see the records that are on their way: it comes again after them.
        return scope.timers.set(key, scope.now.monotonic + AFTER_WRITE);
    }
    match key {
        TimerKey::ConsumerSession { group, member }
        | TimerKey::ConsumerJoin { group, member }
        | TimerKey::ConsumerSync { group, member } => {
            throw_out(groups, scope, &group, &member, |_| true);
        }
        TimerKey::ConsumerRebalance { group, member } => {
            throw_out(groups, scope, &group, &member, |member| {
                member.state == MemberState::UnrevokedPartitions
                    && member.epoch != LEAVE_STATIC_EPOCH
            });
        }
        TimerKey::ConsumerRegex { group } => regexes::resolve(groups, scope, &group),
        _ => {}
    }
}

/// How much later a timer comes again that came due together with another of its group.
const AFTER_WRITE: Duration = Duration::from_millis(1);

/// Whether this input has records for the timer's group already.
fn is_about_to_change(scope: &Scope<'_>, key: &TimerKey) -> bool {
    let (TimerKey::ConsumerSession { group, .. }
    | TimerKey::ConsumerRebalance { group, .. }
    | TimerKey::ConsumerJoin { group, .. }
    | TimerKey::ConsumerSync { group, .. }
    | TimerKey::ConsumerRegex { group }) = key
    else {
        return false;
    };
    scope.output.writes.iter().flat_map(|write| &write.records).any(|r| r.group() == &**group)
}

/// Throws a member out whose time is up, if it is still a member and still to be thrown out.
fn throw_out(
    groups: &Groups,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    member_id: &str,
    is_due: impl FnOnce(&Member) -> bool,
) {
    let Some(group) = groups.get(group_id).and_then(Group::as_consumer) else { return };
    if group.member(member_id).is_some_and(is_due) {
        membership::fence(group, scope, group_id, &[member_id]).write(scope, group_id);
    }
}

/// A write with this `then` is done and replayed.
pub(crate) fn on_written(groups: &mut Groups, scope: &mut Scope<'_>, then: Then) {
    match then {
        Then::Nothing { .. } => {}
        Then::Downgraded { group, rebalance } => {
            crate::classic::start_sessions(groups, scope, &group);
            if rebalance {
                crate::classic::rebalance(groups, scope, &group);
            }
        }
    }
}

/// A write with this `then` has failed. Its answers are given out by the shard. Timers that were set as
/// if it would succeed stay, and find nothing to do; those that were taken away are set again.
pub(crate) fn on_write_failed(
    groups: &mut Groups,
    scope: &mut Scope<'_>,
    then: Then,
    _error: ErrorCode,
) {
    let (Then::Nothing { group } | Then::Downgraded { group, .. }) = then;
    start_timers(groups, scope, &group);
}

/// The partition is loaded: sessions of all members begin anew.
pub(crate) fn on_loaded(groups: &mut Groups, scope: &mut Scope<'_>) {
    let ids: Vec<Arc<str>> = groups.keys().cloned().collect();
    for id in ids {
        start_timers(groups, scope, &id);
    }
}

/// Starts the sessions that do not run, and for members of the new protocol the time to give up
/// partitions.
fn start_timers(groups: &Groups, scope: &mut Scope<'_>, group_id: &Arc<str>) {
    let Some(group) = groups.get(group_id).and_then(Group::as_consumer) else { return };
    for (id, member) in group.members() {
        if timers::has_session(scope, group_id, id) {
            continue;
        }
        let timeout = match &member.classic {
            Some(classic) => settings::from_ms(classic.session_timeout_ms),
            None => settings::session_timeout(scope, group_id),
        };
        timers::start_session(scope, group_id, id, timeout);
        if !member.is_classic() && member.state == MemberState::UnrevokedPartitions {
            timers::set_rebalance(scope, group_id, id, true, member.rebalance_timeout_ms);
        }
    }
}

/// Topics or partitions came or went: nothing to do at once. Every group compares its hash, and
/// resolves its regular expressions, with the next heartbeat of any of its members.
pub(crate) fn on_topics_changed(_groups: &mut Groups, _scope: &mut Scope<'_>) {}
