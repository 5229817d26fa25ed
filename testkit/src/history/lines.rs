//! A history as JSON Lines, there and back; the shape is told at the head of the module.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Write};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Act, Operation, Phase, RecordName};

/// A line's keys, in the order in which they are written.
#[derive(Serialize, Deserialize)]
struct Keys {
    index: u64,
    time: u64,
    process: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    client: String,
    r#type: String,
    f: String,
    partition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acks: Option<i16>,
    #[serde(default, skip_serializing_if = "is_false")]
    may_repeat: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(default, rename = "final", skip_serializing_if = "is_false")]
    is_final: bool,
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What a poll got, by partition.
type Polled = BTreeMap<String, Vec<(i64, RecordName)>>;

fn is_false(flag: &bool) -> bool {
    !flag
}

const PHASES: [(Phase, &str); 4] =
    [(Phase::Invoke, "invoke"), (Phase::Ok, "ok"), (Phase::Fail, "fail"), (Phase::Info, "info")];

/// An operation as one line, without its end.
pub fn line(operation: &Operation) -> String {
    let partition = &operation.partition;
    let phase = operation.phase;
    let (mut acks, mut from, mut final_, mut repeats) = (None, None, false, false);
    let value = match &operation.act {
        Act::Send { acks: wanted, records, may_repeat } => {
            (acks, repeats) = (Some(*wanted), *may_repeat);
            let sent = records.iter().map(|(offset, name)| match phase {
                Phase::Ok => json!(["send", partition, [offset, name]]),
                _ => json!(["send", partition, name]),
            });
            Value::Array(sent.collect())
        }
        Act::Poll { from: at, records, is_final } => {
            (from, final_) = (Some(*at), *is_final);
            match phase {
                Phase::Ok => json!([["poll", { partition: records }]]),
                _ => json!([["poll"]]),
            }
        }
        Act::Assign { from: at } => {
            from = Some(*at);
            json!([partition])
        }
    };
    let found = PHASES.iter().find(|(known, _)| *known == phase);
    let keys = Keys {
        index: operation.index,
        time: operation.time,
        process: operation.process,
        client: operation.client.clone(),
        r#type: found.map_or("info", |(_, name)| name).to_owned(),
        f: operation.act.to_string(),
        partition: partition.clone(),
        acks,
        may_repeat: repeats,
        from,
        is_final: final_,
        value,
        error: operation.error.clone(),
    };
    // Strings and numbers only: there is nothing that JSON could not say.
    serde_json::to_string(&keys).unwrap_or_default()
}

/// Writes a history.
///
/// # Errors
/// When it cannot be written.
pub fn write_history(operations: &[Operation], to: &mut dyn Write) -> io::Result<()> {
    for operation in operations {
        writeln!(to, "{}", line(operation))?;
    }
    to.flush()
}

/// Reads a history. Lines of an `f` that is not known here are passed over.
///
/// # Errors
/// The first line that is none, or that no process could have done, by its number.
pub fn read_history(from: impl BufRead) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    let mut open: BTreeMap<u64, String> = BTreeMap::new();
    let mut over = BTreeSet::new();
    for (number, text) in (1..).zip(from.lines()) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let read =
            parse(&text).with_context(|| format!("line {number} is no line of a history"))?;
        let Some(operation) = read else {
            continue;
        };
        let process = operation.process;
        let what = operation.act.to_string();
        if operation.phase == Phase::Invoke {
            ensure!(!over.contains(&process), "line {number}: process {process} ended in an info");
            let before = open.insert(process, what);
            ensure!(before.is_none(), "line {number}: process {process} does something else still");
        } else {
            let begun = open.remove(&process);
            ensure!(begun == Some(what), "line {number}: process {process} did not begin that");
            if operation.phase == Phase::Info {
                over.insert(process);
            }
        }
        let last = operations.last().map(|last: &Operation| last.index);
        ensure!(last < Some(operation.index), "line {number}: index {} again", operation.index);
        operations.push(operation);
    }
    Ok(operations)
}

fn parse(text: &str) -> Result<Option<Operation>> {
    let keys: Keys = serde_json::from_str(text)?;
    let found = PHASES.iter().find(|(_, name)| *name == keys.r#type);
    let (phase, _) = *found.with_context(|| format!("there is no type {}", keys.r#type))?;
    let act = match keys.f.as_str() {
        "send" => Act::Send {
            acks: keys.acks.unwrap_or(-1),
            records: sent(&keys.partition, &keys.value, phase)?,
            may_repeat: keys.may_repeat,
        },
        "poll" => Act::Poll {
            from: keys.from.context("a poll from where?")?,
            records: polled(&keys.partition, &keys.value, phase)?,
            is_final: keys.is_final,
        },
        "assign" => Act::Assign { from: keys.from.context("an assignment to where?")? },
        _ => return Ok(None),
    };
    Ok(Some(Operation {
        index: keys.index,
        time: keys.time,
        process: keys.process,
        client: keys.client,
        phase,
        partition: keys.partition,
        act,
        error: keys.error,
    }))
}

fn sent(partition: &str, value: &Value, phase: Phase) -> Result<Vec<(Option<i64>, RecordName)>> {
    let mut records = Vec::new();
    for micro in value.as_array().context("a send has a list")? {
        let (verb, to, what): (String, String, Value) = serde_json::from_value(micro.clone())?;
        ensure!(verb == "send" && to == partition, "not a send to {partition}: {micro}");
        records.push(match phase {
            Phase::Ok => serde_json::from_value(what)?,
            _ => (None, serde_json::from_value(what)?),
        });
    }
    Ok(records)
}

fn polled(partition: &str, value: &Value, phase: Phase) -> Result<Vec<(i64, RecordName)>> {
    if phase != Phase::Ok {
        return Ok(Vec::new());
    }
    let micros: Vec<(String, Polled)> = serde_json::from_value(value.clone())?;
    let mut records = Vec::new();
    for (verb, read) in micros {
        ensure!(verb == "poll", "not a poll: {value}");
        for (of, read) in read {
            if of != partition {
                bail!("a poll of {partition} has records of {of}");
            }
            records.extend(read);
        }
    }
    Ok(records)
}
