//! The timers of members: the session, the time to give up partitions, and for classic members the
//! time to join again and to ask for the assignment.

use std::sync::Arc;
use std::time::Duration;

use super::settings;
use crate::shard::{Scope, TimerKey};

fn session(group: &Arc<str>, member: &str) -> TimerKey {
    TimerKey::ConsumerSession { group: group.clone(), member: member.into() }
}

fn rebalance(group: &Arc<str>, member: &str) -> TimerKey {
    TimerKey::ConsumerRebalance { group: group.clone(), member: member.into() }
}

fn join(group: &Arc<str>, member: &str) -> TimerKey {
    TimerKey::ConsumerJoin { group: group.clone(), member: member.into() }
}

fn sync(group: &Arc<str>, member: &str) -> TimerKey {
    TimerKey::ConsumerSync { group: group.clone(), member: member.into() }
}

fn set(scope: &mut Scope<'_>, key: TimerKey, after: Duration) {
    scope.timers.set(key, scope.now.monotonic + after);
}

/// The member was heard of.
pub(super) fn start_session(
    scope: &mut Scope<'_>,
    group: &Arc<str>,
    member: &str,
    timeout: Duration,
) {
    set(scope, session(group, member), timeout);
}

/// Whether the member's session runs.
pub(super) fn has_session(scope: &Scope<'_>, group: &Arc<str>, member: &str) -> bool {
    scope.timers.get(&session(group, member)).is_some()
}

/// The member has to give up partitions, or has no longer.
pub(super) fn set_rebalance(
    scope: &mut Scope<'_>,
    group: &Arc<str>,
    member: &str,
    revokes: bool,
    timeout_ms: i32,
) {
    let key = rebalance(group, member);
    if revokes {
        set(scope, key, settings::from_ms(timeout_ms));
    } else {
        scope.timers.cancel(&key);
    }
}

/// A classic member was told to join again. The first telling counts.
pub(super) fn expect_join(scope: &mut Scope<'_>, group: &Arc<str>, member: &str, timeout_ms: i32) {
    let key = join(group, member);
    if scope.timers.get(&key).is_none() {
        set(scope, key, settings::from_ms(timeout_ms));
    }
}

/// A classic member joined and is to ask for its assignment.
pub(super) fn expect_sync(scope: &mut Scope<'_>, group: &Arc<str>, member: &str, timeout_ms: i32) {
    scope.timers.cancel(&join(group, member));
    set(scope, sync(group, member), settings::from_ms(timeout_ms));
}

/// A classic member asked for its assignment.
pub(super) fn synced(scope: &mut Scope<'_>, group: &Arc<str>, member: &str) {
    scope.timers.cancel(&sync(group, member));
}

/// The member is gone.
pub(super) fn cancel(scope: &mut Scope<'_>, group: &Arc<str>, member: &str) {
    for key in
        [session(group, member), rebalance(group, member), join(group, member), sync(group, member)]
    {
        scope.timers.cancel(&key);
    }
}

/// The group's regular expressions are to be resolved right after this input.
pub(super) fn resolve_regexes(scope: &mut Scope<'_>, group: &Arc<str>) {
    set(scope, TimerKey::ConsumerRegex { group: group.clone() }, Duration::ZERO);
}

/// Whether they are about to be.
pub(super) fn will_resolve_regexes(scope: &Scope<'_>, group: &Arc<str>) -> bool {
    scope.timers.get(&TimerKey::ConsumerRegex { group: group.clone() }).is_some()
}
