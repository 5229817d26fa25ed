//! The real host of a controller: one thread that owns it, waits for an input or the next tick, lets
//! the controller work, and carries out the effects. Disk writes happen on this thread only, so no
//! task of the async runtime ever waits for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use protocol::messages::RequestBody;
use protocol::types::{LeaderEpoch, NodeId, Offset};
use replication::time::{Instant, Now};
use replication::trace::{Event, NoTrace, TraceSink};
use tokio::sync::{oneshot, watch};

use super::peers::Peers;
use super::secure::ControlSecurity;
use super::server;
use crate::image::ClusterImage;
use crate::node::{
    ControllerNode, MetadataRead, NodeConfig, NodeError, NodeSink, NodeStatus, Reply, ReplyToken,
};
use crate::quorum::{FileQuorumStorage, QuorumError};
use crate::records::MetadataRecord;
use crate::state::RequestContext;

/// Inputs that wait for the controller's thread. Quorum messages beyond it are dropped, calls refused.
const INPUT_QUEUE: usize = 4096;
/// Inputs handled before their effects are carried out together (one disk write for all of them).
const INPUTS_AT_ONCE: usize = 256;
/// How long a clean stop waits for another controller to take over.
pub const HANDOVER_PATIENCE: Duration = Duration::from_millis(1000);

/// Reads the two clocks of the real host.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    start: std::time::Instant,
}

impl MonotonicClock {
    /// A clock whose monotonic zero is now.
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// Both clocks, read once.
    pub fn now(&self) -> Now {
        let wall_clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            monotonic: Instant(self.start.elapsed()),
            wall_clock_ms: i64::try_from(wall_clock.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// What a controller process needs to know.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The cluster that this controller is part of; others are refused (104).
    pub cluster_id: String,
    /// The controller's own facts.
    pub node: NodeConfig,
    /// The folder of its log and snapshots.
    pub folder: PathBuf,
    /// Where the other voters listen, as `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// The process's clock.
    pub clock: MonotonicClock,
    /// The TLS of the listener, and of the way to the others.
    pub security: ControlSecurity,
    /// How long a clean stop waits for a successor, [`HANDOVER_PATIENCE`] as a rule.
    pub handover_patience: Duration,
}

/// Why a controller did not start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Its storage or its state is unusable.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The gRPC service did not start or failed.
    #[error("the controller's service: {0}")]
    Service(String),
    /// The thread could not be started.
    #[error("the controller's thread: {0}")]
    Thread(std::io::Error),
}

/// Why an in-process call has no reply of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// More calls wait than the controller takes.
    #[error("the controller is overloaded")]
    Overloaded,
    /// The controller stopped; whether it decided is not known.
    #[error("the controller stopped")]
    Stopped,
}

pub(crate) enum Input {
    Raft(Bytes),
    Unreachable(NodeId),
    Call {
        context: RequestContext,
        api_version: i16,
        body: Box<RequestBody>,
        reply: oneshot::Sender<Reply>,
    },
    Read {
        from: Offset,
        max_bytes: u64,
        observer: NodeId,
        reply: oneshot::Sender<Result<MetadataRead, NodeError>>,
    },
    Image(oneshot::Sender<ClusterImage>),
    Stop,
}

/// Talks to the controller of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    inputs: SyncSender<Input>,
    status: watch::Receiver<NodeStatus>,
    pub(crate) cluster_id: Arc<str>,
}

impl ControllerHandle {
    /// Asks this controller, whether it leads or not.
    ///
    /// # Errors
    /// [`CallFailure`] when it gives no reply.
    pub async fn call(
        &self,
        context: RequestContext,
        api_version: i16,
        body: RequestBody,
    ) -> Result<Reply, CallFailure> {
        let (reply, receiver) = oneshot::channel();
        self.send(Input::Call { context, api_version, body: Box::new(body), reply })?;
        receiver.await.map_err(|_| CallFailure::Stopped)
    }

    /// The next committed metadata from `from` on, for the reader `observer` (-1: unnamed).
    ///
    /// # Errors
    /// [`CallFailure`] when it gives no reply; also when its storage cannot be read.
    pub async fn read_metadata(
        &self,
        from: Offset,
        max_bytes: u64,
        observer: NodeId,
    ) -> Result<MetadataRead, CallFailure> {
        let (reply, receiver) = oneshot::channel();
        self.send(Input::Read { from, max_bytes, observer, reply })?;
        match receiver.await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => {
                tracing::error!(%error, "the committed metadata could not be read");
                Err(CallFailure::Stopped)
            }
            Err(_) => Err(CallFailure::Stopped),
        }
    }

    /// The committed image of this controller.
    ///
    /// # Errors
    /// [`CallFailure`] when it gives no reply.
    pub async fn image(&self) -> Result<ClusterImage, CallFailure> {
        let (reply, receiver) = oneshot::channel();
        self.send(Input::Image(reply))?;
        receiver.await.map_err(|_| CallFailure::Stopped)
    }

    /// Where this controller stands, and every change of it. Closed when it stopped.
    pub fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// Waits until the controller has stopped.
    pub async fn stopped(&self) {
        let mut status = self.status.clone();
        while status.changed().await.is_ok() {}
    }

    /// Hands in a quorum message; drops it when the controller is behind.
    pub(crate) fn offer(&self, input: Input) {
        if let Err(TrySendError::Full(_)) = self.inputs.try_send(input) {
            tracing::debug!("dropped a quorum input, the controller is behind");
        }
    }

    fn send(&self, input: Input) -> Result<(), CallFailure> {
        self.inputs.try_send(input).map_err(|error| match error {
            TrySendError::Full(_) => CallFailure::Overloaded,
            TrySendError::Disconnected(_) => CallFailure::Stopped,
        })
    }
}

/// A running controller: its thread, its service and its streams to the others.
#[derive(Debug)]
pub struct ControllerHost {
    handle: ControllerHandle,
    /// `None` once its end was heard of.
    ended: Option<oneshot::Receiver<Result<(), HostError>>>,
    stop_service: Option<oneshot::Sender<()>>,
    service: tokio::task::JoinHandle<Result<(), HostError>>,
}

impl ControllerHost {
    /// Opens the storage, starts the controller and serves it on `listener`.
    ///
    /// # Errors
    /// When the storage is unusable or the thread cannot be started.
    pub async fn start(
        config: HostConfig,
        listener: tokio::net::TcpListener,
    ) -> Result<Self, HostError> {
        Self::start_traced(config, listener, Arc::new(NoTrace)).await
    }

    /// As [`ControllerHost::start`], and tells `trace` what the cluster decides while this controller
    /// leads.
    ///
    /// # Errors
    /// As [`ControllerHost::start`].
    pub async fn start_traced(
        config: HostConfig,
        listener: tokio::net::TcpListener,
        trace: Arc<dyn TraceSink>,
    ) -> Result<Self, HostError> {
        let (inputs, queue) = sync_channel(INPUT_QUEUE);
        let tls = config.security.server.clone();
        let (started, on_start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let cluster_id: Arc<str> = config.cluster_id.as_str().into();
        let runtime = tokio::runtime::Handle::current();
        let feedback = inputs.clone();
        std::thread::Builder::new()
            .name(format!("controller-{}", config.node.quorum.node_id))
            .spawn(move || run_thread(&runtime, config, trace, feedback, &queue, started, end))
            .map_err(HostError::Thread)?;
        let stopped_early = || HostError::Service("the thread ended while it started".to_owned());
        let status = on_start.await.map_err(|_| stopped_early())??;
        let handle = ControllerHandle { inputs, status, cluster_id };
        let (stop_service, service_stops) = oneshot::channel();
        let service = tokio::spawn(server::serve(handle.clone(), listener, tls, service_stops));
        Ok(Self { handle, ended: Some(ended), stop_service: Some(stop_service), service })
    }

    /// Talks to this controller within the process.
    pub fn handle(&self) -> ControllerHandle {
        self.handle.clone()
    }

    /// Waits until the controller ends by itself, which it only does on a final error. Told once.
    pub async fn wait_for_failure(&mut self) -> HostError {
        let Some(ended) = &mut self.ended else {
            return std::future::pending().await;
        };
        let result = ended.await;
        self.ended = None;
        match result {
            Ok(Err(error)) => error,
            _ => HostError::Service("the controller's thread ended".to_owned()),
        }
    }

    /// Stops cleanly: leadership is handed over first where there is somebody to take it.
    ///
    /// # Errors
    /// What the controller failed with, if it did.
    pub async fn stop(mut self) -> Result<(), HostError> {
        let mut input = Input::Stop;
        // The queue may be full for a moment.
        while let Err(TrySendError::Full(back)) = self.handle.inputs.try_send(input) {
            input = back;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ended = match self.ended.take() {
            Some(ended) => ended.await.unwrap_or(Ok(())),
            None => Ok(()),
        };
        if let Some(stop) = self.stop_service.take() {
            let _ = stop.send(());
        }
        // Streams of brokers end with the service's task.
        let _ = tokio::time::timeout(Duration::from_millis(200), &mut self.service).await;
        self.service.abort();
        ended
    }
}

impl Drop for ControllerHost {
    fn drop(&mut self) {
        self.service.abort();
        let _ = self.handle.inputs.try_send(Input::Stop);
    }
}

type Started = Result<watch::Receiver<NodeStatus>, HostError>;

fn run_thread(
    runtime: &tokio::runtime::Handle,
    config: HostConfig,
    trace: Arc<dyn TraceSink>,
    feedback: SyncSender<Input>,
    queue: &Receiver<Input>,
    started: oneshot::Sender<Started>,
    end: oneshot::Sender<Result<(), HostError>>,
) {
    let clock = config.clock;
    let opened = FileQuorumStorage::open(&config.folder)
        .map_err(NodeError::from)
        .and_then(|storage| ControllerNode::new(config.node.clone(), storage, clock.now()));
    let node = match opened {
        Ok(node) => node,
        Err(error) => {
            let _ = started.send(Err(error.into()));
            return;
        }
    };
    let (status, status_receiver) = watch::channel(node.status());
    let peers = Peers::connect(
        runtime,
        &config.cluster_id,
        config.node.quorum.node_id,
        &config.peers,
        config.security.client.as_ref(),
        feedback,
    );
    let mut thread = Thread {
        node,
        clock,
        status,
        effects: Effects {
            peers,
            waiting: BTreeMap::new(),
            node: config.node.quorum.node_id,
            clock,
            trace,
        },
        next_token: 0,
        stopping: None,
        handover_patience: config.handover_patience,
    };
    if started.send(Ok(status_receiver)).is_err() {
        return;
    }
    let result = thread.run(queue);
    if let Err(error) = &result {
        tracing::error!(%error, "the controller stopped");
    }
    // The storage is closed before anybody hears of the end.
    drop(thread);
    let _ = end.send(result.map_err(HostError::from));
}

struct Thread {
    node: ControllerNode<FileQuorumStorage>,
    clock: MonotonicClock,
    status: watch::Sender<NodeStatus>,
    effects: Effects,
    next_token: u64,
    stopping: Option<Stopping>,
    handover_patience: Duration,
}

/// A controller that leaves once another leads, or nobody is there to.
struct Stopping {
    /// For so long at most.
    until: Instant,
    /// Those that could not be reached since and do not count as successors: nodes that are told to stop
    /// together must not wait for each other.
    lost: BTreeSet<NodeId>,
}

impl Thread {
    fn run(&mut self, queue: &Receiver<Input>) -> Result<(), NodeError> {
        loop {
            let wait = self.node.next_wakeup().since(self.clock.now().monotonic);
            match queue.recv_timeout(wait) {
                Ok(input) => self.on_input(input)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            for _ in 1..INPUTS_AT_ONCE {
                let Ok(input) = queue.try_recv() else { break };
                self.on_input(input)?;
            }
            let now = self.clock.now();
            self.node.on_tick(now);
            let has_successor = self.stopping.as_ref().map(|stopping| {
                now.monotonic < stopping.until && self.node.resign(&stopping.lost, now).is_some()
            });
            self.node.drain(now, &mut self.effects)?;
            let status = self.node.status();
            self.status.send_if_modified(|known| {
                let changed = *known != status;
                *known = status;
                changed
            });
            if has_successor == Some(false) {
                return Ok(());
            }
        }
    }

    fn on_input(&mut self, input: Input) -> Result<(), NodeError> {
        let now = self.clock.now();
        match input {
            Input::Raft(message) => self.node.on_raft_message(message, now)?,
            Input::Unreachable(peer) => {
                self.node.report_unreachable(peer);
                if let Some(stopping) = &mut self.stopping {
                    stopping.lost.insert(peer);
                }
            }
            Input::Call { context, api_version, body, reply } => {
                self.next_token += 1;
                self.effects.waiting.insert(self.next_token, reply);
                let token = ReplyToken(self.next_token);
                self.node.on_request(&context, api_version, &body, token, now);
            }
            Input::Read { from, max_bytes, observer, reply } => {
                self.node.on_observer(observer, from, now);
                let _ = reply.send(self.node.read_metadata(from, max_bytes));
            }
            Input::Image(reply) => {
                let _ = reply.send(self.node.image().clone());
            }
            Input::Stop => {
                let until = now.monotonic + self.handover_patience;
                self.stopping.get_or_insert(Stopping { until, lost: BTreeSet::new() });
            }
        }
        Ok(())
    }
}

struct Effects {
    peers: Peers,
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
    node: NodeId,
    clock: MonotonicClock,
    trace: Arc<dyn TraceSink>,
}

impl NodeSink for Effects {
    fn send(&mut self, to: NodeId, message: Bytes) {
        self.peers.send(to, message);
    }

    fn reply(&mut self, token: ReplyToken, reply: Reply) {
        if let Some(waiting) = self.waiting.remove(&token.0) {
            // The asker may have given up.
            let _ = waiting.send(reply);
        }
    }

    // Readers of the metadata follow the status and read from the log at their own pace.
    fn committed(&mut self, _offset: Offset, _epoch: LeaderEpoch, _records: &[MetadataRecord]) {}

    fn replaced(&mut self, _image: &ClusterImage) {}

    fn events(&mut self, _offset: Option<Offset>, leads: bool, events: Vec<Event>) {
        if leads {
            for event in events {
                self.trace.emit(self.clock.now(), self.node, event);
            }
        }
    }

    fn wants_events(&self) -> bool {
        self.trace.is_enabled()
    }
}

impl From<QuorumError> for HostError {
    fn from(error: QuorumError) -> Self {
        HostError::Node(NodeError::Quorum(error))
    }
}
