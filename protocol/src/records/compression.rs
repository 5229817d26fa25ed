//! Reading and writing the four codecs, with growth bound by what really comes out.
//!
//! Snappy comes in two framings: snappy-java's stream (a 16-byte header, then blocks with a 4-byte
//! length each), which Kafka's own clients write, and one raw block. LZ4 frames must have
//! independent blocks, as Kafka's reader knows no others. Zstandard windows are limited to 2^27
//! bytes, the library's own default and Kafka's.

use std::io::{self, Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use zstd::zstd_safe::{CCtx, DCtx, ResetDirective};

use super::error::BatchError;
use super::header::Compression;

/// Log2 of the largest Zstandard window that is read.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The start of snappy-java's stream framing.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The magic, then a version and the lowest compatible version, 4 bytes each.
const XERIAL_HEADER_BYTES: usize = 16;
/// Bytes that snappy-java puts into one block.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// Three bytes of a Snappy block copy at most 64: no block grows by more than this factor.
const SNAPPY_MAX_EXPANSION: usize = 22;
/// The start of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The magic of an LZ4 frame, little-endian.
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The descriptor bit for independent blocks.
const LZ4_INDEPENDENT: u8 = 0x20;

/// Memory that is kept from one batch to the next, so that reading many costs few allocations.
#[derive(Default)]
pub struct ReadBuffer {
    output: Vec<u8>,
    zstd: Option<DCtx<'static>>,
}

impl ReadBuffer {
    /// Empty; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn zstd_context(&mut self) -> &mut Option<DCtx<'static>> {
        &mut self.zstd
    }

    /// Bytes kept for decompressed records; a Zstandard context comes on top.
    pub fn retained_bytes(&self) -> usize {
        self.output.capacity()
    }

    /// Gives memory back beyond `bytes`, after an unusually large batch. The Zstandard context goes
    /// too: it keeps the largest window it saw, up to 128 MiB.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.zstd = None;
        self.output.clear();
        self.output.shrink_to(bytes);
    }
}

impl std::fmt::Debug for ReadBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadBuffer")
            .field("capacity", &self.output.capacity())
            .finish_non_exhaustive()
    }
}

/// A codec's reader over compressed bytes. To be read until it first gives nothing: what follows a
/// frame is no part of the records, except further gzip members and Zstandard frames, as in Kafka.
pub(super) enum Decoder<'a> {
    Gzip(Box<GzDecoder<&'a [u8]>>),
    Snappy(SnappyReader<'a>),
    Lz4(Box<lz4_flex::frame::FrameDecoder<EndNoting<'a>>>),
    Zstd(Box<zstd::Decoder<'a, &'a [u8]>>),
}

impl<'a> Decoder<'a> {
    /// Starts reading `input` with `codec`, which is not "none". A single Snappy block is not allowed
    /// more than `limit_bytes`.
    pub(super) fn new(
        codec: Compression,
        input: &'a [u8],
        zstd_context: &'a mut Option<DCtx<'static>>,
        limit_bytes: usize,
    ) -> io::Result<Self> {
        Ok(match codec {
            Compression::None => unreachable!("uncompressed records have no decoder"),
            Compression::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(input))),
            Compression::Snappy => Decoder::Snappy(SnappyReader::new(input, limit_bytes)),
            Compression::Lz4 => {
                check_lz4_descriptor(input)?;
                let input = EndNoting { rest: input, read_beyond: false };
                Decoder::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(input)))
            }
            Compression::Zstd => {
                let context = zstd_context.get_or_insert_with(DCtx::create);
                // A failed batch before this one may have left the context in the middle of a frame.
                context
                    .reset(ResetDirective::SessionOnly)
                    .map_err(|code| io::Error::other(zstd::zstd_safe::get_error_name(code)))?;
                let mut decoder = zstd::Decoder::with_context(input, context);
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Decoder::Zstd(Box::new(decoder))
            }
        })
    }
}

impl Read for Decoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Gzip(decoder) => read_gzip(decoder, out),
            Decoder::Snappy(decoder) => decoder.read(out),
            Decoder::Lz4(decoder) => match decoder.read(out)? {
                0 if decoder.get_ref().read_beyond => Err(invalid_data("the LZ4 frame has no end")),
                count => Ok(count),
            },
            Decoder::Zstd(decoder) => decoder.read(out),
        }
    }
}

/// Goes on with a further member when one follows; other bytes behind a member are passed over.
fn read_gzip(decoder: &mut GzDecoder<&[u8]>, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match decoder.read(out)? {
            0 if decoder.get_ref().starts_with(&GZIP_MAGIC) => {
                *decoder = GzDecoder::new(*decoder.get_ref());
            }
            count => return Ok(count),
        }
    }
}

/// Notes whether more was asked for than was there: the LZ4 library takes the end of its input for
/// the end of the frame.
pub(super) struct EndNoting<'a> {
    rest: &'a [u8],
    read_beyond: bool,
}

impl Read for EndNoting<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.read_beyond |= self.rest.is_empty() && !out.is_empty();
        self.rest.read(out)
    }
}

fn check_lz4_descriptor(input: &[u8]) -> io::Result<()> {
    let independent = match input.strip_prefix(&LZ4_MAGIC) {
        Some([flags, ..]) => flags & LZ4_INDEPENDENT != 0,
        _ => return Err(invalid_data("no LZ4 frame header")),
    };
    if independent { Ok(()) } else { Err(invalid_data("LZ4 blocks depend on each other")) }
}

fn invalid_data(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Reads both Snappy framings, one block in memory at a time.
pub(super) struct SnappyReader<'a> {
    input: &'a [u8],
    framed: bool,
    limit_bytes: usize,
    block: Vec<u8>,
    position: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(input: &'a [u8], limit_bytes: usize) -> Self {
        let framed = input.len() >= XERIAL_HEADER_BYTES && input.starts_with(&XERIAL_MAGIC);
        let input = if framed { &input[XERIAL_HEADER_BYTES..] } else { input };
        Self { input, framed, limit_bytes, block: Vec::new(), position: 0 }
    }

    /// Takes the next compressed block off the input.
    fn next_block(&mut self) -> io::Result<&'a [u8]> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.input));
        }
        // Concatenated streams repeat the header.
        while self.input.len() >= XERIAL_HEADER_BYTES && self.input.starts_with(&XERIAL_MAGIC) {
            self.input = &self.input[XERIAL_HEADER_BYTES..];
        }
        if self.input.is_empty() {
            return Ok(&[]);
        }
        let Some((length, rest)) = self.input.split_first_chunk::<4>() else {
            // Less than a length is passed over, as snappy-java does.
            self.input = &[];
            return Ok(&[]);
        };
        let length = u32::from_be_bytes(*length) as usize;
        let Some((block, rest)) = rest.split_at_checked(length) else {
            return Err(invalid_data("a Snappy block goes beyond the batch"));
        };
        self.input = rest;
        Ok(block)
    }

    fn fill(&mut self) -> io::Result<()> {
        let compressed = self.next_block()?;
        self.position = 0;
        self.block.clear();
        if compressed.is_empty() {
            return Ok(());
        }
        let length = snap::raw::decompress_len(compressed)?;
        // The length is a claim; only what the block could really hold is allocated.
        if length > compressed.len().saturating_mul(SNAPPY_MAX_EXPANSION) {
            return Err(invalid_data("a Snappy block claims more than it can hold"));
        }
        if length > self.limit_bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "Snappy block"));
        }
        self.block.resize(length, 0);
        snap::raw::Decoder::new().decompress(compressed, &mut self.block)?;
        Ok(())
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.position == self.block.len() {
            if self.input.is_empty() {
                return Ok(0);
            }
            self.fill()?;
        }
        let n = out.len().min(self.block.len() - self.position);
        out[..n].copy_from_slice(&self.block[self.position..self.position + n]);
        self.position += n;
        Ok(n)
    }
}

/// The error for what a decoder reported.
pub(super) fn decoding_error(
    codec: Compression,
    limit_bytes: usize,
    error: &io::Error,
) -> BatchError {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return BatchError::DecompressedTooLarge { limit_bytes };
    }
    BatchError::Decompression { codec: codec.name(), reason: error.to_string() }
}

/// Decompresses `input` whole into `buffer`, at most `limit_bytes`.
pub(super) fn decompress<'b>(
    codec: Compression,
    input: &[u8],
    buffer: &'b mut ReadBuffer,
    limit_bytes: usize,
) -> Result<&'b [u8], BatchError> {
    let ReadBuffer { output, zstd } = buffer;
    output.clear();
    let read = Decoder::new(codec, input, zstd, limit_bytes)
        .and_then(|decoder| decoder.take(limit_bytes as u64 + 1).read_to_end(output));
    match read {
        Ok(length) if length > limit_bytes => Err(BatchError::DecompressedTooLarge { limit_bytes }),
        Ok(_) => Ok(output),
        Err(error) => Err(decoding_error(codec, limit_bytes, &error)),
    }
}

/// A codec with its level, as `compression.type` and `compression.<codec>.level` give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Codec {
    /// Which codec.
    pub compression: Compression,
    /// The codec's own level; `None` for its default. Snappy has none, and LZ4 has one speed here.
    pub level: Option<i32>,
}

impl From<Compression> for Codec {
    fn from(compression: Compression) -> Self {
        Codec { compression, level: None }
    }
}

/// Appends `records` compressed to `out`. Fails only when the codec's library does.
pub(super) fn compress(codec: Codec, records: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let result = match codec.compression {
        Compression::None => {
            out.extend_from_slice(records);
            Ok(())
        }
        Compression::Gzip => compress_gzip(codec.level, records, out),
        Compression::Snappy => compress_snappy(records, out),
        Compression::Lz4 => compress_lz4(records, out),
        Compression::Zstd => compress_zstd(codec.level, records, out),
    };
    result.map_err(|error| decoding_error(codec.compression, usize::MAX, &error))
}

fn compress_gzip(level: Option<i32>, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let level = match level {
        Some(level @ 0..=9) => flate2::Compression::new(level as u32),
        _ => flate2::Compression::default(),
    };
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(records)?;
    encoder.finish().map(|_| ())
}

fn compress_snappy(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&XERIAL_MAGIC);
    out.extend_from_slice(&1u32.to_be_bytes());
    out.extend_from_slice(&1u32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let start = out.len();
        out.resize(start + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder.compress(block, &mut out[start + 4..])?;
        out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
        out.truncate(start + 4 + length);
    }
    Ok(())
}

fn compress_lz4(records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Independent);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, out);
    encoder.write_all(records)?;
    encoder.finish()?;
    Ok(())
}

fn compress_zstd(level: Option<i32>, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
    let start = out.len();
    out.resize(start + zstd::zstd_safe::compress_bound(records.len()), 0);
    let length = CCtx::create()
        .compress(&mut out[start..], records, level)
        .map_err(|code| io::Error::other(zstd::zstd_safe::get_error_name(code)))?;
    out.truncate(start + length);
    Ok(())
}
