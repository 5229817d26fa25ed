//! Batches and records with one thing wrong, each refused for that thing.

use protocol::records::{
    BatchBuilder, BatchError, BatchHeader, BatchView, BatchViews, Batches, BuildError, Compression,
    ReadBuffer, ReadLimits, RecordProblem, TimestampType, first_batch, patch, valid_bytes,
};
use protocol::{ErrorCode, LeaderEpoch, Offset};

use crate::support::{at, holding, plain_record, record, shared, simple, varint, with};

fn parse_error(bytes: &[u8]) -> BatchError {
    BatchView::parse(bytes).expect_err("a malformed batch")
}

/// The problem that both ways of reading find in the only record of a batch with this payload.
fn problem(payload: &[u8]) -> RecordProblem {
    let batch = holding(1, Compression::None, payload);
    let view = BatchView::parse(&batch).expect("a whole batch");
    let mut buffer = ReadBuffer::new();
    let read = view.records(&mut buffer, 0).expect("not compressed").next().expect("an item");
    assert!(read.is_err(), "{read:?}");
    let walked = view.walk(&mut ReadBuffer::new(), ReadLimits::default(), |_| Ok(()));
    match walked {
        Err(error @ BatchError::Record { index: 0, problem }) => {
            assert_eq!(error.error_code(), ErrorCode::InvalidRecord);
            problem
        }
        other => panic!("expected a malformed record 0, got {other:?}"),
    }
}

#[test]
fn old_formats_are_refused_by_name() {
    for magic in [0i8, 1] {
        let batch = with(simple(1, Compression::None), at::MAGIC, &magic.to_be_bytes());
        assert_eq!(parse_error(&batch), BatchError::OldMagic { magic });
        assert_eq!(parse_error(&batch).error_code(), ErrorCode::InvalidRecord);
        // An old batch may be smaller than a header of format 2.
        let mut small = batch[..26].to_vec();
        small[at::LENGTH..at::LENGTH + 4].copy_from_slice(&14i32.to_be_bytes());
        assert_eq!(parse_error(&small), BatchError::OldMagic { magic });
    }
}

#[test]
fn unknown_formats_are_corruption() {
    for magic in [3i8, -1, 127] {
        let batch = with(simple(1, Compression::None), at::MAGIC, &magic.to_be_bytes());
        assert_eq!(parse_error(&batch), BatchError::UnknownMagic { magic });
        assert_eq!(parse_error(&batch).error_code(), ErrorCode::CorruptMessage);
    }
}

#[test]
fn length_fields_that_cannot_be_are_corruption() {
    for length in [i32::MIN, -1, 0, 13, 48] {
        let mut batch = simple(1, Compression::None);
        batch[at::LENGTH..at::LENGTH + 4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(parse_error(&batch), BatchError::LengthTooSmall { length, minimum: 49 });
        assert_eq!(parse_error(&batch).error_code(), ErrorCode::CorruptMessage);
    }
}

#[test]
fn a_length_beyond_the_buffer_says_what_is_missing() {
    let batch = simple(1, Compression::None);
    let (needed, available) = (batch.len() as u64, batch.len() as u64 - 1);
    let torn = &batch[..batch.len() - 1];
    assert_eq!(parse_error(torn), BatchError::Incomplete { needed, available });
    let mut huge = batch;
    huge[at::LENGTH..at::LENGTH + 4].copy_from_slice(&i32::MAX.to_be_bytes());
    let needed = i32::MAX as u64 + 12;
    assert_eq!(parse_error(&huge), BatchError::Incomplete { needed, available: available + 1 });
    assert_eq!(parse_error(&[]), BatchError::Incomplete { needed: 61, available: 0 });
}

#[test]
fn a_flipped_bit_anywhere_under_the_checksum_is_found() {
    let batch = simple(2, Compression::None);
    for position in at::CRC..batch.len() {
        let mut flipped = batch.clone();
        flipped[position] ^= 0x10;
        let error = BatchView::parse(&flipped).expect("structure is untouched").check_crc();
        let error = error.expect_err("a flipped bit");
        assert!(matches!(error, BatchError::Checksum { .. }), "byte {position}: {error}");
        assert_eq!(error.error_code(), ErrorCode::CorruptMessage);
    }
}

#[test]
fn counts_and_offsets_must_go_together() {
    let batch = simple(3, Compression::None);
    let check = |batch: &[u8]| BatchHeader::parse(batch).expect("a header").check_counts();
    assert_eq!(check(&batch), Ok(()));
    let negative = with(batch.clone(), at::COUNT, &(-1i32).to_be_bytes());
    assert!(matches!(check(&negative), Err(BatchError::Count { count: -1, .. })));
    let too_many = with(batch.clone(), at::COUNT, &4i32.to_be_bytes());
    assert!(matches!(check(&too_many), Err(BatchError::Count { count: 4, .. })));
    // Compaction leaves fewer records than offsets, even none (rule F05).
    let emptied = with(batch.clone(), at::COUNT, &0i32.to_be_bytes());
    assert_eq!(check(&emptied), Ok(()));
    let backwards = with(batch.clone(), at::LAST_OFFSET_DELTA, &(-1i32).to_be_bytes());
    assert!(matches!(check(&backwards), Err(BatchError::Offsets { .. })));
    let at_the_end = with(batch, at::BASE_OFFSET, &(i64::MAX - 2).to_be_bytes());
    assert!(matches!(check(&at_the_end), Err(BatchError::Offsets { .. })));
    let header = BatchHeader::parse(&at_the_end).expect("a header");
    assert_eq!(header.last_offset(), Offset(i64::MAX));
}

#[test]
fn a_torn_tail_ends_the_walk_quietly_and_garbage_does_not() {
    let (one, two) = (simple(1, Compression::None), simple(2, Compression::Lz4));
    let whole = [one.clone(), two.clone()].concat();
    for cut in one.len()..whole.len() {
        let torn = shared(whole[..cut].to_vec());
        assert_eq!(valid_bytes(&torn), one.len());
        let mut batches = Batches::new(torn);
        assert_eq!(batches.next().expect("one").expect("whole").count(), 1);
        assert_eq!(batches.next(), None, "cut at {cut}");
        assert_eq!(batches.valid_bytes(), one.len());
    }
    let garbage = [one.clone(), vec![0; 20]].concat();
    let mut views = BatchViews::new(&garbage);
    assert!(views.next().expect("one").is_ok());
    let error = views.next().expect("an error").expect_err("garbage");
    assert_eq!(error, BatchError::LengthTooSmall { length: 0, minimum: 49 });
    assert_eq!(views.next(), None);
    assert_eq!(views.valid_bytes(), one.len());
    assert_eq!(first_batch(&one[..16]), Ok(None));
    assert_eq!(first_batch(&whole).expect("sound").expect("one").as_bytes(), one);
}

#[test]
fn batches_of_a_shared_buffer_are_slices_of_it() {
    let bytes = shared([simple(1, Compression::None), simple(2, Compression::None)].concat());
    let range = bytes.as_ptr_range();
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.expect("a whole batch");
        assert!(range.contains(&batch.as_bytes().as_ptr()));
    }
}

#[test]
fn records_must_fill_their_length_exactly() {
    let whole: [&[u8]; 6] = [&[0], &[0], &[0], &varint(-1), &varint(-1), &[0]];
    assert_eq!(problem(&record(&[&whole.concat(), b"zz"])), RecordProblem::Underrun { left: 2 });
    assert_eq!(problem(&record(&whole[..5])), RecordProblem::Overrun);
    assert_eq!(problem(&record(&[&[0, 0, 0], &varint(9), b"short"])), RecordProblem::Overrun);
    let (length, available) = (64, 2);
    assert!(matches!(
        problem(&[varint(length).as_slice(), &[0]].concat()),
        RecordProblem::Length { length: 64, available: left } if left <= available + 1
    ));
    assert!(matches!(problem(&varint(-2)), RecordProblem::Length { length: -2, .. }));
}

#[test]
fn varints_that_go_on_are_refused() {
    assert_eq!(problem(&[0x80; 16]), RecordProblem::Varint);
    let too_long = [0x80, 0x80, 0x80, 0x80, 0x80, 0];
    assert_eq!(problem(&record(&[&[0, 0], &too_long, &[1, 1, 0]])), RecordProblem::Varint);
    assert_eq!(problem(&record(&[&[0], &[0xff; 11]])), RecordProblem::Varint);
}

#[test]
fn header_counts_and_keys_are_checked() {
    let start: &[u8] = &[0, 0, 0, 1, 1];
    assert_eq!(problem(&record(&[start, &varint(-1)])), RecordProblem::HeaderCount { count: -1 });
    let count = i32::MAX;
    let many = record(&[start, &varint(i64::from(count)), b"ab"]);
    assert_eq!(problem(&many), RecordProblem::HeaderCount { count });
    let null_key = record(&[start, &varint(1), &varint(-1), &varint(-1)]);
    assert_eq!(problem(&null_key), RecordProblem::HeaderKeyLength { length: -1 });
}

#[test]
fn a_batch_must_hold_what_it_counts_and_no_more() {
    let one = plain_record(0, 0, None);
    let batch = holding(2, Compression::None, &one);
    let view = BatchView::parse(&batch).expect("a whole batch");
    let missing = BatchError::Record { index: 1, problem: RecordProblem::Missing };
    let walk = |view: &BatchView<'_>| {
        view.walk(&mut ReadBuffer::new(), ReadLimits::default(), |_| Ok(())).map(drop)
    };
    assert_eq!(walk(&view), Err(missing.clone()));
    let mut buffer = ReadBuffer::new();
    assert_eq!(view.records(&mut buffer, 0).expect("plain").nth(1), Some(Err(missing)));
    let batch = holding(1, Compression::None, &[one.clone(), one].concat());
    let view = BatchView::parse(&batch).expect("a whole batch");
    let trailing = BatchError::TrailingBytes { count: 1 };
    assert_eq!(walk(&view), Err(trailing.clone()));
    let mut records = view.records(&mut buffer, 0).expect("plain");
    assert_eq!(records.by_ref().nth(1), Some(Err(trailing)));
    assert_eq!(records.next(), None);
}

#[test]
fn null_and_empty_are_told_apart() {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"", None), (b"", Some(b""))];
    builder.append(0, None, Some(b""), headers).expect("fits");
    builder.append(0, Some(b""), None, []).expect("fits");
    let batch = builder.build().expect("fits");
    let records = crate::support::read_all(&batch);
    assert_eq!((&records[0].key, &records[0].value), (&None, &Some(Vec::new())));
    assert_eq!((&records[1].key, &records[1].value), (&Some(Vec::new()), &None));
    assert_eq!(records[0].headers, [(Vec::new(), None), (Vec::new(), Some(Vec::new()))]);
}

#[test]
fn offset_and_epoch_patches_leave_the_checksum_alone_and_timestamps_renew_it() {
    let mut batch = simple(2, Compression::Gzip);
    let before = BatchView::parse(&batch).expect("whole").crc();
    patch::set_base_offset(&mut batch, Offset(77));
    patch::set_partition_leader_epoch(&mut batch, LeaderEpoch(5));
    let view = BatchView::parse(&batch).expect("whole");
    assert_eq!((view.base_offset(), view.partition_leader_epoch()), (Offset(77), LeaderEpoch(5)));
    assert_eq!((view.crc(), view.check_crc()), (before, Ok(())));
    let max = view.max_timestamp();
    assert_eq!(patch::set_max_timestamp(&mut batch, TimestampType::CreateTime, max), Ok(false));
    batch.extend_from_slice(b"behind");
    assert_eq!(patch::set_max_timestamp(&mut batch, TimestampType::LogAppendTime, 9), Ok(true));
    let view = BatchView::parse(&batch).expect("whole");
    assert_eq!((view.timestamp_type(), view.max_timestamp()), (TimestampType::LogAppendTime, 9));
    assert_eq!(view.check_crc(), Ok(()));
    assert!(batch.ends_with(b"behind"));
}

#[test]
fn builders_refuse_offsets_that_do_not_grow_or_leave_32_bits() {
    let mut builder = BatchBuilder::new(Offset(10));
    builder.append_at(Offset(12), 0, None, None, []).expect("a gap is fine");
    for offset in [Offset(12), Offset(9), Offset(i64::MIN), Offset(11 + (1 << 31))] {
        let error = builder.append_at(offset, 0, None, None, []);
        assert!(matches!(error, Err(BuildError::Offset { .. })), "{offset}");
    }
    builder.extend_last_offset(Offset(20));
    let batch = builder.build().expect("fits");
    let view = BatchView::parse(&batch).expect("whole");
    assert_eq!((view.count(), view.last_offset(), view.next_offset()), (1, Offset(20), Offset(21)));
    assert_eq!(view.check_counts(), Ok(()));
}
