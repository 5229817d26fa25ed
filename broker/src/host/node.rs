//! A node: broker, controller or both in one process, started in the order that lets each part find
//! what it needs, stopped in the reverse one with its leaders moved first (C03).

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use controller::client::{ControllerClient, ControllerClientConfig};
use controller::node::{ControllerEndpoint, NodeConfig, NodeStatus};
use controller::quorum::QuorumConfig;
use controller::rpc::{ControllerHost, HANDOVER_PATIENCE, HostConfig, MonotonicClock};
use controller::state::ControllerConfig;
use fetcher::FetcherConfig;
use fetcher::host::ConnectionConfig;
use protocol::{NodeId, Offset, Uuid};
use rand::RngCore;
use replication::trace::{NoTrace, TraceSink};
use storage::{Identity, LogDir, METADATA_FOLDER, RealDisk, checkpoint};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::drive;
use super::errors::{DirsFailure, NodeFailure, StartError};
use super::fetchers::{self, FetcherBoard, FetcherSettings, RealFetcherLink};
use super::links::{RealClock, RealControllerLink, WakeUp};
use super::observing::{Endpoint, Observing};
use super::security::NodeSecurity;
use super::service::CoreService;
use crate::config::BrokerConfig;
use crate::core::host::Host;
use crate::core::lifecycle::{AdvertisedListener, BrokerLifecycle, LifecycleConfig};
use crate::core::replicas::{
    DirToLoad, OpenReplicas, ReplicaManager, ReplicaManagerConfig, StartupError, open_dirs,
    previous_broker_epoch,
};
use crate::core::{BrokerCore, HandlerConfig};
use crate::metrics::{Observer, Teller};
use crate::network::{BoundListeners, NetworkServer};

/// How long a clean stop waits for the controller to let the broker go.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How long requests in flight may take once the broker stops serving.
const ANSWER_GRACE: Duration = Duration::from_millis(500);

/// The longest pause between two looks at whether the broker has caught up.
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// What a node is told beside its configuration.
#[derive(Clone)]
pub struct NodeOptions {
    /// The cluster it belongs to.
    pub cluster_id: String,
    /// Where events go.
    pub trace: Arc<dyn TraceSink>,
}

impl NodeOptions {
    /// A node of `cluster_id` that traces nothing.
    pub fn new(cluster_id: impl Into<String>) -> Self {
        Self { cluster_id: cluster_id.into(), trace: Arc::new(NoTrace) }
    }
}

/// A running node.
pub struct Node {
    broker: Option<RunningBroker>,
    controller: Option<ControllerHost>,
    observing: Arc<Observing>,
    metrics: Option<Endpoint>,
    /// Held for their locks.
    _locked: Vec<LogDir<RealDisk>>,
}

/// What a broker is surrounded with.
#[derive(Clone, Copy)]
struct Around<'a> {
    security: &'a Arc<NodeSecurity>,
    observing: &'a Arc<Observing>,
}

struct RunningBroker {
    core: Arc<BrokerCore<RealDisk>>,
    addresses: BTreeMap<String, SocketAddr>,
    server: JoinHandle<NetworkServer>,
    applied: watch::Receiver<Offset>,
    dirs_failed: watch::Receiver<Option<DirsFailure>>,
    stop_ticks: watch::Sender<bool>,
    ticks: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
}

/// The id of the cluster that a configuration belongs to when none is given: that of a log directory
/// that is formatted already, else one made of the quorum's voters, so that all nodes agree on it
/// without a format step.
///
/// # Errors
/// A `meta.properties` that does not hold together.
pub fn cluster_id_of(config: &BrokerConfig) -> Result<String, storage::LogError> {
    for dir in &config.log.dirs {
        match checkpoint::read_meta_properties(&RealDisk, dir) {
            Ok(Some(meta)) => return Ok(meta.cluster_id),
            // A directory that is out of use; another may know.
            Ok(None) | Err(storage::LogError::Storage { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let voters = config.properties.get("controller.quorum.voters").map_or("", String::as_str);
    let mut bytes = [0; 16];
    for (at, half) in bytes.chunks_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (at, "highwater", voters).hash(&mut hasher);
        half.copy_from_slice(&hasher.finish().to_be_bytes());
    }
    Ok(Uuid(bytes).to_base64())
}

impl Node {
    /// Starts the node. It serves when this returns; it leads when the controller says so.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub async fn start(config: BrokerConfig, options: NodeOptions) -> Result<Node, StartError> {
        let clock = MonotonicClock::start();
        let observing = Observing::prepare(&config, &options.cluster_id, clock)?;
        let security = Arc::new(NodeSecurity::of(&config)?);
        let listener = observing.bind(&config).await?;
        let HeldDirs { logs, locked } = hold_dirs(&config, &options.cluster_id)?;
        let controller = if config.roles.controller {
            let options = observing.counting(Teller::Controller, &options);
            Some(start_controller(&config, &options, &security, clock).await?)
        } else {
            None
        };
        let broker = if config.roles.broker {
            let options = observing.counting(Teller::Broker, &options);
            let around = Around { security: &security, observing: &observing };
            Some(RunningBroker::start(&config, &options, around, clock, logs).await?)
        } else {
            None
        };
        let metrics = observing.serve(listener, controller.as_ref());
        Ok(Node { broker, controller, observing, metrics, _locked: locked })
    }

    /// The broker's core, if the node is a broker.
    pub fn core(&self) -> Option<&Arc<BrokerCore<RealDisk>>> {
        self.broker.as_ref().map(|broker| &broker.core)
    }

    /// The address of a listener of the broker.
    pub fn address(&self, listener: &str) -> Option<SocketAddr> {
        self.broker.as_ref().and_then(|broker| broker.addresses.get(listener).copied())
    }

    /// Where the metrics are, if they are anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Endpoint::address)
    }

    /// Where this node's controller stands, if it has one; closed when it has ended and closed its files.
    pub fn controller_status(&self) -> Option<watch::Receiver<NodeStatus>> {
        self.controller.as_ref().map(|controller| controller.handle().status())
    }

    /// Tells how far committed metadata is applied here, and every change of it.
    pub fn applied_metadata(&self) -> Option<watch::Receiver<Offset>> {
        self.broker.as_ref().map(|broker| broker.applied.clone())
    }

    /// Waits until the node can go on no longer: its controller fails, which it only does on a final
    /// error, or the broker lacks the log directories to go on (C08).
    pub async fn failed(&mut self) -> NodeFailure {
        let broker = &mut self.broker;
        let dirs_failed = async {
            if let Some(broker) = broker
                && let Ok(failure) = broker.dirs_failed.wait_for(Option::is_some).await
                && let Some(failure) = failure.clone()
            {
                return NodeFailure::from(failure);
            }
            std::future::pending().await
        };
        match &mut self.controller {
            Some(controller) => tokio::select! {
                error = controller.wait_for_failure() => error.into(),
                failure = dirs_failed => failure,
            },
            None => dirs_failed.await,
        }
    }

    /// Moves the leaders away and closes the logs; the controller goes on. A cluster in one process stops
    /// all its brokers first, while there are controllers to ask.
    pub async fn stop_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
        self.observing.flush().await;
    }

    /// Moves the leaders away, then stops everything and closes the logs.
    pub async fn stop(mut self) {
        self.stop_broker().await;
        if let Some(controller) = self.controller
            && let Err(error) = controller.stop().await
        {
            tracing::error!(%error, "the controller did not stop cleanly");
        }
    }
}

/// The directories that a node holds, locked from before anything is written to them until it ends.
struct HeldDirs {
    /// `log.dirs`, in order; none when the node is no broker.
    logs: Vec<DirToLoad<RealDisk>>,
    /// Those that only have to stay locked.
    locked: Vec<LogDir<RealDisk>>,
}

/// Makes every directory this node's own, or learns that it is somebody else's, before anything is
/// written to any of them: an empty one is formatted. The directory with the metadata must work, the
/// others may be out of use.
fn hold_dirs(config: &BrokerConfig, cluster_id: &str) -> Result<HeldDirs, StartError> {
    let identity = Identity { cluster_id: cluster_id.to_owned(), node_id: config.node_id };
    let metadata = &config.log.metadata_dir;
    let logs = open_dirs(&RealDisk, &config.log.dirs, &identity, new_uuid);
    let logs = logs.map_err(StartupError::from)?;
    let mut held = HeldDirs { logs, locked: Vec::new() };
    if config.roles.controller {
        match held.logs.iter().position(|dir| dir.path == *metadata) {
            Some(at) if held.logs[at].opened.is_ok() => {}
            Some(at) => {
                let failed = held.logs.swap_remove(at);
                if let Err(error) = failed.opened {
                    return Err(StartupError::Dir(error.into()).into());
                }
            }
            None => {
                let dir = LogDir::open(&RealDisk, metadata, &identity, new_uuid());
                held.locked.push(dir.map_err(StartupError::from)?);
            }
        }
    }
    if !config.roles.broker {
        held.locked.extend(held.logs.drain(..).filter_map(|dir| dir.opened.ok()));
    }
    Ok(held)
}

fn new_uuid() -> Uuid {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    Uuid(bytes)
}

async fn start_controller(
    config: &BrokerConfig,
    options: &NodeOptions,
    security: &NodeSecurity,
    clock: MonotonicClock,
) -> Result<ControllerHost, StartError> {
    let cluster_id = options.cluster_id.as_str();
    let endpoint = config
        .listeners
        .controller
        .first()
        .ok_or_else(|| StartError::Voters("no controller listener".into()))?;
    let host = if endpoint.host.is_empty() { "0.0.0.0" } else { &endpoint.host };
    let address = format!("{host}:{}", endpoint.port);
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .map_err(|source| StartError::ControllerListen { address, source })?;
    let voters: Vec<NodeId> = config.quorum.voters.iter().map(|voter| voter.id).collect();
    // Drawn before the first wait: the generator belongs to one thread.
    let (quorum_seed, state_seed) = (rand::rng().next_u64(), rand::rng().next_u64());
    let quorum = QuorumConfig {
        election_timeout: config.quorum.election_timeout,
        fetch_timeout: config.quorum.fetch_timeout,
        seed: quorum_seed,
        ..QuorumConfig::new(config.node_id, voters)
    };
    let state = ControllerConfig::from_properties(
        cluster_id,
        config.node_id,
        state_seed,
        &config.properties,
    )
    .map_err(|error| StartError::Properties(error.to_string()))?;
    let listener_name = endpoint.listener.clone();
    let endpoints = config.quorum.voters.iter().map(|voter| ControllerEndpoint {
        node_id: voter.id,
        listener: listener_name.clone(),
        host: voter.address.host.clone(),
        port: voter.address.port,
    });
    let node = NodeConfig {
        snapshot_bytes: config.quorum.snapshot_after_bytes,
        endpoints: endpoints.collect(),
        ..NodeConfig::new(quorum, state)
    };
    let host = HostConfig {
        cluster_id: cluster_id.to_owned(),
        node,
        folder: config.log.metadata_dir.join(METADATA_FOLDER),
        peers: peers(config),
        clock,
        security: security.control.clone(),
        handover_patience: HANDOVER_PATIENCE,
    };
    Ok(ControllerHost::start_traced(host, listener, options.trace.clone()).await?)
}

fn peers(config: &BrokerConfig) -> BTreeMap<NodeId, String> {
    let others = config.quorum.voters.iter().filter(|voter| voter.id != config.node_id);
    others.map(|voter| (voter.id, host_and_port(&voter.address))).collect()
}

fn host_and_port(address: &crate::config::HostAndPort) -> String {
    if address.host.contains(':') {
        format!("[{}]:{}", address.host, address.port)
    } else {
        format!("{}:{}", address.host, address.port)
    }
}

impl RunningBroker {
    async fn start(
        config: &BrokerConfig,
        options: &NodeOptions,
        around: Around<'_>,
        clock: MonotonicClock,
        dirs: Vec<DirToLoad<RealDisk>>,
    ) -> Result<Self, StartError> {
        let Around { security, observing } = around;
        let mut listeners =
            BoundListeners::bind(&config.listener_addresses(), config.network.clone()).await?;
        security.encrypt(&mut listeners);
        let client = client_config(config, &options.cluster_id, security);
        let client =
            ControllerClient::new(client).map_err(|error| StartError::Voters(error.to_string()))?;
        let wake_up = WakeUp::new();
        let (orders, changes) = mpsc::unbounded_channel();
        let wake = wake_up.clone();
        let host = Host {
            clock: Arc::new(RealClock(clock)),
            controller: Arc::new(RealControllerLink::new(client.clone())),
            fetchers: Arc::new(RealFetcherLink(orders)),
            certificates: security.clone(),
            trace: options.trace.clone(),
            wake_by: Arc::new(move |at| wake.by(at)),
        };
        let advertised = advertised(config, &listeners)?;
        let core = open_core(config, &options.cluster_id, host, advertised, dirs)?;
        let names = config.listener_addresses().into_iter().map(|address| address.name);
        let addresses = names
            .filter_map(|name| listeners.address(&name).map(|address| (name, address)))
            .collect();
        let board = Arc::new(FetcherBoard::default());
        observing.see_broker(&core, &board);
        let observer = observing.observer();
        let server = tokio::spawn(serve_once_caught_up(core.clone(), listeners, observer));
        let (applied_sender, applied) = watch::channel(Offset::NONE);
        let (stop_ticks, ticks_stopped) = watch::channel(false);
        let (dirs_sender, dirs_failed) = watch::channel(None);
        let metadata_dir = config.roles.controller.then(|| config.log.metadata_dir.clone());
        let dirs = drive::DirWatch { metadata_dir, failed: dirs_sender };
        let cleaning = drive::clean(core.clone(), ticks_stopped.clone());
        let beating = drive::beat(core.clone(), ticks_stopped.clone());
        let ticking = drive::tick(core.clone(), wake_up, ticks_stopped, dirs);
        let ticks = tokio::spawn(async move {
            let others = [tokio::spawn(cleaning), tokio::spawn(beating)];
            ticking.await;
            for other in others {
                let _ = other.await;
            }
        });
        let tasks = vec![
            tokio::spawn(fetchers::run(
                core.clone(),
                fetcher_settings(config, security),
                changes,
                board,
            )),
            tokio::spawn(drive::apply_metadata(
                core.clone(),
                client,
                applied_sender,
                drive::Observers { security: security.clone(), observing: observing.clone() },
            )),
        ];
        Ok(Self { core, addresses, server, applied, dirs_failed, stop_ticks, ticks, tasks })
    }

    async fn stop(self) {
        self.core.begin_stop();
        let deadline = tokio::time::Instant::now() + STOP_PATIENCE;
        while !self.core.may_stop() {
            if tokio::time::Instant::now() > deadline {
                tracing::warn!("the controller did not let the broker go; stopping all the same");
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.server.abort();
        if let Ok(server) = self.server.await {
            server.shutdown(ANSWER_GRACE).await;
        }
        let _ = self.stop_ticks.send(true);
        let _ = self.ticks.await;
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            let _ = task.await;
        }
        self.core.shut_down();
    }
}

/// Answers nobody before this broker's metadata has reached its own registration: what an earlier run
/// left in the metadata, this broker alive among others, is not true any more. Clients that come
/// earlier are connected and wait.
async fn serve_once_caught_up(
    core: Arc<BrokerCore<RealDisk>>,
    listeners: BoundListeners,
    observer: Arc<Observer>,
) -> NetworkServer {
    let mut pause = Duration::from_millis(1);
    while !core.lifecycle.has_caught_up() {
        tokio::time::sleep(pause).await;
        pause = (pause + pause / 4).min(LONGEST_POLL);
    }
    listeners.serve_observed(Arc::new(CoreService(core)), observer)
}

fn client_config(
    config: &BrokerConfig,
    cluster_id: &str,
    security: &NodeSecurity,
) -> ControllerClientConfig {
    let controllers =
        config.quorum.voters.iter().map(|voter| (voter.id, host_and_port(&voter.address)));
    ControllerClientConfig {
        attempt_timeout: config.quorum.request_timeout,
        backoff: config.quorum.retry_backoff,
        tls: security.control.client.clone(),
        ..ControllerClientConfig::new(cluster_id, config.node_id, controllers.collect())
    }
}

fn advertised(
    config: &BrokerConfig,
    listeners: &BoundListeners,
) -> Result<Vec<AdvertisedListener>, StartError> {
    let host_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let bound = |listener: &str| listeners.address(listener).map(|address| address.port());
    let endpoints = config.listeners.effective_advertised(&host_name, bound);
    let endpoints = endpoints.into_iter().map(|endpoint| AdvertisedListener {
        name: endpoint.listener,
        host: endpoint.host,
        port: endpoint.port,
        security_protocol: endpoint.protocol.code(),
    });
    Ok(endpoints.collect())
}

fn open_core(
    config: &BrokerConfig,
    cluster_id: &str,
    host: Host,
    listeners: Vec<AdvertisedListener>,
    dirs: Vec<DirToLoad<RealDisk>>,
) -> Result<Arc<BrokerCore<RealDisk>>, StartError> {
    let incarnation = new_uuid();
    let previous_broker_epoch = previous_broker_epoch(&dirs);
    let replicas = ReplicaManager::open(
        OpenReplicas {
            disk: &RealDisk,
            dirs,
            recovery_threads: config.log.recovery_threads_per_dir,
        },
        replica_manager_config(config),
        host.clone(),
    )?;
    let lifecycle = BrokerLifecycle::new(
        LifecycleConfig {
            node: config.node_id,
            cluster_id: cluster_id.to_owned(),
            incarnation,
            listeners,
            rack: config.rack.clone(),
            log_dirs: replicas.online_dirs(),
            dir_failure_timeout: config.log.dir_failure_timeout,
            heartbeat_interval: config.liveness.heartbeat_interval,
            session_timeout: config.liveness.session_timeout,
            previous_broker_epoch,
        },
        host.clone(),
    );
    let handlers = handler_config(config);
    Ok(BrokerCore::new(cluster_id.to_owned(), handlers, host, replicas, lifecycle))
}

fn replica_manager_config(config: &BrokerConfig) -> ReplicaManagerConfig {
    ReplicaManagerConfig {
        node: config.node_id,
        replica_lag_time_max: config.replication.lag_time_max,
        fetch_max_bytes: config.fetch.max_bytes,
        high_watermark_checkpoint_interval: config.replication.high_watermark_checkpoint_interval,
        recovery_point_checkpoint_interval: config.log.recovery_point_checkpoint_interval,
        log_start_checkpoint_interval: config.log.start_offset_checkpoint_interval,
        retention_check_interval: config.log.retention_check_interval,
        rack_aware_selector: config
            .replication
            .selector_class
            .as_deref()
            .is_some_and(|class| class.ends_with("RackAwareReplicaSelector")),
        static_configs: Arc::new(config.properties.clone()),
        fetch_session_slots: config.fetch.session_cache_slots,
        seed: rand::rng().next_u64(),
    }
}

fn handler_config(config: &BrokerConfig) -> HandlerConfig {
    HandlerConfig {
        auto_create_topics: config.topics.auto_create,
        num_partitions: config.topics.partitions,
        default_replication_factor: config.topics.replication_factor,
        offsets_topic_partitions: config.topics.offsets_partitions,
        offsets_topic_replication_factor: config.topics.offsets_replication_factor,
        transaction_topic_partitions: config.topics.transaction_state_partitions,
        transaction_topic_replication_factor: config.topics.transaction_state_replication_factor,
        max_request_partitions: config.fetch.max_partitions_per_page,
        groups: config.groups.clone(),
        request_timeout: config.liveness.request_timeout,
    }
}

fn fetcher_settings(config: &BrokerConfig, security: &NodeSecurity) -> FetcherSettings {
    let replication = &config.replication;
    FetcherSettings {
        fetcher: FetcherConfig {
            max_wait: replication.fetch_wait_max,
            min_bytes: replication.fetch_min_bytes,
            response_max_bytes: replication.fetch_response_max_bytes,
            partition_max_bytes: replication.fetch_max_bytes,
            backoff: replication.fetch_backoff,
            ..FetcherConfig::new(config.node_id)
        },
        connection: ConnectionConfig {
            timeout: replication.socket_timeout,
            tls: security.to_leaders(),
            ..ConnectionConfig::default()
        },
        fetchers_per_leader: u32::try_from(replication.fetchers).unwrap_or(1),
        inter_broker_listener: config.listeners.inter_broker_name.clone(),
    }
}
