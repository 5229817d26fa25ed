//! Metadata: brokers, topics, partitions, leaders, as this broker knows them.
//!
//! Versions: 0 takes no topics as all, 1 and above null as all and empty as none; 4 lets the client
//! forbid automatic creation (older ones allow it); 8 authorized operations, those on the cluster only up
//! to 10; 10 gives topic ids; 12 takes them (an id or a null name in 10 or 11 is a mistake: 42 for every
//! topic, and nothing else in the answer; later a null name without any id in the request is -1 in the same
//! way, and names beside ids do not count); 13 has a top-level error. A topic asked for twice is answered
//! once.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::{PartitionImage, TopicImage};
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{MetadataRequest, MetadataResponse};
use protocol::{ErrorCode, NodeId};
use storage::Disk;

use super::operations;
use crate::core::directory::Directory;
use crate::core::internal_topics::INTERNAL_TOPICS;
use crate::core::{BrokerCore, CallContext, Responder};

/// The first version that takes topic ids.
const FIRST_BY_ID: i16 = 12;
/// The first version with an error at its top.
const FIRST_WITH_ERROR: i16 = 13;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: MetadataRequest,
    reply: Responder,
) {
    let version = context.api_version;
    if let Some(topics) = &request.topics
        && version < FIRST_BY_ID
        && topics.iter().any(|topic| !topic.topic_id.is_zero() || topic.name.is_none())
    {
        return super::answer(reply, all_refused(topics, version, ErrorCode::InvalidRequest));
    }
    // With ids in a request its names do not count; without any, all names must be there.
    let by_id = request.topics.iter().flatten().any(|topic| !topic.topic_id.is_zero());
    if let Some(topics) = &request.topics
        && !by_id
        && topics.iter().any(|topic| topic.name.is_none())
    {
        return super::answer(reply, all_refused(topics, version, ErrorCode::UnknownServerError));
    }
    let directory = core.directory();
    let listener = context.listener.clone();
    let all = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let mut topics: Vec<MetadataResponseTopic> = if all {
        directory
            .image
            .topics_by_name()
            .map(|topic| describe(&directory, topic, &listener))
            .collect()
    } else {
        let mut missing = Vec::new();
        let mut seen = BTreeSet::new();
        let wanted = request.topics.iter().flatten();
        let wanted = wanted.filter(|topic| !by_id || !topic.topic_id.is_zero());
        let wanted = wanted.filter(|topic| seen.insert((topic.topic_id, topic.name.as_deref())));
        let topics =
            wanted.map(|topic| look_up(&directory, topic, &listener, &mut missing)).collect();
        if core.config.auto_create_topics && request.allow_auto_topic_creation {
            super::create_topics::create_missing(core, &missing);
        }
        topics
    };
    if request.include_topic_authorized_operations {
        for topic in topics.iter_mut().filter(|topic| topic.name.is_some()) {
            topic.topic_authorized_operations = operations::TOPIC;
        }
    }
    let mut response = respond(core, &directory, &listener, topics);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = operations::CLUSTER;
    }
    super::answer(reply, response);
}

/// The answer to a request that makes no sense in its version.
fn all_refused(
    topics: &[MetadataRequestTopic],
    version: i16,
    error: ErrorCode,
) -> MetadataResponse {
    let topics = topics.iter().map(|topic| MetadataResponseTopic {
        error_code: error.code(),
        // These versions cannot say that there is no name.
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    });
    let error_code = if version >= FIRST_WITH_ERROR { error.code() } else { 0 };
    MetadataResponse { topics: topics.collect(), error_code, ..MetadataResponse::default() }
}

fn look_up(
    directory: &Directory,
    wanted: &MetadataRequestTopic,
    listener: &str,
    missing: &mut Vec<String>,
) -> MetadataResponseTopic {
    let refused = |error: ErrorCode, name: Option<String>| MetadataResponseTopic {
        error_code: error.code(),
        is_internal: name.as_deref().is_some_and(|name| INTERNAL_TOPICS.contains(&name)),
        name,
        topic_id: wanted.topic_id,
        ..MetadataResponseTopic::default()
    };
    if !wanted.topic_id.is_zero() {
        // The id decides, whatever name comes with it.
        return match directory.image.topic(wanted.topic_id) {
            Some(topic) => describe(directory, topic, listener),
            None => refused(ErrorCode::UnknownTopicId, None),
        };
    }
    let Some(name) = &wanted.name else {
        return refused(ErrorCode::UnknownServerError, None);
    };
    match directory.image.topic_by_name(name) {
        Some(topic) => describe(directory, topic, listener),
        None if !super::create_topics::is_valid_name(name) => {
            refused(ErrorCode::InvalidTopicException, Some(name.clone()))
        }
        None => {
            missing.push(name.clone());
            refused(ErrorCode::UnknownTopicOrPartition, Some(name.clone()))
        }
    }
}

fn describe(directory: &Directory, topic: &TopicImage, listener: &str) -> MetadataResponseTopic {
    let partitions =
        topic.partitions.iter().map(|(index, image)| partition(directory, *index, image, listener));
    MetadataResponseTopic {
        error_code: 0,
        name: Some(topic.name.to_string()),
        topic_id: topic.id,
        is_internal: INTERNAL_TOPICS.contains(&topic.name.as_ref()),
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}

fn partition(
    directory: &Directory,
    index: i32,
    image: &PartitionImage,
    listener: &str,
) -> MetadataResponsePartition {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect::<Vec<i32>>();
    let offline: Vec<NodeId> = image
        .replicas
        .iter()
        .copied()
        .filter(|replica| directory.is_offline(*replica, image, listener))
        .collect();
    let leader_alive = image.has_leader() && directory.alive(image.leader).is_some();
    let error = if !leader_alive {
        ErrorCode::LeaderNotAvailable
    } else if directory.endpoint(image.leader, listener).is_none() {
        ErrorCode::ListenerNotFound
    } else {
        ErrorCode::None
    };
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: index,
        leader_id: if error == ErrorCode::None { image.leader.get() } else { -1 },
        leader_epoch: image.leader_epoch.get(),
        replica_nodes: ids(&image.replicas),
        isr_nodes: ids(&image.isr),
        offline_replicas: ids(&offline),
        ..MetadataResponsePartition::default()
    }
}

fn respond<D: Disk>(
    core: &BrokerCore<D>,
    directory: &Directory,
    listener: &str,
    topics: Vec<MetadataResponseTopic>,
) -> MetadataResponse {
    let brokers: Vec<MetadataResponseBroker> = directory
        .image
        .brokers()
        .filter(|broker| !broker.fenced)
        .filter_map(|broker| {
            let found = broker.listener(listener)?;
            Some(MetadataResponseBroker {
                node_id: broker.id.get(),
                host: found.host.to_string(),
                port: i32::from(found.port),
                rack: broker.rack.as_deref().map(str::to_owned),
                ..MetadataResponseBroker::default()
            })
        })
        .collect();
    MetadataResponse {
        // A client may send admin requests to any broker; each forwards them. Kafka names a random one.
        controller_id: controller_id(core, &brokers),
        brokers,
        cluster_id: Some(core.cluster_id.clone()),
        topics,
        ..MetadataResponse::default()
    }
}

fn controller_id<D: Disk>(core: &BrokerCore<D>, brokers: &[MetadataResponseBroker]) -> i32 {
    let own = core.node.get();
    let found = brokers.iter().find(|broker| broker.node_id == own).or(brokers.first());
    found.map_or(-1, |broker| broker.node_id)
}

#[cfg(test)]
mod tests {
    use protocol::Uuid;

    use super::*;
    use crate::handlers::testing::{TestBroker, topic_id};

    fn request(topics: Option<Vec<MetadataRequestTopic>>) -> MetadataRequest {
        MetadataRequest { topics, allow_auto_topic_creation: false, ..MetadataRequest::default() }
    }

    fn named(name: &str) -> MetadataRequestTopic {
        MetadataRequestTopic { name: Some(name.to_owned()), ..MetadataRequestTopic::default() }
    }

    fn by_id(topic_id: Uuid) -> MetadataRequestTopic {
        MetadataRequestTopic { topic_id, name: None, ..MetadataRequestTopic::default() }
    }

    fn cluster() -> TestBroker {
        let broker = TestBroker::new();
        broker.add_topic("b", 2, &[(1, &[1, 3])]);
        broker.add_topic("a", 1, &[(2, &[2]), (-1, &[3])]);
        broker
    }

    fn names(response: &MetadataResponse) -> Vec<(&str, i16)> {
        let topics = response.topics.iter();
        topics.map(|topic| (topic.name.as_deref().unwrap_or("null"), topic.error_code)).collect()
    }

    #[test]
    fn no_topics_are_all_in_version_0_and_none_later_where_null_is_all() {
        let broker = cluster();
        let all = [("a", 0), ("b", 0)];
        assert_eq!(names(&broker.ask(0, request(Some(Vec::new())))), all);
        for version in 1..=13 {
            let none = broker.ask(version, request(Some(Vec::new())));
            assert!(none.topics.is_empty(), "version {version}");
            assert_eq!(none.brokers.len(), 2);
            assert_eq!(names(&broker.ask(version, request(None))), all, "version {version}");
        }
    }

    #[test]
    fn an_id_or_a_null_name_before_version_12_is_a_mistake_of_the_whole_request() {
        let broker = cluster();
        for version in [10, 11] {
            for wrong in [by_id(topic_id(1)), by_id(Uuid::ZERO)] {
                let response = broker.ask(version, request(Some(vec![named("a"), wrong])));
                assert_eq!(names(&response), [("a", 42), ("", 42)]);
                assert!(response.brokers.is_empty());
                assert_eq!(response.cluster_id, None);
            }
        }
    }

    #[test]
    fn from_version_12_a_topic_is_found_by_its_id_and_an_unknown_id_is_100() {
        let broker = cluster();
        let asked = vec![by_id(topic_id(1)), by_id(topic_id(9)), by_id(Uuid::ZERO)];
        let response = broker.ask(12, request(Some(asked)));
        assert_eq!(names(&response), [("a", 0), ("null", 100)]);
        assert_eq!(response.topics[1].topic_id, topic_id(9));
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn names_do_not_count_beside_ids_and_a_null_name_without_any_id_is_an_unknown_error() {
        let broker = cluster();
        let asked = vec![named("b"), by_id(topic_id(1)), by_id(Uuid::ZERO)];
        assert_eq!(names(&broker.ask(12, request(Some(asked)))), [("a", 0)]);
        for version in [12, 13] {
            let asked = vec![named("a"), by_id(Uuid::ZERO)];
            let response = broker.ask(version, request(Some(asked)));
            assert_eq!(names(&response), [("a", -1), ("", -1)]);
            assert_eq!((response.brokers.len(), response.cluster_id), (0, None));
            assert_eq!(response.error_code, if version == 13 { -1 } else { 0 });
        }
    }

    #[test]
    fn an_id_that_names_another_topic_than_the_name_decides() {
        let broker = cluster();
        let asked = MetadataRequestTopic { name: Some("b".into()), ..by_id(topic_id(1)) };
        assert_eq!(names(&broker.ask(12, request(Some(vec![asked])))), [("a", 0)]);
    }

    #[test]
    fn every_topic_has_its_id_from_version_10_on() {
        let response = cluster().ask(10, request(None));
        let ids: Vec<Uuid> = response.topics.iter().map(|topic| topic.topic_id).collect();
        assert_eq!(ids, [topic_id(1), topic_id(2)]);
    }

    #[test]
    fn a_name_asked_for_twice_is_answered_once() {
        let asked = vec![named("b"), named("zz"), named("b"), named("zz")];
        assert_eq!(names(&cluster().ask(12, request(Some(asked)))), [("b", 0), ("zz", 3)]);
    }

    #[test]
    fn partitions_tell_leader_isr_and_replicas_that_are_offline() {
        let broker = cluster();
        let response = broker.ask(9, request(None));
        let partition = |topic: usize, at: usize| {
            let partition = &response.topics[topic].partitions[at];
            (partition.error_code, partition.leader_id, partition.offline_replicas.clone())
        };
        assert_eq!(partition(0, 0), (0, 2, vec![]));
        assert_eq!(partition(0, 1), (ErrorCode::LeaderNotAvailable.code(), -1, vec![3]));
        assert_eq!(partition(1, 0), (0, 1, vec![3]));
        let of_b = &response.topics[1].partitions[0];
        assert_eq!((of_b.leader_epoch, &of_b.isr_nodes[..]), (5, &[1, 3][..]));
        assert_eq!(response.brokers[1].rack.as_deref(), Some("b"));
        assert_eq!(response.controller_id, 1);
    }

    #[test]
    fn missing_topics_are_created_only_where_client_and_broker_allow_it() {
        let broker = cluster();
        let _answer = broker.ask(12, request(Some(vec![named("new")])));
        assert!(broker.calls().is_empty(), "the client said no");
        let allowing = MetadataRequest {
            allow_auto_topic_creation: true,
            ..request(Some(vec![named("new"), named("not a name"), named("a")]))
        };
        let response = broker.ask(12, allowing);
        assert_eq!(names(&response), [("new", 3), ("not a name", 17), ("a", 0)]);
        assert_eq!(broker.calls().len(), 1);
    }

    #[test]
    fn authorized_operations_are_told_when_asked_for() {
        let broker = cluster();
        let response = broker.ask(12, request(Some(vec![named("a"), named("zz")])));
        assert!(response.topics.iter().all(|topic| topic.topic_authorized_operations == i32::MIN));
        let asking = MetadataRequest {
            include_topic_authorized_operations: true,
            include_cluster_authorized_operations: true,
            ..request(Some(vec![named("a"), named("zz")]))
        };
        let response = broker.ask(10, asking);
        // Measured at Kafka 4.4.0.
        assert!(response.topics.iter().all(|topic| topic.topic_authorized_operations == 3576));
        assert_eq!(response.cluster_authorized_operations, 8096);
    }
}
