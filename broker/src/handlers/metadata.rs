//! Metadata: brokers, topics, partitions, leaders, as this broker knows them.
//!
//! Versions: 0 takes no topics as all, 1 and above null as all and empty as none; 4 lets the client
//! forbid automatic creation (older ones allow it); 10 gives topic ids; 12 takes them (an id or a null
//! name in 10 or 11 is a mistake, 42); 13 has a top-level error.

use std::sync::Arc;

use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use protocol::messages::{MetadataRequest, MetadataResponse};
use protocol::{ErrorCode, NodeId};
use controller::{PartitionImage, TopicImage};
use storage::Disk;

use super::produce::INTERNAL_TOPICS;
use crate::core::directory::Directory;
use crate::core::{BrokerCore, CallContext, Responder};

/// The first version that takes topic ids.
const FIRST_BY_ID: i16 = 12;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: &CallContext,
    request: MetadataRequest,
    reply: Responder,
) {
    let directory = core.directory();
    let listener = context.listener.clone();
    let version = context.api_version;
    let all = match &request.topics {
        None => true,
        Some(topics) => version == 0 && topics.is_empty(),
    };
    let topics = if all {
        directory
            .image
            .topics_by_name()
            .map(|topic| describe(&directory, topic, &listener))
            .collect()
    } else {
        let wanted = request.topics.unwrap_or_default();
        let mut missing = Vec::new();
        let topics = wanted
            .iter()
            .map(|topic| look_up(&directory, topic, version, &listener, &mut missing))
            .collect();
        if core.config.auto_create_topics && request.allow_auto_topic_creation {
            super::create_topics::create_missing(core, &missing);
        }
        topics
    };
    super::answer(reply, respond(core, &directory, &listener, topics));
}

fn look_up(
    directory: &Directory,
    wanted: &MetadataRequestTopic,
    version: i16,
    listener: &str,
    missing: &mut Vec<String>,
) -> MetadataResponseTopic {
    let refused = |error: ErrorCode| MetadataResponseTopic {
        error_code: error.code(),
        name: wanted.name.clone(),
        topic_id: wanted.topic_id,
        ..MetadataResponseTopic::default()
    };
    let by_id = !wanted.topic_id.is_zero();
    if version < FIRST_BY_ID && (by_id || wanted.name.is_none()) {
        let mut topic = refused(ErrorCode::InvalidRequest);
        // These versions cannot say that there is no name.
        topic.name = Some(wanted.name.clone().unwrap_or_default());
        return topic;
    }
    if by_id {
        return match directory.image.topic(wanted.topic_id) {
            Some(topic) => describe(directory, topic, listener),
            None => refused(ErrorCode::UnknownTopicId),
        };
    }
    let Some(name) = &wanted.name else {
        return refused(ErrorCode::InvalidRequest);
    };
    match directory.image.topic_by_name(name) {
        Some(topic) => describe(directory, topic, listener),
        None if !super::create_topics::is_valid_name(name) => {
            refused(ErrorCode::InvalidTopicException)
        }
        None => {
            missing.push(name.clone());
            refused(ErrorCode::UnknownTopicOrPartition)
        }
    }
}

fn describe(directory: &Directory, topic: &TopicImage, listener: &str) -> MetadataResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .map(|(index, image)| partition(directory, *index, image, listener));
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
        .filter(|replica| directory.endpoint(*replica, listener).is_none())
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
