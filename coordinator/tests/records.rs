//! The records of `__consumer_offsets` against the bytes that Kafka writes: each known key and value of
//! the golden file, read and written again, and what is not known skipped.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use coordinator::{Record, RecordError};
use serde_json::Value;

/// A line of the golden file: message, record number, version, case, bytes.
struct Golden {
    message: String,
    key: i16,
    version: i16,
    case: String,
    bytes: Bytes,
}

fn golden() -> Option<Vec<Golden>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/golden/group-coordinator-records.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("SKIPPED: {} is not there", path.display());
        return None;
    };
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let hex = line["hex"].as_str().expect("hex").as_bytes();
        let digit = |c: u8| (c as char).to_digit(16).expect("a hex digit") as u8;
        let bytes: Vec<u8> =
            hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        let number = |name: &str| i16::try_from(line[name].as_i64().expect(name)).expect(name);
        Golden {
            message: line["message"].as_str().expect("message").to_owned(),
            key: number("key"),
            version: number("version"),
            case: line["case"].as_str().expect("case").to_owned(),
            bytes: bytes.into(),
        }
    });
    Some(lines.collect())
}

fn prefixed(prefix: i16, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_i16(prefix);
    bytes.put_slice(body);
    bytes.freeze()
}

const KNOWN: [i16; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 16];

#[test]
fn every_known_record_is_read_and_written_byte_for_byte() {
    let Some(lines) = golden() else { return };
    let keys: BTreeMap<i16, Bytes> = lines
        .iter()
        .filter(|line| line.message.ends_with("Key") && line.case == "filled")
        .map(|line| (line.key, prefixed(line.key, &line.bytes)))
        .collect();
    let mut values = 0;
    for line in lines.iter().filter(|line| KNOWN.contains(&line.key)) {
        let what = format!("{} v{} {}", line.message, line.version, line.case);
        if line.message.ends_with("Key") {
            let key = prefixed(line.key, &line.bytes);
            let record = Record::decode(key.clone(), None).expect(&what).expect(&what);
            assert_eq!(record.encode().expect(&what), (key, None), "{what}");
            continue;
        }
        let value = prefixed(line.version, &line.bytes);
        let key = keys[&line.key].clone();
        let record = Record::decode(key.clone(), Some(value.clone())).expect(&what).expect(&what);
        assert_eq!(record.group(), "s1", "{what}");
        let (written_key, written) = record.encode().expect(&what);
        assert_eq!(written_key, key, "{what}");
        let written = written.expect("a value");
        let written_version = i16::from_be_bytes([written[0], written[1]]);
        if written_version == line.version {
            assert_eq!(written, value, "{what}");
            values += 1;
        } else {
            // An older version than Kafka 4.4 writes: what it holds must survive being written anew.
            let again = Record::decode(written_key, Some(written)).expect(&what).expect(&what);
            assert_eq!(again.encode().expect(&what), record.encode().expect(&what), "{what}");
        }
    }
    // Filled and empty values of each kind in its present version; those of OffsetCommit that have no
    // expiry time, and version 1 where they have.
    assert!(values >= 18, "only {values} values were compared");
}

#[test]
fn kinds_that_are_not_known_are_skipped_with_their_tombstones() {
    for number in [9, 10, 17, 25, 999, -1] {
        let key = prefixed(number, b"\0\x02s1");
        assert_eq!(Record::decode(key.clone(), None), Ok(None));
        assert_eq!(Record::decode(key, Some(Bytes::from_static(b"\0\0what ever"))), Ok(None));
    }
}

#[test]
fn broken_records_are_errors_and_do_not_panic() {
    assert_eq!(Record::decode(Bytes::new(), None), Err(RecordError::NoKey));
    let key = prefixed(2, b"\0\x01g");
    let unknown = Record::decode(key.clone(), Some(prefixed(9, b"")));
    assert!(matches!(unknown, Err(RecordError::UnknownVersion { version: 9, .. })), "{unknown:?}");
    assert!(matches!(
        Record::decode(key.clone(), Some(prefixed(3, b"\0"))),
        Err(RecordError::Decode(_))
    ));
    assert!(matches!(Record::decode(prefixed(2, b"\0\x05g"), None), Err(RecordError::Decode(_))));
    let Some(lines) = golden() else { return };
    for line in lines.iter().filter(|line| line.message.ends_with("Value")) {
        for cut in 0..line.bytes.len() {
            let value = prefixed(line.version, &line.bytes[..cut]);
            let _ = Record::decode(prefixed(line.key, b"\0\x01g"), Some(value));
        }
    }
}
