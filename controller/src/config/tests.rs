//! The catalogue, its values and the layers they come from.

use std::collections::BTreeMap;

use super::*;
use crate::image::ConfigMap;

fn map(entries: &[(&str, &str)]) -> ConfigMap {
    entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn refusal(key: &str, value: &str) -> String {
    ConfigCatalogue::topic().get(key).unwrap().validate(value).unwrap_err().to_string()
}

#[test]
fn the_catalogues_read_and_every_default_parses() {
    assert_eq!(ConfigCatalogue::broker().iter().count(), 383);
    assert_eq!(ConfigCatalogue::topic().iter().count(), 38);
    assert_eq!(ConfigCatalogue::group().iter().count(), 27);
    assert_eq!(ConfigCatalogue::client_metrics().iter().count(), 3);
    let of_resources =
        ConfigCatalogue::group().iter().chain(ConfigCatalogue::client_metrics().iter());
    let of_all = ConfigCatalogue::broker().iter().chain(ConfigCatalogue::topic().iter());
    for def in of_all.chain(of_resources) {
        let has_default = def.default_text().is_some();
        assert_eq!(def.default_value().is_some(), has_default, "{}", def.name);
        for fallback in &def.fallbacks {
            assert!(ConfigCatalogue::broker().get(fallback.key).is_some(), "{}", fallback.key);
        }
    }
}

#[test]
fn refusals_name_the_key_the_value_and_what_is_allowed() {
    let cases = [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("segment.bytes", "10", "Value must be at least 1048576"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
    ];
    for (key, value, reason) in cases {
        let expected = format!("Invalid value {value} for configuration {key}: {reason}");
        assert_eq!(refusal(key, value), expected);
    }
    let throttled = refusal("leader.replication.throttled.replicas", "abc");
    assert!(throttled.starts_with("Invalid value [abc] for configuration leader."), "{throttled}");
}

#[test]
fn lists_of_known_names_and_case_insensitive_names_are_allowed() {
    let topic = ConfigCatalogue::topic();
    let policy = topic.get("cleanup.policy").unwrap().validate("compact , delete").unwrap();
    assert_eq!(policy.as_list().unwrap(), ["compact", "delete"]);
    assert!(topic.get("preallocate").unwrap().validate(" TRUE ").is_ok());
    let throttled = topic.get("leader.replication.throttled.replicas").unwrap();
    assert!(throttled.validate("*").is_ok() && throttled.validate("0:1,1:2").is_ok());
    let migration = ConfigCatalogue::broker().get("group.consumer.migration.policy").unwrap();
    assert!(migration.validate("Upgrade").is_ok() && migration.validate("sideways").is_err());
}

#[test]
fn the_strongest_layer_wins_and_the_others_are_its_synonyms() {
    let topic = map(&[("min.insync.replicas", "4")]);
    let dynamic_broker = map(&[("min.insync.replicas", "3")]);
    let dynamic_default = map(&[("min.insync.replicas", "2")]);
    let layers = ConfigLayers {
        dynamic_broker: Some(&dynamic_broker),
        dynamic_default: Some(&dynamic_default),
        static_broker: None,
    };
    let def = ConfigCatalogue::topic().get("min.insync.replicas").unwrap();
    let effective = layers.topic_config(def, Some(&topic));
    assert_eq!(effective.value.as_deref(), Some("4"));
    assert_eq!(effective.source, ConfigSource::DynamicTopic);
    let sources: Vec<i8> = effective.synonyms.iter().map(|found| found.source.code()).collect();
    assert_eq!(sources, [1, 2, 3, 5]);
    assert_eq!(layers.topic_config(def, None).value.as_deref(), Some("3"));
}

#[test]
fn a_topic_key_falls_back_through_broker_keys_of_other_units() {
    let def = ConfigCatalogue::topic().get("retention.ms").unwrap();
    let default = ConfigLayers::default().topic_config(def, None);
    assert_eq!(default.value.as_deref(), Some("604800000"));
    assert_eq!(default.source, ConfigSource::Default);

    let properties: BTreeMap<String, String> = map(&[("log.retention.minutes", "2")]);
    let layers = ConfigLayers { static_broker: Some(&properties), ..Default::default() };
    let set = layers.topic_config(def, None);
    assert_eq!(set.value.as_deref(), Some("120000"));
    assert_eq!(set.source, ConfigSource::StaticBroker);
    assert_eq!(set.synonyms[0].value.as_deref(), Some("2"));
}

#[test]
fn a_set_of_topic_configs_is_checked_as_a_whole() {
    let layers = ConfigLayers::default();
    let check = |entries: &[(&str, &str)]| validate_topic_configs(&map(entries), &layers);
    assert_eq!(check(&[("retention.ms", "-1"), ("cleanup.policy", "compact")]), Ok(()));
    assert_eq!(check(&[("foo", "1")]).unwrap_err().to_string(), "Unknown topic config name: foo");
    let conflict = check(&[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]);
    assert_eq!(
        conflict.unwrap_err().to_string(),
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    );
    assert!(check(&[("remote.storage.enable", "true")]).is_err());
}

fn group_refusal(key: &str, value: &str) -> Option<String> {
    let checked = validate_group_configs(&map(&[(key, value)]), &ConfigLayers::default());
    checked.err().map(|error| error.to_string())
}

/// Asked of a running Kafka 4.4.
#[test]
fn a_group_s_numbers_are_bound_by_the_broker_s_configs() {
    for (key, allowed, refused, bounds) in [
        ("consumer.session.timeout.ms", ["45000", "60000"], ["44999", "60001"], "45000 to 60000"),
        ("consumer.heartbeat.interval.ms", ["5000", "15000"], ["4999", "15001"], "5000 to 15000"),
        ("consumer.assignment.interval.ms", ["0", "15000"], ["15001", "99999"], "0 to 15000"),
        ("share.delivery.count.limit", ["2", "10"], ["11", "100"], "2 to 10"),
        ("share.partition.max.record.locks", ["100", "4000"], ["4001", "9999"], "100 to 4000"),
        ("share.record.lock.duration.ms", ["15000", "60000"], ["14999", "60001"], "15000 to 60000"),
    ] {
        for value in allowed {
            assert_eq!(group_refusal(key, value), None, "{key}={value}");
        }
        let text = format!("{key} must be in the range {bounds} inclusive.");
        for value in refused {
            assert_eq!(group_refusal(key, value).as_ref(), Some(&text), "{key}={value}");
        }
    }
    let wider =
        BTreeMap::from([("group.consumer.max.session.timeout.ms".to_owned(), "90000".to_owned())]);
    let layers = ConfigLayers { static_broker: Some(&wider), ..Default::default() };
    let configs = map(&[("consumer.session.timeout.ms", "90000")]);
    assert_eq!(validate_group_configs(&configs, &layers), Ok(()));
}

/// Asked of a running Kafka 4.4.
#[test]
fn a_group_s_other_keys_take_what_kafka_s_take() {
    for (key, value, is_allowed) in [
        ("nosuch", "1", false),
        ("streams.assignor.name", "sticky", true),
        ("streams.assignor.name", "x", false),
        ("streams.num.standby.replicas", "2", true),
        ("streams.num.standby.replicas", "3", false),
        ("share.isolation.level", "read_committed", true),
        ("share.isolation.level", "x", false),
        ("share.renew.acknowledge.enable", "x", false),
        ("share.auto.offset.reset", "earliest", true),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S", true),
        ("share.auto.offset.reset", "by_duration:PT1H", true),
        ("share.auto.offset.reset", "by_duration:P", false),
        ("share.auto.offset.reset", "by_duration:PT", false),
        ("share.auto.offset.reset", "by_duration:P1H", false),
        ("share.auto.offset.reset", "x", false),
        ("errors.deadletterqueue.topic.name", "", true),
    ] {
        let refused = group_refusal(key, value);
        assert_eq!(refused.is_none(), is_allowed, "{key}={value}: {refused:?}");
    }
    // Where the bounds let them meet, the session must outlast the interval of heartbeats.
    let near = [
        ("group.share.min.session.timeout.ms", "1"),
        ("group.share.max.heartbeat.interval.ms", "9000"),
    ];
    let near: BTreeMap<String, String> =
        near.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let layers = ConfigLayers { static_broker: Some(&near), ..Default::default() };
    let configs = map(&[("share.session.timeout.ms", "5000")]);
    assert!(validate_group_configs(&configs, &layers).is_err());
}

/// Asked of a running Kafka 4.4, in its words.
#[test]
fn a_group_s_refusals_say_what_is_allowed() {
    for (key, value, words) in [
        ("streams.num.standby.replicas", "3", "must be less than or equal to 2"),
        ("streams.num.warmup.replicas", "21", "must be less than or equal to 20"),
        ("streams.task.offset.interval.ms", "1", "must be greater than or equal to 15000"),
        ("streams.rack.aware.assignment.tags", "a, a", "must not contain duplicate tag keys."),
        ("streams.rack.aware.assignment.tags", ",", "must not contain duplicate tag keys."),
    ] {
        assert_eq!(group_refusal(key, value), Some(format!("{key} {words}")), "{value}");
    }
    let name = "errors.deadletterqueue.topic.name";
    let reserved = format!("{name}: DLQ topic name must not start with '__'");
    assert_eq!(group_refusal(name, " __x").as_ref(), Some(&reserved));
    assert_eq!(group_refusal(name, "no topic's name"), None);
    for list in ["a,,b", "a,b,"] {
        let empty = "Configuration 'streams.rack.aware.assignment.tags' values must not be empty."
            .to_owned();
        assert_eq!(group_refusal("streams.rack.aware.assignment.tags", list), Some(empty));
    }
    for allowed in ["", " ", "a , b"] {
        assert_eq!(group_refusal("streams.rack.aware.assignment.tags", allowed), None);
    }
    let reset = "Invalid value foo for configuration share.auto.offset.reset: Invalid value `foo` for \
                 configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' \
                 or of the format 'by_duration:<PnDTnHnMn.nS>'.";
    assert_eq!(group_refusal("share.auto.offset.reset", "foo").as_deref(), Some(reset));
    let configs = map(&[("consumer.session.timeout.ms", "x"), ("zz", "1")]);
    let refused = validate_group_configs(&configs, &ConfigLayers::default()).unwrap_err();
    assert_eq!(refused, ConfigError::UnknownGroupKey("zz".to_owned()));
}

/// Asked of a running Kafka 4.4.
#[test]
fn durations_to_reset_by_are_read_as_kafka_s_runtime_reads_them() {
    for taken in ["P1D", "p1dt1h", "PT1.5S", "PT1,5S", "PT1.S", "PT0S", "-PT0S", "+PT1S", "PT2H-1M"]
    {
        let value = format!("by_duration:{taken}");
        assert_eq!(group_refusal("share.auto.offset.reset", &value), None, "{taken}");
    }
    for refused in [
        "",
        "1",
        "P1W",
        "P1Y",
        "PT",
        "P1DT",
        "-PT1H",
        "PT-1S",
        "PT1M1H",
        "PT1.5M",
        " PT1S",
        "PT.5S",
        "PT99999999999999999999S",
        "P106751991167300DT24H",
        "P106751991167301D",
        "PT1.1234567891S",
    ] {
        let value = format!("by_duration:{refused}");
        assert!(group_refusal("share.auto.offset.reset", &value).is_some(), "{refused}");
    }
}
