//! DeleteRecords (KIP-107): everything below an offset goes; the answer comes when every live replica
//! has forgotten it (I02).

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
    let mut partitions = Vec::new();
    for topic in &request.topics {
        for wanted in &topic.partitions {
            let partition = TopicPartition::new(topic.name.as_str(), wanted.partition_index);
            partitions.push((partition, Offset(wanted.offset)));
        }
    }
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
