//! `up --control` over the wire: the cluster looked at and broken by HTTP and by `highwater fault`, in both
//! modes; and requests that make no sense.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::client::{Client, batch_of};
use testkit::real::{free_ports, free_row};

use crate::command_line::interrupt;
use crate::{BINARY, alone};

const PATIENCE: Duration = Duration::from_secs(45);

/// Dropping it kills it: a test that fails leaves nothing behind.
struct Up {
    child: Option<Child>,
    control: String,
    bootstrap: String,
}

fn up(more: &[&str]) -> Up {
    let port = free_row(9).expect("ports");
    let control = format!("127.0.0.1:{}", free_ports(1).expect("a port")[0]);
    let port_text = port.to_string();
    let mut child = Command::new(BINARY)
        .args(["up", "--metrics-port", "0", "--port", &port_text, "--control", &control])
        .args(["--set", "replica.lag.time.max.ms=1500", "--set", "replica.fetch.wait.max.ms=200"])
        .args(["--set", "broker.session.timeout.ms=2000"])
        .args(["--set", "broker.heartbeat.interval.ms=300"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("highwater starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let ready =
        lines.by_ref().map(|line| line.expect("text")).find(|line| line.starts_with("ready "));
    assert!(ready.is_some(), "it does not get ready");
    // Nobody reads on; what else it prints fits into the pipe.
    std::mem::forget(lines);
    Up { child: Some(child), control, bootstrap: format!("127.0.0.1:{port}") }
}

/// One request; its status and its body.
fn ask(control: &str, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, Value) {
    let mut stream = TcpStream::connect(control).expect("the control port");
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    // It may be refused before all of it is sent.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).expect("JSON"))
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Up {
    /// Stops it as Ctrl-C does.
    fn end(mut self) {
        interrupt(self.child.take().expect("it runs"));
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = ask(&self.control, "GET", path, "", b"");
        assert_eq!(status, 200, "{body}");
        body
    }

    fn post(&self, what: &str, body: Value) -> (u16, Value) {
        let path = format!("/faults/{what}");
        let body = body.to_string();
        ask(&self.control, "POST", &path, "Content-Type: application/json\r\n", body.as_bytes())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--control", &self.control]);
        command.output().expect("highwater runs")
    }

    /// What it prints when it succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn until(&self, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let cluster = self.get("/cluster");
            if reached(&cluster) {
                return cluster;
            }
            assert!(Instant::now() < deadline, "{what} did not come: {cluster:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn partition(cluster: &Value) -> &Value {
    &cluster["topics"][0]["partitions"][0]
}

fn isr(cluster: &Value) -> Vec<i64> {
    let isr = partition(cluster)["isr"].as_array();
    isr.into_iter().flatten().filter_map(Value::as_i64).collect()
}

fn state(cluster: &Value, node: usize) -> &str {
    cluster["nodes"][node - 1]["state"].as_str().unwrap_or_default()
}

/// Has the topic made, with a record in it.
fn first_record(up: &Up) -> i64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Client::connect(&up.bootstrap, PATIENCE).expect("a client");
        let request = protocol::messages::MetadataRequest {
            topics: Some(vec![protocol::messages::metadata_request::MetadataRequestTopic {
                name: Some("t".into()),
                ..Default::default()
            }]),
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        client.call(12, request).expect("metadata");
        let cluster = up.get("/cluster");
        let leader = partition(&cluster)["leader"].as_i64().filter(|leader| *leader > 0);
        if let Some(leader) = leader {
            let address = cluster["nodes"][leader as usize - 1]["address"].as_str().expect("one");
            let mut client = Client::connect(address, PATIENCE).expect("a client");
            let batch = batch_of(&[b"record"]).expect("a batch");
            let answer = client.produce("t", 0, -1, batch, PATIENCE).expect("an answer");
            if answer.error_code == 0 {
                return leader;
            }
        }
        assert!(Instant::now() < deadline, "no topic: {cluster:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Writes a record that followers then lack: who has all that there is counts as in sync, however silent.
fn write_more(cluster: &Value, leader: i64) {
    let address = cluster["nodes"][leader as usize - 1]["address"].as_str().expect("one");
    let mut client = Client::connect(address, PATIENCE).expect("a client");
    let batch = batch_of(&[b"more"]).expect("a batch");
    assert_eq!(client.produce("t", 0, 1, batch, PATIENCE).expect("an answer").error_code, 0);
}

/// A follower is cut off, held back, frozen, killed and stopped, and comes back each time.
fn break_and_mend(up: &Up) {
    let leader = first_record(up);
    let cluster = up.until("every replica", |cluster| {
        let replicas = partition(cluster)["replicas"].as_array();
        replicas.is_some_and(|all| {
            all.len() == 3 && all.iter().all(|replica| replica["high_watermark"] == 1)
        })
    });
    assert_eq!(partition(&cluster)["replicas"][0]["log_end"], 1);
    let follower = (1..=3).find(|node| *node != leader).expect("a follower") as usize;
    let node = follower.to_string();
    let others: Vec<i64> = (1..=3).filter(|node| *node != follower as i64).collect();

    let made = up.post("hold", json!({ "message": "Fetch", "from": follower, "to": leader }));
    assert_eq!(made.0, 200, "{made:?}");
    let id = made.1["faults"][0]["id"].as_u64().expect("an id");
    write_more(&cluster, leader);
    up.until("a smaller ISR", |cluster| isr(cluster) == others);
    assert_eq!(up.get(&format!("/faults/{id}"))["held"], 1);
    let text = up.said(&["describe"]);
    assert!(text.contains("hold Fetch") && text.contains("out"), "{text}");
    let text = up.said(&["fault", "release", &id.to_string()]);
    assert!(text.contains("ended:"), "{text}");
    up.until("the whole ISR", |cluster| isr(cluster) == [1, 2, 3]);

    up.said(&["fault", "cut", &node, "any", "--plane", "data"]);
    assert_eq!(up.get("/faults").as_array().map(Vec::len), Some(2));
    write_more(&cluster, leader);
    let cluster = up.until("a smaller ISR", |cluster| isr(cluster) == others);
    assert!(cluster["links"].as_array().expect("links").iter().any(|link| link["cut"] == true));
    assert_eq!(up.said(&["fault", "heal"]), "2 ended\n");
    up.until("the whole ISR", |cluster| isr(cluster) == [1, 2, 3]);

    for (harm, is, cure) in
        [("freeze", "frozen", "thaw"), ("kill", "down", "start"), ("stop", "down", "start")]
    {
        assert_eq!(up.said(&["fault", harm, &node]), format!("node {node} is {is}\n"));
        let (status, refused) = up.post(harm, json!({ "node": follower }));
        assert_eq!(status, 409, "{refused}");
        assert!(refused["error"].as_str().is_some_and(|error| error.contains(is)), "{refused}");
        let cluster = up.until("a smaller ISR", |cluster| isr(cluster) == others);
        assert_eq!(state(&cluster, follower), is);
        assert_eq!(up.said(&["fault", cure, &node]), format!("node {node} is running\n"));
        up.until("the whole ISR", |cluster| isr(cluster) == [1, 2, 3]);
    }
}

#[test]
fn a_cluster_in_one_process_is_broken_and_mended_through_its_control_port() {
    let _alone = alone();
    let up = up(&[]);
    assert_eq!(up.get("/cluster")["mode"], "one process");
    break_and_mend(&up);
    up.end();
}

#[test]
fn a_cluster_of_processes_is_broken_and_mended_and_bad_requests_are_told_what_is_wrong() {
    let _alone = alone();
    let up = up(&["--processes", "--quiet"]);
    let cluster = up.get("/cluster");
    assert_eq!(cluster["mode"], "processes");
    assert!(cluster["nodes"][0]["pid"].is_u64(), "{cluster}");
    bad_requests_are_told_what_is_wrong(&up);
    break_and_mend(&up);
    let json: Value = serde_json::from_str(&up.said(&["describe", "--json"])).expect("JSON");
    assert_eq!(json["topics"][0]["name"], "t");
    up.end();
}

fn bad_requests_are_told_what_is_wrong(up: &Up) {
    let refused = |answer: (u16, Value), status: u16, word: &str| {
        assert_eq!(answer.0, status, "{answer:?}");
        let error = answer.1["error"].as_str().expect("an error");
        assert!(error.contains(word), "{error}");
    };
    refused(up.post("kill", json!({ "node": 9 })), 404, "no node 9");
    refused(up.post("kill", json!({})), 400, "node");
    refused(up.post("kill", json!({ "node": 1, "hard": true })), 400, "hard");
    refused(up.post("kill", json!([1])), 400, "body");
    refused(up.post("thaw", json!({ "node": 1 })), 409, "running");
    refused(up.post("hold", json!({ "message": "Fetsh" })), 400, "fetsh");
    refused(up.post("hold", json!({ "message": "Fetch", "plane": "moon" })), 400, "moon");
    refused(up.post("drop", json!({ "message": "raft" })), 400, "raft");
    refused(up.post("cut", json!({ "from": 7 })), 404, "no node 7");
    refused(up.post("slow", json!({ "from": 1 })), 400, "latency_ms");
    refused(up.post("slow", json!({ "latency_ms": 100_000 })), 400, "latency");
    refused(up.post("release", json!({ "id": 77 })), 404, "77");
    refused(up.post("fail-disk", json!({ "node": 1, "dir": 3 })), 404, "log directories");
    refused(up.post("mend-disk", json!({ "node": 1 })), 409, "taken away");
    refused(up.post("nonsense", json!({})), 404, "openapi.json");
    let raw = |method: &str, path: &str, headers: &str, body: &[u8]| {
        ask(&up.control, method, path, headers, body)
    };
    let is_json = "Content-Type: application/json\r\n";
    refused(raw("PUT", "/cluster", "", b""), 405, "GET");
    refused(raw("POST", "/faults/kill", "", b"{\"node\": 1}"), 415, "application/json");
    refused(raw("POST", "/faults/kill", is_json, b"{\"node\": "), 400, "body");
    refused(raw("POST", "/faults/kill", is_json, &[b' '; 20_000]), 413, "16384");
    refused(raw("GET", "/cluster?internal=perhaps", "", b""), 400, "internal");
    refused(raw("GET", "/faults/5", "", b""), 404, "5");
    refused(raw("DELETE", "/faults/5?lost", "", b""), 404, "5");
    let document = up.get("/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(up.get("/faults"), json!([]), "nothing of this made a fault");
    let output = up.run(&["fault", "kill", "9"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("no node 9"), "{said}");
}

#[test]
fn without_a_control_port_the_commands_say_how_to_have_one() {
    let nowhere = format!("127.0.0.1:{}", free_ports(1).expect("a port")[0]);
    for arguments in [&["describe"][..], &["fault", "list"]] {
        let output = Command::new(BINARY)
            .args(arguments)
            .args(["--control", &nowhere])
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(&format!("up --control {nowhere}")), "{said}");
    }
}
