//! Certificates that change while a node runs.

use std::path::Path;

use controller::records::{Config, MetadataRecord};
use protocol::{LeaderEpoch, Offset};
use rcgen::{CertificateParams, DnType, KeyPair};

use super::*;

const STORE: &str = "listener.name.ssl.ssl.keystore.location";

/// A node with a listener `SSL` whose key store is `node.pem`, and that file's folder.
struct World {
    folder: tempfile::TempDir,
    security: NodeSecurity,
    image: ClusterImage,
}

fn write(path: &Path, owner: &str) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, owner);
    let key = KeyPair::generate().expect("a key");
    let chain = params.self_signed(&key).expect("signed").pem();
    std::fs::write(path, key.serialize_pem() + &chain).expect("written");
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("node.pem");
        write(&file, "node");
        let file = file.display().to_string();
        let settings = [
            ("node.id", "1"),
            ("process.roles", "broker,controller"),
            ("listeners", "PLAIN://127.0.0.1:1,SSL://127.0.0.1:3,CONTROLLER://127.0.0.1:2"),
            ("listener.security.protocol.map", "PLAIN:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"),
            ("inter.broker.listener.name", "PLAIN"),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", "1@127.0.0.1:2"),
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", &file),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let (config, _) = BrokerConfig::from_settings(&settings.into()).expect("good settings");
        let security = NodeSecurity::of(&config).expect("good certificates");
        World { folder, security, image: ClusterImage::default() }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, owner: &str) {
        write(&self.folder.path().join(name), owner);
    }

    /// Whether a request that sets a key of the broker's own would be taken.
    fn check(&self, key: &str, value: &str) -> Result<(), String> {
        let own = ConfigResource::broker(NodeId(1));
        let mut configs = self.image.configs(&own).cloned().unwrap_or_default();
        configs.insert(key.to_owned(), value.to_owned());
        self.security.check(&configs, &[key])
    }

    /// A committed config of a broker; whether new connections get another certificate by it.
    fn commit(&mut self, broker: &str, key: &str, value: Option<&str>) -> bool {
        let record = Config {
            resource_type: 4,
            resource_name: broker.to_owned(),
            key: key.to_owned(),
            value: value.map(str::to_owned),
        };
        let mut delta = ImageDelta::default();
        let offset = self.image.offset().next();
        let record: MetadataRecord = record.into();
        self.image.apply_batch(offset, LeaderEpoch(1), &[record], &mut delta).expect("applied");
        let sender = self.security.listeners["SSL"].server.as_ref().expect("it accepts");
        let before = sender.subscribe();
        self.security.on_metadata(&self.image, &delta);
        before.has_changed().expect("a sender")
    }
}

/// KIP-226.
#[test]
fn a_file_is_read_again_when_this_brokers_configs_change_or_are_set_to_what_they_are() {
    let mut world = World::new();
    let file = world.file("node.pem");
    assert!(!world.commit("1", STORE, Some(&file)), "the same key");
    world.write("node.pem", "node");
    assert!(!world.commit("2", STORE, Some(&file)), "another broker's");
    assert!(!world.commit("", "log.retention.ms", Some("9")), "those of all brokers");
    assert!(world.commit("1", STORE, Some(&file)), "to the same value");
    world.write("node.pem", "node");
    assert!(world.commit("1", "log.retention.ms", Some("9")), "any of its own");
    world.write("other.pem", "node");
    assert!(world.commit("1", STORE, Some(&world.file("other.pem"))));
    assert!(world.commit("1", STORE, None), "back to what it was started with");
    assert!(world.image.offset() > Offset::ZERO);
}

#[test]
fn what_cannot_be_used_is_refused_and_changes_nothing() {
    let mut world = World::new();
    let file = world.file("node.pem");
    world.write("other.pem", "other");
    std::fs::write(world.file("empty.pem"), "").expect("written");
    for (name, why) in [
        ("none.pem", "cannot be read"),
        ("empty.pem", "no PEM"),
        ("other.pem", "ssl.allow.dn.changes"),
    ] {
        let refused = world.check(STORE, &world.file(name)).expect_err(name);
        assert!(refused.contains("SSL") && refused.contains(why), "{refused}");
        assert!(!world.commit("1", STORE, Some(&world.file(name))), "{name} found later");
    }
    assert_eq!(world.check(STORE, &file), Ok(()));
    // The file is bad, and a key that has nothing to do with it changes.
    std::fs::write(&file, "no PEM").expect("written");
    assert!(world.check(STORE, &file).is_err(), "to the same value");
    assert_eq!(world.check("log.retention.ms", "9"), Ok(()));
    assert_eq!(world.check("listener.name.plain.ssl.keystore.location", "/none"), Ok(()));
    assert!(!world.commit("1", STORE, Some(&file)));
    world.write("node.pem", "node");
    assert!(world.commit("1", STORE, Some(&file)), "mended");
}

#[test]
fn names_may_change_where_the_properties_say_so() {
    let world = World::new();
    let mut properties = world.security.properties.clone();
    properties.insert("listener.name.ssl.ssl.allow.dn.changes".into(), "true".into());
    world.write("other.pem", "other");
    let configs = ConfigMap::from([(STORE.to_owned(), world.file("other.pem"))]);
    let listener = &world.security.listeners["SSL"];
    assert!(listener.prepare(&properties, &configs, "SSL").is_ok_and(|found| found.is_some()));
    assert!(listener.prepare(&world.security.properties, &configs, "SSL").is_err());
}
