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
        return super::answer(
            reply,
            AlterConfigsResponse {
                responses: places.into_iter().flatten().collect(),
                ..AlterConfigsResponse::default()
            },
        );
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
        return super::answer(
            reply,
            IncrementalAlterConfigsResponse {
                responses: places.into_iter().flatten().collect(),
                ..IncrementalAlterConfigsResponse::default()
            },
        );
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::messages::alter_configs_request::AlterConfigsResource as PlainResource;
    use protocol::messages::delete_topics_request::DeleteTopicState;
    use protocol::messages::delete_topics_response::DeletableTopicResult;
    use protocol::messages::incremental_alter_configs_request::AlterConfigsResource;
    use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
    use protocol::messages::{
        AlterConfigsRequest, DeleteTopicsRequest, DeleteTopicsResponse, DescribeQuorumRequest,
        ElectLeadersRequest, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    };
    use protocol::{ErrorCode, RequestBody};

    use crate::core::host::CallError;
    use crate::handlers::testing::{TestBroker, answer_of};

    fn delete(name: &str, timeout_ms: i32) -> DeleteTopicsRequest {
        DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.into()),
                ..DeleteTopicState::default()
            }],
            timeout_ms,
            ..DeleteTopicsRequest::default()
        }
    }

    #[test]
    fn the_controller_gets_the_request_as_it_came_and_its_answer_goes_back_as_it_is() {
        let broker = TestBroker::new();
        let inbox = broker.send(6, delete("t", 5_000));
        assert!(inbox.take().is_none(), "answered before the controller");
        let call = broker.one_call();
        assert_eq!((call.version, call.timeout), (6, Duration::from_secs(5)));
        assert_eq!(call.request, RequestBody::DeleteTopics(delete("t", 5_000)));
        let decided = DeleteTopicsResponse {
            responses: vec![DeletableTopicResult {
                name: Some("t".into()),
                error_code: ErrorCode::UnknownTopicOrPartition.code(),
                ..DeletableTopicResult::default()
            }],
            ..DeleteTopicsResponse::default()
        };
        call.answer(decided.clone());
        assert_eq!(answer_of::<DeleteTopicsRequest>(&inbox, 6), decided);
    }

    #[test]
    fn the_requests_timeout_holds_within_the_brokers_own_and_none_means_the_brokers() {
        let broker = TestBroker::new();
        for (asked_ms, waited_s) in [(1_000, 1), (60_000, 30), (0, 30), (-1, 30)] {
            let _inbox = broker.send(6, delete("t", asked_ms));
            assert_eq!(broker.one_call().timeout, Duration::from_secs(waited_s), "{asked_ms}");
        }
    }

    #[test]
    fn an_answer_to_another_question_is_an_unknown_error_and_not_handed_on() {
        let broker = TestBroker::new();
        let inbox = broker.send(6, delete("t", 1_000));
        broker.one_call().answer(IncrementalAlterConfigsResponse::default());
        let response = answer_of::<DeleteTopicsRequest>(&inbox, 6);
        assert_eq!(response.responses[0].error_code, ErrorCode::UnknownServerError.code());
    }

    #[test]
    fn loggers_are_refused_here_and_the_answers_keep_the_requests_order() {
        let broker = TestBroker::new();
        let resource = |resource_type: i8, name: &str| AlterConfigsResource {
            resource_type,
            resource_name: name.into(),
            ..AlterConfigsResource::default()
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource(2, "a"), resource(8, "1"), resource(2, "b")],
            ..IncrementalAlterConfigsRequest::default()
        };
        let inbox = broker.send(1, request);
        let call = broker.one_call();
        let RequestBody::IncrementalAlterConfigs(forwarded) = &call.request else {
            panic!("not forwarded: {:?}", call.request);
        };
        let names: Vec<_> = forwarded.resources.iter().map(|r| r.resource_name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let decided = |name: &str| AlterConfigsResourceResponse {
            resource_type: 2,
            resource_name: name.into(),
            ..AlterConfigsResourceResponse::default()
        };
        call.answer(IncrementalAlterConfigsResponse {
            responses: vec![decided("a"), decided("b")],
            ..IncrementalAlterConfigsResponse::default()
        });
        let response = answer_of::<IncrementalAlterConfigsRequest>(&inbox, 1);
        let answered: Vec<_> =
            response.responses.iter().map(|r| (r.resource_name.as_str(), r.error_code)).collect();
        assert_eq!(answered, [("a", 0), ("1", ErrorCode::InvalidRequest.code()), ("b", 0)]);
    }

    #[test]
    fn a_request_about_loggers_alone_asks_nobody() {
        let broker = TestBroker::new();
        let request = AlterConfigsRequest {
            resources: vec![PlainResource {
                resource_type: 8,
                resource_name: "1".into(),
                ..PlainResource::default()
            }],
            ..AlterConfigsRequest::default()
        };
        let response = broker.ask(2, request);
        assert_eq!(response.responses[0].error_code, ErrorCode::InvalidRequest.code());
        assert!(broker.calls().is_empty());
    }

    #[test]
    fn without_a_controller_each_api_says_it_where_it_can() {
        let broker = TestBroker::new();
        let timed_out = ErrorCode::RequestTimedOut.code();

        let inbox = broker.send(2, DescribeQuorumRequest::default());
        broker.one_call().fail(CallError::TimedOut);
        assert_eq!(answer_of::<DescribeQuorumRequest>(&inbox, 2).error_code, timed_out);

        let inbox = broker.send(2, ElectLeadersRequest::default());
        broker.one_call().fail(CallError::TimedOut);
        assert_eq!(answer_of::<ElectLeadersRequest>(&inbox, 2).error_code, timed_out);

        let inbox = broker.send(6, delete("t", 1));
        broker.one_call().fail(CallError::Failed("gone".into()));
        let response = answer_of::<DeleteTopicsRequest>(&inbox, 6);
        assert_eq!(response.responses[0].error_code, ErrorCode::UnknownServerError.code());
    }
}
