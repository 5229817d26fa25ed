//! The fault proxy between real processes: what is held on a link shows in the ISR and in the high watermark.

use std::time::Duration;

use protocol::ApiKey;
use testkit::client::batch_of;
use testkit::real::{Cluster, Message, Plane, Way};

use crate::{alone, cluster};

const TOPIC: &str = "ledger";
const PATIENCE: Duration = Duration::from_secs(45);

fn broken_links(brokers: i32) -> Cluster {
    cluster()
        .brokers(brokers)
        .with_faults(true)
        .patience(PATIENCE)
        .set("replica.lag.time.max.ms", 1500)
        .set("replica.fetch.wait.max.ms", 200)
        .set("broker.session.timeout.ms", 3000)
        .set("broker.heartbeat.interval.ms", 300)
        .start()
        .expect("a cluster behind the proxy")
}

fn produce(cluster: &Cluster, acks: i16) -> i16 {
    let mut client = cluster.client(1).expect("a client");
    let batch = batch_of(&[b"record"]).expect("a batch");
    client.produce(TOPIC, 0, acks, batch, PATIENCE).expect("an answer").error_code
}

fn high_watermark(cluster: &Cluster, node: i32) -> Option<i64> {
    cluster.replica(node, TOPIC, 0).expect("a replica").high_watermark
}

#[test]
fn a_held_fetch_keeps_the_high_watermark_and_a_held_proposal_keeps_the_isr_h03() {
    let _alone = alone();
    let mut cluster = broken_links(2);
    cluster.create_topic(TOPIC, &[&[1, 2]], &[("min.insync.replicas", "1")]).expect("a topic");
    assert_eq!(produce(&cluster, -1), 0);
    cluster.wait_for_high_watermark(2, TOPIC, 0, 1).expect("both know");
    // Node 2 falls behind, and node 1 may not say so: neither goes on without the other.
    let from_one = Way { from: Some(1), to: None, plane: Some(Plane::Control) };
    let proposal = Message::Request(ApiKey::AlterPartition);
    let proposals = cluster.hold(proposal, from_one).expect("a hold");
    let fetch = Message::Request(ApiKey::Fetch);
    let fetches = cluster.hold(fetch, Way::between(2, 1)).expect("a hold");
    cluster
        .wait_for("a fetch to be held", |cluster| {
            let held = cluster.held(fetches)?;
            Ok(if held > 0 { Ok(()) } else { Err("none".to_owned()) })
        })
        .expect("the follower asks");
    assert_eq!(produce(&cluster, 1), 0);
    cluster
        .wait_for("the proposal of a smaller ISR to be held", |cluster| {
            let held = cluster.held(proposals)?;
            Ok(if held > 0 { Ok(()) } else { Err("none".to_owned()) })
        })
        .expect("the leader proposes");
    let seen = cluster.look();
    let partition = seen.partition(TOPIC, 0).expect("the partition");
    assert_eq!(partition.isr, [1, 2], "{seen:?}");
    let leader = partition.replica(1).expect("the leader's replica");
    assert_eq!((leader.log_end, leader.high_watermark), (Some(2), Some(1)));
    // Once it is heard, the leader goes on alone.
    cluster.release(proposals).expect("released");
    cluster.wait_for_isr(TOPIC, 0, &[1]).expect("a smaller ISR");
    cluster.wait_for_high_watermark(1, TOPIC, 0, 2).expect("the leader goes on");
    assert_eq!(cluster.replica(2, TOPIC, 0).expect("its replica").log_end, Some(1));
    // And with its fetches the follower is back.
    cluster.release(fetches).expect("released");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2]).expect("it is back");
    cluster.wait_for_high_watermark(2, TOPIC, 0, 2).expect("it has everything");
}

#[test]
fn dropped_heartbeats_fence_a_broker_and_a_cut_of_one_way_stops_replication_both_heal_c01() {
    let _alone = alone();
    let mut cluster = broken_links(3);
    cluster.create_topic(TOPIC, &[&[1, 2, 3]], &[]).expect("a topic");
    let beats: Message = "heartbeat".parse().expect("a message");
    let from_three = Way { from: Some(3), to: None, plane: Some(Plane::Control) };
    let lost = cluster.drop_messages(beats, from_three).expect("a fault");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2]).expect("node 3 is fenced");
    assert!(cluster.faults().expect("faults").get(lost).is_some_and(|fault| fault.met > 0));
    cluster.release(lost).expect("released");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("it is back");
    // Answers of the leader do not arrive; everything else does.
    let way = Way::between(1, 2).on(Plane::Data);
    let cut = cluster.faults().expect("faults").add(way, testkit::real::Harm::Cut).expect("a cut");
    // Who has everything that there is counts as in sync, however silent.
    assert_eq!(produce(&cluster, 1), 0);
    cluster.wait_for_isr(TOPIC, 0, &[1, 3]).expect("node 2 falls behind");
    assert_eq!(produce(&cluster, -1), 0);
    assert_eq!(cluster.replica(2, TOPIC, 0).expect("a replica").log_end, Some(0));
    cluster.release(cut).expect("released");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("it catches up");
    cluster.wait_for_high_watermark(2, TOPIC, 0, 2).expect("it has everything");
    assert_eq!(high_watermark(&cluster, 1), Some(2));
}

#[test]
fn a_directory_that_is_taken_away_costs_its_partitions_their_leader_and_comes_back_c08() {
    let _alone = alone();
    let mut cluster = cluster()
        .log_dirs(2)
        .with_faults(true)
        .patience(PATIENCE)
        .set("replica.high.watermark.checkpoint.interval.ms", 200)
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .start()
        .expect("a cluster");
    let replicas: &[i32] = &[1, 2, 3];
    cluster.create_topic(TOPIC, &[replicas, replicas], &[]).expect("a topic");
    assert_eq!(produce(&cluster, -1), 0);
    // The directory of the metadata stays: without it the whole node would end.
    let lost = (0..2).find(|index| cluster.log_dir_of(1, TOPIC, *index).expect("a log") == 1);
    let lost = lost.expect("the two partitions are in two directories");
    cluster.fail_disk(1, 1).expect("taken away");
    assert!(cluster.fail_disk(1, 1).is_err(), "once");
    cluster.wait_for_isr(TOPIC, lost, &[2, 3]).expect("its replica is out");
    cluster.wait_for_other_leader(TOPIC, lost, 1).expect("another leads");
    let kept = cluster.partition(TOPIC, 1 - lost).expect("the other partition");
    assert_eq!(kept.leader_id, 1);
    cluster.kill(1).expect("killed");
    cluster.mend_disk(1).expect("given back");
    cluster.start(1).expect("started");
    cluster.wait_for_isr(TOPIC, lost, &[1, 2, 3]).expect("it is back");
}
