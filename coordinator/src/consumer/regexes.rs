//! Regular expressions of a group: what a member's change of its own means, when all are resolved
//! anew, and the records of that.
//!
//! Resolving is a step of its own after the request that asks for it, with its own records: the
//! request is answered with what was known, and the group moves to its next epoch when the topics are.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::ErrorCode;

use super::base;
use super::draft::Draft;
use super::fault::Fault;
use super::group::{ConsumerGroup, ResolvedRegex};
use super::member::Member;
use super::pattern::Pattern;
use super::records::Records;
use super::{subscription, timers};
use crate::group::Groups;
use crate::shard::Scope;

/// Regular expressions are not resolved more often than this, in milliseconds.
const LEAST_BETWEEN_MS: i64 = 10_000;

/// What a member's change means for the regular expressions of its group.
pub(super) struct RegexChange<'a> {
    /// The member has another one, or none any more.
    pub changed: bool,
    /// The target assignment can and must follow at once. It waits while the new one is not resolved.
    pub changes_target: bool,
    /// Nobody has this one any more.
    pub unsubscribed: Option<&'a str>,
    /// Nobody had the new one before.
    pub must_resolve: bool,
}

impl<'a> RegexChange<'a> {
    /// Compares the member with what it was; `group` is the group before the change.
    pub(super) fn of(
        group: &ConsumerGroup,
        before: &'a Member,
        after: &Member,
    ) -> Result<RegexChange<'a>, Fault> {
        let mut change = RegexChange {
            changed: before.regex != after.regex,
            changes_target: false,
            unsubscribed: None,
            must_resolve: false,
        };
        if !change.changed {
            return Ok(change);
        }
        if !before.regex.is_empty() && group.regex_subscribers(&before.regex) == 1 {
            change.unsubscribed = Some(&before.regex);
        }
        if after.regex.is_empty() {
            change.changes_target = true;
        } else if group.regex_subscribers(&after.regex) == 0 {
            check(&after.regex)?;
            change.must_resolve = true;
        } else {
            change.changes_target = group.regexes.contains_key(&after.regex);
        }
        Ok(change)
    }
}

fn check(regex: &str) -> Result<(), Fault> {
    Pattern::compile(regex).map(drop).map_err(|reason| {
        Fault::new(
            ErrorCode::InvalidRegularExpression,
            format!("SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}."),
        )
    })
}

/// Sets the resolving in motion if it is due: for the group with the request's change in it, by what
/// the group before it had resolved and when.
pub(super) fn maybe_refresh(
    draft: &Draft<'_>,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    must_resolve: bool,
) {
    let group = draft.base();
    let subscribed = draft.group().subscribed_regexes().count();
    if subscribed == 0 || timers::will_resolve_regexes(scope, group_id) {
        return;
    }
    let now_ms = scope.now.wall_clock_ms;
    let due = match group.last_resolution() {
        None => true,
        Some(last) if now_ms <= last.timestamp_ms.saturating_add(LEAST_BETWEEN_MS) => false,
        Some(last) => {
            let interval = scope.config.consumer_regex_refresh_interval.as_millis();
            let interval_ms = i64::try_from(interval).unwrap_or(i64::MAX);
            must_resolve
                || subscribed != group.regexes.len()
                || last.version != version(scope)
                || now_ms > last.timestamp_ms.saturating_add(interval_ms)
        }
    };
    if due {
        timers::resolve_regexes(scope, group_id);
    }
}

/// The version of the cluster's metadata as records carry it.
fn version(scope: &Scope<'_>) -> i64 {
    i64::try_from(scope.topics.version()).unwrap_or(i64::MAX)
}

/// Resolves all regular expressions of the group.
pub(super) fn resolve(groups: &mut Groups, scope: &mut Scope<'_>, group_id: &Arc<str>) {
    let Some(group) = groups.get(group_id).and_then(|group| group.as_consumer()) else { return };
    let records = Records::of(group_id);
    let mut draft = Draft::of(group);
    let mut bump = false;
    for regex in group.subscribed_regexes() {
        // One that another implementation let pass and this one cannot read stands for nothing.
        let topics = match Pattern::compile(regex) {
            Ok(pattern) => subscription::matching(&pattern, scope.topics),
            Err(_) => BTreeSet::new(),
        };
        let before = group.regexes.get(regex).map(|resolved| &resolved.topics);
        bump |= before.map_or(!topics.is_empty(), |before| *before != topics);
        let timestamp_ms = scope.now.wall_clock_ms;
        let resolved = ResolvedRegex { topics, version: version(scope), timestamp_ms };
        draft.push(records.regex(regex, &resolved));
    }
    let names = draft.group().subscribed_topics();
    let hash = subscription::metadata_hash(names.iter().map(String::as_str), scope.topics);
    bump |= hash != group.metadata_hash;
    let epoch = group.epoch + i32::from(bump);
    if bump {
        draft.push(records.epoch(epoch, hash));
    }
    let records = draft.into_records();
    base::write(scope, group_id, records, Vec::new());
    base::note_checked(groups, group_id, (scope.topics.version(), epoch));
}
