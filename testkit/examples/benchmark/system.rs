//! A cluster of three under test: Highwater, or Apache Kafka through `refkafka`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use protocol::messages::{CreateTopicsRequest, DescribeQuorumRequest};
use rustix::process::{Pid, Signal, kill_process};
use testkit::client::Client;

/// How many nodes, each broker and controller.
pub const NODES: usize = 3;
/// The longest wait for anything that a cluster does by itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// A started cluster. Dropping it kills its nodes.
pub struct System {
    started: Instant,
    /// Port of each node's listener for clients, in the order of the ids 1, 2, 3.
    pub ports: Vec<u16>,
    launcher: Child,
    pids: Pids,
}

enum Pids {
    /// Told by the launcher on its output, once.
    Told(mpsc::Receiver<Vec<u32>>, Vec<u32>),
    /// Read from the files of `refkafka`.
    Files(PathBuf),
}

impl System {
    /// Starts three nodes of `binary` with all defaults; does not wait for anything.
    pub fn highwater(binary: &Path, folder: &Path) -> Result<System> {
        let first = free_port_range(2 * NODES as u16)?;
        let mut command = Command::new(binary);
        command.args(["up", "--processes", "--quiet", "--port", &first.to_string()]);
        command.arg("--data").arg(folder);
        command.args(std::env::var("HIGHWATER_UP").unwrap_or_default().split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let started = Instant::now();
        let mut launcher =
            command.spawn().with_context(|| format!("cannot run {}", binary.display()))?;
        let output = launcher.stdout.take().context("the output is piped")?;
        let (told, pids) = mpsc::channel();
        std::thread::spawn(move || read_pids(BufReader::new(output), &told));
        let pids = Pids::Told(pids, Vec::new());
        Ok(System { started, ports: ports(first), launcher, pids })
    }

    /// Formats the folders of three nodes, which is not counted, and starts them.
    pub fn kafka(script: &Path, folder: &Path) -> Result<System> {
        let first = free_port_range(2 * NODES as u16)?;
        let up = || {
            let mut command = Command::new(script);
            command.args(["up", "--port", &first.to_string(), "--dir"]).arg(folder);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let formatted = up().arg("--no-start").status().context("refkafka cannot be run")?;
        ensure!(formatted.success(), "refkafka could not format: {formatted}");
        let started = Instant::now();
        let launcher = up().spawn()?;
        let pids = Pids::Files(folder.to_path_buf());
        Ok(System { started, ports: ports(first), launcher, pids })
    }

    /// When the processes were started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Where a node listens.
    pub fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.ports[node - 1])
    }

    /// The processes of the nodes 1, 2, 3.
    pub fn pids(&self) -> Result<Vec<u32>> {
        match &self.pids {
            Pids::Told(_, known) => {
                ensure!(known.len() == NODES, "the nodes' process ids are not known");
                Ok(known.clone())
            }
            Pids::Files(folder) => (1..=NODES).map(|node| pid_of_file(folder, node)).collect(),
        }
    }

    /// Learns the process ids, once the launcher has told them.
    pub fn learn_pids(&mut self) -> Result<()> {
        if let Pids::Told(told, known) = &mut self.pids
            && known.is_empty()
        {
            *known = told.recv_timeout(PATIENCE).context("the launcher names no processes")?;
        }
        self.pids().map(|_| ())
    }

    /// Kills a node as a crash does.
    pub fn kill(&self, node: usize) -> Result<()> {
        kill(self.pids()?[node - 1], Signal::KILL)
    }

    /// A client of a node.
    pub fn client(&self, node: usize) -> Result<Client> {
        Client::connect(&self.address(node), Duration::from_secs(5))
    }

    /// Creates a topic with all nodes as replicas of each partition and waits until every node knows
    /// its leaders; gives the leader of each partition.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<Vec<usize>> {
        let deadline = Instant::now() + PATIENCE;
        retry(deadline, "the topic to be created", || {
            let response = self.client(1)?.call(
                5,
                CreateTopicsRequest {
                    timeout_ms: 5_000,
                    topics: vec![CreatableTopic {
                        name: topic.into(),
                        num_partitions: partitions,
                        replication_factor: NODES as i16,
                        ..Default::default()
                    }],
                    ..Default::default()
                },
            )?;
            let result = response.topics.first().context("no topic in the answer")?;
            // Created now, or by a try whose answer was lost.
            ensure!(matches!(result.error_code, 0 | 36), "error {}", result.error_code);
            Ok(())
        })?;
        let mut leaders = Vec::new();
        for node in 1..=NODES {
            leaders = retry(deadline, "the topic's leaders to be known", || {
                leaders_seen_by(&mut self.client(node)?, topic, partitions)
            })?;
        }
        Ok(leaders)
    }

    /// The node that leads the metadata quorum.
    pub fn controller(&self) -> Result<usize> {
        let response = self.client(1)?.call(
            1,
            DescribeQuorumRequest {
                topics: vec![TopicData {
                    topic_name: "__cluster_metadata".into(),
                    partitions: vec![PartitionData::default()],
                    ..Default::default()
                }],
                ..Default::default()
            },
        )?;
        let topic = response.topics.first().context("no topic in the quorum's answer")?;
        let partition = topic.partitions.first().context("no partition in the quorum's answer")?;
        ensure!(partition.error_code == 0, "error {} of the quorum", partition.error_code);
        Ok(usize::try_from(partition.leader_id)?)
    }

    /// Ends the nodes; nothing of them is needed any more.
    pub fn stop(self) -> Result<()> {
        drop(self);
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        // What fails here is gone already.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
        for pid in self.pids().unwrap_or_default() {
            let _ = kill(pid, Signal::KILL);
        }
        // The folder is removed next; a killed process lets go of its files a little later.
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Tries until it works; fails with the last error after the deadline.
pub fn retry<T>(
    deadline: Instant,
    what: &str,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("waited too long for {what}")));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// The leader of each partition; an error while one is missing.
pub fn leaders_seen_by(client: &mut Client, topic: &str, partitions: i32) -> Result<Vec<usize>> {
    let metadata = client.metadata()?;
    let known = metadata.topics.iter().find(|known| known.name.as_deref() == Some(topic));
    let mut leaders = vec![0; usize::try_from(partitions)?];
    for partition in &known.with_context(|| format!("no topic {topic}"))?.partitions {
        if partition.leader_id > 0 {
            leaders[partition.partition_index as usize] = partition.leader_id as usize;
        }
    }
    ensure!(!leaders.contains(&0), "a partition of {topic} has no leader");
    Ok(leaders)
}

fn ports(first: u16) -> Vec<u16> {
    (0..NODES as u16).map(|node| first + 2 * node).collect()
}

/// So many ports in a row that nothing listens on.
fn free_port_range(count: u16) -> Result<u16> {
    for first in (21_000..30_000).step_by(50) {
        let mut range = first..first + count;
        if range.all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return Ok(first);
        }
    }
    bail!("no {count} free ports in a row")
}

fn pid_of_file(folder: &Path, node: usize) -> Result<u32> {
    let file = folder.join(format!("node{node}/pid"));
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("no process id in {}", file.display()))?;
    Ok(text.trim().parse()?)
}

/// Lines `node 1 pid 123 port 9092`, before `ready`.
fn read_pids(output: impl BufRead, told: &mpsc::Sender<Vec<u32>>) {
    let mut pids = Vec::new();
    for line in output.lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["node", _, "pid", pid, ..] = words[..] {
            pids.extend(pid.parse::<u32>());
        }
        if pids.len() == NODES {
            // Nobody waits when the run has failed meanwhile.
            let _ = told.send(std::mem::take(&mut pids));
        }
    }
}

fn kill(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process id")?;
    Ok(kill_process(pid, signal)?)
}
