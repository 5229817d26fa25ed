//! A trace as a Mermaid sequence diagram: what one node gives or answers to another is an arrow, what it decides
//! for itself a note.

use std::fmt::Write;

use protocol::NodeId;
use replication::trace::Event;

use super::{TraceLine, nodes};

/// Draws the first `most` events that are worth a line: a fetch that was given nothing is none. What is left out
/// is counted in a last note, so that nobody takes a part for the whole.
pub fn mermaid(lines: &[TraceLine], most: usize) -> String {
    let mut text = String::from("sequenceDiagram\n");
    for node in nodes(lines) {
        let _ = writeln!(text, "    participant n{node} as node {node}");
    }
    let worth: Vec<&TraceLine> = lines.iter().filter(|line| is_worth_a_line(&line.event)).collect();
    for line in worth.iter().take(most) {
        let node = line.node;
        let said = plain(&match line.partition() {
            Some(partition) => format!("{} {partition}: {}", line.seconds(), line.what()),
            None => format!("{} {}", line.seconds(), line.what()),
        });
        let _ = match receiver(&line.event).filter(|to| nodes(lines).contains(to)) {
            Some(to) if to != node => writeln!(text, "    n{node}->>n{to}: {said}"),
            _ => writeln!(text, "    Note over n{node}: {said}"),
        };
    }
    let left_out = lines.len() - worth.len().min(most);
    if let (1.., Some(last)) = (left_out, nodes(lines).last()) {
        let _ = writeln!(text, "    Note over n{last}: {left_out} events are not shown");
    }
    text
}

fn is_worth_a_line(event: &Event) -> bool {
    !matches!(event, Event::FetchServed { fetch_offset, end_offset, .. } if fetch_offset == end_offset)
}

/// The other node that hears of it.
fn receiver(event: &Event) -> Option<i32> {
    let node = match event {
        Event::FetchServed { reader, .. } | Event::FetchDiverged { reader, .. } => *reader,
        Event::RequestRefused { requester, .. } => *requester,
        Event::AlterPartitionAnswered { sender, .. } => *sender,
        Event::LeaderElected { to, .. } => *to,
        _ => NodeId::NONE,
    };
    (node != NodeId::NONE).then(|| node.get())
}

/// Without what ends a statement of a diagram, or begins a comment.
fn plain(text: &str) -> String {
    text.replace([';', '#', '\n'], ",")
}

#[cfg(test)]
mod tests {
    use super::super::testing::trace;
    use super::*;

    #[test]
    fn arrows_go_to_who_hears_of_it_and_the_rest_is_counted() {
        let whole = "sequenceDiagram
    participant n1 as node 1
    participant n2 as node 2
    participant n3 as node 3
    Note over n1: 0.000001 node 1 started
    n3->>n1: 0.052000 a<b,c-0: leader -1 -> 1 at epoch 0, partition epoch 0, ISR [1,2], clean true
    n1->>n2: 0.060000 a<b,c-0: served reader 2 [0, 1) with high watermark 0
    Note over n2: 0.061500 a<b,c-0: follower appended [0, 1) under epoch 0
    Note over n3: 1 events are not shown
";
        assert_eq!(mermaid(&trace(), 100), whole);
        let two = mermaid(&trace(), 2);
        assert!(two.ends_with("clean true\n    Note over n3: 3 events are not shown\n"), "{two}");
        assert_eq!(mermaid(&[], 5), "sequenceDiagram\n");
    }
}
