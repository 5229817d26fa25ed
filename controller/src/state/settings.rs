//! The fixed facts about a controller, and who asks it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::types::NodeId;

use super::eligible::ELR_FEATURE;
use crate::config::{ConfigCatalogue, ConfigError, ConfigValue};

/// A feature that this controller knows, and the level of new clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureSupport {
    /// Its name.
    pub name: String,
    /// The lowest level it can be at; 0 when it can be off.
    pub min_level: i16,
    /// The highest level.
    pub max_level: i16,
    /// The level of a new cluster; 0 for off.
    pub initial_level: i16,
}

/// What a controller is told at its start.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// The cluster's id, given to the cluster with its first records.
    pub cluster_id: String,
    /// This controller.
    pub node_id: NodeId,
    /// What random choices (placement, topic ids) start from; mixed with the quorum's epoch.
    pub seed: u64,
    /// `broker.session.timeout.ms`.
    pub session_timeout: Duration,
    /// `num.partitions`.
    pub default_partitions: i32,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `auto.leader.rebalance.enable`.
    pub auto_leader_rebalance: bool,
    /// `leader.imbalance.check.interval.seconds`.
    pub leader_imbalance_check_interval: Duration,
    /// `unclean.leader.election.interval.ms`.
    pub unclean_election_interval: Duration,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// The properties this controller was started with: the static layer of topic configs.
    pub properties: BTreeMap<String, String>,
    /// The features it knows.
    pub features: Vec<FeatureSupport>,
}

impl ControllerConfig {
    /// From `server.properties`; keys that are not set have Kafka's defaults.
    ///
    /// # Errors
    /// When a key that matters here has a value it does not allow.
    pub fn from_properties(
        cluster_id: &str,
        node_id: NodeId,
        seed: u64,
        properties: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let number = |key| value_of(properties, key)?.as_i64().ok_or_else(|| missing(key));
        let flag = |key| value_of(properties, key)?.as_bool().ok_or_else(|| missing(key));
        let millis = |key| Ok(Duration::from_millis(number(key)?.max(0) as u64));
        Ok(ControllerConfig {
            cluster_id: cluster_id.to_owned(),
            node_id,
            seed,
            session_timeout: millis("broker.session.timeout.ms")?,
            default_partitions: number("num.partitions")? as i32,
            default_replication_factor: number("default.replication.factor")? as i16,
            auto_leader_rebalance: flag("auto.leader.rebalance.enable")?,
            leader_imbalance_check_interval: Duration::from_secs(
                number("leader.imbalance.check.interval.seconds")?.max(0) as u64,
            ),
            unclean_election_interval: millis("unclean.leader.election.interval.ms")?,
            delete_topics: flag("delete.topic.enable")?,
            properties: properties.clone(),
            features: default_features(),
        })
    }

    /// Kafka's defaults.
    pub fn new(cluster_id: &str, node_id: NodeId, seed: u64) -> Self {
        Self::from_properties(cluster_id, node_id, seed, &BTreeMap::new())
            .unwrap_or_else(|error| panic!("the catalogue's defaults are values: {error}"))
    }
}

fn missing(key: &str) -> ConfigError {
    ConfigError::Missing(key.to_owned())
}

fn value_of(properties: &BTreeMap<String, String>, key: &str) -> Result<ConfigValue, ConfigError> {
    let def = ConfigCatalogue::broker().get(key).ok_or_else(|| missing(key))?;
    match properties.get(key) {
        Some(text) => def.validate(text),
        None => def.default_value().ok_or_else(|| missing(key)),
    }
}

/// What Highwater's clusters have.
pub fn default_features() -> Vec<FeatureSupport> {
    let feature = |name: &str, min_level, max_level, initial_level| FeatureSupport {
        name: name.to_owned(),
        min_level,
        max_level,
        initial_level,
    };
    vec![
        feature("metadata.version", METADATA_VERSION_MIN, METADATA_VERSION, METADATA_VERSION),
        // KIP-966, on in new clusters (C06).
        feature(ELR_FEATURE, 0, 1, 1),
        // KIP-848 groups, which are always served.
        feature("group.version", 0, 1, 1),
    ]
}

/// The `metadata.version` level of Kafka 3.3-IV3, the lowest a 4.x broker works with.
pub const METADATA_VERSION_MIN: i16 = 7;
/// The `metadata.version` level of new clusters: that of Kafka 4.4.
pub const METADATA_VERSION: i16 = 33;

/// Who asks, as the broker that took the request saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestContext {
    /// Kafka's principal text, such as `User:alice`; empty for a broker itself.
    pub principal: String,
    /// The client's id.
    pub client_id: String,
    /// The client's address.
    pub client_address: String,
    /// The listener that the client used.
    pub listener: String,
    /// The broker that forwards or asks; [`NodeId::NONE`] when none.
    pub broker_id: NodeId,
}
