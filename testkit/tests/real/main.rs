//! Real clusters in this process, as a project that tests a client of its own would use them: started, killed,
//! frozen, cut, and asked what every replica has.

use std::time::Duration;

use protocol::ApiKey;
use testkit::client::batch_of;
use testkit::real::{Cluster, ClusterBuilder, Message, NodeState, Plane, Way};

const TOPIC: &str = "ledger";
const PATIENCE: Duration = Duration::from_secs(60);

fn quick() -> ClusterBuilder {
    Cluster::builder()
        .in_one_process()
        .patience(PATIENCE)
        .set("broker.session.timeout.ms", 2000)
        .set("broker.heartbeat.interval.ms", 200)
        .set("replica.lag.time.max.ms", 2000)
        .set("replica.fetch.wait.max.ms", 200)
}

fn produce(cluster: &Cluster, node: i32, acks: i16) {
    let batch = batch_of(&[b"record"]).expect("a batch");
    let mut client = cluster.client(node).expect("a client");
    let answer = client.produce(TOPIC, 0, acks, batch, PATIENCE).expect("an answer");
    assert_eq!(answer.error_code, 0);
}

#[test]
fn nodes_in_one_process_are_killed_stopped_and_frozen_each_by_itself() {
    let begun = std::time::Instant::now();
    let mut cluster = quick().start().expect("a cluster");
    println!("three nodes in one process are ready after {:?}", begun.elapsed());
    cluster.create_topic(TOPIC, &[&[1, 2, 3]], &[]).expect("a topic");
    produce(&cluster, 1, -1);
    cluster.kill(1).expect("killed");
    assert_eq!(cluster.state(1), NodeState::IsDown);
    assert!(cluster.client(1).is_err(), "its sockets are gone");
    let leader = cluster.wait_for_leader_epoch(TOPIC, 0, 1).expect("another leader");
    produce(&cluster, leader, -1);
    cluster.start(1).expect("started on what it had written");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("it is back");
    cluster.wait_for_log_end(1, TOPIC, 0, 2).expect("with everything");
    cluster.freeze(1).expect("frozen");
    assert_eq!(cluster.state(1), NodeState::IsFrozen);
    cluster.wait_for_isr(TOPIC, 0, &[2, 3]).expect("it falls out");
    cluster.thaw(1).expect("thawed");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("it is back");
    cluster.stop(2).expect("stopped cleanly");
    cluster.wait_for_isr(TOPIC, 0, &[1, 3]).expect("it left");
    cluster.freeze(3).expect("frozen");
    cluster.kill(3).expect("a frozen node is killed as well");
    for node in [2, 3] {
        cluster.start(node).expect("started");
    }
    cluster.wait_for_isr(TOPIC, 0, &[1, 2, 3]).expect("all are back");
    assert_eq!(cluster.wait_for_equal_replicas(TOPIC, 0).expect("equal").len(), 2);
}

#[test]
fn what_followers_do_not_hear_of_does_not_move_their_high_watermark_h09() {
    let mut cluster = quick().brokers(2).with_faults(true).start().expect("a cluster");
    let configs = [("min.insync.replicas", "1")];
    cluster.create_topic(TOPIC, &[&[1, 2]], &configs).expect("a topic");
    produce(&cluster, 1, -1);
    cluster.wait_for_high_watermark(2, TOPIC, 0, 1).expect("both know");
    let answers = Message::Answer(ApiKey::Fetch);
    let way = Way::between(1, 2).on(Plane::Data);
    let held = cluster.hold(answers, way).expect("a hold");
    produce(&cluster, 1, 1);
    cluster.wait_for_isr(TOPIC, 0, &[1]).expect("the follower gets no answer");
    cluster.wait_for_high_watermark(1, TOPIC, 0, 2).expect("the leader goes on");
    let follower = cluster.replica(2, TOPIC, 0).expect("a replica");
    assert_eq!((follower.log_end, follower.high_watermark), (Some(1), Some(1)));
    cluster.lose(held).expect("lost");
    cluster.wait_for_isr(TOPIC, 0, &[1, 2]).expect("it asks again");
    cluster.wait_for_high_watermark(2, TOPIC, 0, 2).expect("and hears of all");
    cluster.slow(1, 2, Duration::from_millis(50), Some(64 << 10)).expect("slow");
    produce(&cluster, 1, -1);
    cluster.wait_for_high_watermark(2, TOPIC, 0, 3).expect("late, and whole");
    cluster.heal().expect("healed");
    assert!(cluster.faults().expect("faults").list().is_empty());
}

#[test]
fn a_broker_whose_metadata_is_held_back_does_not_hear_that_another_is_gone() {
    let mut cluster = quick().with_faults(true).start().expect("a cluster");
    let to_three = Way { from: None, to: Some(3), plane: Some(Plane::Control) };
    let held = cluster.hold(Message::MetadataStream, to_three).expect("a hold");
    cluster.kill(2).expect("killed");
    cluster
        .wait_for("node 1 to hear that node 2 is gone", |cluster| {
            let seen = cluster.look();
            let is_heard = seen.live.get(&1).is_some_and(|live| *live == [1, 3]);
            Ok(if is_heard { Ok(()) } else { Err(format!("{seen:?}")) })
        })
        .expect("node 2 is fenced");
    assert!(cluster.held(held).expect("in force") > 0);
    assert_eq!(cluster.look().live.get(&3).map(Vec::as_slice), Some(&[1, 2, 3][..]));
    cluster.release(held).expect("released");
    cluster.wait_until_all_live().expect("node 3 knows that node 2 is gone");
}
