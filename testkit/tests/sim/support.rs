//! Short forms for the rules' tests: a cluster, writes, and single requests with every field in hand.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::{AlterPartitionReassignmentsRequest, ElectLeadersRequest, FetchRequest};
use protocol::records::BatchBuilder;
use protocol::{NodeId, Offset, ResponseBody};
use replication::trace::Event;
use testkit::client::{epoch_end_request, list_offsets_request, produce_request};
use testkit::sim::{SimConfig, Simulation};

pub const TOPIC: &str = "t";
const TIMEOUT: Duration = Duration::from_secs(2);

/// A live cluster with one topic of one partition; `nodes` of them.
pub fn cluster(
    nodes: i32,
    replicas: &[i32],
    configs: &[(&str, &str)],
    settings: &[(&str, &str)],
) -> Result<Simulation> {
    let mut config = SimConfig::new(11);
    config.nodes = nodes;
    for (key, value) in settings {
        config = config.set(key, value);
        config.model.unclean_elections |=
            *key == "unclean.leader.election.enable" && *value == "true";
    }
    cluster_of(config, replicas, configs)
}

/// The same of what is configured already.
pub fn cluster_of(
    config: SimConfig,
    replicas: &[i32],
    configs: &[(&str, &str)],
) -> Result<Simulation> {
    let mut simulation = Simulation::new(config)?;
    simulation.wait_until_all_live()?;
    simulation.create_topic(TOPIC, &[replicas], configs)?;
    simulation.wait_for_isr(TOPIC, 0, replicas)?;
    let replicas = replicas.to_vec();
    simulation.run_until("roles", Duration::from_secs(5), move |simulation| {
        replicas.iter().all(|node| {
            let facts = simulation.replica(NodeId(*node), TOPIC, 0);
            facts.is_some_and(|facts| facts.leader != NodeId::NONE)
        })
    })?;
    Ok(simulation)
}

fn batch(values: &[&str]) -> Result<bytes::Bytes> {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    for value in values {
        builder.append(1_700_000_000_000, None, Some(value.as_bytes()), [])?;
    }
    Ok(builder.build()?)
}

/// Sends a write; the answer is taken with [`produced`].
pub fn send(simulation: &mut Simulation, node: i32, acks: i16, values: &[&str]) -> Result<u64> {
    let request = produce_request(TOPIC, 0, acks, batch(values)?, TIMEOUT);
    Ok(simulation.send(NodeId(node), 12, request))
}

/// Error code and offset of a write that was sent, once it is answered.
pub fn produced(simulation: &mut Simulation, sent: u64) -> Result<(i16, i64)> {
    produce_answer(simulation.wait_for_answer(sent)?)
}

fn produce_answer(body: ResponseBody) -> Result<(i16, i64)> {
    let ResponseBody::Produce(response) = body else { bail!("not an answer to Produce") };
    let answered = response.responses.first().and_then(|topic| topic.partition_responses.first());
    let answered = answered.context("no partition in the answer")?;
    Ok((answered.error_code, answered.base_offset))
}

/// Writes one batch and gives error code and offset.
pub fn produce(
    simulation: &mut Simulation,
    node: i32,
    acks: i16,
    values: &[&str],
) -> Result<(i16, i64)> {
    let sent = send(simulation, node, acks, values)?;
    produced(simulation, sent)
}

/// Writes `count` records in batches of one; all must succeed.
pub fn write(simulation: &mut Simulation, node: i32, acks: i16, count: usize) -> Result<()> {
    for at in 0..count {
        let (error, _) = produce(simulation, node, acks, &[&format!("{node}-{at}")])?;
        anyhow::ensure!(error == 0, "write {at} to {node}: error {error}");
    }
    Ok(())
}

/// A fetch with every field in hand.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub version: i16,
    /// -1 for a consumer.
    pub replica: i32,
    pub replica_epoch: i64,
    pub offset: i64,
    pub current_epoch: i32,
    pub last_epoch: i32,
}

impl Ask {
    pub const CONSUMER: Ask = Ask {
        version: 12,
        replica: -1,
        replica_epoch: -1,
        offset: 0,
        current_epoch: -1,
        last_epoch: -1,
    };
}

pub fn fetch(simulation: &mut Simulation, node: i32, ask: Ask) -> Result<PartitionData> {
    let topic_id = simulation.partition_id(TOPIC, 0)?.topic_id;
    let by_name = ask.version < 13;
    let request = FetchRequest {
        replica_id: if ask.version < 15 { ask.replica } else { -1 },
        replica_state: ReplicaState {
            replica_id: if ask.version < 15 { -1 } else { ask.replica },
            replica_epoch: if ask.version < 15 { -1 } else { ask.replica_epoch },
            ..ReplicaState::default()
        },
        max_wait_ms: 0,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: if by_name { TOPIC.into() } else { String::new() },
            topic_id: if by_name { protocol::Uuid::ZERO } else { topic_id },
            partitions: vec![FetchPartition {
                partition: 0,
                current_leader_epoch: ask.current_epoch,
                fetch_offset: ask.offset,
                last_fetched_epoch: ask.last_epoch,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let ResponseBody::Fetch(response) = simulation.call(NodeId(node), ask.version, request)? else {
        bail!("not an answer to Fetch");
    };
    anyhow::ensure!(response.error_code == 0, "the fetch failed whole: {}", response.error_code);
    let topic = response.responses.into_iter().next().context("no topic in the answer")?;
    topic.partitions.into_iter().next().context("no partition in the answer")
}

/// ListOffsets with this timestamp: error code and offset.
pub fn list_offset(
    simulation: &mut Simulation,
    node: i32,
    version: i16,
    current_epoch: i32,
    timestamp: i64,
) -> Result<(i16, i64)> {
    let request = list_offsets_request(TOPIC, 0, current_epoch, timestamp);
    let ResponseBody::ListOffsets(response) = simulation.call(NodeId(node), version, request)?
    else {
        bail!("not an answer to ListOffsets");
    };
    let answered = response.topics.first().and_then(|topic| topic.partitions.first());
    let answered = answered.context("no partition in the answer")?;
    Ok((answered.error_code, answered.offset))
}

/// OffsetForLeaderEpoch: error code, epoch and end.
pub fn epoch_end(
    simulation: &mut Simulation,
    node: i32,
    current_epoch: i32,
    epoch: i32,
) -> Result<(i16, i32, i64)> {
    let request = epoch_end_request(TOPIC, 0, current_epoch, epoch);
    let ResponseBody::OffsetForLeaderEpoch(response) = simulation.call(NodeId(node), 4, request)?
    else {
        bail!("not an answer to OffsetForLeaderEpoch");
    };
    let answered = response.topics.first().and_then(|topic| topic.partitions.first());
    let answered = answered.context("no partition in the answer")?;
    Ok((answered.error_code, answered.leader_epoch, answered.end_offset))
}

/// High watermark and log end of a replica.
pub fn marks(simulation: &Simulation, node: i32) -> (i64, i64) {
    let facts = simulation.replica(NodeId(node), TOPIC, 0);
    facts.map_or((-1, -1), |facts| (facts.high_watermark.get(), facts.log_end.get()))
}

pub fn until(
    simulation: &mut Simulation,
    what: &str,
    reached: impl FnMut(&Simulation) -> bool,
) -> Result<()> {
    simulation.run_until(what, Duration::from_secs(30), reached)
}

/// The events of a node since place `from` that `pick` takes.
pub fn events<T>(
    simulation: &Simulation,
    from: usize,
    node: i32,
    pick: impl Fn(&Event) -> Option<T>,
) -> Vec<T> {
    simulation
        .events_since(from)
        .iter()
        .filter(|entry| entry.node == NodeId(node))
        .filter_map(|entry| pick(&entry.event))
        .collect()
}

/// Cuts of a node's log since place `from`.
pub fn cuts(simulation: &Simulation, from: usize, node: i32) -> Vec<(i64, i64)> {
    events(simulation, from, node, |event| match event {
        Event::Truncated { from, to, .. } => Some((from.get(), to.get())),
        _ => None,
    })
}

/// The controllers' ISR, sorted.
pub fn isr(simulation: &Simulation) -> Vec<i32> {
    let mut isr: Vec<i32> = simulation
        .partition_image(TOPIC, 0)
        .map(|image| image.isr.iter().map(|id| id.get()).collect())
        .unwrap_or_default();
    isr.sort_unstable();
    isr
}

/// All logs are the same and every replica is in the ISR.
pub fn healthy(simulation: &mut Simulation) -> Result<()> {
    until(simulation, "a healthy cluster", Simulation::is_healthy)?;
    simulation.check_everything()
}

/// Asks for an election of a kind (0 preferred, 1 unclean); gives the partition's error code, or -1
/// when the answer names none.
pub fn elect(simulation: &mut Simulation, kind: i8) -> Result<i16> {
    let request = ElectLeadersRequest {
        election_type: kind,
        topic_partitions: Some(vec![TopicPartitions {
            topic: TOPIC.into(),
            partitions: vec![0],
            ..TopicPartitions::default()
        }]),
        timeout_ms: 5000,
        ..ElectLeadersRequest::default()
    };
    let ResponseBody::ElectLeaders(response) = simulation.call_controller(2, request)? else {
        anyhow::bail!("not an answer to ElectLeaders");
    };
    let results = response.replica_election_results.first();
    Ok(results.and_then(|topic| topic.partition_result.first()).map_or(-1, |r| r.error_code))
}

/// Asks for other replicas; gives the error code.
pub fn reassign(simulation: &mut Simulation, replicas: &[i32]) -> Result<i16> {
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 5000,
        topics: vec![ReassignableTopic {
            name: TOPIC.into(),
            partitions: vec![ReassignablePartition {
                partition_index: 0,
                replicas: Some(replicas.to_vec()),
                ..ReassignablePartition::default()
            }],
            ..ReassignableTopic::default()
        }],
        ..AlterPartitionReassignmentsRequest::default()
    };
    let ResponseBody::AlterPartitionReassignments(response) =
        simulation.call_controller(0, request)?
    else {
        anyhow::bail!("not an answer to AlterPartitionReassignments");
    };
    Ok(response.responses[0].partitions[0].error_code)
}
