//! For tests and tools (feature `json`): messages as JSON in the form that Kafka's own converters give
//! them, and messages filled at random. Nothing of a running node uses this.

use bytes::Bytes;
use serde_json::Value as JsonValue;

use crate::codec::Message;
use crate::parts::Records;
use crate::types::Uuid;

/// A JSON value.
pub type Value = JsonValue;
/// A JSON object, its keys in the order of insertion.
pub type JsonObject = serde_json::Map<String, JsonValue>;
/// Where random messages get their bits from.
pub type Source<'a> = dyn FnMut() -> u64 + 'a;

/// A generated struct that can be looked into.
pub trait Reflect: Message {
    /// The fields that `version` carries. Tagged fields that hold their default are left out; bytes and
    /// records are base64, uuids Kafka's own base64.
    fn to_json(&self, version: i16) -> Value;

    /// A struct with random values in the fields that `version` carries.
    fn arbitrary(source: &mut Source<'_>, version: i16) -> Self;
}

/// Something that is called once for every message, with the message's type.
pub trait Visitor {
    /// Called for each message.
    fn visit<M: Reflect + Clone + std::fmt::Debug + Default + PartialEq>(&mut self);
}

/// A field's value as JSON.
pub trait ToJson {
    /// The value; `version` matters to structs only.
    fn to_json(&self, version: i16) -> Value;
}

macro_rules! plain_json {
    ($($plain:ty),*) => {
        $(impl ToJson for $plain {
            fn to_json(&self, _version: i16) -> Value {
                Value::from(self.clone())
            }
        })*
    };
}

plain_json!(bool, i8, i16, u16, i32, i64, f64, String);

impl ToJson for Bytes {
    fn to_json(&self, _version: i16) -> Value {
        Value::from(base64(self))
    }
}

impl ToJson for Records {
    /// Records in a file that cannot be read show as null.
    fn to_json(&self, _version: i16) -> Value {
        self.read().map_or(Value::Null, |bytes| Value::from(base64(&bytes)))
    }
}

impl ToJson for Uuid {
    fn to_json(&self, _version: i16) -> Value {
        Value::from(self.to_base64())
    }
}

impl<T: ToJson> ToJson for Vec<T> {
    fn to_json(&self, version: i16) -> Value {
        self.iter().map(|element| element.to_json(version)).collect()
    }
}

impl<T: ToJson> ToJson for Option<T> {
    fn to_json(&self, version: i16) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.to_json(version))
    }
}

/// Standard base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .enumerate()
            .fold(0u32, |word, (i, byte)| word | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            match i <= chunk.len() {
                true => text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

/// Random values of the primitive types: short, so that messages stay small.
pub mod arbitrary {
    use super::{Bytes, Source, Uuid};
    use crate::codec::UnknownTaggedField;

    /// Up to 8 letters, not all of one byte.
    pub fn string(source: &mut Source<'_>) -> String {
        const LETTERS: [char; 8] = ['a', 'b', 'Z', '-', '.', '\u{e9}', '\u{4e16}', '\u{1f980}'];
        let length = source() % 9;
        (0..length).map(|_| LETTERS[(source() % 8) as usize]).collect()
    }

    /// Up to 16 bytes.
    pub fn bytes(source: &mut Source<'_>) -> Bytes {
        let length = source() % 17;
        (0..length).map(|_| source() as u8).collect()
    }

    /// Any uuid.
    pub fn uuid(source: &mut Source<'_>) -> Uuid {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&source().to_be_bytes());
        uuid[8..].copy_from_slice(&source().to_be_bytes());
        Uuid(uuid)
    }

    /// Up to two elements.
    pub fn vec<T>(
        source: &mut Source<'_>,
        mut element: impl FnMut(&mut Source<'_>) -> T,
    ) -> Vec<T> {
        let length = source() % 3;
        (0..length).map(|_| element(source)).collect()
    }

    /// Null one time in four, if `nullable`.
    pub fn option<T>(
        source: &mut Source<'_>,
        nullable: bool,
        value: impl FnOnce(&mut Source<'_>) -> T,
    ) -> Option<T> {
        let null = source().is_multiple_of(4) && nullable;
        if null { None } else { Some(value(source)) }
    }

    /// Sometimes a few tags that no schema defines.
    pub fn tagged_fields(source: &mut Source<'_>, flexible: bool) -> Vec<UnknownTaggedField> {
        if !flexible || !source().is_multiple_of(4) {
            return Vec::new();
        }
        let count = 1 + source() % 2;
        (0..count)
            .map(|i| UnknownTaggedField { tag: 100 + i as u32 * 1000, data: bytes(source) })
            .collect()
    }
}
