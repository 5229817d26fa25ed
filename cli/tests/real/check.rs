//! `highwater check` over clusters of processes: calm while leaders die, and not when a replica's file is changed
//! behind the broker's back.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use protocol::messages::CreateTopicsRequest;
use protocol::messages::create_topics_request::CreatableTopic;
use testkit::client::Client;
use testkit::producer::RetryingProducer;
use testkit::real::{Cluster, NodeId, free_row};

use crate::command_line::interrupt;
use crate::{BINARY, alone, cluster};

const TOPIC: &str = "checked";
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a batch has its checksum, what it covers from there on, and the field of its size.
const LENGTH_AT: usize = 8;
const LENGTH_END: usize = 12;
const CRC_AT: usize = 17;
const COVERED_AT: usize = 21;

fn check(cluster: &Cluster, seconds: &str) -> Child {
    let arguments = ["check", "--bootstrap", &cluster.bootstrap(), "--topic", TOPIC];
    Command::new(BINARY)
        .args(arguments)
        .args(["--seconds", seconds, "--interval-ms", "100"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

fn told(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn start() -> Cluster {
    let mut cluster = cluster()
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .start()
        .expect("a cluster");
    let settings = [("min.insync.replicas", "2")];
    cluster.create_topic(TOPIC, &[&[1, 2, 3]], &settings).expect("a topic");
    cluster
}

fn produce(producer: &mut RetryingProducer, count: usize) {
    for number in 0..count {
        producer.send(format!("record {number}").as_bytes(), PATIENCE).expect("acknowledged");
    }
}

#[test]
fn a_watch_over_leaders_that_die_sees_nothing_broken() {
    let _alone = alone();
    let mut cluster = start();
    let mut producer = RetryingProducer::new(&cluster.bootstrap(), TOPIC, 0).expect("a producer");
    produce(&mut producer, 50);
    let watch = check(&cluster, "12");
    for _ in 0..2 {
        let leader = cluster.leader(TOPIC, 0).expect("a leader");
        cluster.kill(leader).expect("killed");
        cluster.wait_for_other_leader(TOPIC, 0, leader).expect("another leader");
        produce(&mut producer, 50);
        cluster.start(leader).expect("started");
        cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("all in sync");
        produce(&mut producer, 50);
    }
    let output = watch.wait_with_output().expect("ends");
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("nothing broken was seen"), "{told}");
    assert!(told.contains("broker ") && told.contains("does not answer"), "{told}");
}

#[test]
fn a_watch_tells_of_a_replica_whose_file_was_changed() {
    let _alone = alone();
    let mut cluster = start();
    let mut producer = RetryingProducer::new(&cluster.bootstrap(), TOPIC, 0).expect("a producer");
    produce(&mut producer, 5);
    let follower = (1..=3).find(|node| *node != cluster.leader(TOPIC, 0).expect("a leader"));
    let follower: NodeId = follower.expect("a follower");
    cluster.stop(follower).expect("stopped cleanly");
    forge_first_batch(&cluster.data_folder(follower));
    cluster.start(follower).expect("started");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("all in sync");
    let output = check(&cluster, "3").wait_with_output().expect("ends");
    let told = told(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("BROKEN I1: checked-0:"), "{told}");
    assert!(told.contains(&format!("broker {follower} ")), "{told}");
}

#[test]
fn a_watch_over_nothing_says_what_is_missing() {
    let _alone = alone();
    let cluster = start();
    for (bootstrap, topic, reason) in [
        ("127.0.0.1:1", TOPIC, "no bootstrap broker answers"),
        (&*cluster.bootstrap(), "nosuch", "there is no topic nosuch"),
    ] {
        let arguments = ["check", "--bootstrap", bootstrap, "--topic", topic, "--seconds", "1"];
        let output = Command::new(BINARY).args(arguments).output().expect("runs");
        assert!(!output.status.success());
        assert!(told(&output).contains(reason), "{}", told(&output));
    }
}

#[test]
fn up_with_check_tells_of_it_on_standard_error() {
    let _alone = alone();
    let data = tempfile::tempdir().expect("a folder");
    let port = free_row(6).expect("ports").to_string();
    let up = |more: &[&str]| {
        let folder = data.path().display().to_string();
        let mut child = Command::new(BINARY)
            .args(["up", "--metrics-port", "0", "--port", &port, "--data", &folder, "--quiet"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        assert!(stdout.lines().map_while(Result::ok).any(|line| line.starts_with("ready ")));
        child
    };
    let child = up(&[]);
    let bootstrap = format!("127.0.0.1:{port}");
    let mut client = Client::connect(&bootstrap, PATIENCE).expect("connected");
    create_topic(&mut client);
    let mut producer = RetryingProducer::new(&bootstrap, TOPIC, 0).expect("a producer");
    produce(&mut producer, 5);
    interrupt(child);
    forge_first_batch(&data.path().join("node2/data"));
    let mut child = up(&["--check"]);
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let told = stderr.lines().map_while(Result::ok).find(|line| line.contains("BROKEN"));
    let told = told.expect("a line");
    assert!(told.contains("BROKEN I1: checked-0:") && told.contains("broker 2 "), "{told}");
    interrupt(child);
}

fn create_topic(client: &mut Client) {
    let topic = CreatableTopic {
        name: TOPIC.into(),
        num_partitions: 1,
        replication_factor: 3,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let response = client.call(5, request).expect("an answer");
    assert_eq!(response.topics[0].error_code, 0);
}

/// Changes the last byte of the first batch in the log directory of a node that is down, and its checksum
/// with it.
fn forge_first_batch(log_dir: &Path) {
    let path = log_dir.join(format!("{TOPIC}-0")).join("00000000000000000000.log");
    let mut bytes = fs::read(&path).expect("a segment");
    let length: [u8; 4] = bytes[LENGTH_AT..LENGTH_END].try_into().expect("four bytes");
    let end = LENGTH_END + u32::from_be_bytes(length) as usize;
    // The value's last byte; one byte follows it, the number of headers.
    bytes[end - 2] ^= 1;
    let crc = crc32c::crc32c(&bytes[COVERED_AT..end]);
    bytes[CRC_AT..COVERED_AT].copy_from_slice(&crc.to_be_bytes());
    fs::write(&path, bytes).expect("written");
}
