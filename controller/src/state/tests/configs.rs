//! Dynamic configs, with the errors Kafka 4.4 gives (asked of a running one).

use protocol::messages::{
    AlterConfigsRequest, IncrementalAlterConfigsRequest, UpdateFeaturesRequest,
    alter_configs_request, incremental_alter_configs_request as incremental,
    update_features_request::FeatureUpdateKey,
};

use super::*;
use crate::config::ConfigResourceType;

const TOPIC_TYPE: i8 = 2;
const BROKER_TYPE: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// One step of one key; the error and its text.
pub(super) fn alter(
    cluster: &mut Cluster,
    resource_type: i8,
    name: &str,
    key: &str,
    config_operation: i8,
    value: Option<&str>,
) -> (i16, String) {
    let config = incremental::AlterableConfig {
        name: key.into(),
        config_operation,
        value: value.map(str::to_owned),
        ..Default::default()
    };
    let resource = incremental::AlterConfigsResource {
        resource_type,
        resource_name: name.into(),
        configs: vec![config],
        ..Default::default()
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let response = cluster.ask(1, request).responses.remove(0);
    (response.error_code, response.error_message.unwrap_or_default())
}

fn of_topic(cluster: &Cluster, key: &str) -> Option<String> {
    let configs = cluster.follower.configs(&ConfigResource::topic(TOPIC))?;
    configs.get(key).cloned()
}

#[test]
fn a_topic_s_keys_are_set_and_deleted_one_by_one() {
    let mut cluster = Cluster::with_topic();
    let mut step = |operation, value| {
        alter(&mut cluster, TOPIC_TYPE, TOPIC, "retention.ms", operation, value).0
    };
    assert_eq!(step(SET, Some("1000")), 0);
    assert_eq!(step(SET, Some("abc")), 40);
    assert_eq!(step(SET, None), 42);
    assert_eq!(step(9, Some("1")), -1);
    assert_eq!(of_topic(&cluster, "retention.ms").as_deref(), Some("1000"));
    assert_eq!(alter(&mut cluster, TOPIC_TYPE, TOPIC, "retention.ms", DELETE, None).0, 0);
    assert_eq!(of_topic(&cluster, "retention.ms"), None);
    assert_eq!(alter(&mut cluster, TOPIC_TYPE, TOPIC, "retention.ms", DELETE, None).0, 0);
    assert_eq!(alter(&mut cluster, TOPIC_TYPE, TOPIC, "foo", SET, Some("1")).0, 40);
    assert_eq!(alter(&mut cluster, TOPIC_TYPE, "nope", "retention.ms", SET, Some("1")).0, 3);
}

/// As with Kafka 4.4, where a broker reads its certificates again by it.
#[test]
fn a_broker_is_told_of_a_value_that_it_has_already_and_a_topic_is_not() {
    let mut cluster = Cluster::with_topic();
    let mut told = |kind: i8, name: &str, key: &str, value: &str| {
        let before = cluster.follower.offset();
        assert_eq!(alter(&mut cluster, kind, name, key, SET, Some(value)).0, 0);
        cluster.follower.offset() > before
    };
    let key = "listener.name.ssl.ssl.keystore.location";
    assert!(told(BROKER_TYPE, "1", key, "/a.pem") && told(BROKER_TYPE, "1", key, "/a.pem"));
    let key = "retention.ms";
    assert!(told(TOPIC_TYPE, TOPIC, key, "1000") && !told(TOPIC_TYPE, TOPIC, key, "1000"));
}

#[test]
fn lists_grow_from_their_default_and_shrink_to_nothing() {
    let mut cluster = Cluster::with_topic();
    let mut step = |operation, value: &str| {
        let key = "cleanup.policy";
        let outcome = alter(&mut cluster, TOPIC_TYPE, TOPIC, key, operation, Some(value));
        (outcome.0, of_topic(&cluster, key).unwrap_or_default())
    };
    assert_eq!(step(APPEND, "compact"), (0, "delete,compact".into()));
    assert_eq!(step(APPEND, "compact"), (0, "delete,compact".into()));
    assert_eq!(step(APPEND, "foo"), (40, "delete,compact".into()));
    assert_eq!(step(SUBTRACT, "delete"), (0, "compact".into()));
    assert_eq!(step(SUBTRACT, "compact"), (0, String::new()));
    let (code, text) = alter(&mut cluster, TOPIC_TYPE, TOPIC, "retention.ms", APPEND, Some("1"));
    assert_eq!(code, 40);
    assert_eq!(text, "Can't APPEND to key retention.ms because its type is not LIST.");
}

#[test]
fn broker_keys_change_only_where_they_can() {
    let mut cluster = Cluster::of(&[1]);
    let mut set = |name: &str, key: &str, value: &str| {
        alter(&mut cluster, BROKER_TYPE, name, key, SET, Some(value))
    };
    assert_eq!(set("1", "log.retention.ms", "60000").0, 0);
    assert_eq!(set("", "log.retention.ms", "60000").0, 0);
    assert_eq!(set("", "foo.bar", "x").0, 0);
    let (code, text) = set("1", "broker.rack", "x");
    assert_eq!(
        (code, text.as_str()),
        (42, "Cannot update these configs dynamically: [broker.rack]")
    );
    assert_eq!(set("", "ssl.protocol", "x").0, 42);
    assert_eq!(set("1", "ssl.protocol", "x").0, 0);
    assert_eq!(set("1", "min.insync.replicas", "0").0, 42);
    assert_eq!(set("9", "log.retention.ms", "1").0, 102);
    assert_eq!(set("abc", "log.retention.ms", "1").0, 42);
    let default = cluster.follower.configs(&ConfigResource::default_broker()).unwrap();
    assert_eq!(default.get("log.retention.ms").map(String::as_str), Some("60000"));
}

/// As Kafka refuses, and what it lets pass.
#[test]
fn keys_of_stores_are_a_listener_s_and_a_listener_s_keys_are_mostly_one_broker_s() {
    let mut cluster = Cluster::of(&[1]);
    let mut set = |name: &str, key: &str, value: &str| {
        alter(&mut cluster, BROKER_TYPE, name, key, SET, Some(value))
    };
    let per_listener = "These security configs can be dynamically updated only per-listener using \
                        the listener prefix: [ssl.keystore.password]";
    for name in ["", "1"] {
        let refused = set(name, "ssl.keystore.password", "x");
        assert_eq!((refused.0, refused.1.as_str()), (42, per_listener));
    }
    assert_eq!(set("1", "listener.name.tls.ssl.keystore.password", "x").0, 0);
    let (code, text) = set("", "listener.name.tls.ssl.keystore.password", "x");
    assert_eq!(code, 42);
    assert!(text.contains("at default cluster level, broker id must be specified"), "{text}");
    assert_eq!(set("", "listener.name.tls.max.connections", "5").0, 0);
    assert_eq!(set("1", "listener.name.tls.max.connections", "x").0, 42);
    assert_eq!(set("", "listener.name.tls.log.retention.ms", "5").0, 42);
    assert_eq!(set("1", "log.retention.ms", "0").0, 42);
    for (key, right, wrong) in [
        ("max.connections.per.ip.overrides", "a:1,10.0.0.1:2", "x"),
        ("listener.security.protocol.map", "A:PLAINTEXT,B:ssl", "A"),
        ("listeners", "PLAINTEXT://:9092", "x"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "1"),
        ("follower.replication.throttled.rate", "0", "-1"),
        ("leader.replication.throttled.rate", "1000", "x"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "no.such.Class"),
        ("metric.reporters", "", "org.apache.kafka.common.metrics.JmxReporter,no.such.Class"),
    ] {
        assert_eq!((set("1", key, right).0, set("1", key, wrong).0), (0, 42), "{key}");
    }
    assert_eq!(set("1", "log.retention.ms", "-2").0, 0);
}

/// As Kafka answers.
#[test]
fn groups_and_client_metrics_have_configs_with_errors_of_their_own() {
    let mut cluster = Cluster::of(&[1]);
    let mut code = |kind: i8, name: &str, key: &str, operation: i8, value: &str| {
        alter(&mut cluster, kind, name, key, operation, Some(value)).0
    };
    let (group, metrics) = (32, 16);
    assert_eq!(code(group, "g", "consumer.session.timeout.ms", SET, "50000"), 0);
    assert_eq!(code(group, "g", "consumer.session.timeout.ms", SET, "1000"), 40);
    assert_eq!(code(group, "g", "consumer.session.timeout.ms", APPEND, "1000"), 40);
    assert_eq!(code(group, "g", "streams.rack.aware.assignment.tags", SET, "a,b"), 0);
    assert_eq!(code(group, "g", "nosuch", SET, "1"), 40);
    assert_eq!(code(group, "g", "nosuch", DELETE, "1"), 0);
    assert_eq!(code(group, "", "consumer.session.timeout.ms", SET, "50000"), 42);
    assert_eq!(code(metrics, "m", "interval.ms", SET, "100"), 0);
    assert_eq!(code(metrics, "m", "interval.ms", SET, "99"), 42);
    assert_eq!(code(metrics, "m", "interval.ms", SET, "x"), 40);
    assert_eq!(code(metrics, "m", "match", SET, "client_id=a.*,client_software_name=b"), 0);
    assert_eq!(code(metrics, "m", "match", SET, "foo=bar"), 40);
    assert_eq!(code(metrics, "m", "metrics", APPEND, "a"), 40);
    assert_eq!(code(metrics, "m", "nosuch", SET, "1"), 42);
    assert_eq!(code(metrics, "", "interval.ms", SET, "1000"), 42);
    let resource = ConfigResource { kind: ConfigResourceType::Group, name: "g".into() };
    let configs = cluster.follower.configs(&resource).unwrap();
    assert_eq!(configs.get("consumer.session.timeout.ms").map(String::as_str), Some("50000"));
    for key in ["consumer.session.timeout.ms", "streams.rack.aware.assignment.tags"] {
        assert_eq!(alter(&mut cluster, group, "g", key, DELETE, None).0, 0);
    }
    // A group with nothing left is no config resource.
    assert!(!cluster.follower.config_resources().any(|(known, _)| *known == resource));
}

#[test]
fn a_broker_key_that_cannot_be_set_can_be_deleted() {
    let mut cluster = Cluster::of(&[1]);
    for key in ["broker.rack", "ssl.keystore.password"] {
        assert_eq!(alter(&mut cluster, BROKER_TYPE, "1", key, DELETE, None).0, 0, "{key}");
    }
}

/// As Kafka answers.
#[test]
fn a_topic_that_cannot_be_is_told_apart_from_one_that_is_not() {
    let mut cluster = Cluster::with_topic();
    let mut set =
        |name: &str| alter(&mut cluster, TOPIC_TYPE, name, "retention.ms", SET, Some("5"));
    assert_eq!(set("nosuch").0, 3);
    assert_eq!(set(""), (42, "Default topic resources are not allowed.".to_owned()));
    let (code, text) = set("a b");
    assert_eq!(code, 17);
    assert!(text.starts_with("Topic name is invalid: 'a b' contains"), "{text}");
    assert_eq!(set(".."), (17, "Topic name is invalid: '..' is not allowed".to_owned()));
}

/// As Kafka answers: -1 for every resource of the request but for those with errors of their own.
#[test]
fn a_step_that_does_not_exist_fails_the_whole_request() {
    let mut cluster = Cluster::with_topic();
    let resource = |name: &str, keys: &[(&str, i8)]| incremental::AlterConfigsResource {
        resource_type: TOPIC_TYPE,
        resource_name: name.into(),
        configs: keys
            .iter()
            .map(|(key, operation)| incremental::AlterableConfig {
                name: (*key).into(),
                config_operation: *operation,
                value: Some("5".into()),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![
            resource(TOPIC, &[("retention.ms", SET)]),
            resource("nosuch", &[("retention.ms", 7)]),
            resource("twice", &[("retention.ms", SET), ("retention.ms", SET)]),
        ],
        ..Default::default()
    };
    let responses = cluster.ask(1, request).responses;
    let told: Vec<(i16, Option<&str>)> =
        responses.iter().map(|told| (told.error_code, told.error_message.as_deref())).collect();
    assert_eq!(told, [(-1, None), (-1, None), (42, Some("Error due to duplicate config keys"))]);
    assert_eq!(of_topic(&cluster, "retention.ms"), None);
}

#[test]
fn the_older_request_replaces_the_whole_set() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1, 2]], &[("retention.ms", "1"), ("segment.ms", "2")]);
    let mut replace = |key: &str, value: &str, validate_only| {
        let config = alter_configs_request::AlterableConfig {
            name: key.into(),
            value: Some(value.into()),
            ..Default::default()
        };
        let resource = alter_configs_request::AlterConfigsResource {
            resource_type: TOPIC_TYPE,
            resource_name: TOPIC.into(),
            configs: vec![config],
            ..Default::default()
        };
        let resources = vec![resource];
        let request = AlterConfigsRequest { resources, validate_only, ..Default::default() };
        cluster.ask(2, request).responses[0].error_code
    };
    assert_eq!(replace("retention.ms", "x", false), 40);
    assert_eq!(replace("retention.ms", "5", true), 0);
    assert_eq!(replace("retention.ms", "7", false), 0);
    assert_eq!(of_topic(&cluster, "retention.ms").as_deref(), Some("7"));
    assert_eq!(of_topic(&cluster, "segment.ms"), None);
}

#[test]
fn feature_levels_outside_the_supported_range_are_refused() {
    let mut cluster = Cluster::of(&[1]);
    let mut update = |feature: &str, level: i16, upgrade_type: i8| {
        let update = FeatureUpdateKey {
            feature: feature.into(),
            max_version_level: level,
            upgrade_type,
            ..Default::default()
        };
        let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
        cluster.ask(2, request).error_code
    };
    assert_eq!(update("nope", 1, 1), 95);
    assert_eq!(update("metadata.version", METADATA_VERSION + 1, 1), 95);
    assert_eq!(update("metadata.version", METADATA_VERSION - 1, 1), 95);
    assert_eq!(update("metadata.version", METADATA_VERSION - 1, 2), 0);
    assert_eq!(update("eligible.leader.replicas.version", 2, 1), 95);
    assert_eq!(update("eligible.leader.replicas.version", 0, 1), 95);
    let level = cluster.follower.features().get("metadata.version");
    assert_eq!(level, Some(&(METADATA_VERSION - 1)));
}
