//! The schema files as they are written: one file per API, and files of messages that belong to no
//! API. Unknown words in a file are errors, so a misspelt fact cannot pass for an absent one.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// One API: its facts, and the fields of its request and response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiFile {
    /// What the API is for.
    pub about: String,
    /// The name that the messages' names start with, as in `Fetch`.
    pub name: String,
    /// The number on the wire.
    pub key: i16,
    /// The name in Kafka's own tables, as in `FETCH`.
    pub kafka_name: String,
    /// Which kinds of listener serve the API: `broker`, `controller`.
    pub listeners: Vec<String>,
    /// Whether only the cluster's own nodes may call it.
    #[serde(default)]
    pub cluster_action: bool,
    /// All versions that can be read and written.
    pub versions: Versions,
    /// The last version that is served; later ones are unstable.
    pub latest_stable: i16,
    /// The first version told to clients, where that differs from the first one served.
    pub advertised_from: Option<i16>,
    /// Whether clients are told of the API at all.
    #[serde(default = "yes")]
    pub advertised: bool,
    /// The versions with compact encodings and tagged fields.
    pub flexible: Versions,
    /// Which versions of the headers go with which versions of the API.
    pub headers: Vec<HeaderRow>,
    /// The request's fields.
    pub request: Body,
    /// The response's fields.
    pub response: Body,
}

fn yes() -> bool {
    true
}

/// A range of an API's versions and the header versions that go with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderRow {
    /// The API's versions.
    pub versions: Versions,
    /// The version of the request header.
    pub request: i16,
    /// The version of the response header.
    pub response: i16,
}

/// A request or a response.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// The fields in the order of the wire.
    pub fields: Vec<FieldSchema>,
}

/// A file of messages that belong to no API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessagesFile {
    /// What they have in common.
    #[allow(dead_code)]
    pub about: String,
    /// The messages.
    pub messages: Vec<MessageSchema>,
}

/// A message that belongs to no API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageSchema {
    /// Kafka's name.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// For the coordinators' records: the int16 that precedes the key.
    pub record_key: Option<i16>,
    /// All versions.
    pub versions: Versions,
    /// The versions with compact encodings and tagged fields.
    pub flexible: Versions,
    /// The fields in the order of the wire.
    pub fields: Vec<FieldSchema>,
}

/// One field.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSchema {
    /// Kafka's name.
    pub name: String,
    /// A primitive, a struct's name, or either after `[]`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The versions that carry the field.
    pub versions: Versions,
    /// The versions in which it may be null.
    #[serde(default)]
    pub nullable: Versions,
    /// The versions in which it is tagged.
    #[serde(default)]
    pub tagged: Versions,
    /// Its tag.
    pub tag: Option<u32>,
    /// Overrides the message's flexible versions for the encoding of this field.
    pub flexible: Option<Versions>,
    /// The default; absent means the type's own.
    #[serde(default, deserialize_with = "present")]
    pub default: Option<Value>,
    /// Whether a value may be lost in versions that lack the field.
    #[serde(default)]
    pub ignorable: bool,
    /// Whether the field identifies its struct in an array.
    #[serde(default)]
    pub key: bool,
    /// What it holds.
    #[serde(default)]
    pub about: String,
    /// The fields of the struct, at its first use in the message.
    #[serde(default)]
    pub fields: Vec<FieldSchema>,
}

/// Keeps a null that is written in the file apart from an absent value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The file of error codes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorsFile {
    /// What the file holds.
    #[allow(dead_code)]
    pub about: String,
    /// The codes, ascending.
    pub errors: Vec<ErrorSchema>,
}

/// One error code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSchema {
    /// The number on the wire.
    pub code: i16,
    /// Kafka's name.
    pub name: String,
    /// Whether a client may try again.
    #[serde(default)]
    pub retriable: bool,
}

/// A range of versions, both ends included; empty when `first > last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first version.
    pub first: i16,
    /// The last version; `i16::MAX` when the range is open.
    pub last: i16,
}

impl Versions {
    /// No version.
    pub const NONE: Versions = Versions { first: 1, last: 0 };

    /// Whether no version is in the range.
    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    /// Whether `version` is in the range.
    pub fn contains(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }

    /// The versions in both ranges.
    pub fn intersect(self, other: Versions) -> Versions {
        let both = Versions { first: self.first.max(other.first), last: self.last.min(other.last) };
        if both.is_empty() { Versions::NONE } else { both }
    }

    /// The smallest range that holds both.
    pub fn hull(self, other: Versions) -> Versions {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            _ => Versions { first: self.first.min(other.first), last: self.last.max(other.last) },
        }
    }

    fn parse(text: &str) -> Option<Versions> {
        if text == "none" {
            return Some(Versions::NONE);
        }
        let versions = if let Some(first) = text.strip_suffix('+') {
            Versions { first: first.parse().ok()?, last: i16::MAX }
        } else if let Some((first, last)) = text.split_once('-') {
            Versions { first: first.parse().ok()?, last: last.parse().ok()? }
        } else {
            let only = text.parse().ok()?;
            Versions { first: only, last: only }
        };
        (versions.first >= 0 && !versions.is_empty()).then_some(versions)
    }
}

impl Default for Versions {
    fn default() -> Self {
        Versions::NONE
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            versions if versions.is_empty() => f.write_str("none"),
            Versions { first, last: i16::MAX } => write!(f, "{first}+"),
            Versions { first, last } if first == last => write!(f, "{first}"),
            Versions { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Versions::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no range of versions")))
    }
}
