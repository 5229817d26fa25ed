//! The records inside a batch, as slices of its (decompressed) bytes.

use std::borrow::Cow;

use super::error::{BatchError, RecordProblem};
use super::header::{BatchHeader, NO_SEQUENCE, TimestampType, increment_sequence};
use super::varint::{self, VarintError};
use crate::Offset;

/// One record. Nothing is copied: keys, values and headers are slices of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The record's index among those in the batch, from 0.
    pub index: i32,
    /// Where it lies in the log.
    pub offset: Offset,
    /// Offset less the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds since 1970; the append time in a batch of that type. -1 for none.
    pub timestamp: i64,
    /// The producer's sequence number, -1 for none.
    pub sequence: i32,
    /// The record's own attribute bits; none is used so far.
    pub attributes: i8,
    /// The key; null and empty are different things.
    pub key: Option<&'a [u8]>,
    /// The value; null deletes the key in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, in their order; names may repeat.
    pub headers: Headers<'a>,
    /// Bytes of the record, its length field included, before compression.
    pub size_in_bytes: usize,
}

/// The headers of one record, already checked to be well formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    left: i32,
}

impl Headers<'_> {
    /// How many are left to yield.
    pub fn len(&self) -> usize {
        self.left as usize
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

/// One header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// The name, which should be UTF-8 but is not checked by any broker.
    pub key: &'a [u8],
    /// The value; may be null.
    pub value: Option<&'a [u8]>,
}

impl<'a> Header<'a> {
    /// The name as text; bytes that are not UTF-8 are replaced.
    pub fn key_text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        if self.left == 0 {
            return None;
        }
        let mut fields = Fields { bytes: self.bytes };
        let header = fields.header().ok()?;
        self.bytes = fields.bytes;
        self.left -= 1;
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Takes the fields of one record off the front of its bytes.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl From<VarintError> for RecordProblem {
    fn from(error: VarintError) -> Self {
        match error {
            VarintError::End => RecordProblem::Overrun,
            VarintError::TooLong => RecordProblem::Varint,
        }
    }
}

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Result<u8, RecordProblem> {
        let (first, rest) = self.bytes.split_first().ok_or(RecordProblem::Overrun)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], RecordProblem> {
        let (slice, rest) = self.bytes.split_at_checked(length).ok_or(RecordProblem::Overrun)?;
        self.bytes = rest;
        Ok(slice)
    }

    /// A length and that many bytes; any negative length is null, as Kafka reads it.
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordProblem> {
        match varint::take_i32(&mut self.bytes)? {
            length if length < 0 => Ok(None),
            length => self.slice(length as usize).map(Some),
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordProblem> {
        let length = varint::take_i32(&mut self.bytes)?;
        if length < 0 {
            return Err(RecordProblem::HeaderKeyLength { length });
        }
        let key = self.slice(length as usize)?;
        Ok(Header { key, value: self.nullable()? })
    }

    /// Checks every header, so that iterating them later cannot fail.
    fn headers(&mut self) -> Result<Headers<'a>, RecordProblem> {
        let count = varint::take_i32(&mut self.bytes)?;
        // Each header takes two bytes at least.
        if count < 0 || count as usize > self.bytes.len() / 2 {
            return Err(RecordProblem::HeaderCount { count });
        }
        let headers = Headers { bytes: self.bytes, left: count };
        for _ in 0..count {
            self.header()?;
        }
        Ok(headers)
    }
}

/// Iterates the records of one batch in their order. It yields exactly as many as the header counts
/// or ends with an error: a malformed record, too few, or bytes behind the last one.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    bytes: &'a [u8],
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    base_sequence: i32,
    count: i32,
    index: i32,
    done: bool,
}

impl<'a> RecordIter<'a> {
    /// The records of the batch with `header`, over its decompressed records.
    pub(super) fn new(header: &BatchHeader, records: &'a [u8]) -> Self {
        let append_time = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp),
        };
        Self {
            bytes: records,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time,
            base_sequence: header.base_sequence,
            count: header.count,
            index: 0,
            done: false,
        }
    }

    fn record(&mut self) -> Result<Record<'a>, RecordProblem> {
        let mut rest = self.bytes;
        let length = match varint::take_i32(&mut rest) {
            Ok(length) => length,
            Err(VarintError::End) => return Err(RecordProblem::Missing),
            Err(VarintError::TooLong) => return Err(RecordProblem::Varint),
        };
        let available = rest.len() as u64;
        let out_of_bounds = RecordProblem::Length { length, available };
        let size = usize::try_from(length).map_err(|_| out_of_bounds)?;
        let (body, rest) = rest.split_at_checked(size).ok_or(out_of_bounds)?;
        let mut fields = Fields { bytes: body };
        let attributes = fields.byte()? as i8;
        let timestamp_delta = varint::take_i64(&mut fields.bytes)?;
        let offset_delta = varint::take_i32(&mut fields.bytes)?;
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        let headers = fields.headers()?;
        if !fields.bytes.is_empty() {
            return Err(RecordProblem::Underrun { left: fields.bytes.len() as u64 });
        }
        let size_in_bytes = self.bytes.len() - rest.len();
        self.bytes = rest;
        Ok(Record {
            index: self.index,
            offset: Offset(self.base_offset.wrapping_add(i64::from(offset_delta))),
            offset_delta,
            timestamp: self
                .append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            sequence: if self.base_sequence < 0 {
                NO_SEQUENCE
            } else {
                increment_sequence(self.base_sequence, offset_delta)
            },
            attributes,
            key,
            value,
            headers,
            size_in_bytes,
        })
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.index >= self.count {
            self.done = true;
            return (!self.bytes.is_empty())
                .then_some(Err(BatchError::TrailingBytes { count: self.count }));
        }
        let index = self.index;
        let record = self.record().map_err(|problem| BatchError::Record { index, problem });
        self.index += 1;
        self.done = record.is_err();
        Some(record)
    }
}
