//! One node under test: Highwater, or Apache Kafka through `refkafka`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::CreatableTopic;
use tempfile::TempDir;
use testkit::client::Client;
use testkit::real::Cluster;

/// The longest wait for anything that a node does by itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running node with its files; dropping it ends it.
pub enum Node {
    Highwater(Cluster),
    Kafka { script: PathBuf, folder: TempDir, port: u16 },
}

impl Node {
    /// Starts a node of `binary` with all defaults.
    pub fn highwater(binary: &Path) -> Result<Node> {
        Ok(Node::Highwater(Cluster::builder().binary(binary).brokers(1).start()?))
    }

    /// Starts a node of the reference with all defaults.
    pub fn kafka(script: &Path) -> Result<Node> {
        let folder = tempfile::Builder::new().prefix("fetch-benchmark-").tempdir()?;
        let port = two_free_ports()?;
        let mut command = Command::new(script);
        command.args(["up", "--brokers", "1", "--port", &port.to_string(), "--dir"]);
        command.arg(folder.path()).stdout(Stdio::null());
        let node = Node::Kafka { script: script.to_owned(), folder, port };
        let status = command.status().context("refkafka cannot be run")?;
        ensure!(status.success(), "refkafka could not start: {status}");
        Ok(node)
    }

    /// Where clients connect.
    pub fn address(&self) -> String {
        match self {
            Node::Highwater(cluster) => cluster.bootstrap(),
            Node::Kafka { port, .. } => format!("127.0.0.1:{port}"),
        }
    }

    pub fn client(&self) -> Result<Client> {
        Client::connect(&self.address(), Duration::from_secs(30))
    }

    /// The process.
    pub fn pid(&self) -> Result<u32> {
        match self {
            Node::Highwater(cluster) => cluster.pid(1).context("the node does not run"),
            Node::Kafka { folder, .. } => {
                let file = folder.path().join("node1/pid");
                Ok(std::fs::read_to_string(file)?.trim().parse()?)
            }
        }
    }

    /// The first segment of partition 0.
    pub fn segment(&self, topic: &str) -> PathBuf {
        let data = match self {
            Node::Highwater(cluster) => cluster.data_folder(1),
            Node::Kafka { folder, .. } => folder.path().join("node1/data"),
        };
        data.join(format!("{topic}-0")).join(format!("{:020}.log", 0))
    }

    /// Creates a topic and waits until each of its partitions takes requests.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<()> {
        let request = CreateTopicsRequest {
            timeout_ms: 60_000,
            topics: vec![CreatableTopic {
                name: topic.into(),
                num_partitions: partitions,
                replication_factor: 1,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut client = self.client()?;
        let response = client.call(5, request)?;
        let error = response.topics.first().context("no topic in the answer")?.error_code;
        ensure!(matches!(error, 0 | 36), "{topic} cannot be created: {error}");
        let deadline = Instant::now() + PATIENCE;
        for partition in 0..partitions {
            while client.list_offset(topic, partition, -1)?.0 != 0 {
                ensure!(Instant::now() < deadline, "{topic}-{partition} has no leader");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Node::Kafka { script, folder, .. } = self {
            // Fails only when there is nothing to end.
            let _ = Command::new(script).args(["down", "--dir"]).arg(folder.path()).output();
        }
    }
}

/// The first of two ports side by side that nothing listens on.
fn two_free_ports() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    for first in (31_000..40_000).step_by(20) {
        if is_free(first) && is_free(first + 1) {
            return Ok(first);
        }
    }
    bail!("no two free ports side by side")
}
