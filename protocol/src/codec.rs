//! The primitive types of the wire, read from a frame and written into a buffer.
//!
//! Invariants kept here, for every generated message: a length is checked against what is left before
//! anything is allocated for it; nothing panics, whatever the bytes; a message is measured by the
//! same code that writes it, so size and content cannot disagree; `records` are never copied.
//!
//! "Compact" is the encoding of flexible versions (KIP-482): lengths are unsigned varints of length
//! plus one, and 0 means null.

use bytes::Bytes;

pub use crate::decoder::Decoder;
pub use crate::encoder::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::parts::{Part, join_parts};

/// The longest string that Kafka reads or writes, in bytes.
pub const MAX_STRING_BYTES: usize = i16::MAX as usize;

/// A struct of the protocol, generated from the schemas: a whole message or a struct inside one.
pub trait Message: Sized {
    /// Kafka's name of the struct.
    const NAME: &'static str;
    /// The versions of the message that the struct belongs to.
    const VERSIONS: std::ops::RangeInclusive<i16>;
    /// No version of the struct takes fewer bytes; bounds what an array can hold.
    const MIN_SIZE: usize;

    /// Reads the struct; unknown tagged fields are kept.
    fn decode(decoder: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the struct, or counts its bytes when the encoder is a measuring one.
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError>;

    /// The number of bytes [`Message::encode`] would write, records included.
    fn encoded_size(&self, version: i16) -> Result<usize, EncodeError> {
        let mut encoder = Encoder::measuring();
        self.encode(&mut encoder, version)?;
        Ok(encoder.size())
    }

    /// The encoded struct as parts: one buffer around its records.
    fn to_parts(&self, version: i16) -> Result<Vec<Part>, EncodeError> {
        encode_parts(&|encoder| self.encode(encoder, version))
    }

    /// The encoded struct in one piece; records are copied, so this is not for fetch answers.
    fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let parts = self.to_parts(version)?;
        join_parts(parts).map_err(|error| EncodeError::ReadRecords(error.kind()))
    }

    /// Reads a struct that fills `bytes`; bytes left over are an error.
    fn from_bytes(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let message = Self::decode(&mut decoder, version)?;
        decoder.finish()?;
        Ok(message)
    }
}

/// A tagged field this version of the schema does not know, kept to be written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTaggedField {
    /// The tag.
    pub tag: u32,
    /// The content, without tag and size.
    pub data: Bytes,
}

/// Measures what `write` writes, then writes it into one buffer of exactly that size.
pub fn encode_parts(
    write: &dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<Vec<Part>, EncodeError> {
    let mut measure = Encoder::measuring();
    write(&mut measure)?;
    let mut encoder = Encoder::with_capacity(measure.inline_size());
    write(&mut encoder)?;
    debug_assert_eq!(encoder.inline_size(), measure.inline_size());
    Ok(encoder.into_parts())
}

/// The error for a field that is set although the version lacks it.
pub(crate) fn unsupported_field(
    structure: &'static str,
    field: &'static str,
    version: i16,
) -> EncodeError {
    EncodeError::UnsupportedField { structure, field, version }
}

/// The error for a field that is null although the version allows no null.
pub(crate) fn null_field(
    structure: &'static str,
    field: &'static str,
    version: i16,
) -> EncodeError {
    EncodeError::UnexpectedNull { structure, field, version }
}

/// Unknown tagged fields cannot be written into a version that is not flexible.
pub(crate) fn check_no_tagged_fields(
    unknown: &[UnknownTaggedField],
    structure: &'static str,
    version: i16,
) -> Result<(), EncodeError> {
    if unknown.is_empty() {
        return Ok(());
    }
    Err(unsupported_field(structure, "unknown_tagged_fields", version))
}
