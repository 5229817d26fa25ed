//! What a group's configs (KIP-848, KIP-932, KIP-1071) and those of a subscription of client metrics
//! (KIP-714) may be. Many of a group's numbers have bounds that the broker's configs set.

use std::collections::BTreeMap;

use super::{ConfigCatalogue, ConfigError, ConfigLayers, ConfigValue};
use crate::image::ConfigMap;

/// The broker keys that bound a group's key: the least and the most.
const BOUNDS: [(&str, &str, &str); 12] = [
    (
        "consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    (
        "consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    (
        "share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    (
        "share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    (
        "share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    (
        "share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    (
        "share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    (
        "share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    (
        "streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    (
        "streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
];
/// Kinds of groups whose session must outlive the interval of their heartbeats.
const KINDS: [&str; 3] = ["consumer", "share", "streams"];
/// What a subscription may look at in a client.
const CLIENT_FACTS: [&str; 6] = [
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];
/// How often clients may be asked to push, in milliseconds.
const PUSH_INTERVAL_MS: (i64, i64) = (100, 3_600_000);

/// Checks the whole set of a group's own configs.
pub fn validate_group_configs(
    configs: &ConfigMap,
    layers: &ConfigLayers<'_>,
) -> Result<(), ConfigError> {
    let values = read(configs, ConfigCatalogue::group(), ConfigError::UnknownGroupKey)?;
    let limit = |key: &str| layers.broker_value(key).and_then(|value| value.as_i64());
    for (key, min, max) in BOUNDS {
        let given = values.get(key).and_then(ConfigValue::as_i64);
        if let (Some(given), Some(min), Some(max)) = (given, limit(min), limit(max)) {
            check_range(key, given, min, max)?;
        }
    }
    let standby = values.get("streams.num.standby.replicas").and_then(ConfigValue::as_i64);
    let most = limit("group.streams.max.standby.replicas");
    if let (Some(given), Some(most)) = (standby, most)
        && given > most
    {
        return Err(ConfigError::Conflict(format!(
            "streams.num.standby.replicas must be less than or equal to {most}"
        )));
    }
    if let Some(given) = values.get("streams.assignor.name").and_then(ConfigValue::as_str) {
        check_assignor(given, layers)?;
    }
    if let Some(given) = values.get("share.auto.offset.reset").and_then(ConfigValue::as_str) {
        check_offset_reset(given)?;
    }
    for kind in KINDS {
        check_session(kind, configs, layers)?;
    }
    Ok(())
}

/// Checks the whole set of a subscription's configs. Values that do not parse, and patterns, are
/// `Invalid`; the rest are other errors, as Kafka's codes differ for them.
pub fn validate_client_metrics_configs(configs: &ConfigMap) -> Result<(), ConfigError> {
    let catalogue = ConfigCatalogue::client_metrics();
    let values = read(configs, catalogue, ConfigError::UnknownClientMetricsKey)?;
    if let Some(given) = values.get("interval.ms").and_then(ConfigValue::as_i64) {
        let (min, max) = PUSH_INTERVAL_MS;
        check_range("interval.ms", given, min, max)?;
    }
    let patterns = values.get("match").and_then(ConfigValue::as_list).unwrap_or_default();
    let is_known = |pattern: &&String| {
        let fact = pattern.split_once('=').map(|(fact, _)| fact.trim());
        fact.is_some_and(|fact| CLIENT_FACTS.contains(&fact))
    };
    match patterns.iter().find(|pattern| !is_known(pattern)) {
        Some(pattern) => Err(ConfigError::Invalid {
            key: "match".to_owned(),
            value: pattern.clone(),
            reason: "Illegal client matching pattern".to_owned(),
        }),
        None => Ok(()),
    }
}

fn read<'a>(
    configs: &'a ConfigMap,
    catalogue: &ConfigCatalogue,
    unknown: impl Fn(String) -> ConfigError,
) -> Result<BTreeMap<&'a str, ConfigValue>, ConfigError> {
    let mut values = BTreeMap::new();
    for (key, text) in configs {
        let def = catalogue.get(key).ok_or_else(|| unknown(key.clone()))?;
        values.insert(key.as_str(), def.validate(text)?);
    }
    Ok(values)
}

fn check_range(key: &str, given: i64, min: i64, max: i64) -> Result<(), ConfigError> {
    if (min..=max).contains(&given) {
        return Ok(());
    }
    Err(ConfigError::OutOfRange { key: key.to_owned(), min, max })
}

fn check_assignor(given: &str, layers: &ConfigLayers<'_>) -> Result<(), ConfigError> {
    let known = layers.broker_value("group.streams.assignors");
    let known = known.as_ref().and_then(ConfigValue::as_list).unwrap_or_default();
    if known.iter().any(|name| name == given) {
        return Ok(());
    }
    Err(ConfigError::Conflict(format!(
        "streams.assignor.name '{given}' is not a registered task assignor. Registered assignors \
         are: [{}].",
        known.join(", ")
    )))
}

/// `earliest`, `latest`, or `by_duration:` and an ISO 8601 duration of days and shorter units.
fn check_offset_reset(given: &str) -> Result<(), ConfigError> {
    let is_duration = given.strip_prefix("by_duration:").is_some_and(is_duration);
    if is_duration || matches!(given, "earliest" | "latest") {
        return Ok(());
    }
    Err(ConfigError::Invalid {
        key: "share.auto.offset.reset".to_owned(),
        value: given.to_owned(),
        reason: "The value must be 'earliest', 'latest' or 'by_duration:<PnDTnHnMn.nS>'".to_owned(),
    })
}

/// A duration that is not negative: `P`, days, `T`, hours, minutes, seconds, each at most once.
fn is_duration(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let Some(rest) = upper.strip_prefix('P') else {
        return false;
    };
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (rest, None),
    };
    let takes = |text: &str, units: &[char]| {
        let (mut left, mut units) = (text, units);
        while !left.is_empty() {
            let digits = left.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(left.len());
            let (number, rest) = left.split_at(digits);
            let Some(unit) = rest.chars().next() else { return false };
            let Some(at) = units.iter().position(|allowed| *allowed == unit) else { return false };
            let is_whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            // Only seconds have fractions.
            let is_number = is_whole || (unit == 'S' && number.parse::<f64>().is_ok());
            if !is_number {
                return false;
            }
            units = &units[at + 1..];
            left = &rest[1..];
        }
        true
    };
    let is_something = !days.is_empty() || time.is_some_and(|time| !time.is_empty());
    let is_time = time.is_none_or(|time| !time.is_empty() && takes(time, &['H', 'M', 'S']));
    is_something && takes(days, &['D']) && is_time
}

/// Members must have the time for a heartbeat within their session.
fn check_session(
    kind: &str,
    configs: &ConfigMap,
    layers: &ConfigLayers<'_>,
) -> Result<(), ConfigError> {
    let number = |key: &str| {
        let def = ConfigCatalogue::group().get(key)?;
        let text = layers.group_config(def, Some(configs)).value?;
        text.trim().parse::<i64>().ok()
    };
    let session = format!("{kind}.session.timeout.ms");
    let heartbeat = format!("{kind}.heartbeat.interval.ms");
    match (number(&session), number(&heartbeat)) {
        (Some(limit), Some(interval)) if limit <= interval => {
            Err(ConfigError::Conflict(format!("{session} must be greater than {heartbeat}")))
        }
        _ => Ok(()),
    }
}
