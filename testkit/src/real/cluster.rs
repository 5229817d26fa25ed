//! A cluster on free ports of the loopback interface, its nodes child processes or threads of this one: started,
//! broken, waited on, and read replica by replica.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::MetadataResponse;
use protocol::messages::metadata_response::MetadataResponsePartition;
use tempfile::TempDir;

use super::builder::{self, ClusterBuilder};
use super::crew::{Crew, NodeState};
use super::links::Links;
use super::mesh::Mesh;
use super::proxy::{FaultId, Faults, Harm, Message, Plane, Way};
use super::view::{self, ClusterView, PartitionView, ReplicaView};
use crate::client::{Client, ReadRecord, fetch_request};

/// The number of a node, from 1.
pub type NodeId = i32;

/// Pause between two looks at the cluster.
const POLL: Duration = Duration::from_millis(10);
/// How long a node may take to answer a question about its replicas.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// A running cluster; dropping it kills its nodes and removes its files.
#[derive(Debug)]
pub struct Cluster {
    pub(super) crew: Crew,
    pub(super) ports: BTreeMap<NodeId, u16>,
    pub(super) controller_ports: BTreeMap<NodeId, u16>,
    pub(super) ssl_ports: BTreeMap<NodeId, u16>,
    pub(super) patience: Duration,
    pub(super) mesh: Option<Mesh>,
    /// Late: the network goes when nobody is in it any more.
    pub(super) links: Option<Links>,
    pub(super) folder: TempDir,
}

impl Cluster {
    /// Three nodes with Kafka's defaults, unless the builder is told otherwise.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The folder with a node's logs; the first one if it has several.
    pub fn data_folder(&self, node: NodeId) -> PathBuf {
        self.folder.path().join(format!("node{node}")).join("data")
    }

    /// What a node printed so far, over all its lives.
    pub fn output(&self, node: NodeId) -> String {
        self.crew.output(node)
    }

    /// The node's client port.
    pub fn port(&self, node: NodeId) -> u16 {
        self.ports[&node]
    }

    /// The node's address.
    fn host(&self, node: NodeId) -> String {
        builder::host(self.links.as_ref(), node)
    }

    /// Whether links can be cut.
    pub fn can_cut(&self) -> bool {
        self.links.is_some() || self.mesh.is_some()
    }

    /// Cuts the link between two nodes, both ways, until [`Cluster::heal`].
    ///
    /// # Errors
    /// In a cluster that was built without links and without faults.
    pub fn cut(&mut self, one: NodeId, other: NodeId, plane: Plane) -> Result<()> {
        if self.mesh.is_some() {
            return self.faults()?.cut_both_ways(one, other, Some(plane)).map(|_| ());
        }
        let ports = match plane {
            Plane::Data => &self.ports,
            Plane::Control => &self.controller_ports,
        };
        let (one, other) = ((one, ports[&one]), (other, ports[&other]));
        let links = self.links.as_mut().context("this cluster has no links that can be cut")?;
        links.cut(one, other)
    }

    /// Makes all links whole; messages that were held go on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn heal(&mut self) -> Result<()> {
        if let Some(mesh) = &self.mesh {
            mesh.faults().heal(|_| true);
        }
        self.links.as_mut().map_or(Ok(()), Links::heal)
    }

    /// The faults of the links between nodes.
    ///
    /// # Errors
    /// In a cluster that was built without [`ClusterBuilder::with_faults`].
    pub fn faults(&self) -> Result<&Faults> {
        let mesh = self.mesh.as_ref();
        mesh.map(Mesh::faults).context("this cluster was built without `with_faults(true)`")
    }

    /// Cuts one way only: nothing from one node arrives at the other, on either plane.
    ///
    /// # Errors
    /// As [`Cluster::faults`].
    pub fn cut_one_way(&self, from: NodeId, to: NodeId) -> Result<FaultId> {
        self.faults()?.add(Way::between(from, to), Harm::Cut)
    }

    /// Has everything from one node arrive at the other so much later, and at most so many bytes a second
    /// on each connection.
    ///
    /// # Errors
    /// As [`Faults::add`].
    pub fn slow(
        &self,
        from: NodeId,
        to: NodeId,
        latency: Duration,
        bytes_per_second: Option<u64>,
    ) -> Result<FaultId> {
        self.faults()?.add(Way::between(from, to), Harm::Slow { latency, bytes_per_second })
    }

    /// Holds messages back on a way until they are released, lost or healed.
    ///
    /// # Errors
    /// As [`Faults::add`].
    pub fn hold(&self, message: Message, way: Way) -> Result<FaultId> {
        self.faults()?.add(way, Harm::Hold(message))
    }

    /// Loses messages on a way until that is ended.
    ///
    /// # Errors
    /// As [`Faults::add`].
    pub fn drop_messages(&self, message: Message, way: Way) -> Result<FaultId> {
        self.faults()?.add(way, Harm::Drop(message))
    }

    /// How many messages a fault holds back.
    ///
    /// # Errors
    /// As [`Cluster::faults`], and when it is over.
    pub fn held(&self, fault: FaultId) -> Result<u64> {
        Ok(self.faults()?.get(fault).with_context(|| format!("no fault {fault} is in force"))?.held)
    }

    /// Ends a fault; messages that it held go on, in their order.
    ///
    /// # Errors
    /// As [`Cluster::held`].
    pub fn release(&self, fault: FaultId) -> Result<()> {
        let ended = self.faults()?.end(fault);
        ended.map(|_| ()).with_context(|| format!("no fault {fault} is in force"))
    }

    /// Ends a fault; messages that it held are lost.
    ///
    /// # Errors
    /// As [`Cluster::held`].
    pub fn lose(&self, fault: FaultId) -> Result<()> {
        let ended = self.faults()?.end_and_lose(fault);
        ended.map(|_| ()).with_context(|| format!("no fault {fault} is in force"))
    }

    /// Takes a log directory (its place in `log.dirs`) away from a node; see [`Crew::fail_disk`].
    ///
    /// # Errors
    /// When it has no such directory, or that is taken away already.
    pub fn fail_disk(&mut self, node: NodeId, dir: usize) -> Result<()> {
        let dirs = self.crew.log_dirs(node)?;
        let dir = dirs
            .get(dir)
            .with_context(|| format!("node {node} has {} log directories", dirs.len()))?;
        self.crew.fail_disk(node, dir)
    }

    /// Gives a node's log directories back; it takes them up when it starts.
    ///
    /// # Errors
    /// When files cannot be moved.
    pub fn mend_disk(&mut self, node: NodeId) -> Result<()> {
        self.crew.mend_disk(node).map(|_| ())
    }

    /// The place in `log.dirs` of the directory that has a node's replica.
    ///
    /// # Errors
    /// When there is none.
    pub fn log_dir_of(&self, node: NodeId, topic: &str, partition: i32) -> Result<usize> {
        let dirs = self.crew.log_dirs(node)?;
        let name = format!("{topic}-{partition}");
        let found = dirs.iter().position(|dir| Crew::files_of(dir).join(&name).is_dir());
        found.with_context(|| format!("node {node} has no log of {name}"))
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

    /// The process id of a running node that is a process of its own.
    pub fn pid(&self, node: NodeId) -> Option<u32> {
        self.crew.pid(node)
    }

    /// How a node is.
    pub fn state(&self, node: NodeId) -> NodeState {
        self.crew.state(node)
    }

    /// Starts a node that does not run; returns at once.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    pub fn start(&mut self, node: NodeId) -> Result<()> {
        self.crew.start(node)
    }

    /// Kills a node as a crash does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, node: NodeId) -> Result<()> {
        self.crew.kill(node)
    }

    /// Stops a node cleanly: its leaders move first.
    ///
    /// # Errors
    /// When it does not run, or does not stop well.
    pub fn stop(&mut self, node: NodeId) -> Result<()> {
        self.crew.stop(node, self.patience)
    }

    /// Freezes a node: alive, and silent.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&mut self, node: NodeId) -> Result<()> {
        self.crew.freeze(node)
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// When it is not frozen.
    pub fn thaw(&mut self, node: NodeId) -> Result<()> {
        self.crew.thaw(node)
    }

    /// A connection to a node.
    pub fn client(&self, node: NodeId) -> Result<Client> {
        Client::connect(&format!("{}:{}", self.host(node), self.port(node)), self.patience)
    }

    /// The cluster as some responsive node sees it.
    pub fn metadata(&self) -> Result<MetadataResponse> {
        let mut last = None;
        for node in self.crew.responsive() {
            match self.client(node).and_then(|mut client| client.metadata()) {
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

    /// A node whose disk was taken away may end; any other may not.
    fn check_alive(&mut self) -> Result<()> {
        for node in self.crew.find_ended()? {
            let dirs = self.crew.log_dirs(node)?;
            if !dirs.iter().any(|dir| Crew::is_taken_away(dir)) {
                bail!("node {node} ended by itself:\n{}", self.output(node));
            }
        }
        Ok(())
    }

    /// Waits until every running node knows every running node as live.
    pub fn wait_until_all_live(&mut self) -> Result<()> {
        let nodes = self.crew.running();
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
        let request = builder::create_topic_request(topic, partitions, configs);
        self.wait_for("the topic to be created", |cluster| {
            let node = *cluster.crew.running().first().context("no node runs")?;
            let response = cluster.client(node)?.call(5, request.clone())?;
            let result = response.topics.first().context("no topic in the answer")?;
            match result.error_code {
                // Created now, or by a try whose answer was lost.
                0 | 36 => Ok(Ok(())),
                code => Ok(Err(format!("error {code}: {:?}", result.error_message))),
            }
        })?;
        let nodes = self.crew.running();
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
        let dirs = self.crew.log_dirs(node)?;
        let dir = &dirs[self.log_dir_of(node, topic, partition)?];
        read_log_files(&Crew::files_of(dir).join(format!("{topic}-{partition}")))
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

    /// Every partition of every topic but internal ones, and every replica by its own word.
    pub fn look(&self) -> ClusterView {
        let nodes = self.crew.responsive().into_iter();
        let addresses =
            nodes.map(|node| (node, format!("{}:{}", self.host(node), self.port(node))));
        view::look(&addresses.collect(), LOOK_TIMEOUT, &|topic| !topic.is_internal)
    }

    /// A replica by its own word.
    ///
    /// # Errors
    /// When its node tells nothing of it.
    pub fn replica(&self, node: NodeId, topic: &str, partition: i32) -> Result<ReplicaView> {
        let seen = self.look();
        let partition = seen.partition(topic, partition);
        let replica = partition.and_then(|partition| partition.replica(node)).cloned();
        replica.with_context(|| format!("node {node} has no replica of {topic}"))
    }

    /// Waits until a partition is as `is_it` says; gives it as it is then.
    ///
    /// # Errors
    /// After the cluster's patience, with what was seen last.
    pub fn wait_for_partition(
        &mut self,
        what: &str,
        topic: &str,
        partition: i32,
        is_it: impl Fn(&PartitionView) -> bool,
    ) -> Result<PartitionView> {
        self.wait_for(what, |cluster| {
            let seen = cluster.look();
            let found = seen.partition(topic, partition);
            let found = found.with_context(|| format!("nobody knows {topic}-{partition}"))?;
            Ok(if is_it(found) { Ok(found.clone()) } else { Err(format!("{found:?}")) })
        })
    }

    /// Waits until a replica's high watermark is at `offset` or past it.
    ///
    /// # Errors
    /// As [`Cluster::wait_for_partition`].
    pub fn wait_for_high_watermark(
        &mut self,
        node: NodeId,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<()> {
        let what = format!("the high watermark of node {node} to reach {offset}");
        self.wait_for_partition(&what, topic, partition, |seen| {
            seen.replica(node).and_then(|replica| replica.high_watermark) >= Some(offset)
        })
        .map(|_| ())
    }

    /// Waits until a replica's log ends exactly at `offset`.
    ///
    /// # Errors
    /// As [`Cluster::wait_for_partition`].
    pub fn wait_for_log_end(
        &mut self,
        node: NodeId,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<()> {
        let what = format!("the log of node {node} to end at {offset}");
        self.wait_for_partition(&what, topic, partition, |seen| {
            seen.replica(node).and_then(|replica| replica.log_end) == Some(offset)
        })
        .map(|_| ())
    }

    /// Waits until a partition has a leader of at least this epoch; gives the leader.
    ///
    /// # Errors
    /// As [`Cluster::wait_for_partition`].
    pub fn wait_for_leader_epoch(
        &mut self,
        topic: &str,
        partition: i32,
        epoch: i32,
    ) -> Result<NodeId> {
        let what = format!("a leader of epoch {epoch}");
        let seen = self.wait_for_partition(&what, topic, partition, |seen| {
            seen.leader >= 0 && seen.leader_epoch >= epoch
        })?;
        Ok(seen.leader)
    }

    /// Waits until all running replicas hold the same records; returns them.
    pub fn wait_for_equal_replicas(
        &mut self,
        topic: &str,
        partition: i32,
    ) -> Result<Vec<ReadRecord>> {
        let nodes = self.crew.running();
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
