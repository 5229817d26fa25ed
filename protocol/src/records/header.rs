//! The fixed 61 bytes that open every record batch of format 2 (KIP-98), decoded.
//!
//! The CRC covers everything from the attributes to the end, so base offset, length and partition
//! leader epoch can be changed in place without touching it.

use super::error::BatchError;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Bytes of the fixed part of a batch: what comes before its records.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Bytes before the part that the length field counts: base offset and length itself.
pub const LOG_OVERHEAD_BYTES: usize = 12;
/// The smallest length field of format 2.
pub const MIN_BATCH_LENGTH: i32 = (BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32;
/// Bytes needed to see a batch's size and format.
pub const BYTES_TO_MAGIC: usize = 17;
/// The smallest length field of any format that Kafka ever had; smaller is corruption.
pub(super) const MIN_ANY_LENGTH: i32 = 14;
/// The only format that is read and written.
pub const MAGIC: i8 = 2;
/// "No timestamp".
pub const NO_TIMESTAMP: i64 = -1;
/// "No sequence".
pub const NO_SEQUENCE: i32 = -1;

/// Where the fields lie, in bytes from the batch's start.
pub(super) mod at {
    pub const BASE_OFFSET: usize = 0;
    pub const LENGTH: usize = 8;
    pub const LEADER_EPOCH: usize = 12;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const PRODUCER_EPOCH: usize = 51;
    pub const BASE_SEQUENCE: usize = 53;
    pub const COUNT: usize = 57;
}

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy, either in snappy-java's stream framing or as one raw block.
    Snappy = 2,
    /// The LZ4 frame format.
    Lz4 = 3,
    /// Zstandard (KIP-110).
    Zstd = 4,
}

impl Compression {
    /// The codec with this number in the attributes.
    pub fn from_id(id: u8) -> Result<Self, BatchError> {
        Ok(match id {
            0 => Compression::None,
            1 => Compression::Gzip,
            2 => Compression::Snappy,
            3 => Compression::Lz4,
            4 => Compression::Zstd,
            _ => return Err(BatchError::UnknownCompression { id }),
        })
    }

    /// The number in the attributes.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Kafka's name, as `compression.type` has it (`none` for no compression).
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

/// Who set the timestamps of a batch (KIP-32).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TimestampType {
    /// The producer.
    #[default]
    CreateTime,
    /// The leader at the append; the batch's max timestamp holds for all of its records.
    LogAppendTime,
}

/// The 16 attribute bits of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// The codec; an error for the numbers 5 to 7.
    pub fn compression(self) -> Result<Compression, BatchError> {
        Compression::from_id((self.0 & Self::COMPRESSION) as u8)
    }

    /// Bit 3.
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Bit 4: part of a transaction.
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Bit 5: records for the machinery, never shown to applications.
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Bit 6: the base timestamp is the time from which tombstones may go (KIP-534).
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with another codec.
    #[must_use]
    pub const fn with_compression(self, compression: Compression) -> Self {
        Attributes(self.0 & !Self::COMPRESSION | compression.id() as i16)
    }

    /// The same with another timestamp type.
    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, matches!(timestamp_type, TimestampType::LogAppendTime))
    }

    /// The same with bit 4 set or cleared.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    /// The same with bit 5 set or cleared.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    /// The same with bit 6 set or cleared.
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        Attributes(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// The decoded header of a batch. Getting one says only that length and magic are possible: offsets
/// and counts are as found until [`BatchHeader::check_counts`] says otherwise, and the CRC is checked
/// by [`super::BatchView::check_crc`] alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub(super) base_offset: i64,
    pub(super) length: i32,
    pub(super) partition_leader_epoch: i32,
    pub(super) crc: u32,
    pub(super) attributes: Attributes,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) count: i32,
}

fn array<const N: usize>(bytes: &[u8; BATCH_HEADER_BYTES], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The size of the batch (any format) that starts `bytes`, from its length field, and its magic.
/// `None` when fewer than [`BYTES_TO_MAGIC`] bytes are there.
pub(super) fn peek_size(bytes: &[u8]) -> Result<Option<(usize, i8)>, BatchError> {
    let Some(length) = bytes.get(at::LENGTH..at::LEADER_EPOCH) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
    if length < MIN_ANY_LENGTH {
        return Err(BatchError::LengthTooSmall { length, minimum: MIN_BATCH_LENGTH });
    }
    let Some(magic) = bytes.get(at::MAGIC) else {
        return Ok(None);
    };
    let magic = *magic as i8;
    if !(0..=MAGIC).contains(&magic) {
        return Err(BatchError::UnknownMagic { magic });
    }
    Ok(Some((LOG_OVERHEAD_BYTES + length as usize, magic)))
}

impl BatchHeader {
    /// Decodes the first [`BATCH_HEADER_BYTES`] bytes of `bytes`; the records need not be there.
    ///
    /// Refuses old formats by name ([`BatchError::OldMagic`]), unknown ones, and lengths below
    /// [`MIN_BATCH_LENGTH`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let incomplete = |needed: usize| BatchError::Incomplete {
            needed: needed as u64,
            available: bytes.len() as u64,
        };
        let Some((size, magic)) = peek_size(bytes)? else {
            return Err(incomplete(BATCH_HEADER_BYTES));
        };
        if magic != MAGIC {
            return Err(BatchError::OldMagic { magic });
        }
        if size < BATCH_HEADER_BYTES {
            let length = (size - LOG_OVERHEAD_BYTES) as i32;
            return Err(BatchError::LengthTooSmall { length, minimum: MIN_BATCH_LENGTH });
        }
        let Some(fixed) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            return Err(incomplete(size));
        };
        Ok(Self {
            base_offset: i64::from_be_bytes(array(fixed, at::BASE_OFFSET)),
            length: i32::from_be_bytes(array(fixed, at::LENGTH)),
            partition_leader_epoch: i32::from_be_bytes(array(fixed, at::LEADER_EPOCH)),
            crc: u32::from_be_bytes(array(fixed, at::CRC)),
            attributes: Attributes(i16::from_be_bytes(array(fixed, at::ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(array(fixed, at::LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(array(fixed, at::BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(array(fixed, at::MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(array(fixed, at::PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(array(fixed, at::PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(array(fixed, at::BASE_SEQUENCE)),
            count: i32::from_be_bytes(array(fixed, at::COUNT)),
        })
    }

    /// Writes the header over the first [`BATCH_HEADER_BYTES`] bytes of `out`.
    ///
    /// # Panics
    /// When `out` is shorter.
    pub(super) fn write(&self, out: &mut [u8]) {
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(at::BASE_OFFSET, &self.base_offset.to_be_bytes());
        put(at::LENGTH, &self.length.to_be_bytes());
        put(at::LEADER_EPOCH, &self.partition_leader_epoch.to_be_bytes());
        put(at::MAGIC, &MAGIC.to_be_bytes());
        put(at::CRC, &self.crc.to_be_bytes());
        put(at::ATTRIBUTES, &self.attributes.0.to_be_bytes());
        put(at::LAST_OFFSET_DELTA, &self.last_offset_delta.to_be_bytes());
        put(at::BASE_TIMESTAMP, &self.base_timestamp.to_be_bytes());
        put(at::MAX_TIMESTAMP, &self.max_timestamp.to_be_bytes());
        put(at::PRODUCER_ID, &self.producer_id.to_be_bytes());
        put(at::PRODUCER_EPOCH, &self.producer_epoch.to_be_bytes());
        put(at::BASE_SEQUENCE, &self.base_sequence.to_be_bytes());
        put(at::COUNT, &self.count.to_be_bytes());
    }

    /// Checks that offsets and counts go together: nothing negative, the last offset representable,
    /// and no more records than offsets. A compacted batch may hold fewer records than offsets, even
    /// none, so equality is a rule for client batches only.
    pub fn check_counts(&self) -> Result<(), BatchError> {
        let (base_offset, last_offset_delta) = (self.base_offset, self.last_offset_delta);
        let last_offset = base_offset.checked_add(i64::from(last_offset_delta));
        // The next offset, one more, must be representable too.
        if base_offset < 0
            || last_offset_delta < 0
            || last_offset.is_none_or(|last| last == i64::MAX)
        {
            return Err(BatchError::Offsets { base_offset, last_offset_delta });
        }
        if self.count < 0 || i64::from(self.count) > i64::from(last_offset_delta) + 1 {
            return Err(BatchError::Count { count: self.count, last_offset_delta });
        }
        Ok(())
    }

    /// The offset of the first record the batch had when it was written.
    pub fn base_offset(&self) -> Offset {
        Offset(self.base_offset)
    }

    /// The offset of the last record the batch had when it was written.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.wrapping_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// Last offset less base offset.
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// The term of the leader that appended the batch; not covered by the CRC.
    pub fn partition_leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.partition_leader_epoch)
    }

    /// The whole batch, header included, in bytes.
    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD_BYTES + self.length as usize
    }

    /// The stored CRC32C.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// All attribute bits.
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// The codec; an error for numbers that no codec has.
    pub fn compression(&self) -> Result<Compression, BatchError> {
        self.attributes.compression()
    }

    /// Who set the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        self.attributes.timestamp_type()
    }

    /// Part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    /// Holds control records.
    pub fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    /// Milliseconds since 1970 that record timestamps count from. When the delete-horizon bit is set
    /// this is the delete horizon (KIP-534), and the deltas count from that.
    pub fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    /// The largest record timestamp in milliseconds since 1970, or the append time.
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// From when tombstones of this batch may be dropped, in milliseconds since 1970 (KIP-534).
    pub fn delete_horizon(&self) -> Option<i64> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// The producer's id, -1 for none.
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(self.producer_id)
    }

    /// Whether the batch comes from an idempotent or transactional producer.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > ProducerId::NONE.0
    }

    /// The producer's epoch, -1 for none.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(self.producer_epoch)
    }

    /// The sequence of the first record, -1 for none.
    pub fn base_sequence(&self) -> i32 {
        self.base_sequence
    }

    /// The sequence of the last record: 0 follows `i32::MAX` (rule X01); -1 for none.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            NO_SEQUENCE
        } else {
            increment_sequence(self.base_sequence, self.last_offset_delta)
        }
    }

    /// How many records the batch counts.
    pub fn count(&self) -> i32 {
        self.count
    }
}

/// `sequence` moved on by `by` records; 0 follows `i32::MAX` (rule X01).
pub fn increment_sequence(sequence: i32, by: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(by);
    if sum > i64::from(i32::MAX) { (sum - i64::from(i32::MAX) - 1) as i32 } else { sum as i32 }
}
