//! `highwater fault`: breaks a cluster that `up --control` runs, and mends it.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::control::DEFAULT_ADDRESS;
use crate::control::client::ask;
use crate::describe::fault_line;

/// Options of `fault`.
#[derive(Debug, Args)]
pub struct FaultArguments {
    /// The control port of `up --control`: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_ADDRESS, global = true)]
    control: String,
    #[command(subcommand)]
    command: FaultCommand,
}

/// On which links.
#[derive(Debug, Args)]
struct On {
    /// Only there: data (between brokers) or control (to controllers and between them).
    #[arg(long, value_name = "PLANE")]
    plane: Option<String>,
}

/// A message and its way.
#[derive(Debug, Args)]
struct Named {
    /// Fetch, AlterPartition, heartbeat, ...; answer:Fetch, metadata-stream, raft.
    message: String,
    /// Who sends it; anybody otherwise.
    #[arg(long, value_name = "NODE")]
    from: Option<i32>,
    /// Who receives it; anybody otherwise.
    #[arg(long, value_name = "NODE")]
    to: Option<i32>,
    #[command(flatten)]
    on: On,
}

/// The ends of a link: a node's id, or `any`.
#[derive(Debug, Args)]
struct Link {
    /// A node, or `any`.
    #[arg(value_parser = end)]
    from: End,
    /// A node, or `any`.
    #[arg(value_parser = end)]
    to: End,
    #[command(flatten)]
    on: On,
}

#[derive(Debug, Clone, Copy)]
struct End(Option<i32>);

fn end(text: &str) -> Result<End, String> {
    match text {
        "any" => Ok(End(None)),
        _ => text.parse().map(|node| End(Some(node))).map_err(|_| "expected a node or any".into()),
    }
}

#[derive(Debug, Subcommand)]
enum FaultCommand {
    /// Tells the faults in force.
    List,
    /// Kills a node as a crash does.
    Kill { node: i32 },
    /// Stops a node cleanly.
    Stop { node: i32 },
    /// Starts a node that does not run.
    Start { node: i32 },
    /// Freezes a node: alive, and silent.
    Freeze { node: i32 },
    /// Ends a freeze.
    Thaw { node: i32 },
    /// Cuts a link, both ways.
    Cut {
        #[command(flatten)]
        link: Link,
        /// Only from the first to the second.
        #[arg(long)]
        one_way: bool,
    },
    /// Slows a link, from the first to the second.
    Slow {
        #[command(flatten)]
        link: Link,
        /// Everything arrives so much later.
        #[arg(long, value_name = "N", default_value_t = 0)]
        latency_ms: u64,
        /// At most so many bytes a second on each connection.
        #[arg(long, value_name = "N")]
        bytes_per_second: Option<u64>,
        /// And from the second to the first.
        #[arg(long)]
        both_ways: bool,
    },
    /// Holds messages back.
    Hold(Named),
    /// Loses requests.
    Drop(Named),
    /// Ends a fault by its id; what it held goes on.
    Release {
        id: u64,
        /// What it held is lost.
        #[arg(long)]
        lost: bool,
    },
    /// Ends all faults of links; what they held goes on.
    Heal,
    /// Takes a log directory away from a node.
    FailDisk {
        node: i32,
        /// Its place in log.dirs.
        #[arg(default_value_t = 0)]
        dir: usize,
    },
    /// Gives a node its log directories back; it takes them up when it starts.
    MendDisk { node: i32 },
}

/// Asks for the fault, and prints what came of it.
///
/// # Errors
/// When there is no control port, or it refuses.
pub fn run(arguments: &FaultArguments) -> Result<()> {
    let (method, path, body) = request(&arguments.command);
    let answer = ask(&arguments.control, method, &path, body.as_ref())?;
    print!("{}", told(&answer).context("an answer of another kind")?);
    Ok(())
}

fn request(command: &FaultCommand) -> (&'static str, String, Option<Value>) {
    let post = |what: &str, body: Value| ("POST", format!("/faults/{what}"), Some(body));
    let named = |what: &str, Named { message, from, to, on }: &Named| {
        post(what, json!({ "message": message, "from": from, "to": to, "plane": on.plane }))
    };
    match command {
        FaultCommand::List => ("GET", "/faults".into(), None),
        FaultCommand::Heal => ("DELETE", "/faults".into(), None),
        FaultCommand::Kill { node } => post("kill", json!({ "node": node })),
        FaultCommand::Stop { node } => post("stop", json!({ "node": node })),
        FaultCommand::Start { node } => post("start", json!({ "node": node })),
        FaultCommand::Freeze { node } => post("freeze", json!({ "node": node })),
        FaultCommand::Thaw { node } => post("thaw", json!({ "node": node })),
        FaultCommand::MendDisk { node } => post("mend-disk", json!({ "node": node })),
        FaultCommand::FailDisk { node, dir } => {
            post("fail-disk", json!({ "node": node, "dir": dir }))
        }
        FaultCommand::Release { id, lost } => post("release", json!({ "id": id, "lost": lost })),
        FaultCommand::Hold(it) => named("hold", it),
        FaultCommand::Drop(it) => named("drop", it),
        FaultCommand::Cut { link: Link { from, to, on }, one_way } => post(
            "cut",
            json!({ "from": from.0, "to": to.0, "plane": on.plane, "both_ways": !one_way }),
        ),
        FaultCommand::Slow { link, latency_ms, bytes_per_second, both_ways } => post(
            "slow",
            json!({
                "from": link.from.0,
                "to": link.to.0,
                "plane": link.on.plane,
                "both_ways": both_ways,
                "latency_ms": latency_ms,
                "bytes_per_second": bytes_per_second,
            }),
        ),
    }
}

/// An answer in lines for a person.
fn told(answer: &Value) -> Option<String> {
    let faults = answer.as_array().or_else(|| answer["faults"].as_array());
    if let Some(faults) = faults {
        let lines: Vec<String> = faults.iter().map(|fault| fault_line(fault) + "\n").collect();
        return Some(if lines.is_empty() { "no faults\n".into() } else { lines.concat() });
    }
    let ended = &answer["ended"];
    if let Some(count) = ended.as_u64() {
        return Some(format!("{count} ended\n"));
    }
    if ended.is_object() {
        return Some(format!("ended: {}\n", fault_line(ended)));
    }
    let node = answer["node"].as_i64()?;
    let what = match (&answer["state"], &answer["taken_away"], &answer["given_back"]) {
        (Value::String(state), ..) => format!("is {state}"),
        (_, Value::String(dir), _) => format!("lost {dir}"),
        (_, _, count) => format!("has {count} log directories again; start it anew"),
    };
    Some(format!("node {node} {what}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_told_in_a_line() {
        let fault = json!({
            "id": 3, "kind": "hold", "from": 2, "to": null, "plane": null, "message": "Fetch", "held": 1,
            "met": 4,
        });
        let line = told(&json!({ "faults": [fault] })).expect("a line");
        assert_eq!(line, "3: hold Fetch, 2 to any, 1 held, 4 met\n");
        assert_eq!(told(&json!({ "ended": 2 })).as_deref(), Some("2 ended\n"));
        assert_eq!(told(&json!([])).as_deref(), Some("no faults\n"));
        let killed = told(&json!({ "node": 1, "state": "down" }));
        assert_eq!(killed.as_deref(), Some("node 1 is down\n"));
        assert_eq!(told(&json!({ "something": "else" })), None);
    }
}
