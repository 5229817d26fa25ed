//! Produce: appends one batch per partition and acknowledges it as the request asks.
//!
//! acks=0 gets no byte of answer, and an error closes the connection (P04). Versions: 7 allows zstd;
//! 8 adds record errors and messages; 10 adds leader hints (KIP-951); 13 names topics by id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use protocol::messages::{ProduceRequest, ProduceResponse};
use protocol::{ErrorCode, NodeId, Records, TopicPartition, Uuid};
use storage::Disk;

use crate::core::directory::Directory;
use crate::core::internal_topics::INTERNAL_TOPICS;
use crate::core::replicas::{ProduceEntry, ProduceOutcome};
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

/// The first version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// The first version whose answer has room for who leads instead.
const FIRST_LEADER_HINT_VERSION: i16 = 10;

/// Where an outcome belongs: the topic as the request names it, and the partition.
struct Place {
    topic: String,
    topic_id: Uuid,
    partition: i32,
    /// Settled without an append.
    refused: Option<ProduceOutcome>,
}

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: ProduceRequest,
    reply: Responder,
) {
    let directory = core.directory();
    let (version, acks) = (context.api_version, request.acks);
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let transactional = request.transactional_id.is_some();
    let (places, entries) = read(&directory, version, transactional, request);
    let listener = context.listener.clone();
    let core_for_reply = core.clone();
    let on_done = Box::new(move |outcomes: Vec<ProduceOutcome>| {
        let outcomes = merge(&places, outcomes);
        if acks == 0 {
            let failed = outcomes.iter().any(|outcome| outcome.error != ErrorCode::None);
            reply(if failed { Outcome::Close } else { Outcome::NoResponse });
            return;
        }
        let directory = core_for_reply.directory();
        let response = respond(&directory, &listener, version, places, outcomes);
        reply(Outcome::Answer(response.into()));
    });
    let parked = core.replicas.append(acks, timeout, version, entries, on_done);
    // A write under way ends as usual when its client goes: only the answer has no taker. So it is
    // not cancelled; it frees itself at its deadline.
    drop(parked);
}

/// Takes the request apart. A partition that comes twice is answered once, by its later batch (P04).
fn read(
    directory: &Directory,
    version: i16,
    transactional: bool,
    request: ProduceRequest,
) -> (Vec<Place>, Vec<ProduceEntry>) {
    let mut by_place: BTreeMap<(String, Uuid, i32), usize> = BTreeMap::new();
    let mut places: Vec<Place> = Vec::new();
    let mut batches: Vec<Option<Records>> = Vec::new();
    for topic in request.topic_data {
        let (name, id) = if version >= FIRST_TOPIC_ID_VERSION {
            let name = directory.image.topic_name(topic.topic_id).map(|name| name.to_string());
            (name.unwrap_or_default(), topic.topic_id)
        } else {
            (topic.name, Uuid::ZERO)
        };
        for data in topic.partition_data {
            let key = (name.clone(), id, data.index);
            if let Some(at) = by_place.get(&key) {
                batches[*at] = data.records;
                continue;
            }
            by_place.insert(key, places.len());
            places.push(Place {
                topic: name.clone(),
                topic_id: id,
                partition: data.index,
                refused: None,
            });
            batches.push(data.records);
        }
    }
    let mut entries = Vec::new();
    for (place, records) in places.iter_mut().zip(batches) {
        match admit(directory, place, version >= FIRST_TOPIC_ID_VERSION, transactional, records) {
            Ok(entry) => entries.push(entry),
            Err(refused) => place.refused = Some(refused),
        }
    }
    (places, entries)
}

fn admit(
    directory: &Directory,
    place: &Place,
    by_id: bool,
    transactional: bool,
    records: Option<Records>,
) -> Result<ProduceEntry, ProduceOutcome> {
    if place.topic.is_empty() && by_id {
        return Err(ProduceOutcome::refused(ErrorCode::UnknownTopicId, None));
    }
    let exists = || {
        let topic = directory.image.topic_by_name(&place.topic);
        topic.is_some_and(|topic| topic.partitions.contains_key(&place.partition))
    };
    // One that does not exist is answered as any other: it is UNKNOWN_TOPIC_OR_PARTITION.
    if INTERNAL_TOPICS.contains(&place.topic.as_str()) && exists() {
        let message = format!("{} is written by coordinators only", place.topic);
        return Err(ProduceOutcome::refused(ErrorCode::InvalidTopicException, Some(message)));
    }
    let bytes = match records {
        Some(Records::Bytes(bytes)) => bytes,
        _ => bytes::Bytes::new(),
    };
    let is_transactional = protocol::records::first_batch(&bytes)
        .ok()
        .flatten()
        .is_some_and(|batch| batch.header().attributes().is_transactional());
    if is_transactional && !transactional {
        return Err(ProduceOutcome::refused(
            ErrorCode::TransactionalIdAuthorizationFailed,
            Some("a transactional batch needs a transactional id".into()),
        ));
    }
    Ok(ProduceEntry {
        partition: TopicPartition::new(place.topic.as_str(), place.partition),
        topic_id: place.topic_id,
        records: bytes,
    })
}

/// One outcome per place, in the request's order.
fn merge(places: &[Place], appended: Vec<ProduceOutcome>) -> Vec<ProduceOutcome> {
    let mut appended = appended.into_iter();
    places
        .iter()
        .map(|place| match &place.refused {
            Some(refused) => refused.clone(),
            None => appended
                .next()
                .unwrap_or_else(|| ProduceOutcome::refused(ErrorCode::UnknownServerError, None)),
        })
        .collect()
}

fn respond(
    directory: &Directory,
    listener: &str,
    version: i16,
    places: Vec<Place>,
    outcomes: Vec<ProduceOutcome>,
) -> ProduceResponse {
    let mut responses: Vec<TopicProduceResponse> = Vec::new();
    let mut leaders: Vec<NodeId> = Vec::new();
    for (place, mut outcome) in places.into_iter().zip(outcomes) {
        if version < FIRST_LEADER_HINT_VERSION {
            outcome.current_leader = None;
        }
        if let Some((leader, _)) = outcome.current_leader
            && !leaders.contains(&leader)
        {
            leaders.push(leader);
        }
        let same = |topic: &TopicProduceResponse| {
            topic.name == place.topic && topic.topic_id == place.topic_id
        };
        if !responses.last().is_some_and(same) {
            responses.push(TopicProduceResponse {
                name: place.topic.clone(),
                topic_id: place.topic_id,
                ..TopicProduceResponse::default()
            });
        }
        if let Some(topic) = responses.last_mut() {
            topic.partition_responses.push(partition_response(place.partition, outcome));
        }
    }
    ProduceResponse {
        responses,
        node_endpoints: endpoints(directory, listener, &leaders),
        ..ProduceResponse::default()
    }
}

fn partition_response(index: i32, outcome: ProduceOutcome) -> PartitionProduceResponse {
    let current_leader =
        outcome.current_leader.map_or_else(LeaderIdAndEpoch::default, |leader| LeaderIdAndEpoch {
            leader_id: leader.0.get(),
            leader_epoch: leader.1.get(),
            ..LeaderIdAndEpoch::default()
        });
    PartitionProduceResponse {
        index,
        error_code: outcome.error.code(),
        base_offset: outcome.base_offset,
        log_append_time_ms: outcome.log_append_time_ms,
        log_start_offset: outcome.log_start_offset,
        record_errors: outcome
            .record_errors
            .into_iter()
            .map(|error| BatchIndexAndErrorMessage {
                batch_index: error.batch_index,
                batch_index_error_message: Some(error.message),
                ..BatchIndexAndErrorMessage::default()
            })
            .collect(),
        error_message: outcome.error_message,
        current_leader,
        ..PartitionProduceResponse::default()
    }
}

fn endpoints(directory: &Directory, listener: &str, leaders: &[NodeId]) -> Vec<NodeEndpoint> {
    leaders
        .iter()
        .filter_map(|leader| {
            let (host, port) = directory.endpoint(*leader, listener)?;
            let rack = directory.alive(*leader)?.rack.as_deref().map(str::to_owned);
            Some(NodeEndpoint {
                node_id: leader.get(),
                host: host.to_string(),
                port: i32::from(port),
                rack,
                ..NodeEndpoint::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::records::ProducerStamp;
    use protocol::{ProducerEpoch, ProducerId};

    use super::*;
    use crate::handlers::testing::{TestBroker, batch, log_end, produce, topic_id};

    fn broker() -> TestBroker {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (2, &[2, 1])]);
        broker
    }

    #[test]
    fn a_batch_is_appended_and_its_first_offset_told() {
        let broker = broker();
        for base in [0, 2] {
            let response =
                broker.ask(9, produce(-1, "t", &[(0, batch(&[1, 2], ProducerStamp::NONE))]));
            let told = &response.responses[0].partition_responses[0];
            assert_eq!((told.error_code, told.base_offset, told.log_start_offset), (0, base, 0));
            assert_eq!(told.log_append_time_ms, -1);
        }
        assert_eq!(log_end(&broker, "t", 0), 4);
    }

    /// P04.
    #[test]
    fn a_partition_that_comes_twice_is_answered_once_and_only_its_later_batch_is_written() {
        let broker = broker();
        let twice =
            [(0, batch(&[1, 2, 3], ProducerStamp::NONE)), (0, batch(&[4], ProducerStamp::NONE))];
        let response = broker.ask(9, produce(1, "t", &twice));
        let told = &response.responses[0].partition_responses;
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].error_code, told[0].base_offset), (0, 0));
        assert_eq!(log_end(&broker, "t", 0), 1);
    }

    /// P04.
    #[test]
    fn acks_0_is_not_answered_and_a_failure_closes_the_connection() {
        let broker = broker();
        let inbox = broker.send(9, produce(0, "t", &[(0, batch(&[1], ProducerStamp::NONE))]));
        assert!(matches!(inbox.take(), Some(Outcome::NoResponse)));
        assert_eq!(log_end(&broker, "t", 0), 1);
        let inbox = broker.send(9, produce(0, "t", &[(1, batch(&[1], ProducerStamp::NONE))]));
        assert!(matches!(inbox.take(), Some(Outcome::Close)));
    }

    #[test]
    fn acks_that_do_not_exist_write_nothing() {
        let broker = broker();
        let response = broker.ask(9, produce(2, "t", &[(0, batch(&[1], ProducerStamp::NONE))]));
        let told = &response.responses[0].partition_responses[0];
        assert_eq!(told.error_code, ErrorCode::InvalidRequiredAcks.code());
        assert_eq!(log_end(&broker, "t", 0), 0);
    }

    /// KIP-951.
    #[test]
    fn who_is_not_the_leader_names_the_leader_from_version_10_on() {
        let broker = broker();
        let response = broker.ask(10, produce(1, "t", &[(1, batch(&[1], ProducerStamp::NONE))]));
        let told = &response.responses[0].partition_responses[0];
        assert_eq!(told.error_code, ErrorCode::NotLeaderOrFollower.code());
        assert_eq!((told.current_leader.leader_id, told.current_leader.leader_epoch), (2, 5));
        let endpoint = &response.node_endpoints[0];
        assert_eq!((endpoint.node_id, endpoint.host.as_str(), endpoint.port), (2, "host2", 9092));
        // Older versions have no room for it; the answer must not carry it.
        let response = broker.ask(9, produce(1, "t", &[(1, batch(&[1], ProducerStamp::NONE))]));
        assert_eq!(
            response.responses[0].partition_responses[0].error_code,
            ErrorCode::NotLeaderOrFollower.code()
        );
    }

    #[test]
    fn topics_are_named_by_id_from_version_13_on() {
        let broker = broker();
        let mut request = produce(1, "", &[(0, batch(&[1], ProducerStamp::NONE))]);
        request.topic_data[0].topic_id = topic_id(1);
        let response = broker.ask(13, request.clone());
        assert_eq!(response.responses[0].topic_id, topic_id(1));
        assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
        for unknown in [topic_id(9), Uuid::ZERO] {
            request.topic_data[0].topic_id = unknown;
            let response = broker.ask(13, request.clone());
            let told = &response.responses[0].partition_responses[0];
            assert_eq!(told.error_code, ErrorCode::UnknownTopicId.code());
        }
        assert_eq!(log_end(&broker, "t", 0), 1);
    }

    #[test]
    fn coordinators_topics_are_not_for_clients() {
        let broker = TestBroker::new();
        broker.add_topic("__consumer_offsets", 1, &[(1, &[1])]);
        let batch = batch(&[1], ProducerStamp::NONE);
        let response = broker.ask(9, produce(1, "__consumer_offsets", &[(0, batch)]));
        let told = &response.responses[0].partition_responses[0];
        assert_eq!(told.error_code, ErrorCode::InvalidTopicException.code());
    }

    #[test]
    fn a_coordinators_topic_that_does_not_exist_is_unknown_as_any_other() {
        let broker = TestBroker::new();
        broker.add_topic("__consumer_offsets", 1, &[(1, &[1])]);
        for (topic, partition) in [("__transaction_state", 0), ("__consumer_offsets", 1)] {
            let batch = batch(&[1], ProducerStamp::NONE);
            let response = broker.ask(9, produce(1, topic, &[(partition, batch)]));
            let told = &response.responses[0].partition_responses[0];
            assert_eq!(told.error_code, ErrorCode::UnknownTopicOrPartition.code());
        }
    }

    fn stamp(base_sequence: i32) -> ProducerStamp {
        ProducerStamp { id: ProducerId(77), epoch: ProducerEpoch(0), base_sequence }
    }

    /// Measured on Kafka 4.4.0, which tells it whoever sets the timestamps.
    #[test]
    fn x02_a_duplicate_is_answered_with_its_batchs_newest_timestamp() {
        let broker = broker();
        for expected in [-1, 20, 20] {
            let response = broker.ask(9, produce(1, "t", &[(0, batch(&[10, 20, 15], stamp(0)))]));
            let told = &response.responses[0].partition_responses[0];
            assert_eq!((told.error_code, told.base_offset), (0, 0));
            assert_eq!((told.log_append_time_ms, told.log_start_offset), (expected, 0));
        }
        assert_eq!(log_end(&broker, "t", 0), 3);
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn a_refusal_by_the_log_tells_where_the_log_starts_and_an_earlier_one_does_not() {
        let broker = broker();
        let mut damaged = batch(&[1], ProducerStamp::NONE).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let two = batch(&[1], ProducerStamp::NONE).repeat(2);
        for (partition, bytes, error, log_start) in [
            (0, batch(&[1], stamp(0)), ErrorCode::None, 0),
            (0, batch(&[1], stamp(9)), ErrorCode::OutOfOrderSequenceNumber, 0),
            (0, batch(&[i64::MAX], ProducerStamp::NONE), ErrorCode::InvalidTimestamp, 0),
            (0, damaged.into(), ErrorCode::CorruptMessage, -1),
            (0, two.into(), ErrorCode::InvalidRecord, -1),
            (0, Bytes::new(), ErrorCode::InvalidRecord, -1),
            (1, batch(&[1], ProducerStamp::NONE), ErrorCode::NotLeaderOrFollower, -1),
        ] {
            let response = broker.ask(9, produce(1, "t", &[(partition, bytes)]));
            let told = &response.responses[0].partition_responses[0];
            assert_eq!((told.error_code, told.log_start_offset), (error.code(), log_start));
        }
    }
}
