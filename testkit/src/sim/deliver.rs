//! What a node's host does with what comes in, and everything that follows from it at once: requests
//! go to the core or the controller, answers to whoever asked; then the controller is drained, due
//! timers run, the core's wishes are carried out and the fetchers polled, until nothing is left.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use broker::core::host::CallError;
use broker::core::{CallContext, Outcome};
use controller::node::{MetadataRead, Reply, ReplyToken};
use controller::records::{MetadataSnapshot, decode_batch};
use controller::state::RequestContext;
use controller::{ClusterImage, ImageDelta};
use fetcher::request::{FETCH_VERSION, LIST_OFFSETS_VERSION};
use fetcher::{FetcherRequest, FetcherResponse};
use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset, RequestBody, ResponseBody};
use replication::time::Instant;

use super::links::{Action, Connection};
use super::network::{Address, Envelope, Payload, RpcAnswer, RpcRequest};
use super::node::{
    ControllerEffects, LISTENER, ParkedRead, PendingCall, RunningNode, raft_envelope,
};
use super::sending::as_sent;
use super::world::{NodeEvent, Purpose, Rpc, SPIN_LIMIT, Simulation, WorldEvent};

/// The pause before a call to the controller goes again.
const CALL_PAUSE: Duration = Duration::from_millis(20);
/// How long a controller keeps a reader of metadata waiting for something new.
const READ_WAIT: Duration = Duration::from_millis(300);
/// The most metadata in one answer, in bytes.
const READ_BYTES: u64 = 1 << 20;
const FAR: Instant = Instant(Duration::MAX);

impl Simulation {
    /// The process of a node that runs.
    pub(super) fn process(&mut self, id: NodeId) -> Option<&mut RunningNode> {
        self.nodes.get_mut(&id).and_then(|node| node.running.as_mut())
    }

    pub(super) fn on_node_event(&mut self, id: NodeId, life: u32, event: NodeEvent) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id) else {
            return Ok(());
        };
        let is_this_life = node.lives == life && node.running.is_some();
        if is_this_life && node.frozen {
            node.backlog.push(event);
            return Ok(());
        }
        if is_this_life && node.busy_until > self.time.now() {
            let until = node.busy_until;
            self.schedule(until, WorldEvent::Node { node: id, life, event });
            return Ok(());
        }
        match event {
            NodeEvent::Timer if is_this_life => {
                if let Some(process) = self.process(id) {
                    process.timer = None;
                }
            }
            NodeEvent::Timer => return Ok(()),
            NodeEvent::Message(envelope) => {
                let is_running = self.nodes[&id].running.is_some();
                let any_life = matches!(envelope.payload, Payload::Raft(_));
                if !is_running || (!is_this_life && !any_life) {
                    self.refuse(envelope);
                    return Ok(());
                }
                self.on_message(id, envelope)?;
            }
        }
        self.settle(id)
    }

    /// Nobody listens where the message went.
    fn refuse(&mut self, envelope: Envelope) {
        if let Payload::Request(rpc, _) = envelope.payload {
            self.answer(rpc, RpcAnswer::Broken);
        }
    }

    fn on_message(&mut self, id: NodeId, envelope: Envelope) -> Result<()> {
        match envelope.payload {
            Payload::Raft(bytes) => {
                let now = self.nodes[&id].clock.read();
                if let Some(process) = self.process(id) {
                    process.controller.on_raft_message(bytes, now)?;
                }
            }
            Payload::Request(rpc, request) => self.on_request(id, envelope.from, rpc, request),
            Payload::Answer(rpc, answer) => {
                let asked = self.rpcs.get(&rpc).copied();
                let lives = self.nodes[&id].lives;
                if let Some(asked) = asked
                    && asked.from == Address::Node(id)
                    && asked.from_life == lives
                {
                    self.rpcs.remove(&rpc);
                    self.on_answer(id, rpc, asked, answer)?;
                }
            }
            Payload::Close(rpc) => {
                if let Some(process) = self.process(id) {
                    process.connections.gone(rpc);
                    process.parked_reads.retain(|read| read.rpc != rpc);
                }
            }
        }
        Ok(())
    }

    fn on_request(&mut self, id: NodeId, from: Address, rpc: u64, request: RpcRequest) {
        let now = self.nodes[&id].clock.read();
        let Some(process) = self.process(id) else {
            return;
        };
        match request {
            RpcRequest::Kafka { version, body } => {
                process.connections.opened(rpc);
                if !process.core.lifecycle.has_caught_up() {
                    // Connected, and served once this run is known.
                    process.unserved.push((from, rpc, version, body));
                    return;
                }
                let context = CallContext {
                    api_version: version,
                    client_id: Some(from.to_string()),
                    listener: LISTENER.into(),
                    peer: "127.0.0.1".into(),
                    gone: Box::new(Connection {
                        request: rpc,
                        connections: process.connections.clone(),
                    }),
                };
                let outbox = process.outbox.clone();
                let reply = Box::new(move |outcome| outbox.push(Action::Answer(rpc, outcome)));
                process.core.clone().handle(context, body, reply);
            }
            RpcRequest::Call { version, body } => {
                let broker_id = match from {
                    Address::Node(node) => node,
                    Address::Client(_) => NodeId::NONE,
                };
                let context = RequestContext { broker_id, ..RequestContext::default() };
                process.serving.insert(rpc, (from, rpc));
                process.controller.on_request(&context, version, &body, ReplyToken(rpc), now);
            }
            RpcRequest::Read { from: offset } => {
                let read = ParkedRead { rpc, from: offset, until: now.monotonic + READ_WAIT };
                process.parked_reads.push(read);
            }
        }
    }

    fn on_answer(&mut self, id: NodeId, rpc: u64, asked: Rpc, answer: RpcAnswer) -> Result<()> {
        match asked.purpose {
            Purpose::Fetcher(key) => {
                self.on_fetch_answer(id, rpc, key, answer);
                Ok(())
            }
            Purpose::Call(call) => {
                self.on_call_answer(id, call, asked.to, answer);
                Ok(())
            }
            Purpose::Read => self.on_metadata_answer(id, asked.to, answer),
            Purpose::Client => Ok(()),
        }
    }

    fn on_fetch_answer(
        &mut self,
        id: NodeId,
        rpc: u64,
        key: fetcher::FetcherKey,
        answer: RpcAnswer,
    ) {
        let now = self.now();
        let Some(process) = self.process(id) else {
            return;
        };
        let fetchers = process.fetchers.clone();
        let Some(access) = fetchers.access() else {
            return;
        };
        fetchers.with_slots(|slots| {
            let Some(slot) = slots.get_mut(&key).filter(|slot| slot.request == Some(rpc)) else {
                return;
            };
            slot.request = None;
            let response = match answer {
                RpcAnswer::Kafka(ResponseBody::Fetch(fetch)) => FetcherResponse::Fetch(fetch),
                RpcAnswer::Kafka(ResponseBody::ListOffsets(list)) => {
                    FetcherResponse::ListOffsets(list)
                }
                _ => return slot.core.on_request_failed(&*access, now),
            };
            slot.core.on_response(&*access, response, now);
        });
    }

    fn on_call_answer(&mut self, id: NodeId, call: u64, target: NodeId, answer: RpcAnswer) {
        let now = self.now();
        let nodes = self.node_ids.clone();
        let Some(process) = self.process(id) else {
            return;
        };
        let again = now + CALL_PAUSE;
        match answer {
            RpcAnswer::Call(Reply::Answer(body)) => {
                if let Some(pending) = process.calls.remove(&call) {
                    (pending.reply)(Ok(body));
                }
                return;
            }
            RpcAnswer::Call(Reply::Failed(code)) if code != ErrorCode::RequestTimedOut => {
                if let Some(pending) = process.calls.remove(&call) {
                    (pending.reply)(Err(CallError::Failed(code.kafka_name().to_owned())));
                }
                return;
            }
            RpcAnswer::Call(Reply::NotController { leader, epoch }) => {
                process.route.move_on(target, &nodes);
                if let Some(leader) = leader {
                    process.route.learn(leader, epoch);
                }
            }
            RpcAnswer::Call(Reply::Failed(_)) => {}
            _ => process.route.move_on(target, &nodes),
        }
        process.call_queue.push((again, call));
    }

    fn on_metadata_answer(&mut self, id: NodeId, target: NodeId, answer: RpcAnswer) -> Result<()> {
        let now = self.now();
        let nodes = self.node_ids.clone();
        let Some(process) = self.process(id) else {
            return Ok(());
        };
        process.reading = None;
        let RpcAnswer::Read { read, high_watermark } = answer else {
            process.route.move_on(target, &nodes);
            process.read_again_at = now + CALL_PAUSE;
            return Ok(());
        };
        process.read_again_at = now;
        match read {
            MetadataRead::Snapshot { data, .. } => {
                let image = ClusterImage::from_snapshot(&MetadataSnapshot::from_bytes(&data)?)?;
                if image.offset() > process.image.offset() {
                    let delta = ImageDelta::between(&process.image, &image);
                    process.image = image.clone();
                    let caught_up = image.offset() >= high_watermark;
                    process.core.clone().on_metadata(image, &delta, caught_up);
                }
            }
            MetadataRead::Batches(entries) => {
                for entry in entries {
                    let Some(process) = self.process(id) else {
                        return Ok(());
                    };
                    let at = Offset(entry.index as i64);
                    if at <= process.image.offset() {
                        continue;
                    }
                    let records = decode_batch(&entry.data)?;
                    let mut delta = ImageDelta::default();
                    let epoch = LeaderEpoch(entry.term as i32);
                    process.image.apply_batch(at, epoch, &records, &mut delta)?;
                    let caught_up = at >= high_watermark;
                    process.core.clone().on_metadata(process.image.clone(), &delta, caught_up);
                    // A role may be taken up and given up within one answer.
                    self.observe(id)?;
                }
            }
        }
        Ok(())
    }

    /// Lets a node do everything that follows from what came in.
    pub(super) fn settle(&mut self, id: NodeId) -> Result<()> {
        let now = self.nodes[&id].clock.read();
        if let Some(process) = self.process(id)
            && process.controller.next_wakeup() <= now.monotonic
        {
            process.controller.on_tick(now);
        }
        let mut rounds = 0;
        loop {
            let mut busy = self.drain_controller(id)?;
            busy |= self.serve_early_requests(id);
            busy |= self.run_core(id)?;
            busy |= self.carry_out(id);
            busy |= self.poll_fetchers(id);
            busy |= self.send_calls(id);
            busy |= self.read_metadata(id);
            if !busy {
                break;
            }
            rounds += 1;
            ensure!(rounds < SPIN_LIMIT, "node {id} does not come to rest at {:?}", now.monotonic);
        }
        self.answer_reads(id)?;
        self.maybe_end_process(id)?;
        self.wait_for_disk(id)?;
        self.arm_timer(id);
        self.observe(id)
    }

    fn drain_controller(&mut self, id: NodeId) -> Result<bool> {
        let now = self.nodes[&id].clock.read();
        let Some(process) = self.process(id) else {
            return Ok(false);
        };
        let mut effects = ControllerEffects::default();
        process
            .controller
            .drain(now, &mut effects)
            .with_context(|| format!("the controller of node {id} failed"))?;
        let mut replies = Vec::new();
        for (token, reply) in effects.replies {
            if let Some((_, rpc)) = process.serving.remove(&token.0) {
                replies.push((rpc, reply));
            }
        }
        let status = process.controller.status();
        let busy = !effects.messages.is_empty() || !replies.is_empty();
        for (offset, epoch, records) in effects.committed {
            let events = effects.events.remove(&Some(offset)).unwrap_or_default();
            self.on_committed(id, offset, epoch, &records, events)?;
        }
        for event in effects.events.into_values().flatten() {
            self.note(id, event);
        }
        if status.is_active {
            self.on_active_controller(id, status.epoch);
        }
        for (to, message) in effects.messages {
            self.transmit(raft_envelope(id, to, message));
        }
        for (rpc, reply) in replies {
            self.answer(rpc, RpcAnswer::Call(reply));
        }
        Ok(busy)
    }

    /// Serves the requests that came before this run of the broker was known.
    fn serve_early_requests(&mut self, id: NodeId) -> bool {
        let Some(process) = self.process(id) else {
            return false;
        };
        if process.unserved.is_empty() || !process.core.lifecycle.has_caught_up() {
            return false;
        }
        for (from, rpc, version, body) in std::mem::take(&mut process.unserved) {
            if self.rpcs.contains_key(&rpc) {
                self.on_request(id, from, rpc, RpcRequest::Kafka { version, body });
            }
        }
        true
    }

    fn run_core(&mut self, id: NodeId) -> Result<bool> {
        let now = self.now();
        let Some(process) = self.process(id) else {
            return Ok(false);
        };
        if process.core_wake > now {
            return Ok(false);
        }
        process.core_wake = FAR;
        let core = process.core.clone();
        let next = core.on_tick();
        // The invariants compare what the cleaner leaves with what it found.
        self.observe(id)?;
        let next = next.min(self.clean(id, &core)?);
        if let Some(process) = self.process(id) {
            process.core_wake = process.core_wake.min(next);
        }
        Ok(true)
    }

    fn carry_out(&mut self, id: NodeId) -> bool {
        let now = self.now();
        let Some(process) = self.process(id) else {
            return false;
        };
        let actions = process.outbox.take();
        let busy = !actions.is_empty();
        for action in actions {
            match action {
                Action::WakeBy(at) => {
                    if let Some(process) = self.process(id) {
                        process.core_wake = process.core_wake.min(at);
                    }
                }
                Action::Call { version, request, timeout, reply } => {
                    let call = self.next_rpc;
                    self.next_rpc += 1;
                    if let Some(process) = self.process(id) {
                        let deadline = now + timeout;
                        let pending = PendingCall { version, request, deadline, reply };
                        process.calls.insert(call, pending);
                        process.call_queue.push((now, call));
                    }
                }
                Action::Answer(rpc, outcome) => {
                    let Some(process) = self.process(id) else {
                        continue;
                    };
                    process.connections.answered(rpc);
                    let answer = match outcome {
                        Outcome::Answer(body) => as_sent(body, &process.core.replicas),
                        Outcome::NoResponse => RpcAnswer::Silent,
                        Outcome::Close => RpcAnswer::Broken,
                    };
                    self.answer(rpc, answer);
                }
                Action::Abandon(rpc) => self.abandon(rpc),
            }
        }
        busy
    }

    fn poll_fetchers(&mut self, id: NodeId) -> bool {
        let now = self.now();
        let timeout =
            self.config.settings.answer_timeout + self.config.settings.replica_fetch_wait_max;
        let Some(process) = self.process(id) else {
            return false;
        };
        let fetchers = process.fetchers.clone();
        let Some(access) = fetchers.access() else {
            return false;
        };
        let epoch = process.core.lifecycle.epoch();
        let requests = fetchers.with_slots(|slots| {
            let mut requests = Vec::new();
            for (key, slot) in slots.iter_mut() {
                if slot.core.next_wakeup(now).is_some_and(|at| at <= now)
                    && let Some(request) = slot.core.poll(&*access, epoch, now)
                {
                    requests.push((*key, request));
                }
            }
            requests
        });
        let busy = !requests.is_empty();
        for (key, request) in requests {
            let (version, body) = match request {
                FetcherRequest::Fetch(fetch) => (FETCH_VERSION, RequestBody::Fetch(fetch)),
                FetcherRequest::ListOffsets(list) => {
                    (LIST_OFFSETS_VERSION, RequestBody::ListOffsets(list))
                }
            };
            let request = RpcRequest::Kafka { version, body };
            let purpose = Purpose::Fetcher(key);
            let rpc = self.ask(Address::Node(id), key.leader, request, purpose, timeout);
            fetchers.with_slots(|slots| {
                if let Some(slot) = slots.get_mut(&key) {
                    slot.request = Some(rpc);
                }
            });
        }
        busy
    }

    fn send_calls(&mut self, id: NodeId) -> bool {
        let now = self.now();
        let nodes = self.node_ids.clone();
        let timeout = self.config.settings.answer_timeout;
        let Some(process) = self.process(id) else {
            return false;
        };
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut process.call_queue).into_iter().partition(|(at, _)| *at <= now);
        process.call_queue = later;
        let busy = !due.is_empty();
        let mut sent = Vec::new();
        for (_, call) in due {
            let Some(pending) = process.calls.get(&call) else {
                continue;
            };
            if now >= pending.deadline {
                if let Some(pending) = process.calls.remove(&call) {
                    (pending.reply)(Err(CallError::TimedOut));
                }
                continue;
            }
            let request =
                RpcRequest::Call { version: pending.version, body: pending.request.clone() };
            sent.push((call, process.route.target(&nodes), request));
        }
        for (call, target, request) in sent {
            self.ask(Address::Node(id), target, request, Purpose::Call(call), timeout);
        }
        busy
    }

    fn read_metadata(&mut self, id: NodeId) -> bool {
        let now = self.now();
        let nodes = self.node_ids.clone();
        let timeout = self.config.settings.answer_timeout;
        let Some(process) = self.process(id) else {
            return false;
        };
        if process.reading.is_some() || process.read_again_at > now {
            return false;
        }
        let target = process.route.target(&nodes);
        let from = process.image.offset().next();
        let rpc =
            self.ask(Address::Node(id), target, RpcRequest::Read { from }, Purpose::Read, timeout);
        if let Some(process) = self.process(id) {
            process.reading = Some(rpc);
        }
        true
    }

    fn answer_reads(&mut self, id: NodeId) -> Result<()> {
        let now = self.now();
        let Some(process) = self.process(id) else {
            return Ok(());
        };
        let high_watermark = process.controller.status().high_watermark;
        let has_news = |from: Offset| high_watermark >= from.max(Offset(1));
        let (ready, parked): (Vec<_>, Vec<_>) = std::mem::take(&mut process.parked_reads)
            .into_iter()
            .partition(|read| has_news(read.from) || read.until <= now);
        process.parked_reads = parked;
        let mut answers = Vec::new();
        for read in ready {
            let found = if has_news(read.from) {
                process.controller.read_metadata(read.from, READ_BYTES)?
            } else {
                MetadataRead::Batches(Vec::new())
            };
            answers.push((read.rpc, RpcAnswer::Read { read: found, high_watermark }));
        }
        for (rpc, answer) in answers {
            self.answer(rpc, answer);
        }
        Ok(())
    }

    /// Has the node called when the next of its parts wants it.
    fn arm_timer(&mut self, id: NodeId) {
        let now = self.now();
        let Some(process) = self.process(id) else {
            return;
        };
        let fetchers = process.fetchers.with_slots(|slots| {
            slots
                .values()
                .filter_map(|slot| slot.core.next_wakeup(now))
                .filter(|at| *at > now)
                .min()
        });
        let calls = process.call_queue.iter().map(|(at, _)| *at).min();
        let reading = process.reading.is_none().then_some(process.read_again_at);
        let reads = process.parked_reads.iter().map(|read| read.until).min();
        let mut next = process.core_wake.min(process.controller.next_wakeup());
        for at in [fetchers, calls, reading, reads].into_iter().flatten() {
            next = next.min(at);
        }
        if process.timer.is_some_and(|at| at <= next) {
            return;
        }
        process.timer = Some(next);
        let life = process.life;
        self.schedule(next, WorldEvent::Node { node: id, life, event: NodeEvent::Timer });
    }
}
