//! The requests of a fetcher as messages.

use crate::core::FetcherConfig;
use crate::partition::{FetchState, Phase};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::{FetchRequest, ListOffsetsRequest};
use protocol::{BrokerEpoch, LeaderEpoch, TopicPartition, Uuid};
use replication::fetch_session::{PartitionFetch, PartitionKey, SessionFetch, TopicKey};

/// Version of the fetch requests between our brokers: topic ids, replica state, sessions.
pub const FETCH_VERSION: i16 = 18;

/// Version of the ListOffsets requests between our brokers.
pub const LIST_OFFSETS_VERSION: i16 = 11;

/// ListOffsets' timestamp for the log end.
const LATEST: i64 = -1;
/// ListOffsets' timestamp for the log start.
const EARLIEST: i64 = -2;

/// A question for an offset that is on its way; the answer names the topic only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AskedOffset {
    pub(crate) name: TopicPartition,
    pub(crate) key: PartitionKey,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) phase: Phase,
}

pub(crate) fn fetch_request(
    config: &FetcherConfig,
    broker_epoch: BrokerEpoch,
    fetch: SessionFetch,
) -> FetchRequest {
    FetchRequest {
        replica_state: ReplicaState {
            replica_id: config.replica_id.get(),
            replica_epoch: broker_epoch.get(),
            ..Default::default()
        },
        max_wait_ms: i32::try_from(config.max_wait.as_millis()).unwrap_or(i32::MAX),
        min_bytes: config.min_bytes,
        max_bytes: config.response_max_bytes,
        session_id: fetch.metadata.id.get(),
        session_epoch: fetch.metadata.epoch.get(),
        topics: fetch_topics(fetch.to_send),
        forgotten_topics_data: forgotten_topics(&fetch.to_forget),
        ..Default::default()
    }
}

/// Neighbours of one topic share an entry; the order of the partitions stays, as it is the order in
/// which the leader reads.
fn fetch_topics(partitions: Vec<(PartitionKey, PartitionFetch)>) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (key, fetch) in partitions {
        let topic_id = id_of(&key);
        let partition = FetchPartition {
            partition: key.partition,
            current_leader_epoch: fetch.current_leader_epoch.get(),
            fetch_offset: fetch.fetch_offset.get(),
            last_fetched_epoch: fetch.last_fetched_epoch.get(),
            log_start_offset: fetch.log_start_offset.get(),
            partition_max_bytes: fetch.max_bytes,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(topic) if topic.topic_id == topic_id => topic.partitions.push(partition),
            _ => topics.push(FetchTopic {
                topic_id,
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    topics
}

fn forgotten_topics(partitions: &[PartitionKey]) -> Vec<ForgottenTopic> {
    let mut topics: Vec<ForgottenTopic> = Vec::new();
    for key in partitions {
        let topic_id = id_of(key);
        match topics.last_mut() {
            Some(topic) if topic.topic_id == topic_id => topic.partitions.push(key.partition),
            _ => topics.push(ForgottenTopic {
                topic_id,
                partitions: vec![key.partition],
                ..Default::default()
            }),
        }
    }
    topics
}

fn id_of(key: &PartitionKey) -> Uuid {
    match &key.topic {
        TopicKey::Id(id) => *id,
        // Fetchers name partitions by id alone (`partition::key_of`).
        TopicKey::Name(name) => unreachable!("a fetcher named topic {name} without its id"),
    }
}

pub(crate) fn list_offsets_request<'a>(
    config: &FetcherConfig,
    partitions: impl Iterator<Item = (&'a PartitionKey, &'a FetchState)>,
) -> (ListOffsetsRequest, Vec<AskedOffset>) {
    let mut topics: Vec<ListOffsetsTopic> = Vec::new();
    let mut asked = Vec::new();
    for (key, state) in partitions {
        let name = &state.partition.topic_partition;
        let timestamp = match state.phase {
            Phase::AskingEarliest { .. } => EARLIEST,
            _ => LATEST,
        };
        let partition = ListOffsetsPartition {
            partition_index: name.partition,
            current_leader_epoch: state.leader_epoch.get(),
            timestamp,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(topic) if *topic.name == *name.topic => topic.partitions.push(partition),
            _ => topics.push(ListOffsetsTopic {
                name: name.topic.to_string(),
                partitions: vec![partition],
                ..Default::default()
            }),
        }
        asked.push(AskedOffset {
            name: name.clone(),
            key: key.clone(),
            leader_epoch: state.leader_epoch,
            phase: state.phase.clone(),
        });
    }
    let request =
        ListOffsetsRequest { replica_id: config.replica_id.get(), topics, ..Default::default() };
    (request, asked)
}
