//! The bodies of requests, taken apart. A field that is not known is refused: a fault that does less than was
//! asked for would be worse than none.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::real::{Harm, Message, Way};

use super::Refusal;

/// One node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneNode {
    pub node: i32,
}

/// One log directory of a node, by its place in `log.dirs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneDirectory {
    pub node: i32,
    #[serde(default)]
    pub dir: usize,
}

/// Nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// The end of a hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    pub id: u64,
    #[serde(default)]
    pub lost: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    from: Option<i32>,
    to: Option<i32>,
    plane: Option<String>,
    #[serde(default = "yes")]
    both_ways: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    from: Option<i32>,
    to: Option<i32>,
    plane: Option<String>,
    #[serde(default)]
    both_ways: bool,
    #[serde(default)]
    latency_ms: u64,
    bytes_per_second: Option<u64>,
}

/// A message on its way, to be held or lost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    message: String,
    from: Option<i32>,
    to: Option<i32>,
    plane: Option<String>,
}

fn yes() -> bool {
    true
}

/// Reads a body; an empty one is an object without fields.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.is_empty() { b"{}" } else { body };
    let refusal = |error: serde_json::Error| Refusal::bad(format!("the body: {error}"));
    let value: Value = serde_json::from_slice(body).map_err(refusal)?;
    if !value.is_object() {
        return Err(Refusal::bad("the body: expected an object"));
    }
    serde_json::from_value(value).map_err(refusal)
}

fn way(from: Option<i32>, to: Option<i32>, plane: Option<&str>) -> Result<Way, Refusal> {
    let plane = plane.map(|plane| plane.parse().map_err(Refusal::bad)).transpose()?;
    Ok(Way { from, to, plane })
}

fn both(way: Way, both_ways: bool) -> Vec<Way> {
    let back = Way { from: way.to, to: way.from, ..way };
    if both_ways && back != way { vec![way, back] } else { vec![way] }
}

impl Cut {
    pub fn faults(&self) -> Result<Vec<(Way, Harm)>, Refusal> {
        let way = way(self.from, self.to, self.plane.as_deref())?;
        Ok(both(way, self.both_ways).into_iter().map(|way| (way, Harm::Cut)).collect())
    }
}

impl Slow {
    pub fn faults(&self) -> Result<Vec<(Way, Harm)>, Refusal> {
        if self.latency_ms == 0 && self.bytes_per_second.is_none() {
            return Err(Refusal::bad("slow wants latency_ms, bytes_per_second or both"));
        }
        let way = way(self.from, self.to, self.plane.as_deref())?;
        let latency = Duration::from_millis(self.latency_ms);
        let harm = Harm::Slow { latency, bytes_per_second: self.bytes_per_second };
        Ok(both(way, self.both_ways).into_iter().map(|way| (way, harm)).collect())
    }
}

impl Named {
    pub fn faults(&self, harm: fn(Message) -> Harm) -> Result<Vec<(Way, Harm)>, Refusal> {
        let message = self.message.parse().map_err(Refusal::bad)?;
        Ok(vec![(way(self.from, self.to, self.plane.as_deref())?, harm(message))])
    }
}
