//! The metadata records as Rust types: generated from `proto/metadata.proto`, with the conversions
//! between them and the nouns of the `protocol` crate, and the two encoded forms (a batch, which is
//! one entry of the quorum's log, and a snapshot).

use prost::Message;
use protocol::types::{NodeId, Uuid};

#[allow(missing_docs, clippy::all)]
mod generated {
    tonic::include_proto!("highwater.metadata");
}

pub use generated::metadata_record::Kind;
pub use generated::*;

/// Bytes that are no batch or snapshot of metadata records.
#[derive(Debug, thiserror::Error)]
#[error("malformed metadata records: {0}")]
pub struct RecordDecodeError(#[from] prost::DecodeError);

/// The bytes of one log entry.
pub fn encode_batch(records: &[MetadataRecord]) -> bytes::Bytes {
    MetadataBatch { records: records.to_vec() }.encode_to_vec().into()
}

/// The records of one log entry. An empty entry (a new leader's first) holds none.
pub fn decode_batch(bytes: &[u8]) -> Result<Vec<MetadataRecord>, RecordDecodeError> {
    Ok(MetadataBatch::decode(bytes)?.records)
}

impl MetadataSnapshot {
    /// The snapshot's bytes.
    pub fn to_bytes(&self) -> bytes::Bytes {
        self.encode_to_vec().into()
    }

    /// Reads what [`MetadataSnapshot::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordDecodeError> {
        Ok(Self::decode(bytes)?)
    }
}

impl From<Uuid> for Id {
    fn from(uuid: Uuid) -> Self {
        let bits = u128::from_be_bytes(uuid.0);
        Id { high: (bits >> 64) as u64, low: bits as u64 }
    }
}

impl From<Id> for Uuid {
    fn from(id: Id) -> Self {
        Uuid((u128::from(id.high) << 64 | u128::from(id.low)).to_be_bytes())
    }
}

/// The id in a record's field; an absent one is the zero id.
pub(crate) fn uuid_of(id: &Option<Id>) -> Uuid {
    id.map_or(Uuid::ZERO, Uuid::from)
}

/// Node ids as a record carries them.
pub(crate) fn raw_nodes(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.get()).collect()
}

/// Node ids from a record.
pub(crate) fn typed_nodes(nodes: &[i32]) -> Vec<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

impl NodeList {
    pub(crate) fn of(nodes: &[NodeId]) -> Self {
        NodeList { nodes: raw_nodes(nodes) }
    }
}

macro_rules! record_from {
    ($($message:ident),* $(,)?) => {$(
        impl From<$message> for MetadataRecord {
            fn from(message: $message) -> Self {
                MetadataRecord { kind: Some(Kind::$message(message)) }
            }
        }
    )*};
}

record_from!(
    ClusterBoot,
    NoOp,
    FeatureLevel,
    RegisterBroker,
    UnregisterBroker,
    BrokerChange,
    Topic,
    Partition,
    PartitionChange,
    RemoveTopic,
    Config,
    ProducerIds,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_way_through_a_record() {
        let uuid = Uuid(*b"0123456789abcdef");
        assert_eq!(Uuid::from(Id::from(uuid)), uuid);
        assert_eq!(uuid_of(&None), Uuid::ZERO);
    }

    #[test]
    fn a_batch_reads_back_and_an_empty_entry_is_no_records() {
        let records = vec![
            MetadataRecord::from(NoOp {}),
            Topic { name: "t".into(), topic_id: Some(Uuid([7; 16]).into()) }.into(),
        ];
        assert_eq!(decode_batch(&encode_batch(&records)).unwrap(), records);
        assert_eq!(decode_batch(&[]).unwrap(), Vec::new());
        assert!(decode_batch(&[0xff, 0xff]).is_err());
    }
}
