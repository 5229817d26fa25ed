//! What a line of the request log says of a request and its answer. Fetch and Produce are told with their
//! partitions, as these are what one looks for; of other APIs the answer's errors are told. Records and
//! other bytes are told by their size alone, and what may be secret (config values) not at all.

use std::collections::BTreeMap;

use protocol::messages::{
    FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, RequestBody, ResponseBody,
};
use protocol::{ErrorCode, Records, Uuid};
use serde_json::{Value, json};

/// Partitions told in one line; more are only counted.
const MOST_PARTITIONS: usize = 100;

/// The request, in the names of Kafka's schemas.
pub(super) fn request(body: &RequestBody, version: i16) -> Value {
    match body {
        RequestBody::Fetch(request) => fetch_request(request, version),
        RequestBody::Produce(request) => produce_request(request),
        _ => json!({}),
    }
}

/// The answer, likewise.
pub(super) fn response(body: &ResponseBody) -> Value {
    match body {
        ResponseBody::Fetch(response) => fetch_response(response),
        ResponseBody::Produce(response) => produce_response(response),
        other => errors(other),
    }
}

/// How often which error, by name; the same place for every API without a form of its own.
fn errors(response: &ResponseBody) -> Value {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    response.visit_errors(&mut |code| {
        *counts.entry(ErrorCode::from_code(code).kafka_name()).or_default() += 1;
    });
    json!({ "errorCounts": counts })
}

/// Lists topics with their partitions, up to the bound, and says how many were left out.
fn topics<'a, T: 'a, P: 'a>(
    topics: impl IntoIterator<Item = &'a T>,
    name: impl Fn(&T) -> (&str, &Uuid),
    partitions: impl Fn(&'a T) -> &'a [P],
    describe: impl Fn(&P) -> Value,
) -> (Vec<Value>, usize) {
    let (mut told, mut left, mut left_out) = (Vec::new(), MOST_PARTITIONS, 0);
    for topic in topics {
        let all = partitions(topic);
        let some = &all[..all.len().min(left)];
        left -= some.len();
        left_out += all.len() - some.len();
        if some.is_empty() && !all.is_empty() {
            continue;
        }
        let mut value = match name(topic) {
            (name, id) if id.is_zero() => json!({ "topic": name }),
            (_, id) => json!({ "topicId": id.to_base64() }),
        };
        value["partitions"] = some.iter().map(&describe).collect();
        told.push(value);
    }
    (told, left_out)
}

fn with_left_out(mut value: Value, left_out: usize) -> Value {
    if left_out > 0 {
        value["partitionsLeftOut"] = left_out.into();
    }
    value
}

fn size_of(records: Option<&Records>) -> usize {
    records.map_or(0, Records::len)
}

fn fetch_request(request: &FetchRequest, version: i16) -> Value {
    let (told, left_out) = topics(
        &request.topics,
        |topic| (topic.topic.as_str(), &topic.topic_id),
        |topic| &topic.partitions,
        |partition| {
            json!({
                "partition": partition.partition,
                "currentLeaderEpoch": partition.current_leader_epoch,
                "fetchOffset": partition.fetch_offset,
                "lastFetchedEpoch": partition.last_fetched_epoch,
                "partitionMaxBytes": partition.partition_max_bytes,
            })
        },
    );
    let forgotten = request.forgotten_topics_data.iter().map(|topic| topic.partitions.len());
    let replica = if version >= 15 { request.replica_state.replica_id } else { request.replica_id };
    with_left_out(
        json!({
            "replicaId": replica,
            "maxWaitMs": request.max_wait_ms,
            "minBytes": request.min_bytes,
            "maxBytes": request.max_bytes,
            "isolationLevel": request.isolation_level,
            "sessionId": request.session_id,
            "sessionEpoch": request.session_epoch,
            "topics": told,
            "forgottenPartitions": forgotten.sum::<usize>(),
            "rackId": request.rack_id,
        }),
        left_out,
    )
}

fn fetch_response(response: &FetchResponse) -> Value {
    let (told, left_out) = topics(
        &response.responses,
        |topic| (topic.topic.as_str(), &topic.topic_id),
        |topic| &topic.partitions,
        |partition| {
            json!({
                "partitionIndex": partition.partition_index,
                "errorCode": partition.error_code,
                "highWatermark": partition.high_watermark,
                "lastStableOffset": partition.last_stable_offset,
                "logStartOffset": partition.log_start_offset,
                "preferredReadReplica": partition.preferred_read_replica,
                "recordsSizeInBytes": size_of(partition.records.as_ref()),
            })
        },
    );
    with_left_out(
        json!({
            "errorCode": response.error_code,
            "sessionId": response.session_id,
            "responses": told,
        }),
        left_out,
    )
}

fn produce_request(request: &ProduceRequest) -> Value {
    let (told, left_out) = topics(
        &request.topic_data,
        |topic| (topic.name.as_str(), &topic.topic_id),
        |topic| &topic.partition_data,
        |partition| {
            json!({
                "index": partition.index,
                "recordsSizeInBytes": size_of(partition.records.as_ref()),
            })
        },
    );
    with_left_out(
        json!({
            "transactionalId": request.transactional_id,
            "acks": request.acks,
            "timeoutMs": request.timeout_ms,
            "topicData": told,
        }),
        left_out,
    )
}

fn produce_response(response: &ProduceResponse) -> Value {
    let (told, left_out) = topics(
        &response.responses,
        |topic| (topic.name.as_str(), &topic.topic_id),
        |topic| &topic.partition_responses,
        |partition| {
            json!({
                "index": partition.index,
                "errorCode": partition.error_code,
                "baseOffset": partition.base_offset,
                "logAppendTimeMs": partition.log_append_time_ms,
                "logStartOffset": partition.log_start_offset,
            })
        },
    );
    with_left_out(json!({ "responses": told }), left_out)
}
