//! Tests over every key of the catalogue: all are known and accepted, and what is called honoured is read.

use std::collections::BTreeSet;

use controller::config::{ConfigCatalogue, ConfigType};

use super::reader::Reader;
use super::tests::{combined, loaded, with};
use super::*;

/// A value that the key allows, other than leaving it out.
fn sample(key: &str, kind: ConfigType, default: Option<&'static str>) -> String {
    let special = match key {
        "node.id" | "broker.id" => "1",
        "compression.gzip.level" => "5",
        "num.replica.alter.log.dirs.threads" => "1",
        "controller.quorum.bootstrap.servers" => "h:9093",
        "metadata.log.dir" => "/var/m",
        "advertised.listeners" => "PLAINTEXT://h:9092",
        "inter.broker.listener.name" => "PLAINTEXT",
        "highwater.metrics.listener" => "127.0.0.1:9404",
        "listener.security.protocol.map" => "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        key if combined().contains_key(key) => return combined()[key].clone(),
        _ => match default {
            Some(text) if !text.is_empty() => text,
            _ => match kind {
                ConfigType::Boolean => "true",
                ConfigType::Int | ConfigType::Long | ConfigType::Short => "7",
                ConfigType::Double => "0.5",
                _ if key == "max.connections.per.ip.overrides" => "10.0.0.1:5",
                _ => "text",
            },
        },
    };
    special.to_owned()
}

#[test]
fn every_key_of_kafka_is_accepted_with_at_most_one_warning() {
    let mut without_effect = 0;
    for def in ConfigCatalogue::broker().iter() {
        let value = sample(def.name, def.kind, def.default_text());
        let (_, warnings) = loaded(&[(def.name, &value)]);
        assert!(warnings.len() <= 1, "{}: {warnings:?}", def.name);
        let unknown = ConfigWarning::Unknown { key: def.name.to_owned() };
        assert!(!warnings.contains(&unknown), "{} is not known", def.name);
        without_effect += warnings.len();
    }
    assert!(without_effect > 0, "some keys of Kafka have no effect yet");
}

#[test]
fn every_key_of_the_reference_table_is_known() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/spec/broker-configs.tsv");
    let Ok(table) = std::fs::read_to_string(table) else {
        println!("skipped: the table of Kafka's keys is not on this machine");
        return;
    };
    let keys: BTreeSet<&str> =
        table.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    assert!(keys.len() > 300, "only {} keys were read", keys.len());
    let known: BTreeSet<&str> = ConfigCatalogue::broker().iter().map(|def| def.name).collect();
    assert_eq!(keys.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[test]
fn every_key_that_the_catalogue_calls_honoured_is_read_here_or_by_topics() {
    let given = with(&[
        ("advertised.listeners", "PLAINTEXT://h:9092"),
        // The keys of TLS are looked at where a listener has it.
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"),
    ]);
    let mut reader = Reader::new(&given);
    BrokerConfig::read(&mut reader, given.clone());
    let topics: BTreeSet<&str> = ConfigCatalogue::topic()
        .iter()
        .flat_map(|def| def.fallbacks.iter().map(|fallback| fallback.key))
        .collect();
    let unread: Vec<&str> = ConfigCatalogue::broker()
        .iter()
        .filter(|def| def.honoured)
        .map(|def| def.name)
        .filter(|name| !reader.read_keys().contains(name) && !topics.contains(name))
        // The log cleaner reads its own whenever it looks for work, as they may change.
        .filter(|name| !name.starts_with("log.cleaner."))
        .collect();
    assert_eq!(unread, Vec::<&str>::new());
}
