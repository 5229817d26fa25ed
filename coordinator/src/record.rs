//! The records of `__consumer_offsets`: typed on this side, bytes on the other.
//!
//! A key is an int16, its number, and the key's fields; a value is an int16, its version, and the
//! value's fields; a value that is null (a tombstone) takes back what the key had. Numbers that are not
//! known here (share and streams groups, and what newer releases add) are skipped, tombstones too.

use bytes::{BufMut, Bytes, BytesMut};
use protocol::messages::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue, ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue, ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue, GroupMetadataKey, GroupMetadataValue,
    LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey, OffsetCommitValue,
};
use protocol::{DecodeError, EncodeError, Message};

/// Why bytes are not a record of this topic, or a record cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A record without a key.
    #[error("a record without a key")]
    NoKey,
    /// A value in a version that is not known here.
    #[error("version {version} of {name} is not known")]
    UnknownVersion {
        /// The name of the value.
        name: &'static str,
        /// Its version.
        version: i16,
    },
    /// Bytes that do not hold what they should.
    #[error("unreadable record: {0}")]
    Decode(#[from] DecodeError),
    /// A value that has no bytes.
    #[error("unwritable record: {0}")]
    Encode(#[from] EncodeError),
}

macro_rules! records {
    ($($(#[$doc:meta])* $variant:ident($key:ident . $group:ident, $value:ident) = $number:literal;)*) => {
        /// A record: its key, and the value or the tombstone.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Record {
            $($(#[$doc])* $variant($key, Option<$value>),)*
        }

        impl Record {
            /// Reads a record. `None` for a kind of record that is not known here.
            pub fn decode(key: Bytes, value: Option<Bytes>) -> Result<Option<Record>, RecordError> {
                let (number, key) = split(key)?;
                Ok(Some(match number {
                    $($number => Record::$variant(
                        Message::from_bytes(key, 0)?,
                        value.map(decode_value).transpose()?,
                    ),)*
                    _ => return Ok(None),
                }))
            }

            /// The bytes of key and value, as Kafka writes them.
            pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), RecordError> {
                match self {
                    $(Record::$variant(key, value) => {
                        let key = prefixed($number, key, 0)?;
                        let value = match value {
                            Some(value) => {
                                let version = value.written_version();
                                Some(prefixed(version, value, version)?)
                            }
                            None => None,
                        };
                        Ok((key, value))
                    })*
                }
            }

            /// The group that the record belongs to.
            pub fn group(&self) -> &str {
                match self {
                    $(Record::$variant(key, _) => key.group_id(),)*
                }
            }
        }

        $(impl Key for $key {
            fn group_id(&self) -> &str {
                &self.$group
            }
        })*
    };
}

/// A key, every one of which names a group.
trait Key {
    fn group_id(&self) -> &str;
}

records! {
    /// An offset as releases before 0.9 wrote it.
    LegacyOffsetCommit(LegacyOffsetCommitKey.group, LegacyOffsetCommitValue) = 0;
    /// A committed offset.
    OffsetCommit(OffsetCommitKey.group, OffsetCommitValue) = 1;
    /// A whole classic group.
    GroupMetadata(GroupMetadataKey.group, GroupMetadataValue) = 2;
    /// The epoch of a consumer group.
    ConsumerGroupMetadata(ConsumerGroupMetadataKey.group_id, ConsumerGroupMetadataValue) = 3;
    /// What a consumer group knew of its topics; not written since the metadata hash replaced it.
    ConsumerGroupPartitionMetadata(ConsumerGroupPartitionMetadataKey.group_id, ConsumerGroupPartitionMetadataValue) = 4;
    /// A member of a consumer group and its subscription.
    ConsumerGroupMemberMetadata(ConsumerGroupMemberMetadataKey.group_id, ConsumerGroupMemberMetadataValue) = 5;
    /// The epoch of a consumer group's target assignment.
    ConsumerGroupTargetAssignmentMetadata(ConsumerGroupTargetAssignmentMetadataKey.group_id, ConsumerGroupTargetAssignmentMetadataValue) = 6;
    /// The target assignment of one member.
    ConsumerGroupTargetAssignmentMember(ConsumerGroupTargetAssignmentMemberKey.group_id, ConsumerGroupTargetAssignmentMemberValue) = 7;
    /// What one member owns now.
    ConsumerGroupCurrentMemberAssignment(ConsumerGroupCurrentMemberAssignmentKey.group_id, ConsumerGroupCurrentMemberAssignmentValue) = 8;
    /// A regular expression that members subscribe with, resolved.
    ConsumerGroupRegularExpression(ConsumerGroupRegularExpressionKey.group_id, ConsumerGroupRegularExpressionValue) = 16;
}

/// A value that knows the version Kafka 4.4 writes it in.
trait Value: Message {
    fn written_version(&self) -> i16 {
        *Self::VERSIONS.end()
    }
}

impl Value for LegacyOffsetCommitValue {}
impl Value for ConsumerGroupMetadataValue {}
impl Value for ConsumerGroupPartitionMetadataValue {}
impl Value for ConsumerGroupMemberMetadataValue {}
impl Value for ConsumerGroupTargetAssignmentMetadataValue {}
impl Value for ConsumerGroupTargetAssignmentMemberValue {}
impl Value for ConsumerGroupCurrentMemberAssignmentValue {}
impl Value for ConsumerGroupRegularExpressionValue {}

impl Value for OffsetCommitValue {
    /// Only version 1 carries an expiry time.
    fn written_version(&self) -> i16 {
        if self.expire_timestamp == -1 { 4 } else { 1 }
    }
}

impl Value for GroupMetadataValue {
    fn written_version(&self) -> i16 {
        3
    }
}

fn split(mut bytes: Bytes) -> Result<(i16, Bytes), RecordError> {
    if bytes.len() < 2 {
        return Err(RecordError::NoKey);
    }
    let head = bytes.split_to(2);
    Ok((i16::from_be_bytes([head[0], head[1]]), bytes))
}

fn decode_value<V: Message>(bytes: Bytes) -> Result<V, RecordError> {
    let (version, bytes) = split(bytes)?;
    if !V::VERSIONS.contains(&version) {
        return Err(RecordError::UnknownVersion { name: V::NAME, version });
    }
    Ok(V::from_bytes(bytes, version)?)
}

fn prefixed<M: Message>(prefix: i16, message: &M, version: i16) -> Result<Bytes, RecordError> {
    let body = message.to_bytes(version)?;
    let mut bytes = BytesMut::with_capacity(2 + body.len());
    bytes.put_i16(prefix);
    bytes.put_slice(&body);
    Ok(bytes.freeze())
}

/// A commit of the oldest kind as one of today.
pub(crate) fn modern_commit(
    key: &LegacyOffsetCommitKey,
    value: Option<&LegacyOffsetCommitValue>,
) -> (OffsetCommitKey, Option<OffsetCommitValue>) {
    let modern_key = OffsetCommitKey {
        group: key.group.clone(),
        topic: key.topic.clone(),
        partition: key.partition,
    };
    let modern_value = value.map(|value| OffsetCommitValue {
        offset: value.offset,
        metadata: value.metadata.clone(),
        commit_timestamp: value.commit_timestamp,
        ..OffsetCommitValue::default()
    });
    (modern_key, modern_value)
}
