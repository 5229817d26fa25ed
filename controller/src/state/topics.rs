//! Topics come to be. A topic's id is drawn once and never returns (I01, KIP-516).
//!
//! A request for too many partitions is refused as a whole; names that it gives more than once are not
//! counted for that.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ErrorCode;
use protocol::messages::create_topics_request::CreatableTopic;
use protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use protocol::types::{NodeId, TopicId, Uuid};
use rand::Rng;

use super::partition_change::default_directory;
use super::repeats::repeated;
use super::{ApiError, ControllerState};
use crate::config::{ConfigCatalogue, ConfigResourceType, validate_topic_configs};
use crate::image::{ConfigMap, PartitionImage};
use crate::placement::{UsableBroker, place_replicas};
use crate::records::{Config, Topic};

/// The longest name of a topic, so that the names of its folders fit.
const MAX_NAME_LENGTH: usize = 249;
/// More partitions in one request are refused.
const MAX_PARTITIONS_PER_REQUEST: i64 = 10_000;
/// The metadata log's own name.
const METADATA_TOPIC: &str = "__cluster_metadata";

impl ControllerState {
    pub(super) fn on_create_topics(
        &mut self,
        request: &CreateTopicsRequest,
    ) -> CreateTopicsResponse {
        let repeated = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
        let is_single = |topic: &&CreatableTopic| !repeated.contains(topic.name.as_str());
        let single: Vec<&CreatableTopic> = request.topics.iter().filter(is_single).collect();
        if self.partitions_wanted(&single) > MAX_PARTITIONS_PER_REQUEST {
            let error = ApiError::new(
                ErrorCode::PolicyViolation,
                "Excessively large number of partitions per request.",
            );
            let topics = request.topics.iter().map(|topic| not_created(&topic.name, error.clone()));
            return CreateTopicsResponse { topics: topics.collect(), ..Default::default() };
        }
        // Names that collide with each other are let pass, as by Kafka; one that exists collides.
        let is_new = |topic: &&&CreatableTopic| self.image.topic_id(&topic.name).is_none();
        let new: BTreeSet<&str> =
            single.iter().filter(is_new).map(|topic| topic.name.as_str()).collect();
        let mut topics: Vec<CreatableTopicResult> = self.deciding(request.validate_only, |state| {
            let created = single.iter().map(|topic| {
                let created = state.create_topic(topic, &new);
                created.unwrap_or_else(|error| not_created(&topic.name, error))
            });
            created.collect()
        });
        // A name that comes more than once is answered once, behind the others.
        topics.extend(repeated.iter().map(|name| {
            let text = "Duplicate topic name.";
            not_created(name, ApiError::new(ErrorCode::InvalidRequest, text))
        }));
        CreateTopicsResponse { topics, ..Default::default() }
    }

    fn partitions_wanted(&self, topics: &[&CreatableTopic]) -> i64 {
        let wanted = topics.iter().map(|topic| {
            if !topic.assignments.is_empty() {
                topic.assignments.len() as i64
            } else if topic.num_partitions == -1 {
                i64::from(self.config.default_partitions)
            } else {
                i64::from(topic.num_partitions.max(0))
            }
        });
        wanted.sum()
    }

    fn create_topic(
        &mut self,
        topic: &CreatableTopic,
        new: &BTreeSet<&str>,
    ) -> Result<CreatableTopicResult, ApiError> {
        self.check_new_name(&topic.name, new)?;
        let configs = self.check_new_configs(topic)?;
        let assignments = if topic.assignments.is_empty() {
            self.place_new_topic(topic)?
        } else {
            self.check_manual_topic(topic)?
        };
        let topic_id = self.draw_topic_id();
        let replication_factor = assignments.first().map_or(0, Vec::len) as i16;
        let num_partitions = assignments.len() as i32;
        self.decide(Topic { name: topic.name.clone(), topic_id: Some(topic_id.into()) });
        for (key, value) in &configs {
            self.decide(Config {
                resource_type: i32::from(ConfigResourceType::Topic.code()),
                resource_name: topic.name.clone(),
                key: key.clone(),
                value: Some(value.clone()),
            });
        }
        for (index, replicas) in assignments.into_iter().enumerate() {
            let partition = self.new_partition(replicas);
            self.decide(partition.to_record(topic_id, index as i32));
        }
        Ok(CreatableTopicResult {
            name: topic.name.clone(),
            topic_id,
            error_message: None,
            num_partitions,
            replication_factor,
            configs: Some(self.effective_configs(&configs)),
            ..Default::default()
        })
    }

    fn check_new_name(&self, name: &str, new: &BTreeSet<&str>) -> Result<(), ApiError> {
        if name == METADATA_TOPIC {
            return Err(ApiError::new(
                ErrorCode::InvalidRequest,
                format!("Creation of internal topic {name} is prohibited."),
            ));
        }
        if self.image.topic_id(name).is_some() {
            return Err(ApiError::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        let invalid = |text| Err(ApiError::new(ErrorCode::InvalidTopicException, text));
        if let Some(reason) = invalid_name_reason(name) {
            return invalid(format!("Topic name is invalid: {reason}"));
        }
        if name.contains(['.', '_']) {
            // Metric names turn '.' into '_', so two such names would be one.
            let unified = name.replace('.', "_");
            let existing = self.image.topics_by_name().map(|topic| &*topic.name);
            let mut existing = existing.filter(|other| !new.contains(other));
            if let Some(other) = existing.find(|other| other.replace('.', "_") == unified) {
                return invalid(format!("Topic '{name}' collides with existing topic: {other}"));
            }
        }
        Ok(())
    }

    fn check_new_configs(&self, topic: &CreatableTopic) -> Result<ConfigMap, ApiError> {
        let mut configs = ConfigMap::new();
        let mut without_value = Vec::new();
        for config in &topic.configs {
            match &config.value {
                Some(value) => {
                    configs.insert(config.name.clone(), value.clone());
                }
                None => without_value.push(config.name.as_str()),
            }
        }
        if !without_value.is_empty() {
            let keys = without_value.join(",");
            return Err(ApiError::new(
                ErrorCode::InvalidConfig,
                format!("Null value not supported for topic configs: {keys}"),
            ));
        }
        validate_topic_configs(&configs, &self.config_layers().borrow())
            .map_err(|error| ApiError::new(ErrorCode::InvalidConfig, error.to_string()))?;
        Ok(configs)
    }

    fn place_new_topic(&mut self, topic: &CreatableTopic) -> Result<Vec<Vec<NodeId>>, ApiError> {
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
        if topic.num_partitions < -1 || topic.num_partitions == 0 {
            return Err(ApiError::new(
                ErrorCode::InvalidPartitions,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
        let partitions = match topic.num_partitions {
            -1 => self.config.default_partitions,
            given => given,
        };
        let replication_factor = match topic.replication_factor {
            -1 => self.config.default_replication_factor,
            given => given,
        };
        self.place(partitions.max(0) as usize, replication_factor.max(0) as usize)
    }

    /// Places new partitions on the brokers that are not shutting down.
    pub(super) fn place(
        &mut self,
        partitions: usize,
        replication_factor: usize,
    ) -> Result<Vec<Vec<NodeId>>, ApiError> {
        let usable = self.image.brokers().filter(|broker| !broker.in_controlled_shutdown);
        let brokers: Vec<UsableBroker> = usable
            .map(|broker| UsableBroker {
                id: broker.id,
                rack: broker.rack.clone(),
                fenced: broker.fenced,
            })
            .collect();
        place_replicas(&brokers, partitions, replication_factor, &mut self.rng).map_err(|error| {
            ApiError::new(
                ErrorCode::InvalidReplicationFactor,
                format!("Unable to replicate the partition {replication_factor} time(s): {error}"),
            )
        })
    }

    fn check_manual_topic(&self, topic: &CreatableTopic) -> Result<Vec<Vec<NodeId>>, ApiError> {
        for (what, given) in [
            ("replication factor", i32::from(topic.replication_factor)),
            ("numPartitions", topic.num_partitions),
        ] {
            if given != -1 {
                return Err(ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!(
                        "A manual partition assignment was specified, but {what} was not set to -1."
                    ),
                ));
            }
        }
        let bad = |text: String| ApiError::new(ErrorCode::InvalidReplicaAssignment, text);
        let mut by_index: BTreeMap<i32, Vec<NodeId>> = BTreeMap::new();
        let mut replication_factor = None;
        for assignment in &topic.assignments {
            let index = assignment.partition_index;
            let replicas: Vec<NodeId> = assignment.broker_ids.iter().copied().map(NodeId).collect();
            self.check_manual_replicas(&replicas, replication_factor)?;
            replication_factor = Some(replicas.len());
            self.check_some_active(&replicas, index)?;
            if by_index.insert(index, replicas).is_some() {
                return Err(bad(format!(
                    "Found multiple manual partition assignments for partition {index}"
                )));
            }
        }
        if by_index.keys().copied().ne(0..by_index.len() as i32) {
            return Err(bad(
                "partitions should be a consecutive 0-based integer sequence".to_owned()
            ));
        }
        Ok(by_index.into_values().collect())
    }

    /// Whether replicas given by hand exist, once each, and as many as `replication_factor` says.
    pub(super) fn check_manual_replicas(
        &self,
        replicas: &[NodeId],
        replication_factor: Option<usize>,
    ) -> Result<(), ApiError> {
        let bad = |text: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, text));
        if replicas.is_empty() {
            return bad(
                "The manual partition assignment includes an empty replica list.".to_owned()
            );
        }
        for (at, replica) in replicas.iter().enumerate() {
            if replicas[..at].contains(replica) {
                return bad(format!(
                    "The manual partition assignment includes the broker {replica} more than once."
                ));
            }
            if self.image.broker(*replica).is_none() {
                return bad(format!(
                    "The manual partition assignment includes broker {replica}, but no such broker \
                     is registered."
                ));
            }
        }
        match replication_factor {
            Some(wanted) if wanted != replicas.len() => bad(format!(
                "The manual partition assignment includes a partition with {} replica(s), but this \
                 is not consistent with previous partitions, which have {wanted} replica(s).",
                replicas.len()
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn check_some_active(
        &self,
        replicas: &[NodeId],
        index: i32,
    ) -> Result<(), ApiError> {
        if replicas.iter().any(|replica| self.image.is_active(*replica)) {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::InvalidReplicaAssignment,
            format!(
                "All brokers specified in the manual partition assignment for partition {index} \
                 are fenced or in controlled shutdown."
            ),
        ))
    }

    /// A partition at its beginning: the active replicas are in the ISR, the first of them leads.
    pub(super) fn new_partition(&self, replicas: Vec<NodeId>) -> PartitionImage {
        let active = replicas.iter().copied().filter(|replica| self.image.is_active(*replica));
        let isr: Vec<NodeId> = active.collect();
        let directories = replicas.iter().map(|replica| default_directory(&self.image, *replica));
        PartitionImage {
            leader: isr.first().copied().unwrap_or(NodeId::NONE),
            directories: directories.collect(),
            isr,
            replicas,
            ..Default::default()
        }
    }

    /// A random (version 4) id whose text does not begin with a dash, as Kafka's tools want it.
    fn draw_topic_id(&mut self) -> TopicId {
        loop {
            let mut bytes: [u8; 16] = self.rng.random();
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            let id = Uuid(bytes);
            if !id.to_base64().starts_with('-') && self.image.topic(id).is_none() {
                return id;
            }
        }
    }

    fn effective_configs(&self, own: &ConfigMap) -> Vec<CreatableTopicConfigs> {
        let layers = self.config_layers();
        let layers = layers.borrow();
        let shown = ConfigCatalogue::topic()
            .iter()
            .filter(|def| !def.internal || own.contains_key(def.name));
        shown
            .map(|def| {
                let effective = layers.topic_config(def, Some(own));
                CreatableTopicConfigs {
                    name: def.name.to_owned(),
                    value: effective.value.filter(|_| !def.sensitive),
                    read_only: false,
                    config_source: effective.source.code(),
                    is_sensitive: def.sensitive,
                    ..Default::default()
                }
            })
            .collect()
    }
}

/// The answer for a topic that was refused.
fn not_created(name: &str, error: ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.to_owned(),
        error_code: error.code.code(),
        error_message: error.message,
        ..Default::default()
    }
}

/// What is wrong with a topic's name; `None` when nothing is.
pub(super) fn invalid_name_reason(name: &str) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        Some("the empty string is not allowed".to_owned())
    } else if name == "." || name == ".." {
        Some(format!("'{name}' is not allowed"))
    } else if name.len() > MAX_NAME_LENGTH {
        Some(format!(
            "the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        ))
    } else if !name.chars().all(is_allowed) {
        Some(format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ))
    } else {
        None
    }
}
