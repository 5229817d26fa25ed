//! Committed offsets: what the log holds of them, by group, topic and partition. `commit`, `fetch`,
//! `delete` and `expiry` are the inputs; all of them change the log only, and `replay` brings it here.

mod commit;
mod delete;
mod expiry;
mod fetch;

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::messages::{OffsetCommitKey, OffsetCommitValue};
use protocol::{Offset, Uuid};

pub(crate) use commit::commit;
pub(crate) use delete::{delete_groups, delete_offsets};
pub(crate) use expiry::{expire, on_topics_changed};
pub(crate) use fetch::fetch;

use crate::classic::ClassicGroup;
use crate::group::{Group, Groups};
use crate::record::Record;
use crate::shard::Topics;

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Committed {
    pub offset: i64,
    /// -1 when the client did not say.
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp_ms: i64,
    /// Only from versions 2 to 4 of OffsetCommit: expires then, whatever the broker's retention.
    pub expire_timestamp_ms: Option<i64>,
    /// The topic that it was committed for; zero in records of older releases.
    pub topic_id: Uuid,
}

type ByPartition = BTreeMap<i32, Committed>;
type ByTopic = BTreeMap<Arc<str>, ByPartition>;

/// The committed offsets of the shard's groups.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Offsets {
    by_group: BTreeMap<Arc<str>, ByTopic>,
    /// Topics that were seen to exist, with their ids: only what was seen can be seen to be gone. A
    /// topic that is not known yet, on a broker whose metadata lags, keeps its offsets.
    seen_topics: BTreeMap<Arc<str>, Uuid>,
}

impl Offsets {
    /// The offsets of one group.
    pub(crate) fn of_group(&self, group: &str) -> Option<&ByTopic> {
        self.by_group.get(group)
    }

    fn get(&self, group: &str, topic: &str, partition: i32) -> Option<&Committed> {
        self.by_group.get(group)?.get(topic)?.get(&partition)
    }

    /// Takes in a record. Offsets of a group that is not known make an empty one: its members assign
    /// partitions to themselves.
    pub(crate) fn replay(
        &mut self,
        groups: &mut Groups,
        key: &OffsetCommitKey,
        value: Option<&OffsetCommitValue>,
    ) {
        let Some(value) = value else {
            self.remove(&key.group, &key.topic, key.partition);
            return;
        };
        let group = match groups.get_key_value(&*key.group) {
            Some((id, _)) => id.clone(),
            None => {
                let id: Arc<str> = key.group.as_str().into();
                let group = ClassicGroup::empty(value.commit_timestamp);
                groups.insert(id.clone(), Group::classic(group));
                id
            }
        };
        let committed = Committed {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata.clone(),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: Some(value.expire_timestamp).filter(|at| *at != -1),
            topic_id: value.topic_id,
        };
        let topics = self.by_group.entry(group).or_default();
        match topics.get_mut(&*key.topic) {
            Some(partitions) => partitions.insert(key.partition, committed),
            None => topics
                .entry(key.topic.as_str().into())
                .or_default()
                .insert(key.partition, committed),
        };
    }

    fn remove(&mut self, group: &str, topic: &str, partition: i32) {
        let Some(topics) = self.by_group.get_mut(group) else { return };
        if let Some(partitions) = topics.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                topics.remove(topic);
            }
        }
        if topics.is_empty() {
            self.by_group.remove(group);
        }
    }

    /// Tombstones for all offsets of a group.
    pub(crate) fn tombstones(&self, group: &str) -> Vec<Record> {
        let topics = self.by_group.get(group).into_iter().flatten();
        topics
            .flat_map(|(topic, partitions)| partitions.keys().map(move |at| (topic, *at)))
            .map(|(topic, partition)| tombstone(group, topic, partition))
            .collect()
    }

    /// Notes which of the topics with offsets exist.
    pub(crate) fn see_topics(&mut self, topics: &dyn Topics) {
        let names: Vec<Arc<str>> =
            self.by_group.values().flat_map(|by_topic| by_topic.keys().cloned()).collect();
        let known =
            names.into_iter().filter_map(|name| Some((name.clone(), topics.topic_id(&name)?)));
        self.seen_topics = known.collect();
    }
}

/// The record that takes an offset back.
fn tombstone(group: &str, topic: &str, partition: i32) -> Record {
    let key = OffsetCommitKey { group: group.to_owned(), topic: topic.to_owned(), partition };
    Record::OffsetCommit(key, None)
}

/// The later of two offsets that a reader has seen.
pub(crate) fn later(one: Option<Offset>, other: Option<Offset>) -> Option<Offset> {
    one.max(other)
}
