//! Does what a run's events say, and takes it back when its time is over.
//!
//! After a machine has lost data no other process ends by a crash until the cluster is whole again, and under
//! min.insync.replicas of 1 nothing else breaks: what a run may claim then is what one such crash may do
//! (`FaultModel::lossy_crashes`).

use std::time::Duration;

use anyhow::Result;
use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::{AlterPartitionReassignmentsRequest, ElectLeadersRequest};
use protocol::{NodeId, TopicPartition};
use replication::time::Instant;

use super::super::clients::ConsumerSettings;
use super::super::disk::CrashKind;
use super::super::network::{HoldId, Pattern, Plane};
use super::event::{Act, Messages, Who};
use super::{Run, TOPIC};

/// What ends when its time is over.
#[derive(Debug)]
pub(super) enum Undo {
    Start(NodeId),
    Thaw(NodeId),
    EndCuts(Vec<(NodeId, NodeId)>, Plane),
    EndLoss,
    EndHold(HoldId, bool),
    SpeedUp(HoldId),
    EndDrift(NodeId),
    EndSlowDisk(NodeId),
    MendDisk(NodeId),
    ReplaceDisk(NodeId),
}

/// What waits for a message.
#[derive(Debug)]
pub(super) struct Armed {
    watch: HoldId,
    then: Act,
}

impl Run<'_> {
    /// Lets time pass until `to`; what is over ends meanwhile, and what waited for a message happens.
    pub(super) fn advance(&mut self, to: Instant) -> Result<()> {
        loop {
            let due = self.undos.first_key_value().map(|((at, _), _)| *at);
            let stop = due.map_or(to, |at| at.min(to));
            let watches: Vec<HoldId> = self.armed.iter().map(|armed| armed.watch).collect();
            let seen = self.simulation.run_to(stop, |simulation| {
                watches.iter().any(|watch| simulation.network.has_seen(*watch))
            })?;
            if seen {
                self.fire()?;
            } else if due.is_some_and(|at| at <= to) {
                if let Some((_, undo)) = self.undos.pop_first() {
                    self.undo(undo)?;
                }
            } else {
                return Ok(());
            }
        }
    }

    fn fire(&mut self) -> Result<()> {
        let network = &mut self.simulation.network;
        let Some(at) = self.armed.iter().position(|armed| network.has_seen(armed.watch)) else {
            return Ok(());
        };
        let armed = self.armed.remove(at);
        network.look_away(armed.watch);
        self.perform(&armed.then)
    }

    pub(super) fn later(&mut self, after: Duration, undo: Undo) {
        self.next_undo += 1;
        self.undos.insert((self.simulation.now() + after, self.next_undo), undo);
    }

    fn undo(&mut self, undo: Undo) -> Result<()> {
        match undo {
            // Who has no disk cannot start.
            Undo::Start(node) if self.simulation.node(node).disk.is_broken() => {
                self.later(Duration::from_millis(200), Undo::Start(node));
            }
            Undo::Start(node) if self.simulation.node(node).running().is_none() => {
                self.tell(format!("start {node}"));
                self.simulation.start(node)?;
            }
            Undo::Start(node) => {
                // A clean stop takes its time.
                if self.simulation.node(node).running().is_some_and(|process| process.stopping) {
                    self.later(Duration::from_millis(200), Undo::Start(node));
                }
            }
            Undo::Thaw(node) => self.simulation.thaw(node)?,
            Undo::EndCuts(ways, plane) => {
                for (from, to) in ways {
                    self.simulation.network.end_cut(from, to, plane);
                }
            }
            Undo::EndLoss => self.simulation.network.set_loss(0),
            Undo::EndHold(hold, true) => self.simulation.release(hold),
            Undo::EndHold(hold, false) => self.simulation.network.discard(hold),
            Undo::SpeedUp(slow) => self.simulation.network.speed_up(slow),
            Undo::EndDrift(_) | Undo::EndSlowDisk(_) | Undo::MendDisk(_) | Undo::ReplaceDisk(_) => {
                self.undo_at_disk(undo)?;
            }
        }
        Ok(())
    }

    /// Everything is to be mended: what is not over is not waited for.
    pub(super) fn forget_what_is_due(&mut self) {
        self.undos.clear();
        for armed in self.armed.drain(..) {
            self.simulation.network.look_away(armed.watch);
        }
    }

    fn node(&self, who: Who) -> Option<NodeId> {
        let image = |partition| self.simulation.partition_image(TOPIC, partition);
        let found = match who {
            Who::Node(id) => Some(NodeId(id)),
            Who::Leader(partition) => image(partition).map(|image| image.leader),
            Who::Follower(partition, at) => image(partition).and_then(|image| {
                let others: Vec<NodeId> =
                    image.replicas.iter().copied().filter(|id| *id != image.leader).collect();
                others.get(at % others.len().max(1)).copied()
            }),
            Who::Controller => self.simulation.active_controller().map(|(id, _)| id),
        };
        found.filter(|id| self.simulation.node_ids().contains(id))
    }

    /// `None` when somebody named is nobody just now.
    fn pattern(&self, messages: Messages) -> Option<Pattern> {
        let find = |who: Option<Who>| match who {
            Some(who) => self.node(who).map(Some),
            None => Some(None),
        };
        Some(Pattern { sort: messages.sort, from: find(messages.from)?, to: find(messages.to)? })
    }

    /// Does it, or leaves it out where it cannot be done or may not be done just now.
    pub(super) fn perform(&mut self, act: &Act) -> Result<()> {
        self.is_unhurt |= self.is_whole();
        if act.breaks() && self.is_recovering() {
            let may_go_on = self.min_isr > 1 && self.decayed.is_none();
            if !may_go_on || act.ends_a_process() {
                return Ok(());
            }
        }
        // Whatever comes of it: what follows may claim less, not more.
        let was_unhurt = self.is_unhurt;
        self.is_unhurt &= !act.ends_a_process();
        match act {
            Act::Crash { who, .. }
            | Act::PowerCut { who, .. }
            | Act::CrashInCleaning { who, .. }
            | Act::Stop { who, .. }
            | Act::Freeze { who, .. }
            | Act::Isolate { who, .. }
            | Act::JumpClock { who, .. }
            | Act::DriftClock { who, .. }
            | Act::SlowDisk { who, .. }
            | Act::BreakDisk { who, .. }
            | Act::FlipBit { who, .. } => match self.node(*who) {
                Some(node) => self.perform_at(node, act, was_unhurt),
                None => Ok(()),
            },
            Act::Cut { .. } | Act::Lose { .. } | Act::Hold { .. } | Act::Slow { .. } => {
                self.disturb(act);
                Ok(())
            }
            Act::When { messages, then } => {
                if let Some(pattern) = self.pattern(*messages) {
                    let watch = self.simulation.network.watch(pattern);
                    self.armed.push(Armed { watch, then: (**then).clone() });
                }
                Ok(())
            }
            Act::Reassign { partition, replicas } => {
                self.reassign(*partition, replicas);
                Ok(())
            }
            Act::Elect { partition } => {
                self.elect(*partition);
                Ok(())
            }
            Act::Produce { partition, settings } => {
                let partition = self.simulation.partition_id(TOPIC, *partition)?;
                self.simulation.add_producer(partition, *settings);
                Ok(())
            }
            Act::Consume { partition } => {
                let id = self.simulation.partition_id(TOPIC, *partition)?;
                let consumer = self.simulation.add_consumer(id, ConsumerSettings::default());
                self.consumers.push((*partition, consumer));
                Ok(())
            }
            Act::JoinClassic => {
                self.add_classic();
                Ok(())
            }
            Act::JoinSubscriber { is_static, revocation } => {
                self.add_subscriber(*is_static, *revocation);
                Ok(())
            }
            Act::Churn { which, hangs, returns, classic, revocation } => {
                self.change_group(*which, (*hangs, *returns), *classic, *revocation);
                Ok(())
            }
        }
    }

    fn perform_at(&mut self, node: NodeId, act: &Act, was_unhurt: bool) -> Result<()> {
        let runs = self.simulation.node(node).running().is_some();
        match act {
            Act::Crash { down, .. } if runs => {
                self.tell(format!("kill {node}"));
                self.simulation.crash(node, CrashKind::KeepPageCache)?;
                self.later(*down, Undo::Start(node));
            }
            // Under min.insync.replicas of 2, of those that have everything committed, in the ISR or eligible,
            // one is left (C06).
            Act::PowerCut { down, .. }
                if runs && (self.may_lose(node) || self.min_isr > 1 && was_unhurt) =>
            {
                self.tell(format!("power cut at {node}"));
                self.recovering = Some(node);
                self.simulation.crash(node, CrashKind::LoseUnsynced)?;
                self.later(*down, Undo::Start(node));
            }
            Act::CrashInCleaning { loses, changes, down, .. } => {
                self.crash_in_cleaning(node, *loses, *changes, *down)?;
            }
            Act::Stop { down, .. } if self.simulation.node(node).is_responsive() => {
                self.tell(format!("stop {node}"));
                self.simulation.stop(node)?;
                self.later(*down, Undo::Start(node));
            }
            Act::Freeze { lasts, .. } if runs => {
                self.tell(format!("freeze {node} for {lasts:?}"));
                self.simulation.freeze(node);
                self.later(*lasts, Undo::Thaw(node));
            }
            Act::Isolate { plane, lasts, .. } => {
                self.tell(format!("isolate {node}, {plane:?}, for {lasts:?}"));
                self.simulation.isolate(node, *plane);
                let others = self.simulation.node_ids().iter().filter(|other| **other != node);
                let ways = others.flat_map(|other| [(node, *other), (*other, node)]).collect();
                self.later(*lasts, Undo::EndCuts(ways, *plane));
            }
            Act::JumpClock { by_ms, .. } => {
                self.tell(format!("clock of {node} jumps by {by_ms} ms"));
                self.simulation.jump_clock(node, *by_ms);
            }
            Act::DriftClock { .. }
            | Act::SlowDisk { .. }
            | Act::BreakDisk { .. }
            | Act::FlipBit { .. } => self.harm_disk(node, act)?,
            _ => {}
        }
        Ok(())
    }

    /// Waits for the cleaner's next work, and ends the node in the middle of it.
    fn crash_in_cleaning(
        &mut self,
        node: NodeId,
        loses: bool,
        changes: u64,
        down: Duration,
    ) -> Result<()> {
        if !self.simulation.node(node).is_responsive() {
            return Ok(());
        }
        let loses = loses && self.simulation.network.is_whole() && self.may_lose(node);
        let kind = if loses { CrashKind::LoseUnsynced } else { CrashKind::KeepPageCache };
        // Nothing else breaks until it has died.
        self.recovering = loses.then_some(node);
        self.simulation.crash_in_cleaning(node, kind, changes);
        let end = self.simulation.now() + Duration::from_millis(1500);
        let died =
            self.simulation.run_to(end, |simulation| simulation.node(node).running().is_none())?;
        if died {
            self.tell(format!("{node} died cleaning, after {changes} changes, {kind:?}"));
            self.later(down, Undo::Start(node));
        } else {
            self.recovering = None;
            self.simulation.crash_no_more(node);
        }
        Ok(())
    }

    /// Whether a machine may die without more being lost than is claimed: the controllers hear of it
    /// from each other, every replica is in its ISR, and another one keeps what this one loses.
    pub(super) fn may_lose(&self, node: NodeId) -> bool {
        let simulation = &self.simulation;
        if !simulation.is_replicated_everywhere() || !simulation.network.is_whole_for_controllers()
        {
            return false;
        }
        simulation.cluster().partitions().all(|(topic, index, image)| {
            let partition = TopicPartition::new(topic.name.clone(), index);
            let in_change = simulation
                .replica(image.leader, &partition.topic, index)
                .is_none_or(|facts| facts.alter_in_flight);
            image.isr.len() > 1
                && !image.is_reassigning()
                && !in_change
                && (image.leader != node || simulation.network.is_whole())
        })
    }

    /// Whether everybody has everything, and no disk has failed without its broker having met that yet: the
    /// end of such a process is still to come.
    fn is_whole(&self) -> bool {
        let simulation = &self.simulation;
        let mut nodes = simulation.node_ids().iter();
        simulation.is_replicated_everywhere()
            && nodes.all(|node| !simulation.node(*node).disk.is_broken())
    }

    /// Whether a machine that lost data may still be elected, or the cluster is not whole after it.
    fn is_recovering(&mut self) -> bool {
        if let Some(node) = self.recovering
            && self.decayed.is_none()
            && self.simulation.node(node).running().is_some()
            && self.simulation.is_replicated_everywhere()
        {
            self.recovering = None;
        }
        self.recovering.is_some()
    }

    fn disturb(&mut self, act: &Act) {
        match act {
            Act::Cut { from, to, both_ways, plane, lasts } => {
                let (Some(from), Some(to)) = (self.node(*from), self.node(*to)) else {
                    return;
                };
                if from == to {
                    return;
                }
                let mut ways = vec![(from, to)];
                if *both_ways {
                    ways.push((to, from));
                }
                self.tell(format!("cut {ways:?}, {plane:?}, for {lasts:?}"));
                for (from, to) in &ways {
                    self.simulation.cut_one_way(*from, *to, *plane);
                }
                self.later(*lasts, Undo::EndCuts(ways, *plane));
            }
            Act::Lose { per_mille, lasts } => {
                self.tell(format!("lose {per_mille} of 1000 messages for {lasts:?}"));
                self.simulation.network.set_loss(*per_mille);
                self.later(*lasts, Undo::EndLoss);
            }
            Act::Hold { messages, limit, arrives, lasts } => {
                if let Some(pattern) = self.pattern(*messages) {
                    self.tell(format!("{act}: {} to {}", name(pattern.from), name(pattern.to)));
                    let hold = self.simulation.network.hold_some(pattern, *limit);
                    self.later(*lasts, Undo::EndHold(hold, *arrives));
                }
            }
            Act::Slow { messages, by, lasts } => {
                if let Some(pattern) = self.pattern(*messages) {
                    self.tell(format!("{act}: {} to {}", name(pattern.from), name(pattern.to)));
                    let slow = self.simulation.network.slow_down(pattern, *by);
                    self.later(*lasts, Undo::SpeedUp(slow));
                }
            }
            _ => {}
        }
    }

    fn reassign(&mut self, partition: i32, replicas: &[i32]) {
        self.tell(format!("reassign {partition} to {replicas:?}"));
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: 5000,
            topics: vec![ReassignableTopic {
                name: TOPIC.into(),
                partitions: vec![ReassignablePartition {
                    partition_index: partition,
                    replicas: Some(replicas.to_vec()),
                    ..ReassignablePartition::default()
                }],
                ..ReassignableTopic::default()
            }],
            ..AlterPartitionReassignmentsRequest::default()
        };
        self.simulation.tell_controller(0, request);
    }

    fn elect(&mut self, partition: i32) {
        self.tell(format!("elect the preferred leader of {partition}"));
        let request = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: Some(vec![TopicPartitions {
                topic: TOPIC.into(),
                partitions: vec![partition],
                ..TopicPartitions::default()
            }]),
            timeout_ms: 5000,
            ..ElectLeadersRequest::default()
        };
        self.simulation.tell_controller(2, request);
    }
}

fn name(node: Option<NodeId>) -> String {
    node.map_or_else(|| "any".to_owned(), |id| format!("b{id}"))
}
