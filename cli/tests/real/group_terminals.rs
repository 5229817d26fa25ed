//! The story of a new user: two terminals with `kcat -G`, one of them killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::alone;
use crate::groups::with_quick_groups;

const PATIENCE: Duration = Duration::from_secs(90);

/// `kcat -G` in a terminal of its own.
struct Terminal {
    kcat: Child,
    records: Arc<Mutex<Vec<String>>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Terminal {
    fn open(bootstrap: &str, group: &str, topic: &str) -> Terminal {
        let mut kcat = Command::new("kcat")
            .args(["-b", bootstrap, "-G", group, topic, "-u", "-f", "%p %s\n"])
            .args(["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000"])
            .args(["-X", "heartbeat.interval.ms=500"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kcat starts");
        let records = gather(kcat.stdout.take().expect("a pipe"));
        let told = gather(kcat.stderr.take().expect("a pipe"));
        Terminal { kcat, records, told }
    }

    /// How many partitions it was given last.
    fn partitions(&self) -> usize {
        let told = self.told.lock().expect("not poisoned");
        let last = told.iter().rev().find(|line| line.contains("rebalanced"));
        let given = last.and_then(|line| line.split_once("assigned: "));
        given.map_or(0, |(_, list)| list.matches('[').count())
    }

    fn records(&self) -> Vec<String> {
        self.records.lock().expect("not poisoned").clone()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.kcat.kill();
        let _ = self.kcat.wait();
    }
}

fn gather(from: impl Read + Send + 'static) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            sink.lock().expect("not poisoned").push(line);
        }
    });
    lines
}

fn wait_for(what: &str, true_now: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !true_now() {
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes `count` lines and gives them as the terminals show them, but for the partition.
fn write(bootstrap: &str, topic: &str, what: &str, count: usize) -> BTreeSet<String> {
    let lines: Vec<String> = (0..count).map(|number| format!("{what} {number}")).collect();
    let mut kcat = Command::new("kcat")
        .args(["-b", bootstrap, "-t", topic, "-P", "-X", "acks=all"])
        .args(["-X", "sticky.partitioning.linger.ms=0"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("kcat starts");
    let mut stdin = kcat.stdin.take().expect("a pipe");
    stdin.write_all((lines.join("\n") + "\n").as_bytes()).expect("kcat reads");
    drop(stdin);
    assert!(kcat.wait().expect("kcat ends").success());
    lines.into_iter().collect()
}

/// The lines without their partitions.
fn values(records: &[String]) -> BTreeSet<String> {
    let value = |line: &String| line.split_once(' ').map(|(_, value)| value.to_owned());
    records.iter().filter_map(value).collect()
}

#[test]
fn of_two_terminals_with_kcat_one_is_killed_and_the_other_takes_over() {
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let mut cluster = with_quick_groups().start().expect("a cluster");
    cluster
        .create_topic("greetings", &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 2, 3]], &[])
        .expect("a topic");
    let bootstrap = cluster.bootstrap();
    let mut first = Terminal::open(&bootstrap, "readers", "greetings");
    let second = Terminal::open(&bootstrap, "readers", "greetings");
    wait_for("two partitions for each", || first.partitions() == 2 && second.partitions() == 2);
    let early = write(&bootstrap, "greetings", "early", 200);
    wait_for("reading in both terminals", || {
        let (first, second) = (first.records(), second.records());
        first.len() + second.len() >= early.len()
    });
    let (of_first, of_second) = (values(&first.records()), values(&second.records()));
    assert!(of_first.is_disjoint(&of_second), "a record went to both");
    assert!(!of_first.is_empty() && !of_second.is_empty());
    assert_eq!(of_first.union(&of_second).cloned().collect::<BTreeSet<_>>(), early);
    // kcat commits what it has read every five seconds, whatever it is told.
    std::thread::sleep(Duration::from_secs(6));
    first.kcat.kill().expect("killed");
    let late = write(&bootstrap, "greetings", "late", 200);
    wait_for("four partitions for the second", || second.partitions() == 4);
    wait_for("everything late", || values(&second.records()).is_superset(&late));
    assert_eq!(
        second.records().len(),
        of_second.len() + late.len(),
        "something was read twice, though it was committed"
    );
}
