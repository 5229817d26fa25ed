//! A controller: its quorum member and, while that one leads, the state that decides.
//!
//! What it decides itself is when an answer may leave. A decision's answer leaves once its records
//! are committed in the epoch they were proposed in. An answer without records leaves once all that
//! the working state contained when it was given is committed, and only under the leader's lease
//! (Q03), so that nobody reads what a later leader may deny. Everything else is NOT_CONTROLLER with
//! the leader's id: the asker retries there, and finds out what became of its request (Q07).
//!
//! A new leader becomes active when an entry of its own epoch is committed and applied (Q01): it
//! decides from the committed image only. Sync and deterministic: the simulator drives this type.

mod describe;
mod sink;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use protocol::messages::{RequestBody, ResponseBody};
use protocol::types::{LeaderEpoch, NodeId, Offset};
use protocol::{ApiKey, ErrorCode};
use replication::time::{Instant, Now};
use replication::trace::{Event, Why};

use crate::events;
use crate::image::{ApplyError, ClusterImage, ImageDelta};
use crate::quorum::{
    Committed, LogEntry, QuorumConfig, QuorumError, QuorumNode, QuorumRole, QuorumSnapshot,
    QuorumStorage,
};
use crate::records::{
    MetadataRecord, MetadataSnapshot, RecordDecodeError, decode_batch, encode_batch,
};
use crate::state::{ControllerConfig, ControllerState, RequestContext, is_served};

pub use sink::{CollectedEffects, MetadataRead, NodeSink, NodeStatus, Reply, ReplyToken};

/// Answers that wait for their records; more are refused, so that a leader that cannot commit does
/// not collect requests without bound.
const MAX_PENDING: usize = 10_000;

/// The fixed facts about a controller.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The quorum's part.
    pub quorum: QuorumConfig,
    /// The deciding part.
    pub state: ControllerConfig,
    /// `metadata.log.max.record.bytes.between.snapshots`: a snapshot is made after so many bytes.
    pub snapshot_bytes: u64,
    /// And after so many batches at the latest.
    pub snapshot_batches: u64,
    /// How many batches before a snapshot stay in the log for voters that are a little behind.
    pub kept_batches: u64,
    /// Where the controllers listen, for DescribeQuorum.
    pub endpoints: Vec<ControllerEndpoint>,
}

/// Where one controller listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerEndpoint {
    /// The controller.
    pub node_id: NodeId,
    /// Its listener's name (`controller.listener.names`).
    pub listener: String,
    /// A host name or address.
    pub host: String,
    /// The port of its gRPC service.
    pub port: u16,
}

impl NodeConfig {
    /// Kafka's default of 20 MiB between snapshots, and bounds of our own on batches.
    pub fn new(quorum: QuorumConfig, state: ControllerConfig) -> Self {
        Self {
            quorum,
            state,
            snapshot_bytes: 20 * 1024 * 1024,
            snapshot_batches: 20_000,
            kept_batches: 1_000,
            endpoints: Vec::new(),
        }
    }
}

/// What stops a controller. All of it is final.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The quorum member failed.
    #[error(transparent)]
    Quorum(#[from] QuorumError),
    /// A committed batch or snapshot holds no records of ours.
    #[error("committed metadata at offset {offset}: {source}")]
    Decode {
        /// Of the batch.
        offset: u64,
        /// What is wrong with it.
        source: RecordDecodeError,
    },
    /// A committed batch does not fit the image before it.
    #[error("committed metadata at offset {offset}: {source}")]
    Apply {
        /// Of the batch.
        offset: u64,
        /// What is wrong with it.
        source: ApplyError,
    },
}

/// An answer that waits until `index` is committed in `epoch`.
#[derive(Debug)]
struct Pending {
    index: u64,
    epoch: i32,
    has_records: bool,
    token: ReplyToken,
    response: ResponseBody,
}

#[derive(Clone, Copy, Debug)]
struct Observer {
    next_offset: u64,
    last_fetch_ms: i64,
    last_caught_up_ms: i64,
    at: Instant,
}

/// One controller. Inputs change it; [`ControllerNode::drain`] performs what they brought about and
/// must follow each input or small group of inputs.
pub struct ControllerNode<S: QuorumStorage> {
    quorum: QuorumNode<S>,
    config: NodeConfig,
    committed: ClusterImage,
    /// The deciding state and the epoch it decides in, while this controller is active.
    active: Option<(ControllerState, i32)>,
    /// The last offset whose records the working state contains.
    working_index: u64,
    pending: VecDeque<Pending>,
    replies: Vec<(ReplyToken, Reply)>,
    observers: BTreeMap<NodeId, Observer>,
    since_snapshot: (u64, u64),
}

impl<S: QuorumStorage> ControllerNode<S> {
    /// Starts a controller from what its storage holds.
    ///
    /// # Errors
    /// When the storage or the snapshot in it is not usable.
    pub fn new(config: NodeConfig, storage: S, now: Now) -> Result<Self, NodeError> {
        let snapshot = storage.snapshot()?;
        let quorum = QuorumNode::new(config.quorum.clone(), storage, now)?;
        let committed = match &snapshot {
            Some(snapshot) => image_of(snapshot)?,
            None => ClusterImage::default(),
        };
        Ok(Self {
            quorum,
            config,
            committed,
            active: None,
            working_index: 0,
            pending: VecDeque::new(),
            replies: Vec::new(),
            observers: BTreeMap::new(),
            since_snapshot: (0, 0),
        })
    }

    /// Lets time pass: elections, heartbeats between controllers, and what the active state does
    /// by itself (fencing silent brokers, C01). To be called at [`ControllerNode::next_wakeup`].
    pub fn on_tick(&mut self, now: Now) {
        self.quorum.tick(now);
        if self.is_active()
            && self.quorum.can_propose()
            && let Some((state, _)) = &mut self.active
        {
            let records = state.on_tick(now);
            // A failed proposal makes the state inactive; there is nobody to tell.
            let _ = self.propose(&records, now);
        }
    }

    /// When [`ControllerNode::on_tick`] is due next.
    pub fn next_wakeup(&self) -> Instant {
        self.quorum.next_wakeup()
    }

    /// Takes a message of another controller. Messages that no correct controller sends are dropped.
    ///
    /// # Errors
    /// Only what is final.
    pub fn on_raft_message(&mut self, message: Bytes, now: Now) -> Result<(), NodeError> {
        match self.quorum.step(message, now) {
            Err(error) if error.is_harmless() => {
                tracing::warn!(%error, "dropped a controller's message");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Takes a request; the reply comes out of a later [`ControllerNode::drain`] under `token`.
    pub fn on_request(
        &mut self,
        context: &RequestContext,
        api_version: i16,
        body: &RequestBody,
        token: ReplyToken,
        now: Now,
    ) {
        if !self.is_active() || !self.quorum.can_propose() || !self.quorum.has_lease(now) {
            self.replies.push((token, self.not_controller()));
            return;
        }
        if self.pending.len() >= MAX_PENDING {
            self.replies.push((token, Reply::Failed(ErrorCode::RequestTimedOut)));
            return;
        }
        if let RequestBody::DescribeQuorum(request) = body {
            let response = self.describe_quorum(request, api_version, now);
            self.park(token, response.into(), false);
            return;
        }
        if !is_served(body.api_key()) {
            let refusal = Reply::Failed(ErrorCode::UnsupportedVersion);
            self.replies.push((token, refusal));
            return;
        }
        let Some((state, _)) = &mut self.active else { return };
        let decision = state.on_request(context, api_version, body, now);
        match self.propose(&decision.records, now) {
            Ok(()) => self.park(token, decision.response, !decision.records.is_empty()),
            Err(error) => self.replies.push((token, Reply::Failed(error))),
        }
    }

    /// Proposes a decision that the working state already contains. When that fails, the working
    /// state is wrong and is dropped.
    fn propose(&mut self, records: &[MetadataRecord], now: Now) -> Result<(), ErrorCode> {
        if records.is_empty() {
            return Ok(());
        }
        match self.quorum.propose(encode_batch(records), now) {
            Ok(index) => {
                let decided = self.active.as_ref().map(|(state, _)| state.image().offset());
                let decided = decided.map(Offset::get);
                assert_eq!(decided, Some(index as i64), "a batch is numbered as it is stored");
                self.working_index = index;
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "a decision could not be proposed; starting again");
                self.active = None;
                Err(ErrorCode::UnknownServerError)
            }
        }
    }

    fn park(&mut self, token: ReplyToken, response: ResponseBody, has_records: bool) {
        let epoch = self.quorum.status().epoch;
        let index = self.working_index;
        self.pending.push_back(Pending { index, epoch, has_records, token, response });
    }

    /// Performs everything outstanding, see [`crate::quorum`] for the order. Messages leave through
    /// `sink` while the disk is being written, the rest after.
    ///
    /// # Errors
    /// Final: this controller must stop, its storage or its image is in doubt.
    pub fn drain(&mut self, now: Now, sink: &mut dyn NodeSink) -> Result<(), NodeError> {
        loop {
            let update = self.quorum.drain(now, &mut |to, message| sink.send(to, message))?;
            for committed in update.committed {
                match committed {
                    Committed::Entry(entry) => self.apply_entry(&entry, now, sink)?,
                    Committed::Snapshot(snapshot) => self.apply_snapshot(&snapshot, sink)?,
                }
            }
            self.follow_role();
            self.maybe_snapshot()?;
            // Becoming active may decide something at once, which wants to be proposed and drained.
            if !self.maybe_activate(now) {
                break;
            }
            let controller = self.config.quorum.node_id;
            let term = i64::from(self.quorum.status().epoch);
            let why = Why::QuorumElection;
            sink.events(None, true, vec![Event::ControllerElected { controller, term, why }]);
        }
        self.release(self.quorum.status().committed, now);
        for (token, reply) in self.replies.drain(..) {
            sink.reply(token, reply);
        }
        Ok(())
    }

    fn apply_entry(
        &mut self,
        entry: &LogEntry,
        now: Now,
        sink: &mut dyn NodeSink,
    ) -> Result<(), NodeError> {
        let offset = entry.index;
        let records =
            decode_batch(&entry.data).map_err(|source| NodeError::Decode { offset, source })?;
        let (at, epoch) = (Offset(offset as i64), LeaderEpoch(entry.term as i32));
        let before = sink.wants_events().then(|| self.committed.clone());
        let mut delta = ImageDelta::default();
        self.committed
            .apply_batch(at, epoch, &records, &mut delta)
            .map_err(|source| NodeError::Apply { offset, source })?;
        self.since_snapshot.0 += entry.data.len() as u64;
        self.since_snapshot.1 += 1;
        sink.committed(at, epoch, &records);
        if let Some(before) = before {
            let leads = self.quorum.status().role == QuorumRole::Leader;
            sink.events(Some(at), leads, events::between(&before, &self.committed, &delta));
        }
        if self.pending.front().is_some_and(|pending| pending.index <= offset) {
            // Another leader's entry where ours was proposed: ours is lost.
            let lost = |pending: &Pending| pending.index == offset && pending.epoch != epoch.get();
            if self.pending.iter().any(lost) {
                self.fail_pending();
            }
            self.release(offset, now);
        }
        Ok(())
    }

    fn apply_snapshot(
        &mut self,
        snapshot: &QuorumSnapshot,
        sink: &mut dyn NodeSink,
    ) -> Result<(), NodeError> {
        // Only followers get snapshots, and what waited here may or may not be in it.
        self.fail_pending();
        self.committed = image_of(snapshot)?;
        self.since_snapshot = (0, 0);
        sink.replaced(&self.committed);
        Ok(())
    }

    /// Releases the answers that waited for offsets up to `committed`.
    fn release(&mut self, committed: u64, now: Now) {
        let epoch = self.quorum.status().epoch;
        while let Some(first) = self.pending.front()
            && first.index <= committed
        {
            let Some(pending) = self.pending.pop_front() else { break };
            let may_speak =
                pending.has_records || (pending.epoch == epoch && self.quorum.has_lease(now));
            let reply =
                if may_speak { Reply::Answer(pending.response) } else { self.not_controller() };
            self.replies.push((pending.token, reply));
        }
    }

    /// Gives up the deciding state, and what waits for it, once its epoch is over.
    fn follow_role(&mut self) {
        let status = self.quorum.status();
        let leads = |epoch: i32| status.role == QuorumRole::Leader && status.epoch == epoch;
        if self.active.as_ref().is_some_and(|(_, epoch)| !leads(*epoch)) {
            self.active = None;
        }
        if self.pending.front().is_some_and(|pending| !leads(pending.epoch)) {
            self.fail_pending();
        }
    }

    fn fail_pending(&mut self) {
        let reply = self.not_controller();
        for pending in self.pending.drain(..) {
            self.replies.push((pending.token, reply.clone()));
        }
    }

    fn not_controller(&self) -> Reply {
        let status = self.quorum.status();
        let leader = status.leader.filter(|_| status.role != QuorumRole::Leader);
        Reply::NotController { leader, epoch: status.epoch }
    }

    /// Starts to decide once all of this leader's log is committed and applied; true when it just
    /// did. (After a proposal failed, that is when the ones before it are through.)
    fn maybe_activate(&mut self, now: Now) -> bool {
        let status = self.quorum.status();
        let is_ready = status.is_settled_leader
            && status.committed == status.last
            && self.committed.offset() == Offset(status.committed as i64);
        if self.active.is_some() || !is_ready {
            return false;
        }
        let image = self.committed.clone();
        let (state, records) = ControllerState::become_active(
            self.config.state.clone(),
            image,
            LeaderEpoch(status.epoch),
            now,
        );
        self.working_index = status.committed;
        self.active = Some((state, status.epoch));
        tracing::info!(epoch = status.epoch, offset = status.committed, "controller is active");
        let _ = self.propose(&records, now);
        true
    }

    fn maybe_snapshot(&mut self) -> Result<(), NodeError> {
        let (bytes, batches) = self.since_snapshot;
        if bytes < self.config.snapshot_bytes && batches < self.config.snapshot_batches {
            return Ok(());
        }
        self.since_snapshot = (0, 0);
        let index = self.committed.offset().get() as u64;
        let data = self.committed.to_snapshot().to_bytes();
        tracing::info!(offset = index, bytes = data.len(), "metadata snapshot");
        Ok(self.quorum.create_snapshot(index, data, self.config.kept_batches)?)
    }

    /// What a reader of the committed metadata gets next, when `from` is the first offset it lacks:
    /// the whole image for a new reader or one that the log cannot serve any more, else at most
    /// about `max_bytes` of batches, none when it has everything.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_metadata(&self, from: Offset, max_bytes: u64) -> Result<MetadataRead, NodeError> {
        let from = u64::try_from(from.get()).unwrap_or(0);
        let entries = if from == 0 { None } else { self.quorum.read_committed(from, max_bytes)? };
        match entries {
            Some(entries) => Ok(MetadataRead::Batches(entries)),
            None if self.committed.offset() < Offset(1) => Ok(MetadataRead::Batches(Vec::new())),
            None => Ok(MetadataRead::Snapshot {
                offset: self.committed.offset(),
                epoch: self.committed.epoch(),
                data: self.committed.to_snapshot().to_bytes(),
            }),
        }
    }

    /// Hands leadership to another voter before a clean stop; `None` when there is nothing or nobody
    /// (but those `lost`) to hand it to. Done when [`ControllerNode::status`] shows another leader.
    pub fn resign(&mut self, lost: &BTreeSet<NodeId>, now: Now) -> Option<NodeId> {
        self.quorum.resign(lost, now)
    }

    /// Notes that messages to `peer` were lost.
    pub fn report_unreachable(&mut self, peer: NodeId) {
        self.quorum.report_unreachable(peer);
    }

    /// Whether this controller decides at the moment.
    pub fn is_active(&self) -> bool {
        let status = self.quorum.status();
        self.active
            .as_ref()
            .is_some_and(|(_, epoch)| status.role == QuorumRole::Leader && status.epoch == *epoch)
    }

    /// Where this controller stands, cheap to compare.
    pub fn status(&self) -> NodeStatus {
        let quorum = self.quorum.status();
        NodeStatus {
            node_id: self.config.quorum.node_id,
            role: quorum.role,
            leader: quorum.leader,
            epoch: quorum.epoch,
            high_watermark: self.committed.offset(),
            is_active: self.is_active(),
        }
    }

    /// The committed image.
    pub fn image(&self) -> &ClusterImage {
        &self.committed
    }

    /// The deciding state while active: for tests and for the trace.
    pub fn state(&self) -> Option<&ControllerState> {
        self.active.as_ref().map(|(state, _)| state)
    }

    /// The quorum member: for tests, invariants and metrics.
    pub fn quorum(&self) -> &QuorumNode<S> {
        &self.quorum
    }

    /// Ends this controller and gives its storage back.
    pub fn into_storage(self) -> S {
        self.quorum.into_storage()
    }
}

/// The APIs that a controller answers itself, before the deciding state.
pub fn is_answered_by_node(api_key: ApiKey) -> bool {
    api_key == ApiKey::DescribeQuorum
}

fn image_of(snapshot: &QuorumSnapshot) -> Result<ClusterImage, NodeError> {
    let offset = snapshot.index;
    let decoded = MetadataSnapshot::from_bytes(&snapshot.data)
        .map_err(|source| NodeError::Decode { offset, source })?;
    ClusterImage::from_snapshot(&decoded).map_err(|source| NodeError::Apply { offset, source })
}
