//! A cluster under TLS: clients, brokers and controllers, with real clients and a leader that dies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use protocol::messages::IncrementalAlterConfigsRequest;
use protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use testkit::client::{Client, batch_of};
use testkit::real::{Cluster, Encryption};

use crate::clients::{run, script};
use crate::group_tools::tool;
use crate::{alone, cluster};

const CONSOLE: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const NOT_LEADER: i16 = 6;
const PATIENCE: Duration = Duration::from_secs(60);
const TEN_DAYS: Duration = Duration::from_secs(10 * 24 * 3600);

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
        let signed: [(&str, &[(&str, &str)]); 2] = [
            ("ours", &[("node", "node"), ("client", "client")]),
            // The same node, as somebody else signed for it.
            ("theirs", &[("stranger", "stranger"), ("moved", "node")]),
        ];
        for (authority, names) in signed {
            let mut params = named(authority);
            if authority == "theirs" {
                params.not_after = (SystemTime::now() + TEN_DAYS).into();
            }
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("signed").pem();
            files.write(&format!("{authority}.pem"), &certificate);
            let issuer = Issuer::new(params, key);
            for (name, owner) in names {
                let key = KeyPair::generate().expect("a key");
                let chain = named(owner).signed_by(&key, &issuer).expect("signed").pem();
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
            std::thread::sleep(Duration::from_millis(10));
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

const BROKER: i8 = 4;

/// Sets a key of a node's listener `SSL` to a file; the error and its words.
fn set_store(cluster: &Cluster, node: i32, key: &str, path: &Path) -> (i16, String) {
    let config = AlterableConfig {
        name: format!("listener.name.ssl.ssl.{key}.location"),
        value: Some(path.display().to_string()),
        ..AlterableConfig::default()
    };
    let resource = AlterConfigsResource {
        resource_type: BROKER,
        resource_name: node.to_string(),
        configs: vec![config],
        ..AlterConfigsResource::default()
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![resource],
        ..IncrementalAlterConfigsRequest::default()
    };
    let mut client = cluster.client(node).expect("a client");
    let answer = client.call(1, request).expect("an answer").responses.remove(0);
    (answer.error_code, answer.error_message.unwrap_or_default())
}

/// Whether a node's certificate is one that `authority` signed.
fn is_signed_by(files: &Files, cluster: &Cluster, node: usize, authority: &str) -> bool {
    let address = cluster.ssl_bootstrap().split(',').nth(node - 1).expect("an address").to_owned();
    let mut command = Command::new("kcat");
    command.args(["-b", &address, "-L", "-m", "5"]).stderr(Stdio::null());
    let authority = format!("ssl.ca.location={}", files.text(authority));
    for setting in files.settings(Some("client")).iter().skip(2).chain([&authority]) {
        command.args(["-X", setting]);
    }
    command.args(["-X", "security.protocol=ssl"]);
    command.output().expect("kcat runs").status.success()
}

fn wait_for_words(cluster: &Cluster, node: i32, words: &str) {
    let until = Instant::now() + PATIENCE;
    while !cluster.output(node).contains(words) {
        assert!(Instant::now() < until, "no {words:?}: {}", cluster.output(node));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// KIP-226: to the same value, too, since the file may have changed.
#[test]
fn certificates_are_read_again_while_nodes_run_and_what_cannot_be_used_changes_nothing() {
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let files = Files::make();
    let mut cluster = files.start();
    let (one, two) = (1, 2);
    let settings = [("min.insync.replicas", "2")];
    cluster.create_topic("ledger", &[&[1, 2, 3]], &settings).expect("a topic");
    cluster.wait_for_isr("ledger", 0, &[1, 2, 3]).expect("all in sync");
    let read = |name: &str| std::fs::read_to_string(files.path(name)).expect("a file");
    files.write("live.pem", &read("node.pem"));
    let live = files.path("live.pem");
    let set = |cluster: &Cluster| set_store(cluster, one, "keystore", &live);
    assert_eq!(set(&cluster), (0, String::new()));
    assert!(is_signed_by(&files, &cluster, 1, "ours.pem"));

    files.write("live.pem", &read("moved.pem"));
    assert!(is_signed_by(&files, &cluster, 1, "ours.pem"), "nobody was told");
    assert_eq!(set(&cluster), (0, String::new()));
    let until = Instant::now() + PATIENCE;
    while !is_signed_by(&files, &cluster, 1, "theirs.pem") {
        assert!(Instant::now() < until, "{}", cluster.output(one));
    }
    for (file, why) in
        [("ours.pem", "no PEM private key"), ("stranger.pem", "ssl.allow.dn.changes")]
    {
        files.write("live.pem", &read(file));
        let (code, message) = set(&cluster);
        assert!(code == 42 && message.contains(why), "{code} {message}");
    }
    assert!(is_signed_by(&files, &cluster, 1, "theirs.pem"), "as before");
    files.write("live.pem", &read("moved.pem"));

    // A follower that comes back does not know who signed for its leader now, until it is told.
    cluster.stop(two).expect("stopped");
    cluster.start(two).expect("started");
    let untrusting = "no TLS with another node";
    wait_for_words(&cluster, two, untrusting);
    files.write("both.pem", &(read("ours.pem") + &read("theirs.pem")));
    assert_eq!(set_store(&cluster, two, "truststore", &files.path("both.pem")).0, 0);
    wait_for_words(&cluster, two, "TLS with another node works again");
    cluster.wait_for_isr("ledger", 0, &[1, 2, 3]).expect("all in sync again");
    let said = cluster.output(two);
    assert_eq!(said.matches(untrusting).count(), 1, "told once: {said}");
    assert!(said.contains("trust store") && said.contains("expires at"), "{said}");
}
