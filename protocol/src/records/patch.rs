//! Changing a batch where it lies. Base offset and partition leader epoch are outside the CRC and
//! cost a few bytes; timestamps are inside it, so the CRC is computed again.
//!
//! All functions expect a slice that starts with a batch that was parsed before, and panic on
//! anything shorter than a header: that would be a mistake of ours, not of a peer.

use super::error::BatchError;
use super::header::{Attributes, TimestampType, at};
use super::view::BatchView;

/// Sets the base offset; the CRC does not cover it.
pub fn set_base_offset(batch: &mut [u8], base_offset: crate::Offset) {
    put(batch, at::BASE_OFFSET, &base_offset.0.to_be_bytes());
}

/// Sets the partition leader epoch; the CRC does not cover it.
pub fn set_partition_leader_epoch(batch: &mut [u8], epoch: crate::LeaderEpoch) {
    put(batch, at::LEADER_EPOCH, &epoch.0.to_be_bytes());
}

/// Sets max timestamp and timestamp type, and the CRC when either differs from what was there.
/// Returns whether anything changed. `batch` starts with one whole batch; bytes behind it are
/// neither read nor changed.
pub fn set_max_timestamp(
    batch: &mut [u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Result<bool, BatchError> {
    let view = BatchView::parse(batch)?;
    if view.timestamp_type() == timestamp_type && view.max_timestamp() == max_timestamp {
        return Ok(false);
    }
    let size = view.size_in_bytes();
    let attributes: Attributes = view.attributes().with_timestamp_type(timestamp_type);
    let batch = &mut batch[..size];
    put(batch, at::ATTRIBUTES, &attributes.0.to_be_bytes());
    put(batch, at::MAX_TIMESTAMP, &max_timestamp.to_be_bytes());
    write_crc(batch);
    Ok(true)
}

/// Computes the CRC of `batch`, exactly one batch, and stores it.
pub(super) fn write_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
    put(batch, at::CRC, &crc.to_be_bytes());
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
}
