//! A running cluster as its nodes show it to whoever asks: topics by the newest metadata, and every replica by
//! its own word, whoever leads. A debugging reader (replica id -2) may ask any replica where its log ends;
//! a fetch tells its high watermark.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use protocol::messages::{FetchRequest, ListOffsetsRequest, MetadataResponse};
use serde::Serialize;

use super::NodeId;
use crate::client::Client;

const DEBUGGING_REPLICA: i32 = -2;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const LIST_OFFSETS_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 12;

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ClusterView {
    /// Nodes that were asked and gave no answer, and why.
    pub silent: BTreeMap<NodeId, String>,
    /// Live brokers, as each node that answered knows them.
    pub live: BTreeMap<NodeId, Vec<NodeId>>,
    /// Every partition, by topic and number.
    pub partitions: Vec<PartitionView>,
}

/// A partition by the newest metadata that was found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PartitionView {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Who leads; -1 for nobody.
    pub leader: NodeId,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The ISR, sorted.
    pub isr: Vec<NodeId>,
    /// Its replicas, the preferred leader first.
    pub replicas: Vec<ReplicaView>,
}

/// A replica by its own word; `None` for what it does not tell.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReplicaView {
    /// Where it is.
    pub node: NodeId,
    /// Its first offset.
    pub log_start: Option<i64>,
    /// The offset after its last record.
    pub log_end: Option<i64>,
    /// Its high watermark.
    pub high_watermark: Option<i64>,
}

impl ClusterView {
    /// A partition, if it was seen.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionView> {
        self.partitions.iter().find(|seen| seen.topic == topic && seen.partition == partition)
    }
}

impl PartitionView {
    /// The replica on a node, if it has one.
    pub fn replica(&self, node: NodeId) -> Option<&ReplicaView> {
        self.replicas.iter().find(|replica| replica.node == node)
    }
}

/// Asks all nodes at `addresses` (of those that can be expected to answer), each for at most `timeout` per
/// question, about the topics that `wanted` takes.
pub fn look(
    addresses: &BTreeMap<NodeId, String>,
    timeout: Duration,
    wanted: &(dyn Fn(&MetadataResponseTopic) -> bool + Sync),
) -> ClusterView {
    let mut view = ClusterView::default();
    let mut answering = Vec::new();
    for (node, asked) in on_all(addresses, |address| first_question(address, timeout)) {
        match asked {
            Ok((client, metadata)) => {
                let mut live: Vec<_> = metadata.brokers.iter().map(|b| b.node_id).collect();
                live.sort_unstable();
                view.live.insert(node, live);
                answering.push((node, client, metadata));
            }
            Err(error) => {
                view.silent.insert(node, format!("{error:#}"));
            }
        }
    }
    for (node, _, metadata) in &answering {
        for topic in metadata.topics.iter().filter(|topic| wanted(topic)) {
            for partition in &topic.partitions {
                merge(&mut view, *node, topic.name.as_deref().unwrap_or_default(), partition);
            }
        }
    }
    view.partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    for (node, client, _) in &mut answering {
        // What cannot be asked for any more stays untold.
        let _ = ask_replicas(*node, client, &mut view.partitions);
    }
    view
}

/// Runs a question to each node on a thread of its own.
fn on_all<T: Send>(
    addresses: &BTreeMap<NodeId, String>,
    ask: impl Fn(&str) -> Result<T> + Sync,
) -> Vec<(NodeId, Result<T>)> {
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            addresses.iter().map(|(node, address)| (*node, scope.spawn(|| ask(address)))).collect();
        let answers = asking.into_iter().map(|(node, asked)| {
            let answer =
                asked.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the asker panicked")));
            (node, answer)
        });
        answers.collect()
    })
}

fn first_question(address: &str, timeout: Duration) -> Result<(Client, MetadataResponse)> {
    let mut client = Client::connect(address, timeout)?;
    let metadata = client.metadata()?;
    Ok((client, metadata))
}

/// Takes what a node says of a partition if it is newer than what is known, or comes from the leader.
fn merge(view: &mut ClusterView, by: NodeId, topic: &str, said: &MetadataResponsePartition) {
    let mut isr = said.isr_nodes.clone();
    isr.sort_unstable();
    let replicas =
        said.replica_nodes.iter().map(|node| ReplicaView { node: *node, ..Default::default() });
    let new = PartitionView {
        topic: topic.into(),
        partition: said.partition_index,
        leader: said.leader_id,
        leader_epoch: said.leader_epoch,
        isr,
        replicas: replicas.collect(),
    };
    let is_it =
        |known: &&mut PartitionView| known.topic == new.topic && known.partition == new.partition;
    match view.partitions.iter_mut().find(is_it) {
        Some(known) => {
            let is_newer = new.leader_epoch > known.leader_epoch;
            if is_newer || new.leader_epoch == known.leader_epoch && new.leader == by {
                *known = new;
            }
        }
        None => view.partitions.push(new),
    }
}

type Place = (String, i32);

/// Lets a node tell of its own replicas.
fn ask_replicas(node: NodeId, client: &mut Client, partitions: &mut [PartitionView]) -> Result<()> {
    let own = partitions.iter().filter(|partition| partition.replica(node).is_some());
    let own: Vec<Place> =
        own.map(|partition| (partition.topic.clone(), partition.partition)).collect();
    if own.is_empty() {
        return Ok(());
    }
    let starts = offsets(client, &own, EARLIEST)?;
    let ends = offsets(client, &own, LATEST)?;
    // At its end a replica has nothing to send; one that was cut back since is asked at its start.
    let mut watermarks = high_watermarks(client, &ends)?;
    let missed = starts.iter().filter(|(place, _)| !watermarks.contains_key(*place));
    let missed: BTreeMap<Place, i64> = missed.map(|(place, at)| (place.clone(), *at)).collect();
    if !missed.is_empty() {
        watermarks.extend(high_watermarks(client, &missed)?);
    }
    for partition in partitions {
        let place = (partition.topic.clone(), partition.partition);
        let mut replicas = partition.replicas.iter_mut();
        if let Some(replica) = replicas.find(|replica| replica.node == node) {
            replica.log_start = starts.get(&place).copied();
            replica.log_end = ends.get(&place).copied();
            replica.high_watermark = watermarks.get(&place).copied();
        }
    }
    Ok(())
}

/// The places of one topic after the other.
fn by_topic<T>(places: impl IntoIterator<Item = (Place, T)>) -> BTreeMap<String, Vec<(i32, T)>> {
    let mut topics: BTreeMap<String, Vec<(i32, T)>> = BTreeMap::new();
    for ((topic, partition), value) in places {
        topics.entry(topic).or_default().push((partition, value));
    }
    topics
}

fn offsets(client: &mut Client, places: &[Place], at: i64) -> Result<BTreeMap<Place, i64>> {
    let topics = by_topic(places.iter().map(|place| (place.clone(), ())));
    let request = ListOffsetsRequest {
        replica_id: DEBUGGING_REPLICA,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name,
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, ())| ListOffsetsPartition {
                        partition_index,
                        current_leader_epoch: -1,
                        timestamp: at,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let response = client.call(LIST_OFFSETS_VERSION, request).context("ListOffsets")?;
    let mut offsets = BTreeMap::new();
    for topic in response.topics {
        for partition in topic.partitions.into_iter().filter(|answer| answer.error_code == 0) {
            offsets.insert((topic.name.clone(), partition.partition_index), partition.offset);
        }
    }
    Ok(offsets)
}

fn high_watermarks(
    client: &mut Client,
    places: &BTreeMap<Place, i64>,
) -> Result<BTreeMap<Place, i64>> {
    let topics = by_topic(places.iter().map(|(place, offset)| (place.clone(), *offset)));
    let request = FetchRequest {
        max_wait_ms: 0,
        max_bytes: 1,
        topics: topics
            .into_iter()
            .map(|(topic, partitions)| FetchTopic {
                topic,
                partitions: partitions
                    .into_iter()
                    .map(|(partition, fetch_offset)| FetchPartition {
                        partition,
                        fetch_offset,
                        partition_max_bytes: 1,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let response = client.call(FETCH_VERSION, request).context("Fetch")?;
    let mut watermarks = BTreeMap::new();
    for topic in response.responses {
        for partition in topic.partitions.into_iter().filter(|answer| answer.error_code == 0) {
            let place = (topic.topic.clone(), partition.partition_index);
            watermarks.insert(place, partition.high_watermark);
        }
    }
    Ok(watermarks)
}
