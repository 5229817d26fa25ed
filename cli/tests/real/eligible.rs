//! C06 (KIP-966) step by step: brokers are killed, stopped and started in turn, and after each step
//! DescribeTopicPartitions must tell what it did on Apache Kafka 4.4.0, leader epochs included. The table is
//! what a Kafka of five combined nodes answered; where Java and Kafka are, one is asked again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use protocol::messages::describe_topic_partitions_request::TopicRequest;
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use protocol::messages::{
    DescribeTopicPartitionsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
};
use testkit::real::{KafkaCluster, OnSockets};

const NODES: i32 = 5;
const PATIENCE: Duration = Duration::from_secs(90);
const MIN_ISR: &str = "min.insync.replicas";
/// Topics of one partition each, with their replicas and min.insync.replicas.
const TOPICS: [(&str, &[i32], &str); 3] =
    [("three", &[3, 4, 5], "2"), ("two", &[4, 5], "2"), ("one", &[5], "2")];
/// Sessions that end soon; leaders that move only by what is done here.
const SETTINGS: [(&str, &str); 4] = [
    ("broker.session.timeout.ms", "6000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("replica.lag.time.max.ms", "60000"),
    ("auto.leader.rebalance.enable", "false"),
];

#[derive(Clone, Copy, Debug)]
enum Act {
    Kill(i32),
    Stop(i32),
    Start(i32),
    /// Sets min.insync.replicas of "two" to 1.
    LowerMinIsr,
    /// Asks for an unclean election of "two".
    Elect,
}

/// Leader, leader epoch, ISR, eligible leader replicas, last known leader.
type Row = (i32, i32, &'static [i32], &'static [i32], &'static [i32]);

/// Each step, and how "three", "two" and "one" stand after it.
const STEPS: &[(Act, [Row; 3])] = &[
    (Act::Kill(4), [(3, 0, &[3, 5], &[], &[]), (5, 1, &[5], &[4], &[]), (5, 0, &[5], &[], &[])]),
    (
        Act::Kill(5),
        [(3, 0, &[3], &[5], &[]), (-1, 2, &[], &[4, 5], &[5]), (-1, 1, &[], &[5], &[5])],
    ),
    // What ended uncleanly is eligible no more.
    (
        Act::Start(4),
        [(3, 0, &[3, 4], &[], &[]), (-1, 2, &[], &[5], &[5]), (-1, 1, &[], &[5], &[5])],
    ),
    // The last known leader leads.
    (
        Act::Start(5),
        [(3, 0, &[3, 4, 5], &[], &[]), (5, 3, &[4, 5], &[], &[]), (5, 2, &[5], &[], &[])],
    ),
    (Act::Stop(5), [(3, 0, &[3, 4], &[], &[]), (4, 4, &[4], &[5], &[]), (-1, 3, &[], &[5], &[5])]),
    (
        Act::Stop(4),
        [(3, 0, &[3], &[4], &[]), (-1, 5, &[], &[4, 5], &[4]), (-1, 3, &[], &[5], &[5])],
    ),
    // What stopped cleanly is eligible still.
    (Act::Start(5), [(3, 0, &[3, 5], &[], &[]), (5, 6, &[5], &[4], &[]), (5, 4, &[5], &[], &[])]),
    (
        Act::Start(4),
        [(3, 0, &[3, 4, 5], &[], &[]), (5, 6, &[4, 5], &[], &[]), (5, 4, &[5], &[], &[])],
    ),
    (Act::Stop(4), [(3, 0, &[3, 5], &[], &[]), (5, 6, &[5], &[4], &[]), (5, 4, &[5], &[], &[])]),
    (
        Act::Stop(5),
        [(3, 0, &[3], &[5], &[]), (-1, 7, &[], &[4, 5], &[5]), (-1, 5, &[], &[5], &[5])],
    ),
    // Who was eligible by another value is not.
    (Act::LowerMinIsr, [(3, 0, &[3], &[5], &[]), (-1, 7, &[], &[], &[]), (-1, 5, &[], &[5], &[5])]),
    (Act::Start(5), [(3, 0, &[3, 5], &[], &[]), (-1, 7, &[], &[], &[]), (5, 6, &[5], &[], &[])]),
    (Act::Elect, [(3, 0, &[3, 5], &[], &[]), (5, 8, &[5], &[], &[]), (5, 6, &[5], &[], &[])]),
];

fn create_topics(cluster: &mut dyn OnSockets) -> Result<()> {
    for (name, replicas, min_isr) in TOPICS {
        cluster.create_topic(name, &[replicas], &[(MIN_ISR, min_isr)])?;
    }
    Ok(())
}

fn lower_min_isr(cluster: &dyn OnSockets) -> Result<()> {
    let config = AlterableConfig {
        name: MIN_ISR.into(),
        value: Some("1".into()),
        ..AlterableConfig::default()
    };
    let resource = AlterConfigsResource {
        resource_type: 2,
        resource_name: "two".into(),
        configs: vec![config],
        ..AlterConfigsResource::default()
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let response = cluster.client(1)?.call(1, request)?;
    ensure!(response.responses[0].error_code == 0, "{:?}", response.responses);
    Ok(())
}

fn elect(cluster: &dyn OnSockets) -> Result<()> {
    let topic = TopicPartitions { topic: "two".into(), partitions: vec![0], ..Default::default() };
    let request = ElectLeadersRequest {
        election_type: 1,
        topic_partitions: Some(vec![topic]),
        timeout_ms: 20_000,
        ..ElectLeadersRequest::default()
    };
    let response = cluster.client(1)?.call(2, request)?;
    ensure!(response.error_code == 0, "{response:?}");
    Ok(())
}

type Seen = (i32, i32, Vec<i32>, Vec<i32>, Vec<i32>);

fn describe(cluster: &dyn OnSockets) -> Result<Vec<Seen>> {
    let topics = TOPICS.map(|(name, ..)| TopicRequest { name: name.into(), ..Default::default() });
    let request = DescribeTopicPartitionsRequest {
        topics: topics.to_vec(),
        response_partition_limit: 2000,
        ..DescribeTopicPartitionsRequest::default()
    };
    let response = cluster.client(1)?.call(0, request)?;
    let mut seen = Vec::new();
    for (name, ..) in TOPICS {
        let topic = response.topics.iter().find(|topic| topic.name.as_deref() == Some(name));
        let partition = topic.and_then(|topic| topic.partitions.first());
        let partition = partition.with_context(|| format!("{name} is not described"))?;
        let sorted = |nodes: &[i32]| {
            let mut nodes = nodes.to_vec();
            nodes.sort_unstable();
            nodes
        };
        seen.push((
            partition.leader_id,
            partition.leader_epoch,
            sorted(&partition.isr_nodes),
            partition.eligible_leader_replicas.clone().context("null")?,
            partition.last_known_elr.clone().context("null")?,
        ));
    }
    Ok(seen)
}

/// Waits until a node that never goes describes the partitions so.
fn await_rows(cluster: &dyn OnSockets, what: &str, rows: &[Row; 3]) -> Result<()> {
    let wanted: Vec<Seen> = rows
        .iter()
        .map(|(leader, epoch, isr, eligible, last)| {
            (*leader, *epoch, isr.to_vec(), eligible.to_vec(), last.to_vec())
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = describe(cluster);
        if seen.as_ref().is_ok_and(|seen| *seen == wanted) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "after {what}: {seen:?}, must be {wanted:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn go(cluster: &mut dyn OnSockets) -> Result<()> {
    create_topics(cluster)?;
    let begin: [Row; 3] =
        [(3, 0, &[3, 4, 5], &[], &[]), (4, 0, &[4, 5], &[], &[]), (5, 0, &[5], &[], &[])];
    await_rows(cluster, "the begin", &begin)?;
    for (at, (act, rows)) in STEPS.iter().enumerate() {
        let what = format!("step {at}, {act:?}");
        match act {
            Act::Kill(node) => cluster.kill(*node),
            Act::Stop(node) => cluster.stop(*node),
            Act::Start(node) => cluster.start(*node),
            Act::LowerMinIsr => lower_min_isr(cluster),
            Act::Elect => elect(cluster),
        }
        .with_context(|| what.clone())?;
        await_rows(cluster, &what, rows)?;
    }
    Ok(())
}

#[test]
fn who_is_eligible_is_told_step_by_step_as_kafka_told_it_c06() {
    let _alone = super::alone();
    let mut builder = super::cluster().brokers(NODES);
    for (key, value) in SETTINGS {
        builder = builder.set(key, value);
    }
    let mut cluster = builder.start().expect("a cluster");
    go(&mut cluster).expect("as Kafka told");
}

#[test]
fn a_kafka_tells_the_table_of_who_is_eligible_again_c06() {
    let Some(script) = super::group_tools::tool() else { return };
    let _alone = super::alone();
    let mut kafka = KafkaCluster::start(&script, NODES, &SETTINGS).expect("a Kafka");
    go(&mut kafka).expect("as another Kafka told");
}
