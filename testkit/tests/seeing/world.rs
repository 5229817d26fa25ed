//! Nodes in this process, each with its metrics on a port of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use broker::config::BrokerConfig;
use broker::host::{Node, NodeOptions, StartError};
use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use tempfile::TempDir;
use testkit::client::Client;
use testkit::metrics::MetricsPage;
use testkit::real::free_ports;
use tokio::runtime::Runtime;

/// Longer than any of these tests may wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub struct World {
    runtime: Runtime,
    nodes: BTreeMap<i32, Node>,
    pub folder: TempDir,
}

impl World {
    /// So many nodes, each broker and controller, with these settings beside what they need.
    pub fn start(nodes: i32, settings: &[(&str, &str)]) -> World {
        for _ in 0..5 {
            match World::try_start(nodes, settings) {
                Ok(world) => return world,
                // Somebody else took a port between its choice and its use.
                Err(StartError::ControllerListen { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("no ports");
    }

    fn try_start(nodes: i32, settings: &[(&str, &str)]) -> Result<World, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let ports = free_ports(nodes as usize).expect("ports");
        let voters = (1..=nodes).zip(&ports).map(|(id, port)| format!("{id}@127.0.0.1:{port}"));
        let voters = voters.collect::<Vec<_>>().join(",");
        let mut starting = Vec::new();
        for (id, port) in (1..=nodes).zip(&ports) {
            let own = [
                ("node.id", id.to_string()),
                ("process.roles", "broker,controller".into()),
                ("listeners", format!("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}")),
                ("controller.listener.names", "CONTROLLER".into()),
                (
                    "listener.security.protocol.map",
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".into(),
                ),
                ("controller.quorum.voters", voters.clone()),
                ("log.dirs", folder.path().join(id.to_string()).display().to_string()),
                ("highwater.metrics.listener", "127.0.0.1:0".into()),
                ("broker.session.timeout.ms", "3000".into()),
                ("broker.heartbeat.interval.ms", "300".into()),
                ("offsets.topic.num.partitions", "1".into()),
                ("offsets.topic.replication.factor", nodes.min(3).to_string()),
            ];
            let mut all: BTreeMap<String, String> =
                own.map(|(key, value)| (key.to_owned(), value)).into();
            all.extend(settings.iter().map(|(key, value)| {
                ((*key).to_owned(), value.replace("{folder}", &folder.path().display().to_string()))
            }));
            let (config, warnings) = BrokerConfig::from_settings(&all).expect("a configuration");
            assert!(warnings.is_empty(), "{warnings:?}");
            starting.push((id, runtime.spawn(Node::start(config, NodeOptions::new("seeing")))));
        }
        let started = starting.into_iter().map(|(id, node)| {
            let node = runtime.block_on(node).expect("no panic")?;
            Ok((id, node))
        });
        let nodes = started.collect::<Result<_, StartError>>()?;
        let world = World { runtime, nodes, folder };
        world.eventually("all brokers run", || {
            world.ids().all(|id| {
                world.page(id).plain("kafka_server_kafkaserver_brokerstate").is_ok_and(|n| n == 3.0)
            })
        });
        Ok(world)
    }

    pub fn ids(&self) -> impl Iterator<Item = i32> {
        self.nodes.keys().copied()
    }

    /// Where a node's clients connect.
    pub fn address(&self, id: i32) -> String {
        self.nodes[&id].address("PLAINTEXT").expect("a listener").to_string()
    }

    /// Where its metrics are.
    pub fn metrics(&self, id: i32) -> String {
        self.nodes[&id].metrics_address().expect("metrics").to_string()
    }

    pub fn client(&self, id: i32) -> Client {
        Client::connect(&self.address(id), PATIENCE).expect("a client")
    }

    /// The node's metrics now, every line checked.
    pub fn page(&self, id: i32) -> MetricsPage {
        MetricsPage::scrape(&self.metrics(id)).expect("a page")
    }

    /// Waits until `is_so`.
    pub fn eventually(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "never so: {what}");
            std::thread::sleep(POLL);
        }
    }

    /// A topic with one partition on these nodes, the first of which leads.
    pub fn create_topic(&self, topic: &str, replicas: &[i32], configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(key, value)| CreatableTopicConfig {
            name: (*key).to_owned(),
            value: Some((*value).to_owned()),
            ..CreatableTopicConfig::default()
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: topic.to_owned(),
                num_partitions: -1,
                replication_factor: -1,
                assignments: vec![CreatableReplicaAssignment {
                    partition_index: 0,
                    broker_ids: replicas.to_vec(),
                    ..CreatableReplicaAssignment::default()
                }],
                configs: configs.collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        };
        let mut client = self.client(replicas[0]);
        let response = client.call(5, request).expect("an answer");
        assert_eq!(response.topics[0].error_code, 0, "{:?}", response.topics[0].error_message);
        let labels = [("topic", topic)];
        self.eventually("the leader leads", || {
            let page = self.page(replicas[0]);
            page.get("highwater_partition_is_leader", &labels) == Some(1.0)
        });
        // A new partition's followers are in its ISR before they fetch.
        self.eventually("the followers fetch", || {
            replicas[1..].iter().all(|id| {
                let page = self.page(*id);
                page.get("kafka_server_fetcherlagmetrics_consumerlag", &labels) == Some(0.0)
            })
        });
    }

    /// Stops a node as a person would.
    pub fn stop(&mut self, id: i32) {
        let node = self.nodes.remove(&id).expect("the node runs");
        self.runtime.block_on(node.stop());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        let mut brokers = Vec::new();
        for mut node in nodes.into_values() {
            brokers.push(self.runtime.spawn(async move {
                node.stop_broker().await;
                node
            }));
        }
        for node in brokers {
            if let Ok(node) = self.runtime.block_on(node) {
                self.runtime.block_on(node.stop());
            }
        }
    }
}
