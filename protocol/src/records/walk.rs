//! One pass over the records of a batch that looks at everything and keeps nothing: what the produce
//! path and offset lookups by timestamp need. Compressed records are decompressed through a small
//! window, so memory does not grow with them.

use std::io::{self, BufRead, BufReader};

use super::compression::{Decoder, ReadBuffer, decoding_error};
use super::error::{BatchError, RecordProblem};
use super::header::{BatchHeader, Compression, NO_TIMESTAMP, TimestampType};
use super::varint::{unzigzag_i32, unzigzag_i64};
use super::view::BatchView;

/// Bytes of decompressed records in memory at a time.
const WINDOW_BYTES: usize = 16 * 1024;

/// How much decompressing may give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// For all records of one batch together.
    pub batch_bytes: usize,
    /// For one record of a compressed batch, its length field not counted
    /// (`max.decompressed.message.bytes`).
    pub record_bytes: usize,
}

impl Default for ReadLimits {
    /// Kafka's default for one record, for both.
    fn default() -> Self {
        Self { batch_bytes: 2_147_483_639, record_bytes: 2_147_483_639 }
    }
}

/// What the walk tells about each record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFacts {
    /// The record's index in the batch, from 0.
    pub index: i32,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds since 1970; the append time in a batch of that type. -1 for none.
    pub timestamp: i64,
    /// Whether it has a key, which may be empty.
    pub has_key: bool,
    /// Whether it has a value, which may be empty.
    pub has_value: bool,
}

/// What the walk tells about the whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkSummary {
    /// The largest timestamp, -1 when there is none.
    pub max_timestamp: i64,
    /// Offset delta of the first record with that timestamp; -1 when there is no record.
    pub offset_delta_of_max_timestamp: i32,
    /// Bytes of the records before compression.
    pub records_bytes: u64,
}

impl BatchView<'_> {
    /// Walks all records in one pass, calling `visit` for each, and checks that they are well formed,
    /// as many as counted, and followed by nothing. Stops with an error when they decompress to more
    /// than `limits` allow.
    pub fn walk(
        &self,
        buffer: &mut ReadBuffer,
        limits: ReadLimits,
        mut visit: impl FnMut(RecordFacts) -> Result<(), RecordProblem>,
    ) -> Result<WalkSummary, BatchError> {
        match self.compression()? {
            Compression::None => {
                let input = SliceInput { rest: self.payload() };
                walk_input(input, self, usize::MAX, &mut visit)
            }
            codec => {
                let fail = |error: &io::Error| decoding_error(codec, limits.batch_bytes, error);
                let decoder =
                    Decoder::new(codec, self.payload(), buffer.zstd_context(), limits.batch_bytes)
                        .map_err(|error| fail(&error))?;
                let reader = BufReader::with_capacity(WINDOW_BYTES, decoder);
                let mut input =
                    StreamInput { reader, left: limits.batch_bytes as u64, failure: None };
                let result = walk_input(&mut input, self, limits.record_bytes, &mut visit);
                // A failing decoder shows as missing bytes; its own words say more.
                match input.failure {
                    Some(error) => Err(fail(&error)),
                    None => result,
                }
            }
        }
    }
}

/// Bytes that are read forward. `None` and `false` mean that there are no more.
trait Input {
    fn byte(&mut self) -> Option<u8>;
    fn skip(&mut self, count: usize) -> bool;
    /// No more bytes than this are left.
    fn most_left(&self) -> u64;
}

struct SliceInput<'a> {
    rest: &'a [u8],
}

impl Input for SliceInput<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    fn skip(&mut self, count: usize) -> bool {
        match self.rest.get(count..) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn most_left(&self) -> u64 {
        self.rest.len() as u64
    }
}

struct StreamInput<'a> {
    reader: BufReader<Decoder<'a>>,
    /// Bytes that may still come out before the limit.
    left: u64,
    failure: Option<io::Error>,
}

impl StreamInput<'_> {
    /// What is in the window, filled again when it was used up; empty at the end, and after a failure.
    #[inline]
    fn window(&mut self) -> &[u8] {
        if self.reader.buffer().is_empty() {
            self.refill();
        }
        self.reader.buffer()
    }

    fn refill(&mut self) {
        if self.failure.is_some() {
            return;
        }
        match self.reader.fill_buf().map(<[u8]>::len) {
            Ok(count) if count as u64 > self.left => {
                self.failure = Some(io::ErrorKind::FileTooLarge.into());
                self.reader.consume(count);
            }
            Ok(_) => {}
            Err(error) => self.failure = Some(error),
        }
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
        self.left -= count as u64;
    }
}

impl Input for &mut StreamInput<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let first = *self.window().first()?;
        self.consume(1);
        Some(first)
    }

    fn skip(&mut self, mut count: usize) -> bool {
        while count > 0 {
            let step = self.window().len().min(count);
            if step == 0 {
                return false;
            }
            self.consume(step);
            count -= step;
        }
        true
    }

    fn most_left(&self) -> u64 {
        self.left
    }
}

/// One record's bytes: an input that ends where the record's length says.
struct Body<'a, I> {
    input: &'a mut I,
    left: usize,
}

impl<I: Input> Body<'_, I> {
    fn byte(&mut self) -> Result<u8, RecordProblem> {
        self.left = self.left.checked_sub(1).ok_or(RecordProblem::Overrun)?;
        self.input.byte().ok_or(RecordProblem::Missing)
    }

    fn skip(&mut self, count: usize) -> Result<(), RecordProblem> {
        self.left = self.left.checked_sub(count).ok_or(RecordProblem::Overrun)?;
        if self.input.skip(count) { Ok(()) } else { Err(RecordProblem::Missing) }
    }

    fn unsigned(&mut self, max_bytes: u32) -> Result<u64, RecordProblem> {
        let mut value = 0u64;
        for i in 0..max_bytes {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(RecordProblem::Varint)
    }

    fn varint_i32(&mut self) -> Result<i32, RecordProblem> {
        self.unsigned(5).map(|raw| unzigzag_i32(raw as u32))
    }

    /// Skips bytes with their length in front; says whether they are there (not null).
    fn skip_nullable(&mut self) -> Result<bool, RecordProblem> {
        let length = self.varint_i32()?;
        if length < 0 {
            return Ok(false);
        }
        self.skip(length as usize)?;
        Ok(true)
    }

    fn skip_headers(&mut self) -> Result<(), RecordProblem> {
        let count = self.varint_i32()?;
        // Each header takes two bytes at least.
        if count < 0 || count as usize > self.left / 2 {
            return Err(RecordProblem::HeaderCount { count });
        }
        for _ in 0..count {
            let length = self.varint_i32()?;
            if length < 0 {
                return Err(RecordProblem::HeaderKeyLength { length });
            }
            self.skip(length as usize)?;
            self.skip_nullable()?;
        }
        Ok(())
    }
}

/// What timestamps of records come from.
#[derive(Clone, Copy)]
enum Clock {
    /// Deltas from this base timestamp.
    Deltas(i64),
    /// This append time, for all.
    Append(i64),
}

fn walk_input<I: Input>(
    mut input: I,
    header: &BatchHeader,
    max_record_bytes: usize,
    visit: &mut impl FnMut(RecordFacts) -> Result<(), RecordProblem>,
) -> Result<WalkSummary, BatchError> {
    let clock = match header.timestamp_type() {
        TimestampType::CreateTime => Clock::Deltas(header.base_timestamp),
        TimestampType::LogAppendTime => Clock::Append(header.max_timestamp),
    };
    let mut summary = WalkSummary {
        max_timestamp: NO_TIMESTAMP,
        offset_delta_of_max_timestamp: -1,
        records_bytes: 0,
    };
    for index in 0..header.count {
        let (facts, size) = walk_record(&mut input, index, max_record_bytes, clock)
            .and_then(|(facts, size)| visit(facts).map(|()| (facts, size)))
            .map_err(|problem| BatchError::Record { index, problem })?;
        if index == 0 || facts.timestamp > summary.max_timestamp {
            summary.max_timestamp = facts.timestamp;
            summary.offset_delta_of_max_timestamp = facts.offset_delta;
        }
        summary.records_bytes += size;
    }
    if input.byte().is_some() {
        return Err(BatchError::TrailingBytes { count: header.count });
    }
    Ok(summary)
}

/// Walks one record; also gives its size, the length field included.
fn walk_record<I: Input>(
    input: &mut I,
    index: i32,
    max_bytes: usize,
    clock: Clock,
) -> Result<(RecordFacts, u64), RecordProblem> {
    let available = input.most_left();
    let mut prefix = Body { input, left: 5 };
    let length = prefix.varint_i32()?;
    let prefix_bytes = 5 - prefix.left;
    let left = usize::try_from(length).map_err(|_| RecordProblem::Length { length, available })?;
    if left as u64 > available.saturating_sub(prefix_bytes as u64) {
        return Err(RecordProblem::Length { length, available });
    }
    if left > max_bytes {
        return Err(RecordProblem::TooLarge { length, max_bytes });
    }
    let mut body = Body { input: prefix.input, left };
    body.byte()?;
    let delta = body.unsigned(10).map(unzigzag_i64)?;
    let timestamp = match clock {
        // Kafka adds without looking; what comes out is judged by the timestamp rules.
        Clock::Deltas(base) => base.wrapping_add(delta),
        Clock::Append(time) => time,
    };
    let offset_delta = body.varint_i32()?;
    let has_key = body.skip_nullable()?;
    let has_value = body.skip_nullable()?;
    body.skip_headers()?;
    if body.left > 0 {
        return Err(RecordProblem::Underrun { left: body.left as u64 });
    }
    let facts = RecordFacts { index, offset_delta, timestamp, has_key, has_value };
    Ok((facts, (prefix_bytes + left) as u64))
}
