//! Record batches with any field wrong that a case wants wrong: what the library builds would be right.

use anyhow::{Context, Result, bail};
use protocol::reflect::Value;

use crate::language::value::{number, raw};

/// Long ago, so that the same case gives the same bytes on any day.
const TIMESTAMP: i64 = 1_700_000_000_000;

/// A batch with one record for each value. `faults` may set any field of the header by its name in
/// [`Header`], `keys` (a list), `body` (bytes in place of the records), `extraLength` (added to the length) and
/// `crc` (a number that is added to the right one).
pub fn batch(values: &[Value], faults: &Value) -> Result<Vec<u8>> {
    let header = Header(faults.as_object().context("faults are an object")?);
    header.check()?;
    let body = match faults.get("body") {
        Some(body) => raw(body)?,
        None => {
            let mut body = Vec::new();
            for (place, value) in values.iter().enumerate() {
                let key = faults.get("keys").and_then(|keys| keys.get(place));
                body.extend(record(place as i64, key.unwrap_or(&Value::Null), value)?);
            }
            body
        }
    };
    let count = values.len() as i64;
    let timestamp = header.get("baseTimestamp", TIMESTAMP)?;
    let mut checked = Vec::new();
    checked.extend_from_slice(&(header.get("attributes", 0)? as i16).to_be_bytes());
    checked.extend_from_slice(&(header.get("lastOffsetDelta", count - 1)? as i32).to_be_bytes());
    checked.extend_from_slice(&timestamp.to_be_bytes());
    checked.extend_from_slice(&header.get("maxTimestamp", timestamp)?.to_be_bytes());
    checked.extend_from_slice(&header.get("producerId", -1)?.to_be_bytes());
    checked.extend_from_slice(&(header.get("producerEpoch", -1)? as i16).to_be_bytes());
    checked.extend_from_slice(&(header.get("baseSequence", -1)? as i32).to_be_bytes());
    checked.extend_from_slice(&(header.get("count", count)? as i32).to_be_bytes());
    checked.extend_from_slice(&body);
    let crc = crc32c::crc32c(&checked).wrapping_add(header.get("crc", 0)? as u32);

    // Leader epoch, magic and checksum stand between the length and what is checked.
    let length = checked.len() as i64 + 9 + header.get("extraLength", 0)?;
    let mut batch = Vec::new();
    batch.extend_from_slice(&header.get("baseOffset", 0)?.to_be_bytes());
    batch.extend_from_slice(&(length as i32).to_be_bytes());
    batch.extend_from_slice(&(header.get("leaderEpoch", -1)? as i32).to_be_bytes());
    batch.push(header.get("magic", 2)? as u8);
    batch.extend_from_slice(&crc.to_be_bytes());
    batch.extend_from_slice(&checked);
    Ok(batch)
}

/// One record of a batch; a key or value is a text or null.
pub fn record(offset_delta: i64, key: &Value, value: &Value) -> Result<Vec<u8>> {
    let mut record = vec![0];
    put_varint(&mut record, 0);
    put_varint(&mut record, offset_delta);
    for part in [key, value] {
        match part {
            Value::Null => put_varint(&mut record, -1),
            Value::String(text) => {
                put_varint(&mut record, text.len() as i64);
                record.extend_from_slice(text.as_bytes());
            }
            other => bail!("{other} is neither a text nor null"),
        }
    }
    put_varint(&mut record, 0);
    let mut whole = Vec::new();
    put_varint(&mut whole, record.len() as i64);
    whole.extend(record);
    Ok(whole)
}

struct Header<'a>(&'a serde_json::Map<String, Value>);

impl Header<'_> {
    const FIELDS: [&'static str; 15] = [
        "baseOffset",
        "leaderEpoch",
        "magic",
        "crc",
        "attributes",
        "lastOffsetDelta",
        "baseTimestamp",
        "maxTimestamp",
        "producerId",
        "producerEpoch",
        "baseSequence",
        "count",
        "keys",
        "body",
        "extraLength",
    ];

    fn check(&self) -> Result<()> {
        match self.0.keys().find(|key| !Self::FIELDS.contains(&key.as_str())) {
            Some(unknown) => bail!("a batch has no {unknown}"),
            None => Ok(()),
        }
    }

    fn get(&self, name: &str, default: i64) -> Result<i64> {
        self.0.get(name).map_or(Ok(default), number)
    }
}

fn put_varint(bytes: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        bytes.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    bytes.push(zigzag as u8);
}
