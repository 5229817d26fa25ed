//! Reading: a [`Decoder`] walks over one frame and trusts nothing in it (see [`crate::codec`]).

use bytes::Bytes;

use crate::codec::{MAX_STRING_BYTES, Message, UnknownTaggedField};
use crate::error::DecodeError;
use crate::parts::Records;
use crate::types::Uuid;

/// Reads values from a frame. Byte and record values share the frame's memory.
#[derive(Clone, Debug)]
pub struct Decoder {
    frame: Bytes,
    at: usize,
    end: usize,
}

impl Decoder {
    /// A reader at the start of `frame`.
    pub fn new(frame: Bytes) -> Decoder {
        let end = frame.len();
        Decoder { frame, at: 0, end }
    }

    /// How many bytes are left to read.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// The position in the frame, in bytes.
    pub fn position(&self) -> usize {
        self.at
    }

    /// An error when bytes are left over (rule P02: trailing garbage).
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes { left }),
        }
    }

    /// Whatever is left, without copying it; the decoder is then at its end.
    pub fn take_rest(&mut self) -> Bytes {
        let rest = self.frame.slice(self.at..self.end);
        self.at = self.end;
        rest
    }

    fn advance(&mut self, wanted: usize) -> Result<usize, DecodeError> {
        let left = self.remaining();
        if wanted > left {
            return Err(DecodeError::Truncated { at: self.at, wanted, left });
        }
        let start = self.at;
        self.at += wanted;
        Ok(start)
    }

    fn get_array_of<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = self.advance(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.frame[start..start + N]);
        Ok(bytes)
    }

    /// A byte that is not 0 for true.
    pub fn get_bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.get_i8()? != 0)
    }

    /// A signed byte.
    pub fn get_i8(&mut self) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.get_array_of()?))
    }

    /// Two bytes, big-endian, signed.
    pub fn get_i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.get_array_of()?))
    }

    /// Two bytes, big-endian, unsigned.
    pub fn get_u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_be_bytes(self.get_array_of()?))
    }

    /// Four bytes, big-endian, signed.
    pub fn get_i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.get_array_of()?))
    }

    /// Eight bytes, big-endian, signed.
    pub fn get_i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.get_array_of()?))
    }

    /// Eight bytes, an IEEE 754 double.
    pub fn get_f64(&mut self) -> Result<f64, DecodeError> {
        Ok(f64::from_be_bytes(self.get_array_of()?))
    }

    /// Sixteen bytes.
    pub fn get_uuid(&mut self) -> Result<Uuid, DecodeError> {
        Ok(Uuid(self.get_array_of()?))
    }

    /// An unsigned varint of at most 32 bits.
    pub fn get_unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.get_array_of()?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::InvalidVarint { at })
    }

    /// A length, `None` for null: a varint when `flexible`, else what `fixed` reads.
    fn get_length(
        &mut self,
        flexible: bool,
        fixed: fn(&mut Decoder) -> Result<i32, DecodeError>,
    ) -> Result<Option<usize>, DecodeError> {
        let at = self.at;
        let length = if flexible {
            i64::from(self.get_unsigned_varint()?) - 1
        } else {
            i64::from(fixed(self)?)
        };
        if length > i64::from(i32::MAX) {
            return Err(DecodeError::InvalidLength { at, length, left: self.remaining() });
        }
        Ok(usize::try_from(length).ok())
    }

    /// A value that may be null when `nullable` says so.
    fn required<T>(&self, value: Option<T>) -> Result<T, DecodeError> {
        value.ok_or(DecodeError::UnexpectedNull { at: self.at })
    }

    /// Passes `value` on, unless it is null and `nullable` is false.
    pub fn check_null<T>(
        &self,
        nullable: bool,
        value: Option<T>,
    ) -> Result<Option<T>, DecodeError> {
        if value.is_none() && !nullable {
            return Err(DecodeError::UnexpectedNull { at: self.at });
        }
        Ok(value)
    }

    /// A string that may be null. As in Kafka, bytes that are not UTF-8 are replaced by U+FFFD: some clients have
    /// an id in another encoding, and work.
    pub fn get_nullable_string(&mut self, flexible: bool) -> Result<Option<String>, DecodeError> {
        let at = self.at;
        let Some(length) = self.get_length(flexible, |d| d.get_i16().map(i32::from))? else {
            return Ok(None);
        };
        if length > MAX_STRING_BYTES {
            let left = self.remaining();
            return Err(DecodeError::InvalidLength { at, length: length as i64, left });
        }
        let start = self.advance(length)?;
        let text = String::from_utf8_lossy(&self.frame[start..self.at]);
        if text.len() > MAX_STRING_BYTES {
            return Err(DecodeError::InvalidUtf8 { at: start });
        }
        Ok(Some(text.into_owned()))
    }

    /// A string.
    pub fn get_string(&mut self, flexible: bool) -> Result<String, DecodeError> {
        let value = self.get_nullable_string(flexible)?;
        self.required(value)
    }

    /// Bytes that may be null.
    pub fn get_nullable_bytes(&mut self, flexible: bool) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.get_length(flexible, Decoder::get_i32)? else {
            return Ok(None);
        };
        let start = self.advance(length)?;
        Ok(Some(self.frame.slice(start..self.at)))
    }

    /// Bytes.
    pub fn get_bytes(&mut self, flexible: bool) -> Result<Bytes, DecodeError> {
        let value = self.get_nullable_bytes(flexible)?;
        self.required(value)
    }

    /// Record batches that may be null; not checked here.
    pub fn get_nullable_records(&mut self, flexible: bool) -> Result<Option<Records>, DecodeError> {
        Ok(self.get_nullable_bytes(flexible)?.map(Records::Bytes))
    }

    /// Record batches; not checked here.
    pub fn get_records(&mut self, flexible: bool) -> Result<Records, DecodeError> {
        let value = self.get_nullable_records(flexible)?;
        self.required(value)
    }

    /// An array that may be null, of elements that take at least `min_element_size` bytes each.
    pub fn get_nullable_array<T>(
        &mut self,
        flexible: bool,
        min_element_size: usize,
        read: impl FnMut(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let at = self.at;
        let Some(length) = self.get_length(flexible, Decoder::get_i32)? else {
            return Ok(None);
        };
        let left = self.remaining();
        if length > left / min_element_size.max(1) {
            return Err(DecodeError::InvalidLength { at, length: length as i64, left });
        }
        self.get_elements(length, read).map(Some)
    }

    fn get_elements<T>(
        &mut self,
        length: usize,
        mut read: impl FnMut(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        // A small frame may promise many elements that are far larger in memory than on the wire,
        // so the first reservation is bounded by the bytes that are left; real elements make it grow.
        let affordable = 4 * self.remaining() / size_of::<T>().max(1);
        let mut elements = Vec::with_capacity(length.min(affordable));
        for _ in 0..length {
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    /// An array of elements that take at least `min_element_size` bytes each.
    pub fn get_array<T>(
        &mut self,
        flexible: bool,
        min_element_size: usize,
        read: impl FnMut(&mut Decoder) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let value = self.get_nullable_array(flexible, min_element_size, read)?;
        self.required(value)
    }

    /// An array of structs that may be null.
    pub fn get_nullable_structs<T: Message>(
        &mut self,
        flexible: bool,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        self.get_nullable_array(flexible, T::MIN_SIZE, |decoder| T::decode(decoder, version))
    }

    /// An array of structs.
    pub fn get_structs<T: Message>(
        &mut self,
        flexible: bool,
        version: i16,
    ) -> Result<Vec<T>, DecodeError> {
        let value = self.get_nullable_structs(flexible, version)?;
        self.required(value)
    }

    /// A struct behind a byte that says whether it is there.
    pub fn get_nullable_struct<T: Message>(
        &mut self,
        version: i16,
    ) -> Result<Option<T>, DecodeError> {
        match self.get_i8()? {
            present if present < 0 => Ok(None),
            _ => T::decode(self, version).map(Some),
        }
    }

    /// A struct in a tagged field, behind a number that says whether it is there: zero for null there,
    /// where an ordinary field has -1.
    pub fn get_nullable_tagged_struct<T: Message>(
        &mut self,
        version: i16,
    ) -> Result<Option<T>, DecodeError> {
        match self.get_i8()? {
            0 => Ok(None),
            _ => T::decode(self, version).map(Some),
        }
    }

    /// The tagged fields at the end of a flexible struct. `read` takes those it knows and returns false
    /// for the others, which are returned in the order of their tags. Of a tag that is
    /// there twice the later one counts, as in Kafka.
    pub fn get_tagged_fields(
        &mut self,
        read: &mut dyn FnMut(&mut Decoder, u32) -> Result<bool, DecodeError>,
    ) -> Result<Vec<UnknownTaggedField>, DecodeError> {
        // Nothing is reserved for `count`: a false one runs into the end of the frame.
        let count = self.get_unsigned_varint()?;
        let mut unknown: Vec<UnknownTaggedField> = Vec::new();
        for _ in 0..count {
            let tag = self.get_unsigned_varint()?;
            let size = self.get_unsigned_varint()? as usize;
            let start = self.advance(size)?;
            let outer_end = std::mem::replace(&mut self.end, start + size);
            self.at = start;
            if read(self, tag)? {
                let left = self.remaining();
                if left > 0 {
                    return Err(DecodeError::TaggedFieldSize { tag, left });
                }
            } else {
                unknown.push(UnknownTaggedField { tag, data: self.take_rest() });
            }
            self.end = outer_end;
        }
        if !unknown.is_sorted_by(|a, b| a.tag < b.tag) {
            // Stable sort of the reversed list: the last of equal tags comes first and stays.
            unknown.reverse();
            unknown.sort_by_key(|field| field.tag);
            unknown.dedup_by_key(|field| field.tag);
        }
        Ok(unknown)
    }
}
