//! Random histories of three nodes and a controller: fetches, proposals and metadata are held and
//! delivered late or never, brokers are fenced and restarted, and one outside the ISR may lose its disk.
//! After every step the invariants hold: I1, I2, I3, I4, I7, I8, I9. Elections are clean.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use protocol::{BrokerEpoch, ErrorCode};
use replication::truncation::FetchAnswerStep;
use replication::{AlterPartitionResponse, IsrProposal};

use crate::support::{Cluster, FetchReply, FetchRequest, Record, TestLog};

#[derive(Clone, Debug)]
enum Step {
    Produce(i32),
    Fetch(i32),
    HoldFetch(i32),
    ServeHeld(usize),
    AnswerHeld(usize),
    Publish(i32),
    SendProposal(i32),
    AnswerProposal(usize, bool),
    Pass(u64),
    Fence(i32),
    Unfence(i32),
    Restart(i32),
    LoseDisk(i32),
    Elect(i32),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 1..=3i32;
    prop_oneof![
        6 => node().prop_map(Step::Produce),
        12 => node().prop_map(Step::Fetch),
        4 => node().prop_map(Step::HoldFetch),
        4 => (0..6usize).prop_map(Step::ServeHeld),
        4 => (0..6usize).prop_map(Step::AnswerHeld),
        8 => node().prop_map(Step::Publish),
        5 => node().prop_map(Step::SendProposal),
        5 => ((0..4usize), prop::bool::weighted(0.8)).prop_map(|(i, ok)| Step::AnswerProposal(i, ok)),
        2 => (1..40u64).prop_map(Step::Pass),
        2 => node().prop_map(Step::Fence),
        4 => node().prop_map(Step::Unfence),
        1 => node().prop_map(Step::Restart),
        1 => node().prop_map(Step::LoseDisk),
        2 => node().prop_map(Step::Elect),
    ]
}

struct History {
    cluster: Cluster,
    held_fetches: Vec<(FetchRequest, Option<FetchReply>)>,
    held_proposals: Vec<(i32, IsrProposal, AlterPartitionResponse)>,
    /// Everything that any leader ever showed as committed, from offset 0.
    committed: Vec<Record>,
    /// Each leader's epoch and the watermark it had in it last.
    shown: BTreeMap<i32, (i32, i64)>,
    next_value: u32,
}

impl History {
    fn new(min_isr: usize) -> Self {
        Self {
            cluster: Cluster::new(3, min_isr),
            held_fetches: Vec::new(),
            held_proposals: Vec::new(),
            committed: Vec::new(),
            shown: BTreeMap::new(),
            next_value: 0,
        }
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Produce(id) => {
                if self.cluster.node(id).state.is_leader() {
                    self.next_value += 1;
                    self.cluster.produce(id, &[self.next_value]);
                }
            }
            Step::Fetch(id) => {
                if self.cluster.node(id).fetching {
                    let request = self.cluster.request(id);
                    let reply = self.cluster.serve(&request);
                    self.apply(&request, &reply);
                }
            }
            Step::HoldFetch(id) => {
                if self.cluster.node(id).fetching {
                    self.held_fetches.push((self.cluster.request(id), None));
                }
            }
            Step::ServeHeld(index) => {
                if let Some((request, reply)) = self.held_fetches.get_mut(index)
                    && reply.is_none()
                {
                    *reply = Some(self.cluster.serve(request));
                }
            }
            Step::AnswerHeld(index) => self.answer_held(index),
            Step::Publish(id) => drop(self.cluster.publish(id)),
            Step::SendProposal(id) => self.send_proposal(id),
            Step::AnswerProposal(index, arrives) => self.answer_proposal(index, arrives),
            Step::Pass(seconds) => {
                self.cluster.pass(Duration::from_secs(seconds));
                (1..=3).for_each(|id| self.cluster.check_lag(id));
            }
            Step::Fence(id) => self.cluster.controller.fence(id),
            Step::Unfence(id) => self.cluster.controller.unfence(id),
            Step::Restart(id) => {
                self.cluster.controller.register(id);
                let checkpoint = self.cluster.high_watermark(id) - 1;
                self.cluster.restart(id, checkpoint.max(0));
            }
            Step::LoseDisk(id) => {
                if !self.cluster.controller.isr.contains(&id) {
                    self.cluster.controller.register(id);
                    self.cluster.open(id, TestLog::default(), None);
                }
            }
            Step::Elect(id) => {
                let controller = &mut self.cluster.controller;
                if controller.isr.contains(&id) && !controller.brokers[&id].fenced {
                    controller.elect(id);
                }
            }
        }
    }

    fn apply(&mut self, request: &FetchRequest, reply: &FetchReply) {
        let step = self.cluster.apply(request, reply);
        if let FetchAnswerStep::Truncate(truncation) = step {
            assert!(!truncation.below_high_watermark, "a clean history cut committed records");
        }
    }

    fn answer_held(&mut self, index: usize) {
        if self.held_fetches.get(index).is_none_or(|(_, reply)| reply.is_none()) {
            return;
        }
        let (request, reply) = self.held_fetches.remove(index);
        let incarnation = BrokerEpoch(self.cluster.node(request.replica).directory.local_epoch);
        // A connection does not survive the process.
        if incarnation == request.broker_epoch {
            self.apply(&request, &reply.expect("served above"));
        }
    }

    fn send_proposal(&mut self, id: i32) {
        if self.cluster.node(id).outbox.is_empty() {
            return;
        }
        let proposal = self.cluster.node_mut(id).outbox.remove(0);
        let response = self.cluster.controller.alter_partition(id, &proposal);
        self.held_proposals.push((id, proposal, response));
    }

    fn answer_proposal(&mut self, index: usize, arrives: bool) {
        if index >= self.held_proposals.len() {
            return;
        }
        let (id, proposal, response) = self.held_proposals.remove(index);
        let lost = AlterPartitionResponse::Error(ErrorCode::RequestTimedOut);
        self.cluster.respond(id, &proposal, if arrives { &response } else { &lost });
    }

    fn check(&mut self) {
        self.note_committed();
        for (id, node) in &self.cluster.nodes {
            let high_watermark = node.state.high_watermark().offset.get();
            assert!(node.log.start <= high_watermark, "I7: node {id}");
            assert!(high_watermark <= node.log.end(), "I7: node {id}");
            assert!(
                high_watermark <= self.committed.len() as i64,
                "I8: node {id} shows {high_watermark} of {} committed",
                self.committed.len()
            );
            for offset in 0..high_watermark {
                assert_eq!(
                    node.log.at(offset),
                    Some(self.committed[offset as usize]),
                    "I1: node {id} at {offset}"
                );
            }
            let entries = node.log.epochs.entries();
            assert!(
                entries.windows(2).all(|pair| pair[0].epoch < pair[1].epoch
                    && pair[0].start_offset < pair[1].start_offset),
                "I9: {entries:?}"
            );
            assert!(entries.last().is_none_or(|last| last.start_offset.get() <= node.log.end()));
        }
        self.check_isr();
    }

    fn check_isr(&self) {
        let controller = &self.cluster.controller;
        for id in &controller.isr {
            let log = &self.cluster.node(*id).log;
            for (offset, record) in self.committed.iter().enumerate() {
                assert_eq!(
                    log.at(offset as i64).as_ref(),
                    Some(record),
                    "I2, I3: ISR member {id} lacks committed offset {offset}"
                );
            }
        }
        if controller.leader == -1 {
            return;
        }
        let leader = &self.cluster.node(controller.leader).state;
        if leader.is_leader() && leader.leader_epoch().get() == controller.leader_epoch {
            let isr = leader.isr().expect("it leads");
            assert!(
                controller.isr.iter().all(|id| isr.is_maximal_member((*id).into())),
                "I4: controller {:?}, leader {isr:?}",
                controller.isr
            );
        }
    }

    fn note_committed(&mut self) {
        for (id, node) in &self.cluster.nodes {
            if !node.state.is_leader() {
                self.shown.remove(id);
                continue;
            }
            let (epoch, high_watermark) =
                (node.state.leader_epoch().get(), node.state.high_watermark().offset.get());
            if let Some((shown_epoch, shown)) = self.shown.insert(*id, (epoch, high_watermark))
                && shown_epoch == epoch
            {
                assert!(shown <= high_watermark, "I8: leader {id} went back from {shown}");
            }
            for offset in self.committed.len() as i64..high_watermark {
                self.committed.push(node.log.at(offset).expect("below the log's end"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn i01_to_i09_hold_after_every_step_of_every_history(
        min_isr in 1..=2usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut history = History::new(min_isr);
        for step in &steps {
            history.play(step);
            history.check();
        }
    }

    #[test]
    fn l1_a_healed_cluster_commits_everything_its_leader_has(
        min_isr in 1..=2usize,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut history = History::new(min_isr);
        for step in &steps {
            history.play(step);
        }
        let leader = heal(&mut history);
        history.check();
        let cluster = &history.cluster;
        prop_assert_eq!(&cluster.controller.isr, &[1, 2, 3]);
        for id in 1..=3 {
            prop_assert_eq!(&cluster.node(id).log.records, &cluster.node(leader).log.records);
        }
        prop_assert_eq!(cluster.high_watermark(leader), cluster.log_end(leader));
    }
}

/// Ends all faults and lets messages flow until nothing changes; gives the leader.
fn heal(history: &mut History) -> i32 {
    (1..=3).for_each(|id| history.cluster.controller.unfence(id));
    if history.cluster.controller.leader == -1 {
        let first = history.cluster.controller.isr[0];
        history.cluster.controller.elect(first);
    }
    let leader = history.cluster.controller.leader;
    for _ in 0..12 {
        history.cluster.publish_all();
        for (id, proposal, _) in std::mem::take(&mut history.held_proposals) {
            let lost = AlterPartitionResponse::Error(ErrorCode::RequestTimedOut);
            history.cluster.respond(id, &proposal, &lost);
        }
        for id in 1..=3 {
            history.cluster.settle(id);
            history.play(&Step::Fetch(id));
            history.play(&Step::Fetch(id));
        }
    }
    let mut isr = history.cluster.controller.isr.clone();
    isr.sort_unstable();
    history.cluster.controller.isr = isr;
    leader
}
