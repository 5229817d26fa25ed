//! What a cluster shall be, and how it comes to life: ports, settings, and the way through the fault proxy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use protocol::Uuid;
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use rand::RngCore;

use super::NodeId;
use super::cluster::Cluster;
use super::crew::{Crew, Hosting, NodeSpec};
use super::encryption::Encryption;
use super::links::Links;
use super::mesh::Mesh;
use super::process::{find_binary, free_ports};

/// How long a wait takes before it fails, unless the builder says otherwise.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// What a cluster shall be.
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    brokers: i32,
    settings: Vec<(String, String)>,
    node_settings: Vec<(NodeId, String, String)>,
    hosting: Option<Hosting>,
    patience: Duration,
    log_dirs: usize,
    links: bool,
    faults: bool,
    encryption: Option<Encryption>,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            brokers: 3,
            settings: Vec::new(),
            node_settings: Vec::new(),
            hosting: None,
            patience: DEFAULT_PATIENCE,
            log_dirs: 1,
            links: false,
            faults: false,
            encryption: None,
        }
    }
}

/// The ports of a cluster, by node.
struct Ports {
    clients: BTreeMap<NodeId, u16>,
    controllers: BTreeMap<NodeId, u16>,
    ssl: BTreeMap<NodeId, u16>,
    /// Where brokers listen for the fault proxy.
    replication: BTreeMap<NodeId, u16>,
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

    /// Runs every node as a child process of this `highwater` binary. Without a word, it is looked for in
    /// `HIGHWATER_BIN` and beside the running program.
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.hosting = Some(Hosting::Processes(path.into()));
        self
    }

    /// Runs all nodes in this process, each with a runtime of its own: no binary is needed. See
    /// [`super::NodeThread`] for what a kill and a freeze are there.
    #[must_use]
    pub fn in_one_process(mut self) -> Self {
        self.hosting = Some(Hosting::OneProcess);
        self
    }

    /// How many log directories each node has. With more than one, the metadata lies in a folder of its own,
    /// so that none of them is one that the node cannot do without.
    #[must_use]
    pub fn log_dirs(mut self, log_dirs: usize) -> Self {
        self.log_dirs = log_dirs;
        self
    }

    /// Gives every node a network of its own, so that links can be cut; see [`Links`] for what that
    /// needs. [`ClusterBuilder::with_faults`] needs nothing and can do more.
    #[must_use]
    pub fn with_links(mut self, links: bool) -> Self {
        self.links = links;
        self
    }

    /// Puts a fault proxy on the links between nodes; see [`super::Proxy`].
    #[must_use]
    pub fn with_faults(mut self, faults: bool) -> Self {
        self.faults = faults;
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
    ///
    /// # Errors
    /// When a node does not start, or settings contradict each other.
    pub fn start(self) -> Result<Cluster> {
        ensure!(
            !(self.links && (self.faults || self.hosting == Some(Hosting::OneProcess))),
            "networks of their own are for child processes without a fault proxy"
        );
        let hosting = match &self.hosting {
            Some(hosting) => hosting.clone(),
            None => Hosting::Processes(find_binary()?),
        };
        let ids: Vec<NodeId> = (1..=self.brokers).collect();
        let ports = Ports::free(self.brokers as usize)?;
        let links = if self.links { Some(Links::make(&ids)?) } else { None };
        let folder = tempfile::Builder::new().prefix("highwater-").tempdir()?;
        let mut settings: BTreeMap<_, _> = ids
            .iter()
            .map(|node| (*node, self.settings_of(*node, &ports, links.as_ref(), folder.path())))
            .collect();
        let mesh =
            if self.faults { Some(Mesh::lay(&mut settings, &ports.replication)?) } else { None };
        let specs = settings.into_iter().map(|(node, settings)| {
            let command = links.as_ref().map(|links| links.command(node)).unwrap_or_default();
            let folder = folder.path().join(format!("node{node}"));
            (node, NodeSpec { settings, folder, command })
        });
        let crew = Crew::new(hosting, Some(new_cluster_id()), specs.collect());
        let mut cluster = Cluster {
            crew,
            ports: ports.clients,
            controller_ports: ports.controllers,
            ssl_ports: ports.ssl,
            patience: self.patience,
            mesh,
            links,
            folder,
        };
        for node in ids {
            cluster.start(node)?;
        }
        cluster.wait_until_all_live()?;
        Ok(cluster)
    }

    fn settings_of(
        &self,
        node: NodeId,
        ports: &Ports,
        links: Option<&Links>,
        folder: &std::path::Path,
    ) -> BTreeMap<String, String> {
        let at = |node: NodeId, port: u16| format!("{}:{port}", host(links, node));
        let controllers = ports.controllers.iter();
        let voters: Vec<String> =
            controllers.map(|(id, port)| format!("{id}@{}", at(*id, *port))).collect();
        let plain = at(node, ports.clients[&node]);
        let control = at(node, ports.controllers[&node]);
        let own = folder.join(format!("node{node}"));
        let dirs = (1..=self.log_dirs.max(1)).map(|number| match number {
            1 => own.join("data").display().to_string(),
            _ => own.join(format!("data{number}")).display().to_string(),
        });
        let common = [
            ("node.id", node.to_string()),
            ("process.roles", "broker,controller".into()),
            ("controller.listener.names", "CONTROLLER".into()),
            ("controller.quorum.voters", voters.join(",")),
            ("log.dirs", dirs.collect::<Vec<_>>().join(",")),
        ];
        let listeners = match &self.encryption {
            Some(encryption) => encryption.settings(&plain, &at(node, ports.ssl[&node]), &control),
            None => vec![
                ("listeners", format!("PLAINTEXT://{plain},CONTROLLER://{control}")),
                ("advertised.listeners", format!("PLAINTEXT://{plain}")),
                (
                    "listener.security.protocol.map",
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".into(),
                ),
            ],
        };
        let mut settings: BTreeMap<String, String> = common
            .into_iter()
            .chain(listeners)
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        if self.log_dirs > 1 {
            settings.insert("metadata.log.dir".into(), own.join("metadata").display().to_string());
        }
        settings.extend(self.settings.iter().cloned());
        let own = self.node_settings.iter().filter(|(of, ..)| *of == node);
        settings.extend(own.map(|(_, key, value)| (key.clone(), value.clone())));
        settings
    }
}

impl Ports {
    fn free(nodes: usize) -> Result<Ports> {
        let ports = free_ports(4 * nodes)?;
        let numbered =
            |from: usize| (1..).zip(ports[from * nodes..][..nodes].iter().copied()).collect();
        Ok(Ports {
            clients: numbered(0),
            controllers: numbered(1),
            ssl: numbered(2),
            replication: numbered(3),
        })
    }
}

/// A node's address.
pub(super) fn host(links: Option<&Links>, node: NodeId) -> String {
    links.map_or("127.0.0.1".into(), |links| links.address(node))
}

fn new_cluster_id() -> String {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    Uuid(bytes).to_base64()
}

/// One partition per list of replicas.
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
