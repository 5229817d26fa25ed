//! What a leader demands of a batch that a client produced (rules P04 and X01), and what it changes
//! in it before the append.
//!
//! Order of the checks, as Kafka's: exactly one whole batch of format 2 (a torn tail is cut off),
//! zstd only from Produce v7, base offset 0, size, checksum, counts, no control batch, a sequence when
//! there is a producer id, then every record. Differences from Kafka 4.4.0, on purpose: offset deltas
//! that do not count up from 0 are refused with 87 whether compressed or not (Kafka appends them
//! uncompressed, and answers -1 otherwise).
//!
//! Keys, values and headers are passed over in one walk. Everything that may change lies in the
//! header, so the records are never copied unless `compression.type` asks for another codec.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::builder::{BatchBuilder, BuildError, ProducerStamp};
use super::compression::{Codec, ReadBuffer};
use super::error::{BatchError, RecordProblem};
use super::header::{
    BATCH_HEADER_BYTES, BatchHeader, Compression, NO_TIMESTAMP, TimestampType, at,
};
use super::view::{Batch, BatchView, Batches};
use super::walk::{ReadLimits, RecordFacts, WalkSummary};
use crate::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId};

/// Produce requests below this version may not carry zstd (KIP-110).
const FIRST_ZSTD_PRODUCE_VERSION: i16 = 7;
/// More refused records than this are counted, not listed: a batch may hold millions.
const MAX_LISTED_RECORD_ERRORS: usize = 1000;

/// The settings of topic and request that decide about a batch. The defaults are Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceRules {
    /// The version of the produce request.
    pub produce_version: i16,
    /// The leader's clock in milliseconds since 1970.
    pub now: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how much older than `now` a record may be.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how much newer than `now` a record may be.
    pub timestamp_after_max_ms: i64,
    /// Whether `cleanup.policy` contains `compact`, so that every record needs a key.
    pub compacted: bool,
    /// `max.message.bytes`, for the whole batch as stored.
    pub max_message_bytes: usize,
    /// `max.decompressed.message.bytes` for each record, and a bound for all of a batch.
    pub limits: ReadLimits,
    /// `compression.type`; `None` keeps the producer's.
    pub compression: Option<Codec>,
}

impl Default for ProduceRules {
    fn default() -> Self {
        Self {
            produce_version: i16::MAX,
            now: 0,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            max_message_bytes: 1_048_588,
            limits: ReadLimits::default(),
            compression: None,
        }
    }
}

/// Why a client's batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientBatchError {
    /// The bytes are not a sound batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// No whole batch is there.
    #[error("the request holds no whole record batch for the partition")]
    NoBatch,
    /// More than one batch is there.
    #[error("the request holds more than one record batch for the partition")]
    SeveralBatches,
    /// Zstandard in a request of a version that does not know it.
    #[error(
        "Produce version {version} cannot carry zstd, {FIRST_ZSTD_PRODUCE_VERSION} is the first"
    )]
    ZstdTooOld {
        /// The request's version.
        version: i16,
    },
    /// The client numbered its offsets.
    #[error("base offset is {found}, clients must send 0")]
    BaseOffset {
        /// The header's base offset.
        found: i64,
    },
    /// The batch as sent, or after compressing it anew, is beyond `max.message.bytes`.
    #[error("record batch of {size_bytes} bytes is larger than the allowed {max_bytes}")]
    TooLarge {
        /// The whole batch.
        size_bytes: usize,
        /// The topic's limit.
        max_bytes: usize,
    },
    /// The header's count is not positive, or not that of its offsets.
    #[error(
        "record count {count} must be positive and one more than last offset delta {last_offset_delta}"
    )]
    Count {
        /// The header's count.
        count: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// The control bit is set.
    #[error("clients may not write control records")]
    Control,
    /// A producer id without a sequence (rule X01).
    #[error("base sequence {base_sequence} with producer id {producer_id}")]
    Sequence {
        /// The header's sequence.
        base_sequence: i32,
        /// The header's producer id.
        producer_id: i64,
    },
    /// Some records are refused, and with them the batch.
    #[error("{count} records of the batch are refused, the first for this: {}", first_message(.errors))]
    Records {
        /// 32 INVALID_TIMESTAMP when any of them is for its timestamp, else 87 INVALID_RECORD.
        code: ErrorCode,
        /// The first of them, by index.
        errors: Vec<RecordError>,
        /// How many there are.
        count: u64,
    },
    /// Compressing the batch anew failed.
    #[error("cannot compress the batch anew: {0}")]
    Recompress(BuildError),
}

/// A refused record, for the answer's list of record errors (Produce v8, KIP-467).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The record's index in its batch.
    pub batch_index: i32,
    /// Why it is refused.
    pub message: String,
}

fn first_message(errors: &[RecordError]) -> &str {
    errors.first().map_or("", |error| &error.message)
}

impl ClientBatchError {
    /// The Kafka error code of the partition's answer.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            ClientBatchError::Batch(error) => error.error_code(),
            ClientBatchError::ZstdTooOld { .. } => ErrorCode::UnsupportedCompressionType,
            ClientBatchError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            ClientBatchError::Records { code, .. } => *code,
            ClientBatchError::NoBatch
            | ClientBatchError::SeveralBatches
            | ClientBatchError::BaseOffset { .. }
            | ClientBatchError::Count { .. }
            | ClientBatchError::Control
            | ClientBatchError::Sequence { .. }
            | ClientBatchError::Recompress(_) => ErrorCode::InvalidRecord,
        }
    }

    /// The refused records, when the refusal is about single ones.
    pub fn record_errors(&self) -> &[RecordError] {
        match self {
            ClientBatchError::Records { errors, .. } => errors,
            _ => &[],
        }
    }
}

/// A batch that may be appended. The header is as it will be stored but for base offset and leader
/// epoch, which the append gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValidatedBatch {
    header: BatchHeader,
    // The whole batch with its header as it came; `header` holds what changes.
    bytes: Bytes,
    changed: bool,
    offset_delta_of_max_timestamp: i32,
    log_append_time: Option<i64>,
}

impl ValidatedBatch {
    /// The header to be stored: count, timestamps, producer and all.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Offset delta of the first record with the largest timestamp.
    pub fn offset_delta_of_max_timestamp(&self) -> i32 {
        self.offset_delta_of_max_timestamp
    }

    /// The append time for the answer; `None` in a create-time topic.
    pub fn log_append_time(&self) -> Option<i64> {
        self.log_append_time
    }

    /// Whether anything under the CRC differs from what the client sent.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The whole batch, with its header as it came: for an append that patches the header itself.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The records as stored, without the header.
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(BATCH_HEADER_BYTES..)
    }

    /// The header's bytes for an append at `base_offset`, to be written before [`Self::payload`].
    pub fn header_bytes(
        &self,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> [u8; BATCH_HEADER_BYTES] {
        let mut header = self.header;
        header.base_offset = base_offset.0;
        header.partition_leader_epoch = leader_epoch.0;
        let mut bytes = [0; BATCH_HEADER_BYTES];
        header.write(&mut bytes);
        bytes
    }

    /// The whole batch for an append at `base_offset`. Copies the records only when their buffer is
    /// shared.
    pub fn into_bytes(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Bytes {
        let header = self.header_bytes(base_offset, leader_epoch);
        let mut bytes =
            self.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(shared.as_ref()));
        bytes[..BATCH_HEADER_BYTES].copy_from_slice(&header);
        bytes.freeze()
    }
}

/// Checks what a client sent for one partition, and makes it ready for the append.
pub fn validate_client_batch(
    bytes: &Bytes,
    rules: &ProduceRules,
    buffer: &mut ReadBuffer,
) -> Result<ValidatedBatch, ClientBatchError> {
    let batch = single_batch(bytes, rules)?;
    check_header(&batch, rules)?;
    let compression = batch.compression()?;
    let summary = check_records(&batch.view(), rules, buffer)?;
    let validated = match rules.compression {
        Some(codec) if codec.compression != compression => {
            recompress(&batch, codec, rules, buffer, &summary)?
        }
        _ => stamp(batch, rules, &summary),
    };
    let size_bytes = validated.bytes.len();
    let max_bytes = rules.max_message_bytes;
    if size_bytes > max_bytes {
        return Err(ClientBatchError::TooLarge { size_bytes, max_bytes });
    }
    Ok(validated)
}

/// The one batch that `bytes` may hold. Bytes behind it that are less than a batch are cut off.
fn single_batch(bytes: &Bytes, rules: &ProduceRules) -> Result<Batch, ClientBatchError> {
    let mut batches = Batches::new(bytes.clone());
    let batch = batches.next().ok_or(ClientBatchError::NoBatch)??;
    if rules.produce_version < FIRST_ZSTD_PRODUCE_VERSION
        && batch.compression() == Ok(Compression::Zstd)
    {
        return Err(ClientBatchError::ZstdTooOld { version: rules.produce_version });
    }
    match batches.next() {
        None => Ok(batch),
        // Whatever its format is, it is a second one.
        Some(Ok(_) | Err(BatchError::OldMagic { .. })) => Err(ClientBatchError::SeveralBatches),
        Some(Err(error)) => Err(error.into()),
    }
}

fn check_header(batch: &Batch, rules: &ProduceRules) -> Result<(), ClientBatchError> {
    let header: &BatchHeader = batch;
    if header.base_offset != 0 {
        return Err(ClientBatchError::BaseOffset { found: header.base_offset });
    }
    let (size_bytes, max_bytes) = (header.size_in_bytes(), rules.max_message_bytes);
    if size_bytes > max_bytes {
        return Err(ClientBatchError::TooLarge { size_bytes, max_bytes });
    }
    batch.view().check_crc()?;
    let (count, last_offset_delta) = (header.count, header.last_offset_delta);
    if count <= 0 || i64::from(last_offset_delta) + 1 != i64::from(count) {
        return Err(ClientBatchError::Count { count, last_offset_delta });
    }
    if header.is_control() {
        return Err(ClientBatchError::Control);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(ClientBatchError::Sequence {
            base_sequence: header.base_sequence,
            producer_id: header.producer_id,
        });
    }
    Ok(())
}

/// Walks the records once: they must be well formed and have consecutive offset deltas, and none may
/// be refused for its key or timestamp.
fn check_records(
    batch: &BatchView<'_>,
    rules: &ProduceRules,
    buffer: &mut ReadBuffer,
) -> Result<WalkSummary, ClientBatchError> {
    let batch_type = batch.timestamp_type();
    let (mut errors, mut count, mut code) = (Vec::new(), 0u64, ErrorCode::InvalidRecord);
    let summary = batch.walk(buffer, rules.limits, |record| {
        if record.offset_delta != record.index {
            let (found, expected) = (record.offset_delta, record.index);
            return Err(RecordProblem::OffsetDelta { found, expected });
        }
        if let Some((record_code, message)) = refuse(&record, batch_type, rules) {
            count += 1;
            if record_code == ErrorCode::InvalidTimestamp {
                code = record_code;
            }
            if errors.len() < MAX_LISTED_RECORD_ERRORS {
                errors.push(RecordError { batch_index: record.index, message });
            }
        }
        Ok(())
    })?;
    if count == 0 { Ok(summary) } else { Err(ClientBatchError::Records { code, errors, count }) }
}

/// Why a single record is refused, with its code. A missing key counts before a wrong timestamp.
#[inline]
fn refuse(
    record: &RecordFacts,
    batch_type: TimestampType,
    rules: &ProduceRules,
) -> Option<(ErrorCode, String)> {
    if rules.compacted && !record.has_key {
        let message = "a compacted topic takes no records without a key".to_owned();
        return Some((ErrorCode::InvalidRecord, message));
    }
    let timestamp = record.timestamp;
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        let age = i128::from(rules.now) - i128::from(timestamp);
        let (before, after) = (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms);
        if age <= i128::from(before) && -age <= i128::from(after) {
            return None;
        }
        let (earliest, latest) =
            (rules.now.saturating_sub(before), rules.now.saturating_add(after));
        let message = format!("timestamp {timestamp} is not between {earliest} and {latest}");
        Some((ErrorCode::InvalidTimestamp, message))
    } else if batch_type == TimestampType::LogAppendTime {
        let message = "producers may not set the log-append-time attribute".to_owned();
        Some((ErrorCode::InvalidTimestamp, message))
    } else {
        None
    }
}

/// Corrects timestamp type and max timestamp, and the CRC with them.
fn stamp(batch: Batch, rules: &ProduceRules, summary: &WalkSummary) -> ValidatedBatch {
    let mut header: BatchHeader = *batch;
    let log_append_time = append_time(rules);
    header.max_timestamp = log_append_time.unwrap_or(summary.max_timestamp);
    header.attributes = header.attributes.with_timestamp_type(rules.timestamp_type);
    let changed = header != *batch;
    let bytes = batch.into_bytes();
    if changed {
        let mut fixed = [0; BATCH_HEADER_BYTES];
        header.write(&mut fixed);
        let crc = crc32c::crc32c(&fixed[at::ATTRIBUTES..]);
        header.crc = crc32c::crc32c_append(crc, &bytes[BATCH_HEADER_BYTES..]);
    }
    let offset_delta_of_max_timestamp = max_timestamp_delta(rules, summary);
    ValidatedBatch { header, bytes, changed, offset_delta_of_max_timestamp, log_append_time }
}

/// Writes the batch anew with the topic's codec.
fn recompress(
    batch: &Batch,
    codec: Codec,
    rules: &ProduceRules,
    buffer: &mut ReadBuffer,
    summary: &WalkSummary,
) -> Result<ValidatedBatch, ClientBatchError> {
    let log_append_time = append_time(rules);
    let records_bytes = usize::try_from(summary.records_bytes).unwrap_or(usize::MAX);
    let mut builder =
        BatchBuilder::with_capacity(Offset::ZERO, records_bytes.min(rules.limits.batch_bytes))
            .compression(codec)
            .producer(ProducerStamp {
                id: ProducerId(batch.producer_id),
                epoch: ProducerEpoch(batch.producer_epoch),
                base_sequence: batch.base_sequence,
            });
    if batch.is_transactional() {
        builder = builder.transactional();
    }
    if let Some(now) = log_append_time {
        builder = builder.log_append_time(now);
    }
    for record in batch.view().records(buffer, rules.limits.batch_bytes)? {
        builder.append_record(&record?).map_err(ClientBatchError::Recompress)?;
    }
    let bytes = builder.build().map_err(ClientBatchError::Recompress)?;
    Ok(ValidatedBatch {
        header: BatchHeader::parse(&bytes)?,
        bytes,
        changed: true,
        offset_delta_of_max_timestamp: max_timestamp_delta(rules, summary),
        log_append_time,
    })
}

fn append_time(rules: &ProduceRules) -> Option<i64> {
    (rules.timestamp_type == TimestampType::LogAppendTime).then_some(rules.now)
}

fn max_timestamp_delta(rules: &ProduceRules, summary: &WalkSummary) -> i32 {
    match rules.timestamp_type {
        TimestampType::CreateTime => summary.offset_delta_of_max_timestamp,
        // All records of the batch have the append time; the first of them stands for it.
        TimestampType::LogAppendTime => 0,
    }
}
