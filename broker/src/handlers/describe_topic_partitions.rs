//! DescribeTopicPartitions (KIP-966): topics with their partitions, page by page.
//!
//! Topics come in the order of their names, each once; a request without topics means all. A page holds
//! at most the smaller of the request's limit and `max.request.partition.size.limit` partitions, and at
//! least one; the cursor of the answer says where the next page begins. Topics that do not exist are
//! told when they were asked for by name; a cursor at a topic that was not asked for is 42, and an empty
//! name -1, for every topic of the request. Version 0 only. The lists of eligible leader replicas and
//! of last known ones (C06) are empty, never null.

use std::collections::BTreeSet;

use controller::{PartitionImage, TopicImage};
use protocol::messages::describe_topic_partitions_request::Cursor as AskedCursor;
use protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use protocol::{ErrorCode, NodeId};
use storage::Disk;

use super::operations;
use crate::core::directory::Directory;
use crate::core::internal_topics::INTERNAL_TOPICS;
use crate::core::{BrokerCore, CallContext};

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    if request.topics.iter().any(|topic| topic.name.is_empty()) {
        return all_refused(request, ErrorCode::UnknownServerError);
    }
    let directory = core.directory();
    let from = request.cursor.as_ref();
    if from.is_some_and(|cursor| !is_cursor_of(request, cursor)) {
        return all_refused(request, ErrorCode::InvalidRequest);
    }
    let limit = request.response_partition_limit.min(core.config.max_request_partitions).max(1);
    let is_all = request.topics.is_empty();
    let names = wanted_names(&directory, request, from);
    let mut page = Page {
        directory: &directory,
        listener: &context.listener,
        left: usize::try_from(limit).unwrap_or(1),
        response: DescribeTopicPartitionsResponse::default(),
    };
    for name in names {
        let first = match from {
            Some(cursor) if cursor.topic_name == name => cursor.partition_index,
            _ => 0,
        };
        let is_full = match directory.image.topic_by_name(&name) {
            _ if page.left == 0 => page.end_at(&name, 0),
            Some(topic) => page.add(topic, first),
            None if is_all => false,
            None => page.add_missing(&name),
        };
        if is_full {
            break;
        }
    }
    page.response
}

/// A cursor names a partition, and one of the topics asked for if any are.
fn is_cursor_of(request: &DescribeTopicPartitionsRequest, cursor: &AskedCursor) -> bool {
    let is_asked = request.topics.iter().any(|topic| topic.name == cursor.topic_name);
    cursor.partition_index >= 0 && (request.topics.is_empty() || is_asked)
}

/// The names to describe, in order, those before the cursor left out.
fn wanted_names(
    directory: &Directory,
    request: &DescribeTopicPartitionsRequest,
    from: Option<&AskedCursor>,
) -> BTreeSet<String> {
    let first = from.map_or("", |cursor| cursor.topic_name.as_str());
    let is_due = |name: &String| name.as_str() >= first;
    if request.topics.is_empty() {
        let all = directory.image.topics_by_name().map(|topic| topic.name.to_string());
        all.filter(is_due).collect()
    } else {
        request.topics.iter().map(|topic| topic.name.clone()).filter(is_due).collect()
    }
}

/// The answer to a request that makes no sense: the same error for each topic asked for.
fn all_refused(
    request: &DescribeTopicPartitionsRequest,
    error: ErrorCode,
) -> DescribeTopicPartitionsResponse {
    let topics = request.topics.iter().map(|topic| DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(topic.name.clone()),
        ..DescribeTopicPartitionsResponseTopic::default()
    });
    DescribeTopicPartitionsResponse {
        topics: topics.collect(),
        ..DescribeTopicPartitionsResponse::default()
    }
}

/// A page being filled.
struct Page<'a> {
    directory: &'a Directory,
    listener: &'a str,
    left: usize,
    response: DescribeTopicPartitionsResponse,
}

impl Page<'_> {
    /// Adds partitions of `topic` from `first` on; whether the page ends within the topic.
    fn add(&mut self, topic: &TopicImage, first: i32) -> bool {
        let mut rest = topic.partitions.range(first..);
        let partitions: Vec<_> = rest
            .by_ref()
            .take(self.left)
            .map(|(index, image)| describe(self.directory, self.listener, *index, image))
            .collect();
        self.left -= partitions.len();
        self.response.topics.push(DescribeTopicPartitionsResponseTopic {
            name: Some(topic.name.to_string()),
            topic_id: topic.id,
            is_internal: INTERNAL_TOPICS.contains(&topic.name.as_ref()),
            partitions,
            topic_authorized_operations: operations::TOPIC,
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        match rest.next() {
            Some((index, _)) => self.end_at(&topic.name, *index),
            None => false,
        }
    }

    fn add_missing(&mut self, name: &str) -> bool {
        let error = if super::create_topics::is_valid_name(name) {
            ErrorCode::UnknownTopicOrPartition
        } else {
            ErrorCode::InvalidTopicException
        };
        self.response.topics.push(DescribeTopicPartitionsResponseTopic {
            error_code: error.code(),
            name: Some(name.to_owned()),
            is_internal: INTERNAL_TOPICS.contains(&name),
            topic_authorized_operations: operations::TOPIC,
            ..DescribeTopicPartitionsResponseTopic::default()
        });
        false
    }

    /// The next page begins there.
    fn end_at(&mut self, topic: &str, partition: i32) -> bool {
        self.response.next_cursor = Some(Cursor {
            topic_name: topic.to_owned(),
            partition_index: partition,
            ..Cursor::default()
        });
        true
    }
}

fn describe(
    directory: &Directory,
    listener: &str,
    index: i32,
    image: &PartitionImage,
) -> DescribeTopicPartitionsResponsePartition {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect::<Vec<i32>>();
    let is_reachable = |node: NodeId| directory.endpoint(node, listener).is_some();
    let is_offline = |replica: &NodeId| directory.is_offline(*replica, image, listener);
    let offline = image.replicas.iter().copied().filter(is_offline);
    DescribeTopicPartitionsResponsePartition {
        partition_index: index,
        leader_id: if is_reachable(image.leader) { image.leader.get() } else { -1 },
        leader_epoch: image.leader_epoch.get(),
        replica_nodes: ids(&image.replicas),
        isr_nodes: ids(&image.isr),
        eligible_leader_replicas: Some(ids(&image.eligible_leader_replicas)),
        last_known_elr: Some(ids(&image.last_known_elr)),
        offline_replicas: offline.map(NodeId::get).collect(),
        ..DescribeTopicPartitionsResponsePartition::default()
    }
}

#[cfg(test)]
mod tests {
    use protocol::messages::describe_topic_partitions_request::TopicRequest;

    use super::*;
    use crate::handlers::testing::TestBroker;

    fn request(
        names: &[&str],
        limit: i32,
        cursor: Option<(&str, i32)>,
    ) -> DescribeTopicPartitionsRequest {
        DescribeTopicPartitionsRequest {
            topics: names
                .iter()
                .map(|name| TopicRequest { name: (*name).to_owned(), ..TopicRequest::default() })
                .collect(),
            response_partition_limit: limit,
            cursor: cursor.map(|(topic, partition)| AskedCursor {
                topic_name: topic.to_owned(),
                partition_index: partition,
                ..AskedCursor::default()
            }),
            ..DescribeTopicPartitionsRequest::default()
        }
    }

    /// Topics with their error and partitions, and the next page.
    type Told = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn ask(names: &[&str], limit: i32, cursor: Option<(&str, i32)>) -> Told {
        let broker = TestBroker::new();
        broker.add_topic("b", 2, &[(1, &[1]), (1, &[1]), (2, &[2])]);
        broker.add_topic("a", 1, &[(1, &[1]), (2, &[2, 1])]);
        let response = broker.ask(0, request(names, limit, cursor));
        let topics = response.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|p| p.partition_index).collect();
            (topic.name.unwrap_or_default(), topic.error_code, partitions)
        });
        let next = response.next_cursor.map(|next| (next.topic_name, next.partition_index));
        (topics.collect(), next)
    }

    fn told(topics: &[(&str, i16, &[i32])], next: Option<(&str, i32)>) -> Told {
        let topics =
            topics.iter().map(|(name, error, of)| ((*name).to_owned(), *error, of.to_vec()));
        (topics.collect(), next.map(|(name, at)| (name.to_owned(), at)))
    }

    #[test]
    fn topics_come_by_name_and_each_once_and_missing_ones_only_when_named() {
        assert_eq!(ask(&[], 2000, None), told(&[("a", 0, &[0, 1]), ("b", 0, &[0, 1, 2])], None));
        assert_eq!(
            ask(&["zz", "b", "a", "b", "no name"], 2000, None),
            told(
                &[("a", 0, &[0, 1]), ("b", 0, &[0, 1, 2]), ("no name", 17, &[]), ("zz", 3, &[])],
                None
            )
        );
    }

    /// The pages as Kafka 4.4.0 cuts them, measured.
    #[test]
    fn a_full_page_says_where_the_next_begins_and_the_pages_together_are_everything() {
        assert_eq!(ask(&[], 1, None), told(&[("a", 0, &[0])], Some(("a", 1))));
        assert_eq!(ask(&[], 2, None), told(&[("a", 0, &[0, 1])], Some(("b", 0))));
        assert_eq!(
            ask(&[], 2, Some(("a", 1))),
            told(&[("a", 0, &[1]), ("b", 0, &[0])], Some(("b", 1)))
        );
        assert_eq!(ask(&[], 2, Some(("b", 1))), told(&[("b", 0, &[1, 2])], None));
        assert_eq!(ask(&["b", "zz"], 3, None), told(&[("b", 0, &[0, 1, 2])], Some(("zz", 0))));
        // At least one partition, whatever the limit.
        assert_eq!(ask(&[], 0, None), told(&[("a", 0, &[0])], Some(("a", 1))));
        // Beyond the topic's end.
        assert_eq!(ask(&["b"], 10, Some(("b", 7))), told(&[("b", 0, &[])], None));
    }

    #[test]
    fn a_cursor_must_name_a_partition_of_a_topic_that_was_asked_for() {
        let refused = told(&[("a", 42, &[]), ("b", 42, &[])], None);
        for cursor in [("b", -1), ("c", 0), ("", 0)] {
            assert_eq!(ask(&["a", "b"], 10, Some(cursor)), refused, "{cursor:?}");
        }
        assert_eq!(ask(&[], 1, Some(("aa", 5))), told(&[("b", 0, &[0])], Some(("b", 1))));
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn an_empty_name_is_an_unknown_error_of_every_topic() {
        assert_eq!(ask(&["a", ""], 10, None), told(&[("a", -1, &[]), ("", -1, &[])], None));
    }

    #[test]
    fn a_leader_out_of_reach_is_no_leader_and_eligible_replicas_are_empty_lists() {
        let broker = TestBroker::new();
        let id = broker.add_topic("a", 1, &[(2, &[2, 3])]);
        broker.elect(id, 0, 3);
        let response = broker.ask(0, request(&["a"], 10, None));
        assert_eq!(response.topics[0].topic_id, id);
        assert_eq!(response.topics[0].topic_authorized_operations, 3576);
        let partition = &response.topics[0].partitions[0];
        assert_eq!((partition.leader_id, partition.leader_epoch), (-1, 6));
        assert_eq!(partition.replica_nodes, [2, 3]);
        assert_eq!(partition.offline_replicas, [3]);
        assert_eq!(partition.eligible_leader_replicas, Some(Vec::new()));
        assert_eq!(partition.last_known_elr, Some(Vec::new()));
    }
}
