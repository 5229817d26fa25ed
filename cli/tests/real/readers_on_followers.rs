//! K01, KIP-392: consumers that say which rack they are in read from the replica there, by plain text and
//! under TLS. Which broker the records came from is told by the brokers' own metrics.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use testkit::metrics::MetricsPage;
use testkit::producer::RetryingProducer;
use testkit::real::{Cluster, Encryption, NodeId, free_ports};

use crate::group_tools::tool;
use crate::tls::Files;
use crate::{alone, cluster};

const SELECTOR: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
const CONSOLE: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const PATIENCE: Duration = Duration::from_secs(60);
const RACKS: [&str; 3] = ["a", "b", "c"];
const RECORDS: usize = 200;

/// Three nodes in three racks, with a plain listener and one under TLS each, and where their metrics are.
fn start(files: &Files) -> (Cluster, BTreeMap<NodeId, String>) {
    let ports = free_ports(3).expect("ports");
    let metrics: BTreeMap<NodeId, String> =
        (1..).zip(ports).map(|(node, port)| (node, format!("127.0.0.1:{port}"))).collect();
    let encryption = Encryption {
        key_store: files.path("node.pem"),
        trust_store: files.path("ours.pem"),
        client_auth: "none",
    };
    let mut builder = cluster().encrypted(encryption).set("replica.selector.class", SELECTOR);
    for ((node, address), rack) in metrics.iter().zip(RACKS) {
        builder = builder.set_on(*node, "broker.rack", rack).set_on(
            *node,
            "highwater.metrics.listener",
            address,
        );
    }
    (builder.start().expect("a cluster"), metrics)
}

/// The nodes that gave records of a topic to consumers.
fn givers(metrics: &BTreeMap<NodeId, String>, topic: &str) -> Vec<NodeId> {
    let gave = |address: &str| {
        let page = MetricsPage::scrape(address).expect("metrics");
        let labels = [("topic", topic)];
        page.get("kafka_server_brokertopicmetrics_bytesout_total", &labels).unwrap_or(0.0) > 0.0
    };
    metrics.iter().filter(|(_, address)| gave(address)).map(|(node, _)| *node).collect()
}

/// A topic that node 1 leads, with records that every replica has.
fn topic_with_records(cluster: &mut Cluster, topic: &str) -> String {
    cluster.create_topic(topic, &[&[1, 2, 3]], &[]).expect("a topic");
    let mut producer = RetryingProducer::new(&cluster.bootstrap(), topic, 0).expect("a producer");
    let mut expected = String::new();
    for number in 0..RECORDS {
        let value = format!("record {number}");
        producer.send(value.as_bytes(), PATIENCE).expect("an acknowledgement");
        expected.push_str(&value);
        expected.push('\n');
    }
    cluster.wait_for_isr(topic, 0, &[1, 2, 3]).expect("all in sync");
    expected
}

fn output_of(mut command: Command) -> String {
    let output = command.output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn kcat(bootstrap: &str, topic: &str, rack: &str, settings: &[String]) -> String {
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap, "-C", "-q", "-t", topic, "-p", "0", "-o", "beginning"]);
    command.args(["-c", &RECORDS.to_string(), "-X", &format!("client.rack={rack}")]);
    for setting in settings {
        command.args(["-X", setting]);
    }
    output_of(command)
}

/// Kafka's own client; nothing where Java is absent.
fn console(bootstrap: &str, topic: &str, rack: &str, settings: &[String]) -> Option<String> {
    let mut command = Command::new(tool()?);
    command.args(["tool", CONSOLE, "--bootstrap-server", bootstrap, "--topic", topic]);
    command.args(["--partition", "0", "--offset", "earliest", "--timeout-ms", "60000"]);
    command.args(["--max-messages", &RECORDS.to_string()]);
    for setting in [&[format!("client.rack={rack}")], settings].concat() {
        command.args(["--consumer-property", &setting]);
    }
    let lines = output_of(command);
    Some(
        lines
            .lines()
            .filter(|line| line.starts_with("record "))
            .map(|l| l.to_owned() + "\n")
            .collect(),
    )
}

#[test]
fn k01_consumers_read_from_the_replica_of_their_rack_in_plain_text_and_under_tls() {
    let _alone = alone();
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let files = Files::make();
    let (mut cluster, metrics) = start(&files);
    let truststore = files.path("ours.pem").display().to_string();
    let java_tls = [
        "security.protocol=SSL".to_owned(),
        "ssl.truststore.type=PEM".to_owned(),
        format!("ssl.truststore.location={truststore}"),
    ];
    let ways = [
        ("plain", cluster.bootstrap(), Vec::new(), Vec::new()),
        ("tls", cluster.ssl_bootstrap(), files.settings(None), java_tls.to_vec()),
    ];
    for (way, bootstrap, librdkafka, java) in ways {
        // The leader's rack, two followers', and one where nobody is: then the leader gives.
        for (rack, giver) in [("a", 1), ("b", 2), ("c", 3), ("nowhere", 1)] {
            let topic = format!("kcat-{way}-{rack}");
            let expected = topic_with_records(&mut cluster, &topic);
            assert_eq!(kcat(&bootstrap, &topic, rack, &librdkafka), expected, "{topic}");
            assert_eq!(givers(&metrics, &topic), [giver], "{topic}");
        }
        let topic = format!("console-{way}");
        let expected = topic_with_records(&mut cluster, &topic);
        if let Some(read) = console(&bootstrap, &topic, "b", &java) {
            assert_eq!(read, expected, "{topic}");
            assert_eq!(givers(&metrics, &topic), [2], "{topic}");
        }
    }
}
