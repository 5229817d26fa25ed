//! The active controller: Kafka's requests and time in, records and answers out.
//!
//! It decides from a working image that contains everything decided so far, committed or not; the
//! caller proposes each batch of records in the order given, and lets an answer go when everything
//! decided before it is committed. A batch takes the next offset of the quorum's log, which is how a
//! registration knows its epoch (C02). Losing leadership drops the whole value; the next leader
//! makes one from its committed image (Q07). Deterministic: no clock, randomness from a seed.
//!
//! What only the active controller knows and no record holds (who was heard from, when) is in
//! [`heartbeat`], and starts anew with each leader.

mod alter_partition;
mod brokers;
mod configs;
mod create_partitions;
mod delete_topics;
mod directories;
mod elections;
mod eligible;
mod features;
mod heartbeat;
mod partition_change;
mod producer_ids;
mod reassignment;
mod repeats;
mod settings;
mod topics;

#[cfg(test)]
mod tests;

use protocol::messages::{ApiVersionsResponse, RequestBody, ResponseBody};
use protocol::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset};
use protocol::{ApiKey, ErrorCode};
use rand::SeedableRng;
use rand::rngs::StdRng;
use replication::time::{Instant, Now};

use crate::config::{ConfigLayers, ConfigResource};
use crate::image::{ClusterImage, ImageDelta};
use crate::records::{ClusterBoot, FeatureLevel, MetadataRecord};
use eligible::ELR_FEATURE;
use heartbeat::Contacts;

pub use settings::{
    ControllerConfig, FeatureSupport, METADATA_VERSION, METADATA_VERSION_MIN, RequestContext,
    default_features,
};

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Decision {
    /// One batch, already part of the working image; empty when nothing changes.
    pub records: Vec<MetadataRecord>,
    /// The answer, true once the records and all before them are committed.
    pub response: ResponseBody,
}

/// Why part of a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiError {
    code: ErrorCode,
    message: Option<String>,
}

impl ApiError {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ApiError { code, message: Some(message.into()) }
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> Self {
        ApiError { code, message: None }
    }
}

/// An outcome as the two fields of an answer.
fn code_and_message(outcome: Result<(), ApiError>) -> (i16, Option<String>) {
    match outcome {
        Ok(()) => (ErrorCode::None.code(), None),
        Err(error) => (error.code.code(), error.message),
    }
}

/// The state that an active controller decides from.
#[derive(Debug)]
pub struct ControllerState {
    config: ControllerConfig,
    image: ClusterImage,
    epoch: LeaderEpoch,
    next_offset: Offset,
    /// Records of the decision being made; already applied to `image`.
    decided: Vec<MetadataRecord>,
    contacts: Contacts,
    rng: StdRng,
    next_rebalance: Instant,
    next_unclean_check: Instant,
}

/// Whether the active controller answers requests of this API.
pub fn is_served(api_key: ApiKey) -> bool {
    matches!(
        api_key,
        ApiKey::BrokerRegistration
            | ApiKey::BrokerHeartbeat
            | ApiKey::UnregisterBroker
            | ApiKey::AlterPartition
            | ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreatePartitions
            | ApiKey::ElectLeaders
            | ApiKey::AlterPartitionReassignments
            | ApiKey::ListPartitionReassignments
            | ApiKey::IncrementalAlterConfigs
            | ApiKey::AlterConfigs
            | ApiKey::AllocateProducerIds
            | ApiKey::AssignReplicasToDirs
            | ApiKey::UpdateFeatures
    )
}

impl ControllerState {
    /// Takes over from the committed image, in quorum epoch `epoch`. The image's offset must be the
    /// end of the log: the first batch decided gets the next one. Returns what a new cluster needs
    /// first; nothing in the life of an old one.
    pub fn become_active(
        config: ControllerConfig,
        committed: ClusterImage,
        epoch: LeaderEpoch,
        now: Now,
    ) -> (Self, Vec<MetadataRecord>) {
        let contacts = Contacts::new(&committed, config.session_timeout, now.monotonic);
        let rng = StdRng::seed_from_u64(config.seed ^ (epoch.get() as u64).rotate_left(32));
        let mut state = ControllerState {
            next_offset: committed.offset().next(),
            next_rebalance: now.monotonic + config.leader_imbalance_check_interval,
            next_unclean_check: now.monotonic + config.unclean_election_interval,
            image: committed,
            config,
            epoch,
            decided: Vec::new(),
            contacts,
            rng,
        };
        if state.image.cluster_id().is_empty() {
            state.boot();
        }
        let records = state.take_batch();
        (state, records)
    }

    /// Answers one request. Requests for which [`is_served`] is false get ApiVersions' answer to an
    /// unknown API, UNSUPPORTED_VERSION, and should not come here.
    pub fn on_request(
        &mut self,
        _context: &RequestContext,
        api_version: i16,
        request: &RequestBody,
        now: Now,
    ) -> Decision {
        use RequestBody as Body;
        let response = match request {
            Body::BrokerRegistration(request) => self.on_broker_registration(request, now).into(),
            Body::BrokerHeartbeat(request) => self.on_broker_heartbeat(request, now).into(),
            Body::UnregisterBroker(request) => self.on_unregister_broker(request).into(),
            Body::AlterPartition(request) => self.on_alter_partition(api_version, request).into(),
            Body::CreateTopics(request) => self.on_create_topics(request).into(),
            Body::DeleteTopics(request) => self.on_delete_topics(api_version, request).into(),
            Body::CreatePartitions(request) => self.on_create_partitions(request).into(),
            Body::ElectLeaders(request) => self.on_elect_leaders(api_version, request).into(),
            Body::AlterPartitionReassignments(request) => {
                self.on_alter_reassignments(request).into()
            }
            Body::ListPartitionReassignments(request) => self.on_list_reassignments(request).into(),
            Body::IncrementalAlterConfigs(request) => {
                self.on_incremental_alter_configs(request).into()
            }
            Body::AlterConfigs(request) => self.on_alter_configs(request).into(),
            Body::AllocateProducerIds(request) => self.on_allocate_producer_ids(request).into(),
            Body::AssignReplicasToDirs(request) => self.on_assign_replicas_to_dirs(request).into(),
            Body::UpdateFeatures(request) => self.on_update_features(api_version, request).into(),
            _ => ApiVersionsResponse {
                error_code: ErrorCode::UnsupportedVersion.code(),
                ..Default::default()
            }
            .into(),
        };
        Decision { records: self.take_batch(), response }
    }

    /// What time alone decides: at most one silent broker is fenced per pass (C01), leaders return to
    /// the preferred replicas, partitions without a leader get one where unclean elections are
    /// allowed (C05).
    pub fn on_tick(&mut self, now: Now) -> Vec<MetadataRecord> {
        self.fence_one_stale_broker(now.monotonic);
        if self.config.auto_leader_rebalance && now.monotonic >= self.next_rebalance {
            self.next_rebalance = now.monotonic + self.config.leader_imbalance_check_interval;
            self.elect_preferred_leaders();
        }
        if now.monotonic >= self.next_unclean_check {
            self.next_unclean_check = now.monotonic + self.config.unclean_election_interval;
            self.elect_unclean_leaders();
        }
        self.take_batch()
    }

    /// Gives leadership up: what was decided and not committed is forgotten with this value.
    pub fn resign(self) {}

    /// The working image: everything decided, committed or not.
    pub fn image(&self) -> &ClusterImage {
        &self.image
    }

    /// The offset that the next batch gets.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The quorum epoch it decides in.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    fn boot(&mut self) {
        self.decide(ClusterBoot { cluster_id: self.config.cluster_id.clone() });
        for feature in self.config.features.clone() {
            if feature.initial_level > 0 {
                if feature.name == ELR_FEATURE {
                    self.prepare_for_elr();
                }
                let level = i32::from(feature.initial_level);
                self.decide(FeatureLevel { name: feature.name, level });
            }
        }
    }

    /// Adds a record to the decision being made and applies it, so that what follows sees it.
    fn decide(&mut self, record: impl Into<MetadataRecord>) {
        let record = record.into();
        if let Err(error) = self.image.apply(&record, &mut ImageDelta::default()) {
            panic!("decided a record that does not apply: {error}: {record:?}");
        }
        self.decided.push(record);
    }

    /// Ends the decision being made.
    fn take_batch(&mut self) -> Vec<MetadataRecord> {
        let records = std::mem::take(&mut self.decided);
        if !records.is_empty() {
            self.image.offset = self.next_offset;
            self.image.epoch = self.epoch;
            self.next_offset = self.next_offset.next();
        }
        records
    }

    /// Runs `decide`; with `validate_only` nothing of it stays but its answer.
    fn deciding<T>(&mut self, validate_only: bool, decide: impl FnOnce(&mut Self) -> T) -> T {
        if !validate_only {
            return decide(self);
        }
        let before = self.image.clone();
        let answer = decide(self);
        self.image = before;
        self.decided.clear();
        answer
    }

    /// Whether `epoch` names the registration of `broker`; else what the answer says (77).
    fn check_broker_epoch(&self, broker: i32, epoch: i64) -> Result<NodeId, ErrorCode> {
        let id = NodeId(broker);
        match self.image.broker(id) {
            Some(registered) if registered.epoch == BrokerEpoch(epoch) => Ok(id),
            _ => Err(ErrorCode::StaleBrokerEpoch),
        }
    }

    /// The config layers under a topic's own configs.
    fn config_layers(&self) -> Layers {
        Layers {
            broker: self.image.configs.get(&ConfigResource::broker(self.config.node_id)).cloned(),
            default: self.image.configs.get(&ConfigResource::default_broker()).cloned(),
            properties: self.config.properties.clone(),
        }
    }
}

/// Owned layers, so that decisions can be made while they are in use.
struct Layers {
    broker: Option<std::sync::Arc<crate::image::ConfigMap>>,
    default: Option<std::sync::Arc<crate::image::ConfigMap>>,
    properties: std::collections::BTreeMap<String, String>,
}

impl Layers {
    fn borrow(&self) -> ConfigLayers<'_> {
        ConfigLayers {
            dynamic_broker: self.broker.as_deref(),
            dynamic_default: self.default.as_deref(),
            static_broker: Some(&self.properties),
        }
    }
}
