//! The steps that heartbeats and joins of classic members share: the member's change and what it means
//! for the group's epoch, and the member's reconciliation with the target assignment.

use std::sync::Arc;

use protocol::ErrorCode;

use super::draft::Draft;
use super::fault::Fault;
use super::member::{Member, MemberState};
use super::reconcile::{Reconciliation, UnknownState};
use super::records::Records;
use super::regexes::{self, RegexChange};
use super::{subscription, target, timers};
use crate::assignor::Partitions;
use crate::shard::Scope;

/// Writes the member if it is new or changed, and moves the group to its next epoch if its target
/// assignment is no longer right. Says whether the member's subscription changed.
pub(super) fn update_member(
    draft: &mut Draft<'_>,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    member_id: &str,
    before: &Member,
    changed: &Member,
) -> Result<bool, Fault> {
    let records = Records::of(group_id);
    let assignor = target::preferred_assignor(scope.config, draft.group());
    let regex = RegexChange::of(draft.group(), before, changed)?;
    if changed != before || draft.group().member(member_id).is_none() {
        draft.push(records.member(member_id, changed));
    }
    if let Some(gone) = regex.unsubscribed {
        draft.push(records.no_regex(gone));
    }
    regexes::maybe_refresh(draft, scope, group_id, regex.must_resolve);

    let names_changed = changed.topics != before.topics;
    let assignor_changed = target::preferred_assignor(scope.config, draft.group()) != assignor;
    let mut bump = names_changed || regex.changes_target || assignor_changed;
    if bump || metadata_is_unchecked(draft, scope) {
        let names = draft.group().subscribed_topics();
        let hash = subscription::metadata_hash(names.iter().map(String::as_str), scope.topics);
        bump |= hash != draft.group().metadata_hash;
        if bump {
            let epoch = draft.group().epoch + 1;
            draft.push(records.epoch(epoch, hash));
        }
        if draft.group().has_partition_metadata {
            draft.push(records.no_partition_metadata());
        }
    }
    Ok(names_changed || regex.changed)
}

/// Whether topics came or went since the group's hash was last compared, or what was written then
/// never made it into the log.
fn metadata_is_unchecked(draft: &Draft<'_>, scope: &Scope<'_>) -> bool {
    let group = draft.group();
    group
        .checked
        .is_none_or(|(version, epoch)| version != scope.topics.version() || group.epoch < epoch)
}

/// What to remember as compared once the request is done.
pub(super) fn checked(draft: &Draft<'_>, scope: &Scope<'_>) -> (u64, i32) {
    (scope.topics.version(), draft.group().epoch)
}

/// Moves the member a step towards its target. Returns it as it is then.
pub(super) fn reconcile(
    draft: &mut Draft<'_>,
    scope: &mut Scope<'_>,
    group_id: &Arc<str>,
    member_id: &str,
    member: Member,
    subscription_changed: bool,
    owned: Option<&Partitions>,
) -> Result<Member, Fault> {
    let group = draft.group();
    let target_epoch = group.assignment_epoch;
    if !subscription_changed && member.is_reconciled_to(target_epoch) {
        return Ok(member);
    }
    let target = group.target_of(member_id, member.instance_id.as_deref());
    let subscribed = subscription::ids(group, &member, scope.topics);
    let after = Reconciliation {
        target_epoch,
        target: &target,
        subscribed: &subscribed,
        subscription_changed,
        owned,
        is_free: &|topic, partition| group.owner(topic, partition).is_none(),
    }
    .apply(&member)
    .map_err(|UnknownState| {
        Fault::new(
            ErrorCode::FencedMemberEpoch,
            "The consumer group member is in a unknown state. The member must abandon all its \
             partitions and rejoin.",
        )
    })?;
    if after != member {
        draft.push_last(Records::of(group_id).current(member_id, &after));
        if !after.is_classic() {
            let revokes = after.state == MemberState::UnrevokedPartitions;
            timers::set_rebalance(scope, group_id, member_id, revokes, after.rebalance_timeout_ms);
        }
    }
    Ok(after)
}
