//! What a node is told: properties files, `KAFKA_` environment variables and `--set` pairs, merged and
//! checked into one typed [`BrokerConfig`].
//!
//! Which keys exist, with their types, defaults and allowed values, is the catalogue's affair
//! ([`controller::config::ConfigCatalogue`]). Here the values become types, the listeners are
//! understood, and keys are checked against each other. A wrong value stops the start, and all wrong
//! values are told at once; a key that is unknown or has no effect yet is one warning.

mod broker_config;
mod checks;
mod endpoint;
pub mod environment;
mod groups;
mod listeners;
pub mod properties;
mod reader;
mod report;
mod seeing;
mod tls;

pub use broker_config::{
    BrokerConfig, FetchConfig, LivenessConfig, LogConfig, QuorumConfig, ReplicationConfig, Roles,
    TopicCreationConfig,
};
pub use endpoint::{Endpoint, HostAndPort, SecurityProtocol, Voter};
pub use listeners::ListenersConfig;
pub use report::{ConfigErrors, ConfigWarning};
pub use seeing::SeeingConfig;
pub(crate) use tls::{listener_prefix, read_again};

use std::collections::BTreeMap;

/// Lays layers of settings over each other; the later wins. The order of a node is the file, then the
/// environment, then `--set`. White space around a value does not count, as in Kafka.
pub fn merge<'a>(
    layers: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut merged = BTreeMap::new();
    for layer in layers {
        merged.extend(layer.iter().map(|(key, value)| (key.clone(), value.trim().to_owned())));
    }
    merged
}

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
