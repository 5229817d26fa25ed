//! A cluster of Apache Kafka itself, to compare with: started, killed, stopped, frozen and started again
//! through the script `refkafka`, which lies beside this project and not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use protocol::messages::MetadataResponse;
use protocol::messages::metadata_response::MetadataResponsePartition;
use tempfile::TempDir;

use super::builder::create_topic_request;
use super::cluster::{NodeId, partitions_of, read_log_files};
use super::crew::NodeState;
use super::on_sockets::OnSockets;
use super::process::free_row;
use crate::client::{Client, ReadRecord};

/// Names the script where it lies elsewhere.
const SCRIPT: &str = "REFKAFKA";
/// How often a start is tried: ports that were free may not be so seconds later.
const ATTEMPTS: usize = 3;
/// A Java process needs its time, on a busy machine more of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at the cluster.
const POLL: Duration = Duration::from_millis(10);
/// Options of the virtual machine with which it starts soonest; the nodes share few cores.
const JVM: &str = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Djava.awt.headless=true";
const HEAP: &str = "256m";

/// A running Kafka of some nodes, each broker and controller; dropping it ends it.
#[derive(Debug)]
pub struct KafkaCluster {
    script: PathBuf,
    folder: TempDir,
    ports: BTreeMap<NodeId, u16>,
    running: BTreeSet<NodeId>,
    frozen: BTreeSet<NodeId>,
}

impl KafkaCluster {
    /// The script that starts one.
    ///
    /// # Errors
    /// When it is not here, or Java is not; the error says what is missing.
    pub fn script() -> Result<PathBuf> {
        let beside = "../../shared/reference-kafka/refkafka";
        let script = std::env::var_os(SCRIPT)
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(beside), PathBuf::from);
        ensure!(script.exists(), "no Kafka to compare with: {} is not there", script.display());
        let java = Command::new("java").arg("-version").output();
        ensure!(java.is_ok_and(|output| output.status.success()), "no Java to run Kafka with");
        Ok(script)
    }

    /// Starts so many nodes with these settings, and waits until each knows all as live.
    ///
    /// # Errors
    /// When they do not come to life.
    pub fn start(script: &Path, nodes: NodeId, settings: &[(&str, &str)]) -> Result<Self> {
        let attempts = (1..ATTEMPTS).find_map(|_| Self::try_start(script, nodes, settings).ok());
        attempts.map_or_else(|| Self::try_start(script, nodes, settings), Ok)
    }

    fn try_start(script: &Path, nodes: NodeId, settings: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("kafka-").tempdir()?;
        let first = free_row(2 * u16::try_from(nodes)?)?;
        // A node has two ports: clients come to the first, controllers to the second.
        let ports: BTreeMap<NodeId, u16> = (1..=nodes).zip((first..).step_by(2)).collect();
        let running = ports.keys().copied().collect();
        let cluster =
            Self { script: script.to_owned(), folder, ports, running, frozen: BTreeSet::new() };
        let (count, port) = (nodes.to_string(), first.to_string());
        let mut arguments = vec!["--brokers", &count, "--port", &port, "--heap", HEAP];
        let settings: Vec<String> =
            settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        cluster.run("up", &arguments)?;
        cluster.wait_until_all_live()?;
        Ok(cluster)
    }

    /// Runs the script for this cluster.
    fn run(&self, command: &str, arguments: &[&str]) -> Result<()> {
        let mut line = Command::new(&self.script);
        line.arg(command).arg("--dir").arg(self.folder.path()).args(arguments);
        let output = line.env("REFKAFKA_JVM", JVM).output()?;
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "refkafka {command} {arguments:?}: {problem}");
        Ok(())
    }

    fn order(&self, node: NodeId, order: &str) -> Result<()> {
        self.run("node", &[&node.to_string(), order])
    }

    fn node_folder(&self, node: NodeId) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    /// What a node printed so far, over all its lives.
    pub fn output(&self, node: NodeId) -> String {
        fs::read_to_string(self.node_folder(node).join("log")).unwrap_or_default()
    }

    /// The nodes that run and are not frozen.
    pub fn responsive(&self) -> Vec<NodeId> {
        self.running.difference(&self.frozen).copied().collect()
    }

    /// The cluster as some responsive node sees it.
    ///
    /// # Errors
    /// When none answers.
    pub fn metadata(&self) -> Result<MetadataResponse> {
        let mut last = None;
        for node in self.responsive() {
            match self.client(node).and_then(|mut client| client.metadata()) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node runs")))
    }

    /// Waits until every running node's metadata is as wanted; `look` says what is not.
    ///
    /// # Errors
    /// When that does not come, or a node ends by itself.
    pub fn wait_for_all(
        &self,
        what: &str,
        look: impl Fn(&MetadataResponse) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for node in self.responsive() {
            loop {
                let seen = self.client(node).and_then(|mut client| client.metadata());
                let seen = match seen.map(|metadata| look(&metadata)) {
                    Ok(Ok(())) => break,
                    Ok(Err(seen)) => seen,
                    Err(error) => format!("{error:#}"),
                };
                ensure!(self.has_process(node), "node {node} ended:\n{}", self.output(node));
                ensure!(Instant::now() < deadline, "{what} did not come, node {node}: {seen}");
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Waits until every running node knows every running node as live.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_until_all_live(&self) -> Result<()> {
        let nodes = self.responsive();
        self.wait_for_all("all brokers to be live", |metadata| {
            let mut live: Vec<NodeId> = metadata.brokers.iter().map(|b| b.node_id).collect();
            live.sort_unstable();
            if live == nodes { Ok(()) } else { Err(format!("it sees {live:?}")) }
        })
    }

    fn has_process(&self, node: NodeId) -> bool {
        let Ok(pid) = fs::read_to_string(self.node_folder(node).join("pid")) else { return false };
        let status = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        // A zombie has ended.
        status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }
}

impl Drop for KafkaCluster {
    fn drop(&mut self) {
        // Fails only when there is nothing to end.
        let _ = self.run("down", &[]);
    }
}

impl OnSockets for KafkaCluster {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.ports.keys().copied().collect()
    }

    fn state(&self, node: NodeId) -> NodeState {
        match self.running.contains(&node) {
            false => NodeState::IsDown,
            true if self.frozen.contains(&node) => NodeState::IsFrozen,
            true => NodeState::Runs,
        }
    }

    fn start(&mut self, node: NodeId) -> Result<()> {
        ensure!(!self.running.contains(&node), "node {node} runs already");
        self.order(node, "start")?;
        self.running.insert(node);
        Ok(())
    }

    fn kill(&mut self, node: NodeId) -> Result<()> {
        self.frozen.remove(&node);
        self.running.remove(&node);
        self.order(node, "kill")
    }

    fn stop(&mut self, node: NodeId) -> Result<()> {
        self.running.remove(&node);
        self.order(node, "stop")
    }

    fn freeze(&mut self, node: NodeId) -> Result<()> {
        self.frozen.insert(node);
        self.order(node, "pause")
    }

    fn thaw(&mut self, node: NodeId) -> Result<()> {
        self.frozen.remove(&node);
        self.order(node, "resume")
    }

    fn client(&self, node: NodeId) -> Result<Client> {
        Client::connect(&format!("127.0.0.1:{}", self.ports[&node]), PATIENCE)
    }

    fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[NodeId]],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let node = *self.responsive().first().context("no node runs")?;
        let request = create_topic_request(topic, partitions, configs);
        let response = self.client(node)?.call(5, request)?;
        let result = response.topics.first().context("no topic in the answer")?;
        let (code, message) = (result.error_code, &result.error_message);
        ensure!(code == 0, "topic {topic}: error {code}: {message:?}");
        self.wait_for_all("the topic", |metadata| {
            let known = partitions_of(metadata, topic);
            let led = known.iter().filter(|partition| partition.leader_id >= 0).count();
            if led == partitions.len() { Ok(()) } else { Err(format!("{known:?}")) }
        })
    }

    fn partition(&self, topic: &str, partition: i32) -> Result<MetadataResponsePartition> {
        let known = partitions_of(&self.metadata()?, topic);
        let found = known.into_iter().find(|candidate| candidate.partition_index == partition);
        found.with_context(|| format!("no partition {topic}-{partition}"))
    }

    fn read_replica(&self, node: NodeId, topic: &str, partition: i32) -> Result<Vec<ReadRecord>> {
        let folder = self.node_folder(node).join("data");
        read_log_files(&folder.join(format!("{topic}-{partition}")))
    }
}
