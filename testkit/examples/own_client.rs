//! How a project tests a client of its own: a real cluster, faults, and what every replica has. Here the
//! client is the testkit's, and writes down what it does; yours gets `cluster.bootstrap()`.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::history::{Recorder, check};
use testkit::real::{Cluster, Message, Way};

fn main() -> Result<()> {
    let mut cluster = Cluster::builder()
        .brokers(3)
        .in_one_process()
        .with_faults(true)
        .set("replica.lag.time.max.ms", 2000)
        .set("replica.fetch.wait.max.ms", 200)
        .start()?;
    println!("bootstrap.servers={}", cluster.bootstrap());
    cluster.create_topic("orders", &[&[1, 2, 3]], &[("min.insync.replicas", "2")])?;

    // Node 3 asks its leader, and the leader hears nothing of it. A write waits for node 3 until it is out.
    let held = cluster.hold("Fetch".parse::<Message>()?, Way::between(3, 1))?;
    // What it asked before still waits at the leader; the next is the first to be held.
    cluster.wait_for("the next fetch of node 3", |cluster| {
        let count = cluster.held(held)?;
        Ok(if count > 0 { Ok(()) } else { Err("none is held yet".to_owned()) })
    })?;
    let timeout = Duration::from_secs(10);
    let history = Recorder::new();
    let mut producer = cluster.recorded_client(1, &history, "producer")?;
    let answer = producer.produce("orders", 0, -1, &[b"one"], timeout)?;
    ensure!(answer.error_code == 0, "two replicas are enough");
    cluster.wait_for_isr("orders", 0, &[1, 2])?;
    cluster.wait_for_high_watermark(1, "orders", 0, 1)?;
    ensure!(cluster.replica(3, "orders", 0)?.log_end == Some(0), "node 3 has nothing yet");
    cluster.release(held)?;
    cluster.wait_for_isr("orders", 0, &[1, 2, 3])?;

    // The leader dies; what was acknowledged is still there.
    cluster.kill(1)?;
    let leader = cluster.wait_for_leader_epoch("orders", 0, 1)?;
    cluster.wait_for_high_watermark(leader, "orders", 0, 1)?;
    let mut reader = cluster.recorded_client(leader, &history, "reader")?;
    let records = reader.read_finally("orders", 0, 0)?;
    ensure!(records.len() == 1, "acknowledged with acks=all");
    let report = check(&history.operations());
    ensure!(
        report.broken.is_empty() && report.acknowledged == 1,
        "the history says so: {report:?}"
    );
    println!("node {leader} leads and has it");
    Ok(())
}
