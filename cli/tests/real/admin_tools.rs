//! Kafka's own tools for a cluster's operator, where Java and a Kafka to compare with are present: topics, configs,
//! loggers, the quorum, features, elections, reassignments, offsets, deletion of records, and the two that
//! measure.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::real::Cluster;

use crate::group_tools::tool;
use crate::{alone, cluster};

const CONFIGS: &str = "ConfigCommand";
const TOPICS: &str = "TopicCommand";
const REASSIGN: &str = "reassign.ReassignPartitionsCommand";
const OFFSETS: &str = "GetOffsetShell";

/// A cluster, Kafka's tools, and a folder for the files that tools read.
struct Admin {
    tool: PathBuf,
    cluster: Cluster,
    folder: TempDir,
}

impl Admin {
    fn start() -> Option<Admin> {
        let tool = tool()?;
        // A broker that is killed here counts as live until the end: the tool refuses to move to others.
        let cluster = cluster()
            .set("offsets.topic.num.partitions", 4)
            .set("group.initial.rebalance.delay.ms", 0)
            .set("broker.session.timeout.ms", 600_000)
            .start()
            .expect("a cluster");
        Some(Admin { tool, cluster, folder: tempfile::tempdir().expect("a folder") })
    }

    fn output(&self, class: &str, words: &str) -> Output {
        let mut command = Command::new(&self.tool);
        command.args(["tool", &format!("org.apache.kafka.tools.{class}")]);
        command.args(["--bootstrap-server", &self.cluster.bootstrap()]);
        command.args(words.split_whitespace()).output().expect("runs")
    }

    /// Runs a tool that must succeed; arguments are separated by blanks.
    fn run(&self, class: &str, words: &str) -> String {
        let output = self.output(class, words);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{class} {words}:\n{out}\n{err}");
        assert!(!out.contains("Exception") && !out.contains("Error"), "{class} {words}:\n{out}");
        out
    }

    /// Runs a tool whose output must have all these pieces.
    fn tells(&self, class: &str, words: &str, pieces: &[&str]) -> String {
        let out = self.run(class, words);
        for piece in pieces {
            assert!(out.contains(piece), "{class} {words}: no {piece} in\n{out}");
        }
        out
    }

    /// A file for a tool, as the argument that names it.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

#[test]
fn kafkas_tools_see_and_change_topics_configs_and_loggers() {
    let _alone = alone();
    let Some(admin) = Admin::start() else { return };
    admin.run(TOPICS, "--create --topic seen --partitions 2 --replication-factor 3");
    admin.run(TOPICS, "--alter --topic seen --partitions 3");
    admin.tells(TOPICS, "--describe --topic seen", &["PartitionCount: 3", "ReplicationFactor: 3"]);

    for (what, set) in [
        ("topics --entity-name seen", "cleanup.policy=[compact,delete]"),
        ("brokers --entity-name 1", "log.cleaner.threads=2"),
        ("brokers --entity-default", "log.retention.ms=123456"),
        ("groups --entity-name g", "consumer.session.timeout.ms=50000"),
        ("client-metrics --entity-name m", "interval.ms=1000"),
        ("broker-loggers --entity-name 1", "storage=DEBUG"),
    ] {
        admin.run(CONFIGS, &format!("--alter --entity-type {what} --add-config {set}"));
        let shown = set.replace(['[', ']'], "");
        admin.tells(CONFIGS, &format!("--describe --entity-type {what}"), &[&shown]);
    }
    for (what, key) in [
        ("topics --entity-name seen", "cleanup.policy"),
        ("broker-loggers --entity-name 1", "storage"),
    ] {
        admin.run(CONFIGS, &format!("--alter --entity-type {what} --delete-config {key}"));
        let after = admin.run(CONFIGS, &format!("--describe --entity-type {what}"));
        assert!(
            !after.contains("cleanup.policy=compact") && !after.contains("storage=DEBUG"),
            "{after}"
        );
    }
    let wrong = "--alter --entity-type broker-loggers --entity-name 1 --add-config storage=LOUD";
    assert!(!admin.output(CONFIGS, wrong).status.success());

    admin.tells("MetadataQuorumCommand", "describe --status", &["LeaderId:", "MaxFollowerLag:"]);
    admin.tells("MetadataQuorumCommand", "describe --replication", &["Leader", "Follower"]);
    admin.tells("FeatureCommand", "describe", &["metadata.version", "group.version"]);
    admin.tells("LogDirsCommand", "--describe --topic-list seen", &["\"partition\":\"seen-2\""]);
    admin.run("LeaderElectionCommand", "--election-type preferred --all-topic-partitions");
    admin.run(TOPICS, "--delete --topic seen");
}

#[test]
fn kafkas_tools_move_partitions_and_measure() {
    let _alone = alone();
    let Some(mut admin) = Admin::start() else { return };
    let replicas: [&[i32]; 2] = [&[1, 2], &[2, 1]];
    admin.cluster.create_topic("moved", &replicas, &[]).expect("a topic");
    let out = admin.run(
        "ProducerPerformance",
        "--topic moved --num-records 5000 --record-size 500 --throughput -1 --command-property acks=all",
    );
    assert!(out.contains("5000 records sent"), "{out}");
    let out = admin.run("ConsumerPerformance", "--topic moved --num-records 5000 --timeout 120000");
    assert!(out.contains(" 5000, "), "{out}");
    let offsets = admin.run(OFFSETS, "--topic moved --time latest");
    let ends = offsets.lines().filter_map(|line| line.rsplit(':').next()?.parse::<u64>().ok());
    assert_eq!(ends.sum::<u64>(), 5000, "{offsets}");

    let deletion = admin.file(
        "delete.json",
        r#"{"version":1,"partitions":[{"topic":"moved","partition":0,"offset":-1}]}"#,
    );
    admin.tells(
        "DeleteRecordsCommand",
        &format!("--offset-json-file {deletion}"),
        &["low_watermark"],
    );

    let topics = admin.file("topics.json", r#"{"version":1,"topics":[{"topic":"moved"}]}"#);
    let generate = format!("--generate --topics-to-move-json-file {topics} --broker-list 2,3");
    let out = admin.tells(REASSIGN, &generate, &["Proposed partition reassignment"]);
    let plan = admin.file("plan.json", out.lines().last().expect("a plan"));
    let execute = format!("--execute --reassignment-json-file {plan} --throttle 50000000");
    admin.tells(REASSIGN, &execute, &["throttle limit was set", "Successfully started"]);
    let verify = format!("--verify --reassignment-json-file {plan}");
    let moved = |admin: &Admin| admin.run(REASSIGN, &verify).matches("is completed").count() == 2;
    assert!((0..30).any(|_| moved(&admin)), "the partitions did not arrive");
    admin.tells(TOPICS, "--describe --topic moved", &["Replicas: 2,3", "Replicas: 3,2"]);

    // A broker that does not answer cannot get a replica: the move waits, and can be taken back.
    admin.cluster.kill(1).expect("killed");
    let plan = admin.file(
        "back.json",
        r#"{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[1,2]}]}"#,
    );
    admin.run(REASSIGN, &format!("--execute --reassignment-json-file {plan}"));
    admin.tells(REASSIGN, "--list", &["moved-0: replicas: "]);
    let cancel = format!("--cancel --reassignment-json-file {plan} --preserve-throttles");
    admin.tells(REASSIGN, &cancel, &["Successfully cancelled", "moved-0"]);
    admin.tells(REASSIGN, "--list", &["No partition reassignments found."]);
}
