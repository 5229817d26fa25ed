//! Clusters that are reached over sockets, whoever made them: what each must say of itself, and what can
//! be asked of all of them over the wire and from their files.
//!
//! What only some can do (cut a link, say) stands here with a refusal, which those that can replace.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use protocol::messages::metadata_response::MetadataResponsePartition;
use protocol::messages::{CreateTopicsRequest, MetadataResponse};

use super::cluster::{NodeId, Plane};
use crate::client::{Client, ReadRecord, fetch_request, read_batches};

/// Pause between two looks at the cluster.
const POLL: Duration = Duration::from_millis(10);

/// A cluster of processes with sockets and files.
pub trait OnSockets: Debug {
    /// What it is called where a story names its stage.
    fn kind(&self) -> &'static str;

    /// The ids of all nodes, running or not.
    fn nodes(&self) -> Vec<NodeId>;

    /// The nodes that run and are not frozen.
    fn responsive(&self) -> Vec<NodeId>;

    /// Whether the node has a process, frozen or not.
    fn is_running(&self, node: NodeId) -> bool;

    /// The node's client address, `host:port`.
    fn address(&self, node: NodeId) -> String;

    /// The folder with a node's logs.
    fn data_folder(&self, node: NodeId) -> PathBuf;

    /// How long waits last before they fail.
    fn patience(&self) -> Duration;

    /// Fails when a node that should run has ended by itself.
    ///
    /// # Errors
    /// With what it said last.
    fn check_alive(&mut self) -> Result<()>;

    /// Starts a node that does not run; returns at once.
    ///
    /// # Errors
    /// When it runs, or cannot be started.
    fn start(&mut self, node: NodeId) -> Result<()>;

    /// Kills a node as a crash does.
    ///
    /// # Errors
    /// When it does not run.
    fn kill(&mut self, node: NodeId) -> Result<()>;

    /// Stops a node cleanly: its leaders move first.
    ///
    /// # Errors
    /// When it does not run, or does not end well.
    fn stop(&mut self, node: NodeId) -> Result<()>;

    /// Freezes a node: alive, and silent.
    ///
    /// # Errors
    /// When it does not run.
    fn freeze(&mut self, node: NodeId) -> Result<()>;

    /// Ends a freeze.
    ///
    /// # Errors
    /// When it does not run.
    fn thaw(&mut self, node: NodeId) -> Result<()>;

    /// Whether links can be cut.
    fn can_cut(&self) -> bool {
        false
    }

    /// Cuts the link between two nodes, both ways.
    ///
    /// # Errors
    /// Where links cannot be cut.
    fn cut(&mut self, _one: NodeId, _other: NodeId, _plane: Plane) -> Result<()> {
        bail!("this cluster has no links that can be cut")
    }

    /// Makes all links whole.
    ///
    /// # Errors
    /// When the system refuses.
    fn heal(&mut self) -> Result<()> {
        Ok(())
    }

    /// A connection to a node.
    ///
    /// # Errors
    /// When it takes none.
    fn client(&self, node: NodeId) -> Result<Client> {
        Client::connect(&self.address(node), self.patience())
    }

    /// The cluster as some responsive node sees it.
    ///
    /// # Errors
    /// When none answers.
    fn metadata(&self) -> Result<MetadataResponse> {
        let mut last = None;
        for node in self.responsive() {
            match self.client(node).and_then(|mut client| client.metadata()) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node runs")))
    }

    /// One partition as a responsive node sees it.
    ///
    /// # Errors
    /// When none answers, or knows it.
    fn partition(&self, topic: &str, partition: i32) -> Result<MetadataResponsePartition> {
        let metadata = self.metadata()?;
        let found = partitions_of(&metadata, topic)
            .into_iter()
            .find(|candidate| candidate.partition_index == partition);
        found.with_context(|| format!("no partition {topic}-{partition}"))
    }

    /// The leader of a partition.
    ///
    /// # Errors
    /// While it has none.
    fn leader(&self, topic: &str, partition: i32) -> Result<NodeId> {
        let leader = self.partition(topic, partition)?.leader_id;
        ensure!(leader >= 0, "{topic}-{partition} has no leader");
        Ok(leader)
    }

    /// Waits for `look` to give a value; fails after the cluster's patience with what was seen last.
    ///
    /// # Errors
    /// When that does not come, or a node ends by itself.
    fn wait_for<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Self) -> Result<std::result::Result<T, String>>,
    ) -> Result<T>
    where
        Self: Sized,
    {
        let deadline = Instant::now() + self.patience();
        loop {
            let seen = match look(self) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(seen)) => seen,
                Err(error) => format!("{error:#}"),
            };
            self.check_alive()?;
            if Instant::now() > deadline {
                bail!("waited {:?} for {what}; last: {seen}", self.patience());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until every responsive node knows all of them, and nobody else, as live.
    ///
    /// # Errors
    /// When that does not come.
    fn wait_until_all_live(&mut self) -> Result<()>
    where
        Self: Sized,
    {
        let nodes = self.responsive();
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
    /// waits until every responsive node knows its leaders.
    ///
    /// # Errors
    /// When that does not come.
    fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[NodeId]],
        configs: &[(&str, &str)],
    ) -> Result<()>
    where
        Self: Sized,
    {
        let request = create_topic_request(topic, partitions, configs);
        self.wait_for("the topic to be created", |cluster| {
            let node = *cluster.responsive().first().context("no node runs")?;
            let response = cluster.client(node)?.call(5, request.clone())?;
            let result = response.topics.first().context("no topic in the answer")?;
            match result.error_code {
                // Created now, or by a try whose answer was lost.
                0 | 36 => Ok(Ok(())),
                code => Ok(Err(format!("error {code}: {:?}", result.error_message))),
            }
        })?;
        let nodes = self.responsive();
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

    /// Reads a replica's own log to its end, whoever leads: what a debugging replica may see.
    ///
    /// # Errors
    /// When there is none.
    fn read_replica(&self, node: NodeId, topic: &str, partition: i32) -> Result<Vec<ReadRecord>> {
        read_log_files(&self.data_folder(node).join(format!("{topic}-{partition}")))
    }

    /// The high watermark that a node gives with a fetch at `offset`.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    fn high_watermark(
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
}

/// Reads the batches of all segments in a partition's folder, in offset order.
fn read_log_files(folder: &Path) -> Result<Vec<ReadRecord>> {
    let mut segments: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    segments.sort();
    let mut records = Vec::new();
    for segment in segments {
        let bytes = fs::read(&segment)?;
        read_batches(bytes.into(), 0, &mut records)
            .with_context(|| format!("in {}", segment.display()))?;
    }
    Ok(records)
}

fn partitions_of(metadata: &MetadataResponse, topic: &str) -> Vec<MetadataResponsePartition> {
    metadata
        .topics
        .iter()
        .filter(|known| known.name.as_deref() == Some(topic))
        .flat_map(|known| known.partitions.clone())
        .collect()
}

fn create_topic_request(
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
