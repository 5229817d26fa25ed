//! The framings of each codec, as measured against Apache Kafka 4.4.0, and decompression bombs.

use std::io::Write;

use protocol::records::{BatchError, BatchView, Compression, ReadBuffer, ReadLimits};

use crate::support::{ALL_CODECS, holding, plain_record, read_all, simple};

const XERIAL_HEADER: &[u8] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

fn two_records() -> Vec<u8> {
    [plain_record(0, 0, Some(b"a")), plain_record(0, 1, Some(b"b"))].concat()
}

fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("snappy compresses anything")
}

fn xerial_block(bytes: &[u8]) -> Vec<u8> {
    let block = snappy(bytes);
    [(block.len() as u32).to_be_bytes().to_vec(), block].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("gzip compresses anything")
}

fn lz4(bytes: &[u8], mode: lz4_flex::frame::BlockMode) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new().block_mode(mode);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).expect("lz4 compresses anything");
    encoder.finish().expect("lz4 compresses anything")
}

/// What both ways of reading say about two records stored as `payload`; they must agree.
fn outcome(codec: Compression, payload: &[u8]) -> Result<(), BatchError> {
    let batch = holding(2, codec, payload);
    let view = BatchView::parse(&batch).expect("a whole batch");
    let mut buffer = ReadBuffer::new();
    let read = view
        .records(&mut buffer, 1 << 20)
        .and_then(|mut records| records.try_for_each(|record| record.map(drop)));
    let walked = view.walk(&mut buffer, ReadLimits::default(), |_| Ok(())).map(drop);
    assert_eq!(read.is_ok(), walked.is_ok(), "{read:?} {walked:?}");
    walked
}

fn is_decompression_error(result: &Result<(), BatchError>) -> bool {
    matches!(result, Err(BatchError::Decompression { .. }))
}

#[test]
fn both_snappy_framings_are_read() {
    let records = two_records();
    let (head, tail) = records.split_at(5);
    assert_eq!(outcome(Compression::Snappy, &snappy(&records)), Ok(()));
    let framed = [XERIAL_HEADER, &xerial_block(&records)].concat();
    assert_eq!(outcome(Compression::Snappy, &framed), Ok(()));
    let blocks = [XERIAL_HEADER, &xerial_block(head), &xerial_block(tail)].concat();
    assert_eq!(outcome(Compression::Snappy, &blocks), Ok(()));
    let streams = [XERIAL_HEADER, &xerial_block(head), XERIAL_HEADER, &xerial_block(tail)].concat();
    assert_eq!(outcome(Compression::Snappy, &streams), Ok(()));
    assert_eq!(outcome(Compression::Snappy, &[&framed[..], &[0, 0]].concat()), Ok(()));
}

#[test]
fn torn_snappy_blocks_are_refused() {
    let framed = [XERIAL_HEADER, &xerial_block(&two_records())].concat();
    assert!(is_decompression_error(&outcome(Compression::Snappy, &framed[..framed.len() - 1])));
    let negative = [XERIAL_HEADER, &[0xff; 4], b"abc"].concat();
    assert!(is_decompression_error(&outcome(Compression::Snappy, &negative)));
    let raw = snappy(&two_records());
    assert!(is_decompression_error(&outcome(Compression::Snappy, &raw[..raw.len() - 1])));
}

#[test]
fn a_snappy_block_is_not_given_the_memory_it_claims() {
    // The varint in front says 4 GiB - 1.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0];
    let batch = holding(2, Compression::Snappy, &claim);
    let view = BatchView::parse(&batch).expect("a whole batch");
    let mut buffer = ReadBuffer::new();
    assert!(view.records(&mut buffer, usize::MAX >> 1).is_err());
    assert!(buffer.retained_bytes() < 4096, "{buffer:?}");
}

#[test]
fn gzip_members_follow_each_other_and_bytes_behind_them_are_passed_over() {
    let records = two_records();
    let (head, tail) = records.split_at(5);
    let whole = gzip(&records);
    assert_eq!(outcome(Compression::Gzip, &whole), Ok(()));
    assert_eq!(outcome(Compression::Gzip, &[gzip(head), gzip(tail)].concat()), Ok(()));
    assert_eq!(outcome(Compression::Gzip, &[&whole[..], b"zzzz"].concat()), Ok(()));
    assert!(is_decompression_error(&outcome(Compression::Gzip, &whole[..whole.len() - 3])));
    let mut wrong_crc = whole;
    let crc_at = wrong_crc.len() - 8;
    wrong_crc[crc_at] ^= 1;
    assert!(is_decompression_error(&outcome(Compression::Gzip, &wrong_crc)));
}

#[test]
fn lz4_frames_must_end_and_have_independent_blocks() {
    use lz4_flex::frame::BlockMode;
    let records = two_records();
    let whole = lz4(&records, BlockMode::Independent);
    assert_eq!(outcome(Compression::Lz4, &whole), Ok(()));
    assert_eq!(outcome(Compression::Lz4, &[&whole[..], b"zzzzzzzz"].concat()), Ok(()));
    assert!(is_decompression_error(&outcome(Compression::Lz4, &whole[..whole.len() - 4])));
    let linked = lz4(&records, BlockMode::Linked);
    assert!(is_decompression_error(&outcome(Compression::Lz4, &linked)));
    // Only the first frame counts.
    let (head, tail) = records.split_at(records.len() / 2);
    let frames = [lz4(head, BlockMode::Independent), lz4(tail, BlockMode::Independent)].concat();
    assert!(matches!(outcome(Compression::Lz4, &frames), Err(BatchError::Record { index: 1, .. })));
}

#[test]
fn bytes_that_no_codec_wrote_are_refused() {
    for codec in ALL_CODECS.into_iter().filter(|codec| *codec != Compression::None) {
        for payload in [&b"not compressed at all"[..], &[0; 40], &[0xff; 40]] {
            assert!(outcome(codec, payload).is_err(), "{}", codec.name());
        }
        assert!(outcome(codec, &[]).is_err(), "{}", codec.name());
    }
}

#[test]
fn a_buffer_is_good_again_after_a_batch_that_failed() {
    let mut buffer = ReadBuffer::new();
    for codec in ALL_CODECS {
        let whole = simple(50, codec);
        let mut torn = whole.clone();
        torn.truncate(whole.len() - 6);
        let torn = crate::support::sealed(torn);
        for _ in 0..2 {
            let view = BatchView::parse(&torn).expect("a whole batch");
            assert!(view.walk(&mut buffer, ReadLimits::default(), |_| Ok(())).is_err());
            let view = BatchView::parse(&whole).expect("a whole batch");
            let mut count = 0;
            view.walk(&mut buffer, ReadLimits::default(), |_| {
                count += 1;
                Ok(())
            })
            .expect("the whole batch is sound");
            assert_eq!(count, 50, "{}", codec.name());
        }
    }
}

#[test]
fn decompression_stops_at_its_limit() {
    const LIMIT: usize = 1 << 20;
    // One record with a value of 32 MiB of zeros.
    let mut builder = protocol::records::BatchBuilder::new(protocol::Offset::ZERO);
    builder.append(0, None, Some(&vec![0; 32 << 20]), []).expect("a record that fits");
    for codec in ALL_CODECS.into_iter().filter(|codec| *codec != Compression::None) {
        let bomb = builder.clone().compression(codec).build().expect("a batch that fits");
        assert!(bomb.len() < 2 << 20, "{}", codec.name());
        let view = BatchView::parse(&bomb).expect("a whole batch");
        let mut buffer = ReadBuffer::new();
        let too_large = BatchError::DecompressedTooLarge { limit_bytes: LIMIT };
        assert_eq!(view.records(&mut buffer, LIMIT).map(drop), Err(too_large), "{}", codec.name());
        assert!(buffer.retained_bytes() <= 4 * LIMIT, "{}: {buffer:?}", codec.name());
        let limits = ReadLimits { batch_bytes: LIMIT, record_bytes: LIMIT };
        assert!(view.walk(&mut buffer, limits, |_| Ok(())).is_err(), "{}", codec.name());
        let mut walk_buffer = ReadBuffer::new();
        view.walk(&mut walk_buffer, ReadLimits::default(), |_| Ok(())).expect("within the limit");
        assert!(walk_buffer.retained_bytes() < 1 << 16, "{}", codec.name());
    }
}

#[test]
fn what_is_compressed_here_reads_back_whatever_its_size() {
    for codec in ALL_CODECS {
        for count in [0, 1, 3, 20_000] {
            let batch = simple(count, codec);
            assert_eq!(read_all(&batch).len(), count as usize, "{}", codec.name());
        }
    }
}
