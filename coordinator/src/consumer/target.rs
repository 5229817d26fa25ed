//! The target assignment: when it is computed anew, with which assignor, and the records of what
//! changed in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::Uuid;

use super::draft::Draft;
use super::group::ConsumerGroup;
use super::records::Records;
use super::settings;
use super::subscription;
use crate::assignor::{Assignor, GroupSpec, MemberSpec};
use crate::shard::{Scope, ShardConfig, Topics};

/// The assignor that most members ask for; among equals, and without any wish, the one that comes
/// first in the broker's config.
pub(super) fn preferred_assignor<'a>(config: &'a ShardConfig, group: &ConsumerGroup) -> &'a str {
    let counts = group.assignor_counts();
    let mut preferred: (usize, &str) = (0, "uniform");
    for (at, name) in config.consumer_assignors.iter().enumerate() {
        let count = counts.get(name).copied().unwrap_or(0);
        if at == 0 || count > preferred.0 {
            preferred = (count, name);
        }
    }
    preferred.1
}

/// Computes the target assignment when the group has moved past the present one, and the last
/// computation is long enough ago (`group.consumer.assignment.interval.ms`, KIP-1263). Otherwise a
/// later heartbeat, of any member, does it.
pub(super) fn maybe_update(draft: &mut Draft<'_>, scope: &Scope<'_>, group_id: &Arc<str>) {
    let group = draft.group();
    if group.epoch <= group.assignment_epoch {
        return;
    }
    let now_ms = scope.now.wall_clock_ms;
    let interval = settings::assignment_interval(scope, group_id);
    if !may_compute(group.assignment_timestamp_ms, interval, now_ms) {
        return;
    }
    let name = preferred_assignor(scope.config, group);
    let assignor = Assignor::named(name).unwrap_or(Assignor::Uniform);
    let spec = spec(group, scope.topics);
    let assignment = assignor.assign(&spec);
    let records = Records::of(group_id);
    let changed: Vec<_> = assignment
        .iter()
        .filter(|(id, target)| group.target.get(*id) != Some(*target))
        .map(|(id, target)| records.target(id, target))
        .collect();
    let epoch = group.epoch;
    draft.extend(changed);
    draft.push(records.target_epoch(epoch, now_ms));
}

fn may_compute(last_ms: i64, interval: Duration, now_ms: i64) -> bool {
    let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
    last_ms == 0 || interval_ms == 0 || now_ms >= last_ms.saturating_add(interval_ms)
}

/// The group as the assignors see it. Members with the same subscription share one set of topics.
fn spec(group: &ConsumerGroup, topics: &dyn Topics) -> GroupSpec {
    let mut spec = GroupSpec::default();
    let mut sets: BTreeMap<BTreeSet<&str>, Arc<BTreeSet<Uuid>>> = BTreeMap::new();
    for (id, member) in group.members() {
        let names = subscription::names(group, member);
        let subscribed = match sets.get(&names) {
            Some(known) => known.clone(),
            None => {
                let mut ids = BTreeSet::new();
                for name in &names {
                    if let (Some(id), Some(count)) =
                        (topics.topic_id(name), topics.partition_count(name))
                    {
                        ids.insert(id);
                        spec.partition_counts.insert(id, count);
                    }
                }
                let ids = Arc::new(ids);
                sets.insert(names, ids.clone());
                ids
            }
        };
        let assigned = group.target.get(id).cloned().unwrap_or_default();
        let instance_id = member.instance_id.clone();
        spec.members.insert(id.clone(), MemberSpec { instance_id, topics: subscribed, assigned });
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_target_waits_for_the_interval_since_the_last_one() {
        let second = Duration::from_secs(1);
        assert!(may_compute(0, second, 5));
        assert!(!may_compute(5000, second, 5999));
        assert!(may_compute(5000, second, 6000));
        assert!(may_compute(5000, Duration::ZERO, 5000));
    }
}
