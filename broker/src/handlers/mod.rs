//! Request handlers: one file per API, called by both hosts. Each file's head says what the API does
//! and what its versions changed.

mod alter_configs;
mod api_versions;
mod create_topics;
mod delete_records;
mod describe_cluster;
mod describe_configs;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod fetch;
mod find_coordinator;
mod forward;
mod groups;
mod init_producer_id;
mod list_config_resources;
mod list_offsets;
mod loggers;
mod metadata;
mod no_answer;
mod offset_for_leader_epoch;
mod operations;
mod produce;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use protocol::{ApiKey, RequestBody, ResponseBody};
use storage::Disk;

use crate::core::{BrokerCore, CallContext, Outcome, Responder};

/// The APIs that a broker's listeners serve; ApiVersions lists exactly these.
pub const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::ElectLeaders,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::DescribeQuorum,
    ApiKey::UpdateFeatures,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::DeleteGroups,
    ApiKey::OffsetDelete,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
];

/// Whether a broker serves this version of an API.
pub fn serves(api_key: ApiKey, version: i16) -> bool {
    SERVED.contains(&api_key) && api_key.served_versions().contains(&version)
}

fn answer(reply: Responder, response: impl Into<ResponseBody>) {
    reply(Outcome::Answer(response.into()));
}

/// Hands a request to its handler.
pub(crate) fn dispatch<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    context: CallContext,
    request: RequestBody,
    reply: Responder,
) {
    match request {
        RequestBody::Produce(request) => produce::handle(core, &context, request, reply),
        RequestBody::Fetch(request) => fetch::handle(core, &context, request, reply),
        RequestBody::ListOffsets(request) => {
            answer(reply, list_offsets::handle(core, &context, &request));
        }
        RequestBody::Metadata(request) => metadata::handle(core, &context, request, reply),
        RequestBody::ApiVersions(request) => {
            answer(reply, api_versions::handle(core, &context, &request));
        }
        RequestBody::OffsetForLeaderEpoch(request) => {
            answer(reply, offset_for_leader_epoch::handle(core, &request));
        }
        RequestBody::DeleteRecords(request) => {
            delete_records::handle(core, &context, &request, reply);
        }
        RequestBody::FindCoordinator(request) => {
            find_coordinator::handle(core, &context, request, reply);
        }
        RequestBody::InitProducerId(request) => {
            init_producer_id::handle(core, &request, reply);
        }
        RequestBody::CreateTopics(request) => {
            create_topics::handle(core, &context, request, reply);
        }
        RequestBody::DescribeConfigs(request) => {
            answer(reply, describe_configs::handle(core, &context, &request));
        }
        RequestBody::DescribeLogDirs(request) => {
            answer(reply, describe_log_dirs::handle(core, &request));
        }
        RequestBody::DescribeCluster(request) => {
            answer(reply, describe_cluster::handle(core, &context, &request));
        }
        RequestBody::DescribeProducers(request) => {
            answer(reply, describe_producers::handle(core, &request));
        }
        RequestBody::ListConfigResources(request) => {
            answer(reply, list_config_resources::handle(core, &context, &request));
        }
        RequestBody::DescribeTopicPartitions(request) => {
            answer(reply, describe_topic_partitions::handle(core, &context, &request));
        }
        RequestBody::AlterConfigs(request) => {
            alter_configs::handle(core, &context, request, reply);
        }
        RequestBody::IncrementalAlterConfigs(request) => {
            alter_configs::handle_incremental(core, &context, request, reply);
        }
        request @ (RequestBody::OffsetCommit(_)
        | RequestBody::OffsetFetch(_)
        | RequestBody::JoinGroup(_)
        | RequestBody::Heartbeat(_)
        | RequestBody::LeaveGroup(_)
        | RequestBody::SyncGroup(_)
        | RequestBody::DescribeGroups(_)
        | RequestBody::ListGroups(_)
        | RequestBody::DeleteGroups(_)
        | RequestBody::OffsetDelete(_)
        | RequestBody::ConsumerGroupHeartbeat(_)
        | RequestBody::ConsumerGroupDescribe(_)) => {
            groups::handle(core, &context, request, reply);
        }
        request => forward::to_controller(core, context.api_version, request, reply),
    }
}
