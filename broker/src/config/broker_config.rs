//! The typed configuration of one node: everything that Highwater acts on, in groups by who uses it.
//! Durations and sizes carry their units in their types and names; each field names its key.
//!
//! Defaults of topic configs (`log.retention.ms` and its like) are not fields: they reach topics
//! through [`controller::config::ConfigLayers`], which is given [`BrokerConfig::properties`].

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use protocol::NodeId;

use super::checks;
use super::endpoint::{Endpoint, HostAndPort, Voter};
use super::listeners::ListenersConfig;
use super::reader::Reader;
use super::report::{ConfigErrors, ConfigWarning};
use super::seeing::{self, SeeingConfig};
use crate::core::groups::GroupConfig;
use crate::network::{ConnectionLimits, ListenerAddress, NetworkSettings};

/// What a node is (`process.roles`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// It keeps partitions and serves clients.
    pub broker: bool,
    /// It votes in the metadata quorum.
    pub controller: bool,
}

/// The metadata quorum, `controller.quorum.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumConfig {
    /// `controller.quorum.voters`.
    pub voters: Vec<Voter>,
    /// `controller.quorum.bootstrap.servers`: where brokers look for controllers without `voters`.
    pub bootstrap_servers: Vec<HostAndPort>,
    /// `controller.quorum.election.timeout.ms`.
    pub election_timeout: Duration,
    /// `controller.quorum.fetch.timeout.ms`: silence of the leader after which an election begins.
    pub fetch_timeout: Duration,
    /// `controller.quorum.election.backoff.max.ms`.
    pub election_backoff_max: Duration,
    /// `controller.quorum.append.linger.ms`.
    pub append_linger: Duration,
    /// `controller.quorum.request.timeout.ms`.
    pub request_timeout: Duration,
    /// `controller.quorum.retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `metadata.log.max.record.bytes.between.snapshots`.
    pub snapshot_after_bytes: u64,
    /// `metadata.log.max.snapshot.interval.ms`.
    pub snapshot_interval: Duration,
    /// `metadata.max.idle.interval.ms`.
    pub max_idle_interval: Duration,
}

/// Brokers and the controller's view of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivenessConfig {
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `broker.session.timeout.ms`: silence after which a controller fences a broker.
    pub session_timeout: Duration,
    /// `initial.broker.registration.timeout.ms`.
    pub registration_timeout: Duration,
    /// `controlled.shutdown.enable`.
    pub controlled_shutdown: bool,
    /// `request.timeout.ms`: for requests between nodes.
    pub request_timeout: Duration,
    /// `auto.leader.rebalance.enable`.
    pub auto_leader_rebalance: bool,
    /// `leader.imbalance.check.interval.seconds`.
    pub leader_imbalance_check_interval: Duration,
    /// `unclean.leader.election.interval.ms`.
    pub unclean_election_interval: Duration,
}

/// Following and being followed, `replica.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicationConfig {
    /// `num.replica.fetchers`, for each leader.
    pub fetchers: usize,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// `replica.fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `replica.fetch.max.bytes`, for each partition.
    pub fetch_max_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub fetch_response_max_bytes: i32,
    /// `replica.fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `replica.fetch.backoff.ms`.
    pub fetch_backoff: Duration,
    /// `replica.socket.timeout.ms`.
    pub socket_timeout: Duration,
    /// `replica.socket.receive.buffer.bytes` where it is set; else the system decides.
    pub socket_receive_buffer_bytes: Option<usize>,
    /// `replica.high.watermark.checkpoint.interval.ms`.
    pub high_watermark_checkpoint_interval: Duration,
    /// `replica.selector.class`; none is the leader only.
    pub selector_class: Option<String>,
}

/// Serving fetches and parking requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchConfig {
    /// `fetch.max.bytes`: the most one answer carries.
    pub max_bytes: i32,
    /// `max.incremental.fetch.session.cache.slots`.
    pub session_cache_slots: usize,
    /// `fetch.purgatory.purge.interval.requests`.
    pub purge_interval_requests: usize,
    /// `producer.purgatory.purge.interval.requests`.
    pub produce_purge_interval_requests: usize,
    /// `delete.records.purgatory.purge.interval.requests`.
    pub delete_records_purge_interval_requests: usize,
    /// `max.request.partition.size.limit`: partitions in one DescribeTopicPartitions page.
    pub max_partitions_per_page: i32,
}

/// The logs of this node as a whole; what can differ by topic is a topic config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `log.dirs`, or `log.dir` where that is not set.
    pub dirs: Vec<PathBuf>,
    /// `metadata.log.dir`, or the first of the log directories.
    pub metadata_dir: PathBuf,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval: Duration,
    /// `log.initial.task.delay.ms`.
    pub initial_task_delay: Duration,
    /// `log.flush.scheduler.interval.ms`.
    pub flush_scheduler_interval: Duration,
    /// `log.flush.offset.checkpoint.interval.ms`.
    pub recovery_point_checkpoint_interval: Duration,
    /// `log.flush.start.offset.checkpoint.interval.ms`.
    pub start_offset_checkpoint_interval: Duration,
    /// `num.recovery.threads.per.data.dir`.
    pub recovery_threads_per_dir: usize,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration: Duration,
    /// `producer.id.expiration.check.interval.ms`.
    pub producer_id_expiration_check_interval: Duration,
    /// `log.dir.failure.timeout.ms`.
    pub dir_failure_timeout: Duration,
}

/// What topics are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreationConfig {
    /// `auto.create.topics.enable`.
    pub auto_create: bool,
    /// `delete.topic.enable`.
    pub delete_enabled: bool,
    /// `num.partitions`.
    pub partitions: i32,
    /// `default.replication.factor`.
    pub replication_factor: i16,
    /// `offsets.topic.num.partitions`.
    pub offsets_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub offsets_replication_factor: i16,
    /// `transaction.state.log.num.partitions`.
    pub transaction_state_partitions: i32,
    /// `transaction.state.log.replication.factor`.
    pub transaction_state_replication_factor: i16,
}

/// The configuration of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// `node.id`.
    pub node_id: NodeId,
    /// `process.roles`.
    pub roles: Roles,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// The listeners.
    pub listeners: ListenersConfig,
    /// The metadata quorum.
    pub quorum: QuorumConfig,
    /// Heartbeats, sessions, shutdown.
    pub liveness: LivenessConfig,
    /// Following and being followed.
    pub replication: ReplicationConfig,
    /// Serving fetches and parking requests.
    pub fetch: FetchConfig,
    /// The logs of this node.
    pub log: LogConfig,
    /// What topics are made with.
    pub topics: TopicCreationConfig,
    /// The group coordinator.
    pub groups: GroupConfig,
    /// Sockets.
    pub network: NetworkSettings,
    /// Metrics and the request log.
    pub seeing: SeeingConfig,
    /// `highwater.kernel.tls.enable`: whether the kernel may do the TLS of listeners, where it can.
    pub kernel_tls: bool,
    /// `num.network.threads`.
    pub network_threads: usize,
    /// `num.io.threads`.
    pub io_threads: usize,
    /// The settings as they were given, merged: the static layer of DescribeConfigs and of topic defaults.
    pub properties: BTreeMap<String, String>,
}

impl BrokerConfig {
    /// Reads and checks merged settings (see [`super::merge`]). On success the warnings are for the log;
    /// on failure everything that is wrong is told.
    pub fn from_settings(
        settings: &BTreeMap<String, String>,
    ) -> Result<(BrokerConfig, Vec<ConfigWarning>), ConfigErrors> {
        let settings = with_synonyms(settings);
        let mut reader = Reader::new(&settings);
        let config = BrokerConfig::read(&mut reader, settings.clone());
        let mut warnings = reader.warnings();
        checks::check(&config, &mut reader, &mut warnings);
        if reader.errors.is_empty() {
            Ok((config, warnings))
        } else {
            Err(ConfigErrors(reader.errors))
        }
    }

    pub(super) fn read(
        reader: &mut Reader<'_>,
        properties: BTreeMap<String, String>,
    ) -> BrokerConfig {
        let roles = read_roles(reader);
        BrokerConfig {
            node_id: read_node_id(reader),
            roles,
            rack: reader.text("broker.rack"),
            listeners: ListenersConfig::read(reader, roles),
            quorum: read_quorum(reader),
            liveness: read_liveness(reader),
            replication: read_replication(reader),
            fetch: read_fetch(reader),
            log: read_log(reader),
            topics: read_topics(reader),
            groups: super::groups::read(reader),
            network: read_network(reader),
            seeing: seeing::read(reader),
            kernel_tls: reader.flag("highwater.kernel.tls.enable"),
            network_threads: reader.size("num.network.threads"),
            io_threads: reader.size("num.io.threads"),
            properties,
        }
    }

    /// The broker's listeners in the network's terms.
    pub fn listener_addresses(&self) -> Vec<ListenerAddress> {
        let several = self.listeners.broker.len() > 1;
        let address = |endpoint: &Endpoint| ListenerAddress {
            name: endpoint.listener.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
            is_protected: several && endpoint.listener == self.listeners.inter_broker_name,
        };
        self.listeners.broker.iter().map(address).collect()
    }
}

/// `node.id` and `broker.id` stand in for each other where only one is set, as in Kafka.
fn with_synonyms(settings: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut settings = settings.clone();
    for (key, other) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
        if let (None, Some(id)) = (settings.get(key), settings.get(other)) {
            let id = id.clone();
            settings.insert(key.to_owned(), id);
        }
    }
    settings
}

fn read_node_id(reader: &mut Reader<'_>) -> NodeId {
    let node_id = reader.int("node.id");
    let broker_id = reader.int("broker.id");
    if reader.is_set("broker.id") && broker_id != node_id {
        reader.conflict(format!(
            "node.id ({node_id}) and broker.id ({broker_id}) must be the same where both are set"
        ));
    }
    NodeId(node_id)
}

fn read_roles(reader: &mut Reader<'_>) -> Roles {
    let names = reader.list("process.roles");
    let has = |role: &str| names.iter().any(|name| name == role);
    let roles = Roles { broker: has("broker"), controller: has("controller") };
    if !roles.broker && !roles.controller {
        reader.refuse("process.roles", names.join(","), "it must be broker, controller or both");
    }
    roles
}

fn read_quorum(reader: &mut Reader<'_>) -> QuorumConfig {
    let mut voters = Vec::new();
    for text in reader.list("controller.quorum.voters") {
        match Voter::parse(&text) {
            Some(voter) => voters.push(voter),
            None => {
                reader.refuse("controller.quorum.voters", text, "each voter must be id@host:port")
            }
        }
    }
    let mut bootstrap_servers = Vec::new();
    for text in reader.list("controller.quorum.bootstrap.servers") {
        match HostAndPort::parse(&text).filter(|address| !address.host.is_empty()) {
            Some(address) => bootstrap_servers.push(address),
            None => reader.refuse(
                "controller.quorum.bootstrap.servers",
                text,
                "each server must be host:port",
            ),
        }
    }
    QuorumConfig {
        voters,
        bootstrap_servers,
        election_timeout: reader.millis("controller.quorum.election.timeout.ms"),
        fetch_timeout: reader.millis("controller.quorum.fetch.timeout.ms"),
        election_backoff_max: reader.millis("controller.quorum.election.backoff.max.ms"),
        append_linger: reader.millis("controller.quorum.append.linger.ms"),
        request_timeout: reader.millis("controller.quorum.request.timeout.ms"),
        retry_backoff: reader.millis("controller.quorum.retry.backoff.ms"),
        snapshot_after_bytes: reader.size("metadata.log.max.record.bytes.between.snapshots") as u64,
        snapshot_interval: reader.millis("metadata.log.max.snapshot.interval.ms"),
        max_idle_interval: reader.millis("metadata.max.idle.interval.ms"),
    }
}

fn read_liveness(reader: &mut Reader<'_>) -> LivenessConfig {
    LivenessConfig {
        heartbeat_interval: reader.millis("broker.heartbeat.interval.ms"),
        session_timeout: reader.millis("broker.session.timeout.ms"),
        registration_timeout: reader.millis("initial.broker.registration.timeout.ms"),
        controlled_shutdown: reader.flag("controlled.shutdown.enable"),
        request_timeout: reader.millis("request.timeout.ms"),
        auto_leader_rebalance: reader.flag("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval: reader.seconds("leader.imbalance.check.interval.seconds"),
        unclean_election_interval: reader.millis("unclean.leader.election.interval.ms"),
    }
}

fn read_replication(reader: &mut Reader<'_>) -> ReplicationConfig {
    ReplicationConfig {
        fetchers: reader.size("num.replica.fetchers"),
        lag_time_max: reader.millis("replica.lag.time.max.ms"),
        fetch_min_bytes: reader.int("replica.fetch.min.bytes"),
        fetch_max_bytes: reader.int("replica.fetch.max.bytes"),
        fetch_response_max_bytes: reader.int("replica.fetch.response.max.bytes"),
        fetch_wait_max: reader.millis("replica.fetch.wait.max.ms"),
        fetch_backoff: reader.millis("replica.fetch.backoff.ms"),
        socket_timeout: reader.millis("replica.socket.timeout.ms"),
        socket_receive_buffer_bytes: buffer_bytes(reader, "replica.socket.receive.buffer.bytes"),
        high_watermark_checkpoint_interval: reader
            .millis("replica.high.watermark.checkpoint.interval.ms"),
        selector_class: reader.text("replica.selector.class"),
    }
}

fn read_fetch(reader: &mut Reader<'_>) -> FetchConfig {
    FetchConfig {
        max_bytes: reader.int("fetch.max.bytes"),
        session_cache_slots: reader.size("max.incremental.fetch.session.cache.slots"),
        purge_interval_requests: reader.size("fetch.purgatory.purge.interval.requests"),
        produce_purge_interval_requests: reader.size("producer.purgatory.purge.interval.requests"),
        delete_records_purge_interval_requests: reader
            .size("delete.records.purgatory.purge.interval.requests"),
        max_partitions_per_page: reader.int("max.request.partition.size.limit"),
    }
}

fn read_log(reader: &mut Reader<'_>) -> LogConfig {
    let set = reader.list("log.dirs");
    let fallback = reader.list("log.dir");
    let dirs: Vec<PathBuf> = if reader.is_set("log.dirs") { set } else { fallback }
        .into_iter()
        .map(PathBuf::from)
        .collect();
    let metadata_dir = reader.text("metadata.log.dir").map(PathBuf::from);
    LogConfig {
        metadata_dir: metadata_dir.or_else(|| dirs.first().cloned()).unwrap_or_default(),
        dirs,
        retention_check_interval: reader.millis("log.retention.check.interval.ms"),
        initial_task_delay: reader.millis("log.initial.task.delay.ms"),
        flush_scheduler_interval: reader.millis("log.flush.scheduler.interval.ms"),
        recovery_point_checkpoint_interval: reader
            .millis("log.flush.offset.checkpoint.interval.ms"),
        start_offset_checkpoint_interval: reader
            .millis("log.flush.start.offset.checkpoint.interval.ms"),
        recovery_threads_per_dir: reader.size("num.recovery.threads.per.data.dir"),
        producer_id_expiration: reader.millis("producer.id.expiration.ms"),
        producer_id_expiration_check_interval: reader
            .millis("producer.id.expiration.check.interval.ms"),
        dir_failure_timeout: reader.millis("log.dir.failure.timeout.ms"),
    }
}

fn read_topics(reader: &mut Reader<'_>) -> TopicCreationConfig {
    let factor = |number: i32| i16::try_from(number).unwrap_or(i16::MAX);
    TopicCreationConfig {
        auto_create: reader.flag("auto.create.topics.enable"),
        delete_enabled: reader.flag("delete.topic.enable"),
        partitions: reader.int("num.partitions"),
        replication_factor: factor(reader.int("default.replication.factor")),
        offsets_partitions: reader.int("offsets.topic.num.partitions"),
        offsets_replication_factor: factor(reader.int("offsets.topic.replication.factor")),
        transaction_state_partitions: reader.int("transaction.state.log.num.partitions"),
        transaction_state_replication_factor: factor(
            reader.int("transaction.state.log.replication.factor"),
        ),
    }
}

fn read_network(reader: &mut Reader<'_>) -> NetworkSettings {
    NetworkSettings {
        max_request_bytes: reader.size("socket.request.max.bytes"),
        max_idle: reader.millis_or_forever("connections.max.idle.ms"),
        limits: ConnectionLimits {
            total: reader.size("max.connections"),
            per_ip: reader.size("max.connections.per.ip"),
            per_ip_overrides: read_overrides(reader),
        },
        backlog: reader.int("socket.listen.backlog.size").unsigned_abs(),
        send_buffer_bytes: send_buffer_bytes(reader),
        receive_buffer_bytes: buffer_bytes(reader, "socket.receive.buffer.bytes"),
    }
}

/// `socket.send.buffer.bytes`; -1 leaves it to the system.
fn send_buffer_bytes(reader: &mut Reader<'_>) -> Option<usize> {
    const KEY: &str = "socket.send.buffer.bytes";
    let size = reader.optional_size(KEY);
    if reader.is_set(KEY) { size } else { NetworkSettings::default().send_buffer_bytes }
}

/// Kafka's fixed default would only keep the system from fitting the buffer to the connection, so it
/// counts only where it is set.
fn buffer_bytes(reader: &mut Reader<'_>, key: &'static str) -> Option<usize> {
    let size = reader.optional_size(key);
    if reader.is_set(key) { size } else { None }
}

/// `host:count` pairs; a host name counts for each of its addresses.
fn read_overrides(reader: &mut Reader<'_>) -> BTreeMap<IpAddr, usize> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let mut overrides = BTreeMap::new();
    let text = reader.text(KEY).unwrap_or_default();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let pair =
            entry.rsplit_once(':').and_then(|(host, count)| Some((host, count.parse().ok()?)));
        let Some((host, count)) = pair else {
            reader.refuse(KEY, entry, "each entry must be host:count, with a count of at least 0");
            continue;
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (host, 0).to_socket_addrs() {
            Ok(addresses) => {
                overrides.extend(addresses.map(|address| (address.ip().to_canonical(), count)));
            }
            Err(error) => {
                reader.refuse(KEY, entry, format!("{host} is no address that is known: {error}"))
            }
        }
    }
    overrides
}
