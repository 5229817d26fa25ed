//! A registered broker (C02).

use std::sync::Arc;

use protocol::types::{BrokerEpoch, NodeId, Uuid};

use super::directory_id;
use crate::records::{self, Endpoint, FeatureRange, RegisterBroker, uuid_of};

/// Where a broker listens under one listener name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerListener {
    /// The listener's name, such as `PLAINTEXT`.
    pub name: Arc<str>,
    /// The advertised host.
    pub host: Arc<str>,
    /// The advertised port.
    pub port: u16,
    /// Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The versions of a feature that a broker can work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// The feature's name, such as `metadata.version`.
    pub name: Arc<str>,
    /// The lowest version.
    pub min_version: i16,
    /// The highest version.
    pub max_version: i16,
}

/// One broker as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// Its node id.
    pub id: NodeId,
    /// Names the process; a restart brings a new one.
    pub incarnation_id: Uuid,
    /// Names the registration; the offset of the batch that held it.
    pub epoch: BrokerEpoch,
    /// Its endpoints, in the order it gave them.
    pub listeners: Vec<BrokerListener>,
    /// `broker.rack`.
    pub rack: Option<Arc<str>>,
    /// Whether it may neither lead nor be in an ISR.
    pub fenced: bool,
    /// Whether it is on its way out; may neither lead nor join an ISR.
    pub in_controlled_shutdown: bool,
    /// The ids of its log directories that work.
    pub log_dirs: Vec<Uuid>,
    /// What it supports.
    pub features: Vec<SupportedFeature>,
}

impl BrokerImage {
    /// Whether it may lead partitions and be in ISRs (I11, H10).
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// Whether a replica assigned to this directory may be used (KIP-858).
    pub fn has_online_dir(&self, directory: Uuid) -> bool {
        directory_id::is_online(directory, &self.log_dirs)
    }

    /// Its endpoint under a listener name.
    pub fn listener(&self, name: &str) -> Option<&BrokerListener> {
        self.listeners.iter().find(|listener| &*listener.name == name)
    }

    pub(super) fn from_record(record: &RegisterBroker) -> Self {
        let listeners = record.endpoints.iter().map(|endpoint| BrokerListener {
            name: endpoint.listener.as_str().into(),
            host: endpoint.host.as_str().into(),
            port: endpoint.port as u16,
            security_protocol: endpoint.security_protocol as i16,
        });
        let features = record.features.iter().map(|feature| SupportedFeature {
            name: feature.name.as_str().into(),
            min_version: feature.min_version as i16,
            max_version: feature.max_version as i16,
        });
        BrokerImage {
            id: NodeId(record.broker_id),
            incarnation_id: uuid_of(&record.incarnation_id),
            epoch: BrokerEpoch(record.broker_epoch),
            listeners: listeners.collect(),
            rack: record.rack.as_deref().map(Arc::from),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            log_dirs: record.log_dirs.iter().copied().map(Uuid::from).collect(),
            features: features.collect(),
        }
    }

    /// The one record that gives this broker again.
    pub fn to_record(&self) -> RegisterBroker {
        let endpoints = self.listeners.iter().map(|listener| Endpoint {
            listener: listener.name.to_string(),
            host: listener.host.to_string(),
            port: u32::from(listener.port),
            security_protocol: i32::from(listener.security_protocol),
        });
        let features = self.features.iter().map(|feature| FeatureRange {
            name: feature.name.to_string(),
            min_version: i32::from(feature.min_version),
            max_version: i32::from(feature.max_version),
        });
        RegisterBroker {
            broker_id: self.id.get(),
            incarnation_id: Some(self.incarnation_id.into()),
            broker_epoch: self.epoch.get(),
            endpoints: endpoints.collect(),
            rack: self.rack.as_deref().map(str::to_owned),
            fenced: self.fenced,
            in_controlled_shutdown: self.in_controlled_shutdown,
            log_dirs: self.log_dirs.iter().copied().map(records::Id::from).collect(),
            features: features.collect(),
        }
    }
}
