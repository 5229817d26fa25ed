//! Builds one record batch. Uncompressed batches equal Kafka's byte for byte.
//!
//! The base timestamp is that of the first record, deltas count from there; the base offset is that
//! of the first record unless given. Lengths that would leave 32 bits are refused before anything is
//! written.

use bytes::Bytes;
use thiserror::Error;

use super::compression::{Codec, compress};
use super::error::BatchError;
use super::header::{
    Attributes, BATCH_HEADER_BYTES, BatchHeader, LOG_OVERHEAD_BYTES, NO_SEQUENCE, NO_TIMESTAMP,
    TimestampType,
};
use super::patch;
use super::record::Record;
use super::varint;
use crate::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Why a record or batch cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A key, value, header or the whole batch leaves the 32-bit lengths of the format.
    #[error("the batch would be larger than {} bytes", i32::MAX)]
    TooLarge,
    /// Offsets must grow, by less than 2^31 within a batch.
    #[error("offset {offset} cannot follow {last_offset} in a batch that starts at {base_offset}")]
    Offset {
        /// The record's offset.
        offset: i64,
        /// The offset of the record before it, or one less than the base offset.
        last_offset: i64,
        /// The batch's base offset.
        base_offset: i64,
    },
    /// The codec's library failed.
    #[error(transparent)]
    Compression(#[from] BatchError),
}

/// What an idempotent or transactional producer stamps on its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerStamp {
    /// The producer's id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// The sequence of the first record; -1 in control batches.
    pub base_sequence: i32,
}

impl ProducerStamp {
    /// No producer id, epoch or sequence.
    pub const NONE: ProducerStamp = ProducerStamp {
        id: ProducerId::NONE,
        epoch: ProducerEpoch::NONE,
        base_sequence: NO_SEQUENCE,
    };
}

/// Collects records and writes the batch. All settings may change until [`BatchBuilder::build`].
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    // Starts with room for the header, so that an uncompressed batch is never copied.
    bytes: Vec<u8>,
    base_offset: i64,
    last_offset: i64,
    leader_epoch: LeaderEpoch,
    codec: Codec,
    attributes: Attributes,
    append_time: Option<i64>,
    delete_horizon: Option<i64>,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    producer: ProducerStamp,
    count: i32,
}

impl BatchBuilder {
    /// An empty batch whose first record gets `base_offset`: no compression, create time, no
    /// producer, leader epoch -1.
    pub fn new(base_offset: Offset) -> Self {
        Self::with_capacity(base_offset, 0)
    }

    /// The same with room for `records_bytes` of uncompressed records.
    pub fn with_capacity(base_offset: Offset, records_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(BATCH_HEADER_BYTES + records_bytes);
        bytes.resize(BATCH_HEADER_BYTES, 0);
        Self {
            bytes,
            base_offset: base_offset.0,
            last_offset: base_offset.0 - 1,
            leader_epoch: LeaderEpoch::NONE,
            codec: Codec::default(),
            attributes: Attributes::default(),
            append_time: None,
            delete_horizon: None,
            base_timestamp: None,
            max_timestamp: NO_TIMESTAMP,
            producer: ProducerStamp::NONE,
            count: 0,
        }
    }

    /// Sets the term of the appending leader.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: LeaderEpoch) -> Self {
        self.leader_epoch = epoch;
        self
    }

    /// Compresses the records.
    #[must_use]
    pub fn compression(mut self, codec: impl Into<Codec>) -> Self {
        self.codec = codec.into();
        self
    }

    /// Makes it a log-append-time batch: `now` in milliseconds since 1970 is the max timestamp.
    #[must_use]
    pub fn log_append_time(mut self, now: i64) -> Self {
        self.append_time = Some(now);
        self
    }

    /// Stamps the batch with a producer's id, epoch and first sequence.
    #[must_use]
    pub fn producer(mut self, stamp: ProducerStamp) -> Self {
        self.producer = stamp;
        self
    }

    /// Makes the batch part of its producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes = self.attributes.with_transactional(true);
        self
    }

    /// Makes it a control batch.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.attributes = self.attributes.with_control(true);
        self
    }

    /// Sets the delete horizon, which takes the base timestamp's place (KIP-534). To be set before
    /// the first record, as deltas count from it.
    #[must_use]
    pub fn delete_horizon(mut self, milliseconds: i64) -> Self {
        debug_assert_eq!(self.count, 0, "a delete horizon after {} records", self.count);
        self.delete_horizon = Some(milliseconds);
        self
    }

    /// How many records the batch has so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// The batch's size if it were built now without compression.
    pub fn uncompressed_size_in_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a record with the next offset. `timestamp` in milliseconds since 1970.
    pub fn append<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    ) -> Result<(), BuildError> {
        self.append_at(Offset(self.last_offset + 1), timestamp, key, value, headers)
    }

    /// Appends a copy of `record`, with the next offset.
    pub fn append_record(&mut self, record: &Record<'_>) -> Result<(), BuildError> {
        let headers = record.headers.map(|header| (header.key, header.value));
        self.append(record.timestamp, record.key, record.value, headers)
    }

    /// Appends a record at `offset`, as compaction does: offsets may leave gaps.
    pub fn append_at<'h>(
        &mut self,
        offset: Offset,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'h [u8], Option<&'h [u8]>), IntoIter: Clone>,
    ) -> Result<(), BuildError> {
        let offset_delta = match offset.0.checked_sub(self.base_offset) {
            Some(delta) if offset.0 > self.last_offset => i32::try_from(delta).ok(),
            _ => None,
        };
        let Some(offset_delta) = offset_delta else {
            return Err(BuildError::Offset {
                offset: offset.0,
                last_offset: self.last_offset,
                base_offset: self.base_offset,
            });
        };
        let base_timestamp = self.base_timestamp.or(self.delete_horizon).unwrap_or(timestamp);
        let record = NewRecord {
            timestamp_delta: timestamp.wrapping_sub(base_timestamp),
            offset_delta,
            key,
            value,
            headers: headers.into_iter(),
        };
        record.write(&mut self.bytes)?;
        self.base_timestamp = Some(base_timestamp);
        self.last_offset = offset.0;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count += 1;
        Ok(())
    }

    /// Sets the last offset of a batch that lost records at its end to compaction.
    pub fn extend_last_offset(&mut self, last_offset: Offset) {
        self.last_offset = self.last_offset.max(last_offset.0);
    }

    /// Writes the batch. An empty batch is possible: compaction leaves such (count 0).
    pub fn build(mut self) -> Result<Bytes, BuildError> {
        if self.codec.compression != super::Compression::None {
            let mut compressed = vec![0; BATCH_HEADER_BYTES];
            compress(self.codec, &self.bytes[BATCH_HEADER_BYTES..], &mut compressed)?;
            self.bytes = compressed;
        }
        let length = i32::try_from(self.bytes.len() - LOG_OVERHEAD_BYTES)
            .map_err(|_| BuildError::TooLarge)?;
        let timestamp_type = match self.append_time {
            Some(_) => TimestampType::LogAppendTime,
            None => TimestampType::CreateTime,
        };
        // Kafka's empty batches carry -1 in the base timestamp, and last offset delta -1 cannot be.
        let header = BatchHeader {
            base_offset: self.base_offset,
            length,
            partition_leader_epoch: self.leader_epoch.0,
            crc: 0,
            attributes: self
                .attributes
                .with_compression(self.codec.compression)
                .with_timestamp_type(timestamp_type)
                .with_delete_horizon(self.delete_horizon.is_some()),
            last_offset_delta: (self.last_offset - self.base_offset).max(0) as i32,
            base_timestamp: self.base_timestamp.or(self.delete_horizon).unwrap_or(NO_TIMESTAMP),
            max_timestamp: self.append_time.unwrap_or(self.max_timestamp),
            producer_id: self.producer.id.0,
            producer_epoch: self.producer.epoch.0,
            base_sequence: self.producer.base_sequence,
            count: self.count,
        };
        header.write(&mut self.bytes);
        patch::write_crc(&mut self.bytes);
        Ok(Bytes::from(self.bytes))
    }
}

/// A record about to be written.
struct NewRecord<'a, H> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: H,
}

impl<'a, 'h, H> NewRecord<'a, H>
where
    H: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
{
    /// The header count and the size of everything behind the length field.
    fn measure(&self) -> (usize, usize) {
        let mut count = 0;
        let mut size = 1
            + varint::size(self.timestamp_delta)
            + varint::size(i64::from(self.offset_delta))
            + nullable_size(self.key)
            + nullable_size(self.value);
        for (key, value) in self.headers.clone() {
            count += 1;
            size += nullable_size(Some(key)) + nullable_size(value);
        }
        (count, size + varint::size(count as i64))
    }

    fn write(self, out: &mut Vec<u8>) -> Result<(), BuildError> {
        let (header_count, size) = self.measure();
        if out.len() + size > i32::MAX as usize - 16 {
            return Err(BuildError::TooLarge);
        }
        varint::put(out, size as i64);
        out.push(0);
        varint::put(out, self.timestamp_delta);
        varint::put(out, i64::from(self.offset_delta));
        put_nullable(out, self.key);
        put_nullable(out, self.value);
        varint::put(out, header_count as i64);
        for (key, value) in self.headers {
            put_nullable(out, Some(key));
            put_nullable(out, value);
        }
        Ok(())
    }
}

fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::put(out, -1),
        Some(bytes) => {
            varint::put(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
