//! The records of consumer groups, put together in one place.

use std::sync::Arc;

use protocol::messages::consumer_group_target_assignment_member_value::TopicPartition;
use protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue,
};

use super::group::ResolvedRegex;
use super::member::Member;
use crate::assignor::Partitions;
use crate::record::Record;

/// Makes records of one group.
#[derive(Clone, Debug)]
pub(super) struct Records {
    group: Arc<str>,
}

impl Records {
    pub(super) fn of(group: &Arc<str>) -> Records {
        Records { group: group.clone() }
    }

    pub(super) fn member(&self, id: &str, member: &Member) -> Record {
        Record::ConsumerGroupMemberMetadata(self.member_key(id), Some(member.metadata_value()))
    }

    pub(super) fn no_member(&self, id: &str) -> Record {
        Record::ConsumerGroupMemberMetadata(self.member_key(id), None)
    }

    pub(super) fn epoch(&self, epoch: i32, metadata_hash: i64) -> Record {
        let value = ConsumerGroupMetadataValue {
            epoch,
            metadata_hash,
            ..ConsumerGroupMetadataValue::default()
        };
        Record::ConsumerGroupMetadata(self.group_key(), Some(value))
    }

    pub(super) fn no_epoch(&self) -> Record {
        Record::ConsumerGroupMetadata(self.group_key(), None)
    }

    pub(super) fn no_partition_metadata(&self) -> Record {
        let key = ConsumerGroupPartitionMetadataKey { group_id: self.group.to_string() };
        Record::ConsumerGroupPartitionMetadata(key, None)
    }

    pub(super) fn target(&self, id: &str, target: &Partitions) -> Record {
        let topic_partitions = target
            .iter()
            .map(|(topic, partitions)| TopicPartition {
                topic_id: *topic,
                partitions: partitions.iter().copied().collect(),
                ..Default::default()
            })
            .collect();
        let value =
            ConsumerGroupTargetAssignmentMemberValue { topic_partitions, ..Default::default() };
        Record::ConsumerGroupTargetAssignmentMember(self.target_key(id), Some(value))
    }

    pub(super) fn no_target(&self, id: &str) -> Record {
        Record::ConsumerGroupTargetAssignmentMember(self.target_key(id), None)
    }

    pub(super) fn target_epoch(&self, epoch: i32, timestamp_ms: i64) -> Record {
        let value = ConsumerGroupTargetAssignmentMetadataValue {
            assignment_epoch: epoch,
            assignment_timestamp: timestamp_ms,
            ..Default::default()
        };
        Record::ConsumerGroupTargetAssignmentMetadata(self.target_epoch_key(), Some(value))
    }

    pub(super) fn no_target_epoch(&self) -> Record {
        Record::ConsumerGroupTargetAssignmentMetadata(self.target_epoch_key(), None)
    }

    pub(super) fn current(&self, id: &str, member: &Member) -> Record {
        Record::ConsumerGroupCurrentMemberAssignment(
            self.current_key(id),
            Some(member.assignment_value()),
        )
    }

    pub(super) fn no_current(&self, id: &str) -> Record {
        Record::ConsumerGroupCurrentMemberAssignment(self.current_key(id), None)
    }

    pub(super) fn regex(&self, regex: &str, resolved: &ResolvedRegex) -> Record {
        let value = ConsumerGroupRegularExpressionValue {
            topics: resolved.topics.iter().cloned().collect(),
            version: resolved.version,
            timestamp: resolved.timestamp_ms,
            ..Default::default()
        };
        Record::ConsumerGroupRegularExpression(self.regex_key(regex), Some(value))
    }

    pub(super) fn no_regex(&self, regex: &str) -> Record {
        Record::ConsumerGroupRegularExpression(self.regex_key(regex), None)
    }

    /// The three tombstones of a member, in the order in which replaying them makes sense: what it
    /// owns, what it should own, itself.
    pub(super) fn remove_member(&self, id: &str) -> [Record; 3] {
        [self.no_current(id), self.no_target(id), self.no_member(id)]
    }

    fn group_key(&self) -> ConsumerGroupMetadataKey {
        ConsumerGroupMetadataKey { group_id: self.group.to_string() }
    }

    fn member_key(&self, id: &str) -> ConsumerGroupMemberMetadataKey {
        ConsumerGroupMemberMetadataKey {
            group_id: self.group.to_string(),
            member_id: id.to_owned(),
        }
    }

    fn target_key(&self, id: &str) -> ConsumerGroupTargetAssignmentMemberKey {
        ConsumerGroupTargetAssignmentMemberKey {
            group_id: self.group.to_string(),
            member_id: id.to_owned(),
        }
    }

    fn target_epoch_key(&self) -> ConsumerGroupTargetAssignmentMetadataKey {
        ConsumerGroupTargetAssignmentMetadataKey { group_id: self.group.to_string() }
    }

    fn current_key(&self, id: &str) -> ConsumerGroupCurrentMemberAssignmentKey {
        ConsumerGroupCurrentMemberAssignmentKey {
            group_id: self.group.to_string(),
            member_id: id.to_owned(),
        }
    }

    fn regex_key(&self, regex: &str) -> ConsumerGroupRegularExpressionKey {
        ConsumerGroupRegularExpressionKey {
            group_id: self.group.to_string(),
            regular_expression: regex.to_owned(),
        }
    }
}
