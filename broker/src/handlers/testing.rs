//! What the handlers' tests share: a broker over a folder of its own, with a controller that only
//! writes down what it is asked, and metadata made of records.
//!
//! The cluster: broker 1 is the one under test; broker 2 is alive, in rack `b`; broker 3 is fenced. All
//! listen on `PLAINTEXT` at `host<id>:909<id>`; topics are added by the tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use controller::records::{Config, Endpoint, Partition, PartitionChange, RegisterBroker, Topic};
use controller::{ClusterImage, ImageDelta, MetadataRecord};
use parking_lot::Mutex;
use protocol::messages::ProduceRequest;
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::records::{BatchBuilder, ProducerStamp};
use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, Records, Request, RequestBody, ResponseBody,
    TopicIdPartition, TopicPartition, Uuid,
};
use replication::time::{Instant, Now};
use replication::trace::NoTrace;
use storage::{Identity, RealDisk};

use controller::image::ConfigMap;

use crate::core::groups::GroupConfig;
use crate::core::host::{
    CallError, Certificates, Clock, ControllerLink, ControllerReply, FetcherLink,
    FollowedPartition, Host,
};
use crate::core::lifecycle::{BrokerLifecycle, LifecycleConfig};
use crate::core::replicas::{OpenReplicas, ReplicaManager, ReplicaManagerConfig, open_dirs};
use crate::core::settings::StaticConfigs;
use crate::core::{BrokerCore, CallContext, ClientGone, HandlerConfig, Outcome};

/// The listener that requests come in on.
pub(super) const LISTENER: &str = "PLAINTEXT";
/// The wall clock of the tests.
pub(super) const NOW_MS: i64 = 1_700_000_000_000;

/// A question to the controller that waits for the test to answer it.
pub(super) struct Call {
    /// In this version.
    pub version: i16,
    /// What is asked.
    pub request: RequestBody,
    /// How long the broker would wait.
    pub timeout: Duration,
    reply: ControllerReply,
}

impl Call {
    /// The controller answers.
    pub(super) fn answer(self, response: impl Into<ResponseBody>) {
        (self.reply)(Ok(response.into()));
    }

    /// Nobody answers.
    pub(super) fn fail(self, error: CallError) {
        (self.reply)(Err(error));
    }
}

/// Writes down what it is asked.
#[derive(Default)]
struct FakeController(Mutex<Vec<Call>>);

impl ControllerLink for FakeController {
    fn call(&self, version: i16, request: RequestBody, timeout: Duration, reply: ControllerReply) {
        self.0.lock().push(Call { version, request, timeout, reply });
    }
}

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Now {
        Now { monotonic: Instant(Duration::from_secs(1)), wall_clock_ms: NOW_MS }
    }
}

struct NoFetchers;

impl FetcherLink for NoFetchers {
    fn change(&self, _stop: Vec<TopicIdPartition>, _start: Vec<FollowedPartition>) {}
}

/// Refuses what is set to [`UNUSABLE`], and says what it saw.
struct PickyCertificates;

/// A key store that nobody can use.
pub(super) const UNUSABLE: &str = "/unusable.pem";

impl Certificates for PickyCertificates {
    fn check(&self, configs: &ConfigMap, changed: &[&str]) -> Result<(), String> {
        match configs.iter().find(|(_, value)| *value == UNUSABLE) {
            Some((key, _)) => Err(format!("{key} of {configs:?} by {changed:?}")),
            None => Ok(()),
        }
    }
}

struct Stays;

impl ClientGone for Stays {
    fn on_gone(&self, _callback: Box<dyn FnOnce() + Send>) {}
}

/// Where the outcome of a request arrives.
#[derive(Clone, Default)]
pub(super) struct Inbox(Arc<Mutex<Option<Outcome>>>);

impl Inbox {
    /// Whether no outcome is there.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_none()
    }

    /// The outcome, if it is there.
    pub(super) fn take(&self) -> Option<Outcome> {
        self.0.lock().take()
    }
}

/// A topic to be: its partitions as (leader, replicas), all replicas in the ISR.
pub(super) type Placement<'a> = &'a [(i32, &'a [i32])];

/// A broker whose world the test plays.
pub(super) struct TestBroker {
    /// The broker.
    pub core: Arc<BrokerCore<RealDisk>>,
    controller: Arc<FakeController>,
    image: Mutex<ClusterImage>,
    /// Its log directory.
    pub dir: tempfile::TempDir,
}

impl TestBroker {
    /// Broker 1 of three, with these static configs.
    pub(super) fn with_configs(static_configs: &[(&str, &str)]) -> TestBroker {
        let dir = tempfile::tempdir().unwrap();
        let controller = Arc::new(FakeController::default());
        let host = Host {
            clock: Arc::new(FixedClock),
            controller: controller.clone(),
            fetchers: Arc::new(NoFetchers),
            certificates: Arc::new(PickyCertificates),
            trace: Arc::new(NoTrace),
            wake_by: Arc::new(|_| {}),
        };
        let static_configs: StaticConfigs = static_configs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let replicas = open_replicas(dir.path().to_path_buf(), static_configs, host.clone());
        let lifecycle = BrokerLifecycle::new(lifecycle_config(), host.clone());
        let core =
            BrokerCore::new("test-cluster".into(), handler_config(), host, replicas, lifecycle);
        let broker = TestBroker { core, controller, image: Mutex::default(), dir };
        broker.apply(&[
            register(1, None, false),
            register(2, Some("b"), false),
            register(3, None, true),
        ]);
        broker
    }

    /// Broker 1 of three.
    pub(super) fn new() -> TestBroker {
        TestBroker::with_configs(&[])
    }

    /// Commits records as one batch.
    pub(super) fn apply(&self, records: &[MetadataRecord]) {
        let mut image = self.image.lock();
        let mut delta = ImageDelta::default();
        let offset = Offset(image.offset().get() + 1);
        image.apply_batch(offset, LeaderEpoch(1), records, &mut delta).unwrap();
        self.core.on_metadata(image.clone(), &delta, false);
    }

    /// Commits a topic whose id is `id` in its last byte.
    pub(super) fn add_topic(&self, name: &str, id: u8, placement: Placement<'_>) -> Uuid {
        let topic_id = topic_id(id);
        let mut records = vec![MetadataRecord::from(Topic {
            name: name.to_owned(),
            topic_id: Some(topic_id.into()),
        })];
        for (index, (leader, replicas)) in (0..).zip(placement) {
            records.push(
                Partition {
                    topic_id: Some(topic_id.into()),
                    partition: index,
                    replicas: replicas.to_vec(),
                    directories: replicas.iter().map(|_| Uuid([9; 16]).into()).collect(),
                    isr: replicas.to_vec(),
                    leader: *leader,
                    leader_epoch: 5,
                    ..Partition::default()
                }
                .into(),
            );
        }
        self.apply(&records);
        topic_id
    }

    /// Commits another leader for a partition; -1 for none.
    pub(super) fn elect(&self, topic_id: Uuid, partition: i32, leader: i32) {
        self.apply(&[PartitionChange {
            topic_id: Some(topic_id.into()),
            partition,
            leader: Some(leader),
            ..PartitionChange::default()
        }
        .into()]);
    }

    /// Commits a config.
    pub(super) fn set_config(&self, resource_type: i32, name: &str, key: &str, value: &str) {
        self.apply(&[Config {
            resource_type,
            resource_name: name.to_owned(),
            key: key.to_owned(),
            value: Some(value.to_owned()),
        }
        .into()]);
    }

    /// Sends a request; its outcome may come later.
    pub(super) fn send(&self, version: i16, request: impl Into<RequestBody>) -> Inbox {
        let inbox = Inbox::default();
        let outcome = inbox.clone();
        let context = CallContext {
            api_version: version,
            client_id: Some("tests".into()),
            listener: LISTENER.into(),
            peer: "127.0.0.1".into(),
            gone: Box::new(Stays),
        };
        let reply = Box::new(move |given| {
            let before = outcome.0.lock().replace(given);
            assert!(before.is_none(), "answered twice");
        });
        self.core.handle(context, request.into(), reply);
        inbox
    }

    /// Sends a request that is answered at once, with an answer that exists in its version.
    pub(super) fn ask<R: Request>(&self, version: i16, request: R) -> R::Response {
        answer_of::<R>(&self.send(version, request), version)
    }

    /// What the controller was asked since the last time.
    pub(super) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.controller.0.lock())
    }

    /// The one question that the controller was asked.
    pub(super) fn one_call(&self) -> Call {
        let mut calls = self.calls();
        assert_eq!(calls.len(), 1, "questions to the controller");
        calls.remove(0)
    }
}

/// The answer that has come, checked to be one that its version can carry.
pub(super) fn answer_of<R: Request>(inbox: &Inbox, version: i16) -> R::Response {
    match inbox.take() {
        Some(Outcome::Answer(response)) => {
            protocol::frame::encode_response(1, R::KEY, version, &response)
                .unwrap_or_else(|error| panic!("{:?} in version {version}: {error}", R::KEY));
            response.try_into().unwrap()
        }
        other => panic!("no answer but {other:?}"),
    }
}

/// The topic id whose last byte is `id`.
pub(super) fn topic_id(id: u8) -> Uuid {
    let mut bytes = [0; 16];
    bytes[15] = id;
    Uuid(bytes)
}

/// A batch of records with these timestamps.
pub(super) fn batch(timestamps: &[i64], stamp: ProducerStamp) -> Bytes {
    let mut builder = BatchBuilder::new(Offset::ZERO).producer(stamp);
    for timestamp in timestamps {
        let headers: [(&[u8], Option<&[u8]>); 0] = [];
        builder.append(*timestamp, None, Some(b"value"), headers).unwrap();
    }
    builder.build().unwrap()
}

/// A batch of these keys and values.
pub(super) fn keyed_batch(records: &[(&[u8], Option<&[u8]>)]) -> Bytes {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    for (key, value) in records {
        builder.append(NOW_MS, Some(key), *value, []).unwrap();
    }
    builder.build().unwrap()
}

/// A request that writes these batches to partitions of `topic`.
pub(super) fn produce(acks: i16, topic: &str, batches: &[(i32, Bytes)]) -> ProduceRequest {
    let partition_data = batches.iter().map(|(index, bytes)| PartitionProduceData {
        index: *index,
        records: Some(Records::Bytes(bytes.clone())),
        ..PartitionProduceData::default()
    });
    ProduceRequest {
        acks,
        timeout_ms: 1000,
        topic_data: vec![TopicProduceData {
            name: topic.to_owned(),
            partition_data: partition_data.collect(),
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

/// Where a partition's log ends.
pub(super) fn log_end(broker: &TestBroker, topic: &str, partition: i32) -> i64 {
    let name = TopicPartition::new(topic, partition);
    broker.core.replicas.log_end_offset(&name).unwrap().get()
}

fn register(id: i32, rack: Option<&str>, fenced: bool) -> MetadataRecord {
    RegisterBroker {
        broker_id: id,
        incarnation_id: Some(Uuid([id as u8; 16]).into()),
        broker_epoch: 0,
        endpoints: vec![Endpoint {
            listener: LISTENER.into(),
            host: format!("host{id}"),
            port: 9090 + id as u32,
            security_protocol: 0,
        }],
        rack: rack.map(str::to_owned),
        fenced,
        ..RegisterBroker::default()
    }
    .into()
}

fn open_replicas(
    dir: PathBuf,
    static_configs: StaticConfigs,
    host: Host,
) -> Arc<ReplicaManager<RealDisk>> {
    let hour = Duration::from_secs(3600);
    let config = ReplicaManagerConfig {
        node: NodeId(1),
        replica_lag_time_max: Duration::from_secs(30),
        fetch_max_bytes: 1 << 20,
        high_watermark_checkpoint_interval: hour,
        recovery_point_checkpoint_interval: hour,
        log_start_checkpoint_interval: hour,
        retention_check_interval: hour,
        rack_aware_selector: false,
        static_configs: Arc::new(static_configs),
        fetch_session_slots: 100,
        seed: 1,
    };
    let identity = Identity { cluster_id: "test-cluster".into(), node_id: NodeId(1) };
    let dirs = open_dirs(&RealDisk, &[dir], &identity, || Uuid([9; 16])).unwrap();
    let open = OpenReplicas { disk: &RealDisk, dirs, recovery_threads: 1 };
    ReplicaManager::open(open, config, host).unwrap()
}

fn handler_config() -> HandlerConfig {
    HandlerConfig {
        auto_create_topics: true,
        num_partitions: 4,
        default_replication_factor: 2,
        offsets_topic_partitions: 5,
        offsets_topic_replication_factor: 3,
        transaction_topic_partitions: 7,
        transaction_topic_replication_factor: 2,
        max_request_partitions: 2000,
        groups: GroupConfig::default(),
        request_timeout: Duration::from_secs(30),
    }
}

fn lifecycle_config() -> LifecycleConfig {
    LifecycleConfig {
        node: NodeId(1),
        cluster_id: "test-cluster".into(),
        incarnation: Uuid([1; 16]),
        listeners: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        dir_failure_timeout: Duration::from_secs(30),
        heartbeat_interval: Duration::from_secs(2),
        session_timeout: Duration::from_secs(9),
        previous_broker_epoch: BrokerEpoch::NONE,
    }
}
