//! One simulated node: the broker's own core and the controller's own node, over a disk and a quorum
//! storage that outlive them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use broker::core::groups::GroupConfig;
use broker::core::host::{ControllerReply, Host, NoCertificates};
use broker::core::lifecycle::{AdvertisedListener, BrokerLifecycle, LifecycleConfig};
use broker::core::replicas::{
    OpenReplicas, ReplicaManager, ReplicaManagerConfig, open_dirs, previous_broker_epoch,
};
use broker::core::{BrokerCore, HandlerConfig};
use bytes::Bytes;
use controller::ClusterImage;
use controller::node::{ControllerNode, NodeConfig, NodeSink, Reply, ReplyToken};
use controller::quorum::QuorumConfig;
use controller::records::MetadataRecord;
use controller::state::ControllerConfig;
use coordinator::ShardConfig;
use fetcher::FetcherConfig;
use protocol::{LeaderEpoch, NodeId, Offset, RequestBody, Uuid};
use replication::time::{Instant, Now};
use replication::trace::Event;
use storage::Identity;

use super::clock::SimClock;
use super::disk::{CrashKind, SimDisk};
use super::links::{Connections, Outbox, SimFetchers, SimTrace};
use super::network::{Address, Envelope, Kind};
use super::quorum_storage::SimQuorumStorage;

/// The one listener of simulated brokers.
pub const LISTENER: &str = "PLAINTEXT";
/// The id of every simulated cluster.
pub const CLUSTER_ID: &str = "simulated-cluster-0001";

/// The timeouts and configs of all nodes.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// `broker.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max: Duration,
    /// `replica.fetch.wait.max.ms`.
    pub replica_fetch_wait_max: Duration,
    /// `replica.fetch.backoff.ms`.
    pub replica_fetch_backoff: Duration,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval: Duration,
    /// `controller.quorum.election.timeout.ms`.
    pub quorum_election_timeout: Duration,
    /// `controller.quorum.fetch.timeout.ms`.
    pub quorum_fetch_timeout: Duration,
    /// How long anybody waits for an answer beyond what the other side may hold it back.
    pub answer_timeout: Duration,
    /// After how many batches a controller makes a snapshot, and how many older ones its log keeps; few
    /// let whoever falls behind get snapshots.
    pub snapshots: Option<(u64, u64)>,
    /// How many log directories every broker has.
    pub log_dirs: usize,
    /// The properties of every node: defaults of topics, and the controller's.
    pub properties: BTreeMap<String, String>,
}

impl Default for NodeSettings {
    /// Short timeouts in Kafka's proportions: a virtual second is as cheap as its messages.
    fn default() -> Self {
        Self {
            session_timeout: Duration::from_millis(1800),
            heartbeat_interval: Duration::from_millis(400),
            replica_lag_time_max: Duration::from_millis(3000),
            replica_fetch_wait_max: Duration::from_millis(300),
            replica_fetch_backoff: Duration::from_millis(100),
            high_watermark_checkpoint_interval: Duration::from_millis(1000),
            quorum_election_timeout: Duration::from_millis(400),
            quorum_fetch_timeout: Duration::from_millis(800),
            answer_timeout: Duration::from_millis(1500),
            snapshots: None,
            log_dirs: 1,
            properties: BTreeMap::new(),
        }
    }
}

/// A request to the controller that the core waits for.
pub(super) struct PendingCall {
    pub(super) version: i16,
    pub(super) request: RequestBody,
    pub(super) deadline: Instant,
    pub(super) reply: ControllerReply,
}

/// Which controller to ask.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Route {
    pub(super) leader: Option<(NodeId, i32)>,
    pub(super) next: usize,
}

impl Route {
    pub(super) fn target(&self, nodes: &[NodeId]) -> NodeId {
        match self.leader {
            Some((leader, _)) => leader,
            None => nodes[self.next % nodes.len()],
        }
    }

    pub(super) fn learn(&mut self, leader: NodeId, epoch: i32) {
        if self.leader.is_none_or(|(_, known)| epoch >= known) {
            self.leader = Some((leader, epoch));
        }
    }

    pub(super) fn move_on(&mut self, from: NodeId, nodes: &[NodeId]) {
        if self.leader.is_some_and(|(leader, _)| leader == from) {
            self.leader = None;
        }
        let at = nodes.iter().position(|node| *node == from).unwrap_or(0);
        self.next = at + 1;
    }
}

/// A broker that asked for metadata and waits until there is some.
pub(super) struct ParkedRead {
    pub(super) rpc: u64,
    pub(super) from: Offset,
    pub(super) until: Instant,
}

/// The process of a node.
pub struct RunningNode {
    /// Which start of the node this is, from 1.
    pub life: u32,
    /// The broker.
    pub core: Arc<BrokerCore<SimDisk>>,
    /// The controller.
    pub controller: ControllerNode<SimQuorumStorage>,
    /// The followers' side.
    pub fetchers: Arc<SimFetchers>,
    pub(super) outbox: Outbox,
    pub(super) connections: Connections,
    /// The metadata that the broker has read.
    pub(super) image: ClusterImage,
    pub(super) route: Route,
    pub(super) reading: Option<u64>,
    pub(super) read_again_at: Instant,
    pub(super) calls: BTreeMap<u64, PendingCall>,
    /// Calls to be sent, again, then.
    pub(super) call_queue: Vec<(Instant, u64)>,
    /// When the core wants to be called.
    pub(super) core_wake: Instant,
    /// When the node's timer goes off.
    pub(super) timer: Option<Instant>,
    /// Who waits for which decision.
    pub(super) serving: BTreeMap<u64, (Address, u64)>,
    pub(super) parked_reads: Vec<ParkedRead>,
    /// Kafka requests that came before the broker was known: who asked, number, version, request.
    pub(super) unserved: Vec<(Address, u64, i16, RequestBody)>,
    pub(super) stopping: bool,
    /// The broker is closed; the process ends by then at the latest.
    pub(super) closed_by: Option<Instant>,
}

/// A node, running or not.
pub struct SimNode {
    /// Its id.
    pub id: NodeId,
    /// Its disk.
    pub disk: SimDisk,
    /// Its clocks.
    pub clock: SimClock,
    pub(super) quorum_storage: SimQuorumStorage,
    pub(super) lives: u32,
    pub(super) running: Option<RunningNode>,
    pub(super) frozen: bool,
    /// Until then it waits for its slow disk.
    pub(super) busy_until: Instant,
    /// How it dies, and after how many more changes that the cleaner makes to its disk.
    pub(super) dies_cleaning: Option<(CrashKind, u64)>,
    /// What came while it was frozen.
    pub(super) backlog: Vec<super::world::NodeEvent>,
}

impl std::fmt::Debug for SimNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNode")
            .field("id", &self.id)
            .field("lives", &self.lives)
            .finish_non_exhaustive()
    }
}

/// The path of a node's log directory number `at`, from 0.
pub fn log_dir(at: usize) -> PathBuf {
    match at {
        0 => PathBuf::from("/data"),
        _ => PathBuf::from(format!("/data{at}")),
    }
}

fn uuid_of(node: NodeId, life: u32, what: u8) -> Uuid {
    let mut bytes = [0x51; 16];
    bytes[0] = what;
    bytes[4..8].copy_from_slice(&node.get().to_be_bytes());
    bytes[8..12].copy_from_slice(&life.to_be_bytes());
    Uuid(bytes)
}

impl SimNode {
    pub(super) fn new(id: NodeId, clock: SimClock) -> Self {
        Self {
            id,
            disk: SimDisk::new(),
            clock,
            quorum_storage: SimQuorumStorage::new(),
            lives: 0,
            running: None,
            frozen: false,
            busy_until: Instant::ZERO,
            dies_cleaning: None,
            backlog: Vec::new(),
        }
    }

    /// The process, if it runs.
    pub fn running(&self) -> Option<&RunningNode> {
        self.running.as_ref()
    }

    /// Whether it runs and is not frozen.
    pub fn is_responsive(&self) -> bool {
        self.running.is_some() && !self.frozen
    }

    pub(super) fn start(
        &mut self,
        settings: &NodeSettings,
        nodes: &[NodeId],
        seed: u64,
        trace: &SimTrace,
    ) -> Result<()> {
        self.lives += 1;
        let life = self.lives;
        let now = self.clock.read();
        let outbox = Outbox::default();
        let mut fetching = FetcherConfig::new(self.id);
        fetching.max_wait = settings.replica_fetch_wait_max;
        fetching.backoff = settings.replica_fetch_backoff;
        let fetchers = SimFetchers::new(fetching, self.clock.clone(), outbox.clone());
        let wake = outbox.clone();
        let host = Host {
            clock: Arc::new(self.clock.clone()),
            controller: Arc::new(outbox.clone()),
            fetchers: fetchers.clone(),
            certificates: Arc::new(NoCertificates),
            trace: Arc::new(trace.clone()),
            wake_by: Arc::new(move |at| wake.push(super::links::Action::WakeBy(at))),
        };
        let core = self.open_broker(settings, host, seed)?;
        fetchers.set_access(&core.replicas);
        let controller = self.open_controller(settings, nodes, seed, now)?;
        self.running = Some(RunningNode {
            life,
            core,
            controller,
            fetchers,
            outbox,
            connections: Connections::default(),
            image: ClusterImage::default(),
            route: Route { leader: None, next: self.id.get().unsigned_abs() as usize },
            reading: None,
            read_again_at: now.monotonic,
            calls: BTreeMap::new(),
            call_queue: Vec::new(),
            core_wake: now.monotonic,
            timer: None,
            serving: BTreeMap::new(),
            parked_reads: Vec::new(),
            unserved: Vec::new(),
            stopping: false,
            closed_by: None,
        });
        Ok(())
    }

    fn open_broker(
        &self,
        settings: &NodeSettings,
        host: Host,
        seed: u64,
    ) -> Result<Arc<BrokerCore<SimDisk>>> {
        let dirs: Vec<PathBuf> = (0..settings.log_dirs).map(log_dir).collect();
        let config = ReplicaManagerConfig {
            node: self.id,
            replica_lag_time_max: settings.replica_lag_time_max,
            fetch_max_bytes: 50 << 20,
            high_watermark_checkpoint_interval: settings.high_watermark_checkpoint_interval,
            recovery_point_checkpoint_interval: Duration::from_secs(60),
            log_start_checkpoint_interval: Duration::from_secs(60),
            retention_check_interval: Duration::from_secs(300),
            rack_aware_selector: false,
            static_configs: Arc::new(settings.properties.clone()),
            fetch_session_slots: 1000,
            seed: seed ^ (u64::from(self.lives) << 32) ^ u64::from(self.id.get().unsigned_abs()),
        };
        let identity = Identity { cluster_id: CLUSTER_ID.into(), node_id: self.id };
        let mut at = 0;
        let dirs = open_dirs(&self.disk, &dirs, &identity, || {
            at += 1;
            uuid_of(self.id, 0, 0xd0 + at)
        })?;
        let previous_broker_epoch = previous_broker_epoch(&dirs);
        let open = OpenReplicas { disk: &self.disk, dirs, recovery_threads: 1 };
        let replicas = ReplicaManager::open(open, config, host.clone())
            .with_context(|| format!("node {} opens its log directory", self.id))?;
        let lifecycle = LifecycleConfig {
            node: self.id,
            cluster_id: CLUSTER_ID.into(),
            incarnation: uuid_of(self.id, self.lives, 0x1c),
            listeners: vec![AdvertisedListener {
                name: LISTENER.into(),
                host: format!("node{}", self.id),
                port: 9092,
                security_protocol: 0,
            }],
            rack: None,
            log_dirs: replicas.online_dirs(),
            dir_failure_timeout: settings.session_timeout * 4,
            heartbeat_interval: settings.heartbeat_interval,
            session_timeout: settings.session_timeout,
            previous_broker_epoch,
        };
        let lifecycle = BrokerLifecycle::new(lifecycle, host.clone());
        Ok(BrokerCore::new(CLUSTER_ID.into(), handler_config(settings), host, replicas, lifecycle))
    }

    fn open_controller(
        &self,
        settings: &NodeSettings,
        nodes: &[NodeId],
        seed: u64,
        now: Now,
    ) -> Result<ControllerNode<SimQuorumStorage>> {
        let mut quorum = QuorumConfig::new(self.id, nodes.to_vec());
        quorum.election_timeout = settings.quorum_election_timeout;
        quorum.fetch_timeout = settings.quorum_fetch_timeout;
        quorum.seed = seed;
        let state = ControllerConfig::from_properties(
            CLUSTER_ID,
            self.id,
            seed,
            &controller_properties(settings),
        )?;
        let mut config = NodeConfig::new(quorum, state);
        if let Some((batches, kept)) = settings.snapshots {
            (config.snapshot_batches, config.kept_batches) = (batches, kept);
        }
        ControllerNode::new(config, self.quorum_storage.clone(), now)
            .with_context(|| format!("node {} starts its controller", self.id))
    }
}

fn controller_properties(settings: &NodeSettings) -> BTreeMap<String, String> {
    let mut properties = settings.properties.clone();
    let millis = settings.session_timeout.as_millis().to_string();
    properties.insert("broker.session.timeout.ms".into(), millis);
    properties
}

/// Groups that rebalance within the seconds that a run lasts.
fn group_config() -> GroupConfig {
    let shard = ShardConfig {
        initial_rebalance_delay: Duration::from_millis(300),
        min_session_timeout: Duration::from_millis(500),
        consumer_session_timeout: Duration::from_millis(1500),
        consumer_min_session_timeout: Duration::from_millis(500),
        consumer_heartbeat_interval: Duration::from_millis(300),
        consumer_min_heartbeat_interval: Duration::from_millis(100),
        consumer_assignment_interval: Duration::from_millis(200),
        ..ShardConfig::default()
    };
    GroupConfig { shard, ..GroupConfig::default() }
}

fn handler_config(settings: &NodeSettings) -> HandlerConfig {
    HandlerConfig {
        auto_create_topics: false,
        num_partitions: 1,
        default_replication_factor: 3,
        offsets_topic_partitions: 1,
        offsets_topic_replication_factor: 3,
        transaction_topic_partitions: 1,
        transaction_topic_replication_factor: 3,
        max_request_partitions: 2000,
        groups: group_config(),
        request_timeout: settings.answer_timeout * 4,
    }
}

/// What a controller's drain brought about, in order.
#[derive(Default)]
pub(super) struct ControllerEffects {
    pub(super) messages: Vec<(NodeId, Bytes)>,
    pub(super) replies: Vec<(ReplyToken, Reply)>,
    pub(super) committed: Vec<(Offset, LeaderEpoch, Vec<MetadataRecord>)>,
    /// What the batches mean, and what the controller itself did.
    pub(super) events: BTreeMap<Option<Offset>, Vec<Event>>,
}

impl NodeSink for ControllerEffects {
    fn send(&mut self, to: NodeId, message: Bytes) {
        self.messages.push((to, message));
    }

    fn reply(&mut self, token: ReplyToken, reply: Reply) {
        self.replies.push((token, reply));
    }

    fn committed(&mut self, offset: Offset, epoch: LeaderEpoch, records: &[MetadataRecord]) {
        self.committed.push((offset, epoch, records.to_vec()));
    }

    fn replaced(&mut self, _image: &ClusterImage) {}

    fn events(&mut self, offset: Option<Offset>, _leads: bool, events: Vec<Event>) {
        self.events.entry(offset).or_default().extend(events);
    }

    fn wants_events(&self) -> bool {
        true
    }
}

pub(super) fn raft_envelope(from: NodeId, to: NodeId, message: Bytes) -> Envelope {
    Envelope {
        from: Address::Node(from),
        to: Address::Node(to),
        kind: Kind::Raft,
        payload: super::network::Payload::Raft(message),
    }
}
