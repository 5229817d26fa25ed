//! Three controllers with real files and real gRPC on loopback, and a broker's client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::ClusterImage;
use controller::ImageDelta;
use controller::client::{
    CallError, ControllerClient, ControllerClientConfig, MetadataStream, MetadataUpdate,
};
use controller::node::NodeConfig;
use controller::quorum::QuorumConfig;
use controller::rpc::{ControlSecurity, ControllerHost, HostConfig, MonotonicClock};
use controller::state::ControllerConfig;
use protocol::messages::{BrokerRegistrationRequest, FetchRequest};
use protocol::{ErrorCode, NodeId, Offset, Uuid};
use replication::time::Now;
use replication::trace::{Event, NoTrace, TraceSink};
use tempfile::TempDir;
use tokio::net::TcpListener;

const CLUSTER: &str = "control-plane-test";
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    hosts: BTreeMap<NodeId, ControllerHost>,
    folders: BTreeMap<NodeId, TempDir>,
    addresses: BTreeMap<NodeId, String>,
}

fn config(id: NodeId, cluster: &Cluster) -> HostConfig {
    let mut quorum = QuorumConfig::new(id, cluster.addresses.keys().copied().collect());
    quorum.election_timeout = Duration::from_millis(300);
    quorum.fetch_timeout = Duration::from_millis(600);
    quorum.seed = id.get() as u64;
    let mut node = NodeConfig::new(quorum, ControllerConfig::new(CLUSTER, id, 1));
    node.snapshot_batches = 20;
    node.kept_batches = 5;
    HostConfig {
        cluster_id: CLUSTER.to_owned(),
        node,
        folder: cluster.folders[&id].path().join("__cluster_metadata-0"),
        peers: cluster.addresses.clone(),
        clock: MonotonicClock::start(),
        security: ControlSecurity::default(),
        handover_patience: PATIENCE * 10,
    }
}

/// What all controllers told, in order.
#[derive(Default)]
struct Told(Mutex<Vec<(NodeId, Event)>>);

impl TraceSink for Told {
    fn emit(&self, _at: Now, node: NodeId, event: Event) {
        self.0.lock().expect("no test panics in here").push((node, event));
    }
}

async fn start(count: i32) -> Cluster {
    start_traced(count, Arc::new(NoTrace)).await
}

async fn start_traced(count: i32, trace: Arc<dyn TraceSink>) -> Cluster {
    let mut cluster =
        Cluster { hosts: BTreeMap::new(), folders: BTreeMap::new(), addresses: BTreeMap::new() };
    let mut listeners = Vec::new();
    for id in (1..=count).map(NodeId) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        cluster.addresses.insert(id, address);
        cluster.folders.insert(id, tempfile::tempdir().expect("a folder"));
        listeners.push((id, listener));
    }
    for (id, listener) in listeners {
        let started =
            ControllerHost::start_traced(config(id, &cluster), listener, trace.clone()).await;
        cluster.hosts.insert(id, started.expect("starts"));
    }
    cluster
}

impl Cluster {
    fn client(&self) -> ControllerClient {
        let controllers = self.addresses.iter().map(|(id, address)| (*id, address.clone()));
        let config = ControllerClientConfig::new(CLUSTER, NodeId(100), controllers.collect());
        ControllerClient::new(config).expect("addresses")
    }

    async fn restart(&mut self, id: NodeId) {
        let listener = TcpListener::bind(&self.addresses[&id]).await.expect("the port is free");
        let host = ControllerHost::start(config(id, self), listener).await.expect("starts");
        self.hosts.insert(id, host);
    }

    async fn stop_all(&mut self) {
        for (_, host) in std::mem::take(&mut self.hosts) {
            host.stop().await.expect("stops cleanly");
        }
    }
}

fn registration(broker: i32) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: broker,
        cluster_id: CLUSTER.into(),
        incarnation_id: Uuid([broker as u8; 16]),
        ..Default::default()
    }
}

async fn register(client: &ControllerClient, broker: i32) -> i64 {
    let answer = client.call(4, registration(broker), PATIENCE).await.expect("an answer");
    assert_eq!(answer.error_code, 0);
    answer.broker_epoch
}

/// Follows a stream until the image knows `broker`.
async fn follow(stream: &mut MetadataStream, image: &mut ClusterImage, broker: i32) {
    let reading = async {
        while image.broker(NodeId(broker)).is_none() {
            match stream.next().await.expect("never ends") {
                MetadataUpdate::Snapshot(snapshot) => {
                    assert!(snapshot.offset() > image.offset(), "never back");
                    *image = *snapshot;
                }
                MetadataUpdate::Batch { offset, epoch, records } => {
                    assert_eq!(offset, image.offset().next(), "no gap");
                    let mut delta = ImageDelta::default();
                    image.apply_batch(offset, epoch, &records, &mut delta).expect("applies");
                }
                MetadataUpdate::Status { .. } => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the broker's registration arrives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_metadata_go_on_over_the_loss_of_the_leader() {
    let mut cluster = start(3).await;
    let client = cluster.client();
    let mut stream = client.metadata_stream(Offset(0));
    let mut image = ClusterImage::default();
    let first = register(&client, 10).await;
    follow(&mut stream, &mut image, 10).await;
    assert_eq!(image.cluster_id(), CLUSTER);
    assert_eq!(image.broker(NodeId(10)).expect("known").epoch.get(), first);

    // A clean stop of the leader hands over; what was answered stays.
    let leader = client.leader().expect("known after a call");
    cluster.hosts.remove(&leader).expect("runs").stop().await.expect("stops cleanly");
    let second = register(&client, 11).await;
    assert!(second > first);
    follow(&mut stream, &mut image, 11).await;
    assert_ne!(client.leader(), Some(leader));

    // Enough decisions that the stopped one needs a snapshot.
    for broker in 20..60 {
        register(&client, broker).await;
    }
    follow(&mut stream, &mut image, 59).await;
    cluster.restart(leader).await;
    let handle = cluster.hosts[&leader].handle();
    let reached = async {
        while handle.image().await.expect("runs").broker(NodeId(59)).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.expect("the restarted controller catches up");

    // All at once, and again from the files.
    cluster.stop_all().await;
    for id in cluster.addresses.keys().copied().collect::<Vec<_>>() {
        cluster.restart(id).await;
    }
    register(&client, 70).await;
    follow(&mut stream, &mut image, 70).await;
    let mut late = ClusterImage::default();
    follow(&mut client.metadata_stream(Offset(0)), &mut late, 70).await;
    assert!(late.brokers().eq(image.brokers()));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_another_cluster_and_requests_that_no_controller_serves_are_refused() {
    let mut cluster = start(1).await;
    let controllers: Vec<_> =
        cluster.addresses.iter().map(|(id, address)| (*id, address.clone())).collect();
    let stranger =
        ControllerClient::new(ControllerClientConfig::new("other", NodeId(9), controllers))
            .expect("addresses");
    let refused = stranger.call(4, registration(9), PATIENCE).await;
    assert!(matches!(refused, Err(CallError::WrongCluster(_))), "{refused:?}");
    let ended = stranger.metadata_stream(Offset(0)).next().await;
    assert!(ended.is_none());

    let client = cluster.client();
    register(&client, 9).await;
    let unserved = client.call(12, FetchRequest::default(), PATIENCE).await;
    let Err(CallError::Refused { code, .. }) = unserved else { panic!("{unserved:?}") };
    assert_eq!(code, ErrorCode::UnsupportedVersion);
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_a_majority_ends_at_its_deadline() {
    let mut cluster = start(3).await;
    let client = cluster.client();
    register(&client, 9).await;
    let leader = client.leader().expect("known");
    for id in cluster.addresses.keys().copied().filter(|id| *id != leader).collect::<Vec<_>>() {
        if let Some(host) = cluster.hosts.remove(&id) {
            host.stop().await.expect("stops cleanly");
        }
    }
    let answer = client.call(4, registration(10), Duration::from_millis(1500)).await;
    assert!(matches!(answer, Err(CallError::TimedOut { .. })), "{answer:?}");
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leading_controller_tells_the_trace_what_was_decided_and_the_others_do_not() {
    let told = Arc::new(Told::default());
    let mut cluster = start_traced(3, told.clone()).await;
    let client = cluster.client();
    register(&client, 7).await;
    cluster.stop_all().await;
    let told = told.0.lock().expect("no test panics in here");
    let elected = |entry: &&(NodeId, Event)| matches!(entry.1, Event::ControllerElected { .. });
    let leaders: Vec<NodeId> = told.iter().filter(elected).map(|(node, _)| *node).collect();
    assert!(!leaders.is_empty());
    let registered: Vec<NodeId> = told
        .iter()
        .filter(|(_, event)| {
            matches!(event, Event::BrokerRegistered { broker, .. } if *broker == NodeId(7))
        })
        .map(|(node, _)| *node)
        .collect();
    assert_eq!(registered.len(), 1, "{told:?}");
    assert!(leaders.contains(&registered[0]), "told by who led");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_or_nonsense_are_closed_and_the_others_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut cluster = start(1).await;
    let address = &cluster.addresses[&NodeId(1)];
    let beginnings: [&[u8]; 4] =
        [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n", &[0xff; 300]];
    let mut strangers = Vec::new();
    for beginning in beginnings {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        stream.write_all(beginning).await.expect("sent");
        strangers.push(stream);
    }
    register(&cluster.client(), 7).await;
    for stream in &mut strangers {
        let mut answer = Vec::new();
        // The end may come as a reset, since not all was read.
        let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(end.is_ok(), "still open");
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_that_stop_together_do_not_wait_for_each_other_to_take_over() {
    let mut cluster = start(3).await;
    register(&cluster.client(), 1).await;
    let hosts = std::mem::take(&mut cluster.hosts);
    let stopping: Vec<_> =
        hosts.into_values().map(|host| tokio::spawn(async move { host.stop().await })).collect();
    for stopped in stopping {
        let stopped = tokio::time::timeout(PATIENCE, stopped).await.expect("nobody waits");
        stopped.expect("no panic").expect("stops cleanly");
    }
}
