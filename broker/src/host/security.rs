//! The TLS of a node: what its listeners accept with, and how it reaches other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::rpc::ControlSecurity;
use rustls::{ClientConfig, ServerConfig};

use crate::config::{BrokerConfig, Endpoint, SecurityProtocol};
use crate::network::BoundListeners;
use crate::tls::{TlsError, client_config, server_config};

/// The TLS configurations of a node; empty where everything is plain.
#[derive(Debug, Default)]
pub(super) struct NodeSecurity {
    /// Of the broker's listeners, by name.
    listeners: BTreeMap<String, Arc<ServerConfig>>,
    /// To other brokers.
    pub(super) to_brokers: Option<Arc<ClientConfig>>,
    /// Of the controller's listener, and to the controllers.
    pub(super) control: ControlSecurity,
}

impl NodeSecurity {
    pub(super) fn of(config: &BrokerConfig) -> Result<Self, TlsError> {
        let listeners = &config.listeners;
        let is_ssl = |endpoint: &&Endpoint| endpoint.protocol == SecurityProtocol::Ssl;
        let server = |name: &str| listeners.tls.get(name).map(server_config).transpose();
        let client = |name: &str| listeners.tls.get(name).map(client_config).transpose();
        let mut security = NodeSecurity::default();
        for endpoint in listeners.broker.iter().filter(is_ssl) {
            if let Some(config) = server(&endpoint.listener)? {
                // Kernel TLS would keep `sendfile`; until it is used, records are encrypted in here.
                tracing::info!(
                    listener = endpoint.listener,
                    "TLS is done by this process, not by the kernel"
                );
                security.listeners.insert(endpoint.listener.clone(), config);
            }
        }
        if !listeners.broker.is_empty() {
            security.to_brokers = client(&listeners.inter_broker_name)?;
        }
        if let Some(endpoint) = listeners.controller.first() {
            security.control.server = server(&endpoint.listener)?;
        }
        if let Some(name) = listeners.controller_names.first() {
            security.control.client = client(name)?;
        }
        Ok(security)
    }

    /// Puts the listeners under TLS that have it.
    pub(super) fn encrypt(&self, bound: &mut BoundListeners) {
        for (name, config) in &self.listeners {
            bound.encrypt(name, config);
        }
    }
}
