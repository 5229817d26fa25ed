//! What a group's configs (KIP-848, KIP-932, KIP-1071) and those of a subscription of client metrics
//! (KIP-714) may be. Many of a group's numbers have bounds that the broker's configs set.

use std::collections::{BTreeMap, BTreeSet};

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
/// A group's keys that one broker key bounds; `true` where that is the most, `false` where the least.
const ONE_SIDED: [(&str, &str, bool); 3] = [
    ("streams.num.standby.replicas", "group.streams.max.standby.replicas", true),
    ("streams.num.warmup.replicas", "group.streams.max.warmup.replicas", true),
    ("streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", false),
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
    if let Some(tags) = values.get("streams.rack.aware.assignment.tags") {
        check_tags(tags.as_list().unwrap_or_default())?;
    }
    if let Some(given) = values.get("share.auto.offset.reset").and_then(ConfigValue::as_str) {
        check_offset_reset(given)?;
    }
    let limit = |key: &str| layers.broker_value(key).and_then(|value| value.as_i64());
    let number = |key: &str| values.get(key).and_then(ConfigValue::as_i64);
    for (key, min, max) in BOUNDS {
        if let (Some(given), Some(min), Some(max)) = (number(key), limit(min), limit(max)) {
            check_range(key, given, min, max)?;
        }
    }
    for (key, bound, is_most) in ONE_SIDED {
        if let (Some(given), Some(bound)) = (number(key), limit(bound)) {
            check_side(key, given, bound, is_most)?;
        }
    }
    if let Some(given) = values.get("streams.assignor.name").and_then(ConfigValue::as_str) {
        check_assignor(given, layers)?;
    }
    let dead_letters = values.get("errors.deadletterqueue.topic.name");
    if dead_letters.and_then(ConfigValue::as_str).is_some_and(|name| name.starts_with("__")) {
        return Err(ConfigError::Conflict(
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'".to_owned(),
        ));
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
    // Keys that do not exist are told of before values that cannot be.
    if let Some(key) = configs.keys().find(|key| catalogue.get(key).is_none()) {
        return Err(unknown(key.clone()));
    }
    let mut values = BTreeMap::new();
    for (key, text) in configs {
        let Some(def) = catalogue.get(key) else { continue };
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

fn check_side(key: &str, given: i64, bound: i64, is_most: bool) -> Result<(), ConfigError> {
    let (is_fine, words) = match is_most {
        true => (given <= bound, "less"),
        false => (given >= bound, "greater"),
    };
    if is_fine {
        return Ok(());
    }
    Err(ConfigError::Conflict(format!("{key} must be {words} than or equal to {bound}")))
}

/// Keys of clients' tags: each once, and none empty.
fn check_tags(tags: &[String]) -> Result<(), ConfigError> {
    let key = "streams.rack.aware.assignment.tags";
    if tags.iter().collect::<BTreeSet<_>>().len() < tags.len() {
        return Err(ConfigError::Conflict(format!("{key} must not contain duplicate tag keys.")));
    }
    if tags.iter().any(String::is_empty) {
        let text = format!("Configuration '{key}' values must not be empty.");
        return Err(ConfigError::Conflict(text));
    }
    Ok(())
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
    let duration = given.strip_prefix("by_duration:").and_then(duration_nanos);
    if duration.is_some_and(|nanos| nanos >= 0) || matches!(given, "earliest" | "latest") {
        return Ok(());
    }
    let key = "share.auto.offset.reset";
    Err(ConfigError::Invalid {
        key: key.to_owned(),
        value: given.to_owned(),
        reason: format!(
            "Invalid value `{given}` for configuration {key}. The value must be either 'earliest', \
             'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        ),
    })
}

/// The nanoseconds of an ISO 8601 duration as Kafka's runtime reads it: a sign, `P`, days, `T`, hours,
/// minutes and seconds, each at most once, in this order, with a sign of its own; seconds alone have a
/// fraction, of nine digits at most after `.` or `,`. Whole seconds must fit 64 bits.
fn duration_nanos(text: &str) -> Option<i128> {
    let upper = text.to_ascii_uppercase();
    let (negative, rest) = sign(&upper);
    let rest = rest.strip_prefix('P')?;
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    if rest.is_empty() {
        return None;
    }
    let (days, after) = take_unit(days, 'D')?;
    let (hours, time) = take_unit(time, 'H')?;
    let (minutes, time) = take_unit(time, 'M')?;
    let (seconds, nanos) = if time.is_empty() { (0, 0) } else { seconds_and_nanos(time)? };
    let whole = days * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    let is_all = after.is_empty() && i64::try_from(whole).is_ok();
    let total = whole * 1_000_000_000 + nanos;
    is_all.then_some(if negative { -total } else { total })
}

/// Whether `text` begins with a minus, and the text after its sign if it has one.
fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// The number before `unit` and the text after it; 0 and all of the text where `unit` does not occur.
fn take_unit(text: &str, unit: char) -> Option<(i128, &str)> {
    match text.split_once(unit) {
        Some((number, rest)) => Some((whole_number(number)?, rest)),
        None => Some((0, text)),
    }
}

fn seconds_and_nanos(text: &str) -> Option<(i128, i128)> {
    let text = text.strip_suffix('S')?;
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let nanos: i128 = format!("{fraction:0<9}").parse().ok().filter(|_| is_fraction)?;
    let nanos = if sign(whole).0 { -nanos } else { nanos };
    Some((whole_number(whole)?, nanos))
}

fn whole_number(text: &str) -> Option<i128> {
    text.parse::<i64>().ok().map(i128::from)
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
