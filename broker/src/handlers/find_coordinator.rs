//! FindCoordinator: which broker answers for a group or a transaction: the leader of the partition of
//! the coordinators' topic that the key falls into.
//!
//! Versions: 0 knows groups only; 1 key types and an error message; 3 is flexible; 4 takes many keys at
//! once and answers by key; 5 changes errors for transactions that this broker never gives; 6 knows
//! share groups. Key type 2 (share) is not served: INVALID_REQUEST, what Kafka says where share groups
//! are off; so is any other type. Any text is a key, the empty one too: what a coordinator thinks of an
//! empty group id it says itself.
//!
//! A topic that is missing is created, and until it has a leader that the client can reach the answer is
//! COORDINATOR_NOT_AVAILABLE, which clients retry.

use std::sync::Arc;

use protocol::messages::find_coordinator_response::Coordinator;
use protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use protocol::{ErrorCode, NodeId};
use storage::Disk;

use super::create_topics::create_missing;
use crate::core::directory::Directory;
use crate::core::internal_topics::{GROUP_TOPIC, TRANSACTION_TOPIC, partition_of};
use crate::core::{BrokerCore, CallContext, Responder};

/// The first version that answers by key.
const FIRST_BATCHED: i16 = 4;

/// A broker, or why there is none.
type Found = Result<(NodeId, Arc<str>, u16), ErrorCode>;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: FindCoordinatorRequest,
    reply: Responder,
) {
    let directory = core.directory();
    let find = |key: &str| find(&directory, &context.listener, request.key_type, key);
    let response = if context.api_version >= FIRST_BATCHED {
        let coordinators =
            request.coordinator_keys.iter().map(|key| by_key(key, find(key), request.key_type));
        let coordinators = coordinators.collect();
        FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() }
    } else {
        single(find(&request.key), context.api_version)
    };
    let is_asked = context.api_version < FIRST_BATCHED || !request.coordinator_keys.is_empty();
    if is_asked
        && let Some(topic) = topic_of(request.key_type)
        && directory.image.topic_by_name(topic).is_none()
    {
        create_missing(core, &[topic.to_owned()]);
    }
    super::answer(reply, response);
}

/// The topic that keeps the state of coordinators of this type.
fn topic_of(key_type: i8) -> Option<&'static str> {
    match key_type {
        0 => Some(GROUP_TOPIC),
        1 => Some(TRANSACTION_TOPIC),
        _ => None,
    }
}

fn find(directory: &Directory, listener: &str, key_type: i8, key: &str) -> Found {
    let topic = topic_of(key_type).ok_or(ErrorCode::InvalidRequest)?;
    let unavailable = ErrorCode::CoordinatorNotAvailable;
    let topic = directory.image.topic_by_name(topic).ok_or(unavailable)?;
    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    let index = partition_of(key, count).ok_or(unavailable)?;
    let partition = topic.partitions.get(&index).ok_or(unavailable)?;
    let (host, port) = directory.endpoint(partition.leader, listener).ok_or(unavailable)?;
    Ok((partition.leader, host, port))
}

/// Types of keys that Kafka has: groups, transactions, shares.
const KEY_TYPES: std::ops::RangeInclusive<i8> = 0..=2;

fn by_key(key: &str, found: Found, key_type: i8) -> Coordinator {
    match found {
        Ok((node, host, port)) => Coordinator {
            key: key.to_owned(),
            node_id: node.get(),
            host: host.to_string(),
            port: i32::from(port),
            ..Coordinator::default()
        },
        Err(error) => Coordinator {
            key: key.to_owned(),
            node_id: -1,
            port: -1,
            error_code: error.code(),
            error_message: match KEY_TYPES.contains(&key_type) {
                true => Some(String::new()),
                false => Some(format!("there is no coordinator of type {key_type}")),
            },
            ..Coordinator::default()
        },
    }
}

fn single(found: Found, version: i16) -> FindCoordinatorResponse {
    // Version 0 has no message; later ones carry the error's name even when there is none, as Kafka's do.
    let message = |error: ErrorCode| (version >= 1).then(|| error.kafka_name().to_owned());
    match found {
        Ok((node, host, port)) => FindCoordinatorResponse {
            error_message: message(ErrorCode::None),
            node_id: node.get(),
            host: host.to_string(),
            port: i32::from(port),
            ..FindCoordinatorResponse::default()
        },
        Err(error) => FindCoordinatorResponse {
            error_code: error.code(),
            error_message: message(error),
            node_id: -1,
            port: -1,
            ..FindCoordinatorResponse::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use protocol::RequestBody;
    use protocol::messages::{CreateTopicsResponse, FindCoordinatorRequest};

    use super::*;
    use crate::handlers::testing::TestBroker;

    fn batched(key_type: i8, keys: &[&str]) -> FindCoordinatorRequest {
        FindCoordinatorRequest {
            key_type,
            coordinator_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..FindCoordinatorRequest::default()
        }
    }

    #[test]
    fn a_missing_topic_is_created_once_and_the_coordinator_is_not_available_meanwhile() {
        let broker = TestBroker::new();
        for _ in 0..2 {
            let response = broker.ask(4, batched(0, &["g", "h"]));
            let errors: Vec<i16> =
                response.coordinators.iter().map(|found| found.error_code).collect();
            assert_eq!(errors, [15, 15]);
            assert_eq!((response.coordinators[0].node_id, response.coordinators[0].port), (-1, -1));
        }
        let call = broker.one_call();
        assert!(matches!(&call.request, RequestBody::CreateTopics(request)
                if request.topics[0].name == "__consumer_offsets"));
        call.answer(CreateTopicsResponse::default());
    }

    #[test]
    fn the_leader_of_the_keys_partition_is_named_by_the_listener_that_the_client_uses() {
        let broker = TestBroker::new();
        broker.add_topic("__consumer_offsets", 7, &[(1, &[1]), (2, &[2]), (3, &[3]), (-1, &[3])]);
        let by_partition = |wanted: i32| {
            let keys = (0..100).map(|at| format!("g{at}"));
            keys.into_iter().find(|key| partition_of(key, 4) == Some(wanted)).unwrap()
        };
        let keys: Vec<String> = (0..4).map(by_partition).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let response = broker.ask(4, batched(0, &keys));
        let found: Vec<(&str, i32, &str, i32, i16)> = response
            .coordinators
            .iter()
            .map(|f| (f.key.as_str(), f.node_id, f.host.as_str(), f.port, f.error_code))
            .collect();
        assert_eq!(
            found,
            [
                (keys[0], 1, "host1", 9091, 0),
                (keys[1], 2, "host2", 9092, 0),
                // Fenced, and without a leader.
                (keys[2], -1, "", -1, 15),
                (keys[3], -1, "", -1, 15),
            ]
        );
        assert!(broker.calls().is_empty());
    }

    #[test]
    fn before_version_4_there_is_one_key_and_from_1_a_message() {
        let broker = TestBroker::new();
        broker.add_topic("__consumer_offsets", 7, &[(2, &[2])]);
        for version in 0..4 {
            let request =
                FindCoordinatorRequest { key: "g".into(), ..FindCoordinatorRequest::default() };
            let response = broker.ask(version, request);
            assert_eq!((response.error_code, response.node_id, response.port), (0, 2, 9092));
            let message = response.error_message.as_deref();
            assert_eq!(message, (version >= 1).then_some("NONE"), "version {version}");
        }
    }

    #[test]
    fn types_that_are_not_served_are_invalid_and_create_nothing() {
        let broker = TestBroker::new();
        for key_type in [2, 9] {
            let response = broker.ask(6, batched(key_type, &["x"]));
            assert_eq!(response.coordinators[0].error_code, ErrorCode::InvalidRequest.code());
        }
        assert!(broker.ask(4, batched(0, &[])).coordinators.is_empty());
        assert!(broker.calls().is_empty());
    }
}
