//! What may change of a broker's configs while it runs (KIP-226): which keys, for one broker or for all,
//! to which values, and how far the number of a pool's threads may move at once.
//!
//! Keys that nobody knows are kept: a plug-in may know them.

use std::collections::BTreeMap;

use super::{ConfigCatalogue, ConfigDef, ConfigError, ConfigScope};

/// What a key begins with that is meant for one listener: `listener.name.<listener>.<key>`.
const LISTENER_PREFIX: &str = "listener.name.";
/// Keys of a listener that may change for every broker at once; others for one broker only.
const LISTENER_KEYS_FOR_ALL: [&str; 3] =
    ["max.connections", "max.connection.creation.rate", "num.network.threads"];
/// Keys that can change for a listener only: a store belongs to one.
const LISTENER_ONLY: [&str; 10] = [
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
/// Keys that are a time or a size to keep, or -1 for no limit, but not nothing.
const RETENTION: [&str; 1] = ["log.retention.ms"];

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
        |key| LISTENER_ONLY.contains(&key),
    )?;
    for (key, value) in &set {
        if let Some(def) = catalogue.get(base_key(key)) {
            validate_value(def, value)?;
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
    if RETENTION.contains(&def.name) && value.as_i64() == Some(0) {
        let name = def.name;
        let text = format!("{name} must be at least 1, or -1 for no limit");
        return Err(ConfigError::Conflict(text));
    }
    Ok(())
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
