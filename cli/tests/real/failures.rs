//! Nodes that cannot go on, or cannot start: what is said, what the others do, how it ends.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Client, batch_of};
use testkit::producer::RetryingProducer;
use testkit::real::{free_ports, free_row};

use crate::failover::quick_cluster;
use crate::volume::Volume;
use crate::{BINARY, alone};

const PATIENCE: Duration = Duration::from_secs(45);

/// `highwater up` with its stderr kept, once it is ready.
fn up(arguments: &[&str]) -> Child {
    let mut child = Command::new(BINARY)
        .args(["up", "--metrics-port", "0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("highwater starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let ready = stdout.lines().map_while(Result::ok).any(|line| line.starts_with("ready "));
    assert!(ready, "it gets ready");
    child
}

/// Waits for the end; the exit code and everything said on stderr.
fn end_of(mut child: Child) -> (Option<i32>, String) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            let mut text = String::new();
            let mut stderr = child.stderr.take().expect("a pipe");
            stderr.read_to_string(&mut text).expect("text");
            return (status.code(), text);
        }
        if Instant::now() > deadline {
            child.kill().expect("killed");
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id() as i32).expect("a pid");
    kill_process(pid, signal).expect("a signal");
}

/// Has every broker write, so that a full volume is noticed.
fn create_topics(address: &str, count: usize) {
    for number in 0..count {
        let mut client = Client::connect(address, PATIENCE).expect("a client");
        let batch = batch_of(&[b"value"]).expect("a batch");
        // Made on the first question; whoever leads it may be another.
        let _ = client.produce(&format!("topic-{number}"), 0, 1, batch, Duration::from_secs(1));
        let _ = client.call(
            5,
            protocol::messages::CreateTopicsRequest {
                topics: vec![protocol::messages::create_topics_request::CreatableTopic {
                    name: format!("made-{number}"),
                    num_partitions: 3,
                    replication_factor: -1,
                    ..Default::default()
                }],
                timeout_ms: 2000,
                ..Default::default()
            },
        );
    }
}

#[test]
fn a_node_that_fails_is_named_and_the_others_in_the_process_go_on() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let Some(volume) = Volume::mount(&folder.path().join("node2/data")) else {
        return;
    };
    let port = free_row(6).expect("ports");
    let data = folder.path().to_str().expect("text");
    let sets =
        ["--set", "broker.session.timeout.ms=1500", "--set", "log.index.size.max.bytes=65536"];
    let port_text = port.to_string();
    let mut arguments = vec!["--data", data, "--port", &port_text, "--quiet"];
    arguments.extend(sets);
    let child = up(&arguments);
    volume.fill();
    let address = format!("127.0.0.1:{port}");
    create_topics(&address, 3);
    // Two brokers and a majority of the controllers are left: the cluster works.
    let mut producer = RetryingProducer::new(&address, "made-2", 0).expect("a producer");
    for _ in 0..20 {
        producer.send(b"after", PATIENCE).expect("acknowledged");
    }
    let gone = Instant::now() + PATIENCE;
    while Client::connect(&format!("127.0.0.1:{}", port + 2), Duration::from_secs(1)).is_ok() {
        assert!(Instant::now() < gone, "the failed node still listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    signal(&child, Signal::INT);
    let (code, text) = end_of(child);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("node 2 failed and is stopped"), "{text}");
}

#[test]
fn a_cluster_that_can_work_no_longer_ends_by_itself_and_says_why() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let Some(volume) = Volume::mount(&folder.path().join("node1/data")) else {
        return;
    };
    let port = free_row(2).expect("ports").to_string();
    let data = folder.path().to_str().expect("text");
    let child = up(&[
        "--data",
        data,
        "--port",
        &port,
        "--brokers",
        "1",
        "--quiet",
        "--set",
        "log.index.size.max.bytes=65536",
    ]);
    volume.fill();
    create_topics(&format!("127.0.0.1:{port}"), 3);
    let (code, text) = end_of(child);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("node 1 failed and is stopped"), "{text}");
    assert!(text.contains("node1/data"), "it names the folder: {text}");
}

#[test]
fn a_killed_node_says_once_that_it_waits_for_its_old_session_and_once_that_it_is_in() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    cluster.kill(2).expect("killed");
    cluster.start(2).expect("started");
    cluster.wait_until_all_live().expect("it is back");
    let output = cluster.output(2);
    let count = |text: &str| output.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("session of this broker's last process"), 1, "{output}");
    assert_eq!(count("registered after all"), 1, "{output}");
    assert_eq!(count("registration refused"), 0, "{output}");
}

/// A node of its own with these log directories; what it says when it refuses to start.
fn serve(dirs: &str) -> Command {
    let ports = free_ports(2).expect("ports");
    let sets = [
        "process.roles=broker,controller".to_owned(),
        "node.id=1".to_owned(),
        format!("listeners=PLAINTEXT://127.0.0.1:{},CONTROLLER://127.0.0.1:{}", ports[0], ports[1]),
        "controller.listener.names=CONTROLLER".to_owned(),
        format!("controller.quorum.voters=1@127.0.0.1:{}", ports[1]),
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned(),
        format!("log.dirs={dirs}"),
    ];
    let mut command = Command::new(BINARY);
    command.arg("serve").env("KAFKA_NODE_ID", "1");
    for set in sets {
        command.args(["--set", &set]);
    }
    command
}

fn refusal(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().expect("highwater runs");
    assert_eq!(status.code(), Some(1));
    String::from_utf8_lossy(&stderr).into_owned()
}

/// Starts a node and waits until it says `word`.
fn started(mut command: Command, word: &str, log: &Path) -> Child {
    let output = std::fs::File::create(log).expect("a file");
    let child = command.stderr(output).spawn().expect("highwater starts");
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(log).is_ok_and(|text| text.contains(word)) {
        assert!(Instant::now() < deadline, "{:?}", std::fs::read_to_string(log));
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn a_second_process_on_the_same_folder_is_refused_with_its_name() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let mut first = started(serve(&data), "node started", &folder.path().join("log"));
    let text = refusal(serve(&data));
    assert!(text.contains(&data) && text.contains("in use by another process"), "{text}");
    // A second directory of its own does not help.
    let other = folder.path().join("other").display().to_string();
    let text = refusal(serve(&format!("{other},{data}")));
    assert!(text.contains(&data) && text.contains("in use by another process"), "{text}");
    first.kill().expect("killed");
    first.wait().expect("gone");
}

/// A node with both directories starts with the good one, and says that the other is out of use.
fn starts_without(bad: &str, good: &str, folder: &Path) {
    let log = folder.join("log");
    let mut node = started(serve(&format!("{good},{bad}")), "node started", &log);
    let text = std::fs::read_to_string(&log).expect("its output");
    assert!(text.contains("log directory out of use") && text.contains(bad), "{text}");
    node.kill().expect("killed");
    node.wait().expect("gone");
}

#[test]
fn a_directory_that_cannot_be_opened_is_out_of_use_and_the_only_one_refuses_the_start() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").expect("a file");
    let bad = file.join("data").display().to_string();
    let good = folder.path().join("good").display().to_string();
    let text = refusal(serve(&bad));
    assert!(text.contains(&bad), "{text}");
    starts_without(&bad, &good, folder.path());
}

#[test]
fn a_read_only_directory_is_out_of_use_and_the_only_one_refuses_the_start() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let Some(volume) = Volume::mount(&folder.path().join("volume")) else {
        return;
    };
    let bad = folder.path().join("volume/data").display().to_string();
    let good = folder.path().join("good").display().to_string();
    volume.make_read_only();
    let text = refusal(serve(&bad));
    assert!(text.contains(&bad), "{text}");
    let text = refusal(serve(&format!("{bad},{good}")));
    assert!(text.contains(&bad), "the one with the metadata must work: {text}");
    starts_without(&bad, &good, folder.path());
}
