//! What may change of a broker's configs while it runs (KIP-226): which keys, for one broker or for all,
//! to which values, and how far the number of a pool's threads may move at once.
//!
//! Keys that nobody knows are kept: a plug-in may know them.

use std::collections::BTreeMap;

use super::{ConfigCatalogue, ConfigDef, ConfigError, ConfigScope, ConfigType, split_list};

/// What a key begins with that is meant for one listener: `listener.name.<listener>.<key>`.
const LISTENER_PREFIX: &str = "listener.name.";
/// Keys of a listener that may change for every broker at once; others for one broker only.
const LISTENER_KEYS_FOR_ALL: [&str; 3] =
    ["max.connections", "max.connection.creation.rate", "num.network.threads"];
/// Keys of stores of keys and certificates. They can change for a listener only: a store belongs to one.
pub const STORE_KEYS: [&str; 10] = [
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];
/// Keys that exist at run time only: bytes a second that replication may take.
pub const QUOTAS: [&str; 3] = [
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];
/// Keys that name classes, and those that stand for what is built in. There are no others to load.
const CLASSES: [(&str, &str); 3] = [
    ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
    (
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    ("ssl.engine.factory.class", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"),
];
/// What a listener may speak.
const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL"];
/// The least room for finding duplicate keys when a log is compacted, in bytes.
const MIN_DEDUPE_BUFFER_BYTES: i64 = 1 << 20;

/// Keys that are the number of a pool's threads. One change may halve or double it, no more.
pub const THREAD_COUNTS: [&str; 10] = [
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
];

/// Checks changes of a broker's dynamic configs, or, with `is_default`, of those of all brokers. A key
/// without a value goes back to what it was; that is always allowed.
pub fn validate_broker_changes(
    is_default: bool,
    changes: &BTreeMap<String, Option<String>>,
) -> Result<(), ConfigError> {
    let set: Vec<(&str, &str)> =
        changes.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_deref()?))).collect();
    let catalogue = ConfigCatalogue::broker();
    let scope = |key: &str| catalogue.get(key).map(|def| def.scope);
    refuse_keys(&set, "Cannot update these configs dynamically", |key| {
        scope(key) == Some(ConfigScope::Static)
    })?;
    refuse_keys(
        &set,
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        |key| STORE_KEYS.contains(&key),
    )?;
    for (key, value) in &set {
        if let Some(def) = catalogue.get(base_key(key)) {
            validate_value(def, value)?;
        } else if QUOTAS.contains(key) && ConfigType::Long.parse(key, value)?.as_i64() < Some(0) {
            return Err(invalid(key, value, "it must be at least 0"));
        }
    }
    if !is_default {
        return Ok(());
    }
    refuse_keys(
        &set,
        "Cannot update these configs at default cluster level, broker id must be specified",
        |key| match listener_key(key) {
            Some(base) => !LISTENER_KEYS_FOR_ALL.contains(&base),
            None => scope(key) == Some(ConfigScope::Broker),
        },
    )
}

/// Whether a pool of `current` threads may get `wanted`.
pub fn check_thread_count(key: &str, wanted: i64, current: i64) -> Result<(), ConfigError> {
    let refuse = |limit: String| {
        Err(ConfigError::Conflict(format!(
            "Dynamic thread count update validation failed for {key}={wanted}, value should {limit} \
             the current value {current}"
        )))
    };
    if wanted < 1 {
        refuse("be at least 1, not".to_owned())
    } else if wanted < current / 2 {
        refuse("be at least half".to_owned())
    } else if wanted > current.saturating_mul(2) {
        refuse("not be greater than double".to_owned())
    } else {
        Ok(())
    }
}

fn validate_value(def: &ConfigDef, text: &str) -> Result<(), ConfigError> {
    let value = def.validate(text)?;
    let number = value.as_i64();
    let wrong = match def.name {
        "log.retention.ms" if number == Some(0) => "it must be at least 1, or -1 for no limit",
        "log.cleaner.dedupe.buffer.size" if number < Some(MIN_DEDUPE_BUFFER_BYTES) => {
            "it must be at least 1 MiB"
        }
        "max.connections.per.ip.overrides" if !each(text, is_override) => {
            "it must be a list of host:number"
        }
        "listener.security.protocol.map" if !each(text, is_protocol_of) => {
            "it must be a list of listener:protocol"
        }
        "listeners" if !each(text, is_endpoint) => "it must be a list of listener://host:port",
        key => return validate_classes(key, text),
    };
    Err(invalid(def.name, text, wrong))
}

fn validate_classes(key: &str, text: &str) -> Result<(), ConfigError> {
    let Some((_, known)) = CLASSES.iter().find(|(of, _)| *of == key) else {
        return Ok(());
    };
    match split_list(text).iter().find(|class| class != known) {
        Some(class) => {
            Err(invalid(key, text, &format!("there is no class {class}, only {known} is here")))
        }
        None => Ok(()),
    }
}

fn invalid(key: &str, value: &str, reason: &str) -> ConfigError {
    ConfigError::Invalid { key: key.into(), value: value.into(), reason: reason.into() }
}

fn each(list: &str, is_right: fn(&str) -> bool) -> bool {
    split_list(list).iter().all(|element| is_right(element))
}

fn is_override(element: &str) -> bool {
    let parts = element.rsplit_once(':');
    parts.is_some_and(|(host, number)| !host.is_empty() && number.trim().parse::<u32>().is_ok())
}

fn is_protocol_of(element: &str) -> bool {
    let parts = element.split_once(':');
    parts.is_some_and(|(listener, protocol)| {
        !listener.is_empty() && PROTOCOLS.contains(&protocol.trim().to_ascii_uppercase().as_str())
    })
}

fn is_endpoint(element: &str) -> bool {
    let Some((listener, address)) = element.split_once("://") else {
        return false;
    };
    let port = address.rsplit_once(':').map(|(_, port)| port.trim().parse::<u16>());
    !listener.is_empty() && matches!(port, Some(Ok(_)))
}

fn refuse_keys(
    set: &[(&str, &str)],
    why: &str,
    is_wrong: impl Fn(&str) -> bool,
) -> Result<(), ConfigError> {
    let wrong: Vec<&str> = set.iter().map(|(key, _)| *key).filter(|key| is_wrong(key)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(ConfigError::Conflict(format!("{why}: [{}]", wrong.join(", "))))
}

/// The key within `listener.name.<listener>.<key>`; `None` for a key that is not a listener's.
fn listener_key(key: &str) -> Option<&str> {
    let (_listener, base) = key.strip_prefix(LISTENER_PREFIX)?.split_once('.')?;
    Some(base)
}

fn base_key(key: &str) -> &str {
    listener_key(key).unwrap_or(key)
}
