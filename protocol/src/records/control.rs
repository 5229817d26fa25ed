//! Control records: the markers that end a transaction (KIP-98) and those of Kafka's own quorum
//! logs. The key says which kind it is; the value of each kind is a small message of its own.

use bytes::Bytes;

use super::builder::{BatchBuilder, BuildError, ProducerStamp};
use super::error::BatchError;
use super::header::NO_SEQUENCE;
use super::record::Record;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// What a control record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ControlType {
    /// The producer's transaction is aborted.
    Abort,
    /// The producer's transaction is committed.
    Commit,
    /// A new leader of a quorum log.
    LeaderChange,
    /// The start of a snapshot.
    SnapshotHeader,
    /// The end of a snapshot.
    SnapshotFooter,
    /// The protocol version of the quorum.
    KRaftVersion,
    /// The voters of the quorum.
    KRaftVoters,
    /// A kind that this version does not know; readers pass over it.
    Unknown(i16),
}

impl ControlType {
    /// The number in the key.
    pub const fn id(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KRaftVersion => 5,
            ControlType::KRaftVoters => 6,
            ControlType::Unknown(id) => id,
        }
    }

    /// The kind with this number.
    pub const fn from_id(id: i16) -> Self {
        match id {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KRaftVersion,
            6 => ControlType::KRaftVoters,
            id => ControlType::Unknown(id),
        }
    }

    /// The kind that a control record's key names.
    pub fn parse(record: &Record<'_>) -> Result<Self, BatchError> {
        let fail = |reason| Err(BatchError::ControlRecord { reason });
        match record.key {
            Some([v0, v1, id0, id1, ..]) if i16::from_be_bytes([*v0, *v1]) >= 0 => {
                Ok(Self::from_id(i16::from_be_bytes([*id0, *id1])))
            }
            Some([_, _, _, _, ..]) => fail("the key's version is negative"),
            _ => fail("the key is shorter than 4 bytes"),
        }
    }

    fn key(self) -> [u8; 4] {
        let [id0, id1] = self.id().to_be_bytes();
        [0, 0, id0, id1]
    }
}

/// The marker that ends a producer's transaction in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndTransactionMarker {
    /// Whether the transaction is committed or aborted.
    pub commit: bool,
    /// The term of the transaction coordinator that decided; an older one is fenced.
    pub coordinator_epoch: i32,
}

impl EndTransactionMarker {
    /// Reads a marker; `None` for control records of other kinds.
    pub fn parse(record: &Record<'_>) -> Result<Option<Self>, BatchError> {
        let commit = match ControlType::parse(record)? {
            ControlType::Commit => true,
            ControlType::Abort => false,
            _ => return Ok(None),
        };
        match record.value {
            Some([v0, v1, e0, e1, e2, e3, ..]) if i16::from_be_bytes([*v0, *v1]) >= 0 => {
                Ok(Some(Self {
                    commit,
                    coordinator_epoch: i32::from_be_bytes([*e0, *e1, *e2, *e3]),
                }))
            }
            Some([_, _, _, _, _, _, ..]) => {
                Err(BatchError::ControlRecord { reason: "the marker's version is negative" })
            }
            _ => Err(BatchError::ControlRecord { reason: "the marker is shorter than 6 bytes" }),
        }
    }

    /// The control batch of this marker for `producer`. `timestamp` in milliseconds since 1970.
    pub fn build(
        self,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        timestamp: i64,
        producer: (ProducerId, ProducerEpoch),
    ) -> Result<Bytes, BuildError> {
        let kind = if self.commit { ControlType::Commit } else { ControlType::Abort };
        let mut value = [0; 6];
        value[2..].copy_from_slice(&self.coordinator_epoch.to_be_bytes());
        let (id, epoch) = producer;
        let mut builder = BatchBuilder::new(base_offset)
            .leader_epoch(leader_epoch)
            .producer(ProducerStamp { id, epoch, base_sequence: NO_SEQUENCE })
            .transactional()
            .control();
        builder.append(timestamp, Some(&kind.key()), Some(&value), [])?;
        builder.build()
    }
}

/// The control batch that a new leader of a quorum log writes first. `message` is an encoded
/// `LeaderChangeMessage`; `timestamp` in milliseconds since 1970.
pub fn leader_change_batch(
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
    timestamp: i64,
    message: &[u8],
) -> Result<Bytes, BuildError> {
    let mut builder = BatchBuilder::new(base_offset).leader_epoch(leader_epoch).control();
    builder.append(timestamp, Some(&ControlType::LeaderChange.key()), Some(message), [])?;
    builder.build()
}
