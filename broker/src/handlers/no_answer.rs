//! The answers to forwarded requests that the controller did not answer: the shape of each API, with
//! one error everywhere. Where an API has an error at its top, it is said there; where it has errors by
//! item only, each item of the request says it.

use protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterResult;
use protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::create_topics_response::CreatableTopicResult;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResult;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, ApiVersionsResponse, CreatePartitionsRequest,
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeQuorumResponse, ElectLeadersRequest, ElectLeadersResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsResponse, UpdateFeaturesResponse,
};
use protocol::{ErrorCode, RequestBody, ResponseBody};

use crate::core::host::CallError;

/// What a client is told of a call that failed.
pub(super) fn code_of(error: &CallError) -> ErrorCode {
    match error {
        CallError::TimedOut => ErrorCode::RequestTimedOut,
        CallError::Failed(_) => ErrorCode::UnknownServerError,
    }
}

/// The answer to `request` in `version` that says `error`.
pub(super) fn response(request: &RequestBody, version: i16, error: ErrorCode) -> ResponseBody {
    match request {
        RequestBody::CreateTopics(request) => create_topics(request, error).into(),
        RequestBody::DeleteTopics(request) => delete_topics(request, version, error).into(),
        RequestBody::CreatePartitions(request) => create_partitions(request, error).into(),
        RequestBody::ElectLeaders(request) => elect_leaders(request, version, error).into(),
        RequestBody::AlterConfigs(request) => alter_configs(request, error).into(),
        RequestBody::IncrementalAlterConfigs(request) => alter_incrementally(request, error).into(),
        RequestBody::AlterPartitionReassignments(request) => reassign(request, error).into(),
        RequestBody::ListPartitionReassignments(_) => ListPartitionReassignmentsResponse {
            error_code: error.code(),
            error_message: message(error),
            ..Default::default()
        }
        .into(),
        RequestBody::UpdateFeatures(_) => UpdateFeaturesResponse {
            error_code: error.code(),
            error_message: message(error),
            ..Default::default()
        }
        .into(),
        RequestBody::DescribeQuorum(_) => DescribeQuorumResponse {
            error_code: error.code(),
            error_message: message(error),
            ..Default::default()
        }
        .into(),
        // What no listener serves; the network refuses it before it comes here.
        _ => ApiVersionsResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        }
        .into(),
    }
}

fn message(error: ErrorCode) -> Option<String> {
    Some(
        match error {
            ErrorCode::RequestTimedOut => "no controller answered in time",
            _ => "the controller could not be asked",
        }
        .to_owned(),
    )
}

fn create_topics(request: &CreateTopicsRequest, error: ErrorCode) -> CreateTopicsResponse {
    let topics = request.topics.iter().map(|topic| CreatableTopicResult {
        name: topic.name.clone(),
        error_code: error.code(),
        error_message: message(error),
        ..Default::default()
    });
    CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
}

fn delete_topics(
    request: &DeleteTopicsRequest,
    version: i16,
    error: ErrorCode,
) -> DeleteTopicsResponse {
    let result = |name: Option<String>| DeletableTopicResult {
        name,
        error_code: error.code(),
        error_message: if version >= 5 { message(error) } else { None },
        ..Default::default()
    };
    let responses = if version >= 6 {
        let by_state = request.topics.iter().map(|topic| DeletableTopicResult {
            topic_id: topic.topic_id,
            ..result(topic.name.clone())
        });
        by_state.collect()
    } else {
        request.topic_names.iter().map(|name| result(Some(name.clone()))).collect()
    };
    DeleteTopicsResponse { responses, ..Default::default() }
}

fn create_partitions(
    request: &CreatePartitionsRequest,
    error: ErrorCode,
) -> CreatePartitionsResponse {
    let results = request.topics.iter().map(|topic| CreatePartitionsTopicResult {
        name: topic.name.clone(),
        error_code: error.code(),
        error_message: message(error),
        ..Default::default()
    });
    CreatePartitionsResponse { results: results.collect(), ..Default::default() }
}

/// Version 0 has no error at the top; there the partitions say it.
fn elect_leaders(
    request: &ElectLeadersRequest,
    version: i16,
    error: ErrorCode,
) -> ElectLeadersResponse {
    let topics = request.topic_partitions.iter().flatten().map(|topic| ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic
            .partitions
            .iter()
            .map(|partition| PartitionResult {
                partition_id: *partition,
                error_code: error.code(),
                error_message: message(error),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    ElectLeadersResponse {
        error_code: if version >= 1 { error.code() } else { 0 },
        replica_election_results: topics.collect(),
        ..Default::default()
    }
}

fn alter_configs(request: &AlterConfigsRequest, error: ErrorCode) -> AlterConfigsResponse {
    let responses = request.resources.iter().map(|resource| AlterResult {
        error_code: error.code(),
        error_message: message(error),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..Default::default()
    });
    AlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn alter_incrementally(
    request: &IncrementalAlterConfigsRequest,
    error: ErrorCode,
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.iter().map(|resource| IncrementalResult {
        error_code: error.code(),
        error_message: message(error),
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..Default::default()
    });
    IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }
}

fn reassign(
    request: &AlterPartitionReassignmentsRequest,
    error: ErrorCode,
) -> AlterPartitionReassignmentsResponse {
    let responses = request.topics.iter().map(|topic| ReassignableTopicResponse {
        name: topic.name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: error.code(),
                error_message: message(error),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        error_code: error.code(),
        error_message: message(error),
        responses: responses.collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use protocol::messages::alter_partition_reassignments_request::{
        ReassignablePartition, ReassignableTopic,
    };
    use protocol::messages::create_partitions_request::CreatePartitionsTopic;
    use protocol::messages::create_topics_request::CreatableTopic;
    use protocol::messages::delete_topics_request::DeleteTopicState;
    use protocol::messages::elect_leaders_request::TopicPartitions;
    use protocol::messages::{
        DescribeQuorumRequest, ListPartitionReassignmentsRequest, UpdateFeaturesRequest,
    };

    use super::*;

    /// One request of each API that is forwarded, with one item where it has items.
    fn requests(version: i16) -> Vec<RequestBody> {
        vec![
            CreateTopicsRequest {
                topics: vec![CreatableTopic { name: "t".into(), ..Default::default() }],
                ..Default::default()
            }
            .into(),
            DeleteTopicsRequest {
                topics: if version >= 6 {
                    vec![DeleteTopicState { name: Some("t".into()), ..Default::default() }]
                } else {
                    Vec::new()
                },
                topic_names: if version < 6 { vec!["t".into()] } else { Vec::new() },
                ..Default::default()
            }
            .into(),
            CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic { name: "t".into(), ..Default::default() }],
                ..Default::default()
            }
            .into(),
            ElectLeadersRequest {
                topic_partitions: Some(vec![TopicPartitions {
                    topic: "t".into(),
                    partitions: vec![0],
                    ..Default::default()
                }]),
                ..Default::default()
            }
            .into(),
            AlterConfigsRequest { resources: vec![Default::default()], ..Default::default() }
                .into(),
            IncrementalAlterConfigsRequest {
                resources: vec![Default::default()],
                ..Default::default()
            }
            .into(),
            AlterPartitionReassignmentsRequest {
                topics: vec![ReassignableTopic {
                    name: "t".into(),
                    partitions: vec![ReassignablePartition::default()],
                    ..Default::default()
                }],
                ..Default::default()
            }
            .into(),
            ListPartitionReassignmentsRequest::default().into(),
            DescribeQuorumRequest::default().into(),
            UpdateFeaturesRequest::default().into(),
        ]
    }

    #[test]
    fn every_forwarded_api_has_an_answer_that_fits_each_of_its_versions() {
        for at in 0..requests(0).len() {
            let api_key = requests(0)[at].api_key();
            for version in api_key.served_versions() {
                let request = &requests(version)[at];
                let response = response(request, version, ErrorCode::RequestTimedOut);
                assert_eq!(response.api_key(), api_key);
                protocol::frame::encode_response(1, api_key, version, &response)
                    .unwrap_or_else(|error| panic!("{api_key:?} in version {version}: {error}"));
                let text = format!("{response:?}");
                assert!(text.contains("error_code: 7"), "{api_key:?} says nothing: {text}");
            }
        }
    }
}
