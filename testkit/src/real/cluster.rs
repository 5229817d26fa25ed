//! A cluster of child processes on free ports of the loopback interface: started, broken, waited
//! on, and read replica by replica.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::messages::metadata_response::MetadataResponsePartition;
use protocol::messages::{CreateTopicsRequest, MetadataResponse};
use tempfile::TempDir;

use super::encryption::Encryption;
use super::links::Links;
use super::process::{NodeProcess, find_binary, free_ports};
use crate::client::{Client, ReadRecord, fetch_request};

/// The number of a node, from 1.
pub type NodeId = i32;

/// How long a wait takes before it fails, unless the builder says otherwise.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at the cluster.
const POLL: Duration = Duration::from_millis(10);

/// What a cluster shall be.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    brokers: i32,
    settings: Vec<(String, String)>,
    node_settings: Vec<(NodeId, String, String)>,
    binary: Option<PathBuf>,
    patience: Duration,
    links: bool,
    encryption: Option<Encryption>,
}

/// What of a link is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// Fetches of followers.
    Data,
    /// What goes to controllers.
    Control,
}

/// A running cluster; dropping it kills its processes and removes its files.
#[derive(Debug)]
pub struct Cluster {
    binary: PathBuf,
    folder: TempDir,
    ports: BTreeMap<NodeId, u16>,
    controller_ports: BTreeMap<NodeId, u16>,
    ssl_ports: BTreeMap<NodeId, u16>,
    running: BTreeMap<NodeId, NodeProcess>,
    patience: Duration,
    /// Last: the network goes when nobody is in it any more.
    links: Option<Links>,
}

impl ClusterBuilder {
    /// How many nodes, each broker and controller.
    #[must_use]
    pub fn brokers(mut self, brokers: i32) -> Self {
        self.brokers = brokers;
        self
    }

    /// Sets a config key on every node.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.push((key.into(), value.to_string()));
        self
    }

    /// Sets a config key on one node; stronger than what all are told.
    #[must_use]
    pub fn set_on(mut self, node: NodeId, key: &str, value: impl ToString) -> Self {
        self.node_settings.push((node, key.into(), value.to_string()));
        self
    }

    /// The `highwater` binary; found beside the running program otherwise.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Gives every node a network of its own, so that links can be cut; see [`Links`] for what that
    /// needs.
    #[must_use]
    pub fn with_links(mut self, links: bool) -> Self {
        self.links = links;
        self
    }

    /// Puts clients, if they wish, brokers and controllers under TLS.
    #[must_use]
    pub fn encrypted(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// How long waits last before they fail.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Starts the nodes and waits until every one of them sees all as live.
    pub fn start(self) -> Result<Cluster> {
        let binary = self.binary.clone().map_or_else(find_binary, Ok)?;
        let count = self.brokers as usize;
        let ports = free_ports(3 * count)?;
        let numbered = |from: usize| (1..).zip(ports[from..from + count].iter().copied()).collect();
        let ids: Vec<NodeId> = (1..=self.brokers).collect();
        let links = if self.links { Some(Links::make(&ids)?) } else { None };
        let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
        let mut cluster = Cluster {
            binary,
            folder,
            ports: numbered(0),
            controller_ports: numbered(count),
            ssl_ports: numbered(2 * count),
            running: BTreeMap::new(),
            patience: self.patience,
            links,
        };
        for node in 1..=self.brokers {
            let own = self.node_settings.iter().filter(|(of, ..)| *of == node);
            let own = own.map(|(_, key, value)| (key.clone(), value.clone()));
            let settings: Vec<_> = self.settings.iter().cloned().chain(own).collect();
            cluster.write_properties(node, self.encryption.as_ref(), &settings)?;
        }
        for node in 1..=self.brokers {
            cluster.start(node)?;
        }
        cluster.wait_until_all_live()?;
        Ok(cluster)
    }
}

impl Cluster {
    /// Three nodes with Kafka's defaults, unless the builder is told otherwise.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder {
            brokers: 3,
            settings: Vec::new(),
            node_settings: Vec::new(),
            binary: None,
            patience: DEFAULT_PATIENCE,
            links: false,
            encryption: None,
        }
    }

    fn write_properties(
        &self,
        node: NodeId,
        encryption: Option<&Encryption>,
        settings: &[(String, String)],
    ) -> Result<()> {
        let controllers = self.controller_ports.iter();
        let voters: Vec<String> =
            controllers.map(|(id, port)| format!("{id}@{}:{port}", self.host(*id))).collect();
        let host = self.host(node);
        let plain = format!("{host}:{}", self.port(node));
        let control = format!("{host}:{}", self.controller_ports[&node]);
        let mut text = String::new();
        writeln!(text, "node.id={node}")?;
        writeln!(text, "process.roles=broker,controller")?;
        if let Some(encryption) = encryption {
            let ssl = format!("{host}:{}", self.ssl_ports[&node]);
            text += &encryption.properties(&plain, &ssl, &control);
        } else {
            writeln!(text, "listeners=PLAINTEXT://{plain},CONTROLLER://{control}")?;
            writeln!(text, "advertised.listeners=PLAINTEXT://{plain}")?;
            let map = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT";
            writeln!(text, "listener.security.protocol.map={map}")?;
        }
        writeln!(text, "controller.listener.names=CONTROLLER")?;
        writeln!(text, "controller.quorum.voters={}", voters.join(","))?;
        writeln!(text, "log.dirs={}", self.data_folder(node).display())?;
        for (key, value) in settings {
            writeln!(text, "{key}={value}")?;
        }
        fs::create_dir_all(self.node_folder(node))?;
        fs::write(self.properties(node), text)?;
        Ok(())
    }

    fn node_folder(&self, node: NodeId) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    fn properties(&self, node: NodeId) -> PathBuf {
        self.node_folder(node).join("server.properties")
    }

    /// The folder with a node's logs.
    pub fn data_folder(&self, node: NodeId) -> PathBuf {
        self.node_folder(node).join("data")
    }

    /// What a node printed so far, over all its lives.
    pub fn output(&self, node: NodeId) -> String {
        fs::read_to_string(self.node_folder(node).join("output")).unwrap_or_default()
    }

    /// The node's client port.
    pub fn port(&self, node: NodeId) -> u16 {
        self.ports[&node]
    }

    /// The node's address.
    fn host(&self, node: NodeId) -> String {
        self.links.as_ref().map_or("127.0.0.1".into(), |links| links.address(node))
    }

    /// Whether links can be cut.
    pub fn can_cut(&self) -> bool {
        self.links.is_some()
    }

    /// Cuts the link between two nodes, both ways: packets are lost until [`Cluster::heal`].
    ///
    /// # Errors
    /// In a cluster that was built without links.
    pub fn cut(&mut self, one: NodeId, other: NodeId, plane: Plane) -> Result<()> {
        let ports = match plane {
            Plane::Data => &self.ports,
            Plane::Control => &self.controller_ports,
        };
        let (one, other) = ((one, ports[&one]), (other, ports[&other]));
        let links = self.links.as_mut().context("this cluster has no links that can be cut")?;
        links.cut(one, other)
    }

    /// Makes all links whole.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn heal(&mut self) -> Result<()> {
        self.links.as_mut().map_or(Ok(()), Links::heal)
    }

    /// All client addresses, as clients take them.
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<String> =
            self.ports.iter().map(|(node, port)| format!("{}:{port}", self.host(*node))).collect();
        addresses.join(",")
    }

    /// The addresses under TLS of all nodes, if the cluster is encrypted.
    pub fn ssl_bootstrap(&self) -> String {
        let ports = self.ssl_ports.iter();
        let addresses = ports.map(|(node, port)| format!("{}:{port}", self.host(*node)));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The ids of all nodes, running or not.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.ports.keys().copied().collect()
    }

    /// The process id of a running node.
    pub fn pid(&self, node: NodeId) -> Option<u32> {
        self.running.get(&node).map(NodeProcess::id)
    }

    /// Starts a node that does not run; returns at once.
    pub fn start(&mut self, node: NodeId) -> Result<()> {
        ensure!(!self.running.contains_key(&node), "node {node} runs already");
        let log = self.node_folder(node).join("output");
        let nodes = self.ports.len();
        let command = self.links.as_ref().map(|links| links.command(node)).unwrap_or_default();
        let properties = self.properties(node);
        let process = NodeProcess::start_under(&command, &self.binary, &properties, &log, nodes)?;
        self.running.insert(node, process);
        Ok(())
    }

    /// Kills a node as a crash does.
    pub fn kill(&mut self, node: NodeId) -> Result<()> {
        self.take(node)?.kill()
    }

    /// Stops a node cleanly: its leaders move first.
    pub fn stop(&mut self, node: NodeId) -> Result<()> {
        let patience = self.patience;
        let status = self.take(node)?.stop(patience)?;
        ensure!(status.success(), "node {node} ended with {status}:\n{}", self.output(node));
        Ok(())
    }

    /// Freezes a node: alive, and silent.
    pub fn freeze(&mut self, node: NodeId) -> Result<()> {
        self.running.get_mut(&node).with_context(|| format!("node {node} does not run"))?.freeze()
    }

    /// Ends a freeze.
    pub fn thaw(&mut self, node: NodeId) -> Result<()> {
        self.running.get_mut(&node).with_context(|| format!("node {node} does not run"))?.thaw()
    }

    fn take(&mut self, node: NodeId) -> Result<NodeProcess> {
        self.running.remove(&node).with_context(|| format!("node {node} does not run"))
    }

    /// A connection to a node.
    pub fn client(&self, node: NodeId) -> Result<Client> {
        Client::connect(&format!("{}:{}", self.host(node), self.port(node)), self.patience)
    }

    /// The cluster as some responsive node sees it.
    pub fn metadata(&self) -> Result<MetadataResponse> {
        let mut last = None;
        for (node, process) in &self.running {
            if process.is_frozen() {
                continue;
            }
            match self.client(*node).and_then(|mut client| client.metadata()) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node runs")))
    }

    /// Waits for `what` to come true; fails after the cluster's patience with what was seen last.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Cluster) -> Result<std::result::Result<T, String>>,
    ) -> Result<T> {
        let deadline = Instant::now() + self.patience;
        loop {
            let seen = match look(self) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(seen)) => seen,
                Err(error) => format!("{error:#}"),
            };
            self.check_alive()?;
            if Instant::now() > deadline {
                bail!("waited {:?} for {what}; last: {seen}", self.patience);
            }
            std::thread::sleep(POLL);
        }
    }

    fn check_alive(&mut self) -> Result<()> {
        let mut ended = None;
        for (node, process) in &mut self.running {
            if !process.is_running()? {
                ended = Some(*node);
            }
        }
        match ended {
            Some(node) => bail!("node {node} ended by itself:\n{}", self.output(node)),
            None => Ok(()),
        }
    }

    /// Waits until every running node knows every running node as live.
    pub fn wait_until_all_live(&mut self) -> Result<()> {
        let nodes: Vec<NodeId> = self.running.keys().copied().collect();
        self.wait_for("all brokers to be live on all nodes", move |cluster| {
            for node in &nodes {
                let metadata = cluster.client(*node)?.metadata()?;
                let mut live: Vec<NodeId> = metadata.brokers.iter().map(|b| b.node_id).collect();
                live.sort_unstable();
                if live != nodes {
                    return Ok(Err(format!("node {node} sees {live:?}")));
                }
            }
            Ok(Ok(()))
        })
    }

    /// Creates a topic with one partition per list of replicas, the first of each preferred, and
    /// waits until every running node knows its leaders.
    pub fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[NodeId]],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let request = create_topic_request(topic, partitions, configs);
        self.wait_for("the topic to be created", |cluster| {
            let node = *cluster.running.keys().next().context("no node runs")?;
            let response = cluster.client(node)?.call(5, request.clone())?;
            let result = response.topics.first().context("no topic in the answer")?;
            match result.error_code {
                // Created now, or by a try whose answer was lost.
                0 | 36 => Ok(Ok(())),
                code => Ok(Err(format!("error {code}: {:?}", result.error_message))),
            }
        })?;
        let nodes: Vec<NodeId> = self.running.keys().copied().collect();
        let wanted = partitions.len();
        self.wait_for("the topic to be known everywhere", |cluster| {
            for node in &nodes {
                let metadata = cluster.client(*node)?.metadata()?;
                let known = partitions_of(&metadata, topic);
                if known.iter().filter(|partition| partition.leader_id >= 0).count() != wanted {
                    return Ok(Err(format!("node {node} sees {known:?}")));
                }
            }
            Ok(Ok(()))
        })
    }

    /// One partition as a responsive node sees it.
    pub fn partition(&self, topic: &str, partition: i32) -> Result<MetadataResponsePartition> {
        let metadata = self.metadata()?;
        let found = partitions_of(&metadata, topic)
            .into_iter()
            .find(|candidate| candidate.partition_index == partition);
        found.with_context(|| format!("no partition {topic}-{partition}"))
    }

    /// The leader of a partition; an error while it has none.
    pub fn leader(&self, topic: &str, partition: i32) -> Result<NodeId> {
        let leader = self.partition(topic, partition)?.leader_id;
        ensure!(leader >= 0, "{topic}-{partition} has no leader");
        Ok(leader)
    }

    /// Waits until the partition is led by a node other than `old`; returns the new leader.
    pub fn wait_for_other_leader(
        &mut self,
        topic: &str,
        partition: i32,
        old: NodeId,
    ) -> Result<NodeId> {
        self.wait_for("another leader", |cluster| {
            let seen = cluster.partition(topic, partition)?;
            if seen.leader_id >= 0 && seen.leader_id != old {
                return Ok(Ok(seen.leader_id));
            }
            Ok(Err(format!("{seen:?}")))
        })
    }

    /// Waits until the ISR is exactly `isr`, in any order.
    pub fn wait_for_isr(&mut self, topic: &str, partition: i32, isr: &[NodeId]) -> Result<()> {
        let mut wanted = isr.to_vec();
        wanted.sort_unstable();
        self.wait_for("the ISR", |cluster| {
            let seen = cluster.partition(topic, partition)?;
            let mut isr = seen.isr_nodes.clone();
            isr.sort_unstable();
            if isr == wanted { Ok(Ok(())) } else { Ok(Err(format!("{seen:?}, wanted {wanted:?}"))) }
        })
    }

    /// Reads a replica's own log to its end, whoever leads: what a debugging replica may see.
    pub fn read_replica(
        &self,
        node: NodeId,
        topic: &str,
        partition: i32,
    ) -> Result<Vec<ReadRecord>> {
        read_log_files(&self.data_folder(node).join(format!("{topic}-{partition}")))
    }

    /// The high watermark that a node gives with a fetch at `offset`.
    pub fn high_watermark(
        &self,
        node: NodeId,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<i64> {
        let data =
            self.client(node)?.fetch_with(12, fetch_request(topic, partition, offset), topic)?;
        ensure!(data.error_code == 0, "fetch from node {node}: error {}", data.error_code);
        Ok(data.high_watermark)
    }

    /// Waits until all running replicas hold the same records; returns them.
    pub fn wait_for_equal_replicas(
        &mut self,
        topic: &str,
        partition: i32,
    ) -> Result<Vec<ReadRecord>> {
        let nodes: Vec<NodeId> = self.running.keys().copied().collect();
        self.wait_for("equal replicas", |cluster| {
            let logs: Vec<Vec<ReadRecord>> = nodes
                .iter()
                .map(|node| cluster.read_replica(*node, topic, partition))
                .collect::<Result<_>>()?;
            if logs.windows(2).all(|pair| pair[0] == pair[1]) {
                return Ok(Ok(logs.into_iter().next().unwrap_or_default()));
            }
            let ends: Vec<_> = logs.iter().map(|log| log.last().map(|last| last.offset)).collect();
            Ok(Err(format!("last offsets {ends:?}")))
        })
    }
}

/// Reads the batches of all segments in a partition's folder, in offset order.
pub(super) fn read_log_files(folder: &Path) -> Result<Vec<ReadRecord>> {
    let mut segments: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let mut records = Vec::new();
    for segment in segments {
        let bytes = fs::read(&segment)?;
        crate::client::read_batches(bytes.into(), 0, &mut records)
            .with_context(|| format!("in {}", segment.display()))?;
    }
    Ok(records)
}

pub(super) fn partitions_of(
    metadata: &MetadataResponse,
    topic: &str,
) -> Vec<MetadataResponsePartition> {
    metadata
        .topics
        .iter()
        .filter(|known| known.name.as_deref() == Some(topic))
        .flat_map(|known| known.partitions.clone())
        .collect()
}

pub(super) fn create_topic_request(
    topic: &str,
    partitions: &[&[NodeId]],
    configs: &[(&str, &str)],
) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: topic.into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: (0..)
                .zip(partitions)
                .map(|(index, replicas)| CreatableReplicaAssignment {
                    partition_index: index,
                    broker_ids: replicas.to_vec(),
                    ..Default::default()
                })
                .collect(),
            configs: configs
                .iter()
                .map(|(name, value)| CreatableTopicConfig {
                    name: (*name).into(),
                    value: Some((*value).into()),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        timeout_ms: 20_000,
        ..Default::default()
    }
}
