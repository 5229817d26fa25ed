//! Rule P04, and the line of X01 on producer ids without a sequence, as measured against Apache
//! Kafka 4.4.0. Where we differ on purpose is said at the head of the validator.

use bytes::Bytes;
use protocol::records::{
    Attributes, BatchBuilder, BatchView, ClientBatchError, Codec, Compression, ProduceRules,
    ProducerStamp, ReadBuffer, ReadLimits, TimestampType, ValidatedBatch, validate_client_batch,
};
use protocol::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::support::{ALL_CODECS, NOW, at, holding, plain_record, read_all, shared, simple, with};

fn rules() -> ProduceRules {
    ProduceRules { now: NOW, ..ProduceRules::default() }
}

fn validate(bytes: Vec<u8>, rules: &ProduceRules) -> Result<ValidatedBatch, ClientBatchError> {
    validate_client_batch(&shared(bytes), rules, &mut ReadBuffer::new())
}

fn code(bytes: Vec<u8>) -> ErrorCode {
    code_with(bytes, &rules())
}

fn code_with(bytes: Vec<u8>, rules: &ProduceRules) -> ErrorCode {
    validate(bytes, rules).map_or_else(|error| error.error_code(), |_| ErrorCode::None)
}

/// A batch with one record at each of these times.
fn at_times(times: &[i64], codec: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(codec);
    for &time in times {
        builder.append(time, Some(b"k"), Some(b"v"), []).expect("a small record fits");
    }
    builder.build().expect("a small batch fits").to_vec()
}

fn indexes(error: &ClientBatchError) -> Vec<i32> {
    error.record_errors().iter().map(|error| error.batch_index).collect()
}

#[test]
fn p04_a_sound_batch_of_any_codec_passes_unchanged() {
    for codec in ALL_CODECS {
        let bytes = shared(simple(5, codec));
        let mut buffer = ReadBuffer::new();
        let batch = validate_client_batch(&bytes, &rules(), &mut buffer).expect("a sound batch");
        assert!(!batch.is_changed(), "{}", codec.name());
        assert_eq!(batch.header().count(), 5);
        assert_eq!(batch.header().max_timestamp(), NOW);
        assert_eq!(batch.offset_delta_of_max_timestamp(), 0);
        assert_eq!(batch.log_append_time(), None);
        assert_eq!(batch.payload().as_ptr(), bytes[61..].as_ptr(), "{}", codec.name());
        let appended = batch.into_bytes(Offset(40), LeaderEpoch(3));
        let view = BatchView::parse(&appended).expect("a whole batch");
        assert_eq!((view.base_offset(), view.last_offset()), (Offset(40), Offset(44)));
        assert_eq!((view.partition_leader_epoch(), view.check_crc()), (LeaderEpoch(3), Ok(())));
        assert_eq!(appended[16..], bytes[16..], "{}", codec.name());
    }
}

#[test]
fn p04_there_must_be_exactly_one_whole_batch_and_a_torn_tail_is_cut_off() {
    let batch = simple(1, Compression::None);
    assert_eq!(code(Vec::new()), ErrorCode::InvalidRecord);
    assert_eq!(code(batch[..batch.len() - 1].to_vec()), ErrorCode::InvalidRecord);
    assert_eq!(code([batch.clone(), batch.clone()].concat()), ErrorCode::InvalidRecord);
    assert_eq!(code([&batch[..], &[0; 20]].concat()), ErrorCode::CorruptMessage);
    for tail in [&[1, 2, 3][..], &batch[..40]] {
        let passed = validate([&batch[..], tail].concat(), &rules()).expect("one whole batch");
        assert_eq!(passed.into_bytes(Offset(0), LeaderEpoch(-1)), batch);
    }
}

#[test]
fn p04_other_formats_are_refused() {
    for (magic, expected) in [
        (0, ErrorCode::InvalidRecord),
        (1, ErrorCode::InvalidRecord),
        (3, ErrorCode::CorruptMessage),
        (-1, ErrorCode::CorruptMessage),
    ] {
        let batch = with(simple(1, Compression::None), at::MAGIC, &i8::to_be_bytes(magic));
        assert_eq!(code(batch.clone()), expected, "magic {magic}");
        let behind = [simple(1, Compression::None), batch].concat();
        assert_eq!(code(behind), expected, "magic {magic} behind a sound batch");
    }
}

#[test]
fn p04_checksum_base_offset_and_size_are_checked_in_kafkas_order() {
    let mut corrupt = simple(1, Compression::None);
    corrupt[at::CRC] ^= 1;
    assert_eq!(code(corrupt.clone()), ErrorCode::CorruptMessage);
    let small = ProduceRules { max_message_bytes: corrupt.len() - 1, ..rules() };
    assert_eq!(code_with(corrupt.clone(), &small), ErrorCode::MessageTooLarge);
    let exact = ProduceRules { max_message_bytes: corrupt.len(), ..rules() };
    assert_eq!(code_with(simple(1, Compression::None), &exact), ErrorCode::None);
    corrupt[at::BASE_OFFSET + 7] = 5;
    assert_eq!(code_with(corrupt, &small), ErrorCode::InvalidRecord);
    for offset in [5i64, -1] {
        let moved = with(simple(1, Compression::None), at::BASE_OFFSET, &offset.to_be_bytes());
        assert_eq!(code(moved), ErrorCode::InvalidRecord);
    }
}

#[test]
fn p04_the_count_must_be_that_of_offsets_and_records() {
    let record = |delta| plain_record(0, delta, Some(b"k"));
    let two = [record(0), record(1)].concat();
    for (count, last_offset_delta) in [(0, -1), (0, 0), (1, 1), (2, 2), (-5, 0), (1, i32::MAX)] {
        let batch = holding(2, Compression::None, &two);
        let batch = with(batch, at::LAST_OFFSET_DELTA, &i32::to_be_bytes(last_offset_delta));
        let batch = with(batch, at::COUNT, &i32::to_be_bytes(count));
        assert_eq!(code(batch), ErrorCode::InvalidRecord, "{count} {last_offset_delta}");
    }
    for codec in ALL_CODECS {
        let batch = simple(2, codec);
        for count in [1i32, 3] {
            let batch = with(batch.clone(), at::COUNT, &count.to_be_bytes());
            let batch = with(batch, at::LAST_OFFSET_DELTA, &(count - 1).to_be_bytes());
            assert_eq!(code(batch), ErrorCode::InvalidRecord, "{} {count}", codec.name());
        }
    }
}

#[test]
fn p04_offset_deltas_of_clients_count_up_from_zero() {
    for deltas in [[0, 5], [1, 0], [0, 0], [1, 2]] {
        let records = deltas.map(|delta| plain_record(0, delta, Some(b"k"))).concat();
        assert_eq!(code(holding(2, Compression::None, &records)), ErrorCode::InvalidRecord);
    }
}

#[test]
fn p04_clients_may_not_write_control_batches() {
    let control = Attributes::default().with_control(true).0.to_be_bytes();
    let batch = with(simple(1, Compression::None), at::ATTRIBUTES, &control);
    assert_eq!(validate(batch.clone(), &rules()), Err(ClientBatchError::Control));
    assert_eq!(code(batch), ErrorCode::InvalidRecord);
}

#[test]
fn x01_a_producer_id_needs_a_sequence() {
    for (producer_id, base_sequence, expected) in [
        (1i64, -1i32, ErrorCode::InvalidRecord),
        (1, -2, ErrorCode::InvalidRecord),
        (1, 0, ErrorCode::None),
        (-1, -1, ErrorCode::None),
    ] {
        let batch = with(simple(1, Compression::None), at::PRODUCER_ID, &producer_id.to_be_bytes());
        let batch = with(batch, at::BASE_SEQUENCE, &base_sequence.to_be_bytes());
        assert_eq!(code(batch), expected, "{producer_id} {base_sequence}");
    }
}

#[test]
fn p04_codecs_must_exist_and_zstd_needs_produce_version_7() {
    let old = ProduceRules { produce_version: 6, ..rules() };
    let first = ProduceRules { produce_version: 7, ..rules() };
    assert_eq!(
        code_with(simple(1, Compression::Zstd), &old),
        ErrorCode::UnsupportedCompressionType
    );
    assert_eq!(code_with(simple(1, Compression::Zstd), &first), ErrorCode::None);
    assert_eq!(code_with(simple(1, Compression::Lz4), &old), ErrorCode::None);
    for id in 5..8i16 {
        let batch = with(simple(1, Compression::None), at::ATTRIBUTES, &id.to_be_bytes());
        assert_eq!(code(batch), ErrorCode::UnknownServerError, "codec {id}");
    }
}

#[test]
fn p04_records_out_of_time_are_named_and_refuse_the_batch() {
    const HOUR: i64 = 3_600_000;
    for codec in ALL_CODECS {
        let batch = at_times(&[NOW, NOW + HOUR, NOW + HOUR + 1, NOW + 9 * HOUR], codec);
        let error = validate(batch, &rules()).expect_err("records from the future");
        assert_eq!(
            (error.error_code(), indexes(&error)),
            (ErrorCode::InvalidTimestamp, vec![2, 3]),
            "{}",
            codec.name()
        );
        let before = ProduceRules { timestamp_before_max_ms: 1000, ..rules() };
        let batch = at_times(&[NOW - 1001, NOW - 1000, 0], codec);
        let error = validate(batch, &before).expect_err("records from the past");
        assert_eq!(
            (error.error_code(), indexes(&error)),
            (ErrorCode::InvalidTimestamp, vec![0, 2]),
            "{}",
            codec.name()
        );
        // "No timestamp" is never out of range.
        assert_eq!(code_with(at_times(&[-1], codec), &before), ErrorCode::None);
    }
    let append_time = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    assert_eq!(
        code_with(at_times(&[NOW + 9 * HOUR], Compression::None), &append_time),
        ErrorCode::None
    );
}

#[test]
fn p04_compacted_topics_need_keys_and_the_missing_ones_are_named() {
    let records = [
        plain_record(0, 0, Some(b"")),
        plain_record(0, 1, None),
        plain_record(9 * 3_600_000, 2, Some(b"k")),
        plain_record(9 * 3_600_000, 3, None),
    ];
    let compacted = ProduceRules { compacted: true, ..rules() };
    let two = holding(2, Compression::None, &records[..2].concat());
    assert_eq!(code(two.clone()), ErrorCode::None);
    let error = validate(two, &compacted).expect_err("a record without a key");
    assert_eq!((error.error_code(), indexes(&error)), (ErrorCode::InvalidRecord, vec![1]));
    // One wrong timestamp makes it INVALID_TIMESTAMP for all.
    let four = holding(4, Compression::None, &records.concat());
    let error = validate(four, &compacted).expect_err("records without keys");
    assert_eq!((error.error_code(), indexes(&error)), (ErrorCode::InvalidTimestamp, vec![1, 2, 3]));
}

#[test]
fn p04_a_wrong_max_timestamp_is_corrected_from_the_records() {
    for codec in ALL_CODECS {
        let times = [NOW - 7, NOW - 3, NOW - 3, NOW - 5];
        let wrong = with(at_times(&times, codec), at::MAX_TIMESTAMP, &(NOW + 99).to_be_bytes());
        let batch = validate(wrong, &rules()).expect("a sound batch");
        assert!(batch.is_changed());
        assert_eq!(batch.header().max_timestamp(), NOW - 3);
        assert_eq!(batch.offset_delta_of_max_timestamp(), 1);
        let stored = batch.into_bytes(Offset(0), LeaderEpoch(-1));
        assert_eq!(stored, at_times(&times, codec), "{}", codec.name());
    }
    let none = with(at_times(&[-1], Compression::None), at::MAX_TIMESTAMP, &NOW.to_be_bytes());
    assert_eq!(validate(none, &rules()).expect("sound").header().max_timestamp(), -1);
}

#[test]
fn p04_append_time_topics_stamp_the_batch() {
    let append_time = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    for codec in ALL_CODECS {
        let batch = validate(at_times(&[5, 9], codec), &append_time).expect("a sound batch");
        assert_eq!((batch.log_append_time(), batch.is_changed()), (Some(NOW), true));
        assert_eq!(batch.offset_delta_of_max_timestamp(), 0);
        let stored = batch.into_bytes(Offset(7), LeaderEpoch(1));
        let view = BatchView::parse(&stored).expect("whole");
        assert_eq!(view.check_crc(), Ok(()), "{}", codec.name());
        assert_eq!(view.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!((view.max_timestamp(), view.base_timestamp()), (NOW, 5));
        assert!(read_all(&stored).iter().all(|record| record.timestamp == NOW));
    }
}

#[test]
fn p04_producers_may_not_claim_append_time() {
    let claim = Attributes::default().with_timestamp_type(TimestampType::LogAppendTime).0;
    let batch =
        |time| with(at_times(&[time], Compression::None), at::ATTRIBUTES, &claim.to_be_bytes());
    let append_time = ProduceRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    assert_eq!(code_with(batch(NOW), &append_time), ErrorCode::InvalidTimestamp);
    assert_eq!(code(batch(-1)), ErrorCode::InvalidTimestamp);
    // In a create-time topic Kafka takes it when the time is in range, and clears the attribute.
    let stored = validate(batch(NOW), &rules()).expect("as Kafka does");
    assert_eq!(stored.header().timestamp_type(), TimestampType::CreateTime);
}

#[test]
fn the_topics_codec_replaces_the_producers() {
    let stamp = ProducerStamp { id: ProducerId(5), epoch: ProducerEpoch(1), base_sequence: 3 };
    for source in ALL_CODECS {
        let mut builder =
            BatchBuilder::new(Offset::ZERO).compression(source).producer(stamp).transactional();
        let headers: [(&[u8], Option<&[u8]>); 1] = [(b"h", None)];
        builder.append(NOW - 7, Some(b"a"), None, headers).expect("fits");
        builder.append(NOW - 3, None, Some(b"b"), []).expect("fits");
        let sent = builder.build().expect("fits");
        for target in ALL_CODECS {
            let rules = ProduceRules { compression: Some(Codec::from(target)), ..rules() };
            let batch = validate(sent.to_vec(), &rules).expect("a sound batch");
            assert_eq!(batch.is_changed(), source != target);
            assert_eq!(batch.offset_delta_of_max_timestamp(), 1);
            let stored = batch.into_bytes(Offset(0), LeaderEpoch(-1));
            let view = BatchView::parse(&stored).expect("whole");
            assert_eq!((view.compression(), view.check_crc()), (Ok(target), Ok(())));
            assert_eq!((view.producer_id(), view.base_sequence()), (ProducerId(5), 3));
            assert_eq!((view.is_transactional(), view.max_timestamp()), (true, NOW - 3));
            assert_eq!(read_all(&stored), read_all(&sent));
        }
    }
}

#[test]
fn a_batch_may_not_grow_beyond_the_limit_by_changing_codec() {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(Compression::Gzip);
    builder.append(NOW, None, Some(&[7; 300]), []).expect("fits");
    let sent = builder.build().expect("fits").to_vec();
    let codec = Some(Codec::from(Compression::None));
    let rules = ProduceRules { max_message_bytes: 200, compression: codec, ..rules() };
    assert!(sent.len() < 200);
    assert_eq!(code_with(sent, &rules), ErrorCode::MessageTooLarge);
}

#[test]
fn compressed_records_beyond_the_limit_for_one_record_are_refused() {
    for codec in ALL_CODECS {
        let mut builder = BatchBuilder::new(Offset::ZERO).compression(codec);
        builder.append(NOW, None, Some(&[7; 600]), []).expect("fits");
        let sent = builder.build().expect("fits").to_vec();
        let limits = ReadLimits { record_bytes: 500, ..ReadLimits::default() };
        let expected =
            if codec == Compression::None { ErrorCode::None } else { ErrorCode::InvalidRecord };
        assert_eq!(code_with(sent, &ProduceRules { limits, ..rules() }), expected);
    }
}

#[test]
fn millions_of_refused_records_are_counted_and_not_listed() {
    let times = vec![NOW + 9_000_000; 5000];
    let error = validate(at_times(&times, Compression::Zstd), &rules()).expect_err("too late");
    assert!(matches!(error, ClientBatchError::Records { count: 5000, .. }));
    assert_eq!(error.record_errors().len(), 1000);
    assert_eq!(error.record_errors()[999].batch_index, 999);
}

#[test]
fn an_append_reuses_a_buffer_that_nobody_else_holds() {
    let bytes = shared(simple(3, Compression::None));
    let start = bytes.as_ptr();
    let batch = validate_client_batch(&bytes, &rules(), &mut ReadBuffer::new()).expect("sound");
    drop(bytes);
    assert_eq!(
        batch.clone().into_bytes(Offset(1), LeaderEpoch(0)).len(),
        batch.payload().len() + 61
    );
    let appended: Bytes = batch.into_bytes(Offset(1), LeaderEpoch(0));
    assert_eq!(appended.as_ptr(), start);
}
