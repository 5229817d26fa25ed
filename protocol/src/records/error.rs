//! What can be wrong with the bytes of a record batch, with the values that were found, and the
//! Kafka error code that a produce answer carries for it (rule P04).

use thiserror::Error;

use crate::ErrorCode;

/// Why bytes are not an acceptable record batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Fewer bytes than the batch claims, or than a header needs.
    #[error("record batch needs {needed} bytes, {available} are there")]
    Incomplete {
        /// Bytes that the batch or its header takes in all.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// The length field is negative or smaller than the fixed part of a batch.
    #[error("record batch length field is {length}, smaller than the minimum of {minimum}")]
    LengthTooSmall {
        /// The length field: bytes after it.
        length: i32,
        /// The smallest length that would do.
        minimum: i32,
    },
    /// Message format 0 or 1, used before Kafka 0.11 and no longer supported.
    #[error("message format {magic} is not supported, only record batches of format 2 are")]
    OldMagic {
        /// 0 or 1.
        magic: i8,
    },
    /// A magic byte that no version of Kafka ever wrote.
    #[error("record batch magic is {magic}, which is no known format")]
    UnknownMagic {
        /// The byte found.
        magic: i8,
    },
    /// The stored CRC32C is not that of the bytes.
    #[error("record batch checksum is {stored:#010x}, its bytes give {computed:#010x}")]
    Checksum {
        /// The header's value.
        stored: u32,
        /// CRC32C from the attributes to the end.
        computed: u32,
    },
    /// The attributes name a codec that does not exist.
    #[error("compression codec {id} does not exist")]
    UnknownCompression {
        /// The lowest three bits of the attributes.
        id: u8,
    },
    /// The header's count of records cannot be.
    #[error("record count {count} does not go with last offset delta {last_offset_delta}")]
    Count {
        /// The header's count.
        count: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// The header's offsets leave the range of 64 bits or are negative.
    #[error("base offset {base_offset} with last offset delta {last_offset_delta} is out of range")]
    Offsets {
        /// The header's base offset.
        base_offset: i64,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// A record inside the batch is not well formed.
    #[error("record {index} of the batch is malformed: {problem}")]
    Record {
        /// The record's index in its batch, from 0.
        index: i32,
        /// What is wrong.
        problem: RecordProblem,
    },
    /// Bytes are left after the last counted record.
    #[error("bytes are left after the {count} records that the batch counts")]
    TrailingBytes {
        /// The header's count.
        count: i32,
    },
    /// The compressed records could not be decompressed.
    #[error("cannot decompress {codec} records: {reason}")]
    Decompression {
        /// The codec's name.
        codec: &'static str,
        /// What the codec said.
        reason: String,
    },
    /// Decompressing would give more than allowed.
    #[error("decompressed records exceed the limit of {limit_bytes} bytes")]
    DecompressedTooLarge {
        /// The limit given by the caller.
        limit_bytes: usize,
    },
    /// A control batch whose key or value is not of a known layout.
    #[error("control record is malformed: {reason}")]
    ControlRecord {
        /// What is wrong.
        reason: &'static str,
    },
}

impl BatchError {
    /// The Kafka error code for a produce answer: 2 CORRUPT_MESSAGE for bytes that do not hold
    /// together, 87 INVALID_RECORD for whole batches with wrong contents, -1 UNKNOWN_SERVER_ERROR, as
    /// Kafka says, for a codec that does not exist and for what its codec cannot read.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            BatchError::LengthTooSmall { .. }
            | BatchError::UnknownMagic { .. }
            | BatchError::Checksum { .. } => ErrorCode::CorruptMessage,
            BatchError::Incomplete { .. }
            | BatchError::OldMagic { .. }
            | BatchError::Count { .. }
            | BatchError::Offsets { .. }
            | BatchError::Record { .. }
            | BatchError::TrailingBytes { .. }
            | BatchError::DecompressedTooLarge { .. }
            | BatchError::ControlRecord { .. } => ErrorCode::InvalidRecord,
            BatchError::UnknownCompression { .. } | BatchError::Decompression { .. } => {
                ErrorCode::UnknownServerError
            }
        }
    }
}

/// What is wrong inside one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordProblem {
    /// The records end before the count is reached.
    #[error("the records end here")]
    Missing,
    /// A variable-length integer goes on beyond its type.
    #[error("a varint is too long")]
    Varint,
    /// The record's own length is negative or goes beyond the records.
    #[error("its length is {length}, {available} bytes are left")]
    Length {
        /// The record's length field.
        length: i32,
        /// What is left in the batch (what was seen of it, when it is compressed).
        available: u64,
    },
    /// A field inside the record goes beyond the record's length.
    #[error("a field goes beyond the record's length")]
    Overrun,
    /// The record's fields end before its length.
    #[error("{left} bytes are left after its fields")]
    Underrun {
        /// Bytes not used.
        left: u64,
    },
    /// The number of headers is negative or larger than the record.
    #[error("it counts {count} headers")]
    HeaderCount {
        /// The count found.
        count: i32,
    },
    /// A header's key has a negative length.
    #[error("a header's key length is {length}")]
    HeaderKeyLength {
        /// The length found.
        length: i32,
    },
    /// Offset deltas of client batches count up from 0 by one.
    #[error("its offset delta is {found}, {expected} was expected")]
    OffsetDelta {
        /// The delta found.
        found: i32,
        /// The record's index.
        expected: i32,
    },
    /// It is larger than a record may be after decompression.
    #[error("its length is {length}, at most {max_bytes} bytes are allowed")]
    TooLarge {
        /// The record's length field.
        length: i32,
        /// The limit given by the caller.
        max_bytes: usize,
    },
}
