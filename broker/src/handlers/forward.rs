//! Requests that only the active controller can answer: sent there, and its answer handed on.
//!
//! DeleteTopics, CreatePartitions, ElectLeaders, AlterConfigs, IncrementalAlterConfigs,
//! AlterPartitionReassignments, ListPartitionReassignments, DescribeQuorum; CreateTopics comes by way of
//! `create_topics.rs`. The request goes in the client's version and the answer comes in it, so versions
//! change nothing here. The controller answers once its decision is committed; this broker's own
//! metadata may show it a moment later, as in Kafka.
//!
//! No answer: every item (or the top level, where the API has one) says REQUEST_TIMED_OUT. The request
//! may have had its effect. A request's `timeout_ms` shortens the wait when it is positive.
//!
//! Config resources of type BROKER_LOGGER never reach the controller: log levels belong to one process,
//! and this one fixes them at its start (`RUST_LOG`), so they are refused with INVALID_REQUEST.

use std::sync::Arc;
use std::time::Duration;

use controller::ConfigResourceType;
use protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterResult;
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResult;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use protocol::{ErrorCode, RequestBody, ResponseBody};
use storage::Disk;

use super::no_answer;
use crate::core::host::CallError;
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

const LOGGERS_REFUSED: &str =
    "this broker's log levels are set at its start and cannot be changed by a request";

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: RequestBody,
    reply: Responder,
) {
    match request {
        RequestBody::AlterConfigs(request) => alter(core, context, request, reply),
        RequestBody::IncrementalAlterConfigs(request) => {
            alter_incrementally(core, context, request, reply);
        }
        request => to_controller(core, context.api_version, request, reply),
    }
}

/// Sends a request to the active controller; its answer, or one that says why there is none, goes to
/// `reply`.
pub(super) fn to_controller<D: Disk>(
    core: &BrokerCore<D>,
    version: i16,
    request: RequestBody,
    reply: Responder,
) {
    let asked = request.clone();
    let timeout = timeout_of(&request, core.config.request_timeout);
    let on_answer = Box::new(move |answer: Result<ResponseBody, CallError>| {
        let response = match answer {
            Ok(response) if response.api_key() == asked.api_key() => response,
            Ok(response) => {
                tracing::error!(
                    asked = ?asked.api_key(),
                    answered = ?response.api_key(),
                    "the controller answered another question"
                );
                no_answer::response(&asked, version, ErrorCode::UnknownServerError)
            }
            Err(error) => {
                tracing::warn!(api_key = ?asked.api_key(), %error, "a forwarded request failed");
                no_answer::response(&asked, version, no_answer::code_of(&error))
            }
        };
        reply(Outcome::Answer(response));
    });
    core.host.controller.call(version, request, timeout, on_answer);
}

/// How long the controller may take: what the request says, if it says anything, within `limit`.
fn timeout_of(request: &RequestBody, limit: Duration) -> Duration {
    let wanted = match request {
        RequestBody::CreateTopics(request) => request.timeout_ms,
        RequestBody::DeleteTopics(request) => request.timeout_ms,
        RequestBody::CreatePartitions(request) => request.timeout_ms,
        RequestBody::ElectLeaders(request) => request.timeout_ms,
        RequestBody::AlterPartitionReassignments(request) => request.timeout_ms,
        RequestBody::ListPartitionReassignments(request) => request.timeout_ms,
        _ => 0,
    };
    match u64::try_from(wanted) {
        Ok(0) | Err(_) => limit,
        Ok(millis) => Duration::from_millis(millis).min(limit),
    }
}

fn is_logger(resource_type: i8) -> bool {
    resource_type == ConfigResourceType::BrokerLogger.code()
}

/// AlterConfigs, without the resources that are answered here. Results keep the request's order.
fn alter<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    mut request: AlterConfigsRequest,
    reply: Responder,
) {
    let version = context.api_version;
    if !request.resources.iter().any(|resource| is_logger(resource.resource_type)) {
        return to_controller(core, version, request.into(), reply);
    }
    let places: Vec<Option<AlterResult>> = request
        .resources
        .iter()
        .map(|resource| {
            is_logger(resource.resource_type).then(|| AlterResult {
                error_code: ErrorCode::InvalidRequest.code(),
                error_message: Some(LOGGERS_REFUSED.to_owned()),
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..AlterResult::default()
            })
        })
        .collect();
    request.resources.retain(|resource| !is_logger(resource.resource_type));
    if request.resources.is_empty() {
        return super::answer(reply, AlterConfigsResponse {
            responses: places.into_iter().flatten().collect(),
            ..AlterConfigsResponse::default()
        });
    }
    let merged: Responder = Box::new(move |outcome| {
        reply(match outcome {
            Outcome::Answer(ResponseBody::AlterConfigs(mut response)) => {
                response.responses = merge(places, response.responses);
                Outcome::Answer(response.into())
            }
            other => other,
        });
    });
    to_controller(core, version, request.into(), merged);
}

/// IncrementalAlterConfigs, likewise.
fn alter_incrementally<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    mut request: IncrementalAlterConfigsRequest,
    reply: Responder,
) {
    let version = context.api_version;
    if !request.resources.iter().any(|resource| is_logger(resource.resource_type)) {
        return to_controller(core, version, request.into(), reply);
    }
    let places: Vec<Option<IncrementalResult>> = request
        .resources
        .iter()
        .map(|resource| {
            is_logger(resource.resource_type).then(|| IncrementalResult {
                error_code: ErrorCode::InvalidRequest.code(),
                error_message: Some(LOGGERS_REFUSED.to_owned()),
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..IncrementalResult::default()
            })
        })
        .collect();
    request.resources.retain(|resource| !is_logger(resource.resource_type));
    if request.resources.is_empty() {
        return super::answer(reply, IncrementalAlterConfigsResponse {
            responses: places.into_iter().flatten().collect(),
            ..IncrementalAlterConfigsResponse::default()
        });
    }
    let merged: Responder = Box::new(move |outcome| {
        reply(match outcome {
            Outcome::Answer(ResponseBody::IncrementalAlterConfigs(mut response)) => {
                response.responses = merge(places, response.responses);
                Outcome::Answer(response.into())
            }
            other => other,
        });
    });
    to_controller(core, version, request.into(), merged);
}

/// Fills the empty places with what the controller answered, in order.
fn merge<T>(places: Vec<Option<T>>, answered: Vec<T>) -> Vec<T> {
    let mut answered = answered.into_iter();
    let mut merged: Vec<T> =
        places.into_iter().filter_map(|place| place.or_else(|| answered.next())).collect();
    merged.extend(answered);
    merged
}
