//! F04: a waiting fetch is answered when its partition goes, moves or gets another leader epoch, however long it
//! would wait. All that happens in one cluster, to one topic each.

use std::time::{Duration, Instant};

use protocol::frame::decode_response;
use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::{
    AlterPartitionReassignmentsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse,
};
use protocol::{ApiKey, ResponseBody};
use testkit::client::Client;
use testkit::metrics::MetricsPage;
use testkit::real::{Cluster, NodeId, free_ports};

use super::{FOREVER_MS, IDS, NAMES, Named, PATIENCE, fetch, part, rows};
use crate::alone;

const NOT_LEADER: i16 = 6;
const FENCED: i16 = 74;

/// A cluster and where its first node tells how many fetches wait.
struct Waiting {
    cluster: Cluster,
    metrics: String,
}

/// A fetch that waits, and what it was asked in.
struct Parked {
    client: Client,
    version: i16,
    correlation_id: i32,
}

impl Waiting {
    fn topic(&mut self, name: &str, replicas: &[NodeId]) -> Named {
        self.cluster.create_topic(name, &[replicas], &[]).expect("a topic");
        super::wait_until_led(&mut self.cluster, name, 1);
        Named::of(&mut self.cluster.client(1).expect("a client"), name)
    }

    /// Fetches from the end in two versions, and goes on when they wait. Followers wait too, as many at most.
    fn park(&self, topic: &Named, leader_epoch: i32, followers: usize) -> Vec<Parked> {
        let partition = FetchPartition { current_leader_epoch: leader_epoch, ..part(0, 0) };
        let request =
            FetchRequest { max_wait_ms: FOREVER_MS, ..fetch(vec![topic.with(vec![partition])]) };
        let parked: Vec<Parked> = [NAMES, IDS]
            .into_iter()
            .map(|version| {
                let mut client = self.cluster.client(1).expect("a client");
                let sent = client.send(version, request.clone().into());
                Parked { client, version, correlation_id: sent.expect("sent") }
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        while self.waiting() < parked.len() + followers {
            assert!(Instant::now() < deadline, "{} wait", self.waiting());
            std::thread::sleep(Duration::from_millis(10));
        }
        parked
    }

    fn waiting(&self) -> usize {
        let page = MetricsPage::scrape(&self.metrics).expect("a page");
        let name = "kafka_server_delayedoperationpurgatory_numdelayedoperations";
        page.sum(name, &[("delayedOperation", "Fetch")]) as usize
    }

    fn reassign(&self, topic: &Named, replicas: &[NodeId]) {
        let request = AlterPartitionReassignmentsRequest {
            topics: vec![ReassignableTopic {
                name: topic.name.clone(),
                partitions: vec![ReassignablePartition {
                    partition_index: 0,
                    replicas: Some(replicas.to_vec()),
                    ..ReassignablePartition::default()
                }],
                ..ReassignableTopic::default()
            }],
            timeout_ms: 20_000,
            ..AlterPartitionReassignmentsRequest::default()
        };
        let response = self.cluster.client(1).expect("a client").call(0, request);
        let response = response.expect("an answer");
        assert_eq!((response.error_code, response.responses[0].partitions[0].error_code), (0, 0));
    }
}

/// The errors of the answers, which come.
fn errors(parked: Vec<Parked>) -> Vec<i16> {
    let errors = parked.into_iter().map(|mut parked| {
        let frame = parked.client.read_frame().expect("an answer before its time");
        let body: ResponseBody =
            decode_response(frame, parked.correlation_id, ApiKey::Fetch, parked.version)
                .expect("readable");
        let response = FetchResponse::try_from(body).expect("a fetch's answer");
        assert_eq!(response.error_code, 0);
        let rows = rows(&response);
        assert_eq!((rows.len(), rows[0].2), (1, 0), "{rows:?}");
        rows[0].1
    });
    errors.collect()
}

#[test]
fn f04_waiting_fetches_are_woken_by_what_becomes_of_their_partition() {
    let _alone = alone();
    let metrics = format!("127.0.0.1:{}", free_ports(1).expect("a port")[0]);
    let cluster = crate::cluster()
        .set_on(1, "highwater.metrics.listener", &metrics)
        .start()
        .expect("a cluster");
    let mut waiting = Waiting { cluster, metrics };

    // The topic goes.
    let gone = waiting.topic("gone", &[1]);
    let parked = waiting.park(&gone, -1, 0);
    let request = DeleteTopicsRequest {
        topic_names: vec![gone.name.clone()],
        timeout_ms: 20_000,
        ..DeleteTopicsRequest::default()
    };
    let response = waiting.cluster.client(1).expect("a client").call(5, request);
    assert_eq!(response.expect("an answer").responses[0].error_code, 0);
    assert_eq!(errors(parked), [3, 3]);

    // The partition moves away.
    let moved = waiting.topic("moved", &[1]);
    let parked = waiting.park(&moved, -1, 0);
    waiting.reassign(&moved, &[2]);
    assert_eq!(errors(parked), [NOT_LEADER, NOT_LEADER]);

    // The leader stays and gets another epoch than these name. (Kafka 4.4.0 lets them wait until something else
    // happens to the partition.)
    let bumped = waiting.topic("bumped", &[1, 2]);
    let parked = waiting.park(&bumped, 0, 1);
    waiting.reassign(&bumped, &[1]);
    assert_eq!(errors(parked), [FENCED, FENCED]);
}
