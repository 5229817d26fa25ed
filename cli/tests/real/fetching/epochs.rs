//! What only several nodes can show over the wire: leader epochs at leaders, followers and strangers (E01), where
//! epochs end (E02), a reader that learns of a truncation (E03), hints of who leads (E04), reads at a follower
//! (K01, K02), DeleteRecords (I02) and a topic made anew while a replica was away (I01).

use std::time::Duration;

use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse};
use testkit::client::{Client, batch_of, epoch_end_request, list_offsets_request};
use testkit::real::{Cluster, ClusterBuilder, NodeId};

use super::{
    IDS, NAMES, NOT_LEADER, Named, PATIENCE, batches_of, fetch, only, part, produce, rows,
};
use crate::alone;

const TOPIC: &str = "led";
const FENCED: i16 = 74;
const UNKNOWN_EPOCH: i16 = 75;

fn quick() -> ClusterBuilder {
    crate::cluster()
        .set("broker.session.timeout.ms", 3000)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .set("replica.fetch.backoff.ms", 100)
}

/// A request that one version of one API carries, to be tried with many leader epochs.
fn fetch_at(
    client: &mut Client,
    version: i16,
    topic: &Named,
    epoch: i32,
    replica: i32,
) -> FetchResponse {
    let partition = FetchPartition { current_leader_epoch: epoch, ..part(0, 0) };
    let mut request = fetch(vec![topic.with(vec![partition])]);
    if version < 15 {
        request.replica_id = replica;
    } else {
        request.replica_state.replica_id = replica;
    }
    client.call(version, request).expect("an answer")
}

fn list_at(client: &mut Client, topic: &str, epoch: i32) -> (i16, i64, i32) {
    let request = list_offsets_request(topic, 0, epoch, -1);
    let response = client.call(7, request).expect("an answer");
    let told = &response.topics[0].partitions[0];
    (told.error_code, told.offset, told.leader_epoch)
}

/// Error, epoch and end.
fn end_of(client: &mut Client, topic: &str, current: i32, epoch: i32) -> (i16, i32, i64) {
    let request = epoch_end_request(topic, 0, current, epoch);
    let response = client.call(4, request).expect("an answer");
    let told = &response.topics[0].partitions[0];
    (told.error_code, told.leader_epoch, told.end_offset)
}

fn error_of(response: &FetchResponse) -> i16 {
    rows(response)[0].1
}

/// Replicas 1 and 2, of which 2 missed four records and leads now: 0 to 5 in epoch 0, and 6 to 8 anew in the
/// epoch that is returned. Node 1, which has 6 to 9 otherwise, is down.
fn unclean() -> (Cluster, i32) {
    let mut cluster = quick().start().expect("a cluster");
    let settings = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    cluster.create_topic(TOPIC, &[&[1, 2]], &settings).expect("a topic");
    let mut first = cluster.client(1).expect("a client");
    super::wait_until_led(&mut cluster, TOPIC, 1);
    for _ in 0..6 {
        produce(&mut first, TOPIC, 0, &[b"kept"]);
    }
    cluster.kill(2).expect("killed");
    cluster.wait_for_isr(TOPIC, 0, &[1]).expect("an ISR without it");
    for _ in 0..4 {
        produce(&mut first, TOPIC, 0, &[b"lost"]);
    }
    cluster.kill(1).expect("killed");
    cluster.start(2).expect("started");
    let leader = cluster.wait_for_other_leader(TOPIC, 0, 1).expect("an unclean leader");
    assert_eq!(leader, 2);
    let epoch = cluster.partition(TOPIC, 0).expect("a partition").leader_epoch;
    let mut second = cluster.client(2).expect("a client");
    cluster
        .wait_for("node 2 to lead", |_| {
            let answer = second.produce(TOPIC, 0, -1, batch_of(&[b"anew"])?, PATIENCE)?;
            Ok(if answer.error_code == 0 { Ok(()) } else { Err(format!("{answer:?}")) })
        })
        .expect("a record");
    for _ in 0..2 {
        produce(&mut second, TOPIC, 0, &[b"anew"]);
    }
    (cluster, epoch)
}

#[test]
fn e01_e02_e03_e04_what_readers_learn_after_an_unclean_election() {
    let _alone = alone();
    let (mut cluster, epoch) = unclean();
    assert!(epoch >= 1, "{epoch}");
    let mut leader = cluster.client(2).expect("a client");
    let topic = Named::of(&mut leader, TOPIC);
    // E03: a reader that has all ten records of epoch 0 learns where its log parts, by either request.
    assert_eq!(end_of(&mut leader, TOPIC, epoch, 0), (0, 0, 6));
    let had_all =
        FetchPartition { current_leader_epoch: epoch, last_fetched_epoch: 0, ..part(0, 10) };
    for version in [NAMES, IDS] {
        let request = fetch(vec![topic.with(vec![had_all.clone()])]);
        let data = only(leader.call(version, request).expect("an answer"));
        assert_eq!((data.error_code, super::bytes_of(&data)), (0, 0));
        assert_eq!((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (0, 6));
    }
    // Versions without it are told that the offset is not there.
    let request = fetch(vec![topic.with(vec![part(0, 10)])]);
    assert_eq!(error_of(&leader.call(11, request).expect("an answer")), 1);
    // E02, F07: epochs asked for, at and between those there are; the end in the leader's epoch.
    assert_eq!(end_of(&mut leader, TOPIC, -1, epoch), (0, epoch, 9));
    for between in 0..epoch {
        assert_eq!(end_of(&mut leader, TOPIC, -1, between), (0, 0, 6));
    }
    for unknown in [epoch + 1, i32::MAX, -1] {
        assert_eq!(end_of(&mut leader, TOPIC, -1, unknown), (0, -1, -1));
    }
    assert_eq!(list_at(&mut leader, TOPIC, epoch), (0, 9, epoch));
    // The other one comes back, and its four records go.
    cluster.start(1).expect("started");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2]).expect("both replicas");
    let (one, two) = (cluster.read_replica(1, TOPIC, 0), cluster.read_replica(2, TOPIC, 0));
    assert_eq!(one.expect("a log"), two.expect("a log"));
    epochs_at(&mut cluster, &topic, epoch);
    hints(&mut cluster, &topic, epoch);
}

/// E01: the table of leader epochs.
fn epochs_at(cluster: &mut Cluster, topic: &Named, epoch: i32) {
    let fences = [(-1, 0), (epoch, 0), (epoch - 1, FENCED), (epoch + 1, UNKNOWN_EPOCH)];
    let mut leader = cluster.client(2).expect("a client");
    let mut follower = cluster.client(1).expect("a client");
    let refused = |error: i16| if error == 0 { NOT_LEADER } else { error };
    for (asked, error) in fences {
        for version in [9, 10, 11, NAMES, IDS] {
            let told = error_of(&fetch_at(&mut leader, version, topic, asked, -1));
            assert_eq!(told, error, "the leader, version {version}, epoch {asked}");
            let told = error_of(&fetch_at(&mut follower, version, topic, asked, -1));
            let wanted = if version < 11 { refused(error) } else { error };
            assert_eq!(told, wanted, "a follower, version {version}, epoch {asked}");
        }
        // A replica's fetch goes to the leader only.
        let told = error_of(&fetch_at(&mut follower, NAMES, topic, asked, 2));
        assert_eq!(told, refused(error), "a replica's fetch from a follower, epoch {asked}");
        assert_eq!(list_at(&mut leader, TOPIC, asked).0, error, "ListOffsets, epoch {asked}");
        assert_eq!(list_at(&mut follower, TOPIC, asked).0, refused(error));
        assert_eq!(end_of(&mut leader, TOPIC, asked, 0).0, error, "OffsetForLeaderEpoch, {asked}");
        assert_eq!(end_of(&mut follower, TOPIC, asked, 0).0, refused(error));
    }
    // A broker that is no replica: with the leader's epoch the leader may know less than it; without, it errs.
    for (asked, error) in [(epoch, UNKNOWN_EPOCH), (-1, NOT_LEADER), (epoch - 1, FENCED)] {
        let told = error_of(&fetch_at(&mut leader, NAMES, topic, asked, 3));
        assert_eq!(told, error, "no replica, epoch {asked}");
    }
    // A node without the partition.
    let mut stranger = cluster.client(3).expect("a client");
    for asked in [-1, epoch] {
        assert_eq!(error_of(&fetch_at(&mut stranger, NAMES, topic, asked, -1)), NOT_LEADER);
        assert_eq!(list_at(&mut stranger, TOPIC, asked).0, NOT_LEADER);
        assert_eq!(end_of(&mut stranger, TOPIC, asked, 0).0, NOT_LEADER);
        assert_eq!(end_of(&mut stranger, "nosuch", asked, 0).0, 3);
    }
    // In a session the epoch is kept, checked every time, and taken anew.
    let with = |epoch| {
        let partition = FetchPartition { current_leader_epoch: epoch, ..part(0, 9) };
        fetch(vec![topic.with(vec![partition])])
    };
    let opening = FetchRequest { session_epoch: 0, ..with(epoch - 1) };
    let opened = leader.call(IDS, opening).expect("an answer");
    assert_eq!(error_of(&opened), FENCED);
    let mut go_on = |session_epoch, request| {
        let session_id = opened.session_id;
        let request = FetchRequest { session_id, session_epoch, ..request };
        rows(&leader.call(IDS, request).expect("an answer"))
    };
    assert_eq!(go_on(1, fetch(Vec::new())), [(0, FENCED, 0)]);
    assert_eq!(go_on(2, with(epoch)), [(0, 0, 0)]);
    assert_eq!(go_on(3, fetch(Vec::new())), []);
    assert_eq!(go_on(4, with(epoch + 1)), [(0, UNKNOWN_EPOCH, 0)]);
}

/// E04 (KIP-951): errors 6 and 74 name the leader, and where it is, to those who can read it.
fn hints(cluster: &mut Cluster, topic: &Named, epoch: i32) {
    let port = i32::from(cluster.port(2));
    for (node, asked, error) in [
        (3, -1, NOT_LEADER),
        (1, epoch - 1, FENCED),
        (2, epoch - 1, FENCED),
        (2, epoch + 1, UNKNOWN_EPOCH),
    ] {
        let mut client = cluster.client(node).expect("a client");
        for version in 9..=IDS {
            let response = fetch_at(&mut client, version, topic, asked, -1);
            assert_eq!(error_of(&response), error, "node {node}, version {version}");
            let leader = &response.responses[0].partitions[0].current_leader;
            let hint = (leader.leader_id, leader.leader_epoch);
            let ends: Vec<_> =
                response.node_endpoints.iter().map(|end| (end.node_id, end.port)).collect();
            let is_told = version >= 16 && error != UNKNOWN_EPOCH;
            let wanted =
                if is_told { ((2, epoch), vec![(2, port)]) } else { ((-1, -1), Vec::new()) };
            assert_eq!((hint, ends), wanted, "node {node}, version {version}");
        }
    }
    let mut stranger = cluster.client(3).expect("a client");
    let batch = batch_of(&[b"to the wrong node"]).expect("a batch");
    let request = testkit::client::produce_request(TOPIC, 0, -1, batch, PATIENCE);
    for version in 9..=12 {
        let response = stranger.call(version, request.clone()).expect("an answer");
        let told = &response.responses[0].partition_responses[0];
        assert_eq!(told.error_code, NOT_LEADER);
        let hint = (told.current_leader.leader_id, told.current_leader.leader_epoch);
        let ends: Vec<_> =
            response.node_endpoints.iter().map(|end| (end.node_id, end.port)).collect();
        let wanted = if version >= 10 { ((2, epoch), vec![(2, port)]) } else { ((-1, -1), vec![]) };
        assert_eq!((hint, ends), wanted, "Produce version {version}");
    }
}

/// Error and low watermark.
fn delete_below(client: &mut Client, topic: &str, offset: i64, timeout: Duration) -> (i16, i64) {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: topic.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
                ..DeleteRecordsPartition::default()
            }],
            ..DeleteRecordsTopic::default()
        }],
        timeout_ms: timeout.as_millis() as i32,
        ..DeleteRecordsRequest::default()
    };
    let response = client.call(2, request).expect("an answer");
    let told = &response.topics[0].partitions[0];
    (told.error_code, told.low_watermark)
}

/// What a consumer of this version gets from a node.
fn read_at(
    cluster: &Cluster,
    node: NodeId,
    version: i16,
    topic: &Named,
    from: FetchPartition,
) -> PartitionData {
    let request = FetchRequest { rack_id: String::new(), ..fetch(vec![topic.with(vec![from])]) };
    only(cluster.client(node).expect("a client").call(version, request).expect("an answer"))
}

#[test]
fn k01_k02_i02_readers_at_a_follower_and_a_log_whose_start_moves() {
    let _alone = alone();
    let mut builder = crate::cluster()
        .set("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector");
    for node in 1..=3 {
        builder = builder.set_on(node, "broker.rack", format!("r{node}"));
    }
    let mut cluster = builder.start().expect("a cluster");
    cluster.create_topic(TOPIC, &[&[1, 2, 3]], &[]).expect("a topic");
    cluster.create_topic("compacted", &[&[1]], &[("cleanup.policy", "compact")]).expect("a topic");
    let mut leader = cluster.client(1).expect("a client");
    super::wait_until_led(&mut cluster, TOPIC, 1);
    super::wait_until_led(&mut cluster, "compacted", 1);
    let topic = Named::of(&mut leader, TOPIC);
    for _ in 0..100 {
        produce(&mut leader, TOPIC, 0, &[b"record"]);
    }
    cluster
        .wait_for("the follower to know what is committed", |cluster| {
            let data = read_at(cluster, 2, IDS, &topic, part(0, 0));
            Ok(if data.high_watermark == 100 { Ok(()) } else { Err(format!("{data:?}")) })
        })
        .expect("followers that know the high watermark");
    preferred(&cluster, &topic);
    // K02: up to its end a follower has no error; beyond, the reader must ask the leader.
    for version in [11, NAMES, IDS] {
        for (offset, error) in [(50, 0), (100, 0), (101, 1), (-1, 1)] {
            let data = read_at(&cluster, 2, version, &topic, part(0, offset));
            assert_eq!(data.error_code, error, "at {offset}, version {version}");
            assert_eq!(super::bytes_of(&data) > 0, offset == 50);
        }
        assert_eq!(
            batches_of(&read_at(&cluster, 2, version, &topic, part(0, 98))),
            [(98, 98), (99, 99)]
        );
    }
    assert_eq!(read_at(&cluster, 2, 10, &topic, part(0, 0)).error_code, NOT_LEADER);
    delete_records(&mut cluster, &mut leader, &topic);
}

/// K01: a consumer with a rack is sent to the replica there, and gets no records besides.
fn preferred(cluster: &Cluster, topic: &Named) {
    for (rack, preferred) in [("r2", 2), ("r3", 3), ("r1", -1), ("r9", -1), ("", -1)] {
        for version in [11, NAMES, IDS] {
            for offset in [0, 50] {
                let request = FetchRequest {
                    rack_id: rack.into(),
                    // Sent elsewhere at once, however long it would wait.
                    max_wait_ms: if preferred > 0 { super::FOREVER_MS } else { 0 },
                    min_bytes: i32::MAX,
                    ..fetch(vec![topic.with(vec![part(0, offset)])])
                };
                let mut client = cluster.client(1).expect("a client");
                let data = only(client.call(version, request.clone()).expect("an answer"));
                let context = format!("rack {rack}, version {version}: {data:?}");
                assert_eq!(
                    (data.error_code, data.preferred_read_replica),
                    (0, preferred),
                    "{context}"
                );
                assert_eq!((data.high_watermark, data.log_start_offset), (100, 0), "{context}");
                assert_eq!(super::bytes_of(&data) == 0, preferred > 0, "{context}");
                // The one it is sent to sends nobody on.
                if preferred > 0 {
                    let request = FetchRequest { max_wait_ms: 0, ..request };
                    let mut there = cluster.client(preferred).expect("a client");
                    let data = only(there.call(version, request).expect("an answer"));
                    assert_eq!((data.error_code, data.preferred_read_replica), (0, -1));
                    assert!(super::bytes_of(&data) > 0);
                }
            }
        }
    }
}

/// I02, with all replicas, with one that does not answer, and without it.
fn delete_records(cluster: &mut Cluster, leader: &mut Client, topic: &Named) {
    assert_eq!(delete_below(leader, TOPIC, 50, PATIENCE), (0, 50));
    for node in 1..=3 {
        // All live replicas have it when it is answered.
        let data = read_at(cluster, node, IDS, topic, part(0, 50));
        assert_eq!((data.error_code, data.log_start_offset), (0, 50), "node {node}");
        assert_eq!(read_at(cluster, node, IDS, topic, part(0, 49)).error_code, 1, "node {node}");
    }
    assert_eq!(leader.list_offset(TOPIC, 0, -2).expect("an answer"), (0, 50));
    // What was deleted stays so; above the high watermark and below -1 is nothing to delete.
    assert_eq!(delete_below(leader, TOPIC, 20, PATIENCE), (0, 50));
    for wrong in [101, -2, i64::MAX, i64::MIN] {
        assert_eq!(delete_below(leader, TOPIC, wrong, PATIENCE), (1, -1), "{wrong}");
    }
    assert_eq!(delete_below(leader, "compacted", 0, PATIENCE), (44, -1));
    assert_eq!(delete_below(leader, "nosuch", 0, PATIENCE), (3, -1));
    let mut follower = cluster.client(2).expect("a client");
    assert_eq!(delete_below(&mut follower, TOPIC, 60, PATIENCE), (NOT_LEADER, -1));
    // A replica that is there and does not say that it has followed.
    cluster.freeze(3).expect("frozen");
    assert_eq!(delete_below(leader, TOPIC, 70, Duration::from_millis(200)), (7, 50));
    assert_eq!(leader.list_offset(TOPIC, 0, -2).expect("an answer"), (0, 70));
    cluster.thaw(3).expect("thawed");
    // -1 is the high watermark: everything. Epochs begin with what is left (E02).
    assert_eq!(delete_below(leader, TOPIC, -1, PATIENCE), (0, 100));
    assert_eq!(end_of(leader, TOPIC, -1, 0), (0, 0, 100));
    assert_eq!(leader.list_offset(TOPIC, 0, -2).expect("an answer"), (0, 100));
}

#[test]
fn i01_a_replica_that_was_away_does_not_mix_a_topic_with_the_one_made_anew() {
    let _alone = alone();
    let mut cluster = quick().start().expect("a cluster");
    let replicas: &[NodeId] = &[1, 2, 3];
    cluster.create_topic(TOPIC, &[replicas], &[]).expect("a topic");
    let mut client = cluster.client(1).expect("a client");
    super::wait_until_led(&mut cluster, TOPIC, 1);
    let old = Named::of(&mut client, TOPIC);
    for _ in 0..20 {
        produce(&mut client, TOPIC, 0, &[b"of the first"]);
    }
    cluster.kill(3).expect("killed");
    let request = DeleteTopicsRequest {
        topic_names: vec![TOPIC.into()],
        timeout_ms: 20_000,
        ..DeleteTopicsRequest::default()
    };
    cluster
        .wait_for("the topic to be deleted", |cluster| {
            let error = cluster.client(1)?.call(5, request.clone())?.responses[0].error_code;
            Ok(if error == 0 || error == 3 { Ok(()) } else { Err(format!("error {error}")) })
        })
        .expect("deleted");
    cluster
        .wait_for("the topic to be gone", |cluster| {
            Ok(cluster.client(1)?.topic_id(TOPIC).map_or(Ok(()), |_| Err("still there".into())))
        })
        .expect("gone");
    cluster.create_topic(TOPIC, &[replicas], &[]).expect("a topic");
    let mut written = 0;
    cluster
        .wait_for("records of the second topic", |cluster| {
            let mut client = cluster.client(cluster.leader(TOPIC, 0)?)?;
            while written < 5 {
                let batch = batch_of(&[b"of the second"])?;
                let answer = client.produce(TOPIC, 0, -1, batch, PATIENCE)?;
                if answer.error_code != 0 {
                    return Ok(Err(format!("{answer:?}")));
                }
                written += 1;
            }
            Ok(Ok(()))
        })
        .expect("a leader");
    cluster.start(3).expect("started");
    cluster.wait_for_isr(TOPIC, 0, replicas).expect("the third follows");
    let records = cluster.wait_for_equal_replicas(TOPIC, 0).expect("equal replicas");
    assert_eq!(records.len(), 5);
    assert!(records.iter().all(|record| record.value.as_deref() == Some(b"of the second")));
    for node in 1..=3 {
        let mut client = cluster.client(node).expect("a client");
        let request = fetch(vec![old.with(vec![part(0, 0)])]);
        assert_eq!(error_of(&client.call(IDS, request).expect("an answer")), 100, "node {node}");
    }
    let leader = cluster.leader(TOPIC, 0).expect("a leader");
    let by_name = fetch(vec![old.with(vec![part(0, 20)])]);
    let mut client = cluster.client(leader).expect("a client");
    assert_eq!(error_of(&client.call(NAMES, by_name).expect("an answer")), 1);
}
