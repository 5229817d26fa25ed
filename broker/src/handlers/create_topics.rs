//! CreateTopics, and the topics that come to be because somebody asked for them.
//!
//! A client's CreateTopics goes to the controller, and its answer back: the topics are committed then.
//! This broker may hear of them a moment later; a client that asks Metadata in between gets
//! UNKNOWN_TOPIC_OR_PARTITION and tries again, as with Kafka. Versions: 4 lets the defaults choose
//! (-1); 5 answers with configs; 7 with topic ids; the controller follows them.
//!
//! Automatic creation (from Metadata and FindCoordinator) is sent and not waited for; a topic is asked
//! for once at a time. Ordinary topics get this broker's `num.partitions` and
//! `default.replication.factor`; the coordinators' topics their own settings, whatever
//! `auto.create.topics.enable` says when a coordinator needs them.

use std::sync::Arc;
use std::time::Duration;

use protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use protocol::{ErrorCode, RequestBody, ResponseBody};
use storage::Disk;

use super::forward;
use crate::core::host::CallError;
use crate::core::internal_topics::{GROUP_TOPIC, TRANSACTION_TOPIC};
use crate::core::{BrokerCore, CallContext, Responder};

/// The version in which a broker asks for topics itself.
const OWN_VERSION: i16 = 7;
/// The longest name, so that the names of a partition's folders fit.
const MAX_NAME_LENGTH: usize = 249;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: CreateTopicsRequest,
    reply: Responder,
) {
    forward::to_controller(core, context.api_version, request.into(), reply);
}

/// Whether a topic may have this name: letters, digits, dots, dashes and underscores, at most 249, and
/// neither `.` nor `..`.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_LENGTH).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(is_allowed)
}

/// Asks the controller for topics that are missing, but for those that it is being asked for already.
/// Does not wait; whoever wants to know asks Metadata again.
pub(super) fn create_missing<D: Disk>(core: &Arc<BrokerCore<D>>, names: &[String]) {
    let mut wanted: Vec<String> = Vec::new();
    {
        let mut creating = core.creating_topics.lock();
        for name in names {
            if is_valid_name(name) && creating.insert(name.clone()) {
                wanted.push(name.clone());
            }
        }
    }
    if wanted.is_empty() {
        return;
    }
    let timeout = core.config.request_timeout;
    let request = CreateTopicsRequest {
        topics: wanted.iter().map(|name| creatable(core, name)).collect(),
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        ..CreateTopicsRequest::default()
    };
    let creating = core.creating_topics.clone();
    let on_answer = Box::new(move |answer: Result<ResponseBody, CallError>| {
        {
            let mut creating = creating.lock();
            for name in &wanted {
                creating.remove(name);
            }
        }
        note(&wanted, answer);
    });
    let body = RequestBody::CreateTopics(request);
    core.host.controller.call(OWN_VERSION, body, timeout.max(Duration::from_millis(1)), on_answer);
}

fn note(wanted: &[String], answer: Result<ResponseBody, CallError>) {
    let response: CreateTopicsResponse = match answer {
        Ok(ResponseBody::CreateTopics(response)) => response,
        Ok(_) => return tracing::error!(?wanted, "the controller answered another question"),
        Err(error) => return tracing::warn!(?wanted, %error, "topics were not created"),
    };
    for topic in response.topics {
        match ErrorCode::from_code(topic.error_code) {
            ErrorCode::None => tracing::info!(topic = topic.name, "topic created on demand"),
            ErrorCode::TopicAlreadyExists => {}
            error => tracing::warn!(
                topic = topic.name,
                error = error.kafka_name(),
                message = topic.error_message,
                "topic was not created on demand"
            ),
        }
    }
}

fn creatable<D: Disk>(core: &BrokerCore<D>, name: &str) -> CreatableTopic {
    let config = &core.config;
    let broker_value = |key: &str| super::describe_configs::broker_value(core, key);
    let (num_partitions, replication_factor, configs) = match name {
        GROUP_TOPIC => (
            config.offsets_topic_partitions,
            config.offsets_topic_replication_factor,
            vec![
                ("cleanup.policy", Some("compact".to_owned())),
                ("compression.type", Some("producer".to_owned())),
                ("segment.bytes", broker_value("offsets.topic.segment.bytes")),
            ],
        ),
        TRANSACTION_TOPIC => (
            config.transaction_topic_partitions,
            config.transaction_topic_replication_factor,
            vec![
                ("cleanup.policy", Some("compact".to_owned())),
                ("compression.type", Some("uncompressed".to_owned())),
                ("min.insync.replicas", broker_value("transaction.state.log.min.isr")),
                ("segment.bytes", broker_value("transaction.state.log.segment.bytes")),
                ("unclean.leader.election.enable", Some("false".to_owned())),
            ],
        ),
        _ => (config.num_partitions, config.default_replication_factor, Vec::new()),
    };
    let configs = configs.into_iter().filter_map(|(key, value)| {
        Some(CreatableTopicConfig {
            name: key.to_owned(),
            value: Some(value?),
            ..CreatableTopicConfig::default()
        })
    });
    CreatableTopic {
        name: name.to_owned(),
        num_partitions,
        replication_factor,
        configs: configs.collect(),
        ..CreatableTopic::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::RequestBody;
    use protocol::messages::metadata_request::MetadataRequestTopic;
    use protocol::messages::{CreateTopicsRequest, CreateTopicsResponse, MetadataRequest};

    use super::is_valid_name;
    use crate::core::host::CallError;
    use crate::handlers::testing::{Call, TestBroker, answer_of};

    fn creation(call: &Call) -> &CreateTopicsRequest {
        match &call.request {
            RequestBody::CreateTopics(request) => request,
            other => panic!("not a creation: {other:?}"),
        }
    }

    fn ask_metadata(broker: &TestBroker, names: &[&str]) {
        let topics = names.iter().map(|name| MetadataRequestTopic {
            name: Some((*name).to_owned()),
            ..MetadataRequestTopic::default()
        });
        let _answer = broker.ask(
            12,
            MetadataRequest { topics: Some(topics.collect()), ..MetadataRequest::default() },
        );
    }

    #[test]
    fn names_are_up_to_249_letters_digits_dots_dashes_and_underscores_and_no_folder_of_its_own() {
        for good in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert!(is_valid_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", &"x".repeat(250)] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_clients_creation_is_answered_with_what_the_controller_says() {
        let broker = TestBroker::new();
        let inbox = broker.send(7, CreateTopicsRequest::default());
        broker.one_call().answer(CreateTopicsResponse::default());
        answer_of::<CreateTopicsRequest>(&inbox, 7);
    }

    #[test]
    fn a_topic_is_asked_for_once_at_a_time_and_again_after_any_answer() {
        let broker = TestBroker::new();
        ask_metadata(&broker, &["new", "not a name"]);
        let first = broker.one_call();
        let topic = &creation(&first).topics[..];
        assert_eq!(topic.len(), 1);
        assert_eq!(
            (topic[0].name.as_str(), topic[0].num_partitions, topic[0].replication_factor),
            ("new", 4, 2)
        );
        ask_metadata(&broker, &["new", "other"]);
        let second = broker.one_call();
        assert_eq!(creation(&second).topics.len(), 1);
        assert_eq!(creation(&second).topics[0].name, "other");
        first.fail(CallError::TimedOut);
        ask_metadata(&broker, &["new", "other"]);
        let third = broker.one_call();
        assert_eq!(creation(&third).topics.len(), 1);
        assert_eq!(creation(&third).topics[0].name, "new");
    }

    #[test]
    fn the_coordinators_topics_have_their_own_partitions_replicas_and_configs() {
        let configs =
            [("offsets.topic.segment.bytes", "4096"), ("transaction.state.log.min.isr", "3")];
        let broker = TestBroker::with_configs(&configs);
        ask_metadata(&broker, &["__consumer_offsets", "__transaction_state"]);
        let call = broker.one_call();
        let topics = &creation(&call).topics;
        let facts = |at: usize| {
            let topic = &topics[at];
            let configs: BTreeMap<&str, &str> = topic
                .configs
                .iter()
                .map(|config| (config.name.as_str(), config.value.as_deref().unwrap_or("null")))
                .collect();
            (topic.num_partitions, topic.replication_factor, configs)
        };
        let offsets = BTreeMap::from([
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", "4096"),
        ]);
        assert_eq!(facts(0), (5, 3, offsets));
        let transactions = BTreeMap::from([
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", "3"),
            ("segment.bytes", "104857600"),
            ("unclean.leader.election.enable", "false"),
        ]);
        assert_eq!(facts(1), (7, 2, transactions));
    }
}
