//! Values of the language: how they are worked out, and the functions they may call.
//!
//! | function | gives |
//! |---|---|
//! | `bytes('abc')`, `hex('00ff')` | bytes (base64, as messages carry them) |
//! | `join(a, b)`, `cut(a, n)` | bytes one behind the other, or without their last n |
//! | `batch([values], {faults})`, `record(delta, key, value)` | what produce sends; see [`crate::batch`] |
//! | `subscription('t', 'u')` | a classic member's metadata |
//! | `repeat('x', n)`, `min(a, b)` | text, number |
//! | `topic('t')`, `cluster()` | the topic's and the cluster's id on the side that is asked |
//! | `nobody(n)` | an id that nothing has |

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use protocol::Uuid;
use protocol::reflect::{Value, base64, unbase64};
use serde_json::{Map, json};

use crate::batch;

/// A value as it is written.
#[derive(Clone, Debug)]
pub enum Expression {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    Name(String),
    /// A field of an object.
    Field(Box<Expression>, String),
    List(Vec<Expression>),
    /// From the first to the second, both included.
    Range(Box<Expression>, Box<Expression>),
    Object(Vec<Part>),
    Sum {
        left: Box<Expression>,
        right: Box<Expression>,
        plus: bool,
    },
    Call(String, Vec<Expression>),
}

/// A part of an object.
#[derive(Clone, Debug)]
pub enum Part {
    Field(String, Expression),
    /// All fields of another object; what comes later wins.
    Spread(Expression),
}

/// The way to a part of an answer: names of fields and places in lists.
#[derive(Clone, Debug)]
pub struct Path(pub Vec<String>);

impl Path {
    /// The part, if the answer has it.
    pub fn find<'a>(&self, answer: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(answer, |value, key| match key.parse::<usize>() {
            Ok(place) => value.get(place),
            Err(_) => value.get(key),
        })
    }
}

/// What only the side that is asked knows.
pub trait World {
    fn topic_id(&mut self, topic: &str) -> Result<String>;
    fn cluster_id(&mut self) -> Result<String>;
}

/// The names that a value may use.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub values: BTreeMap<String, Value>,
    pub lets: BTreeMap<String, Expression>,
}

impl Scope {
    /// Works a value out.
    pub fn value(&self, expression: &Expression, world: &mut dyn World) -> Result<Value> {
        Ok(match expression {
            Expression::Null => Value::Null,
            Expression::Bool(value) => json!(value),
            Expression::Number(number) => json!(number),
            Expression::Text(text) => json!(text),
            Expression::Name(name) => match (self.values.get(name), self.lets.get(name)) {
                (Some(value), _) => value.clone(),
                (None, Some(expression)) => self.value(expression, world)?,
                (None, None) => bail!("there is no {name}"),
            },
            Expression::Field(object, field) => {
                let object = self.value(object, world)?;
                object.get(field).with_context(|| format!("no {field} in {object}"))?.clone()
            }
            Expression::List(list) => {
                list.iter().map(|element| self.value(element, world)).collect::<Result<_>>()?
            }
            Expression::Range(first, last) => {
                let first = number(&self.value(first, world)?)?;
                let last = number(&self.value(last, world)?)?;
                (first..=last).collect()
            }
            Expression::Object(parts) => self.object(parts, world)?,
            Expression::Sum { left, right, plus } => {
                sum(&self.value(left, world)?, &self.value(right, world)?, *plus)?
            }
            Expression::Call(name, arguments) => {
                let arguments = arguments.iter().map(|argument| self.value(argument, world));
                let arguments: Vec<Value> = arguments.collect::<Result<_>>()?;
                call(name, &arguments, world).with_context(|| format!("{name}{arguments:?}"))?
            }
        })
    }

    fn object(&self, parts: &[Part], world: &mut dyn World) -> Result<Value> {
        let mut object = Map::new();
        for part in parts {
            match part {
                Part::Field(key, value) => {
                    object.insert(key.clone(), self.value(value, world)?);
                }
                Part::Spread(value) => match self.value(value, world)? {
                    Value::Object(more) => object.extend(more),
                    other => bail!("{other} cannot be spread"),
                },
            }
        }
        Ok(Value::Object(object))
    }
}

fn sum(left: &Value, right: &Value, plus: bool) -> Result<Value> {
    let words = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
    Ok(match (left, right) {
        (Value::String(left), right) if plus => json!(format!("{left}{}", words(right))),
        (Value::Array(left), Value::Array(right)) if plus => {
            left.iter().chain(right).cloned().collect()
        }
        (left, right) => {
            let (left, right) = (number(left)?, number(right)?);
            json!(if plus { left + right } else { left - right })
        }
    })
}

/// A whole number.
pub fn number(value: &Value) -> Result<i64> {
    value.as_i64().with_context(|| format!("{value} is no number"))
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

/// Bytes of a value that holds them as base64.
pub fn raw(value: &Value) -> Result<Vec<u8>> {
    unbase64(text(value)?).with_context(|| format!("{value} is no base64"))
}

fn call(name: &str, arguments: &[Value], world: &mut dyn World) -> Result<Value> {
    let argument = |place: usize| arguments.get(place).context("too few arguments");
    let bytes = |bytes: &[u8]| json!(base64(bytes));
    Ok(match name {
        "bytes" => bytes(text(argument(0)?)?.as_bytes()),
        "hex" => bytes(&unhex(text(argument(0)?)?)?),
        "join" => bytes(&arguments.iter().map(raw).collect::<Result<Vec<_>>>()?.concat()),
        "cut" => {
            let whole = raw(argument(0)?)?;
            let keep = whole.len().saturating_sub(number(argument(1)?)? as usize);
            bytes(&whole[..keep])
        }
        "batch" => {
            let values = argument(0)?.as_array().context("a list of values")?;
            let faults = arguments.get(1).cloned().unwrap_or_else(|| json!({}));
            bytes(&batch::batch(values, &faults)?)
        }
        "record" => bytes(&batch::record(number(argument(0)?)?, argument(1)?, argument(2)?)?),
        "subscription" => {
            let topics = arguments.iter().map(text).collect::<Result<Vec<_>>>()?;
            bytes(&subscription(&topics))
        }
        "repeat" => json!(text(argument(0)?)?.repeat(number(argument(1)?)? as usize)),
        "min" => json!(number(argument(0)?)?.min(number(argument(1)?)?)),
        "topic" => json!(world.topic_id(text(argument(0)?)?)?),
        "cluster" => json!(world.cluster_id()?),
        "nobody" => json!(Uuid([number(argument(0)?)? as u8; 16]).to_base64()),
        _ => bail!("there is no function {name}"),
    })
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    if digits.len() != text.len() || !digits.len().is_multiple_of(2) {
        bail!("{text} is no hex");
    }
    Ok(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// Version 0 of a consumer's subscription, without user data.
fn subscription(topics: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend_from_slice(&(topics.len() as i32).to_be_bytes());
    for topic in topics {
        bytes.extend_from_slice(&(topic.len() as i16).to_be_bytes());
        bytes.extend_from_slice(topic.as_bytes());
    }
    bytes.extend_from_slice(&(-1i32).to_be_bytes());
    bytes
}
