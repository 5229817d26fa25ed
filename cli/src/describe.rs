//! `highwater describe`: a cluster that `up --control` runs, as tables.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::control::DEFAULT_ADDRESS;
use crate::control::client::ask;

/// Options of `describe`.
#[derive(Debug, Args)]
pub struct DescribeArguments {
    /// The control port of `up --control`: HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "HOST:PORT", default_value = DEFAULT_ADDRESS)]
    control: String,
    /// Shows internal topics too.
    #[arg(long)]
    internal: bool,
    /// Prints what the port answered, as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the cluster.
///
/// # Errors
/// When there is no control port.
pub fn run(arguments: &DescribeArguments) -> Result<()> {
    let path = if arguments.internal { "/cluster?internal=true" } else { "/cluster" };
    let cluster = ask(&arguments.control, "GET", path, None)?;
    if arguments.json {
        println!("{cluster:#}");
    } else {
        print!("{}", tables(&cluster));
    }
    Ok(())
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value in a cell; `-` for what is not told.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A fault in a line.
pub fn fault_line(fault: &Value) -> String {
    let end = |value: &Value| if value.is_null() { "any".to_owned() } else { cell(value) };
    let mut line = format!("{}: {}", cell(&fault["id"]), cell(&fault["kind"]));
    if fault["message"].is_string() {
        let _ = write!(line, " {}", cell(&fault["message"]));
    }
    let _ = write!(line, ", {} to {}", end(&fault["from"]), end(&fault["to"]));
    if fault["plane"].is_string() {
        let _ = write!(line, " ({})", cell(&fault["plane"]));
    }
    let numbers = [
        ("latency_ms", "ms late"),
        ("bytes_per_second", "bytes a second"),
        ("held", "held"),
        ("met", "met"),
    ];
    for (field, words) in numbers {
        if fault[field].is_u64() {
            let _ = write!(line, ", {} {words}", fault[field]);
        }
    }
    line
}

fn tables(cluster: &Value) -> String {
    let mut text = table(&["NODE", "STATE", "ROLES", "ADDRESS", "PID"], &node_rows(cluster));
    let rows = partition_rows(cluster);
    if rows.is_empty() {
        text.push_str("\nno topics\n");
    } else {
        let head = ["TOPIC", "PARTITION", "NODE", "ROLE", "EPOCH", "START", "END", "HW", "ISR"];
        let _ = write!(text, "\n{}", table(&head, &rows));
    }
    for node in items(&cluster["nodes"]) {
        for dir in items(&node["log_dirs"]).iter().filter(|dir| dir["taken_away"] == true) {
            let _ = write!(text, "\nnode {} lost {}\n", cell(&node["id"]), cell(&dir["path"]));
        }
    }
    for (node, why) in cluster["silent"].as_object().into_iter().flatten() {
        let _ = write!(text, "\nnode {node} does not answer: {}\n", cell(why));
    }
    let faults = items(&cluster["faults"]);
    if !faults.is_empty() {
        text.push_str("\nFAULTS\n");
        for fault in faults {
            text.push_str(&fault_line(fault));
            text.push('\n');
        }
    }
    text
}

fn node_rows(cluster: &Value) -> Vec<Vec<String>> {
    let rows = items(&cluster["nodes"]).iter().map(|node| {
        let roles = [("broker", "broker"), ("controller", "controller")];
        let roles = roles.iter().filter(|(field, _)| node[*field] == true);
        let roles: Vec<&str> = roles.map(|(_, word)| *word).collect();
        vec![
            cell(&node["id"]),
            cell(&node["state"]),
            roles.join(","),
            cell(&node["address"]),
            cell(&node["pid"]),
        ]
    });
    rows.collect()
}

fn partition_rows(cluster: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for topic in items(&cluster["topics"]) {
        for partition in items(&topic["partitions"]) {
            for replica in items(&partition["replicas"]) {
                let node = &replica["node"];
                let role = if *node == partition["leader"] { "leader" } else { "follower" };
                let is_in_sync = items(&partition["isr"]).contains(node);
                rows.push(vec![
                    cell(&topic["name"]),
                    cell(&partition["partition"]),
                    cell(node),
                    role.into(),
                    cell(&partition["leader_epoch"]),
                    cell(&replica["log_start"]),
                    cell(&replica["log_end"]),
                    cell(&replica["high_watermark"]),
                    if is_in_sync { "in" } else { "out" }.into(),
                ]);
            }
        }
    }
    rows
}

/// Columns as wide as their widest cell.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_is_told_replica_by_replica_with_what_is_broken() {
        let cluster = json!({
            "nodes": [
                { "id": 1, "state": "running", "broker": true, "controller": true,
                  "address": "127.0.0.1:9092", "pid": null, "log_dirs": [] },
                { "id": 2, "state": "frozen", "broker": true, "controller": false,
                  "address": "127.0.0.1:9094", "pid": 7,
                  "log_dirs": [{ "path": "/d", "taken_away": true }] },
            ],
            "faults": [{ "id": 1, "kind": "cut", "from": 1, "to": 2, "plane": "data" }],
            "silent": { "3": "no answer" },
            "topics": [{ "name": "t", "partitions": [{
                "partition": 0, "leader": 1, "leader_epoch": 4, "isr": [1],
                "replicas": [
                    { "node": 1, "log_start": 0, "log_end": 12, "high_watermark": 12 },
                    { "node": 2, "log_start": null, "log_end": null, "high_watermark": null },
                ],
            }] }],
        });
        let expected = "\
NODE  STATE    ROLES              ADDRESS         PID
1     running  broker,controller  127.0.0.1:9092  -
2     frozen   broker             127.0.0.1:9094  7

TOPIC  PARTITION  NODE  ROLE      EPOCH  START  END  HW  ISR
t      0          1     leader    4      0      12   12  in
t      0          2     follower  4      -      -    -   out

node 2 lost /d

node 3 does not answer: no answer

FAULTS
1: cut, 1 to 2 (data)
";
        assert_eq!(tables(&cluster), expected);
    }
}
