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
fn both_catalogues_read_and_every_default_parses() {
    assert_eq!(ConfigCatalogue::broker().iter().count(), 379);
    assert_eq!(ConfigCatalogue::topic().iter().count(), 38);
    for def in ConfigCatalogue::broker().iter().chain(ConfigCatalogue::topic().iter()) {
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
