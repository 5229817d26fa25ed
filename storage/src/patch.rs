//! A leader gives a batch its place in the log without copying it: the 61 bytes of the header are
//! written again on the stack, and go to the file together with the rest as it came.
//!
//! Base offset and leader epoch lie before the checksum's range, so the rest is not even read.
//! A timestamp lies inside it; then the checksum is computed over header and rest.

use protocol::records::{
    Attributes, BATCH_HEADER_BYTES, Compression, MIN_BATCH_LENGTH, NO_TIMESTAMP, TimestampType,
};
use protocol::{LeaderEpoch, Offset};

const LENGTH_AT: usize = 8;
const LEADER_EPOCH_AT: usize = 12;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const BASE_TIMESTAMP_AT: usize = 27;
const MAX_TIMESTAMP_AT: usize = 35;
const COUNT_AT: usize = 57;

/// A batch header about to be written.
pub(crate) type HeaderBytes = [u8; BATCH_HEADER_BYTES];

/// Sets where the batch stands.
pub(crate) fn set_place(header: &mut HeaderBytes, base_offset: Offset, epoch: LeaderEpoch) {
    header[..8].copy_from_slice(&base_offset.0.to_be_bytes());
    header[LEADER_EPOCH_AT..LEADER_EPOCH_AT + 4].copy_from_slice(&epoch.0.to_be_bytes());
}

/// Sets the largest timestamp in milliseconds and who set it; `rest` is the batch after its header.
pub(crate) fn set_timestamp(
    header: &mut HeaderBytes,
    timestamp_type: TimestampType,
    max_timestamp_ms: i64,
    rest: &[u8],
) {
    let attributes = i16::from_be_bytes([header[ATTRIBUTES_AT], header[ATTRIBUTES_AT + 1]]);
    let attributes = Attributes(attributes).with_timestamp_type(timestamp_type);
    header[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.0.to_be_bytes());
    header[MAX_TIMESTAMP_AT..MAX_TIMESTAMP_AT + 8].copy_from_slice(&max_timestamp_ms.to_be_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[ATTRIBUTES_AT..]), rest);
    header[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
}

/// Makes the header that of a batch without records, as cleaning leaves it: offsets, epochs, sequence
/// and largest timestamp stay, codec and delete horizon go.
pub(crate) fn set_empty(header: &mut HeaderBytes) {
    let attributes = i16::from_be_bytes([header[ATTRIBUTES_AT], header[ATTRIBUTES_AT + 1]]);
    let attributes =
        Attributes(attributes).with_compression(Compression::None).with_delete_horizon(false);
    header[ATTRIBUTES_AT..ATTRIBUTES_AT + 2].copy_from_slice(&attributes.0.to_be_bytes());
    let no_timestamp = NO_TIMESTAMP.to_be_bytes();
    header[BASE_TIMESTAMP_AT..BASE_TIMESTAMP_AT + 8].copy_from_slice(&no_timestamp);
    header[COUNT_AT..].copy_from_slice(&0_i32.to_be_bytes());
    header[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&MIN_BATCH_LENGTH.to_be_bytes());
    let crc = crc32c::crc32c(&header[ATTRIBUTES_AT..]);
    header[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
}
