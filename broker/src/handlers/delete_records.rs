//! DeleteRecords (KIP-107): everything below an offset goes; the answer comes when every live replica
//! has forgotten it (I02), or at the timeout with what the replicas have forgotten so far. A partition is
//! told once, topics and partitions in their order.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use protocol::{Offset, TopicPartition};
use storage::Disk;

use crate::core::replicas::DeleteRecordsOutcome;
use crate::core::{BrokerCore, CallContext, Outcome, Responder};

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &DeleteRecordsRequest,
    reply: Responder,
) {
    // A partition that comes twice counts once, and its later offset counts.
    let mut wanted: BTreeMap<(&str, i32), Offset> = BTreeMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (topic.name.as_str(), partition.partition_index);
            wanted.insert(key, Offset(partition.offset));
        }
    }
    let partitions: Vec<(TopicPartition, Offset)> = wanted
        .into_iter()
        .map(|((topic, index), offset)| (TopicPartition::new(topic, index), offset))
        .collect();
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let names: Vec<TopicPartition> =
        partitions.iter().map(|(partition, _)| partition.clone()).collect();
    let on_done = Box::new(move |outcomes: Vec<DeleteRecordsOutcome>| {
        reply(Outcome::Answer(respond(&names, &outcomes).into()));
    });
    let parked = core.replicas.delete_records(timeout, partitions, on_done);
    context.cancel_with_client(parked);
}

fn respond(names: &[TopicPartition], outcomes: &[DeleteRecordsOutcome]) -> DeleteRecordsResponse {
    let mut topics: Vec<DeleteRecordsTopicResult> = Vec::new();
    for (name, outcome) in names.iter().zip(outcomes) {
        if topics.last().is_none_or(|topic| topic.name.as_str() != name.topic.as_ref()) {
            topics.push(DeleteRecordsTopicResult {
                name: name.topic.to_string(),
                ..DeleteRecordsTopicResult::default()
            });
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(DeleteRecordsPartitionResult {
                partition_index: name.partition,
                low_watermark: outcome.low_watermark.get(),
                error_code: outcome.error.code(),
                ..DeleteRecordsPartitionResult::default()
            });
        }
    }
    DeleteRecordsResponse { topics, ..DeleteRecordsResponse::default() }
}

#[cfg(test)]
mod tests {
    use protocol::messages::FetchRequest;
    use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    use protocol::records::ProducerStamp;

    use super::*;
    use crate::handlers::testing::{TestBroker, answer_of, batch, produce};

    /// What is told of each partition: its topic, index, error and low watermark.
    fn ask(
        broker: &TestBroker,
        timeout_ms: i32,
        wanted: &[(&str, i32, i64)],
    ) -> Vec<(String, i32, i16, i64)> {
        let topics = wanted.iter().map(|(topic, partition_index, offset)| DeleteRecordsTopic {
            name: (*topic).to_owned(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: *partition_index,
                offset: *offset,
                ..DeleteRecordsPartition::default()
            }],
            ..DeleteRecordsTopic::default()
        });
        let request = DeleteRecordsRequest {
            topics: topics.collect(),
            timeout_ms,
            ..DeleteRecordsRequest::default()
        };
        let inbox = broker.send(2, request);
        let now = broker.core.host.clock.now();
        broker.core.replicas.expire(now);
        let topics = answer_of::<DeleteRecordsRequest>(&inbox, 2).topics.into_iter();
        topics
            .flat_map(|topic| {
                let of = topic.partitions.into_iter();
                of.map(move |told| {
                    (topic.name.clone(), told.partition_index, told.error_code, told.low_watermark)
                })
            })
            .collect()
    }

    fn broker(replicas: &[i32]) -> TestBroker {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, replicas)]);
        broker.ask(9, produce(1, "t", &[(0, batch(&[1, 2, 3, 4], ProducerStamp::NONE))]));
        broker
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn a_partition_that_comes_twice_is_told_once_by_its_later_offset() {
        let broker = broker(&[1]);
        let told = ask(&broker, 1000, &[("t", 0, 9), ("u", 0, 0), ("t", 0, 2), ("u", 0, 1)]);
        assert_eq!(told, [("t".into(), 0, 0, 2), ("u".into(), 0, 3, -1)]);
        let told = ask(&broker, 1000, &[("t", 0, 3), ("t", 0, 9)]);
        assert_eq!(told, [("t".into(), 0, 1, -1)]);
        assert_eq!(ask(&broker, 1000, &[("t", 0, 0)]), [("t".into(), 0, 0, 2)]);
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn i02_a_timeout_tells_what_the_replicas_have_forgotten_so_far() {
        let broker = broker(&[1, 2]);
        let fetch = |log_start_offset: i64| {
            let partition = FetchPartition {
                fetch_offset: 4,
                log_start_offset,
                current_leader_epoch: 5,
                ..FetchPartition::default()
            };
            let topics = vec![FetchTopic {
                topic: "t".into(),
                partitions: vec![partition],
                ..FetchTopic::default()
            }];
            broker.ask(12, FetchRequest { replica_id: 2, topics, ..FetchRequest::default() });
        };
        fetch(0);
        assert_eq!(ask(&broker, 0, &[("t", 0, 2)]), [("t".into(), 0, 7, 0)]);
        fetch(1);
        assert_eq!(ask(&broker, -5, &[("t", 0, 3)]), [("t".into(), 0, 7, 1)]);
        fetch(3);
        assert_eq!(ask(&broker, 0, &[("t", 0, 3)]), [("t".into(), 0, 0, 3)]);
    }
}
