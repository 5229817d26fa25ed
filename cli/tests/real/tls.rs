//! A cluster under TLS: clients, brokers and controllers, with real clients and a leader that dies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use testkit::client::{Client, batch_of};
use testkit::real::{Cluster, Encryption};

use crate::clients::{run, script};
use crate::group_tools::tool;
use crate::{alone, cluster};

const CONSOLE: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const NOT_LEADER: i16 = 6;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// The files of an authority, of the nodes it signed for, of a client, and of a stranger.
pub(crate) struct Files {
    folder: tempfile::TempDir,
}

/// What a certificate shall say: its owner's name, and the address all nodes have here.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    // Owners with one name would look as if each had signed for itself.
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Files {
    pub(crate) fn make() -> Files {
        let files = Files { folder: tempfile::tempdir().expect("a folder") };
        for (authority, names) in [("ours", &["node", "client"][..]), ("theirs", &["stranger"])] {
            let mut params = named(authority);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("signed").pem();
            files.write(&format!("{authority}.pem"), &certificate);
            let issuer = Issuer::new(params, key);
            for name in names {
                let key = KeyPair::generate().expect("a key");
                let chain = named(name).signed_by(&key, &issuer).expect("signed").pem();
                files.write(&format!("{name}.key"), &key.serialize_pem());
                files.write(&format!("{name}.crt"), &chain);
                files.write(&format!("{name}.pem"), &format!("{}{chain}", key.serialize_pem()));
            }
        }
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn start(&self) -> Cluster {
        let encryption = Encryption {
            key_store: self.path("node.pem"),
            trust_store: self.path("ours.pem"),
            client_auth: "required",
        };
        let cluster = cluster().encrypted(encryption).set("default.replication.factor", 3);
        cluster.set("broker.session.timeout.ms", 3000).start().expect("a cluster")
    }

    /// librdkafka's settings for whoever has this key, if any.
    pub(crate) fn settings(&self, key: Option<&str>) -> Vec<String> {
        let mut settings = vec![
            "security.protocol=ssl".to_owned(),
            format!("ssl.ca.location={}", self.text("ours.pem")),
        ];
        if let Some(key) = key {
            settings.push(format!("ssl.key.location={}", self.text(&format!("{key}.key"))));
            settings.push(format!("ssl.certificate.location={}", self.text(&format!("{key}.crt"))));
        }
        settings
    }
}

/// Kafka's own client under TLS, where Java is.
fn console_reads(tool: &Path, files: &Files, cluster: &Cluster, topic: &str, count: usize) {
    let mut command = Command::new(tool);
    command.args(["tool", CONSOLE, "--bootstrap-server", &cluster.ssl_bootstrap()]);
    command.args(["--topic", topic, "--from-beginning", "--timeout-ms", "60000"]);
    command.args(["--max-messages", &count.to_string()]);
    for property in [
        "security.protocol=SSL".to_owned(),
        "ssl.truststore.type=PEM".to_owned(),
        format!("ssl.truststore.location={}", files.text("ours.pem")),
        "ssl.keystore.type=PEM".to_owned(),
        format!("ssl.keystore.location={}", files.text("client.pem")),
    ] {
        command.args(["--consumer-property", &property]);
    }
    let output = command.output().expect("runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = out.lines().filter(|line| line.starts_with("record ")).count();
    assert_eq!(read, count, "{out}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn clients_brokers_and_controllers_speak_tls_and_a_leader_that_dies_costs_nothing() {
    let _alone = alone();
    let files = Files::make();
    let mut cluster = files.start();
    let settings = files.settings(Some("client"));
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let name = "round_trip_confluent.py";
    run(name, script(name, "confluent_kafka", &cluster.ssl_bootstrap(), &settings));

    cluster
        .create_topic("ledger", &[&[1, 2, 3]], &[("min.insync.replicas", "2")])
        .expect("a topic");
    let mut written = 0;
    let mut write = |cluster: &mut Cluster| {
        let leader = cluster.leader("ledger", 0).expect("a leader");
        let batch = batch_of(&[format!("record {written}").as_bytes()]).expect("a batch");
        let mut client = cluster.client(leader).expect("a client");
        let mut produce =
            || client.produce("ledger", 0, -1, batch.clone(), PATIENCE).expect("an answer");
        let mut answer = produce();
        // A leader hears of its part a moment after the others.
        while answer.error_code == NOT_LEADER {
            std::thread::sleep(std::time::Duration::from_millis(10));
            answer = produce();
        }
        assert_eq!((answer.error_code, answer.base_offset), (0, written));
        written += 1;
    };
    write(&mut cluster);
    let leader = cluster.leader("ledger", 0).expect("a leader");
    cluster.kill(leader).expect("killed");
    cluster.wait_for_other_leader("ledger", 0, leader).expect("another leader");
    write(&mut cluster);
    cluster.start(leader).expect("started again");
    cluster.wait_for_isr("ledger", 0, &[1, 2, 3]).expect("all in sync again");
    if let Some(tool) = tool() {
        console_reads(&tool, &files, &cluster, "ledger", 2);
    }
}

#[test]
fn strangers_and_plain_clients_are_not_served_on_a_listener_with_tls() {
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let files = Files::make();
    let cluster = files.start();
    let listed = |key: Option<&str>| {
        let mut command = Command::new("kcat");
        command.args(["-b", &cluster.ssl_bootstrap(), "-L", "-m", "3"]).stderr(Stdio::null());
        for setting in files.settings(key) {
            command.args(["-X", &setting]);
        }
        command.output().expect("kcat runs").status.success()
    };
    assert!(listed(Some("client")));
    assert!(!listed(Some("stranger")), "signed by somebody else");
    assert!(!listed(None), "without a certificate");
    let address = cluster.ssl_bootstrap();
    let address = address.split(',').next().expect("an address");
    let mut plain = Client::connect(address, PATIENCE).expect("connected");
    plain.metadata().expect_err("closed, and nothing told");
}
