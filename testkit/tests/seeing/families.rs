//! Each metric is seen moving by the thing that moves it.

use std::time::Duration;

use protocol::messages::FetchRequest;
use testkit::client::{Client, batch_of, fetch_request, produce_request};
use testkit::group::GroupClient;
use testkit::metrics::MetricsPage;

use crate::world::{PATIENCE, World};

/// A record whose batch is sent by `sendfile`.
const LARGE: usize = 100_000;

/// What changed between two pages.
struct Change<'a>(&'a MetricsPage, &'a MetricsPage);

impl Change<'_> {
    #[track_caller]
    fn is(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let moved = self.of(name, labels);
        assert_eq!(moved, wanted, "{name} {labels:?}");
    }

    #[track_caller]
    fn is_at_least(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let moved = self.of(name, labels);
        assert!(moved >= wanted, "{name} {labels:?} moved by {moved}, not by {wanted}");
    }

    fn of(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        assert!(self.1.families.contains_key(name), "no metric {name}");
        self.1.sum(name, labels) - self.0.sum(name, labels)
    }
}

fn produce(client: &mut Client, topic: &str, value: &[u8]) {
    let batch = batch_of(&[value]).expect("a batch");
    let answer = client.produce(topic, 0, -1, batch, PATIENCE).expect("an answer");
    assert_eq!(answer.error_code, 0, "{:?}", answer.error_message);
}

fn waiting_fetch(topic: &str, offset: i64, wait: Duration) -> FetchRequest {
    FetchRequest { max_wait_ms: wait.as_millis() as i32, ..fetch_request(topic, 0, offset) }
}

#[test]
fn traffic_moves_what_is_told_of_topics_logs_and_replication() {
    let world = World::start(3, &[]);
    world.create_topic("t", &[1, 2, 3], &[("max.message.bytes", "200000")]);
    let before: Vec<MetricsPage> = world.ids().map(|id| world.page(id)).collect();
    let mut client = world.client(1);
    produce(&mut client, "t", b"small");
    produce(&mut client, "t", &vec![7; LARGE]);
    let refused = batch_of(&[&vec![7; 300_000]]).expect("a batch");
    let answer = client.produce("t", 0, -1, refused, PATIENCE).expect("an answer");
    assert_eq!(answer.error_code, 10, "MESSAGE_TOO_LARGE");
    assert_eq!(client.fetch("t", 0, 0).expect("an answer").error_code, 0);
    assert_eq!(client.fetch("none", 0, 0).expect("an answer").error_code, 3);
    let topic = [("topic", "t")];
    world.eventually("the followers have all and the leader knows", || {
        let page = world.page(1);
        page.sum("highwater_follower_fetch_offset", &topic) == 4.0
            && page.get("highwater_replica_high_watermark", &topic) == Some(2.0)
    });
    let after: Vec<MetricsPage> = world.ids().map(|id| world.page(id)).collect();
    let leader = Change(&before[0], &after[0]);
    for ending in ["_total", "persec"] {
        let name = |name: &str| format!("kafka_server_brokertopicmetrics_{name}{ending}");
        leader.is(&name("messagesin"), &topic, 2.0);
        leader.is(&name("totalproducerequests"), &topic, 3.0);
        leader.is_at_least(&name("bytesin"), &topic, LARGE as f64);
        leader.is_at_least(&name("bytesrejected"), &topic, 300_000.0);
        leader.is_at_least(&name("bytesout"), &topic, LARGE as f64);
        leader.is_at_least(&name("totalfetchrequests"), &topic, 3.0);
        leader.is_at_least(&name("replicationbytesout"), &[], 2.0 * LARGE as f64);
        Change(&before[1], &after[1]).is_at_least(&name("replicationbytesin"), &[], LARGE as f64);
        for quiet in ["failedproducerequests", "failedfetchrequests"] {
            assert_eq!(after[0].plain(&name(quiet)).expect("a number"), 0.0);
        }
    }
    let rate = "kafka_server_BrokerTopicMetrics_FifteenMinuteRate";
    let rate = after[0].get(rate, &[("name", "BytesInPerSec"), ("topic", "t")]);
    assert!(rate.is_some_and(|rate| rate > 0.0), "{rate:?}");
    leader.is("kafka_log_log_logendoffset", &topic, 2.0);
    leader.is_at_least("kafka_log_log_size", &topic, LARGE as f64);
    for (name, value) in [
        ("kafka_log_log_logstartoffset", 0.0),
        ("kafka_log_log_numlogsegments", 1.0),
        ("kafka_cluster_partition_insyncreplicascount", 3.0),
        ("kafka_cluster_partition_replicascount", 3.0),
        ("kafka_cluster_partition_underreplicated", 0.0),
        ("kafka_cluster_partition_laststableoffsetlag", 0.0),
        ("highwater_replica_last_stable_offset", 2.0),
        ("highwater_partition_isr_pending", 0.0),
    ] {
        assert_eq!(after[0].get(name, &topic), Some(value), "{name}");
    }
    let follower = Change(&before[1], &after[1]);
    let of_leader = [("clientId", "ReplicaFetcherThread-0-1")];
    follower.is_at_least("kafka_server_fetcherstats_requests_total", &of_leader, 2.0);
    follower.is_at_least("kafka_server_fetcherstats_bytes_total", &of_leader, LARGE as f64);
    let network = Change(&before[0], &after[0]);
    network.is_at_least("highwater_network_sent_bytes_total", &[("way", "sendfile")], LARGE as f64);
    network.is_at_least("highwater_network_sent_bytes_total", &[("way", "write")], 100.0);
    network.is_at_least("highwater_network_received_bytes_total", &[], 400_000.0);
    let plaintext = [("listener", "PLAINTEXT")];
    network.is_at_least(
        "kafka_server_socketservermetrics_connection_creation_total",
        &plaintext,
        1.0,
    );
    assert!(after[0].sum("kafka_server_socketservermetrics_connection_count", &plaintext) >= 3.0);
    // A new leader epoch is made durable before its first record.
    assert!(after[0].sum("kafka_log_logflushstats_logflushrateandtimems_count", &[]) >= 1.0);
    let rate = after[1].sum("kafka_server_replicafetchermanager_minfetchrate", &[]);
    assert!(rate > 0.0, "{rate}");
}

#[test]
fn requests_that_wait_are_told_while_they_do_and_by_what_ended_it() {
    let world = World::start(1, &[]);
    world.create_topic("t", &[1], &[]);
    let of_fetches = [("delayedOperation", "Fetch")];
    let delayed = "kafka_server_delayedoperationpurgatory_numdelayedoperations";
    let completed = "highwater_purgatory_completed_total";
    let by = |by| [("delayedOperation", "Fetch"), ("by", by)];
    let before = world.page(1);
    let mut reader = world.client(1);
    let wait = |reader: &mut Client, wait| {
        reader.send(12, waiting_fetch("t", 0, wait).into()).expect("sent");
        world.eventually("the fetch is parked", || world.page(1).sum(delayed, &of_fetches) == 1.0);
    };
    wait(&mut reader, PATIENCE);
    let during = world.page(1);
    let size = "kafka_server_delayedoperationpurgatory_purgatorysize";
    assert!(during.sum(size, &of_fetches) >= 1.0);
    produce(&mut world.client(1), "t", b"awaited");
    reader.read_frame().expect("the answer");
    reader.send(12, waiting_fetch("t", 1, Duration::from_millis(200)).into()).expect("sent");
    reader.read_frame().expect("the answer");
    reader.send(12, waiting_fetch("t", 1, PATIENCE).into()).expect("sent");
    world.eventually("the fetch is parked", || world.page(1).sum(delayed, &of_fetches) == 1.0);
    drop(reader);
    world.eventually("it is given up", || world.page(1).sum(delayed, &of_fetches) == 0.0);
    let after = world.page(1);
    let change = Change(&before, &after);
    for how in ["event", "timeout", "disconnect"] {
        change.is(completed, &by(how), 1.0);
    }
    world.eventually("the connections are seen to be closed", || {
        let closed = "kafka_server_socketservermetrics_connection_close_total";
        world.page(1).sum(closed, &[]) > before.sum(closed, &[])
    });
}

#[test]
fn fetch_sessions_are_told_with_what_they_save() {
    let world = World::start(1, &[]);
    world.create_topic("t", &[1], &[]);
    let before = world.page(1);
    let mut client = world.client(1);
    let full = FetchRequest { session_epoch: 0, ..fetch_request("t", 0, 0) };
    let session_id = client.call(12, full).expect("an answer").session_id;
    assert!(session_id > 0);
    for session_epoch in 1..=3 {
        let incremental = FetchRequest {
            session_id,
            session_epoch,
            topics: Vec::new(),
            ..fetch_request("t", 0, 0)
        };
        assert_eq!(client.call(12, incremental).expect("an answer").error_code, 0);
    }
    let after = world.page(1);
    let change = Change(&before, &after);
    change.is("kafka_server_fetchsessioncache_numincrementalfetchsessions", &[], 1.0);
    change.is("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", &[], 1.0);
    change.is("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", &[], 0.0);
    change.is("highwater_fetch_session_requests_total", &[("kind", "full")], 1.0);
    change.is("highwater_fetch_session_requests_total", &[("kind", "incremental")], 3.0);
    for direction in ["request", "response"] {
        let bytes = |kind| {
            change
                .of(&format!("highwater_fetch_session_{direction}_bytes_total"), &[("kind", kind)])
        };
        assert!(bytes("incremental") > 0.0);
        assert!(bytes("incremental") < 3.0 * bytes("full"), "{direction}");
    }
}

#[test]
fn a_node_that_goes_is_told_by_controllers_leaders_and_isrs() {
    let mut world = World::start(3, &[]);
    world.create_topic("t", &[1, 2, 3], &[("min.insync.replicas", "3")]);
    let page = world.page(1);
    for (name, value) in [
        ("kafka_server_replicamanager_partitioncount", 1.0),
        ("kafka_server_replicamanager_leadercount", 1.0),
        ("kafka_server_replicamanager_underreplicatedpartitions", 0.0),
        ("kafka_server_replicamanager_atminisrpartitioncount", 1.0),
        ("kafka_server_replicamanager_offlinereplicacount", 0.0),
        ("kafka_server_replicamanager_reassigningpartitions", 0.0),
        ("kafka_controller_kafkacontroller_activebrokercount", 3.0),
        ("kafka_controller_kafkacontroller_fencedbrokercount", 0.0),
        ("kafka_controller_kafkacontroller_globaltopiccount", 1.0),
        ("kafka_controller_kafkacontroller_globalpartitioncount", 1.0),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", 0.0),
        ("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", 0.0),
    ] {
        assert_eq!(page.plain(name).expect("a number"), value, "{name}");
    }
    let active = |world: &World| -> f64 {
        let name = "kafka_controller_kafkacontroller_activecontrollercount";
        world.ids().map(|id| world.page(id).plain(name).expect("a number")).sum()
    };
    assert_eq!(active(&world), 1.0);
    world.stop(3);
    world.eventually("the controllers see two brokers", || {
        let name = "kafka_controller_kafkacontroller_fencedbrokercount";
        world.page(1).plain(name).is_ok_and(|fenced| fenced == 1.0)
    });
    world.eventually("the ISR has shrunk", || {
        let page = world.page(1);
        page.plain("kafka_server_replicamanager_underreplicatedpartitions").is_ok_and(|n| n == 1.0)
    });
    world.eventually("somebody decides", || active(&world) == 1.0);
    let page = world.page(1);
    let topic = [("topic", "t")];
    for (name, value) in [
        ("kafka_cluster_partition_underreplicated", 1.0),
        ("kafka_cluster_partition_underminisr", 1.0),
        ("kafka_cluster_partition_atminisr", 0.0),
        ("kafka_cluster_partition_insyncreplicascount", 2.0),
    ] {
        assert_eq!(page.get(name, &topic), Some(value), "{name}");
    }
    let name = "kafka_server_replicamanager_underminisrpartitioncount";
    assert_eq!(page.plain(name).expect("a number"), 1.0);
    assert!(page.get("kafka_server_raft_metrics_current_leader", &[]).is_some_and(|id| id >= 1.0));
    let states = &page.families["kafka_server_raft_metrics_current_state_info"].samples;
    assert!(["leader", "follower"].contains(&states[0].0["state"].as_str()), "{states:?}");
    let mut client = world.client(1);
    let batch = batch_of(&[b"x"]).expect("a batch");
    let answer = client.produce("t", 0, -1, batch, PATIENCE).expect("an answer");
    assert_eq!(answer.error_code, 19, "NOT_ENOUGH_REPLICAS");
    let failed = "kafka_server_brokertopicmetrics_failedproducerequests_total";
    assert_eq!(world.page(1).get(failed, &topic), Some(1.0));
}

#[test]
fn groups_are_told_by_protocol_and_state_and_commits_are_counted() {
    let world = World::start(1, &[("group.initial.rebalance.delay.ms", "0")]);
    world.create_topic("t", &[1], &[]);
    let mut group = GroupClient::new(&world.address(1), "readers");
    for offset in 1..=3 {
        let error = group.commit("t", 0, offset, None, PATIENCE).expect("an answer");
        assert_eq!(error, protocol::ErrorCode::None);
    }
    let page = world.page(1);
    let metrics = "kafka_server_group_coordinator_metrics";
    assert!(page.plain(&format!("{metrics}_offset_commit_count")).expect("a number") >= 3.0);
    assert_eq!(page.get(&format!("{metrics}_num_partitions"), &[("state", "active")]), Some(1.0));
    assert_eq!(page.get(&format!("{metrics}_group_count"), &[("protocol", "classic")]), Some(1.0));
    let manager = "kafka_coordinator_group_groupmetadatamanager_numgroups";
    assert_eq!(page.plain(manager).expect("a number"), 1.0);
    assert_eq!(page.plain(&format!("{manager}empty")).expect("a number"), 1.0);
    let mut member =
        testkit::group::RawMember::new(&world.address(1), "readers", 1, Duration::from_secs(10));
    member.enter(PATIENCE).expect("a member");
    let page = world.page(1);
    assert_eq!(page.plain(&format!("{manager}stable")).expect("a number"), 1.0);
    assert_eq!(page.plain(&format!("{manager}empty")).expect("a number"), 0.0);
    // Its topic is a topic like others.
    let offsets = [("topic", "__consumer_offsets")];
    assert!(page.sum("kafka_server_brokertopicmetrics_messagesin_total", &offsets) >= 3.0);
}

#[test]
fn the_log_cleaner_tells_of_its_work() {
    let settings = [("log.cleaner.backoff.ms", "50")];
    let world = World::start(1, &settings);
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "1048576"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("max.message.bytes", "2000000"),
    ];
    world.create_topic("t", &[1], &configs);
    let mut client = world.client(1);
    for _ in 0..4 {
        let mut builder = protocol::records::BatchBuilder::new(protocol::Offset::ZERO);
        let value = vec![0; 700_000];
        builder.append(1, Some(b"key"), Some(&value), []).expect("fits");
        let batch = builder.build().expect("a batch");
        let answer = client.call(12, produce_request("t", 0, -1, batch, PATIENCE));
        let answer = answer.expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    world.eventually("the log is cleaned", || {
        world.page(1).plain("highwater_logs_cleaned_total").is_ok_and(|cleaned| cleaned >= 1.0)
    });
    let page = world.page(1);
    let recopied = page.plain("kafka_log_logcleaner_cleaner_recopy_percent").expect("a number");
    assert!(recopied < 100.0, "{recopied} percent");
    for name in [
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "kafka_log_logcleaner_deadthreadcount",
        "kafka_log_logcleaner_max_compaction_delay_secs",
    ] {
        assert_eq!(page.sum(name, &[]), 0.0, "{name}");
    }
    let ago = page.plain("kafka_log_logcleanermanager_time_since_last_run_ms").expect("a number");
    assert!(ago < 60_000.0, "{ago}");
    assert_eq!(page.sum("kafka_log_logmanager_logdirectoryoffline", &[]), 0.0);
    assert!(page.sum("highwater_log_directory_usable_bytes", &[]) > 0.0);
}
