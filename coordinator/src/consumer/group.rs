//! The state of a consumer group: what its records say, and the counts and indexes that follow from
//! that. Only `replay` changes it, but for what is named soft.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Uuid;

use super::member::Member;
use crate::assignor::Partitions;

/// The epoch of a group, and of its target assignment, before anything was written.
pub(super) const FIRST_EPOCH: i32 = 1;

/// The topics that a regular expression stood for when it was last resolved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ResolvedRegex {
    /// Their names.
    pub topics: BTreeSet<String>,
    /// The version of the cluster's metadata it was resolved with.
    pub version: i64,
    /// When, by the wall clock.
    pub timestamp_ms: i64,
}

/// A consumer group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ConsumerGroup {
    /// Grows whenever the target assignment must be computed anew.
    pub(super) epoch: i32,
    /// A hash of the subscribed topics as they were at that epoch.
    pub(super) metadata_hash: i64,
    /// The epoch that the target assignment was computed for.
    pub(super) assignment_epoch: i32,
    /// When it was computed, by the wall clock; zero: the next one need not wait.
    pub(super) assignment_timestamp_ms: i64,
    /// The target assignment, by member.
    pub(super) target: BTreeMap<Arc<str>, Partitions>,
    /// Every regular expression that was resolved.
    pub(super) regexes: BTreeMap<String, ResolvedRegex>,
    /// A record of kind 4 is in the log and is to be taken back.
    pub(super) has_partition_metadata: bool,
    members: BTreeMap<Arc<str>, Member>,
    static_members: BTreeMap<String, Arc<str>>,
    /// Who holds each partition.
    owners: BTreeMap<(Uuid, i32), Arc<str>>,
    counts: Counts,
    /// Soft: the metadata version and group epoch at which the hash was last compared.
    pub(super) checked: Option<(u64, i32)>,
}

/// How many members have something in common.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counts {
    topics: BTreeMap<String, usize>,
    regexes: BTreeMap<String, usize>,
    assignors: BTreeMap<String, usize>,
    classic: usize,
    classic_protocols: BTreeMap<String, usize>,
}

impl Default for ConsumerGroup {
    fn default() -> ConsumerGroup {
        ConsumerGroup {
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            assignment_epoch: FIRST_EPOCH,
            assignment_timestamp_ms: 0,
            target: BTreeMap::new(),
            regexes: BTreeMap::new(),
            has_partition_metadata: false,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            owners: BTreeMap::new(),
            counts: Counts::default(),
            checked: None,
        }
    }
}

fn add<'a>(counts: &mut BTreeMap<String, usize>, names: impl IntoIterator<Item = &'a String>) {
    for name in names {
        *counts.entry(name.clone()).or_default() += 1;
    }
}

fn subtract<'a>(counts: &mut BTreeMap<String, usize>, names: impl IntoIterator<Item = &'a String>) {
    for name in names {
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}

impl Counts {
    fn add(&mut self, member: &Member) {
        add(&mut self.topics, &member.topics);
        add(&mut self.regexes, Some(&member.regex).filter(|regex| !regex.is_empty()));
        add(&mut self.assignors, &member.server_assignor);
        self.classic += usize::from(member.is_classic());
        let protocols = member.classic.iter().flat_map(|classic| &classic.supported_protocols);
        add(&mut self.classic_protocols, protocols.map(|protocol| &protocol.name));
    }

    fn subtract(&mut self, member: &Member) {
        subtract(&mut self.topics, &member.topics);
        subtract(&mut self.regexes, Some(&member.regex).filter(|regex| !regex.is_empty()));
        subtract(&mut self.assignors, &member.server_assignor);
        self.classic -= usize::from(member.is_classic());
        let protocols = member.classic.iter().flat_map(|classic| &classic.supported_protocols);
        subtract(&mut self.classic_protocols, protocols.map(|protocol| &protocol.name));
    }
}

impl ConsumerGroup {
    /// The members by id.
    pub(super) fn members(&self) -> &BTreeMap<Arc<str>, Member> {
        &self.members
    }

    /// The member with this id.
    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// The member with this instance id, and its member id.
    pub(super) fn static_member(&self, instance_id: &str) -> Option<(&Arc<str>, &Member)> {
        let id = self.static_members.get(instance_id)?;
        self.members.get_key_value(id)
    }

    /// Puts a member in, or in place of what it was before, with all that follows.
    pub(super) fn put_member(&mut self, id: &str, member: Member) {
        let id = self.take_out(id).unwrap_or_else(|| Arc::from(id));
        self.counts.add(&member);
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), id.clone());
        }
        for partition in member.holds() {
            self.owners.insert(partition, id.clone());
        }
        self.members.insert(id, member);
    }

    /// Takes a member out with all that follows.
    pub(super) fn remove_member(&mut self, id: &str) {
        self.take_out(id);
    }

    fn take_out(&mut self, id: &str) -> Option<Arc<str>> {
        let (id, member) = self.members.remove_entry(id)?;
        self.counts.subtract(&member);
        if let Some(instance_id) = &member.instance_id
            && self.static_members.get(instance_id) == Some(&id)
        {
            self.static_members.remove(instance_id);
        }
        for partition in member.holds() {
            if self.owners.get(&partition) == Some(&id) {
                self.owners.remove(&partition);
            }
        }
        Some(id)
    }

    /// Who holds the partition.
    pub(super) fn owner(&self, topic: Uuid, partition: i32) -> Option<&Arc<str>> {
        self.owners.get(&(topic, partition))
    }

    /// The member's part of the target assignment. A static member that comes back under a new id
    /// finds that of the one it replaces.
    pub(super) fn target_of(&self, id: &str, instance_id: Option<&str>) -> Partitions {
        let own = self.target.get(id);
        let replaced = instance_id
            .and_then(|instance_id| self.static_members.get(instance_id))
            .and_then(|id| self.target.get(id));
        own.or(replaced).cloned().unwrap_or_default()
    }

    /// How many members subscribe with this regular expression.
    pub(super) fn regex_subscribers(&self, regex: &str) -> usize {
        self.counts.regexes.get(regex).copied().unwrap_or(0)
    }

    /// The regular expressions that members subscribe with.
    pub(super) fn subscribed_regexes(&self) -> impl Iterator<Item = &String> {
        self.counts.regexes.keys()
    }

    /// When the regular expressions were last resolved, and with which metadata. All are resolved
    /// together, so any one of them tells.
    pub(super) fn last_resolution(&self) -> Option<&ResolvedRegex> {
        self.regexes.values().next()
    }

    /// How many members ask for each assignor.
    pub(super) fn assignor_counts(&self) -> &BTreeMap<String, usize> {
        &self.counts.assignors
    }

    /// How many members speak the classic protocol.
    pub(super) fn classic_members(&self) -> usize {
        self.counts.classic
    }

    /// Whether all classic members know one of these protocols (or there are none).
    pub(super) fn supports_one_of(&self, protocols: impl IntoIterator<Item: AsRef<str>>) -> bool {
        protocols.into_iter().any(|name| {
            self.counts.classic_protocols.get(name.as_ref()).copied().unwrap_or(0)
                == self.counts.classic
        })
    }

    /// The topics that members subscribe to, by name or by a resolved regular expression.
    pub(super) fn subscribed_topics(&self) -> BTreeSet<String> {
        let by_regex = self
            .regexes
            .iter()
            .filter(|(regex, _)| self.counts.regexes.contains_key(*regex))
            .flat_map(|(_, resolved)| &resolved.topics);
        self.counts.topics.keys().chain(by_regex).cloned().collect()
    }

    /// Whether a member subscribes to the topic.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.counts.topics.contains_key(topic)
            || self.regexes.iter().any(|(regex, resolved)| {
                self.counts.regexes.contains_key(regex) && resolved.topics.contains(topic)
            })
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// `Empty`, `Assigning`, `Reconciling` or `Stable`.
    pub(crate) fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(|member| member.is_reconciled_to(self.assignment_epoch))
        {
            "Stable"
        } else {
            "Reconciling"
        }
    }
}
