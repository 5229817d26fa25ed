//! The TLS of a node: what its listeners accept with, and how it reaches other nodes. Files of keys and
//! certificates are read again when this broker's own configs change (KIP-226), also to what they were, as
//! in Kafka. New connections have the new certificates; those that are open stay.
//!
//! What cannot be used changes nothing. A request that would lead there is refused; what is found later, as
//! when a file changed in between, is told at WARN. Kafka answers such a request without an error when the
//! value stays the same and only the file is bad; here it is refused, for nobody else would notice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use controller::config::{ConfigResource, STORE_KEYS};
use controller::handshake::{Acceptor, Connector};
use controller::image::ConfigMap;
use controller::rpc::ControlSecurity;
use controller::{ClusterImage, ImageDelta};
use fetcher::{Dial, Dialing, Wire};
use parking_lot::Mutex;
use protocol::NodeId;
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

use crate::config::{BrokerConfig, Endpoint, SecurityProtocol, listener_prefix, read_again};
use crate::core::host::Certificates;
use crate::network::{BoundListeners, KernelTls};
use crate::tls::{
    TlsError, TlsSettings, check_names_kept, client_config, date_warnings, server_config,
};

/// The TLS of a node's listeners; empty where everything is plain.
#[derive(Debug)]
pub(super) struct NodeSecurity {
    node: NodeId,
    /// What the node was started with.
    properties: BTreeMap<String, String>,
    /// By name; those that it listens on or connects to.
    listeners: BTreeMap<String, ListenerTls>,
    /// The broker's listeners with TLS.
    broker_listeners: Vec<String>,
    /// What the kernel does of their TLS.
    kernel: Option<Arc<KernelTls>>,
    /// To other brokers.
    to_brokers: Option<Connector>,
    /// Of the controller's listener, and to the controllers.
    pub(super) control: ControlSecurity,
}

/// The TLS of one listener, and where what changes of it is put.
#[derive(Debug)]
struct ListenerTls {
    in_force: Mutex<TlsSettings>,
    server: Option<watch::Sender<Arc<ServerConfig>>>,
    client: Option<watch::Sender<Arc<ClientConfig>>>,
}

/// What a listener would have, made ready.
struct Prepared {
    settings: TlsSettings,
    server: Option<Arc<ServerConfig>>,
    client: Option<Arc<ClientConfig>>,
}

impl NodeSecurity {
    pub(super) fn of(config: &BrokerConfig) -> Result<Self, TlsError> {
        let listeners = &config.listeners;
        let is_ssl = |endpoint: &&Endpoint| endpoint.protocol == SecurityProtocol::Ssl;
        let mut security = NodeSecurity {
            node: config.node_id,
            properties: config.properties.clone(),
            listeners: BTreeMap::new(),
            broker_listeners: Vec::new(),
            kernel: None,
            to_brokers: None,
            control: ControlSecurity::default(),
        };
        for endpoint in listeners.broker.iter().filter(is_ssl) {
            security.broker_listeners.push(endpoint.listener.clone());
        }
        security.kernel = security.kernel_tls(config.kernel_tls);
        let accepting = security.broker_listeners.iter();
        let accepting = accepting.chain(listeners.controller.first().map(|own| &own.listener));
        let accepting: Vec<String> = accepting.cloned().collect();
        let inter_broker = Some(&listeners.inter_broker_name);
        let to_brokers = inter_broker.filter(|_| !listeners.broker.is_empty());
        let to_controllers = listeners.controller_names.first();
        for (name, settings) in &listeners.tls {
            let accepts = accepting.contains(name);
            let connects = [to_brokers, to_controllers].contains(&Some(name));
            let tls = ListenerTls::of(settings, accepts, connects)?;
            security.listeners.insert(name.clone(), tls);
            tell_dates(name, settings);
        }
        security.to_brokers = to_brokers.and_then(|name| security.connector(name));
        security.control.client = to_controllers.and_then(|name| security.connector(name));
        let control = listeners.controller.first();
        security.control.server = control.and_then(|own| security.acceptor(&own.listener));
        Ok(security)
    }

    /// Asks the kernel where there is a listener that it could work for, and tells who does what.
    fn kernel_tls(&self, is_allowed: bool) -> Option<Arc<KernelTls>> {
        let listeners = self.broker_listeners.join(",");
        if listeners.is_empty() {
            return None;
        }
        let off = || "highwater.kernel.tls.enable is false".to_owned();
        match is_allowed.then(KernelTls::probe).unwrap_or_else(|| Err(off())) {
            Ok(kernel) => {
                tracing::info!(
                    listeners,
                    "TLS is done by the kernel where a client agrees on {kernel}"
                );
                Some(Arc::new(kernel))
            }
            Err(reason) => {
                tracing::info!(
                    listeners,
                    "TLS is done by this process, not by the kernel: {reason}"
                );
                None
            }
        }
    }

    fn acceptor(&self, listener: &str) -> Option<Acceptor> {
        let server = self.listeners.get(listener)?.server.as_ref()?;
        Some(Acceptor::new(server.subscribe()))
    }

    fn connector(&self, listener: &str) -> Option<Connector> {
        let client = self.listeners.get(listener)?.client.as_ref()?;
        Some(Connector::new(client.subscribe()))
    }

    /// How fetchers connect to the leaders, where that is under TLS.
    pub(super) fn to_leaders(&self) -> Option<Arc<dyn Dial>> {
        self.to_brokers.clone().map(|connector| Arc::new(ToLeaders(connector)) as Arc<dyn Dial>)
    }

    /// Puts the listeners under TLS that have it.
    pub(super) fn encrypt(&self, bound: &mut BoundListeners) {
        for name in &self.broker_listeners {
            if let Some(acceptor) = self.acceptor(name) {
                bound.encrypt(name, &acceptor, self.kernel.as_ref());
            }
        }
    }

    /// Reads files again when this broker's own configs changed, or were set to what they are.
    pub(super) fn on_metadata(&self, image: &ClusterImage, delta: &ImageDelta) {
        let own = ConfigResource::broker(self.node);
        if self.listeners.is_empty() || !delta.changed_configs.contains(&own) {
            return;
        }
        let configs = image.configs(&own).cloned().unwrap_or_default();
        for (listener, tls) in &self.listeners {
            match tls.prepare(&self.properties, &configs, listener) {
                Ok(None) => {}
                Ok(Some(prepared)) => {
                    tell_dates(listener, &prepared.settings);
                    tls.put_in_force(prepared);
                    tracing::info!(listener, "new connections have the certificates read again");
                }
                Err(error) => tracing::warn!(
                    listener,
                    "keys and certificates stay as they were, the new ones cannot be used: {error}"
                ),
            }
        }
    }
}

/// Connections to other brokers, as fetchers ask for them.
#[derive(Debug)]
struct ToLeaders(Connector);

impl Dial for ToLeaders {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialing<'a> {
        Box::pin(async move { Ok(Box::new(self.0.connect(host, port).await?) as Box<dyn Wire>) })
    }
}

impl Certificates for NodeSecurity {
    fn check(&self, configs: &ConfigMap, changed: &[&str]) -> Result<(), String> {
        for (listener, tls) in &self.listeners {
            let prefix = listener_prefix(listener);
            let is_store = |key: &&str| {
                key.strip_prefix(&prefix).is_some_and(|base| STORE_KEYS.contains(&base))
            };
            if changed.iter().any(is_store) {
                let prepared = tls.prepare(&self.properties, configs, listener);
                prepared.map_err(|error| format!("listener {listener}: {error}"))?;
            }
        }
        Ok(())
    }
}

impl ListenerTls {
    fn of(settings: &TlsSettings, accepts: bool, connects: bool) -> Result<Self, TlsError> {
        let server = accepts.then(|| server_config(settings)).transpose()?;
        let client = connects.then(|| client_config(settings)).transpose()?;
        Ok(Self {
            in_force: Mutex::new(settings.clone()),
            server: server.map(watch::Sender::new),
            client: client.map(watch::Sender::new),
        })
    }

    /// What `configs` of this broker lead to; `None` for what is in force.
    fn prepare(
        &self,
        properties: &BTreeMap<String, String>,
        configs: &ConfigMap,
        listener: &str,
    ) -> Result<Option<Prepared>, String> {
        let settings = read_again(properties, configs, listener)?;
        let in_force = self.in_force.lock().clone();
        if in_force == settings {
            return Ok(None);
        }
        let server = self.server.as_ref().map(|_| server_config(&settings)).transpose();
        let client = self.client.as_ref().map(|_| client_config(&settings)).transpose();
        let told = |error: TlsError| error.to_string();
        let (server, client) = (server.map_err(told)?, client.map_err(told)?);
        check_names_kept(&in_force, &settings).map_err(told)?;
        Ok(Some(Prepared { settings, server, client }))
    }

    fn put_in_force(&self, prepared: Prepared) {
        if let (Some(sender), Some(config)) = (&self.server, prepared.server) {
            sender.send_replace(config);
        }
        if let (Some(sender), Some(config)) = (&self.client, prepared.client) {
            sender.send_replace(config);
        }
        *self.in_force.lock() = prepared.settings;
    }
}

fn tell_dates(listener: &str, settings: &TlsSettings) {
    for line in date_warnings(settings, SystemTime::now()) {
        tracing::warn!(listener, "{line}");
    }
}

#[cfg(test)]
mod tests;
