//! What a story or a random run does to the cluster: starting, stopping and breaking nodes, cutting
//! and holding messages, and single requests.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use broker::core::BrokerCore;
use protocol::{NodeId, RequestBody, ResponseBody};
use replication::time::Instant;
use replication::trace::{Event, Why};

use super::clients::RAW_CLIENT;
use super::disk::{CrashKind, SimDisk};
use super::network::{Address, HoldId, Kind, Payload, Plane, RpcAnswer, RpcRequest};
use super::world::{NodeEvent, Purpose, Simulation};

/// How long a clean stop waits for another controller to take over.
const HANDOVER_PATIENCE: Duration = Duration::from_millis(1000);
/// How long a single request may take.
const REQUEST_PATIENCE: Duration = Duration::from_secs(20);

impl Simulation {
    /// Starts a node that does not run, from what its disk holds.
    ///
    /// # Errors
    /// When it runs already, or does not start.
    pub fn start(&mut self, id: NodeId) -> Result<()> {
        let trace = self.trace.clone();
        let (settings, seed) = (self.config.settings.clone(), self.config.seed);
        let nodes = self.node_ids.clone();
        let node = self.nodes.get_mut(&id).context("no such node")?;
        ensure!(node.running.is_none(), "node {id} runs already");
        node.start(&settings, &nodes, seed, &trace)?;
        self.note(id, Event::NodeStarted { started: id, why: Why::OperatorRequest });
        self.settle(id)
    }

    /// Ends a node's process at once. What its disk keeps depends on the kind of crash.
    ///
    /// # Errors
    /// When it does not run.
    pub fn crash(&mut self, id: NodeId, kind: CrashKind) -> Result<()> {
        let loses_unsynced = kind == CrashKind::LoseUnsynced;
        self.end_process(id)?;
        let mut random = self.faults.fork();
        let node = self.nodes.get_mut(&id).context("no such node")?;
        node.disk.crash(kind, &mut random);
        node.quorum_storage.crash(kind, &mut random)?;
        self.note_fault(id, |why| Event::NodeCrashed { crashed: id, loses_unsynced, why });
        Ok(())
    }

    /// Has a node's process end in the middle of the cleaner's work, when the cleaner has made `changes`
    /// more changes to the disk: [`Simulation::crash`] as soon as it wants to make the next.
    pub fn crash_in_cleaning(&mut self, id: NodeId, kind: CrashKind, changes: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.dies_cleaning = Some((kind, changes));
        }
    }

    /// Takes [`Simulation::crash_in_cleaning`] back.
    pub fn crash_no_more(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.dies_cleaning = None;
        }
    }

    /// Lets the cleaner do a step; where a story wants it, the node dies in the middle of it.
    pub(super) fn clean(&mut self, id: NodeId, core: &BrokerCore<SimDisk>) -> Result<Instant> {
        let Some(node) = self.nodes.get_mut(&id) else {
            return Ok(Instant(Duration::MAX));
        };
        let Some((kind, changes)) = node.dies_cleaning else {
            return Ok(core.replicas.on_cleaner_tick());
        };
        node.disk.fail_after(changes);
        let next = core.replicas.on_cleaner_tick();
        let (left, failed) = node.disk.end_failing();
        node.dies_cleaning = Some((kind, left));
        if failed {
            node.dies_cleaning = None;
            self.crash(id, kind)?;
        }
        Ok(next)
    }

    /// Begins a clean stop: leaders move first. Done when the node does not run any more.
    ///
    /// # Errors
    /// When it does not run.
    pub fn stop(&mut self, id: NodeId) -> Result<()> {
        let process = self.process(id).with_context(|| format!("node {id} does not run"))?;
        process.stopping = true;
        process.core.clone().begin_stop();
        self.settle(id)
    }

    /// Stops a node cleanly and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop_and_wait(&mut self, id: NodeId) -> Result<()> {
        self.stop(id)?;
        self.run_until("the clean stop", Duration::from_secs(30), |simulation| {
            simulation.node(id).running().is_none()
        })
    }

    /// Ends a stopping process whose broker may go and whose controller leads no more.
    pub(super) fn maybe_end_process(&mut self, id: NodeId) -> Result<()> {
        let now = self.nodes[&id].clock.read();
        let Some(process) = self.process(id).filter(|process| process.stopping) else {
            return Ok(());
        };
        if process.closed_by.is_none() && process.core.may_stop() {
            process.core.shut_down();
            let patience = match process.controller.resign(&BTreeSet::new(), now) {
                Some(_) => HANDOVER_PATIENCE,
                None => Duration::ZERO,
            };
            process.closed_by = Some(now.monotonic + patience);
        }
        let leads = process.controller.status().role == controller::quorum::QuorumRole::Leader;
        if process.closed_by.is_some_and(|by| !leads || by <= now.monotonic) {
            self.end_process(id)?;
            self.note(id, Event::NodeStopped { stopped: id, why: Why::ControlledShutdown });
        }
        Ok(())
    }

    /// Keeps a node busy for as long as its disk took, and ends a broker that has no log directory left,
    /// as the real host does.
    pub(super) fn wait_for_disk(&mut self, id: NodeId) -> Result<()> {
        let now = self.now();
        let Some(node) = self.nodes.get_mut(&id) else {
            return Ok(());
        };
        node.busy_until = node.busy_until.max(now + node.disk.take_spent());
        let has_failed =
            node.running().is_some_and(|process| process.core.replicas.have_all_dirs_failed());
        if has_failed { self.crash(id, CrashKind::KeepPageCache) } else { Ok(()) }
    }

    fn end_process(&mut self, id: NodeId) -> Result<()> {
        let node = self.nodes.get_mut(&id).context("no such node")?;
        let process = node.running.take().with_context(|| format!("node {id} does not run"))?;
        node.frozen = false;
        node.busy_until = Instant::ZERO;
        node.dies_cleaning = None;
        node.backlog.clear();
        process.connections.all_gone();
        drop(process);
        self.forget_replicas(id);
        if self.active_controller.is_some_and(|(active, _)| active == id) {
            self.active_controller = None;
        }
        // The system closes the connections of both directions.
        let own: Vec<u64> = self
            .rpcs
            .iter()
            .filter(|(_, rpc)| rpc.from == Address::Node(id))
            .map(|(rpc, _)| *rpc)
            .collect();
        for rpc in own {
            self.abandon(rpc);
        }
        let served: Vec<u64> =
            self.rpcs.iter().filter(|(_, rpc)| rpc.to == id).map(|(rpc, _)| *rpc).collect();
        for rpc in served {
            self.answer(rpc, RpcAnswer::Broken);
        }
        Ok(())
    }

    /// Stops a node's processors: it says nothing, and what comes for it waits.
    pub fn freeze(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.running.is_some()) {
            node.frozen = true;
        }
    }

    /// Ends a freeze; the node finds everything that came meanwhile.
    ///
    /// # Errors
    /// When the node fails over it.
    pub fn thaw(&mut self, id: NodeId) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.frozen) else {
            return Ok(());
        };
        node.frozen = false;
        let life = node.lives;
        let backlog = std::mem::take(&mut node.backlog);
        for event in backlog {
            self.on_node_event(id, life, event)?;
        }
        self.on_node_event(id, life, NodeEvent::Timer)
    }

    /// Sets a node's wall clock forward, or back.
    pub fn jump_clock(&mut self, id: NodeId, by_ms: i64) {
        if let Some(node) = self.nodes.get(&id) {
            node.clock.jump(by_ms);
        }
    }

    /// Cuts all messages between two nodes, both ways.
    pub fn cut(&mut self, one: NodeId, other: NodeId) {
        self.cut_one_way(one, other, Plane::All);
        self.cut_one_way(other, one, Plane::All);
    }

    /// Cuts messages of a plane one way.
    pub fn cut_one_way(&mut self, from: NodeId, to: NodeId, plane: Plane) {
        self.network.cut_one_way(from, to, plane);
        self.note_fault(from, |why| Event::LinkChanged { from, to, up: false, why });
    }

    /// Cuts a node off from all others, on one plane, both ways.
    pub fn isolate(&mut self, id: NodeId, plane: Plane) {
        for other in self.node_ids.clone() {
            if other != id {
                self.cut_one_way(id, other, plane);
                self.cut_one_way(other, id, plane);
            }
        }
    }

    /// Lets all messages between two nodes pass again.
    pub fn heal(&mut self, one: NodeId, other: NodeId) {
        for (from, to) in [(one, other), (other, one)] {
            self.network.heal_one_way(from, to);
            self.note_fault(from, |why| Event::LinkChanged { from, to, up: true, why });
        }
    }

    /// Ends every cut, every loss and every hold; what was held arrives.
    pub fn heal_network(&mut self) {
        self.network.heal();
        for hold in self.network.holds() {
            self.release(hold);
        }
    }

    /// Ends every cut and every loss, and leaves one hold in force.
    pub fn heal_network_but(&mut self, kept: HoldId) {
        self.network.heal();
        for hold in self.network.holds() {
            if hold != kept {
                self.release(hold);
            }
        }
    }

    /// Holds messages of a kind back.
    pub fn hold(&mut self, kind: Kind, from: Option<NodeId>, to: Option<NodeId>) -> HoldId {
        self.network.hold(kind, from, to)
    }

    /// Ends a hold; what was held arrives.
    pub fn release(&mut self, hold: HoldId) {
        let now = self.now();
        for fate in self.network.release(now, hold) {
            self.follow_fate(fate);
        }
    }

    /// Sends one request to a broker and waits for its answer.
    ///
    /// # Errors
    /// When the connection breaks, or no answer comes.
    pub fn call(
        &mut self,
        to: NodeId,
        version: i16,
        body: impl Into<RequestBody>,
    ) -> Result<ResponseBody> {
        let rpc = self.send(to, version, body);
        self.wait_for_answer(rpc)
    }

    /// Sends one request to a broker; its answer is taken with [`Simulation::wait_for_answer`].
    pub fn send(&mut self, to: NodeId, version: i16, body: impl Into<RequestBody>) -> u64 {
        let request = RpcRequest::Kafka { version, body: body.into() };
        self.ask(Address::Client(RAW_CLIENT), to, request, Purpose::Client, REQUEST_PATIENCE)
    }

    /// The answer to a request sent before, if it has come.
    pub fn try_answer(&mut self, rpc: u64) -> Option<RpcAnswer> {
        self.raw_answers.remove(&rpc)
    }

    /// Runs until the answer to a request is there.
    ///
    /// # Errors
    /// When the connection breaks, or no answer comes.
    pub fn wait_for_answer(&mut self, rpc: u64) -> Result<ResponseBody> {
        self.run_until("the answer", REQUEST_PATIENCE * 2, |simulation| {
            simulation.raw_answers.contains_key(&rpc)
        })?;
        match self.raw_answers.remove(&rpc) {
            Some(RpcAnswer::Kafka(body)) => Ok(body),
            other => bail!("no answer but {other:?}"),
        }
    }

    /// Sends a request to the active controller, if there is one, and waits for nothing.
    pub fn tell_controller(&mut self, version: i16, body: impl Into<RequestBody>) -> bool {
        let Some((active, _)) = self.active_controller else {
            return false;
        };
        let request = RpcRequest::Call { version, body: body.into() };
        let from = Address::Client(RAW_CLIENT);
        self.ask(from, active, request, Purpose::Client, REQUEST_PATIENCE);
        true
    }

    /// Sends a request to the active controller and waits for its answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn call_controller(
        &mut self,
        version: i16,
        body: impl Into<RequestBody>,
    ) -> Result<ResponseBody> {
        let Some((active, _)) = self.active_controller else {
            bail!("no controller is active");
        };
        let request = RpcRequest::Call { version, body: body.into() };
        let from = Address::Client(RAW_CLIENT);
        let rpc = self.ask(from, active, request, Purpose::Client, REQUEST_PATIENCE);
        self.run_until("the controller's answer", REQUEST_PATIENCE * 2, |simulation| {
            simulation.raw_answers.contains_key(&rpc)
        })?;
        match self.raw_answers.remove(&rpc) {
            Some(RpcAnswer::Call(controller::node::Reply::Answer(body))) => Ok(body),
            other => bail!("no answer but {other:?}"),
        }
    }

    /// The controller that decides, and its epoch.
    pub fn active_controller(&self) -> Option<(NodeId, i32)> {
        self.active_controller
    }

    /// Notes who decides.
    pub(super) fn on_active_controller(&mut self, id: NodeId, epoch: i32) {
        let known = self.active_controller.map_or(-1, |(_, known)| known);
        if epoch > known {
            self.active_controller = Some((id, epoch));
        }
    }

    /// Every payload that asks for an answer is answered, given up, or waits: for tests of the host.
    pub fn open_questions(&self) -> usize {
        self.rpcs.len()
    }

    /// The moment `duration` from now.
    pub fn after(&self, duration: Duration) -> Instant {
        self.now() + duration
    }
}

impl Payload {
    /// The question it belongs to.
    pub fn rpc(&self) -> Option<u64> {
        match self {
            Payload::Raft(_) => None,
            Payload::Request(id, _) | Payload::Answer(id, _) | Payload::Close(id) => Some(*id),
        }
    }
}
