//! Consumer groups with real clients: what each of them calls eager, cooperative, static or new, with members
//! that come, leave, and are killed. The stories and their checks are in testkit/clients/group_story.py.

use std::process::Command;

use testkit::real::{Cluster, ClusterBuilder};

use crate::clients::{root, run, script};
use crate::{alone, cluster};

/// A cluster on which groups do not wait longer than a test likes.
pub(crate) fn with_quick_groups() -> ClusterBuilder {
    cluster()
        .set("default.replication.factor", 3)
        .set("offsets.topic.num.partitions", 6)
        .set("group.initial.rebalance.delay.ms", 200)
        .set("group.min.session.timeout.ms", 1000)
        .set("group.consumer.min.session.timeout.ms", 1000)
        .set("group.consumer.session.timeout.ms", 10_000)
        .set("group.consumer.min.heartbeat.interval.ms", 100)
        .set("group.consumer.heartbeat.interval.ms", 500)
}

fn start() -> Cluster {
    with_quick_groups().start().expect("a cluster")
}

fn tell(name: &str, modules: &str, stories: &[&str]) {
    let _alone = alone();
    let cluster = start();
    run(name, script(name, modules, &cluster.bootstrap(), stories));
}

#[test]
fn librdkafka_members_of_classic_groups_come_go_and_die() {
    let stories = ["range", "cooperative-sticky", "static-range", "static-cooperative"];
    tell("group_confluent.py", "confluent_kafka", &stories);
}

#[test]
fn librdkafka_members_of_kip_848_groups_come_go_and_die() {
    tell("group_confluent.py", "confluent_kafka", &["consumer", "static-consumer"]);
}

#[test]
fn kafka_python_members_come_go_and_die() {
    tell("group_kafka_python.py", "kafka, confluent_kafka", &[]);
}

#[test]
fn aiokafka_members_come_go_and_die() {
    // Every member is a process that keeps a core busy for a while, so not all stories at once.
    for stories in [["range", "roundrobin"], ["sticky", "static"]] {
        tell("group_aiokafka.py", "aiokafka, confluent_kafka", &stories);
    }
}

#[test]
fn kafkajs_members_come_go_and_die() {
    let modules = root().join("target/node-clients/node_modules");
    let check =
        Command::new("node").env("NODE_PATH", &modules).args(["-e", "require('kafkajs')"]).output();
    if !check.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no node with kafkajs; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let cluster = start();
    let mut command = script("group_kafkajs.py", "confluent_kafka", &cluster.bootstrap(), &[]);
    if let Some(command) = &mut command {
        command.env("NODE_PATH", modules);
    }
    run("group_kafkajs.py", command);
}
