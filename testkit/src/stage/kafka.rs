//! The stage on Apache Kafka: the real stage, with Kafka's processes behind the sockets. One cluster can
//! tell many stories, since its start takes longer than most of them.

use anyhow::{Context, Result, ensure};
use protocol::messages::DeleteTopicsRequest;

use super::{ClusterNeeds, Process, RealStage, Stage, real};
use crate::real::{KafkaCluster, OnSockets};

/// A cluster of Apache Kafka on stage.
pub type KafkaStage = RealStage<KafkaCluster>;

impl RealStage<KafkaCluster> {
    /// Starts a Kafka as the story needs it, with all brokers alive.
    ///
    /// # Errors
    /// When it or Java is not here, or it does not come to life.
    pub fn start_kafka(needs: ClusterNeeds) -> Result<Self> {
        let script = KafkaCluster::script()?;
        let settings: Vec<(&str, &str)> =
            real::SHORT.iter().chain(needs.settings).copied().collect();
        Ok(Self::on(KafkaCluster::start(&script, needs.nodes, &settings)?))
    }

    /// Makes all nodes live and deletes all topics, so that another story can be told.
    ///
    /// # Errors
    /// When that does not come.
    pub fn clear(&mut self) -> Result<()> {
        for node in self.nodes() {
            match self.process(node) {
                Process::IsDown => self.start(node)?,
                Process::Runs | Process::IsFrozen => self.thaw(node)?,
            }
        }
        let cluster = self.cluster();
        cluster.wait_until_all_live()?;
        let known = cluster.metadata()?.topics;
        let names: Vec<String> = known.into_iter().filter_map(|topic| topic.name).collect();
        if names.is_empty() {
            return Ok(());
        }
        let node = *cluster.responsive().first().context("no node runs")?;
        let request = DeleteTopicsRequest {
            topic_names: names,
            timeout_ms: 20_000,
            ..DeleteTopicsRequest::default()
        };
        let response = cluster.client(node)?.call(5, request)?;
        for topic in response.responses {
            ensure!(topic.error_code == 0, "{:?} stays: error {}", topic.name, topic.error_code);
        }
        cluster.wait_for_all("the topics to be gone", |metadata| {
            let known = metadata.topics.len();
            if known == 0 { Ok(()) } else { Err(format!("it knows {known} topics")) }
        })
    }
}
