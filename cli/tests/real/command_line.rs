//! The command line: what is printed, what is refused, how it stops, what it keeps.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::{Client, batch_of};
use testkit::real::free_row;

use crate::{BINARY, alone};

fn up(arguments: &[&str]) -> (Child, Vec<String>) {
    // The ports of metrics would have to be free as well.
    let mut child = Command::new(BINARY)
        .args(["up", "--metrics-port", "0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("highwater starts");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = Vec::new();
    for line in stdout.lines() {
        let line = line.expect("text");
        let ready = line.starts_with("ready ");
        lines.push(line);
        if ready {
            break;
        }
    }
    (child, lines)
}

/// Stops it as Ctrl-C does; it must end well.
pub fn interrupt(mut child: Child) {
    let pid = Pid::from_raw(child.id() as i32).expect("a pid");
    kill_process(pid, Signal::INT).expect("a signal");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "ended with {status}");
}

/// NOT_LEADER_OR_FOLLOWER.
const NOT_LEADER: i16 = 6;

#[test]
fn up_says_when_it_is_ready_keeps_its_data_and_stops_on_ctrl_c() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().to_str().expect("text");
    let port = free_row(6).expect("ports").to_string();
    let (child, lines) = up(&["--data", data, "--port", &port, "--quiet"]);
    let address = format!("127.0.0.1:{port}");
    let expected = format!("ready bootstrap={address}");
    assert!(lines.last().expect("a line").starts_with(&expected), "{lines:?}");
    let timeout = Duration::from_secs(10);
    let mut client = Client::connect(&address, timeout).expect("a client");
    // The topic makes itself on the first question for it.
    let mut leader = None;
    for _ in 0..500 {
        leader = leader_of(&mut client, "kept");
        if leader.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut writer = Client::connect(&leader.expect("a leader"), timeout).expect("a client");
    let batch = batch_of(&[b"before"]).expect("a batch");
    // A leader may hear of its part a little later than others do.
    let mut answer = writer.produce("kept", 0, -1, batch.clone(), timeout).expect("an answer");
    for _ in 0..500 {
        if answer.error_code != NOT_LEADER {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        answer = writer.produce("kept", 0, -1, batch.clone(), timeout).expect("an answer");
    }
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    interrupt(child);
    let (child, _) = up(&["--data", data, "--port", &port, "--quiet"]);
    let mut client = Client::connect(&address, timeout).expect("a client");
    let leader = leader_of(&mut client, "kept").expect("the topic is still there");
    let mut reader = Client::connect(&leader, timeout).expect("a client");
    let records = reader.read_all("kept", 0, 0).expect("records");
    assert_eq!(records[0].value.as_deref(), Some(&b"before"[..]));
    interrupt(child);
    // Without two of its brokers, partitions of this cluster would have no leader.
    let said = refused(&["--data", data, "--port", &port, "--brokers", "1"]);
    assert!(said.contains("--brokers 3 --controllers 0"), "{said}");
}

/// What `up` says on stderr when it refuses to start.
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).arg("up").args(arguments).output().expect("highwater runs");
    assert!(!output.status.success(), "it started with {arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_port_that_is_taken_and_a_key_that_nobody_knows_are_told_before_the_nodes_start() {
    let port = free_row(6).expect("ports");
    let taken = std::net::TcpListener::bind(("127.0.0.1", port + 2)).expect("a port");
    for mode in ["--quiet", "--processes"] {
        let said = refused(&["--port", &port.to_string(), "--set", "no.such.key=1", mode]);
        let address = format!("127.0.0.1:{}", port + 2);
        assert!(said.contains(&address) && said.contains("--port"), "{said}");
        assert_eq!(said.matches("no.such.key").count(), 1, "once for all nodes: {said}");
    }
    drop(taken);
    let said = refused(&["--port", &port.to_string(), "--processes", "--set", "num.partitions=0"]);
    assert!(said.contains("num.partitions"), "{said}");
    assert!(!said.contains("output"), "told by the parent: {said}");
}

#[test]
fn options_of_up_that_cannot_work_are_refused_by_name() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--set", "node.id=7"], &["node.id", "every node its own"]),
        (&["--set", "log.dirs=/tmp"], &["log.dirs", "every node its own"]),
        (&["--metrics-port", "9092"], &["--metrics-port 9092", "9092 to 9097"]),
        (&["--racks", "a,,b"], &["--racks", "empty"]),
        (&["--port", "0"], &["--port", "1..=65535"]),
        (&["--port", "65533"], &["--port 65533", "6 ports", "above 65535"]),
    ];
    for (arguments, words) in cases {
        let said = refused(arguments);
        for word in *words {
            assert!(said.contains(word), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn health_asks_one_broker_and_says_so() {
    for bootstrap in ["localhost", "127.0.0.1:1,127.0.0.1:2", ":9092", "a:b"] {
        let output = Command::new(BINARY).args(["health", "--bootstrap", bootstrap]).output();
        let output = output.expect("highwater runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("expected HOST:PORT"), "{said}");
    }
}

fn leader_of(client: &mut Client, topic: &str) -> Option<String> {
    let request = protocol::messages::MetadataRequest {
        topics: Some(vec![protocol::messages::metadata_request::MetadataRequestTopic {
            name: Some(topic.into()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: true,
        ..Default::default()
    };
    let metadata = client.call(12, request).expect("an answer");
    let leader = metadata.topics.first()?.partitions.first()?.leader_id;
    let broker = metadata.brokers.iter().find(|broker| broker.node_id == leader)?;
    Some(format!("{}:{}", broker.host, broker.port))
}

/// `up --processes` with three nodes, and their processes.
fn up_processes(arguments: &[&str]) -> (Child, Vec<i32>) {
    let port = free_row(6).expect("ports").to_string();
    let (child, lines) = up(&[&["--port", &port, "--processes"], arguments].concat());
    let nodes: Vec<&String> = lines.iter().filter(|line| line.starts_with("node ")).collect();
    assert_eq!(nodes.len(), 3, "{lines:?}");
    let pid = |line: &&String| line.split(' ').nth(3).and_then(|pid| pid.parse().ok());
    let pids = nodes.iter().map(|line| pid(line).expect("a pid")).collect();
    (child, pids)
}

#[test]
fn processes_are_named_before_ready_and_end_with_their_parent() {
    let _alone = alone();
    let (child, pids) = up_processes(&[]);
    interrupt(child);
    for pid in pids {
        let alive = std::path::Path::new(&format!("/proc/{pid}/stat")).exists();
        assert!(!alive, "process {pid} still runs");
    }
}

/// An orphan that has ended may wait for somebody to take note of it.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn processes_stop_cleanly_when_their_parent_is_killed() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, pids) = up_processes(&["--data", folder.path().to_str().expect("text")]);
    assert!(pids.iter().all(|pid| runs(*pid)));
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while pids.iter().any(|pid| runs(*pid)) {
        assert!(std::time::Instant::now() < until, "{pids:?} still run");
        std::thread::sleep(Duration::from_millis(20));
    }
    for node in 1..=3 {
        let output = folder.path().join(format!("node{node}/output"));
        let output = std::fs::read_to_string(output).expect("an output");
        assert!(output.contains("standard input has ended"), "{output}");
        assert!(output.trim_end().ends_with(&format!("stopped id={node}")), "{output}");
    }
}

#[test]
fn controllers_of_their_own_serve_a_single_broker() {
    let _alone = alone();
    let port = free_row(8).expect("ports").to_string();
    let (child, lines) = up(&["--port", &port, "--brokers", "1", "--controllers", "3", "--quiet"]);
    assert_eq!(lines, [format!("ready bootstrap=127.0.0.1:{port}")]);
    interrupt(child);
}

fn serve(text: &str, sets: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("server.properties");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(BINARY);
    command.arg("serve").arg(&file);
    for set in sets {
        command.args(["--set", set]);
    }
    command.output().expect("highwater runs")
}

#[test]
fn a_wrong_value_stops_the_start_and_says_key_value_and_what_is_allowed() {
    let output = serve(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:0,CONTROLLER://:0\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:1\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         num.partitions=0\n",
        &["log.segment.bytes=many"],
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("num.partitions") && text.contains('0'), "{text}");
    assert!(text.contains("log.segment.bytes") && text.contains("many"), "{text}");
}

#[test]
fn a_properties_file_that_cannot_be_read_is_named_with_the_line() {
    let output = serve("node.id=1\nbroker.rack=\\u00zz\n", &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("server.properties: line 2"), "{text}");
}

#[test]
fn a_folder_of_another_cluster_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("meta.properties"),
        "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\n",
    )
    .expect("a file");
    let output = serve(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:1\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n",
        &[&format!("log.dirs={}", folder.path().display())],
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("belongs to node 7, this is node 1"), "{text}");
}
