//! Fetch: the one request that consumers and followers share.
//!
//! Header of the path: the session turns the request into a context; the replica manager reads, or
//! parks and reads again; the session picks what an incremental answer carries; records leave as file
//! regions. Versions: 7 sessions; 9 current leader epoch; 11 rack and preferred replica; 12 last
//! fetched epoch and diverging answers; 13 topic ids; 15 replica state; 16 leader hints (KIP-951);
//! 18 the high watermark of the asker, which data partitions ignore.

use std::sync::Arc;
use std::time::Duration;

use protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use protocol::messages::{FetchRequest, FetchResponse};
use protocol::{BrokerEpoch, ErrorCode, NodeId, Records};
use replication::fetch_session::{FetchContext, SessionRequest, TopicKey};
use replication::partition::{FetchIsolation, FetchReader};
use storage::Disk;

use crate::core::directory::Directory;
use crate::core::replicas::{FetchParams, FetchResult};
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

/// The first version in which any replica may answer a consumer.
const FIRST_FOLLOWER_FETCH_VERSION: i16 = 11;
/// The first version whose answer has room for who leads instead.
const FIRST_LEADER_HINT_VERSION: i16 = 16;
/// The first version that names topics by id.
const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// The last version that knows no storage error.
const LAST_WITHOUT_STORAGE_ERROR: i16 = 5;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: FetchRequest,
    reply: Responder,
) {
    let version = context.api_version;
    let Some(params) = params(&request, context) else {
        return super::answer(reply, all_refused(request, version, ErrorCode::UnknownServerError));
    };
    let is_follower = matches!(params.reader, FetchReader::Replica(_));
    let session = SessionRequest::from_fetch(&request, version, is_follower);
    let now = core.host.clock.now().monotonic;
    let fetch_context = core.replicas.sessions().new_context(session, now);
    if let Some(error) = fetch_context.error_reply() {
        let response = FetchResponse {
            error_code: error.error_code,
            session_id: error.session_id.get(),
            ..FetchResponse::default()
        };
        return super::answer(reply, response);
    }
    // A follower knows the endpoints from the metadata; who leads is told to it as to a consumer.
    let hints_for =
        (!is_follower && version >= FIRST_LEADER_HINT_VERSION).then(|| context.listener.clone());
    let core_for_reply = core.clone();
    let on_done = Box::new(move |context: FetchContext, results: Vec<FetchResult>| {
        let response = close(&core_for_reply, context, results, version, hints_for.as_deref());
        reply(Outcome::Answer(response.into()));
    });
    let parked = core.replicas.fetch(params, fetch_context, on_done);
    context.cancel_with_client(parked);
}

/// What the request asks for; `None` when its isolation level does not exist (F03).
fn params(request: &FetchRequest, context: &CallContext) -> Option<FetchParams> {
    let version = context.api_version;
    let (replica_id, replica_epoch) = if version >= 15 {
        (request.replica_state.replica_id, request.replica_state.replica_epoch)
    } else {
        (request.replica_id, -1)
    };
    let reader = if replica_id >= 0 {
        FetchReader::Replica(NodeId(replica_id))
    } else if version >= FIRST_FOLLOWER_FETCH_VERSION {
        FetchReader::Consumer
    } else {
        FetchReader::OldConsumer
    };
    let isolation = match (reader, request.isolation_level) {
        (FetchReader::Replica(_), _) => FetchIsolation::LogEnd,
        (_, 0) => FetchIsolation::HighWatermark,
        (_, 1) => FetchIsolation::TransactionCommitted,
        _ => return None,
    };
    Some(FetchParams {
        version,
        reader,
        replica_epoch: BrokerEpoch(replica_epoch),
        isolation,
        max_wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)),
        min_bytes: request.min_bytes,
        max_bytes: request.max_bytes,
        client_rack: request.rack_id.clone(),
        listener: context.listener.clone(),
    })
}

/// One error for the whole request, at the top and, before topic ids, for each partition: versions below
/// 7 have no error at the top, and a client of one would take an answer without partitions for no news.
fn all_refused(request: FetchRequest, version: i16, error: ErrorCode) -> FetchResponse {
    let refused = |index| PartitionData {
        partition_index: index,
        error_code: error.code(),
        high_watermark: -1,
        records: Some(Records::empty()),
        ..PartitionData::default()
    };
    let named = if version < FIRST_TOPIC_ID_VERSION { request.topics } else { Vec::new() };
    let topics = named.into_iter().map(|topic| FetchableTopicResponse {
        topic: topic.topic,
        partitions: topic.partitions.iter().map(|wanted| refused(wanted.partition)).collect(),
        ..FetchableTopicResponse::default()
    });
    FetchResponse {
        error_code: error.code(),
        responses: topics.collect(),
        ..FetchResponse::default()
    }
}

/// Closes the session's part and builds the answer; `hints_for` names the listener whose endpoints the
/// answer may give.
fn close<D: Disk>(
    core: &BrokerCore<D>,
    mut context: FetchContext,
    mut results: Vec<FetchResult>,
    version: i16,
    hints_for: Option<&str>,
) -> FetchResponse {
    let now = core.host.clock.now().monotonic;
    let session = context.finish(core.replicas.sessions(), &mut results, now);
    let mut leaders: Vec<NodeId> = Vec::new();
    let mut responses: Vec<FetchableTopicResponse> = Vec::new();
    for result in results {
        if let Some((leader, _)) = result.current_leader
            && !leaders.contains(&leader)
        {
            leaders.push(leader);
        }
        push(&mut responses, result, version);
    }
    let directory = core.directory();
    FetchResponse {
        error_code: session.error_code,
        session_id: session.session_id.get(),
        responses,
        node_endpoints: hints_for
            .map(|listener| endpoints(&directory, listener, &leaders))
            .unwrap_or_default(),
        ..FetchResponse::default()
    }
}

/// Adds a partition to the answer, under its topic if that is the last one.
fn push(responses: &mut Vec<FetchableTopicResponse>, result: FetchResult, version: i16) {
    let belongs = |topic: &FetchableTopicResponse| match &result.key.topic {
        TopicKey::Id(id) => topic.topic_id == *id,
        TopicKey::Name(name) => topic.topic.as_str() == name.as_ref(),
    };
    if !responses.last().is_some_and(belongs) {
        let mut topic = FetchableTopicResponse::default();
        match &result.key.topic {
            TopicKey::Id(id) => topic.topic_id = *id,
            TopicKey::Name(name) => topic.topic = name.to_string(),
        }
        responses.push(topic);
    }
    if let Some(topic) = responses.last_mut() {
        topic.partitions.push(partition_data(result, version));
    }
}

fn partition_data(result: FetchResult, version: i16) -> PartitionData {
    let mut error = result.error;
    if error == ErrorCode::KafkaStorageError && version <= LAST_WITHOUT_STORAGE_ERROR {
        error = ErrorCode::NotLeaderOrFollower;
    }
    let mut data = PartitionData {
        partition_index: result.key.partition,
        error_code: error.code(),
        high_watermark: result.high_watermark.get(),
        last_stable_offset: result.last_stable_offset.get(),
        log_start_offset: result.log_start_offset.get(),
        aborted_transactions: result.aborted_transactions.map(|aborted| {
            aborted
                .iter()
                .map(|transaction| AbortedTransaction {
                    producer_id: transaction.producer_id.get(),
                    first_offset: transaction.first_offset.get(),
                    ..AbortedTransaction::default()
                })
                .collect()
        }),
        preferred_read_replica: result.preferred_read_replica.unwrap_or(NodeId::NONE).get(),
        records: Some(result.records),
        ..PartitionData::default()
    };
    if let Some(diverging) = result.diverging_epoch
        && version >= 12
    {
        data.diverging_epoch = EpochEndOffset {
            epoch: diverging.epoch.get(),
            end_offset: diverging.end_offset.get(),
            ..EpochEndOffset::default()
        };
    }
    if let Some((leader, epoch)) = result.current_leader
        && version >= FIRST_LEADER_HINT_VERSION
    {
        data.current_leader = LeaderIdAndEpoch {
            leader_id: leader.get(),
            leader_epoch: epoch.get(),
            ..LeaderIdAndEpoch::default()
        };
    }
    data
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
mod quiet_tests;

#[cfg(test)]
mod tests {
    use protocol::messages::fetch_request::{FetchPartition, FetchTopic};

    use super::*;
    use crate::handlers::testing::{TestBroker, topic_id};

    /// Measured on Kafka 4.4.0, with these offsets and an empty list of aborted transactions.
    #[test]
    fn f03_an_isolation_level_that_does_not_exist_is_an_error_of_every_partition() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        for version in [4, 6, 7, 12] {
            let wanted = |partition| FetchPartition { partition, ..FetchPartition::default() };
            let request = FetchRequest {
                isolation_level: 2,
                topics: vec![FetchTopic {
                    topic: "t".into(),
                    topic_id: topic_id(1),
                    partitions: vec![wanted(0), wanted(9)],
                    ..FetchTopic::default()
                }],
                ..FetchRequest::default()
            };
            let response = broker.ask(version, request);
            assert_eq!(response.error_code, -1);
            let told = response.responses[0].partitions.iter().map(|told| {
                assert_eq!(told.records.as_ref().map(Records::len), Some(0));
                assert_eq!(told.aborted_transactions.as_deref(), Some(&[][..]));
                (
                    told.partition_index,
                    told.error_code,
                    told.high_watermark,
                    told.last_stable_offset,
                    told.log_start_offset,
                )
            });
            let told: Vec<_> = told.collect();
            assert_eq!(told, [(0, -1, -1, -1, -1), (9, -1, -1, -1, -1)], "version {version}");
        }
        for version in [13, 18] {
            let request = FetchRequest { isolation_level: 2, ..asking(FetchPartition::default()) };
            let response = broker.ask(version, request);
            assert_eq!((response.error_code, response.responses.len()), (-1, 0));
        }
    }

    fn asking(partition: FetchPartition) -> FetchRequest {
        let topic = FetchTopic {
            topic: "t".into(),
            topic_id: topic_id(1),
            partitions: vec![partition],
            ..FetchTopic::default()
        };
        FetchRequest { max_bytes: 1000, topics: vec![topic], ..FetchRequest::default() }
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn e01_any_negative_leader_epoch_asks_for_no_check() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        for (current, last_fetched, error) in [(-1, -1, 0), (-2, -1, 0), (-1, -2, 0), (4, -1, 74)] {
            let response = broker.ask(
                12,
                asking(FetchPartition {
                    current_leader_epoch: current,
                    last_fetched_epoch: last_fetched,
                    ..FetchPartition::default()
                }),
            );
            let told = &response.responses[0].partitions[0];
            assert_eq!(told.error_code, error, "{current} {last_fetched}");
            assert_eq!(told.diverging_epoch.epoch, -1);
        }
    }

    /// KIP-951; measured on Kafka 4.4.0.
    #[test]
    fn a_follower_is_told_who_leads_and_only_a_consumer_also_where() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1, 2])]);
        for (replica_id, endpoints) in [(-1, 1), (2, 0)] {
            let mut request =
                asking(FetchPartition { current_leader_epoch: 4, ..FetchPartition::default() });
            request.replica_state.replica_id = replica_id;
            let response = broker.ask(16, request);
            let told = &response.responses[0].partitions[0];
            assert_eq!((told.error_code, told.current_leader.leader_id), (74, 1));
            assert_eq!(response.node_endpoints.len(), endpoints, "replica {replica_id}");
        }
    }
}
