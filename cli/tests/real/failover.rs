//! What a cluster is for: leaders die, freeze and come back, and no acknowledged record is lost, moved
//! or doubled (I2, I6, I14, C01, X02).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use protocol::messages::DescribeQuorumRequest;
use protocol::messages::describe_quorum_request::{PartitionData, TopicData};
use testkit::producer::{Acknowledged, RetryingProducer};
use testkit::real::{Cluster, NodeId};

use crate::{alone, cluster};

const TOPIC: &str = "ledger";
const SESSION_TIMEOUT_MS: u64 = 1500;
/// A history of fewer records would prove little.
const FEWEST: usize = 200;
const PATIENCE: Duration = Duration::from_secs(45);

pub fn quick_cluster() -> Cluster {
    let mut cluster = cluster()
        .set("broker.session.timeout.ms", SESSION_TIMEOUT_MS)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .set("replica.lag.time.max.ms", 3000)
        .set("replica.fetch.backoff.ms", 100)
        .start()
        .expect("a cluster");
    cluster
        .create_topic(TOPIC, &[&[1, 2, 3]], &[("min.insync.replicas", "2")])
        .expect("a topic with three replicas");
    cluster
}

/// A producer on a thread of its own, until it is told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Vec<Acknowledged>>,
}

impl Load {
    fn start(bootstrap: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let (told, counter) = (stop.clone(), acknowledged.clone());
        let bootstrap = bootstrap.to_owned();
        let thread = std::thread::spawn(move || {
            let mut producer = RetryingProducer::new(&bootstrap, TOPIC, 0).expect("a producer");
            let mut number = 0;
            while !told.load(Ordering::SeqCst) {
                let value = format!("record {number}");
                producer.send(value.as_bytes(), PATIENCE).expect("acknowledged in time");
                number += 1;
                counter.store(number, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
            }
            producer.history
        });
        Load { stop, acknowledged, thread }
    }

    /// Goes on until enough records are acknowledged to say something, then gives them all.
    fn finish(self) -> Vec<Acknowledged> {
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.load(Ordering::SeqCst) <= FEWEST && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the producer ends without a panic")
    }
}

/// Every acknowledged record is at its offset on every replica, and nowhere else.
fn check_history(cluster: &mut Cluster, history: &[Acknowledged]) {
    assert!(history.len() > FEWEST, "only {} records were acknowledged", history.len());
    let log = cluster.wait_for_equal_replicas(TOPIC, 0).expect("equal replicas");
    let mut places: BTreeMap<&[u8], Vec<i64>> = BTreeMap::new();
    for record in &log {
        places.entry(record.value.as_deref().unwrap_or_default()).or_default().push(record.offset);
    }
    for acknowledged in history {
        let found = places.get(acknowledged.value.as_slice());
        let value = String::from_utf8_lossy(&acknowledged.value);
        assert_eq!(found, Some(&vec![acknowledged.offset]), "{value}");
    }
}

/// The node that leads the metadata quorum.
fn active_controller(cluster: &Cluster, through: NodeId) -> NodeId {
    let request = DescribeQuorumRequest {
        topics: vec![TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![PartitionData { partition_index: 0, ..PartitionData::default() }],
            ..TopicData::default()
        }],
        ..DescribeQuorumRequest::default()
    };
    let response = cluster.client(through).expect("a client").call(2, request).expect("an answer");
    response.topics[0].partitions[0].leader_id
}

#[test]
fn leaders_die_by_sigkill_and_nothing_acknowledged_is_lost() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    let load = Load::start(&cluster.bootstrap());
    std::thread::sleep(Duration::from_millis(500));
    let first = cluster.leader(TOPIC, 0).expect("a leader");
    cluster.kill(first).expect("killed");
    let second = cluster.wait_for_other_leader(TOPIC, 0, first).expect("a second leader");
    cluster.start(first).expect("started again");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("the first is in the ISR again");
    cluster.kill(second).expect("killed");
    cluster.wait_for_other_leader(TOPIC, 0, second).expect("a third leader");
    cluster.start(second).expect("started again");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("the second is in the ISR again");
    let history = load.finish();
    check_history(&mut cluster, &history);
}

#[test]
fn a_leader_frozen_longer_than_its_session_loses_nothing_acknowledged() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    let load = Load::start(&cluster.bootstrap());
    std::thread::sleep(Duration::from_millis(500));
    let frozen = cluster.leader(TOPIC, 0).expect("a leader");
    cluster.freeze(frozen).expect("frozen");
    cluster.wait_for_other_leader(TOPIC, 0, frozen).expect("another leader");
    std::thread::sleep(Duration::from_millis(SESSION_TIMEOUT_MS));
    cluster.thaw(frozen).expect("thawed");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("the frozen one is in the ISR again");
    let history = load.finish();
    check_history(&mut cluster, &history);
}

#[test]
fn the_active_controller_dies_and_nothing_acknowledged_is_lost() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    let load = Load::start(&cluster.bootstrap());
    std::thread::sleep(Duration::from_millis(500));
    let victim = active_controller(&cluster, 1);
    cluster.kill(victim).expect("killed");
    let survivor = if victim == 1 { 2 } else { 1 };
    let next = cluster
        .wait_for("another active controller", |cluster| {
            let leader = active_controller(cluster, survivor);
            if leader >= 0 && leader != victim {
                Ok(Ok(leader))
            } else {
                Ok(Err(leader.to_string()))
            }
        })
        .expect("another active controller");
    assert_ne!(next, victim);
    cluster.start(victim).expect("started again");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("the victim is in the ISR again");
    let history = load.finish();
    check_history(&mut cluster, &history);
}

#[test]
fn all_nodes_die_at_once_and_nothing_acknowledged_is_lost() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    let load = Load::start(&cluster.bootstrap());
    std::thread::sleep(Duration::from_millis(1000));
    for node in cluster.nodes() {
        cluster.kill(node).expect("killed");
    }
    for node in cluster.nodes() {
        cluster.start(node).expect("started again");
    }
    cluster.wait_until_all_live().expect("all live again");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("a full ISR");
    let epoch = cluster.partition(TOPIC, 0).expect("a partition").leader_epoch;
    std::thread::sleep(Duration::from_millis(2 * SESSION_TIMEOUT_MS));
    let settled = cluster.partition(TOPIC, 0).expect("a partition").leader_epoch;
    assert_eq!(epoch, settled, "leaders are elected again and again");
    let history = load.finish();
    check_history(&mut cluster, &history);
}

#[test]
fn c03_a_clean_stop_moves_the_leaders_first_and_loses_nothing() {
    let _alone = alone();
    let mut cluster = quick_cluster();
    let load = Load::start(&cluster.bootstrap());
    std::thread::sleep(Duration::from_millis(500));
    let leader = cluster.leader(TOPIC, 0).expect("a leader");
    cluster.stop(leader).expect("a clean stop");
    let marker = cluster.data_folder(leader).join(".kafka_cleanshutdown");
    assert!(marker.is_file(), "no marker of a clean stop");
    let next = cluster.leader(TOPIC, 0).expect("the leader had moved before the stop");
    assert_ne!(next, leader);
    cluster.start(leader).expect("started again");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("in the ISR again");
    let history = load.finish();
    let slowest = history.iter().map(|record| record.took).max().unwrap_or_default();
    let session = Duration::from_millis(SESSION_TIMEOUT_MS);
    assert!(
        slowest < session,
        "an append waited {slowest:?}: the leader did not move before the stop"
    );
    check_history(&mut cluster, &history);
}
