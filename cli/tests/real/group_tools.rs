//! Kafka's own tools with consumer groups, where Java and a Kafka to compare with are present: the console
//! consumer with both protocols, and the command that lists, describes, resets and deletes groups.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::batch_of;
use testkit::real::Cluster;

use crate::alone;
use crate::groups::with_quick_groups;

const CONSOLE: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
const TOPIC: &str = "tooled";
const RECORDS: usize = 30;
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn tool() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference-kafka/refkafka");
    let java = Command::new("java").arg("-version").output();
    if path.exists() && java.is_ok_and(|output| output.status.success()) {
        return Some(path);
    }
    println!("SKIPPED: no java, or no Kafka to compare with at {}", path.display());
    None
}

/// A cluster with Kafka's tools for it.
struct Tools {
    tool: PathBuf,
    cluster: Cluster,
}

impl Tools {
    fn start() -> Option<Tools> {
        let tool = tool()?;
        let mut cluster = with_quick_groups().start().expect("a cluster");
        cluster.create_topic(TOPIC, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[]).expect("a topic");
        let tools = Tools { tool, cluster };
        tools.write();
        Some(tools)
    }

    /// Ten records for each partition.
    fn write(&self) {
        let values: Vec<String> =
            (0..RECORDS / 3).map(|number| format!("record {number}")).collect();
        let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
        for partition in 0..3 {
            let leader = self.cluster.leader(TOPIC, partition).expect("a leader");
            let mut client = self.cluster.client(leader).expect("a client");
            let batch = batch_of(&values).expect("a batch");
            let answer = client.produce(TOPIC, partition, -1, batch, PATIENCE).expect("an answer");
            assert_eq!(answer.error_code, 0);
        }
    }

    fn command(&self, class: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        let bootstrap = self.cluster.bootstrap();
        command.args(["tool", class, "--bootstrap-server", &bootstrap]).args(arguments);
        command
    }

    /// Runs a tool to its end.
    fn run(&self, class: &str, arguments: &[&str]) -> String {
        let output = self.command(class, arguments).output().expect("runs");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}:\n{out}\n{err}");
        assert!(!out.contains("Error:"), "{arguments:?}:\n{out}\n{err}");
        out
    }

    fn groups(&self, arguments: &[&str]) -> String {
        self.run(GROUPS, &[arguments, &["--timeout", "60000"]].concat())
    }

    /// Reads this many records as a member of the group.
    fn consume(&self, group: &str, count: usize, protocol: &str) {
        let (count, protocol) = (count.to_string(), format!("group.protocol={protocol}"));
        let arguments = [
            "--topic",
            TOPIC,
            "--group",
            group,
            "--from-beginning",
            "--max-messages",
            &count,
            "--timeout-ms",
            "60000",
            "--consumer-property",
            &protocol,
        ];
        let out = self.run(CONSOLE, &arguments);
        let read = out.lines().filter(|line| line.starts_with("record ")).count();
        assert_eq!(read.to_string(), count, "{out}");
    }

    /// A member that stays until it is told to end.
    fn stay(&self, group: &str, protocol: &str) -> Staying {
        let protocol = format!("group.protocol={protocol}");
        let arguments = ["--topic", TOPIC, "--group", group, "--consumer-property", &protocol];
        let mut command = self.command(CONSOLE, &arguments);
        Staying(command.stdout(Stdio::null()).spawn().expect("starts"))
    }

    /// Asks until the answer has all these words.
    fn wait_for(&self, arguments: &[&str], words: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let out = self.groups(arguments);
            if words.iter().all(|word| out.contains(word)) {
                return out;
            }
            assert!(Instant::now() < deadline, "no {words:?} in {out}");
        }
    }
}

struct Staying(Child);

impl Staying {
    /// Ends it in order. Ctrl-C's signal is one that Java ignores where whoever started it did.
    fn leave(mut self) {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a pid");
        kill_process(pid, Signal::TERM).expect("a signal");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows about a topic's partitions as (partition, committed offset, end, lag).
fn rows(described: &str) -> Vec<[String; 4]> {
    let rows = described.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == TOPIC)?;
        let row: Vec<String> = words.get(at + 1..at + 5)?.iter().map(|w| (*w).to_owned()).collect();
        row.try_into().ok()
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

fn expected(committed: &str, lag: &str) -> Vec<[String; 4]> {
    let end = (RECORDS / 3).to_string();
    let row = |partition: usize| {
        [partition.to_string(), committed.to_owned(), end.clone(), lag.to_owned()]
    };
    (0..3).map(row).collect()
}

/// One group's life, as an operator sees it.
fn tools_work(protocol: &str) {
    let _alone = alone();
    let Some(tools) = Tools::start() else { return };
    let group = format!("by-{protocol}");
    tools.consume(&group, RECORDS, protocol);
    assert!(tools.groups(&["--list"]).lines().any(|line| line.trim() == group));
    let described = tools.groups(&["--describe", "--group", &group]);
    assert_eq!(rows(&described), expected("10", "0"), "{described}");
    tools.wait_for(&["--describe", "--group", &group, "--state"], &["Empty"]);

    let staying = tools.stay(&group, protocol);
    let state = ["--describe", "--group", &group, "--state"];
    tools.wait_for(&state, &["Stable", if protocol == "classic" { "range" } else { "uniform" }]);
    let members = ["--describe", "--group", &group, "--members", "--verbose"];
    let members = tools.wait_for(&members, &["console-consumer", "tooled:0,1,2"]);
    println!("{members}");
    let output = tools.command(GROUPS, &["--delete", "--group", &group]).output().expect("runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(out.contains("GroupNotEmptyException"), "{out}");
    staying.leave();
    tools.wait_for(&state, &["Empty"]);

    let reset = ["--reset-offsets", "--group", &group, "--topic", TOPIC, "--to-offset", "4"];
    tools.groups(&[&reset[..], &["--execute"]].concat());
    let described = tools.groups(&["--describe", "--group", &group]);
    assert_eq!(rows(&described), expected("4", "6"), "{described}");
    tools.consume(&group, 18, protocol);
    let one = format!("{TOPIC}:1");
    tools.groups(&["--delete-offsets", "--group", &group, "--topic", &one]);
    let described = tools.groups(&["--describe", "--group", &group]);
    let left: Vec<_> = rows(&described).into_iter().filter(|row| row[1] == "10").collect();
    assert_eq!(left.len(), 2, "{described}");
    tools.groups(&["--delete", "--group", &group]);
    assert!(!tools.groups(&["--list"]).contains(&group));
}

#[test]
fn kafkas_tools_serve_a_classic_group() {
    tools_work("classic");
}

#[test]
fn kafkas_tools_serve_a_group_of_kip_848() {
    tools_work("consumer");
}
