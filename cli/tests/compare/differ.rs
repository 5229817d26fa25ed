//! Where two answers differ. Lists whose elements have a name are matched by name; their order counts only where
//! Kafka gives one (most of its lists come out of hash tables).

use std::collections::BTreeMap;
use std::fmt;

use protocol::ErrorCode;
use protocol::reflect::Value;
use serde_json::json;

/// One difference inside an answer.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Names of fields, and of elements in brackets.
    pub path: String,
    pub ours: Value,
    pub kafkas: Value,
}

/// What names an element, in this order of preference; all that are there count together.
const IDENTITIES: [&str; 17] = [
    "name",
    "topic",
    "topicName",
    "topicId",
    "groupId",
    "resourceName",
    "configName",
    "memberId",
    "producerId",
    "apiKey",
    "partitionIndex",
    "partition",
    "partitionId",
    "index",
    "nodeId",
    "brokerId",
    "key",
];

/// Lists in the order of the request.
const ORDERED: [&str; 1] = ["coordinators"];

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coded = self.path.ends_with("rrorCode");
        writeln!(f, "    {}", self.path)?;
        writeln!(f, "        ours   {}", shown(&self.ours, coded))?;
        write!(f, "        kafka  {}", shown(&self.kafkas, coded))
    }
}

/// A value in one line, an error code with its name.
pub fn shown(value: &Value, coded: bool) -> String {
    let name = value.as_i64().and_then(|code| ErrorCode::known(code.try_into().ok()?));
    match name {
        Some(name) if coded => format!("{value} {}", name.kafka_name()),
        _ => value.to_string().chars().take(400).collect(),
    }
}

/// All differences between two answers.
pub fn differences(ours: &Value, kafkas: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk("", ours, kafkas, &mut found);
    found
}

fn walk(path: &str, ours: &Value, kafkas: &Value, found: &mut Vec<Difference>) {
    if ours == kafkas {
        return;
    }
    match (ours, kafkas) {
        (Value::Object(mine), Value::Object(theirs)) => {
            let keys = mine.keys().chain(theirs.keys().filter(|key| !mine.contains_key(*key)));
            for key in keys {
                let inside = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let absent = json!("(absent)");
                let (one, other) = (mine.get(key), theirs.get(key));
                walk(&inside, one.unwrap_or(&absent), other.unwrap_or(&absent), found);
            }
        }
        (Value::Array(mine), Value::Array(theirs)) => lists(path, mine, theirs, found),
        _ => found.push(Difference {
            path: path.to_owned(),
            ours: ours.clone(),
            kafkas: kafkas.clone(),
        }),
    }
}

fn lists(path: &str, mine: &[Value], theirs: &[Value], found: &mut Vec<Difference>) {
    let whole = |mine: &[Value], theirs: &[Value], what: &str| Difference {
        path: format!("{path}{what}"),
        ours: json!(mine),
        kafkas: json!(theirs),
    };
    if let (Some(one), Some(other)) = (by_identity(mine), by_identity(theirs)) {
        let absent = json!("(absent)");
        let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
        for key in keys {
            let inside = format!("{path}[{key}]");
            let (one, other) = (one.get(key), other.get(key));
            walk(
                &inside,
                one.copied().unwrap_or(&absent),
                other.copied().unwrap_or(&absent),
                found,
            );
        }
        let ordered = ORDERED.iter().any(|name| path.ends_with(name));
        if ordered && one.len() == other.len() {
            let order = |list: &[Value]| list.iter().filter_map(identity).collect::<Vec<_>>();
            if order(mine) != order(theirs) {
                found.push(whole(mine, theirs, " (order)"));
            }
        }
        return;
    }
    let sorted = |list: &[Value]| {
        let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    if mine.len() != theirs.len() {
        found.push(whole(mine, theirs, ""));
    } else if mine.iter().any(Value::is_object) && sorted(mine) == sorted(theirs) {
        // The same elements in another order, and none has a name of its own.
    } else {
        for (place, (one, other)) in mine.iter().zip(theirs).enumerate() {
            walk(&format!("{path}[{place}]"), one, other, found);
        }
    }
}

fn identity(value: &Value) -> Option<String> {
    let object = value.as_object()?;
    let parts = IDENTITIES.iter().filter_map(|name| object.get(*name));
    let parts: Vec<String> =
        parts.map(|part| part.as_str().map_or(part.to_string(), str::to_owned)).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// The elements by their names, if each has one of its own.
fn by_identity(list: &[Value]) -> Option<BTreeMap<String, &Value>> {
    let named: Option<BTreeMap<String, &Value>> =
        list.iter().map(|value| Some((identity(value)?, value))).collect();
    named.filter(|named| named.len() == list.len())
}
