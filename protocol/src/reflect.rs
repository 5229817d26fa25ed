//! For tests and tools (feature `json`): messages as JSON in the form that Kafka's own converters give
//! them, made from such JSON, and filled at random. Nothing of a running node uses this.

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
pub trait Reflect: Message + FromJson {
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

/// A value made from JSON, as [`ToJson`] writes it.
pub trait FromJson: Sized {
    /// The value. Fields of a struct that the JSON does not name hold their default, and those that
    /// `version` lacks are passed over, so that one text serves many versions.
    fn from_json(value: &Value, version: i16) -> Result<Self, JsonError>;
}

/// Why JSON is no such message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A value of another kind than the field's.
    #[error("{value} where {wanted} was expected")]
    Kind {
        /// What the field holds.
        wanted: &'static str,
        /// What was there.
        value: String,
    },
    /// A name that no version of the struct has.
    #[error("{of} has no field {name}")]
    NoSuchField {
        /// The struct.
        of: &'static str,
        /// The name.
        name: String,
    },
    /// An error inside a field.
    #[error("{name}: {error}")]
    Inside {
        /// The field.
        name: &'static str,
        /// What is wrong there.
        error: Box<JsonError>,
    },
}

impl JsonError {
    fn kind(wanted: &'static str, value: &Value) -> JsonError {
        JsonError::Kind { wanted, value: value.to_string() }
    }
}

/// The fields that a struct's JSON names.
#[derive(Debug)]
pub struct JsonFields<'a>(&'a JsonObject);

impl<'a> JsonFields<'a> {
    /// Checks that this is an object with none but these names.
    pub fn of(
        name: &'static str,
        value: &'a Value,
        fields: &[&'static str],
    ) -> Result<JsonFields<'a>, JsonError> {
        let object = value.as_object().ok_or_else(|| JsonError::kind("an object", value))?;
        match object.keys().find(|key| !fields.contains(&key.as_str())) {
            Some(unknown) => Err(JsonError::NoSuchField { of: name, name: unknown.clone() }),
            None => Ok(JsonFields(object)),
        }
    }

    /// The field's value, or its default when the JSON does not name it.
    pub fn read<T: FromJson>(
        &self,
        name: &'static str,
        version: i16,
        default: T,
    ) -> Result<T, JsonError> {
        match self.0.get(name) {
            None => Ok(default),
            Some(value) => T::from_json(value, version)
                .map_err(|error| JsonError::Inside { name, error: Box::new(error) }),
        }
    }
}

macro_rules! integer_from_json {
    ($($plain:ty),*) => {
        $(impl FromJson for $plain {
            fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
                let number = value.as_i64().and_then(|number| number.try_into().ok());
                number.ok_or_else(|| JsonError::kind(stringify!($plain), value))
            }
        })*
    };
}

integer_from_json!(i8, i16, u16, i32, i64);

impl FromJson for bool {
    fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
        value.as_bool().ok_or_else(|| JsonError::kind("true or false", value))
    }
}

impl FromJson for f64 {
    fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
        value.as_f64().ok_or_else(|| JsonError::kind("a number", value))
    }
}

impl FromJson for String {
    fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
        value.as_str().map(str::to_owned).ok_or_else(|| JsonError::kind("a text", value))
    }
}

impl FromJson for Bytes {
    fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
        let bytes = value.as_str().and_then(unbase64);
        bytes.map(Bytes::from).ok_or_else(|| JsonError::kind("base64", value))
    }
}

impl FromJson for Records {
    fn from_json(value: &Value, version: i16) -> Result<Self, JsonError> {
        Bytes::from_json(value, version).map(Records::Bytes)
    }
}

impl FromJson for Uuid {
    fn from_json(value: &Value, _version: i16) -> Result<Self, JsonError> {
        let uuid = value.as_str().and_then(Uuid::from_base64);
        uuid.ok_or_else(|| JsonError::kind("a uuid", value))
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: &Value, version: i16) -> Result<Self, JsonError> {
        let elements = value.as_array().ok_or_else(|| JsonError::kind("a list", value))?;
        elements.iter().map(|element| T::from_json(element, version)).collect()
    }
}

impl<T: FromJson> FromJson for Option<T> {
    fn from_json(value: &Value, version: i16) -> Result<Self, JsonError> {
        if value.is_null() { Ok(None) } else { T::from_json(value, version).map(Some) }
    }
}

/// The bytes behind standard base64 with padding.
pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| {
        Some(match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let body = text.trim_end_matches('=');
    if text.len() - body.len() > 2 {
        return None;
    }
    for chunk in body.as_bytes().chunks(4) {
        let mut word = 0u32;
        for i in 0..4 {
            let value = chunk.get(i).map_or(Some(0), |letter| digit(*letter))?;
            word = word << 6 | u32::from(value);
        }
        bytes.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
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

#[cfg(test)]
mod tests {
    use super::{base64, unbase64};

    #[test]
    fn base64_comes_back_as_the_same_bytes_whatever_their_number() {
        for length in 0..10u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(77)).collect();
            assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
        assert_eq!(unbase64("AAA"), None);
        assert_eq!(unbase64("A==="), None);
        assert_eq!(unbase64("A*A="), None);
    }
}
