//! The trace: one line per event, the same every time, and JSON that reads back.

use std::time::Duration;

use protocol::{LeaderEpoch, NodeId, Offset, Uuid};
use replication::trace::{Event, Nodes, Why, line};
use replication::{Instant, Now};

use crate::support::{Cluster, partition};

#[test]
fn an_event_is_one_line_with_its_rule() {
    let event = Event::HighWatermarkMoved {
        partition: partition(),
        from: Offset(3),
        to: Offset(5),
        why: Why::MaximalIsrHasIt,
    };
    let at = Now { monotonic: Instant(Duration::from_millis(12_345)), wall_clock_ms: 0 };
    assert_eq!(
        line(at, NodeId(2), &event),
        "   12.345 n2 t-0: high watermark 3 -> 5; every replica that may be in the ISR has it \
         (H03, KIP-497)"
    );
    assert_eq!(event.name(), "HighWatermarkMoved");
    assert_eq!(event.partition(), Some(&partition()));
}

#[test]
fn events_read_back_from_json() {
    let events = [
        Event::BecameLeader {
            partition: partition(),
            leader_epoch: LeaderEpoch(4),
            epoch_start: Offset(17),
            isr: Nodes(vec![NodeId(1), NodeId(3)]),
            why: Why::LeaderChosenByController,
        },
        Event::TopicCreated {
            topic: "a-b".into(),
            topic_id: Uuid([7; 16]),
            partitions: 3,
            why: Why::TopicLifecycle,
        },
    ];
    for event in events {
        let json = serde_json::to_string(&event).expect("an event is plain data");
        assert_eq!(serde_json::from_str::<Event>(&json).expect("its own JSON"), event, "{json}");
    }
    let json = serde_json::to_value(Event::BecameFollower {
        partition: partition(),
        leader: NodeId(3),
        leader_epoch: LeaderEpoch(2),
        why: Why::NewEpochRestartsFetching,
    })
    .expect("plain data");
    assert_eq!(
        json,
        serde_json::json!({
            "event": "BecameFollower",
            "partition": "t-0",
            "leader": 3,
            "leader_epoch": 2,
            "why": "NewEpochRestartsFetching",
        })
    );
}

#[test]
fn every_reason_names_a_rule() {
    for why in Why::ALL {
        assert_eq!(why.rule().len(), 3, "{why:?}");
        assert!(!why.text().is_empty());
    }
}

#[test]
fn the_same_history_tells_the_same_story() {
    let story = || {
        let mut cluster = Cluster::new(3, 1);
        cluster.produce(1, &[1, 2]);
        cluster.catch_up(2);
        cluster.shrink_away(1, 3);
        cluster.controller.fence(1);
        cluster.publish_all();
        let mut lines = Vec::new();
        for (id, node) in &cluster.nodes {
            lines.extend(node.events.iter().map(|event| format!("{id} {event}")));
        }
        lines
    };
    assert_eq!(story(), story());
    assert!(story().iter().any(|line| line.contains("leads at epoch 2")));
}
