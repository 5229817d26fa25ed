//! What a request would make of a group: records are taken in by a copy as they are decided on, by
//! the same function that replays the log. So a decision always sees the records before it, and a
//! replayed group is the live one.

use protocol::messages::ConsumerGroupTargetAssignmentMemberValue;

use super::group::{ConsumerGroup, FIRST_EPOCH, ResolvedRegex};
use super::member::Member;
use crate::assignor::Partitions;
use crate::record::Record;

/// A group and the records that are about to change it.
pub(super) struct Draft<'a> {
    base: &'a ConsumerGroup,
    changed: Option<Box<ConsumerGroup>>,
    records: Vec<Record>,
}

impl<'a> Draft<'a> {
    pub(super) fn of(base: &'a ConsumerGroup) -> Draft<'a> {
        Draft { base, changed: None, records: Vec::new() }
    }

    /// The group without any of the records.
    pub(super) fn base(&self) -> &'a ConsumerGroup {
        self.base
    }

    /// The group with all records so far, but for those that were pushed last.
    pub(super) fn group(&self) -> &ConsumerGroup {
        self.changed.as_deref().unwrap_or(self.base)
    }

    /// Decides on a record.
    pub(super) fn push(&mut self, record: Record) {
        let changed = self.changed.get_or_insert_with(|| Box::new(self.base.clone()));
        apply(changed, &record);
        self.records.push(record);
    }

    /// Decides on several records.
    pub(super) fn extend(&mut self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            self.push(record);
        }
    }

    /// Decides on a record that nothing after it looks at; the group need not be copied for it.
    pub(super) fn push_last(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The records in the order they were decided on.
    pub(super) fn into_records(self) -> Vec<Record> {
        self.records
    }
}

/// Takes in a record of the group. A tombstone of what is not there changes nothing. The tombstone of
/// the group itself is the caller's to see.
pub(super) fn apply(group: &mut ConsumerGroup, record: &Record) {
    match record {
        Record::ConsumerGroupMetadata(_, Some(value)) => {
            group.epoch = value.epoch;
            group.metadata_hash = value.metadata_hash;
        }
        Record::ConsumerGroupPartitionMetadata(_, value) => {
            group.has_partition_metadata = value.is_some();
        }
        Record::ConsumerGroupMemberMetadata(key, Some(value)) => {
            change(group, &key.member_id, |member| member.update_metadata(value));
        }
        Record::ConsumerGroupMemberMetadata(key, None) => group.remove_member(&key.member_id),
        Record::ConsumerGroupTargetAssignmentMetadata(_, value) => {
            group.assignment_epoch = value.as_ref().map_or(FIRST_EPOCH, |v| v.assignment_epoch);
            group.assignment_timestamp_ms = value.as_ref().map_or(0, |v| v.assignment_timestamp);
        }
        Record::ConsumerGroupTargetAssignmentMember(key, Some(value)) => {
            group.target.insert(key.member_id.as_str().into(), target(value));
        }
        Record::ConsumerGroupTargetAssignmentMember(key, None) => {
            group.target.remove(key.member_id.as_str());
        }
        Record::ConsumerGroupCurrentMemberAssignment(key, Some(value)) => {
            change(group, &key.member_id, |member| member.update_assignment(value));
        }
        Record::ConsumerGroupCurrentMemberAssignment(key, None)
            if group.member(&key.member_id).is_some() =>
        {
            change(group, &key.member_id, Member::take_assignment_back);
        }
        Record::ConsumerGroupRegularExpression(key, Some(value)) => {
            let resolved = ResolvedRegex {
                topics: value.topics.iter().cloned().collect(),
                version: value.version,
                timestamp_ms: value.timestamp,
            };
            group.regexes.insert(key.regular_expression.clone(), resolved);
        }
        Record::ConsumerGroupRegularExpression(key, None) => {
            group.regexes.remove(&key.regular_expression);
        }
        _ => {}
    }
}

/// Changes a member; one that is not there begins with nothing.
fn change(group: &mut ConsumerGroup, id: &str, with: impl FnOnce(&mut Member)) {
    let mut member = group.member(id).cloned().unwrap_or_default();
    with(&mut member);
    group.put_member(id, member);
}

fn target(value: &ConsumerGroupTargetAssignmentMemberValue) -> Partitions {
    let mut target = Partitions::new();
    for topic in &value.topic_partitions {
        target.entry(topic.topic_id).or_default().extend(&topic.partitions);
    }
    target.retain(|_, partitions| !partitions.is_empty());
    target
}
