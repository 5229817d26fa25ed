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

use super::create_topics::{GROUP_TOPIC, TRANSACTION_TOPIC, create_missing};
use crate::core::directory::Directory;
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
            request.coordinator_keys.iter().map(|key| by_key(key, find(key))).collect();
        FindCoordinatorResponse {
            coordinators,
            ..FindCoordinatorResponse::default()
        }
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

/// The partition that a key belongs to: clients and brokers of Kafka compute the same. `None` when the
/// topic has no partitions.
pub(crate) fn partition_of(key: &str, partitions: i32) -> Option<i32> {
    let hash = java_hash(key);
    // Java's absolute value, and 0 for the one number that has none.
    let positive = hash.checked_abs().unwrap_or(0);
    positive.checked_rem(partitions)
}

/// `String.hashCode` of Java: over UTF-16 units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

fn by_key(key: &str, found: Found) -> Coordinator {
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
