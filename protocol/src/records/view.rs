//! One batch in place: a checked view over borrowed bytes ([`BatchView`]) or shared ones
//! ([`Batch`]), and walking a buffer of batches without copying.
//!
//! A buffer may end in the middle of a batch: fetch answers and torn files do. The walk stops there
//! without an error and says how many bytes were whole ([`Batches::valid_bytes`]); bytes that
//! cannot start a batch are an error.

use std::ops::Deref;

use bytes::Bytes;

use super::compression::{ReadBuffer, decompress};
use super::error::BatchError;
use super::header::{self, BATCH_HEADER_BYTES, BatchHeader, Compression, at};
use super::record::RecordIter;

/// A whole batch of format 2 over borrowed bytes: exactly the batch, nothing behind it. Derefs to
/// its [`BatchHeader`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The batch that starts `bytes`; more bytes may follow it. Checks length and magic, not the CRC.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let size = header.size_in_bytes();
        match bytes.get(..size) {
            Some(bytes) => Ok(Self { header, bytes }),
            None => {
                Err(BatchError::Incomplete { needed: size as u64, available: bytes.len() as u64 })
            }
        }
    }

    /// The decoded header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The batch's bytes, header included.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records as stored, compressed or not.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[BATCH_HEADER_BYTES..]
    }

    /// CRC32C over the attributes to the end.
    pub fn computed_crc(&self) -> u32 {
        crc32c::crc32c(&self.bytes[at::ATTRIBUTES..])
    }

    /// Compares the stored CRC with the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.header.crc, self.computed_crc());
        if stored == computed { Ok(()) } else { Err(BatchError::Checksum { stored, computed }) }
    }

    /// The records of an uncompressed batch, or of a compressed one after decompressing it into
    /// `buffer`, which may be used again for the next batch. Fails when the records would take more
    /// than `limit_bytes`; memory grows with what really comes out, not with what is claimed.
    pub fn records<'b>(
        &self,
        buffer: &'b mut ReadBuffer,
        limit_bytes: usize,
    ) -> Result<RecordIter<'b>, BatchError>
    where
        'a: 'b,
    {
        let records: &'b [u8] = match self.header.compression()? {
            Compression::None => self.payload(),
            codec => decompress(codec, self.payload(), buffer, limit_bytes)?,
        };
        Ok(RecordIter::new(&self.header, records))
    }
}

impl Deref for BatchView<'_> {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

/// A whole batch over shared bytes; cloning is cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// The batch that starts `bytes`, sharing them; see [`BatchView::parse`].
    pub fn parse(bytes: &Bytes) -> Result<Self, BatchError> {
        let view = BatchView::parse(bytes)?;
        let size = view.size_in_bytes();
        Ok(Self { header: view.header, bytes: bytes.slice(..size) })
    }

    /// The same as a borrowed view.
    pub fn view(&self) -> BatchView<'_> {
        BatchView { header: self.header, bytes: &self.bytes }
    }

    /// The batch's bytes, header included.
    pub fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batch's bytes, header included.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl Deref for Batch {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

/// Walks the whole batches of a borrowed buffer. After an error it yields nothing more.
#[derive(Clone, Debug)]
pub struct BatchViews<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> BatchViews<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Bytes of the batches yielded so far: where the next one starts.
    pub fn valid_bytes(&self) -> usize {
        self.position
    }

    fn step(&mut self) -> Result<Option<BatchView<'a>>, BatchError> {
        let rest = &self.bytes[self.position..];
        match header::peek_size(rest)? {
            Some((size, _)) if size <= rest.len() => {
                let view = BatchView::parse(rest)?;
                self.position += size;
                Ok(Some(view))
            }
            _ => Ok(None),
        }
    }
}

impl<'a> Iterator for BatchViews<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let step = self.step();
        self.failed = step.is_err();
        step.transpose()
    }
}

/// Walks the whole batches of a shared buffer, each a slice of it.
#[derive(Clone, Debug)]
pub struct Batches {
    bytes: Bytes,
    position: usize,
    failed: bool,
}

impl Batches {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Bytes of the batches yielded so far: where the next one starts.
    pub fn valid_bytes(&self) -> usize {
        self.position
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut views =
            BatchViews { bytes: &self.bytes, position: self.position, failed: self.failed };
        let found = views.next();
        let end = views.position;
        self.failed = views.failed;
        let header = match found? {
            Ok(view) => view.header,
            Err(error) => return Some(Err(error)),
        };
        let bytes = self.bytes.slice(self.position..end);
        self.position = end;
        Some(Ok(Batch { header, bytes }))
    }
}

/// The first whole batch of `bytes`; `None` when they hold none (empty, or only a part of one).
pub fn first_batch(bytes: &[u8]) -> Result<Option<BatchView<'_>>, BatchError> {
    BatchViews::new(bytes).next().transpose()
}

/// How many bytes at the start of `bytes` are whole batches (structure only, no CRC); what follows
/// is a part of a batch or cannot be one.
pub fn valid_bytes(bytes: &[u8]) -> usize {
    let mut views = BatchViews::new(bytes);
    while let Some(Ok(_)) = views.next() {}
    views.valid_bytes()
}
