//! AlterConfigs (version 0 on) and IncrementalAlterConfigs (KIP-339): what only this broker can judge is
//! judged here, the rest by the controller.
//!
//! | resource | judged here |
//! |---|---|
//! | a logger | wholly, see [`super::loggers`]; AlterConfigs, which would replace all of them, is refused |
//! | a broker by id | only its own: another broker's configs are to be sent to that one |
//! | a broker by id | whether its listeners could use the keys and certificates |
//! | a broker by id, or all | how far the number of a pool's threads moves from what is in force here |
//!
//! Answers keep the request's order. What is refused for a broker is INVALID_REQUEST, as with Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::ConfigResourceType;
use controller::config::{ConfigCatalogue, ConfigResource, THREAD_COUNTS, check_thread_count};
use controller::image::ConfigMap;
use protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterResult;
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResult;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use protocol::{ErrorCode, ResponseBody};
use storage::Disk;

use super::describe_configs::broker_value;
use super::forward::to_controller;
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

const LOGGERS_REFUSED: &str = "log levels can be changed one by one only";
/// Kafka's numbers of the steps: set, delete, append, subtract.
pub(super) const SET: i8 = 0;
pub(super) const DELETE: i8 = 1;
const LAST_OPERATION: i8 = 3;

/// What a request wants of one resource.
struct Wanted<'a> {
    kind: i8,
    name: &'a str,
    steps: Vec<Step<'a>>,
    /// Whether what it does not name is removed.
    replaces: bool,
}

/// One key and what shall become of it.
pub(super) struct Step<'a> {
    pub(super) key: &'a str,
    pub(super) operation: i8,
    pub(super) value: Option<&'a str>,
}

/// What is decided here about a resource: done, or refused with a code and a message.
type Verdict = Result<(), (ErrorCode, String)>;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    mut request: AlterConfigsRequest,
    reply: Responder,
) {
    let wanted = request.resources.iter().map(|resource| Wanted {
        kind: resource.resource_type,
        name: &resource.resource_name,
        replaces: true,
        steps: resource
            .configs
            .iter()
            .map(|config| Step {
                key: &config.name,
                operation: SET,
                value: config.value.as_deref(),
            })
            .collect(),
    });
    let refuse = |_: &Wanted<'_>| Err((ErrorCode::InvalidRequest, LOGGERS_REFUSED.to_owned()));
    let verdicts = judge(core, &wanted.collect::<Vec<_>>(), refuse);
    let places = take_judged(&mut request.resources, verdicts, |resource, verdict| AlterResult {
        error_code: verdict.as_ref().err().map_or(0, |(code, _)| code.code()),
        error_message: verdict.err().map(|(_, message)| message),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..AlterResult::default()
    });
    if request.resources.is_empty() && !places.is_empty() {
        let responses = places.into_iter().flatten().collect();
        let response = AlterConfigsResponse { responses, ..AlterConfigsResponse::default() };
        return super::answer(reply, response);
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
    to_controller(core, context.api_version, request.into(), merged);
}

pub(super) fn handle_incremental<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    mut request: IncrementalAlterConfigsRequest,
    reply: Responder,
) {
    let wanted = request.resources.iter().map(|resource| Wanted {
        kind: resource.resource_type,
        name: &resource.resource_name,
        replaces: false,
        steps: resource
            .configs
            .iter()
            .map(|config| Step {
                key: &config.name,
                operation: config.config_operation,
                value: config.value.as_deref(),
            })
            .collect(),
    });
    let (node, validate_only) = (core.node.get(), request.validate_only);
    let loggers = |wanted: &Wanted<'_>| {
        super::loggers::alter(node, wanted.name, &wanted.steps, validate_only)
    };
    let verdicts = judge(core, &wanted.collect::<Vec<_>>(), loggers);
    let places =
        take_judged(&mut request.resources, verdicts, |resource, verdict| IncrementalResult {
            error_code: verdict.as_ref().err().map_or(0, |(code, _)| code.code()),
            error_message: verdict.err().map(|(_, message)| message),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            ..IncrementalResult::default()
        });
    if request.resources.is_empty() && !places.is_empty() {
        let responses = places.into_iter().flatten().collect();
        let response = IncrementalAlterConfigsResponse {
            responses,
            ..IncrementalAlterConfigsResponse::default()
        };
        return super::answer(reply, response);
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
    to_controller(core, context.api_version, request.into(), merged);
}

/// Takes the resources that are decided here out of a request; their results stand in their places.
fn take_judged<T, R>(
    resources: &mut Vec<T>,
    verdicts: Vec<Option<Verdict>>,
    result: impl Fn(&T, Verdict) -> R,
) -> Vec<Option<R>> {
    let each = verdicts.into_iter().zip(&*resources);
    let places: Vec<Option<R>> =
        each.map(|(verdict, resource)| verdict.map(|verdict| result(resource, verdict))).collect();
    let mut place = places.iter();
    resources.retain(|_| place.next().is_some_and(Option::is_none));
    places
}

/// What is decided here about each resource; `None` for those that are the controller's to judge.
fn judge<D: Disk>(
    core: &BrokerCore<D>,
    wanted: &[Wanted<'_>],
    loggers: impl Fn(&Wanted<'_>) -> Verdict,
) -> Vec<Option<Verdict>> {
    let mut seen = BTreeSet::new();
    let keys = wanted.iter().map(|resource| (resource.kind, resource.name));
    let repeated: BTreeSet<(i8, &str)> = keys.filter(|key| !seen.insert(*key)).collect();
    let judged = wanted.iter().map(|resource| {
        if repeated.contains(&(resource.kind, resource.name)) {
            return None;
        }
        match ConfigResourceType::from_code(resource.kind) {
            Some(ConfigResourceType::BrokerLogger) => Some(loggers(resource)),
            Some(ConfigResourceType::Broker) => {
                let refusal = judge_broker(core, resource).err()?;
                Some(Err((ErrorCode::InvalidRequest, refusal)))
            }
            _ => None,
        }
    });
    judged.collect()
}

fn judge_broker<D: Disk>(core: &BrokerCore<D>, resource: &Wanted<'_>) -> Result<(), String> {
    let keys: BTreeSet<&str> = resource.steps.iter().map(|step| step.key).collect();
    let lacks_value = |step: &Step<'_>| step.operation != DELETE && step.value.is_none();
    if keys.len() < resource.steps.len() || resource.steps.iter().any(lacks_value) {
        // Nonsense of any resource, which the controller refuses.
        return Ok(());
    }
    if !resource.name.is_empty() {
        let id: i32 = resource
            .name
            .parse()
            .map_err(|_| format!("Node id must be an integer, but it is: {}", resource.name))?;
        let own = core.node.get();
        if id != own {
            return Err(format!("Unexpected broker id, expected {own}, but received {id}"));
        }
    }
    for step in &resource.steps {
        if !(SET..=LAST_OPERATION).contains(&step.operation) {
            return Err(format!("Unknown operations type {}", step.operation));
        }
        if let (SET, Some(value)) = (step.operation, step.value) {
            judge_thread_count(core, step.key, value)?;
        }
    }
    match resource.name.is_empty() {
        true => Ok(()),
        false => judge_certificates(core, resource),
    }
}

/// Keys and certificates that this broker's listeners cannot use are refused; files are read for it.
fn judge_certificates<D: Disk>(core: &BrokerCore<D>, resource: &Wanted<'_>) -> Result<(), String> {
    let directory = core.directory();
    let current = directory.image.configs(&ConfigResource::broker(core.node));
    let mut after = current.filter(|_| !resource.replaces).cloned().unwrap_or_default();
    let mut changed: Vec<&str> = resource.steps.iter().map(|step| step.key).collect();
    for step in &resource.steps {
        match (step.operation, step.value) {
            (SET, Some(value)) => after.insert(step.key.to_owned(), value.to_owned()),
            (DELETE, _) => after.remove(step.key),
            // Keys of stores are no lists; the controller refuses.
            _ => continue,
        };
    }
    if resource.replaces {
        changed.extend(current.into_iter().flat_map(ConfigMap::keys).map(String::as_str));
    }
    core.host.certificates.check(&after, &changed)
}

/// Values that are no numbers are left to the controller, which knows what the key takes.
fn judge_thread_count<D: Disk>(core: &BrokerCore<D>, key: &str, value: &str) -> Result<(), String> {
    if !THREAD_COUNTS.contains(&key) {
        return Ok(());
    }
    let wanted = ConfigCatalogue::broker().get(key).and_then(|def| def.validate(value).ok());
    let wanted = wanted.and_then(|wanted| wanted.as_i64());
    let current = broker_value(core, key).and_then(|current| current.trim().parse().ok());
    match (wanted, current) {
        (Some(wanted), Some(current)) => {
            check_thread_count(key, wanted, current).map_err(|error| error.to_string())
        }
        _ => Ok(()),
    }
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
    use protocol::messages::alter_configs_request::AlterConfigsResource as PlainResource;
    use protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
    use protocol::{ErrorCode, RequestBody};

    use super::*;
    use crate::handlers::testing::{TestBroker, UNUSABLE, answer_of};

    const BROKER: i8 = 4;

    /// One step on a broker's configs: `None` when it is forwarded, else why it is refused.
    fn refusal(
        broker: &TestBroker,
        name: &str,
        key: &str,
        operation: i8,
        value: &str,
    ) -> Option<String> {
        let config = AlterableConfig {
            name: key.to_owned(),
            config_operation: operation,
            value: Some(value.to_owned()),
            ..AlterableConfig::default()
        };
        let resource = AlterConfigsResource {
            resource_type: BROKER,
            resource_name: name.to_owned(),
            configs: vec![config],
            ..AlterConfigsResource::default()
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![resource],
            ..IncrementalAlterConfigsRequest::default()
        };
        let inbox = broker.send(1, request);
        if !broker.calls().is_empty() {
            return None;
        }
        let response = answer_of::<IncrementalAlterConfigsRequest>(&inbox, 1).responses.remove(0);
        assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
        response.error_message
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn only_this_brokers_configs_and_those_of_all_are_taken() {
        let broker = TestBroker::new();
        for taken in ["1", "01", "+1", ""] {
            assert_eq!(refusal(&broker, taken, "log.retention.ms", 0, "9"), None, "{taken:?}");
        }
        for (name, why) in [
            ("2", "Unexpected broker id, expected 1, but received 2"),
            ("99", "Unexpected broker id, expected 1, but received 99"),
            ("-1", "Unexpected broker id, expected 1, but received -1"),
            ("x", "Node id must be an integer, but it is: x"),
        ] {
            let refused = refusal(&broker, name, "log.retention.ms", 0, "9");
            assert_eq!(refused.as_deref(), Some(why));
        }
    }

    /// Measured on Kafka 4.4.0: from 8 threads to 4 .. 16, from 3 to 1 .. 6.
    #[test]
    fn a_pool_s_threads_may_be_halved_or_doubled_at_once_and_no_more() {
        let broker = TestBroker::new();
        let may =
            |name: &str, key: &str, value: &str| refusal(&broker, name, key, 0, value).is_none();
        for name in ["", "1"] {
            for (key, allowed, refused) in [
                ("num.io.threads", ["4", "16"], ["3", "17"]),
                ("num.network.threads", ["1", "6"], ["7", "100"]),
                ("log.cleaner.threads", ["1", "2"], ["0", "3"]),
                ("background.threads", ["5", "20"], ["4", "21"]),
            ] {
                assert!(allowed.iter().all(|value| may(name, key, value)), "{key}");
                assert!(!refused.iter().any(|value| may(name, key, value)), "{key}");
            }
        }
        // What is no number, or no number of threads, is refused by the controller.
        assert!(may("1", "num.io.threads", "x") && may("1", "num.io.threads", "0"));
        broker.set_config(i32::from(BROKER), "1", "num.io.threads", "16");
        assert_eq!(refusal(&broker, "1", "num.io.threads", 0, "32"), None);
    }

    #[test]
    fn certificates_that_cannot_be_used_are_refused_for_the_broker_they_are_meant_for() {
        let broker = TestBroker::new();
        let key = "listener.name.ssl.ssl.keystore.location";
        let refused = refusal(&broker, "1", key, SET, UNUSABLE).expect("refused");
        assert!(refused.contains(key) && refused.contains(UNUSABLE), "{refused}");
        assert_eq!(refusal(&broker, "1", key, SET, "/good.pem"), None);
        // All of the broker's configs are shown, those that stay among them, without what is removed.
        broker.set_config(i32::from(BROKER), "1", key, UNUSABLE);
        assert!(refusal(&broker, "1", "log.retention.ms", SET, "9").is_some());
        assert_eq!(refusal(&broker, "1", key, DELETE, ""), None);
        assert_eq!(refusal(&broker, "", "log.retention.ms", SET, "9"), None);
        let resource = PlainResource {
            resource_type: BROKER,
            resource_name: "1".into(),
            ..PlainResource::default()
        };
        let request =
            AlterConfigsRequest { resources: vec![resource], ..AlterConfigsRequest::default() };
        let _inbox = broker.send(2, request);
        assert_eq!(broker.calls().len(), 1, "it replaces what cannot be used");
    }

    #[test]
    fn a_step_that_does_not_exist_is_refused_for_a_broker() {
        let broker = TestBroker::new();
        let refused = refusal(&broker, "1", "log.retention.ms", 7, "9");
        assert_eq!(refused.as_deref(), Some("Unknown operations type 7"));
    }

    #[test]
    fn resources_that_come_twice_are_left_to_the_controller() {
        let broker = TestBroker::new();
        let resource = || PlainResource {
            resource_type: BROKER,
            resource_name: "99".into(),
            ..PlainResource::default()
        };
        let request = AlterConfigsRequest {
            resources: vec![resource(), resource()],
            ..AlterConfigsRequest::default()
        };
        let _inbox = broker.send(2, request.clone());
        assert_eq!(broker.one_call().request, RequestBody::AlterConfigs(request));
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
}
