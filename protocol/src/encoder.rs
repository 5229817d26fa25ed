//! Writing: an [`Encoder`] either measures a message or writes it into one buffer, records apart
//! (see [`crate::codec`]).

use bytes::{Bytes, BytesMut};

use crate::codec::{MAX_STRING_BYTES, Message, UnknownTaggedField};
use crate::error::EncodeError;
use crate::parts::{Part, Records};
use crate::types::Uuid;

/// A tagged field that the schema of a struct knows, as the struct's encoder sees it.
#[derive(Clone, Copy, Debug)]
pub struct KnownTag {
    /// The tag.
    pub tag: u32,
    /// Whether the version being written defines it.
    pub defined: bool,
    /// Whether it holds a value other than its default.
    pub set: bool,
}

/// Writes values, or only counts their bytes: the same walk over a message does both.
#[derive(Debug)]
pub struct Encoder {
    measuring: bool,
    /// Bytes counted or written, without records.
    inline_bytes: usize,
    /// Bytes of records.
    record_bytes: usize,
    buffer: BytesMut,
    parts: Vec<Part>,
}

impl Encoder {
    /// An encoder that writes nothing and counts.
    pub fn measuring() -> Encoder {
        Encoder {
            measuring: true,
            inline_bytes: 0,
            record_bytes: 0,
            buffer: BytesMut::new(),
            parts: Vec::new(),
        }
    }

    /// An encoder that writes into one buffer of `capacity` bytes; records do not count.
    pub fn with_capacity(capacity: usize) -> Encoder {
        Encoder {
            measuring: false,
            buffer: BytesMut::with_capacity(capacity),
            ..Encoder::measuring()
        }
    }

    /// Bytes counted or written so far, records included.
    pub fn size(&self) -> usize {
        self.inline_bytes + self.record_bytes
    }

    /// Bytes counted or written so far without records: the buffer needed.
    pub fn inline_size(&self) -> usize {
        self.inline_bytes
    }

    /// What was written, in order. Empty for a measuring encoder.
    pub fn into_parts(mut self) -> Vec<Part> {
        if !self.buffer.is_empty() {
            self.parts.push(Part::Bytes(self.buffer.freeze()));
        }
        self.parts
    }

    /// Bytes as they are, without a length.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.inline_bytes += bytes.len();
        if !self.measuring {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// 1 for true, 0 for false.
    pub fn put_bool(&mut self, value: bool) {
        self.put_raw(&[u8::from(value)]);
    }

    /// A signed byte.
    pub fn put_i8(&mut self, value: i8) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Two bytes, big-endian, signed.
    pub fn put_i16(&mut self, value: i16) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Two bytes, big-endian, unsigned.
    pub fn put_u16(&mut self, value: u16) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Four bytes, big-endian, signed.
    pub fn put_i32(&mut self, value: i32) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Eight bytes, big-endian, signed.
    pub fn put_i64(&mut self, value: i64) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Eight bytes, an IEEE 754 double.
    pub fn put_f64(&mut self, value: f64) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Sixteen bytes.
    pub fn put_uuid(&mut self, value: Uuid) {
        self.put_raw(&value.0);
    }

    /// An unsigned varint.
    pub fn put_unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.put_raw(&[value as u8 | 0x80]);
            value >>= 7;
        }
        self.put_raw(&[value as u8]);
    }

    /// A length of four bytes, or compact; `None` is null.
    fn put_length(&mut self, flexible: bool, length: Option<usize>) -> Result<(), EncodeError> {
        let wire = match length {
            None => -1,
            Some(length) => i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?,
        };
        if flexible {
            self.put_unsigned_varint((i64::from(wire) + 1) as u32);
        } else {
            self.put_i32(wire);
        }
        Ok(())
    }

    /// A string that may be null.
    pub fn put_nullable_string(
        &mut self,
        value: Option<&str>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        let length = value.map_or(0, str::len);
        if length > MAX_STRING_BYTES {
            return Err(EncodeError::TooLong { length });
        }
        if flexible {
            self.put_unsigned_varint(value.map_or(0, |text| text.len() as u32 + 1));
        } else {
            self.put_i16(value.map_or(-1, |text| text.len() as i16));
        }
        self.put_raw(value.unwrap_or_default().as_bytes());
        Ok(())
    }

    /// A string.
    pub fn put_string(&mut self, value: &str, flexible: bool) -> Result<(), EncodeError> {
        self.put_nullable_string(Some(value), flexible)
    }

    /// Bytes that may be null.
    pub fn put_nullable_bytes(
        &mut self,
        value: Option<&Bytes>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        self.put_length(flexible, value.map(Bytes::len))?;
        if let Some(bytes) = value {
            self.put_raw(bytes);
        }
        Ok(())
    }

    /// Bytes.
    pub fn put_bytes(&mut self, value: &Bytes, flexible: bool) -> Result<(), EncodeError> {
        self.put_nullable_bytes(Some(value), flexible)
    }

    /// Record batches that may be null: a part of their own, not copied.
    pub fn put_nullable_records(
        &mut self,
        value: Option<&Records>,
        flexible: bool,
    ) -> Result<(), EncodeError> {
        self.put_length(flexible, value.map(Records::len))?;
        let Some(records) = value.filter(|records| !records.is_empty()) else {
            return Ok(());
        };
        self.record_bytes += records.len();
        if !self.measuring {
            if !self.buffer.is_empty() {
                let before = self.buffer.split().freeze();
                self.parts.push(Part::Bytes(before));
            }
            self.parts.push(records.clone().into());
        }
        Ok(())
    }

    /// Record batches: a part of their own, not copied.
    pub fn put_records(&mut self, value: &Records, flexible: bool) -> Result<(), EncodeError> {
        self.put_nullable_records(Some(value), flexible)
    }

    /// An array that may be null.
    pub fn put_nullable_array<T>(
        &mut self,
        value: Option<&[T]>,
        flexible: bool,
        mut write: impl FnMut(&mut Encoder, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.put_length(flexible, value.map(<[T]>::len))?;
        for element in value.unwrap_or_default() {
            write(self, element)?;
        }
        Ok(())
    }

    /// An array.
    pub fn put_array<T>(
        &mut self,
        value: &[T],
        flexible: bool,
        write: impl FnMut(&mut Encoder, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.put_nullable_array(Some(value), flexible, write)
    }

    /// An array of structs that may be null.
    pub fn put_nullable_structs<T: Message>(
        &mut self,
        value: Option<&[T]>,
        flexible: bool,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.put_nullable_array(value, flexible, |encoder, element| {
            element.encode(encoder, version)
        })
    }

    /// An array of structs.
    pub fn put_structs<T: Message>(
        &mut self,
        value: &[T],
        flexible: bool,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.put_nullable_structs(Some(value), flexible, version)
    }

    /// A struct in a tagged field, behind a number that says whether it is there: zero for null there,
    /// where an ordinary field has -1.
    pub fn put_nullable_tagged_struct<T: Message>(
        &mut self,
        value: Option<&T>,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.put_i8(i8::from(value.is_some()));
        value.map_or(Ok(()), |value| value.encode(self, version))
    }

    /// A struct behind a byte that says whether it is there.
    pub fn put_nullable_struct<T: Message>(
        &mut self,
        value: Option<&T>,
        version: i16,
    ) -> Result<(), EncodeError> {
        match value {
            None => {
                self.put_i8(-1);
                Ok(())
            }
            Some(value) => {
                self.put_i8(1);
                value.encode(self, version)
            }
        }
    }

    /// The tagged fields at the end of a flexible struct, known and unknown ones merged in the order
    /// of their tags. `known` is ascending by tag; `write` writes the content of one.
    pub fn put_tagged_fields(
        &mut self,
        unknown: &[UnknownTaggedField],
        known: &[KnownTag],
        write: &dyn Fn(&mut Encoder, u32) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut unknown: Vec<&UnknownTaggedField> = unknown.iter().collect();
        unknown.sort_by_key(|field| field.tag);
        let twice =
            unknown.windows(2).find(|pair| pair[0].tag == pair[1].tag).map(|pair| pair[0].tag);
        let taken = known
            .iter()
            .filter(|known| known.defined)
            .map(|known| known.tag)
            .find(|tag| unknown.binary_search_by_key(tag, |field| field.tag).is_ok());
        if let Some(tag) = twice.or(taken) {
            return Err(EncodeError::DuplicateTag { tag });
        }
        let present: Vec<u32> = known
            .iter()
            .filter(|known| known.defined && known.set)
            .map(|known| known.tag)
            .collect();
        self.put_unsigned_varint((present.len() + unknown.len()) as u32);

        let mut unknown = unknown.into_iter().peekable();
        for tag in present {
            while let Some(field) = unknown.next_if(|field| field.tag < tag) {
                self.put_unknown_tagged_field(field);
            }
            let mut measure = Encoder::measuring();
            write(&mut measure, tag)?;
            self.put_unsigned_varint(tag);
            self.put_unsigned_varint(measure.size() as u32);
            write(self, tag)?;
        }
        unknown.for_each(|field| self.put_unknown_tagged_field(field));
        Ok(())
    }

    /// The tagged fields at the end of a flexible struct that defines none itself.
    pub fn put_unknown_tagged_fields(
        &mut self,
        unknown: &[UnknownTaggedField],
    ) -> Result<(), EncodeError> {
        self.put_tagged_fields(unknown, &[], &|_, _| Ok(()))
    }

    fn put_unknown_tagged_field(&mut self, field: &UnknownTaggedField) {
        self.put_unsigned_varint(field.tag);
        self.put_unsigned_varint(field.data.len() as u32);
        self.put_raw(&field.data);
    }
}
