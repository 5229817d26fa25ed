//! Every line of `golden/batches.jsonl`: batches that Apache Kafka 4.4.0 wrote.

use std::path::Path;

use bytes::Bytes;
use protocol::records::{
    BatchBuilder, BatchView, BatchViews, Batches, Compression, ControlType, EndTransactionMarker,
    ProducerStamp, ReadBuffer, ReadLimits, TimestampType, patch, valid_bytes,
};
use serde_json::Value;

use crate::support::read_all;

/// Name, bytes and described batches of each line; `None`, with a printed word, without the folder.
fn golden_lines() -> Option<Vec<(String, Bytes, Vec<Value>)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/batches.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("SKIPPED: golden batches are not at {}", path.display());
        return None;
    };
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("golden lines are JSON");
        let name = line["name"].as_str().expect("a name").to_owned();
        let batches = line["batches"].as_array().expect("batches").clone();
        (name, Bytes::from(unhex(&line["hex"])), batches)
    });
    Some(lines.collect())
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex digits");
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits"))
        .collect()
}

fn unhex_nullable(value: &Value) -> Option<Vec<u8>> {
    (!value.is_null()).then(|| unhex(value))
}

fn int(value: &Value) -> i64 {
    value.as_i64().expect("an integer")
}

#[test]
fn every_golden_batch_reads_as_kafka_describes_it() {
    let Some(lines) = golden_lines() else { return };
    for (name, bytes, described) in lines {
        assert_eq!(valid_bytes(&bytes), bytes.len(), "{name}");
        let batches: Vec<_> =
            Batches::new(bytes).collect::<Result<_, _>>().expect("golden batches are whole");
        assert_eq!(batches.len(), described.len(), "{name}");
        for (batch, expected) in batches.iter().zip(&described) {
            assert_header(&name, &batch.view(), expected);
            assert_records(&name, &batch.view(), &expected["records"]);
        }
    }
}

fn assert_header(name: &str, batch: &BatchView<'_>, expected: &Value) {
    batch.check_crc().expect("Kafka's checksum is right");
    batch.check_counts().expect("Kafka's counts are right");
    let timestamp_type = match batch.timestamp_type() {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    };
    assert_eq!(batch.base_offset().0, int(&expected["baseOffset"]), "{name}");
    assert_eq!(batch.last_offset().0, int(&expected["lastOffset"]), "{name}");
    assert_eq!(
        i64::from(batch.partition_leader_epoch().0),
        int(&expected["leaderEpoch"]),
        "{name}"
    );
    assert_eq!(batch.size_in_bytes() as i64, int(&expected["sizeInBytes"]), "{name}");
    assert_eq!(i64::from(batch.crc()), int(&expected["crc"]), "{name}");
    assert_eq!(batch.compression().expect("a codec").name(), expected["compression"], "{name}");
    assert_eq!(timestamp_type, expected["timestampType"], "{name}");
    assert_eq!(batch.max_timestamp(), int(&expected["maxTimestamp"]), "{name}");
    assert_eq!(batch.producer_id().0, int(&expected["producerId"]), "{name}");
    assert_eq!(i64::from(batch.producer_epoch().0), int(&expected["producerEpoch"]), "{name}");
    assert_eq!(i64::from(batch.base_sequence()), int(&expected["baseSequence"]), "{name}");
    assert_eq!(i64::from(batch.last_sequence()), int(&expected["lastSequence"]), "{name}");
    assert_eq!(batch.is_transactional(), expected["transactional"], "{name}");
    assert_eq!(batch.is_control(), expected["control"], "{name}");
    assert_eq!(batch.delete_horizon().unwrap_or(-1), int(&expected["deleteHorizonMs"]), "{name}");
}

fn assert_records(name: &str, batch: &BatchView<'_>, expected: &Value) {
    let expected = expected.as_array().expect("records");
    let mut buffer = ReadBuffer::new();
    let records = batch.records(&mut buffer, 1 << 20).expect("golden records decompress");
    let records: Vec<_> = records.collect::<Result<_, _>>().expect("golden records are sound");
    assert_eq!(records.len(), expected.len(), "{name}");
    for (record, expected) in records.iter().zip(expected) {
        assert_eq!(record.offset.0, int(&expected["offset"]), "{name}");
        assert_eq!(record.timestamp, int(&expected["timestamp"]), "{name}");
        assert_eq!(i64::from(record.sequence), int(&expected["sequence"]), "{name}");
        assert_eq!(record.key, unhex_nullable(&expected["key"]).as_deref(), "{name}");
        assert_eq!(record.value, unhex_nullable(&expected["value"]).as_deref(), "{name}");
        let headers: Vec<_> = record
            .headers
            .map(|header| (header.key_text().into_owned(), header.value.map(<[u8]>::to_vec)))
            .collect();
        let expected: Vec<_> = expected["headers"]
            .as_array()
            .expect("headers")
            .iter()
            .map(|header| {
                let key = header["key"].as_str().expect("a header key").to_owned();
                (key, unhex_nullable(&header["value"]))
            })
            .collect();
        assert_eq!(headers, expected, "{name}");
    }
    let mut walk_buffer = ReadBuffer::new();
    let mut walked = 0;
    batch
        .walk(&mut walk_buffer, ReadLimits::default(), |facts| {
            let record = &records[facts.index as usize];
            assert_eq!(facts.timestamp, record.timestamp, "{name}");
            assert_eq!(facts.offset_delta, record.offset_delta, "{name}");
            assert_eq!(facts.has_key, record.key.is_some(), "{name}");
            assert_eq!(facts.has_value, record.value.is_some(), "{name}");
            walked += 1;
            Ok(())
        })
        .expect("golden records can be walked");
    assert_eq!(walked, records.len(), "{name}");
}

#[test]
fn uncompressed_golden_batches_are_rebuilt_byte_for_byte() {
    let Some(lines) = golden_lines() else { return };
    let mut rebuilt = 0;
    for (name, bytes, _) in lines {
        for batch in BatchViews::new(&bytes) {
            let batch = batch.expect("a golden batch");
            if batch.compression() == Ok(Compression::None) {
                assert_eq!(rebuild(&batch), batch.as_bytes(), "{name}");
                rebuilt += 1;
            }
        }
    }
    assert!(rebuilt >= 8, "only {rebuilt} golden batches were uncompressed");
}

#[test]
fn compressed_golden_batches_survive_compressing_anew() {
    let Some(lines) = golden_lines() else { return };
    for (name, bytes, _) in lines {
        for batch in BatchViews::new(&bytes) {
            let batch = batch.expect("a golden batch");
            assert_eq!(read_all(&rebuild(&batch)), read_all(batch.as_bytes()), "{name}");
        }
    }
}

/// Builds the batch again from nothing but its fields.
fn rebuild(batch: &BatchView<'_>) -> Bytes {
    let mut builder = BatchBuilder::new(batch.base_offset())
        .leader_epoch(batch.partition_leader_epoch())
        .compression(batch.compression().expect("a codec"))
        .producer(ProducerStamp {
            id: batch.producer_id(),
            epoch: batch.producer_epoch(),
            base_sequence: batch.base_sequence(),
        });
    if batch.is_transactional() {
        builder = builder.transactional();
    }
    if batch.is_control() {
        builder = builder.control();
    }
    // Log-append-time batches keep the producer's times in their deltas, seen as create time.
    let mut create_time = batch.as_bytes().to_vec();
    if batch.timestamp_type() == TimestampType::LogAppendTime {
        builder = builder.log_append_time(batch.max_timestamp());
        patch::set_max_timestamp(&mut create_time, TimestampType::CreateTime, 0)
            .expect("a whole batch");
    }
    let create_time = BatchView::parse(&create_time).expect("a whole batch");
    let mut buffer = ReadBuffer::new();
    for record in create_time.records(&mut buffer, 1 << 20).expect("golden records decompress") {
        builder.append_record(&record.expect("a sound record")).expect("a record that fits");
    }
    builder.build().expect("a batch that fits")
}

#[test]
fn transaction_markers_equal_kafkas() {
    let Some(lines) = golden_lines() else { return };
    let markers = lines.iter().filter(|(name, ..)| name.starts_with("marker"));
    let mut seen = Vec::new();
    for (name, bytes, _) in markers {
        let batch = BatchView::parse(bytes).expect("a marker batch");
        let mut buffer = ReadBuffer::new();
        let record = batch
            .records(&mut buffer, 1 << 20)
            .expect("not compressed")
            .next()
            .expect("one record")
            .expect("a sound record");
        let marker = EndTransactionMarker::parse(&record).expect("sound").expect("an end marker");
        let kind = if marker.commit { ControlType::Commit } else { ControlType::Abort };
        assert_eq!(ControlType::parse(&record), Ok(kind), "{name}");
        assert_eq!(marker.coordinator_epoch, 6, "{name}");
        let built = marker
            .build(
                batch.base_offset(),
                batch.partition_leader_epoch(),
                record.timestamp,
                (batch.producer_id(), batch.producer_epoch()),
            )
            .expect("a marker fits");
        assert_eq!(built, bytes, "{name}");
        seen.push(marker.commit);
    }
    assert_eq!(seen, [true, false]);
}
