//! The trace as JSON Lines: one event a line, with when, where, what and why. For people's own tools
//! and for checkers outside.

use std::io::{self, Write};

use replication::trace::Event;
use serde::Serialize;

use super::links::TraceEntry;

#[derive(Serialize)]
struct Line<'a> {
    /// Virtual time since the start.
    at_us: u64,
    /// What the node's wall clock showed, since 1970.
    wall_clock_ms: i64,
    /// The node that decided.
    node: i32,
    /// The event's name and fields, `why` the last.
    #[serde(flatten)]
    event: &'a Event,
    /// The id of the rule behind `why`.
    rule: &'static str,
    /// The KIP that introduced the rule.
    kip: Option<u16>,
}

/// Writes a line for every event, in order.
///
/// # Errors
/// When `to` takes no more.
pub fn write_trace_lines(entries: &[TraceEntry], to: &mut dyn Write) -> io::Result<()> {
    for TraceEntry { at, node, event } in entries {
        let line = Line {
            at_us: u64::try_from(at.monotonic.0.as_micros()).unwrap_or(u64::MAX),
            wall_clock_ms: at.wall_clock_ms,
            node: node.get(),
            event,
            rule: event.why().rule(),
            kip: event.why().kip(),
        };
        serde_json::to_writer(&mut *to, &line)?;
        to.write_all(b"\n")?;
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::{LeaderEpoch, NodeId, TopicPartition};
    use replication::time::{Instant, Now};
    use replication::trace::Why;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_has_when_where_what_and_why_and_the_event_reads_back() {
        let event = Event::BecameFollower {
            partition: TopicPartition::new("t", 0),
            leader: NodeId(2),
            leader_epoch: LeaderEpoch(7),
            why: Why::LeaderChosenByController,
        };
        let at = Now { monotonic: Instant(Duration::from_micros(1_500_001)), wall_clock_ms: 17 };
        let entry = TraceEntry { at, node: NodeId(3), event: event.clone() };
        let mut text = Vec::new();
        write_trace_lines(&[entry.clone(), entry], &mut text).expect("memory takes it");
        let lines: Vec<Value> = String::from_utf8(text)
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines.len(), 2);
        for (key, value) in [
            ("at_us", json!(1_500_001)),
            ("wall_clock_ms", json!(17)),
            ("node", json!(3)),
            ("event", json!("BecameFollower")),
            ("leader", json!(2)),
            ("leader_epoch", json!(7)),
            ("why", json!("LeaderChosenByController")),
            ("rule", json!("C04")),
            ("kip", json!(631)),
        ] {
            assert_eq!(lines[0][key], value, "{key}");
        }
        assert_eq!(serde_json::from_value::<Event>(lines[1].clone()).expect("an event"), event);
    }
}
