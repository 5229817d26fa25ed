//! What a stage needs of a cluster that is reached over sockets, whoever made it: ours, or Apache Kafka.
//!
//! What only ours can do (cut a link, say) is asked of it by [`OnSockets::ours`].

use std::fmt::Debug;

use anyhow::Result;
use protocol::messages::metadata_response::MetadataResponsePartition;

use super::cluster::{Cluster, NodeId};
use super::crew::NodeState;
use crate::client::{Client, ReadRecord};

/// A cluster of processes with sockets and files.
pub trait OnSockets: Debug {
    /// What it is called where a story names its stage.
    fn kind(&self) -> &'static str;

    /// The ids of all nodes, running or not.
    fn nodes(&self) -> Vec<NodeId>;

    /// How a node is.
    fn state(&self, node: NodeId) -> NodeState;

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

    /// Our own cluster, which alone has links to harm and log directories to take away.
    fn ours(&self) -> Option<&Cluster> {
        None
    }

    /// As [`OnSockets::ours`].
    fn ours_mut(&mut self) -> Option<&mut Cluster> {
        None
    }

    /// A connection to a node.
    ///
    /// # Errors
    /// When it takes none.
    fn client(&self, node: NodeId) -> Result<Client>;

    /// Creates a topic with one partition per list of replicas, the first of each preferred, and
    /// waits until every running node knows its leaders.
    ///
    /// # Errors
    /// When that does not come.
    fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[NodeId]],
        configs: &[(&str, &str)],
    ) -> Result<()>;

    /// One partition as a responsive node sees it.
    ///
    /// # Errors
    /// When none answers, or knows it.
    fn partition(&self, topic: &str, partition: i32) -> Result<MetadataResponsePartition>;

    /// Reads a replica's own log to its end, whoever leads: what a debugging replica may see.
    ///
    /// # Errors
    /// When there is none.
    fn read_replica(&self, node: NodeId, topic: &str, partition: i32) -> Result<Vec<ReadRecord>>;
}

impl OnSockets for Cluster {
    fn kind(&self) -> &'static str {
        "real"
    }

    fn nodes(&self) -> Vec<NodeId> {
        Cluster::nodes(self)
    }

    fn state(&self, node: NodeId) -> NodeState {
        Cluster::state(self, node)
    }

    fn start(&mut self, node: NodeId) -> Result<()> {
        Cluster::start(self, node)
    }

    fn kill(&mut self, node: NodeId) -> Result<()> {
        Cluster::kill(self, node)
    }

    fn stop(&mut self, node: NodeId) -> Result<()> {
        Cluster::stop(self, node)
    }

    fn freeze(&mut self, node: NodeId) -> Result<()> {
        Cluster::freeze(self, node)
    }

    fn thaw(&mut self, node: NodeId) -> Result<()> {
        Cluster::thaw(self, node)
    }

    fn ours(&self) -> Option<&Cluster> {
        Some(self)
    }

    fn ours_mut(&mut self) -> Option<&mut Cluster> {
        Some(self)
    }

    fn client(&self, node: NodeId) -> Result<Client> {
        Cluster::client(self, node)
    }

    fn create_topic(
        &mut self,
        topic: &str,
        partitions: &[&[NodeId]],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        Cluster::create_topic(self, topic, partitions, configs)
    }

    fn partition(&self, topic: &str, partition: i32) -> Result<MetadataResponsePartition> {
        Cluster::partition(self, topic, partition)
    }

    fn read_replica(&self, node: NodeId, topic: &str, partition: i32) -> Result<Vec<ReadRecord>> {
        Cluster::read_replica(self, node, topic, partition)
    }
}
