//! Offsets that nobody needs any more (KIP-211), and those of deleted topics.
//!
//! | group | an offset expires when `offsets.retention.minutes` have passed since |
//! |---|---|
//! | classic, without protocol (offsets alone) | its commit |
//! | classic, empty | the group became empty; its commit, if the group does not say when |
//! | classic, stable, of consumers whose subscriptions can be read | its commit, if nobody reads the topic |
//! | classic, otherwise | never |
//! | consumer | its commit, if nobody reads the topic |
//!
//! An offset with an expiry time of its own (OffsetCommit 2 to 4) expires then instead. A group without
//! members whose last offset goes, goes too.

use std::sync::Arc;

use super::{Committed, Offsets, tombstone};
use crate::classic::State;
use crate::group::{Group, GroupKind, Groups};
use crate::record::Record;
use crate::shard::{Scope, Then, Topics};

/// Records of several groups share a write up to this many; one group is never split.
const MOST_RECORDS: usize = 500;

/// Where an offset's retention begins.
enum Since {
    Commit,
    At(i64),
    Never,
}

fn retention_begins(group: &Group) -> Since {
    match &group.kind {
        GroupKind::Consumer(_) => Since::Commit,
        GroupKind::Classic(classic) if classic.protocol_type.is_none() => Since::Commit,
        GroupKind::Classic(classic) => match classic.state {
            State::Empty => classic.state_since_ms.map_or(Since::Commit, Since::At),
            State::Stable if classic.is_consumer() && classic.subscribed.is_some() => Since::Commit,
            _ => Since::Never,
        },
    }
}

fn is_expired(offset: &Committed, since: &Since, now_ms: i64, retention_ms: i64) -> bool {
    let since_ms = match since {
        Since::Never => return false,
        Since::Commit => offset.commit_timestamp_ms,
        Since::At(ms) => *ms,
    };
    match offset.expire_timestamp_ms {
        Some(at) => now_ms >= at,
        None => now_ms.saturating_sub(since_ms) >= retention_ms,
    }
}

/// Writes tombstones for all that has expired.
pub(crate) fn expire(groups: &Groups, offsets: &Offsets, scope: &mut Scope<'_>) {
    let mut batch = Vec::new();
    for (id, group) in groups {
        let records = expired_of_group(id, group, offsets, scope);
        if batch.len() + records.len() > MOST_RECORDS && !batch.is_empty() {
            scope.output.write_unasked(std::mem::take(&mut batch), Then::Nothing);
        }
        batch.extend(records);
    }
    if !batch.is_empty() {
        scope.output.write_unasked(batch, Then::Nothing);
    }
}

fn expired_of_group(
    id: &Arc<str>,
    group: &Group,
    offsets: &Offsets,
    scope: &Scope<'_>,
) -> Vec<Record> {
    let now_ms = scope.now.wall_clock_ms;
    let retention = scope.config.offsets_retention.as_millis();
    let retention_ms = i64::try_from(retention).unwrap_or(i64::MAX);
    let since = retention_begins(group);
    let mut records = Vec::new();
    let mut is_all = true;
    for (topic, partitions) in offsets.of_group(id).into_iter().flatten() {
        let is_read = group.is_subscribed_to(topic);
        for (partition, offset) in partitions {
            if !is_read && is_expired(offset, &since, now_ms, retention_ms) {
                records.push(tombstone(id, topic, *partition));
            } else {
                is_all = false;
            }
        }
    }
    if is_all && group.is_empty() {
        records.extend(group.tombstones(id));
    }
    records
}

/// Writes tombstones for the offsets of topics that were seen before and are not there any more, or have
/// been created anew.
pub(crate) fn on_topics_changed(offsets: &mut Offsets, scope: &mut Scope<'_>) {
    let mut records = Vec::new();
    for (group, by_topic) in &offsets.by_group {
        for (topic, partitions) in by_topic {
            let now = scope.topics.topic_id(topic);
            let Some(before) = offsets.seen_topics.get(topic) else { continue };
            if now.as_ref() == Some(before) {
                continue;
            }
            let of_before = partitions
                .iter()
                .filter(|(_, offset)| offset.topic_id.is_zero() || offset.topic_id == *before);
            records.extend(of_before.map(|(at, _)| tombstone(group, topic, *at)));
        }
    }
    for chunk in records.chunks(MOST_RECORDS) {
        scope.output.write_unasked(chunk.to_vec(), Then::Nothing);
    }
    see(offsets, scope.topics);
}

/// Topics that are gone stay known until their offsets are.
fn see(offsets: &mut Offsets, topics: &dyn Topics) {
    let gone: Vec<_> = offsets
        .seen_topics
        .iter()
        .filter(|(name, id)| topics.topic_id(name) != Some(**id))
        .map(|(name, id)| (name.clone(), *id))
        .collect();
    offsets.see_topics(topics);
    let has_offsets = |name: &str| offsets.by_group.values().any(|all| all.contains_key(name));
    let kept: Vec<_> = gone.into_iter().filter(|(name, _)| has_offsets(name)).collect();
    for (name, id) in kept {
        offsets.seen_topics.entry(name).or_insert(id);
    }
}
