//! The simulation: virtual time, a queue of what will happen, the nodes, the network and the clients,
//! on one thread and from one seed. The same seed tells the same story, byte for byte.
//!
//! One step takes the next event, hands it to whom it concerns, lets that node do everything that
//! follows at once, and then checks the invariants.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use controller::ClusterImage;
use protocol::NodeId;
use replication::time::Instant;
use replication::trace::{self, Event, TraceSink, Why};

use super::clients::{Client, RAW_CLIENT};
use super::clock::{SimClock, VirtualTime};
use super::links::{SimTrace, TraceEntry};
use super::network::{
    Address, Envelope, Fate, Kind, Network, NetworkConfig, Payload, RpcAnswer, RpcRequest,
};
use super::node::{NodeSettings, SimNode};
use super::observe::Observer;
use super::random::SimRandom;
use crate::history::Recorder;
use crate::invariants::{Checker, FaultModel, Violation};

/// Events that one step may cause at one moment before it counts as a loop.
pub(super) const SPIN_LIMIT: usize = 10_000;
/// Steps in one virtual second that are a storm of messages and no life.
const STORM_LIMIT: usize = 50_000;
/// Whole logs are compared after so many steps.
const LOGS_EVERY: u64 = 500;

/// What a simulation is made of.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// How many nodes, each broker and controller; ids from 1.
    pub nodes: i32,
    /// Where all chance comes from.
    pub seed: u64,
    /// How messages travel.
    pub network: NetworkConfig,
    /// The nodes' timeouts and configs.
    pub settings: NodeSettings,
    /// What may happen to the cluster.
    pub model: FaultModel,
    /// The historical bugs that are on, in this simulation and its thread.
    #[cfg(feature = "historical-bugs")]
    pub bugs: Vec<replication::bugs::Bug>,
}

impl SimConfig {
    /// Three nodes, a network of 0.2 to 1 ms without loss, and no fault that loses data.
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: 3,
            seed,
            network: NetworkConfig {
                latency_min: Duration::from_micros(200),
                latency_max: Duration::from_micros(1000),
                loss_per_mille: 0,
            },
            settings: NodeSettings::default(),
            model: FaultModel::default(),
            #[cfg(feature = "historical-bugs")]
            bugs: Vec::new(),
        }
        .set("log.index.size.max.bytes", 64 * 1024)
    }

    /// Sets a property on every node.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.properties.insert(key.into(), value.to_string());
        self
    }
}

/// Something that happens to a node; kept for later while it is frozen.
#[derive(Clone, Debug)]
pub enum NodeEvent {
    /// A message arrives.
    Message(Envelope),
    /// Its timer goes off.
    Timer,
}

#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    /// Something happens to this life of a node.
    Node { node: NodeId, life: u32, event: NodeEvent },
    /// A message arrives at a client.
    Client { client: u32, payload: Payload },
    /// A client wakes up.
    ClientTimer { client: u32 },
    /// A question was not answered in time.
    RpcTimeout(u64),
}

/// Whose question it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Fetcher(fetcher::FetcherKey),
    Call(u64),
    Read,
    Client,
}

/// A question on its way, or being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc {
    pub(super) from: Address,
    pub(super) from_life: u32,
    pub(super) to: NodeId,
    pub(super) answer_kind: Kind,
    pub(super) purpose: Purpose,
}

/// A simulated cluster.
pub struct Simulation {
    pub(super) config: SimConfig,
    pub(super) time: VirtualTime,
    queue: BTreeMap<(Instant, u64), WorldEvent>,
    sequence: u64,
    pub(super) nodes: BTreeMap<NodeId, SimNode>,
    pub(super) node_ids: Vec<NodeId>,
    /// The network, for cutting and holding.
    pub network: Network,
    pub(super) rpcs: BTreeMap<u64, Rpc>,
    pub(super) next_rpc: u64,
    pub(super) clients: BTreeMap<u32, Client>,
    /// Where clients write down what they do.
    pub(super) history: Option<Recorder>,
    /// Answers to single requests, until they are taken.
    pub(super) raw_answers: BTreeMap<u64, RpcAnswer>,
    pub(super) trace: SimTrace,
    /// The metadata as far as any controller has applied it.
    pub(super) cluster: ClusterImage,
    pub(super) active_controller: Option<(NodeId, i32)>,
    pub(super) checker: Checker,
    pub(super) observer: Observer,
    pub(super) faults: SimRandom,
    steps: u64,
    /// Steps within the second.
    this_second: usize,
    fingerprint: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Simulation(seed {}, {:?}, {} steps)",
            self.config.seed,
            self.time.now(),
            self.steps
        )
    }
}

impl Simulation {
    /// A cluster whose nodes all start at time zero, with empty disks.
    ///
    /// # Errors
    /// When a node does not start.
    pub fn new(config: SimConfig) -> Result<Self> {
        // Also takes back what the simulation before had on.
        #[cfg(feature = "historical-bugs")]
        replication::bugs::set(&config.bugs);
        let mut random = SimRandom::new(config.seed);
        let network = Network::new(config.network, random.fork());
        let time = VirtualTime::default();
        let node_ids: Vec<NodeId> = (1..=config.nodes).map(NodeId).collect();
        let nodes = node_ids
            .iter()
            .map(|id| (*id, SimNode::new(*id, SimClock::new(time.clone()))))
            .collect();
        let mut simulation = Self {
            time,
            queue: BTreeMap::new(),
            sequence: 0,
            nodes,
            node_ids: node_ids.clone(),
            network,
            rpcs: BTreeMap::new(),
            next_rpc: 1,
            clients: BTreeMap::new(),
            history: None,
            raw_answers: BTreeMap::new(),
            trace: SimTrace::default(),
            cluster: ClusterImage::default(),
            active_controller: None,
            checker: Checker::new(config.model),
            observer: Observer::default(),
            faults: random.fork(),
            steps: 0,
            this_second: 0,
            fingerprint: 0xcbf2_9ce4_8422_2325,
            config,
        };
        for id in node_ids {
            simulation.start(id)?;
        }
        Ok(simulation)
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.time.now()
    }

    /// The ids of all nodes.
    pub fn node_ids(&self) -> &[NodeId] {
        &self.node_ids
    }

    /// The nodes' timeouts and configs.
    pub fn settings(&self) -> &NodeSettings {
        &self.config.settings
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &SimNode {
        &self.nodes[&id]
    }

    /// The committed metadata.
    pub fn cluster(&self) -> &ClusterImage {
        &self.cluster
    }

    /// The invariants and what they found.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Events so far, from place `from` on.
    pub fn events_since(&self, from: usize) -> Vec<TraceEntry> {
        self.trace.since(from)
    }

    /// How many events there are so far.
    pub fn event_count(&self) -> usize {
        self.trace.len()
    }

    /// The whole trace as text, and at its end a hash over everything that was delivered.
    pub fn trace_text(&self) -> String {
        let mut text = String::new();
        for entry in self.trace.since(0) {
            text.push_str(&trace::line(entry.at, entry.node, &entry.event));
            text.push('\n');
        }
        text.push_str(&format!("{} steps, {:016x}\n", self.steps, self.fingerprint));
        text
    }

    /// A hash over everything that was delivered.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn schedule(&mut self, at: Instant, event: WorldEvent) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now()), self.sequence), event);
    }

    /// Puts an event of the host's own into the trace.
    pub(super) fn note(&self, node: NodeId, event: Event) {
        let now = self.nodes[&node].clock.read();
        self.trace.emit(now, node, event);
    }

    pub(super) fn note_fault(&self, node: NodeId, event: impl FnOnce(Why) -> Event) {
        self.note(node, event(Why::FaultInjected));
    }

    /// Takes the next event; false when there is none.
    ///
    /// # Errors
    /// A broken invariant, or a node that failed.
    pub fn step(&mut self) -> Result<bool> {
        let Some(((at, _), event)) = self.queue.pop_first() else {
            return Ok(false);
        };
        let same_second = at.0.as_secs() == self.now().0.as_secs();
        self.this_second = if same_second { self.this_second + 1 } else { 0 };
        self.time.advance_to(at);
        self.steps += 1;
        if self.this_second > STORM_LIMIT {
            bail!("a storm at {:?} with {event:?}; {}", at.0, self.describe());
        }
        self.mix_in(&event);
        match event {
            WorldEvent::Node { node, life, event } => self.on_node_event(node, life, event)?,
            WorldEvent::Client { client, payload } => self.on_client_message(client, payload),
            WorldEvent::ClientTimer { client } => self.wake_client(client),
            WorldEvent::RpcTimeout(rpc) => self.on_rpc_timeout(rpc)?,
        }
        if self.steps.is_multiple_of(LOGS_EVERY) {
            self.checker.check_logs();
        }
        self.fail_on_violation()?;
        Ok(true)
    }

    /// # Errors
    /// The first broken invariant.
    pub(super) fn fail_on_violation(&self) -> Result<()> {
        let Some(violation) = self.checker.violations().first() else {
            return Ok(());
        };
        Err(self.failure(violation.clone()))
    }

    /// The violation, to be found in the error by its type, under what led to it.
    fn failure(&self, violation: Violation) -> anyhow::Error {
        let report = self.report(&violation);
        anyhow::Error::new(violation).context(report)
    }

    fn report(&self, violation: &Violation) -> String {
        let from = self.trace.len().saturating_sub(40);
        let lines: Vec<String> = self
            .trace
            .since(from)
            .iter()
            .map(|entry| trace::line(entry.at, entry.node, &entry.event))
            .collect();
        format!(
            "seed {}, step {}, {:?}: {violation}\n{}",
            self.config.seed,
            self.steps,
            self.now().0,
            lines.join("\n")
        )
    }

    fn mix_in(&mut self, event: &WorldEvent) {
        let mut mix = |word: u64| {
            self.fingerprint = (self.fingerprint ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        };
        mix(self.time.now().0.as_micros() as u64);
        match event {
            WorldEvent::Node { node, life, event } => {
                mix(u64::from(node.get().unsigned_abs()) << 8 | u64::from(*life));
                if let NodeEvent::Message(envelope) = event {
                    mix(kind_word(envelope));
                }
            }
            WorldEvent::Client { client, .. } | WorldEvent::ClientTimer { client } => {
                mix(u64::from(*client) << 40);
            }
            WorldEvent::RpcTimeout(rpc) => mix(*rpc << 20),
        }
    }

    /// Lets virtual time pass.
    ///
    /// # Errors
    /// As [`Simulation::step`].
    pub fn run_for(&mut self, duration: Duration) -> Result<()> {
        let end = self.now() + duration;
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step()?;
        }
        self.time.advance_to(end);
        Ok(())
    }

    /// Lets virtual time pass up to `end`, or until a step after which `enough` says so; whether it did.
    ///
    /// # Errors
    /// As [`Simulation::step`].
    pub fn run_to(
        &mut self,
        end: Instant,
        mut enough: impl FnMut(&Simulation) -> bool,
    ) -> Result<bool> {
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step()?;
            if enough(self) {
                return Ok(true);
            }
        }
        self.time.advance_to(end);
        Ok(false)
    }

    /// Runs until `reached` says so.
    ///
    /// # Errors
    /// As [`Simulation::step`], and when `limit` has passed before.
    pub fn run_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut reached: impl FnMut(&Simulation) -> bool,
    ) -> Result<()> {
        let end = self.now() + limit;
        loop {
            if reached(self) {
                return Ok(());
            }
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            if next.is_none_or(|at| at > end) {
                return Err(self.failure(Violation {
                    invariant: "L1",
                    what: format!("{what} did not come within {limit:?}; {}", self.describe()),
                }));
            }
            self.step()?;
        }
    }

    /// Sends a message, now.
    pub(super) fn transmit(&mut self, envelope: Envelope) {
        let fate = self.network.send(self.now(), envelope);
        self.follow_fate(fate);
    }

    pub(super) fn follow_fate(&mut self, fate: Fate) {
        let Fate::Arrives(at, envelope) = fate else {
            return;
        };
        let event = match envelope.to {
            Address::Node(node) => {
                let life = self.nodes.get(&node).map_or(0, |node| node.lives);
                WorldEvent::Node { node, life, event: NodeEvent::Message(envelope) }
            }
            Address::Client(client) => WorldEvent::Client { client, payload: envelope.payload },
        };
        self.schedule(at, event);
    }

    /// Asks a question; the answer, or its failure after `timeout`, comes as an event.
    pub(super) fn ask(
        &mut self,
        from: Address,
        to: NodeId,
        request: RpcRequest,
        purpose: Purpose,
        timeout: Duration,
    ) -> u64 {
        let id = self.next_rpc;
        self.next_rpc += 1;
        let life_of = |address: Address| match address {
            Address::Node(node) => self.nodes.get(&node).map_or(0, |node| node.lives),
            Address::Client(_) => 0,
        };
        let rpc =
            Rpc { from, from_life: life_of(from), to, answer_kind: request.answer_kind(), purpose };
        self.rpcs.insert(id, rpc);
        self.schedule(self.now() + timeout, WorldEvent::RpcTimeout(id));
        let kind = request.kind();
        let payload = Payload::Request(id, request);
        self.transmit(Envelope { from, to: Address::Node(to), kind, payload });
        id
    }

    /// Sends the answer to a question, unless nobody waits for it any more.
    pub(super) fn answer(&mut self, id: u64, answer: RpcAnswer) {
        let Some(rpc) = self.rpcs.get(&id).copied() else {
            return;
        };
        let kind = if matches!(answer, RpcAnswer::Broken) { Kind::Close } else { rpc.answer_kind };
        self.transmit(Envelope {
            from: Address::Node(rpc.to),
            to: rpc.from,
            kind,
            payload: Payload::Answer(id, answer),
        });
    }

    /// Gives a question up and tells the other side.
    pub(super) fn abandon(&mut self, id: u64) {
        if let Some(rpc) = self.rpcs.remove(&id) {
            let (from, to) = (rpc.from, Address::Node(rpc.to));
            self.transmit(Envelope { from, to, kind: Kind::Close, payload: Payload::Close(id) });
        }
    }

    fn on_rpc_timeout(&mut self, id: u64) -> Result<()> {
        let Some(rpc) = self.rpcs.get(&id).copied() else {
            return Ok(());
        };
        let (from, to) = (rpc.from, Address::Node(rpc.to));
        self.transmit(Envelope { from, to, kind: Kind::Close, payload: Payload::Close(id) });
        let payload = Payload::Answer(id, RpcAnswer::Broken);
        match from {
            Address::Node(node) => {
                let envelope = Envelope { from: to, to: from, kind: Kind::Close, payload };
                self.on_node_event(node, rpc.from_life, NodeEvent::Message(envelope))
            }
            Address::Client(client) => {
                self.on_client_message(client, payload);
                Ok(())
            }
        }
    }

    fn on_client_message(&mut self, client: u32, payload: Payload) {
        let Payload::Answer(id, answer) = payload else {
            return;
        };
        if self.rpcs.remove(&id).is_none() {
            return;
        }
        if client == RAW_CLIENT {
            self.raw_answers.insert(id, answer);
        } else {
            self.answer_client(client, answer);
        }
    }
}

fn kind_word(envelope: &Envelope) -> u64 {
    let address = |address: Address| match address {
        Address::Node(id) => u64::from(id.get().unsigned_abs()),
        Address::Client(id) => 1000 + u64::from(id),
    };
    let size = match &envelope.payload {
        Payload::Raft(bytes) => bytes.len() as u64,
        Payload::Request(id, _) | Payload::Answer(id, _) | Payload::Close(id) => *id,
    };
    address(envelope.from) << 40 | address(envelope.to) << 20 | size
}
