//! Single requests with every field in hand, the same to a simulated and to a real broker. Errors come
//! back as the broker sent them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::{
    AlterPartitionReassignmentsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
    ElectLeadersRequest, FetchRequest, FetchResponse, MetadataRequest,
};
use protocol::records::BatchBuilder;
use protocol::{Offset, RequestBody, ResponseBody, Uuid};

use super::{Node, Sent, Stage};
use crate::client::{epoch_end_request, list_offsets_request, produce_request, read_batches};

/// Since this version a fetch names topics by id (KIP-516).
pub(super) const FETCH_BY_ID: i16 = 13;
/// Since this version a follower's fetch tells its broker epoch (KIP-903).
const FETCH_WITH_STATE: i16 = 15;
const REQUEST_TIMEOUT_MS: i32 = 5000;
/// The time of every record that is written by itself.
pub const TIMESTAMP_MS: i64 = 1_700_000_000_000;

/// A fetch that is answered at once, with every field in hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The request's version; 16 and above are told who leads (KIP-951).
    pub version: i16,
    /// The follower that asks; -1 for a consumer.
    pub replica: Node,
    /// The epoch of its registration, in 15 and above; -1 for none.
    pub replica_epoch: i64,
    /// Where it reads.
    pub offset: i64,
    /// The leader epoch that it knows of; -1 for none.
    pub current_epoch: i32,
    /// The epoch of its record below `offset`; -1 for none.
    pub last_epoch: i32,
}

/// A consumer that reads from the start and knows of no epoch.
pub const CONSUMER: Ask = Ask {
    version: 12,
    replica: -1,
    replica_epoch: -1,
    offset: 0,
    current_epoch: -1,
    last_epoch: -1,
};

/// How a write that was sent by itself was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Kafka's error code; 0 for success.
    pub error_code: i16,
    /// Where it is.
    pub base_offset: i64,
    /// Who leads, and since which epoch, where the asked broker said so.
    pub leader: Option<(Node, i32)>,
}

/// How a fetch was answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fetched {
    /// Kafka's error code; 0 for success.
    pub error_code: i16,
    /// The high watermark in it.
    pub high_watermark: i64,
    /// The log's start in it.
    pub log_start: i64,
    /// The epoch after which the logs part, and its end.
    pub diverging: Option<(i32, i64)>,
    /// Who leads, and since which epoch, where the asked broker said so.
    pub leader: Option<(Node, i32)>,
    /// The nodes whose addresses came with it.
    pub endpoints: Vec<Node>,
    /// Offsets and values.
    pub records: Vec<(i64, String)>,
}

impl dyn Stage + '_ {
    /// Sends one request to a node and gives its answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn call(
        &mut self,
        node: Node,
        version: i16,
        request: impl Into<RequestBody>,
    ) -> Result<ResponseBody> {
        let sent = self.send(node, version, request.into())?;
        self.answer(sent)
    }

    /// Sends a write of one batch, and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_write(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        values: &[&str],
        timeout: Duration,
    ) -> Result<Sent> {
        let mut builder = BatchBuilder::new(Offset::ZERO);
        for value in values {
            builder.append(TIMESTAMP_MS, None, Some(value.as_bytes()), [])?;
        }
        let request = produce_request(topic, 0, acks, builder.build()?, timeout);
        self.send(node, 12, request.into())
    }

    /// How a write that was sent was answered.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn written(&mut self, sent: Sent) -> Result<Answered> {
        let ResponseBody::Produce(response) = self.answer(sent)? else {
            bail!("not an answer to Produce");
        };
        let topic = response.responses.first().context("no topic in the answer")?;
        let answered = topic.partition_responses.first().context("no partition in the answer")?;
        let leader = &answered.current_leader;
        let leader = told_leader(leader.leader_id, leader.leader_epoch);
        Ok(Answered { error_code: answered.error_code, base_offset: answered.base_offset, leader })
    }

    /// One fetch.
    ///
    /// # Errors
    /// When there is no answer, or the fetch failed whole.
    pub fn fetch(&mut self, node: Node, topic: &str, ask: Ask) -> Result<Fetched> {
        let topic_id =
            if ask.version < FETCH_BY_ID { Uuid::ZERO } else { self.topic_id(node, topic)? };
        self.fetch_by_id(node, topic, topic_id, ask)
    }

    /// One fetch of the topic with this id, whatever is called so now.
    ///
    /// # Errors
    /// When there is no answer, or the fetch failed whole.
    pub fn fetch_by_id(
        &mut self,
        node: Node,
        topic: &str,
        topic_id: Uuid,
        ask: Ask,
    ) -> Result<Fetched> {
        let request = one_fetch(topic, topic_id, ask, Duration::ZERO);
        let ResponseBody::Fetch(response) = self.call(node, ask.version, request)? else {
            bail!("not an answer to Fetch");
        };
        fetched(response, ask.offset)
    }

    /// Sends a fetch that may wait so long for something to read, and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_fetch(
        &mut self,
        node: Node,
        topic: &str,
        ask: Ask,
        max_wait: Duration,
    ) -> Result<Sent> {
        let topic_id =
            if ask.version < FETCH_BY_ID { Uuid::ZERO } else { self.topic_id(node, topic)? };
        self.send(node, ask.version, one_fetch(topic, topic_id, ask, max_wait).into())
    }

    /// How a fetch at this offset that was sent is answered.
    ///
    /// # Errors
    /// When there is no answer, or the fetch failed whole.
    pub fn fetched(&mut self, sent: Sent, offset: i64) -> Result<Fetched> {
        let ResponseBody::Fetch(response) = self.answer(sent)? else {
            bail!("not an answer to Fetch");
        };
        fetched(response, offset)
    }

    /// A topic's id by a node's metadata.
    ///
    /// # Errors
    /// When the node knows no such topic.
    pub fn topic_id(&mut self, node: Node, topic: &str) -> Result<Uuid> {
        let asked = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![asked]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let ResponseBody::Metadata(response) = self.call(node, 12, request)? else {
            bail!("not an answer to Metadata");
        };
        let known = response.topics.first().context("no topic in the answer")?;
        ensure!(known.error_code == 0, "metadata of {topic}: error {}", known.error_code);
        Ok(known.topic_id)
    }

    /// The offset of a timestamp, or of one of the special ones: error code and offset.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn list_offset(
        &mut self,
        node: Node,
        topic: &str,
        version: i16,
        current_epoch: i32,
        timestamp: i64,
    ) -> Result<(i16, i64)> {
        let request = list_offsets_request(topic, 0, current_epoch, timestamp);
        let ResponseBody::ListOffsets(response) = self.call(node, version, request)? else {
            bail!("not an answer to ListOffsets");
        };
        let answered = response.topics.first().and_then(|topic| topic.partitions.first());
        let answered = answered.context("no partition in the answer")?;
        Ok((answered.error_code, answered.offset))
    }

    /// Where an epoch ends: error code, epoch and end.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn epoch_end(
        &mut self,
        node: Node,
        topic: &str,
        current_epoch: i32,
        epoch: i32,
    ) -> Result<(i16, i32, i64)> {
        let request = epoch_end_request(topic, 0, current_epoch, epoch);
        let ResponseBody::OffsetForLeaderEpoch(response) = self.call(node, 4, request)? else {
            bail!("not an answer to OffsetForLeaderEpoch");
        };
        let answered = response.topics.first().and_then(|topic| topic.partitions.first());
        let answered = answered.context("no partition in the answer")?;
        Ok((answered.error_code, answered.leader_epoch, answered.end_offset))
    }

    /// Deletes the records below an offset, or with -1 below the high watermark: error code and the low
    /// watermark.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn delete_records(&mut self, node: Node, topic: &str, offset: i64) -> Result<(i16, i64)> {
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
            timeout_ms: REQUEST_TIMEOUT_MS,
            ..DeleteRecordsRequest::default()
        };
        let ResponseBody::DeleteRecords(response) = self.call(node, 2, request)? else {
            bail!("not an answer to DeleteRecords");
        };
        let answered = response.topics.first().and_then(|topic| topic.partitions.first());
        let answered = answered.context("no partition in the answer")?;
        Ok((answered.error_code, answered.low_watermark))
    }

    /// Asks for an election, unclean or of the preferred leader; the partition's error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn elect(&mut self, node: Node, topic: &str, unclean: bool) -> Result<i16> {
        let request = ElectLeadersRequest {
            election_type: i8::from(unclean),
            topic_partitions: Some(vec![TopicPartitions {
                topic: topic.into(),
                partitions: vec![0],
                ..TopicPartitions::default()
            }]),
            timeout_ms: REQUEST_TIMEOUT_MS,
            ..ElectLeadersRequest::default()
        };
        let ResponseBody::ElectLeaders(response) = self.call(node, 2, request)? else {
            bail!("not an answer to ElectLeaders");
        };
        let results = response.replica_election_results.first();
        let answered = results.and_then(|topic| topic.partition_result.first());
        Ok(answered.context("no partition in the answer")?.error_code)
    }

    /// Asks for other replicas; the partition's error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn reassign(&mut self, node: Node, topic: &str, replicas: &[Node]) -> Result<i16> {
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: REQUEST_TIMEOUT_MS,
            topics: vec![ReassignableTopic {
                name: topic.into(),
                partitions: vec![ReassignablePartition {
                    partition_index: 0,
                    replicas: Some(replicas.to_vec()),
                    ..ReassignablePartition::default()
                }],
                ..ReassignableTopic::default()
            }],
            ..AlterPartitionReassignmentsRequest::default()
        };
        let ResponseBody::AlterPartitionReassignments(response) = self.call(node, 0, request)?
        else {
            bail!("not an answer to AlterPartitionReassignments");
        };
        ensure!(response.error_code == 0, "reassigning: error {}", response.error_code);
        let answered = response.responses.first().and_then(|topic| topic.partitions.first());
        Ok(answered.context("no partition in the answer")?.error_code)
    }

    /// Deletes a topic; the error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn delete_topic(&mut self, node: Node, topic: &str) -> Result<i16> {
        let request = DeleteTopicsRequest {
            topic_names: vec![topic.into()],
            timeout_ms: REQUEST_TIMEOUT_MS,
            ..DeleteTopicsRequest::default()
        };
        let ResponseBody::DeleteTopics(response) = self.call(node, 5, request)? else {
            bail!("not an answer to DeleteTopics");
        };
        Ok(response.responses.first().context("no topic in the answer")?.error_code)
    }
}

fn told_leader(leader: Node, epoch: i32) -> Option<(Node, i32)> {
    (leader >= 0 || epoch >= 0).then_some((leader, epoch))
}

/// A fetch of partition 0 without a session.
pub(super) fn one_fetch(topic: &str, topic_id: Uuid, ask: Ask, max_wait: Duration) -> FetchRequest {
    let has_state = ask.version >= FETCH_WITH_STATE;
    FetchRequest {
        replica_id: if has_state { -1 } else { ask.replica },
        replica_state: ReplicaState {
            replica_id: if has_state { ask.replica } else { -1 },
            replica_epoch: if has_state { ask.replica_epoch } else { -1 },
            ..ReplicaState::default()
        },
        max_wait_ms: max_wait.as_millis() as i32,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: if ask.version < FETCH_BY_ID { topic.into() } else { String::new() },
            topic_id,
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
    }
}

fn fetched(response: FetchResponse, offset: i64) -> Result<Fetched> {
    ensure!(response.error_code == 0, "the fetch failed whole: {}", response.error_code);
    let endpoints = response.node_endpoints.iter().map(|endpoint| endpoint.node_id).collect();
    let topic = response.responses.into_iter().next().context("no topic in the answer")?;
    let data = topic.partitions.into_iter().next().context("no partition in the answer")?;
    Ok(Fetched { endpoints, ..fetched_partition(data, offset)? })
}

/// What a fetch at this offset says of its partition.
pub(super) fn fetched_partition(data: PartitionData, offset: i64) -> Result<Fetched> {
    let mut records = Vec::new();
    read_batches(data.records.unwrap_or_default().read()?, offset, &mut records)?;
    let diverging = &data.diverging_epoch;
    let leader = &data.current_leader;
    Ok(Fetched {
        error_code: data.error_code,
        high_watermark: data.high_watermark,
        log_start: data.log_start_offset,
        diverging: (diverging.epoch >= 0).then_some((diverging.epoch, diverging.end_offset)),
        leader: told_leader(leader.leader_id, leader.leader_epoch),
        endpoints: Vec::new(),
        records: records
            .into_iter()
            .map(|record| {
                let value = record.value.unwrap_or_default();
                (record.offset, String::from_utf8_lossy(&value).into_owned())
            })
            .collect(),
    })
}
