//! Requests that only the active controller can answer: sent there, and its answer handed on.
//!
//! DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
//! ListPartitionReassignments, DescribeQuorum, UpdateFeatures; CreateTopics comes by way of `create_topics.rs`, the
//! changes of configs by way of `alter_configs.rs`. The request goes in the client's version and the answer comes in it, so versions
//! change nothing here. The controller answers once its decision is committed; this broker's own
//! metadata may show it a moment later, as in Kafka.
//!
//! No answer: every item (or the top level, where the API has one) says REQUEST_TIMED_OUT. The request
//! may have had its effect. A request's `timeout_ms` shortens the wait; with none or a negative one the
//! request has timed out before anything was done for it, as with Kafka, but for a list, which changes nothing.

use std::time::Duration;

use protocol::{ErrorCode, RequestBody, ResponseBody};
use storage::Disk;

use super::no_answer;
use crate::core::host::CallError;
use crate::core::{BrokerCore, Outcome, Responder};

/// Sends a request to the active controller; its answer, or one that says why there is none, goes to
/// `reply`.
pub(super) fn to_controller<D: Disk>(
    core: &BrokerCore<D>,
    version: i16,
    request: RequestBody,
    reply: Responder,
) {
    let asked = request.clone();
    let Some(timeout) = timeout_of(&request, core.config.request_timeout) else {
        return super::answer(
            reply,
            no_answer::response(&asked, version, ErrorCode::RequestTimedOut),
        );
    };
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

/// How long the controller may take: what the request says, if it says anything, within `limit`. `None`
/// when the request leaves it no time.
fn timeout_of(request: &RequestBody, limit: Duration) -> Option<Duration> {
    let wanted = match request {
        RequestBody::CreateTopics(request) => request.timeout_ms,
        RequestBody::DeleteTopics(request) => request.timeout_ms,
        RequestBody::CreatePartitions(request) => request.timeout_ms,
        RequestBody::ElectLeaders(request) => request.timeout_ms,
        RequestBody::UpdateFeatures(request) => request.timeout_ms,
        RequestBody::AlterPartitionReassignments(request) => request.timeout_ms,
        RequestBody::ListPartitionReassignments(request) if request.timeout_ms > 0 => {
            request.timeout_ms
        }
        _ => return Some(limit),
    };
    let millis = u64::try_from(wanted).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis).min(limit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::messages::delete_topics_request::DeleteTopicState;
    use protocol::messages::delete_topics_response::DeletableTopicResult;
    use protocol::messages::{
        DeleteTopicsRequest, DeleteTopicsResponse, DescribeQuorumRequest, ElectLeadersRequest,
        IncrementalAlterConfigsResponse, ListPartitionReassignmentsRequest,
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
    fn the_requests_timeout_holds_within_the_brokers_own() {
        let broker = TestBroker::new();
        for (asked_ms, waited_s) in [(1_000, 1), (60_000, 30)] {
            let _inbox = broker.send(6, delete("t", asked_ms));
            assert_eq!(broker.one_call().timeout, Duration::from_secs(waited_s), "{asked_ms}");
        }
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn a_request_without_time_has_timed_out_before_anything_was_done_but_a_list_has_the_brokers_own()
     {
        let broker = TestBroker::new();
        for timeout_ms in [0, -1] {
            let response = broker.ask(6, delete("t", timeout_ms));
            assert_eq!(response.responses[0].error_code, ErrorCode::RequestTimedOut.code());
            assert!(broker.calls().is_empty());
            let list = ListPartitionReassignmentsRequest { timeout_ms, ..Default::default() };
            let _inbox = broker.send(0, list);
            assert_eq!(broker.one_call().timeout, Duration::from_secs(30));
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
