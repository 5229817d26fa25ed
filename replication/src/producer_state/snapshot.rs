//! The bytes of a `.snapshot` file: version 1 of Kafka's producer snapshot.
//!
//! Layout, big endian: version (i16 = 1), CRC32C (u32) over everything after it, count (i32), then
//! per producer: id (i64), epoch (i16), last sequence (i32), last offset (i64), offset delta (i32),
//! timestamp (i64), coordinator epoch (i32), first offset of the open transaction (i64, -1 for none).
//! Only a producer's last batch is kept: after a reload older repeats are no longer recognised.

use super::entry::{BatchMetadata, ProducerStateEntry};
use super::sequence::NO_SEQUENCE;
use bytes::{Buf, BufMut};
use protocol::types::{Offset, ProducerEpoch, ProducerId};
use std::collections::VecDeque;

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 2 + 4 + 4;
const ENTRY_BYTES: usize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8;

/// Why the bytes of a snapshot cannot be used. The caller removes the file and falls back to an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file ends before its entries do.
    #[error("producer snapshot of {len} bytes is shorter than its {entries} entries need")]
    Truncated {
        /// Length of the file in bytes.
        len: usize,
        /// Entries it claims to hold.
        entries: i64,
    },
    /// A version other than 1.
    #[error("producer snapshot has version {0}, only 1 is known")]
    UnknownVersion(i16),
    /// The checksum does not match the entries.
    #[error("producer snapshot carries CRC {stored:#010x}, its bytes give {computed:#010x}")]
    Corrupt {
        /// As written in the file.
        stored: u32,
        /// As computed from the entries.
        computed: u32,
    },
}

/// Writes the entries in the order given.
pub fn encode<'a>(entries: impl ExactSizeIterator<Item = &'a ProducerStateEntry>) -> Vec<u8> {
    let count = entries.len();
    let mut out = Vec::with_capacity(HEADER_BYTES + count * ENTRY_BYTES);
    out.put_i16(VERSION);
    out.put_u32(0);
    out.put_i32(count as i32);
    for entry in entries {
        let last = entry.last_batch();
        out.put_i64(entry.producer_id.get());
        out.put_i16(entry.producer_epoch.get());
        out.put_i32(entry.last_sequence());
        out.put_i64(entry.last_data_offset().get());
        out.put_i32(last.map_or(0, |batch| batch.offset_delta));
        out.put_i64(entry.last_timestamp_ms);
        out.put_i32(entry.coordinator_epoch);
        out.put_i64(entry.current_transaction_first_offset.unwrap_or(Offset::NONE).get());
    }
    let crc = crc32c::crc32c(&out[6..]);
    out[2..6].copy_from_slice(&crc.to_be_bytes());
    out
}

/// Reads the entries back.
///
/// # Errors
/// When the version is not 1, the checksum does not match, or the bytes end early. Bytes after the
/// last entry make the checksum fail, as it covers the whole rest of the file.
pub fn decode(bytes: &[u8]) -> Result<Vec<ProducerStateEntry>, SnapshotError> {
    let truncated = |entries: i64| SnapshotError::Truncated { len: bytes.len(), entries };
    if bytes.len() < HEADER_BYTES {
        return Err(truncated(0));
    }
    let mut input = bytes;
    let version = input.get_i16();
    if version != VERSION {
        return Err(SnapshotError::UnknownVersion(version));
    }
    let stored = input.get_u32();
    let computed = crc32c::crc32c(input);
    if stored != computed {
        return Err(SnapshotError::Corrupt { stored, computed });
    }
    let count = input.get_i32();
    let fits = usize::try_from(count)
        .ok()
        .filter(|count| count.checked_mul(ENTRY_BYTES).is_some_and(|need| need <= input.len()));
    let count = fits.ok_or_else(|| truncated(i64::from(count)))?;
    Ok((0..count).map(|_| decode_entry(&mut input)).collect())
}

/// Reads one entry; the caller has checked that its bytes are there.
fn decode_entry(input: &mut &[u8]) -> ProducerStateEntry {
    let producer_id = ProducerId(input.get_i64());
    let producer_epoch = ProducerEpoch(input.get_i16());
    let last_sequence = input.get_i32();
    let last_offset = Offset(input.get_i64());
    let offset_delta = input.get_i32();
    let timestamp_ms = input.get_i64();
    let coordinator_epoch = input.get_i32();
    let first_offset = Offset(input.get_i64());
    let mut batches = VecDeque::new();
    // A producer known only by a marker has no batch: sequence and offset are both -1.
    if last_sequence != NO_SEQUENCE && last_offset >= Offset::ZERO && offset_delta >= 0 {
        batches.push_back(BatchMetadata { last_sequence, last_offset, offset_delta, timestamp_ms });
    }
    ProducerStateEntry {
        producer_id,
        producer_epoch,
        coordinator_epoch,
        last_timestamp_ms: timestamp_ms,
        current_transaction_first_offset: (first_offset >= Offset::ZERO).then_some(first_offset),
        batches,
    }
}
