//! A cluster of processes is scraped while clients write and read and a node dies: every page is well
//! formed, no counter of a living node ever falls, and the gauges tell of the failure and of its end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::messages::FetchRequest;
use testkit::client::{Client, fetch_request};
use testkit::metrics::{Labels, MetricsPage};
use testkit::producer::RetryingProducer;
use testkit::real::{Cluster, NodeId, free_ports, free_row};

use crate::command_line::interrupt;
use crate::{BINARY, alone, cluster};

const TOPIC: &str = "watched";
const PATIENCE: Duration = Duration::from_secs(45);
const CONTROLLER: &str = "kafka_controller_kafkacontroller_";

/// Where each node's metrics are.
type Addresses = BTreeMap<NodeId, String>;

fn watched_cluster() -> (Cluster, Addresses) {
    // A port may be taken between its choice and its use.
    let started = (0..3).find_map(|_| try_start());
    let (mut cluster, addresses) = started.expect("a cluster");
    cluster
        .create_topic(TOPIC, &[&[1, 2, 3]], &[("min.insync.replicas", "2")])
        .expect("a topic with three replicas");
    (cluster, addresses)
}

fn try_start() -> Option<(Cluster, Addresses)> {
    let ports = free_ports(3).expect("ports");
    let addresses: Addresses =
        (1..).zip(ports).map(|(node, port)| (node, format!("127.0.0.1:{port}"))).collect();
    let mut builder = cluster()
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .set("replica.fetch.backoff.ms", 100);
    for (node, address) in &addresses {
        builder = builder.set_on(*node, "highwater.metrics.listener", address);
    }
    let started = builder.start().inspect_err(|error| println!("not started: {error:#}"));
    Some((started.ok()?, addresses))
}

/// Work on threads of its own, until it is told to stop.
struct Background {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    fn start(cluster: &Cluster, addresses: &Addresses, scrapes: &Arc<AtomicUsize>) -> Background {
        let stop = Arc::new(AtomicBool::new(false));
        let bootstrap = cluster.bootstrap();
        let mut threads = Vec::new();
        let told = stop.clone();
        threads.push(std::thread::spawn(move || {
            let mut producer = RetryingProducer::new(&bootstrap, TOPIC, 0).expect("a producer");
            while !told.load(Ordering::SeqCst) {
                producer.send(&[7; 1000], PATIENCE).expect("acknowledged in time");
                std::thread::sleep(Duration::from_millis(5));
            }
        }));
        for node in cluster.nodes() {
            let (told, address) = (stop.clone(), format!("127.0.0.1:{}", cluster.port(node)));
            threads.push(std::thread::spawn(move || read(&told, &address)));
            let (told, address) = (stop.clone(), addresses[&node].clone());
            let scrapes = scrapes.clone();
            threads.push(std::thread::spawn(move || scrape(&told, &address, &scrapes)));
        }
        Background { stop, threads }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no thread panicked");
        }
    }
}

/// Reads what comes, from whoever leads.
fn read(told: &AtomicBool, address: &str) {
    let mut offset = 0;
    while !told.load(Ordering::SeqCst) {
        let Ok(mut client) = Client::connect(address, Duration::from_secs(5)) else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        while !told.load(Ordering::SeqCst) {
            let waiting = FetchRequest { max_wait_ms: 200, ..fetch_request(TOPIC, 0, offset) };
            match client.fetch_with(12, waiting, TOPIC) {
                Ok(data) if data.error_code == 0 => offset = data.high_watermark.max(offset),
                Ok(_) => std::thread::sleep(Duration::from_millis(50)),
                Err(_) => break,
            }
        }
    }
}

/// Scrapes a node for as long as it lives, and again when it is back.
fn scrape(told: &AtomicBool, address: &str, scrapes: &AtomicUsize) {
    let mut before: Option<MetricsPage> = None;
    while !told.load(Ordering::SeqCst) {
        match MetricsPage::scrape(address) {
            Ok(page) => {
                if let Some(before) = &before {
                    check_counters(before, &page);
                }
                scrapes.fetch_add(1, Ordering::SeqCst);
                before = Some(page);
            }
            Err(error) => {
                // A node that died answers nothing; what it answers must be right.
                let text = format!("{error:#}");
                assert!(!text.contains("line "), "{text}");
                before = None;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn check_counters(before: &MetricsPage, after: &MetricsPage) {
    for (name, family) in after.families.iter().filter(|(_, family)| family.kind == "counter") {
        // Those of a fetch loop begin anew with it.
        let earlier = before.families.get(name).filter(|_| !name.contains("_fetcherstats_"));
        let earlier: BTreeMap<&Labels, f64> = earlier
            .map(|family| family.samples.iter().map(|(labels, value)| (labels, *value)).collect())
            .unwrap_or_default();
        for (labels, value) in &family.samples {
            let then = earlier.get(labels).copied().unwrap_or(0.0);
            assert!(*value >= then, "{name} {labels:?} fell from {then} to {value}");
        }
    }
}

fn sum(addresses: &Addresses, name: &str) -> f64 {
    let pages = addresses.values().filter_map(|address| MetricsPage::scrape(address).ok());
    pages.map(|page| page.sum(name, &[])).sum()
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "never so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_tell_of_a_leaders_death_and_return_while_clients_work() {
    let _alone = alone();
    let (mut cluster, addresses) = watched_cluster();
    let scrapes = Arc::new(AtomicUsize::new(0));
    let background = Background::start(&cluster, &addresses, &scrapes);
    eventually("records are written and read", || {
        let total = |name: &str| {
            sum(&addresses, &format!("kafka_server_brokertopicmetrics_{name}_total")) > 50_000.0
        };
        total("bytesin") && total("bytesout") && total("replicationbytesin")
    });
    let active = format!("{CONTROLLER}activecontrollercount");
    assert_eq!(sum(&addresses, &active), 1.0);
    let leader = cluster.leader(TOPIC, 0).expect("a leader");
    cluster.kill(leader).expect("killed");
    let alive: Addresses = addresses
        .iter()
        .filter(|(node, _)| **node != leader)
        .map(|(k, v)| (*k, v.clone()))
        .collect();
    eventually("both controllers have fenced it, and another leads", || {
        sum(&alive, &format!("{CONTROLLER}fencedbrokercount")) == 2.0
            && sum(&alive, &format!("{CONTROLLER}offlinepartitionscount")) == 0.0
            && sum(&alive, "kafka_server_replicamanager_underreplicatedpartitions") == 1.0
            && sum(&alive, &active) == 1.0
    });
    assert!(sum(&alive, "kafka_server_replicamanager_leadercount") >= 1.0);
    let expands = sum(&alive, "kafka_server_replicamanager_isrexpands_total");
    cluster.start(leader).expect("started again");
    eventually("it is in sync again", || {
        sum(&addresses, "kafka_server_replicamanager_underreplicatedpartitions") == 0.0
            && sum(&addresses, &format!("{CONTROLLER}activebrokercount")) == 9.0
    });
    assert!(sum(&addresses, "kafka_server_replicamanager_isrexpands_total") > expands);
    background.finish();
    assert!(scrapes.load(Ordering::SeqCst) > 30, "{scrapes:?} scrapes prove little");
}

#[test]
fn up_says_where_the_metrics_are_and_can_do_without() {
    let _alone = alone();
    let (port, metrics) = (free_row(2).expect("ports"), free_ports(1).expect("a port")[0]);
    let told = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["up", "--brokers", "1", "--port", &port.to_string()]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("highwater starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut text = String::new();
        for line in stdout.lines() {
            text += &(line.expect("text") + "\n");
            if text.contains("Ctrl-C stops") {
                break;
            }
        }
        (child, text)
    };
    let (child, text) = told(&["--metrics-port", &metrics.to_string()]);
    assert!(text.contains(&format!("metrics: http://127.0.0.1:{metrics}/metrics\n")), "{text}");
    let page = MetricsPage::scrape(&format!("127.0.0.1:{metrics}")).expect("a page");
    assert_eq!(page.plain("kafka_server_kafkaserver_brokerstate").expect("a number"), 3.0);
    interrupt(child);
    let (child, text) = told(&["--metrics-port", "0"]);
    assert!(!text.contains("metrics"), "{text}");
    interrupt(child);
}
