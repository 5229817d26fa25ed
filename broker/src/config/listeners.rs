//! The listeners of a node: which it has, which of them are the controller's, what it tells others.
//! Checks as Kafka's: names are unique, every name has a protocol, each role has its listeners, the
//! inter-broker listener is advertised, and nobody is sent to 0.0.0.0.

use std::collections::{BTreeMap, BTreeSet};

use super::broker_config::Roles;
use super::endpoint::{Endpoint, SecurityProtocol};
use super::reader::Reader;
use super::tls;
use crate::tls::TlsSettings;

/// The listeners of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenersConfig {
    /// `listeners` for clients and brokers.
    pub broker: Vec<Endpoint>,
    /// `listeners` for the quorum: those named in `controller.listener.names`.
    pub controller: Vec<Endpoint>,
    /// `advertised.listeners`, or the broker listeners when that is not set. Hosts may be empty and ports
    /// 0; [`ListenersConfig::effective_advertised`] fills them in.
    pub advertised: Vec<Endpoint>,
    /// `controller.listener.names`; the first is the one to reach controllers by.
    pub controller_names: Vec<String>,
    /// The name of the listener that brokers reach each other by.
    pub inter_broker_name: String,
    /// The TLS of the listeners that have it and that this node listens on or connects to.
    pub tls: BTreeMap<String, TlsSettings>,
}

impl ListenersConfig {
    /// What to tell others: advertised listeners with an empty host get `host_name`, those with port 0 the
    /// port that was bound.
    pub fn effective_advertised(
        &self,
        host_name: &str,
        bound_port: impl Fn(&str) -> Option<u16>,
    ) -> Vec<Endpoint> {
        let mut endpoints = self.advertised.clone();
        for endpoint in &mut endpoints {
            if endpoint.host.is_empty() {
                endpoint.host = host_name.to_owned();
            }
            if endpoint.port == 0 {
                endpoint.port = bound_port(&endpoint.listener).unwrap_or(0);
            }
        }
        endpoints
    }

    pub(super) fn read(reader: &mut Reader<'_>, roles: Roles) -> ListenersConfig {
        let controller_names: Vec<String> = reader
            .list("controller.listener.names")
            .iter()
            .map(|name| name.to_uppercase())
            .collect();
        let protocols = read_protocols(reader, &controller_names);
        let all = read_endpoints(reader, "listeners", &protocols);
        check_distinct(reader, &all);
        let (controller, broker): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|endpoint| controller_names.contains(&endpoint.listener));
        let advertised = if reader.is_set("advertised.listeners") {
            read_endpoints(reader, "advertised.listeners", &protocols)
        } else {
            broker.clone()
        };
        // A combined node may advertise where its controller is; brokers and clients are not told of it.
        let is_told = |endpoint: &Endpoint| {
            !roles.controller || !controller_names.contains(&endpoint.listener)
        };
        let advertised = advertised.into_iter().filter(is_told).collect();
        let inter_broker_name = read_inter_broker_name(reader, &protocols);
        let mut listeners = ListenersConfig {
            broker,
            controller,
            advertised,
            controller_names,
            inter_broker_name,
            tls: BTreeMap::new(),
        };
        listeners.check_roles(reader, roles);
        if roles.broker {
            listeners.check_advertised(reader);
        }
        listeners.tls = tls::read(reader, &listeners, &protocols);
        listeners
    }

    fn check_roles(&self, reader: &mut Reader<'_>, roles: Roles) {
        let (names, given) = (self.controller_names.join(","), text_of(&self.all()));
        if roles.controller && self.controller.is_empty() {
            reader.refuse(
                "controller.listener.names",
                &names,
                format!("a node with the controller role needs one of its listeners to be named here; it has {given}"),
            );
        }
        if roles.controller && !roles.broker && !self.broker.is_empty() {
            reader.refuse(
                "listeners",
                &given,
                format!("a node that is only a controller may have only the listeners of controller.listener.names ({names})"),
            );
        }
        if roles.broker && self.broker.is_empty() {
            reader.refuse(
                "listeners",
                &given,
                format!(
                    "a broker needs a listener besides those of controller.listener.names ({names})"
                ),
            );
        }
        if roles.broker && !roles.controller && !self.controller.is_empty() {
            reader.refuse(
                "listeners",
                &given,
                format!("a node without the controller role may have no listener of controller.listener.names ({names})"),
            );
        }
    }

    fn check_advertised(&self, reader: &mut Reader<'_>) {
        let given = text_of(&self.advertised);
        for endpoint in &self.advertised {
            if endpoint.host == "0.0.0.0" || endpoint.host == "::" {
                reader.refuse(
                    "advertised.listeners",
                    &given,
                    "nobody can be sent to the address of every interface; give a host name or address that clients reach",
                );
            }
            if self.controller_names.contains(&endpoint.listener) {
                reader.refuse(
                    "advertised.listeners",
                    &given,
                    format!(
                        "{} is in controller.listener.names, and this node is no controller",
                        endpoint.listener
                    ),
                );
            } else if !self.broker.iter().any(|own| own.listener == endpoint.listener) {
                reader.refuse(
                    "advertised.listeners",
                    &given,
                    format!(
                        "{} is not in listeners ({})",
                        endpoint.listener,
                        text_of(&self.broker)
                    ),
                );
            }
        }
        let name = &self.inter_broker_name;
        if self.controller_names.contains(name) {
            reader.refuse(
                "inter.broker.listener.name",
                name,
                "brokers do not reach each other by a listener of controller.listener.names",
            );
        } else if !self.advertised.iter().any(|endpoint| endpoint.listener == *name) {
            reader.refuse(
                "inter.broker.listener.name",
                name,
                format!("it must be the name of an advertised listener ({given}); it is {name} where it is not set"),
            );
        }
    }

    fn all(&self) -> Vec<Endpoint> {
        self.broker.iter().chain(&self.controller).cloned().collect()
    }
}

fn text_of(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(",")
}

/// Name to protocol. Controller listeners need no entry while the map is left to its default.
fn read_protocols(
    reader: &mut Reader<'_>,
    controller_names: &[String],
) -> BTreeMap<String, SecurityProtocol> {
    const KEY: &str = "listener.security.protocol.map";
    let mut protocols = BTreeMap::new();
    let text = reader.text(KEY).unwrap_or_default();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let protocol = entry.rsplit_once(':').and_then(|(name, protocol)| {
            Some((name.trim().to_uppercase(), SecurityProtocol::from_name(protocol.trim())?))
        });
        match protocol {
            Some((name, protocol)) => {
                protocols.insert(name, protocol);
            }
            None => {
                let names = SecurityProtocol::ALL.map(SecurityProtocol::name).join(", ");
                reader.refuse(
                    KEY,
                    entry,
                    format!("each entry must be NAME:PROTOCOL, with a protocol of {names}"),
                );
            }
        }
    }
    if !reader.is_set(KEY) {
        for name in controller_names {
            protocols.entry(name.clone()).or_insert(SecurityProtocol::Plaintext);
        }
    }
    protocols
}

fn read_endpoints(
    reader: &mut Reader<'_>,
    key: &'static str,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    let mut names = BTreeSet::new();
    for text in reader.list(key) {
        let Some((listener, address)) = Endpoint::split(&text) else {
            reader.refuse(key, text, "each listener must be NAME://host:port");
            continue;
        };
        if !names.insert(listener.clone()) {
            reader.refuse(key, &text, format!("there are two listeners named {listener}"));
        }
        let Some(&protocol) = protocols.get(&listener) else {
            let allowed = protocols.keys().cloned().collect::<Vec<_>>().join(", ");
            reader.refuse(
                key,
                &text,
                format!("listener.security.protocol.map has no protocol for {listener}; it has {allowed}"),
            );
            continue;
        };
        if !matches!(protocol, SecurityProtocol::Plaintext | SecurityProtocol::Ssl) {
            let name = protocol.name();
            reader.refuse(
                key,
                &text,
                format!("its protocol is {name}, and only PLAINTEXT and SSL are served so far"),
            );
        }
        endpoints.push(Endpoint { listener, protocol, host: address.host, port: address.port });
    }
    endpoints
}

/// Two listeners cannot hold one port, unless one is IPv4 and the other IPv6.
fn check_distinct(reader: &mut Reader<'_>, endpoints: &[Endpoint]) {
    for (index, endpoint) in endpoints.iter().enumerate() {
        let same_port = |other: &&Endpoint| other.port == endpoint.port && other.port != 0;
        let Some(other) = endpoints[..index].iter().find(same_port) else {
            continue;
        };
        let both_families = endpoint.host.contains(':') != other.host.contains(':')
            && !endpoint.host.is_empty()
            && !other.host.is_empty();
        if !both_families {
            let port = endpoint.port;
            reader.refuse(
                "listeners",
                text_of(endpoints),
                format!("{} and {} have the same port {port}", other.listener, endpoint.listener),
            );
        }
    }
}

fn read_inter_broker_name(
    reader: &mut Reader<'_>,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> String {
    let name = reader.text("inter.broker.listener.name").map(|name| name.to_uppercase());
    let protocol = reader.text("security.inter.broker.protocol").unwrap_or_default();
    if let Some(name) = &name {
        if reader.is_set("security.inter.broker.protocol") {
            reader.conflict(format!(
                "inter.broker.listener.name ({name}) and security.inter.broker.protocol ({protocol}) must not both be set"
            ));
        }
        if !protocols.contains_key(name) {
            let allowed = protocols.keys().cloned().collect::<Vec<_>>().join(", ");
            reader.refuse(
                "inter.broker.listener.name",
                name,
                format!("listener.security.protocol.map has no protocol for it; it has {allowed}"),
            );
        }
    }
    name.unwrap_or(protocol)
}
