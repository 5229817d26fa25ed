//! What is written is what is read: every message and version filled at random, and the rules of writing
//! that random values cannot show (unknown tags, values that a version cannot carry, nulls).

mod common;

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use common::{Random, all_messages, hex};
use protocol::messages::{
    ApiVersionsResponse, CreateTopicsRequest, FetchRequest, FetchResponse, MetadataRequest,
    ProduceRequest, fetch_response, metadata_request, produce_request,
};
use protocol::{
    DecodeError, EncodeError, FileRegion, Message, Part, Records, UnknownTaggedField, join_parts,
    parts_len,
};

#[test]
fn every_message_in_every_version_reads_back_as_it_was_written() {
    let mut random = Random(0x4877);
    for message in all_messages().values() {
        for version in message.first_version..=message.last_version {
            for _ in 0..60 {
                if let Err(problem) = (message.check_random)(&mut random, version) {
                    panic!("{problem}");
                }
            }
        }
    }
}

fn unknown(tag: u32, data: &'static [u8]) -> UnknownTaggedField {
    UnknownTaggedField { tag, data: Bytes::from_static(data) }
}

#[test]
fn unknown_tags_are_kept_and_written_back_between_the_known_ones_in_tag_order() {
    let message = ApiVersionsResponse {
        finalized_features_epoch: 7,
        zk_migration_ready: true,
        // Tags 0 and 2 are known and hold their defaults; 1 and 3 are written.
        unknown_tagged_fields: vec![unknown(200, b"later"), unknown(4, b"")],
        ..Default::default()
    };
    let bytes = message.to_bytes(3).expect("encodes");
    assert_eq!(hex(&bytes[7..]), "00000004010800000000000000070301010400c801056c61746572"[6..]);
    let again = ApiVersionsResponse::from_bytes(bytes, 3).expect("decodes");
    assert_eq!(again.unknown_tagged_fields, [unknown(4, b""), unknown(200, b"later")]);
    assert_eq!(again.finalized_features_epoch, 7);
}

#[test]
fn a_tag_of_a_later_version_is_unknown_in_an_earlier_one_and_survives() {
    // Tag 1 of a fetch partition is the high watermark from version 18 on.
    let mut message = FetchRequest::default();
    let mut partition = protocol::messages::fetch_request::FetchPartition {
        unknown_tagged_fields: vec![unknown(1, b"\0\0\0\0\0\0\0\x05")],
        ..Default::default()
    };
    let topic = |partition: &protocol::messages::fetch_request::FetchPartition| {
        vec![protocol::messages::fetch_request::FetchTopic {
            partitions: vec![partition.clone()],
            ..Default::default()
        }]
    };
    message.topics = topic(&partition);
    let bytes = message.to_bytes(17).expect("encodes");
    assert_eq!(FetchRequest::from_bytes(bytes, 17).as_ref(), Ok(&message));
    assert_eq!(message.to_bytes(18), Err(EncodeError::DuplicateTag { tag: 1 }));
    partition.unknown_tagged_fields.clear();
    partition.high_watermark = 5;
    message.topics = topic(&partition);
    let bytes = message.to_bytes(18).expect("encodes");
    let read = FetchRequest::from_bytes(bytes, 18).expect("decodes");
    assert_eq!(read.topics[0].partitions[0].high_watermark, 5);
}

#[test]
fn of_a_tag_that_comes_twice_the_later_one_counts() {
    // Error 0, no keys, throttle 0, then tags 9, 5 and 9 again.
    let bytes = Bytes::from_static(b"\0\0\x01\0\0\0\0\x03\x09\x01a\x05\x01b\x09\x01c");
    let read = ApiVersionsResponse::from_bytes(bytes, 3).expect("decodes");
    assert_eq!(read.unknown_tagged_fields, [unknown(5, b"b"), unknown(9, b"c")]);
}

#[test]
fn a_tagged_field_longer_than_its_content_is_refused() {
    // Tag 1 is an int64, said to be nine bytes long.
    let bytes = Bytes::from_static(b"\0\0\x01\0\0\0\0\x01\x01\x09\0\0\0\0\0\0\0\0\0");
    assert_eq!(
        ApiVersionsResponse::from_bytes(bytes, 3),
        Err(DecodeError::TaggedFieldSize { tag: 1, left: 1 })
    );
}

#[test]
fn unknown_tags_cannot_be_written_into_a_version_without_tags() {
    let message =
        ApiVersionsResponse { unknown_tagged_fields: vec![unknown(9, b"x")], ..Default::default() };
    assert!(matches!(message.to_bytes(2), Err(EncodeError::UnsupportedField { .. })));
}

#[test]
fn a_value_that_the_version_cannot_carry_is_an_error_unless_ignorable() {
    let mut message = CreateTopicsRequest::default();
    assert!(message.to_bytes(2).is_ok());
    message.validate_only = true;
    assert!(message.to_bytes(2).is_ok());

    // Not ignorable, so a lost value would change what the request means.
    let fetch =
        FetchRequest { forgotten_topics_data: vec![Default::default()], ..FetchRequest::default() };
    assert_eq!(
        fetch.to_bytes(6),
        Err(EncodeError::UnsupportedField {
            structure: "FetchRequest",
            field: "forgotten_topics_data",
            version: 6
        })
    );
    // Ignorable.
    let fetch = FetchRequest { rack_id: "r".into(), ..FetchRequest::default() };
    let bytes = fetch.to_bytes(10).expect("the rack is left out");
    assert_eq!(FetchRequest::from_bytes(bytes, 10), Ok(FetchRequest::default()));
    // Gone from version 15 on, where the replica state took its place.
    let fetch = FetchRequest { replica_id: 3, ..FetchRequest::default() };
    assert!(matches!(fetch.to_bytes(15), Err(EncodeError::UnsupportedField { .. })));
    assert!(fetch.to_bytes(14).is_ok());
}

#[test]
fn null_in_a_version_that_allows_none_is_an_error_both_ways() {
    let nothing = MetadataRequest { topics: None, ..Default::default() };
    assert!(matches!(nothing.to_bytes(0), Err(EncodeError::UnexpectedNull { .. })));
    assert!(nothing.to_bytes(1).is_ok());
    let null_array = Bytes::from_static(b"\xff\xff\xff\xff");
    assert_eq!(
        MetadataRequest::from_bytes(null_array, 0),
        Err(DecodeError::UnexpectedNull { at: 4 })
    );
    let unnamed = MetadataRequest {
        topics: Some(vec![metadata_request::MetadataRequestTopic {
            name: None,
            ..Default::default()
        }]),
        ..Default::default()
    };
    assert!(matches!(unnamed.to_bytes(9), Err(EncodeError::UnexpectedNull { .. })));
    assert!(unnamed.to_bytes(10).is_ok());
}

#[test]
fn a_version_that_does_not_exist_is_an_error_both_ways() {
    let message = FetchRequest::default();
    for version in [i16::MIN, -1, 3, 19, i16::MAX] {
        assert!(matches!(message.to_bytes(version), Err(EncodeError::UnsupportedVersion { .. })));
        assert!(matches!(
            FetchRequest::from_bytes(Bytes::new(), version),
            Err(DecodeError::UnsupportedVersion { .. })
        ));
    }
}

#[test]
fn strings_longer_than_kafka_reads_are_refused_both_ways() {
    let rack = |length| FetchRequest { rack_id: "r".repeat(length), ..Default::default() };
    assert!(rack(32767).to_bytes(18).is_ok());
    assert_eq!(rack(32768).to_bytes(18), Err(EncodeError::TooLong { length: 32768 }));
    assert_eq!(rack(32768).to_bytes(11), Err(EncodeError::TooLong { length: 32768 }));
    // Error 0, no keys, throttle 0, one tag 0 with one feature: its name is 32768 letters long.
    let mut bytes = b"\0\0\x01\0\0\0\0\x01\0\x89\x80\x02\x02\x81\x80\x02".to_vec();
    bytes.extend([b'n'; 32768]);
    bytes.extend([0; 5]);
    assert!(matches!(
        ApiVersionsResponse::from_bytes(Bytes::from(bytes), 3),
        Err(DecodeError::InvalidLength { length: 32768, .. })
    ));
}

#[derive(Debug)]
struct FakeRegion(&'static [u8]);

impl FileRegion for FakeRegion {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn read(&self) -> io::Result<Bytes> {
        Ok(Bytes::from_static(self.0))
    }
    fn file(&self) -> Option<(&File, u64)> {
        None
    }
}

fn answer_with(records: [Records; 2]) -> FetchResponse {
    let partition =
        |records| fetch_response::PartitionData { records: Some(records), ..Default::default() };
    FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            partitions: records.into_iter().map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn records_are_parts_of_their_own_and_never_copied() {
    let in_memory = Bytes::from_static(b"batches in memory");
    let in_file: Arc<dyn FileRegion> = Arc::new(FakeRegion(b"batches in a file"));
    let records = [Records::Bytes(in_memory.clone()), Records::File(in_file.clone())];
    let message = answer_with(records);
    let parts = message.to_parts(18).expect("encodes");
    assert_eq!(parts.len(), 5, "fields, records, fields, records, fields");
    assert!(matches!(&parts[1], Part::Bytes(bytes) if bytes.as_ptr() == in_memory.as_ptr()));
    assert!(matches!(&parts[3], Part::File(region) if Arc::ptr_eq(region, &in_file)));
    assert_eq!(message.encoded_size(18), Ok(parts_len(&parts)));

    let bytes = join_parts(parts).expect("reads");
    let read = FetchResponse::from_bytes(bytes.clone(), 18).expect("decodes");
    let Some(Records::Bytes(records)) = &read.responses[0].partitions[1].records else {
        panic!("no records");
    };
    assert_eq!(records, &Bytes::from_static(b"batches in a file"));
    let frame = bytes.as_ptr_range();
    assert!(frame.contains(&records.as_ptr()), "decoded records share the frame's memory");
}

#[test]
fn the_buffer_of_a_message_is_allocated_once_and_full() {
    let message = answer_with([Records::empty(), Records::empty()]);
    let parts = message.to_parts(12).expect("encodes");
    let [Part::Bytes(bytes)] = parts.as_slice() else { panic!("one part expected") };
    let buffer = bytes.clone();
    drop(parts);
    let buffer = buffer.try_into_mut().expect("the only owner");
    assert_eq!(buffer.capacity(), buffer.len());
}

#[test]
fn default_records_of_a_fetch_answer_are_empty_and_not_null() {
    // librdkafka fails on null records (KAFKA-18646).
    let partition = fetch_response::PartitionData::default();
    assert_eq!(partition.records, Some(Records::empty()));
    let produce = produce_request::PartitionProduceData::default();
    assert_eq!(produce.records, None);
    assert!(ProduceRequest::default().topic_data.is_empty());
}
