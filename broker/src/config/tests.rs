//! Tests of the whole configuration: what a node gets from its settings, and what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::network::NetworkSettings;

use super::*;

pub(super) fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn combined() -> BTreeMap<String, String> {
    settings(&[
        ("node.id", "1"),
        ("process.roles", "broker,controller"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.voters", "1@127.0.0.1:9093,2@127.0.0.1:9095,3@127.0.0.1:9097"),
        ("log.dirs", "/var/a, /var/b"),
    ])
}

pub(super) fn with(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    merge([&combined(), &settings(pairs)])
}

pub(super) fn loaded(pairs: &[(&str, &str)]) -> (BrokerConfig, Vec<ConfigWarning>) {
    BrokerConfig::from_settings(&with(pairs)).unwrap_or_else(|errors| panic!("{pairs:?}: {errors}"))
}

pub(super) fn refused(pairs: &[(&str, &str)]) -> String {
    match BrokerConfig::from_settings(&with(pairs)) {
        Ok(_) => panic!("{pairs:?} was accepted"),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn a_combined_node_needs_no_more_than_six_keys() {
    let (config, warnings) = loaded(&[]);
    assert_eq!(warnings, []);
    assert_eq!(config.node_id.0, 1);
    assert_eq!(config.roles, Roles { broker: true, controller: true });
    assert_eq!(config.log.dirs, ["/var/a", "/var/b"].map(std::path::PathBuf::from));
    assert_eq!(config.log.metadata_dir, std::path::PathBuf::from("/var/a"));
    assert_eq!(config.quorum.voters.len(), 3);
    assert_eq!(
        config.quorum.voters[2].to_owned(),
        Voter::parse("3@127.0.0.1:9097").expect("a voter")
    );
    let addresses = config.listener_addresses();
    assert_eq!(addresses.len(), 1);
    assert_eq!((addresses[0].name.as_str(), addresses[0].port), ("PLAINTEXT", 9092));
    assert!(!addresses[0].is_protected, "a single listener is everybody's");
    assert_eq!(config.listeners.controller[0].to_string(), "CONTROLLER://127.0.0.1:9093");
    assert_eq!(config.listeners.advertised, config.listeners.broker);
    assert_eq!(config.listeners.inter_broker_name, "PLAINTEXT");
}

#[test]
fn defaults_are_kafkas() {
    let (config, _) = loaded(&[]);
    assert_eq!(config.replication.lag_time_max, Duration::from_secs(30));
    assert_eq!(config.replication.fetch_wait_max, Duration::from_millis(500));
    assert_eq!(config.liveness.session_timeout, Duration::from_secs(9));
    assert_eq!(config.liveness.leader_imbalance_check_interval, Duration::from_secs(300));
    assert_eq!(config.fetch.max_bytes, 57_671_680);
    assert_eq!(config.network.max_request_bytes, 104_857_600);
    assert_eq!(config.network.max_idle, Duration::from_secs(600));
    assert_eq!(config.network.send_buffer_bytes, NetworkSettings::default().send_buffer_bytes);
    assert_eq!(config.network.receive_buffer_bytes, None, "left to the system unless set");
    assert_eq!(config.topics.replication_factor, 1);
    assert_eq!(config.topics.offsets_replication_factor, 3);
    assert!(config.topics.auto_create);
}

#[test]
fn values_become_types() {
    let (config, warnings) = loaded(&[
        ("broker.rack", "a"),
        ("replica.lag.time.max.ms", " 1500 "),
        ("auto.create.topics.enable", "FALSE"),
        ("connections.max.idle.ms", "-1"),
        ("socket.send.buffer.bytes", "4096"),
        ("socket.receive.buffer.bytes", "-1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:3,[::1]:4"),
        ("log.flush.scheduler.interval.ms", "9223372036854775807"),
    ]);
    assert_eq!(warnings, []);
    assert_eq!(config.rack.as_deref(), Some("a"));
    assert_eq!(config.replication.lag_time_max, Duration::from_millis(1500));
    assert!(!config.topics.auto_create);
    assert!(config.network.max_idle > Duration::from_secs(3600 * 24 * 365), "never");
    assert_eq!(config.network.send_buffer_bytes, Some(4096));
    assert_eq!(config.network.receive_buffer_bytes, None);
    let overrides: Vec<_> = config.network.limits.per_ip_overrides.into_values().collect();
    assert_eq!(overrides, [3, 4]);
    assert!(config.log.flush_scheduler_interval > Duration::from_secs(3600 * 24 * 365));
}

#[test]
fn listeners_of_a_compose_file_are_understood() {
    let (config, _) = loaded(&[
        ("listeners", "internal://:19092,external://0.0.0.0:9092,controller://:9093"),
        (
            "advertised.listeners",
            "INTERNAL://kafka-1:19092,EXTERNAL://localhost:9092,CONTROLLER://kafka-1:9093",
        ),
        (
            "listener.security.protocol.map",
            "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        ),
        ("inter.broker.listener.name", "INTERNAL"),
    ]);
    let advertised: Vec<_> = config.listeners.advertised.iter().map(Endpoint::to_string).collect();
    assert_eq!(advertised, ["INTERNAL://kafka-1:19092", "EXTERNAL://localhost:9092"]);
    let protected: Vec<_> =
        config.listener_addresses().iter().map(|address| address.is_protected).collect();
    assert_eq!(protected, [true, false]);
}

#[test]
fn an_empty_host_and_port_0_are_filled_in_for_others() {
    let (config, _) = loaded(&[("listeners", "PLAINTEXT://:0,CONTROLLER://:0")]);
    let told = config
        .listeners
        .effective_advertised("node-1", |name| (name == "PLAINTEXT").then_some(4711));
    assert_eq!(
        told.iter().map(Endpoint::to_string).collect::<Vec<_>>(),
        ["PLAINTEXT://node-1:4711"]
    );
}

#[test]
fn broker_id_stands_in_for_node_id() {
    let mut given = combined();
    given.remove("node.id");
    given.insert("broker.id".to_owned(), "2".to_owned());
    assert_eq!(BrokerConfig::from_settings(&given).expect("fine").0.node_id.0, 2);
    let from_node_id = BrokerConfig::from_settings(&combined()).expect("fine").0;
    assert_eq!(from_node_id.properties.get("broker.id").map(String::as_str), Some("1"));
    assert_eq!(
        refused(&[("broker.id", "7")]),
        "node.id (1) and broker.id (7) must be the same where both are set"
    );
}

#[test]
fn a_broker_and_a_controller_of_their_own_are_checked_for_their_roles() {
    let broker = [
        ("process.roles", "broker"),
        ("node.id", "11"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
    ];
    assert!(!loaded(&broker).0.roles.controller);
    let controller =
        [("process.roles", "controller"), ("listeners", "CONTROLLER://127.0.0.1:9093")];
    assert!(loaded(&controller).0.listener_addresses().is_empty());

    let as_broker = |extra: (&'static str, &'static str)| {
        let mut pairs = broker.to_vec();
        pairs.push(extra);
        refused(&pairs)
    };
    assert_eq!(
        as_broker(("node.id", "2")),
        "Invalid value 1,2,3 for configuration controller.quorum.voters: \
         it must not contain node.id 2, since this node has not the controller role"
    );
    assert!(
        as_broker(("listeners", "PLAINTEXT://:1,CONTROLLER://:2"))
            .contains("configuration listeners")
    );
    assert!(
        as_broker(("listeners", "CONTROLLER://:2")).contains("a broker needs a listener besides")
    );
    assert!(
        refused(&[("process.roles", "controller")]).contains("only a controller may have only")
    );
}

#[test]
fn a_broker_may_find_its_controllers_by_bootstrap_servers() {
    let (config, _) = loaded(&[
        ("process.roles", "broker"),
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ("controller.quorum.voters", ""),
        ("controller.quorum.bootstrap.servers", "a:9093,[::1]:9093"),
    ]);
    let servers: Vec<_> =
        config.quorum.bootstrap_servers.iter().map(HostAndPort::to_string).collect();
    assert_eq!(servers, ["a:9093", "[::1]:9093"]);
}

/// Settings that are refused, and what the message must say.
type Refusal<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

/// Each wrong value with what must be in the message: always the key and the value.
#[test]
fn wrong_values_name_the_key_the_value_and_what_is_allowed() {
    let cases: &[Refusal<'_>] = &[
        (
            &[("node.id", "-2")],
            &["Invalid value -2 for configuration node.id: Value must be at least 0"],
        ),
        (
            &[("node.id", "one")],
            &["Invalid value one for configuration node.id: Not a number of type INT"],
        ),
        (&[("process.roles", "brokers")], &["brokers", "process.roles", "broker, controller"]),
        (&[("process.roles", "")], &["process.roles", "broker, controller or both"]),
        (
            &[("min.insync.replicas", "0")],
            &["0 for configuration min.insync.replicas", "at least 1"],
        ),
        (
            &[("auto.create.topics.enable", "yes")],
            &["yes", "auto.create.topics.enable", "true or false"],
        ),
        (&[("log.cleanup.policy", "foo")], &["foo", "log.cleanup.policy", "compact, delete"]),
        (&[("compression.type", "lzma")], &["lzma", "compression.type", "gzip"]),
        (&[("fetch.max.bytes", "100")], &["100", "fetch.max.bytes", "1024"]),
        (
            &[("replica.fetch.wait.max.ms", "99999999999")],
            &["99999999999", "replica.fetch.wait.max.ms", "INT"],
        ),
        (&[("controller.listener.names", "OTHER")], &["CONTROLLER", "listeners", "no protocol"]),
        (&[("listeners", "PLAINTEXT://127.0.0.1:1")], &["controller.listener.names", "CONTROLLER"]),
        (
            &[("listeners", "PLAINTEXT:127.0.0.1:1,CONTROLLER://:2")],
            &["PLAINTEXT:127.0.0.1:1", "listeners", "NAME://host:port"],
        ),
        (
            &[("listeners", "PLAINTEXT://h:abc,CONTROLLER://:2")],
            &["PLAINTEXT://h:abc", "NAME://host:port"],
        ),
        (
            &[("listeners", "PLAINTEXT://:1,PLAINTEXT://:3,CONTROLLER://:2")],
            &["two listeners named PLAINTEXT"],
        ),
        (&[("listeners", "PLAINTEXT://:1,CONTROLLER://:1")], &["listeners", "same port 1"]),
        (
            &[("listeners", "PLAINTEXT://:1,X://:3,CONTROLLER://:2")],
            &["X://:3", "no protocol for X", "PLAINTEXT"],
        ),
        (
            &[("listeners", "SASL_SSL://:1,CONTROLLER://:2")],
            &["SASL_SSL://:1", "only PLAINTEXT and SSL are served so far"],
        ),
        (
            &[("listeners", "PLAINTEXT://0.0.0.0:1,CONTROLLER://:2")],
            &["advertised.listeners", "0.0.0.0", "every interface"],
        ),
        (
            &[("advertised.listeners", "PLAINTEXT://0.0.0.0:1")],
            &["advertised.listeners", "every interface"],
        ),
        (&[("advertised.listeners", "SSL://h:1")], &["advertised.listeners", "SSL://h:1"]),
        (
            &[("listener.security.protocol.map", "PLAINTEXT:FOO,CONTROLLER:PLAINTEXT")],
            &["PLAINTEXT:FOO", "listener.security.protocol.map", "SASL_SSL"],
        ),
        (
            &[("inter.broker.listener.name", "NOPE")],
            &["NOPE", "inter.broker.listener.name", "PLAINTEXT"],
        ),
        (
            &[("inter.broker.listener.name", "CONTROLLER")],
            &["CONTROLLER", "inter.broker.listener.name"],
        ),
        (
            &[
                ("inter.broker.listener.name", "PLAINTEXT"),
                ("security.inter.broker.protocol", "PLAINTEXT"),
            ],
            &["inter.broker.listener.name", "security.inter.broker.protocol", "both"],
        ),
        (&[("controller.quorum.voters", "2@h:1")], &["controller.quorum.voters", "2", "node.id 1"]),
        (&[("controller.quorum.voters", "1@h")], &["1@h", "id@host:port"]),
        (&[("controller.quorum.voters", "1@h:1,1@h:2")], &["controller.quorum.voters", "twice"]),
        (&[("controller.quorum.voters", "")], &["controller.quorum.voters", "id@host:port"]),
        (
            &[("controller.quorum.bootstrap.servers", "h")],
            &["h for", "controller.quorum.bootstrap.servers", "host:port"],
        ),
        (&[("log.dirs", "")], &["log.dirs", "at least one directory"]),
        (
            &[("log.retention.ms", "0")],
            &["0 for configuration log.retention.ms", "-1 for no limit"],
        ),
        (&[("log.roll.ms", "0")], &["0 for configuration log.roll.ms", "at least 1"]),
        (
            &[("replica.lag.time.max.ms", "100")],
            &["replica.fetch.wait.max.ms (500)", "replica.lag.time.max.ms (100)"],
        ),
        (&[("replica.socket.timeout.ms", "100")], &["replica.socket.timeout.ms (100)", "(500)"]),
        (&[("queued.max.request.bytes", "10")], &["queued.max.request.bytes (10)", "104857600"]),
        (&[("max.connections.per.ip", "0")], &["max.connections.per.ip", "overrides"]),
        (&[("max.connections.per.ip.overrides", "1.2.3.4")], &["1.2.3.4", "host:count"]),
    ];
    for (pairs, expected) in cases {
        let message = refused(pairs);
        for part in *expected {
            assert!(message.contains(part), "{pairs:?}: {part:?} is not in {message:?}");
        }
    }
}

#[test]
fn required_keys_are_named() {
    let errors =
        BrokerConfig::from_settings(&BTreeMap::new()).expect_err("nothing is set").to_string();
    for key in ["node.id", "process.roles", "controller.listener.names"] {
        assert!(errors.contains(&format!("Missing required configuration \"{key}\"")), "{errors}");
    }
}

#[test]
fn everything_wrong_is_told_at_once_and_each_key_once() {
    let errors = BrokerConfig::from_settings(&with(&[
        ("node.id", "x"),
        ("min.insync.replicas", "0"),
        ("log.retention.ms", "0"),
    ]))
    .expect_err("three wrong values")
    .0;
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    for key in [
        "configuration node.id",
        "configuration min.insync.replicas",
        "configuration log.retention.ms",
    ] {
        assert_eq!(texts.iter().filter(|text| text.contains(key)).count(), 1, "{key} in {texts:?}");
    }
}

#[test]
fn unknown_keys_and_keys_without_effect_are_one_warning_each() {
    let (_, warnings) = loaded(&[
        ("nonsense.key", "3"),
        ("background.threads", "2"),
        ("ssl.provider", "a"),
        ("ssl.client.auth", "none"),
        ("listener.name.plaintext.ssl.client.auth", "none"),
        ("listener.name.plaintext.ssl.provider", "a"),
        ("log.retention.hours", "5"),
        ("log.dir.failure.timeout.ms", "20000"),
        ("max.request.partition.size.limit", "500"),
        ("metadata.log.max.record.bytes.between.snapshots", "100000"),
        ("num.recovery.threads.per.data.dir", "4"),
    ]);
    let texts: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "configuration background.threads is accepted but has no effect yet",
            "configuration listener.name.plaintext.ssl.provider is accepted but has no effect yet",
            "configuration nonsense.key is not known and is ignored",
            "configuration ssl.provider is accepted but has no effect yet",
        ]
    );
}

#[test]
fn a_heartbeat_slower_than_half_the_session_is_advised_against() {
    let (_, warnings) = loaded(&[("broker.heartbeat.interval.ms", "8000")]);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].to_string().contains("broker.session.timeout.ms (9000)"),
        "{}",
        warnings[0]
    );
}

#[test]
fn later_layers_win_and_white_space_does_not_count() {
    let file = settings(&[("a", "1"), ("b", "1 "), ("c", "1")]);
    let environment = settings(&[("b", "2"), ("c", "2")]);
    let set = settings(&[("c", "3")]);
    assert_eq!(merge([&file, &environment, &set]), settings(&[("a", "1"), ("b", "2"), ("c", "3")]));
}
