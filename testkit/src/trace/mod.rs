//! Traces as people and other tools read them: JSON Lines as they are written, a sequence diagram, a page.

mod html;
mod mermaid;

use std::collections::BTreeSet;
use std::io::BufRead;

use anyhow::{Context, Result};
use replication::trace::Event;
use serde::Deserialize;

pub use html::html;
pub use mermaid::mermaid;

/// One line of a trace: what a node decided, and when.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct TraceLine {
    /// Since the start, in microseconds.
    pub at_us: u64,
    /// The node.
    pub node: i32,
    /// What it decided, and why.
    #[serde(flatten)]
    pub event: Event,
}

impl TraceLine {
    fn seconds(&self) -> String {
        format!("{}.{:06}", self.at_us / 1_000_000, self.at_us % 1_000_000)
    }

    /// What was decided, without the partition and the reason.
    fn what(&self) -> String {
        let text = self.event.to_string();
        let what = text.split_once("; ").map_or(text.as_str(), |(what, _)| what);
        let name = self.event.partition().map(|partition| format!("{partition}: "));
        let name = name.unwrap_or_default();
        what.strip_prefix(name.as_str()).unwrap_or(what).to_owned()
    }

    /// The partition it is about, as `topic-index`.
    pub fn partition(&self) -> Option<String> {
        let partition = self.event.partition()?;
        Some(format!("{}-{}", partition.topic, partition.partition))
    }
}

/// Reads a trace of JSON Lines.
///
/// # Errors
/// The first line that is none, by its number.
pub fn read_trace(from: impl BufRead) -> Result<Vec<TraceLine>> {
    let mut lines = Vec::new();
    for (number, line) in from.lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            let read = serde_json::from_str(&line);
            lines.push(read.with_context(|| format!("line {} is no event", number + 1))?);
        }
    }
    Ok(lines)
}

fn nodes(lines: &[TraceLine]) -> BTreeSet<i32> {
    lines.iter().map(|line| line.node).collect()
}

#[cfg(test)]
mod testing {
    use protocol::{LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicPartition};
    use replication::trace::{Nodes, Why};

    use super::*;

    fn line(at_us: u64, node: i32, event: Event) -> TraceLine {
        TraceLine { at_us, node, event }
    }

    /// Broker 1 is made the leader by controller 3, gives broker 2 a batch, then nothing.
    pub fn trace() -> Vec<TraceLine> {
        let partition = TopicPartition::new("a<b;c", 0);
        let why = Why::LeaderChosenByController;
        let served = |end| Event::FetchServed {
            partition: partition.clone(),
            reader: NodeId(2),
            fetch_offset: Offset(0),
            end_offset: Offset(end),
            high_watermark: Offset(0),
            why,
        };
        let elected = Event::LeaderElected {
            partition: partition.clone(),
            from: NodeId(-1),
            to: NodeId(1),
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            isr: Nodes(vec![NodeId(1), NodeId(2)]),
            clean: true,
            why,
        };
        let started = Event::NodeStarted { started: NodeId(1), why };
        let appended = Event::AppendedAsFollower {
            partition: partition.clone(),
            base_offset: Offset(0),
            log_end: Offset(1),
            leader_epoch: LeaderEpoch(0),
            why,
        };
        vec![
            line(1, 1, started),
            line(52_000, 3, elected),
            line(60_000, 1, served(1)),
            line(61_500, 2, appended),
            line(1_100_000, 1, served(0)),
        ]
    }

    #[test]
    fn a_line_of_json_is_read_and_one_that_is_none_is_told_by_its_number() {
        let lines = trace();
        let mut text = String::new();
        for line in &lines {
            let mut object = serde_json::to_value(&line.event).expect("an object");
            object["at_us"] = line.at_us.into();
            object["node"] = line.node.into();
            text.push_str(&format!("{object}\n\n"));
        }
        assert_eq!(read_trace(text.as_bytes()).expect("a trace"), lines);
        let error = read_trace(format!("{text}{{}}").as_bytes()).expect_err("not an event");
        assert_eq!(error.to_string(), "line 11 is no event");
    }
}
