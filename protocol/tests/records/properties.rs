//! Properties over random batches: round trips, agreement of the two ways to read, and that no
//! bytes, however damaged, panic or take unbounded memory.

use bytes::Bytes;
use proptest::prelude::*;
use protocol::records::{
    BatchBuilder, BatchView, Batches, Compression, ControlType, EndTransactionMarker, ProduceRules,
    ReadBuffer, ReadLimits, valid_bytes, validate_client_batch,
};
use protocol::{LeaderEpoch, Offset};

use crate::support::{ALL_CODECS, OwnedRecord, read_all, sealed};

const LIMIT: usize = 1 << 20;

fn codec() -> impl Strategy<Value = Compression> {
    prop::sample::select(ALL_CODECS.to_vec())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        // Long runs, so that compression does something.
        (any::<u8>(), 0..5000usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn a_record() -> impl Strategy<Value = OwnedRecord> {
    let headers = prop::collection::vec(
        (prop::collection::vec(any::<u8>(), 0..9), prop::option::of(bytes())),
        0..4,
    );
    (-1..i64::MAX / 2, prop::option::of(bytes()), prop::option::of(bytes()), headers)
        .prop_map(|(timestamp, key, value, headers)| OwnedRecord { timestamp, key, value, headers })
}

fn records() -> impl Strategy<Value = Vec<OwnedRecord>> {
    prop::collection::vec(a_record(), 0..12)
}

fn build(records: &[OwnedRecord], codec: Compression) -> Bytes {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(codec);
    for record in records {
        let headers = record.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        builder
            .append(record.timestamp, record.key.as_deref(), record.value.as_deref(), headers)
            .expect("a small record fits");
    }
    builder.build().expect("a small batch fits")
}

/// Reads `bytes` in every way there is, under small limits.
fn exercise(bytes: &Bytes) {
    let limits = ReadLimits { batch_bytes: LIMIT, record_bytes: LIMIT };
    let mut buffer = ReadBuffer::new();
    assert!(valid_bytes(bytes) <= bytes.len());
    for batch in Batches::new(bytes.clone()).flatten() {
        let _ = (batch.view().check_crc(), batch.check_counts());
        let _ = (batch.last_offset(), batch.next_offset(), batch.last_sequence());
        let walked = batch.view().walk(&mut buffer, limits, |_| Ok(()));
        let mut read = Ok(());
        match batch.view().records(&mut buffer, LIMIT) {
            Err(error) => read = Err(error),
            Ok(records) => {
                for record in records {
                    match record {
                        Err(error) => read = Err(error),
                        Ok(record) => {
                            assert_eq!(record.headers.len(), record.headers.count());
                            let _ = ControlType::parse(&record);
                            let _ = EndTransactionMarker::parse(&record);
                        }
                    }
                }
            }
        }
        // The Zstandard library notices a wrong content size only in frames that fit its output.
        if batch.compression() != Ok(Compression::Zstd) {
            assert_eq!(walked.is_ok(), read.is_ok(), "{walked:?} {read:?}");
        }
        assert!(buffer.retained_bytes() <= 4 * LIMIT, "{buffer:?}");
    }
    let rules = ProduceRules { limits, now: 5, ..ProduceRules::default() };
    if let Ok(batch) = validate_client_batch(bytes, &rules, &mut buffer) {
        let stored = batch.into_bytes(Offset(3), LeaderEpoch(1));
        BatchView::parse(&stored)
            .and_then(|view| view.check_crc())
            .expect("stored batches are sound");
    }
}

proptest! {
    #[test]
    fn what_is_built_reads_back(records in records(), codec in codec()) {
        let batch = build(&records, codec);
        let view = BatchView::parse(&batch).expect("a whole batch");
        prop_assert_eq!(view.check_crc(), Ok(()));
        prop_assert_eq!(view.check_counts(), Ok(()));
        prop_assert_eq!(view.count() as usize, records.len());
        let latest = records.iter().map(|record| record.timestamp).max().unwrap_or(-1);
        prop_assert_eq!(view.max_timestamp(), latest);
        let walked = view.walk(&mut ReadBuffer::new(), ReadLimits::default(), |_| Ok(()))
            .expect("a sound batch");
        prop_assert_eq!(walked.max_timestamp, latest);
        let first = records.iter().position(|record| record.timestamp == latest);
        prop_assert_eq!(walked.offset_delta_of_max_timestamp, first.map_or(-1, |i| i as i32));
        let uncompressed = build(&records, Compression::None);
        prop_assert_eq!(walked.records_bytes as usize, uncompressed.len() - 61);
        prop_assert_eq!(read_all(&batch), records);
    }

    #[test]
    fn damaged_batches_neither_panic_nor_take_memory(
        records in records(),
        codec in codec(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        seal in any::<bool>(),
    ) {
        let mut batch = build(&records, codec).to_vec();
        for (position, byte) in damage {
            let position = position.index(batch.len());
            batch[position] = byte;
        }
        if let Some(cut) = cut {
            batch.truncate(cut.index(batch.len()));
        }
        // A right checksum lets the damage through to the records.
        if seal && batch.len() >= 61 {
            batch = sealed(batch);
        }
        exercise(&Bytes::from(batch));
    }

    #[test]
    fn damaged_payloads_reach_the_codecs_and_do_no_harm(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        count in prop_oneof![0..5i32, Just(i32::MAX)],
        codec in codec(),
    ) {
        exercise(&Bytes::from(crate::support::holding(count, codec, &payload)));
    }

    #[test]
    fn random_bytes_are_never_more_than_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        exercise(&Bytes::from(bytes));
    }
}
