//! What of an answer may differ between two clusters that behave alike, replaced by words: ids that each draws
//! for itself, ports, folders, times of the day, and the wording of messages (Kafka's are often the texts of Java
//! exceptions; that there is one, and that an empty one is empty, is compared).

use protocol::Uuid;
use protocol::reflect::Value;
use serde_json::json;

/// Fields that are left out of every answer.
const IGNORED: [&str; 1] = ["throttleTimeMs"];
/// Fields whose text is somebody's wording.
const WORDED: [&str; 3] = ["errorMessage", "batchIndexErrorMessage", "documentation"];
/// Fields that hold an id drawn at random, unless it is one that a story knows by name.
const DRAWN: [&str; 5] =
    ["clusterId", "topicId", "directoryId", "replicaDirectoryId", "voterDirectoryId"];
/// A uuid of zeros.
const ZERO: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// Texts that a story knows by name.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(String, String)>);

impl Names {
    pub fn add(&mut self, text: &str, name: &str) {
        if !text.is_empty() && !self.0.iter().any(|(known, _)| known == text) {
            self.0.push((text.to_owned(), name.to_owned()));
        }
    }

    /// The value as it can be compared, without the fields in `except`.
    pub fn hide(&self, value: &Value, except: &[String]) -> Value {
        self.field("", value, except)
    }

    fn field(&self, name: &str, value: &Value, except: &[String]) -> Value {
        match value {
            Value::Object(object) => object
                .iter()
                .filter(|(key, _)| !IGNORED.contains(&key.as_str()) && !except.contains(key))
                .map(|(key, value)| (key.clone(), self.field(key, value, except)))
                .collect(),
            Value::Array(list) => {
                list.iter().map(|value| self.field(name, value, except)).collect()
            }
            Value::String(text) => json!(self.text(name, text)),
            Value::Number(_) if name == "port" => json!("<port>"),
            other => other.clone(),
        }
    }

    fn text(&self, name: &str, text: &str) -> String {
        if WORDED.contains(&name) && !text.is_empty() {
            return "<words>".into();
        }
        let mut shown = text.to_owned();
        for (known, name) in &self.0 {
            if shown.contains(known.as_str()) {
                shown = shown.replace(known.as_str(), &format!("<{name}>"));
            }
        }
        let drawn = match name {
            // Members of KIP-848; those of the stories themselves are nearly all A.
            "memberId" => Uuid::from_base64(text).is_some() && !text.contains("AAAAAAAA"),
            _ => DRAWN.contains(&name) && text != ZERO,
        };
        if shown == text && drawn {
            return "<id>".into();
        }
        without_ports(&without_uuids(&shown))
    }
}

/// Replaces the numbers behind `127.0.0.1:`.
fn without_ports(text: &str) -> String {
    const HOST: &str = "127.0.0.1:";
    let mut pieces = text.split(HOST);
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        shown.push_str(HOST);
        shown.push_str("<port>");
        shown.push_str(piece.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    shown
}

/// Replaces what looks like `8-4-4-4-12` digits of hex: member ids hold one.
fn without_uuids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    const LENGTH: usize = 36;
    let is_uuid = |piece: &str| {
        let groups: Vec<&str> = piece.split('-').collect();
        groups.len() == GROUPS.len()
            && groups.iter().zip(GROUPS).all(|(group, length)| {
                group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    };
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.get(..LENGTH).is_some_and(is_uuid) {
            shown.push_str("<uuid>");
            rest = &rest[LENGTH..];
        } else {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            shown.push_str(&rest[..first]);
            rest = &rest[first..];
        }
    }
    shown
}
