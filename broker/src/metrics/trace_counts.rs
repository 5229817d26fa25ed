//! Counts what metrics tell of decisions, from the one stream that everything else is told from: it
//! stands before the node's trace and passes every event on. A broker and a controller in one process
//! both tell of ISRs, each from its side, so each has the events counted that are its own.
//!
//! | a broker's event | counts |
//! |---|---|
//! | an ISR confirmed to its leader | a shrink or an expansion |
//! | an ISR proposal refused | a failed update |
//! | a log cut | a truncation, by partition and reason, and the records it took |
//!
//! | a controller's event | counts |
//! |---|---|
//! | an election by the controller | an unclean one, or one of an eligible leader replica, if it was |
//! | a controller that leads the quorum | a new active controller |
//! | a broker fenced for its silence | a heartbeat that timed out |

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::{NodeId, TopicPartition};
use replication::time::Now;
use replication::trace::{Event, TraceSink, Why};

use crate::counting::Counter;

/// Partitions beyond so many are not counted by name: topics that come and go must not fill the memory.
const MOST_TRUNCATED: usize = 10_000;

/// What was counted.
#[derive(Debug, Default)]
pub struct TraceNumbers {
    /// ISRs that became smaller.
    pub isr_shrinks: Counter,
    /// ISRs that became larger.
    pub isr_expands: Counter,
    /// ISR proposals that were not taken.
    pub failed_isr_updates: Counter,
    /// Records cut off that the leader's log does not have.
    pub records_truncated: Counter,
    /// Leaders elected from outside the ISR, where this node's controller was active.
    pub unclean_elections: Counter,
    /// Leaders elected for being eligible leader replicas, where this node's controller was active (C06).
    pub eligible_elections: Counter,
    /// How often this node's controller became the active one.
    pub new_active_controllers: Counter,
    /// Brokers fenced because they were silent, where this node's controller was active.
    pub timed_out_heartbeats: Counter,
    truncations: Mutex<BTreeMap<(TopicPartition, &'static str), u64>>,
}

impl TraceNumbers {
    /// Truncations by partition and reason.
    pub fn truncations(&self) -> BTreeMap<(TopicPartition, &'static str), u64> {
        self.truncations.lock().clone()
    }

    fn count_of_broker(&self, event: &Event) {
        match event {
            Event::IsrChanged { from, to, .. } => {
                let is_new = |id: &&NodeId| !from.0.contains(id);
                if to.0.iter().any(|id| is_new(&id)) {
                    self.isr_expands.add(1);
                } else if to.0.len() < from.0.len() {
                    self.isr_shrinks.add(1);
                }
            }
            Event::IsrRejected { .. } => self.failed_isr_updates.add(1),
            Event::Truncated { partition, from, to, .. } if from > to => {
                self.records_truncated.add((from.get() - to.get()).unsigned_abs());
                self.truncated(partition, "epoch");
            }
            // What it took is deleted at the leader, too.
            Event::TruncatedFully { partition, .. } => self.truncated(partition, "log_start"),
            _ => {}
        }
    }

    fn count_of_controller(&self, node: NodeId, event: &Event) {
        match event {
            Event::LeaderElected { clean: false, to, .. } if *to != NodeId::NONE => {
                self.unclean_elections.add(1);
            }
            Event::LeaderElected { why: Why::EligibleLeader, .. } => {
                self.eligible_elections.add(1);
            }
            Event::ControllerElected { controller, .. } if *controller == node => {
                self.new_active_controllers.add(1);
            }
            Event::BrokerFenced { why: Why::HeartbeatTimeout, .. } => {
                self.timed_out_heartbeats.add(1);
            }
            _ => {}
        }
    }

    fn truncated(&self, partition: &TopicPartition, reason: &'static str) {
        let mut truncations = self.truncations.lock();
        if truncations.len() < MOST_TRUNCATED {
            *truncations.entry((partition.clone(), reason)).or_default() += 1;
        }
    }
}

/// Who tells events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Teller {
    /// The node's broker.
    Broker,
    /// The node's controller.
    Controller,
}

/// A trace that counts what passes.
pub struct CountedTrace {
    teller: Teller,
    numbers: Arc<TraceNumbers>,
    next: Arc<dyn TraceSink>,
}

impl CountedTrace {
    /// Counts in `numbers` what `teller` tells `next`.
    pub fn new(teller: Teller, numbers: Arc<TraceNumbers>, next: Arc<dyn TraceSink>) -> Self {
        Self { teller, numbers, next }
    }
}

impl TraceSink for CountedTrace {
    fn emit(&self, at: Now, node: NodeId, event: Event) {
        match self.teller {
            Teller::Broker => self.numbers.count_of_broker(&event),
            Teller::Controller => self.numbers.count_of_controller(node, &event),
        }
        self.next.emit(at, node, event);
    }
}

#[cfg(test)]
mod tests {
    use protocol::{LeaderEpoch, Offset, PartitionEpoch};
    use replication::time::Instant;
    use replication::trace::{NoTrace, Nodes};

    use super::*;

    fn isr(from: &[i32], to: &[i32], why: Why) -> Event {
        let nodes = |ids: &[i32]| Nodes(ids.iter().copied().map(NodeId).collect());
        Event::IsrChanged {
            partition: TopicPartition::new("t", 0),
            partition_epoch: PartitionEpoch(1),
            from: nodes(from),
            to: nodes(to),
            why,
        }
    }

    fn elected(to: i32, clean: bool, why: Why) -> Event {
        Event::LeaderElected {
            partition: TopicPartition::new("t", 0),
            from: NodeId(1),
            to: NodeId(to),
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(1),
            isr: Nodes::default(),
            clean,
            why,
        }
    }

    fn cut(from: i64, to: i64) -> Event {
        Event::Truncated {
            partition: TopicPartition::new("t", 0),
            from: Offset(from),
            to: Offset(to),
            complete: true,
            why: Why::CommonEpochEnd,
        }
    }

    #[test]
    fn each_decision_moves_its_own_number_where_it_is_told_by_whom_it_concerns() {
        let events = [
            isr(&[1, 2, 3], &[1, 2], Why::IsrConfirmed),
            isr(&[1, 2], &[1, 2, 3], Why::IsrConfirmed),
            isr(&[1, 2], &[1, 2], Why::IsrConfirmed),
            elected(2, false, Why::UncleanElection),
            elected(2, true, Why::LeaderChosenByController),
            elected(2, true, Why::EligibleLeader),
            elected(-1, false, Why::NoLeaderAvailable),
            Event::ControllerElected { controller: NodeId(1), term: 2, why: Why::QuorumElection },
            Event::ControllerElected { controller: NodeId(2), term: 3, why: Why::QuorumElection },
            cut(10, 7),
            cut(7, 7),
        ];
        let now = Now { monotonic: Instant::ZERO, wall_clock_ms: 0 };
        for teller in [Teller::Broker, Teller::Controller] {
            let numbers = Arc::new(TraceNumbers::default());
            let trace = CountedTrace::new(teller, numbers.clone(), Arc::new(NoTrace));
            assert!(trace.is_enabled(), "the controller must tell its events to be counted");
            for event in &events {
                trace.emit(now, NodeId(1), event.clone());
            }
            let of_broker = u64::from(teller == Teller::Broker);
            assert_eq!(numbers.isr_shrinks.get(), of_broker);
            assert_eq!(numbers.isr_expands.get(), of_broker);
            assert_eq!(numbers.records_truncated.get(), 3 * of_broker);
            let cuts = numbers.truncations();
            let cuts = cuts.get(&(TopicPartition::new("t", 0), "epoch"));
            assert_eq!(cuts.copied().unwrap_or(0), of_broker);
            assert_eq!(numbers.unclean_elections.get(), 1 - of_broker);
            assert_eq!(numbers.eligible_elections.get(), 1 - of_broker);
            assert_eq!(numbers.new_active_controllers.get(), 1 - of_broker);
        }
    }
}
