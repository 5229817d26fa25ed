//! DescribeCluster (KIP-700): the cluster's id and its brokers, as this broker knows them.
//!
//! Versions: 1 has the type of the endpoint that the client believes to talk to: a broker's listener
//! answers 1 (brokers); 2 (controllers) is a mismatch (114), anything else not supported (115). 2 can
//! include fenced brokers and marks them. The controller named is a broker: any takes a controller's
//! requests and passes them on.

use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};
use protocol::ErrorCode;
use storage::Disk;

use super::operations;
use crate::core::{BrokerCore, CallContext};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(
                ErrorCode::MismatchedEndpointType,
                "this is a broker's listener, and the request is meant for a controller".to_owned(),
            );
        }
        other => {
            return refused(
                ErrorCode::UnsupportedEndpointType,
                format!("endpoint type {other} does not exist"),
            );
        }
    }
    let with_fenced = context.api_version >= 2 && request.include_fenced_brokers;
    let directory = core.directory();
    let brokers: Vec<DescribeClusterBroker> = directory
        .image
        .brokers()
        .filter(|broker| with_fenced || !broker.fenced)
        .filter_map(|broker| {
            let found = broker.listener(&context.listener)?;
            Some(DescribeClusterBroker {
                broker_id: broker.id.get(),
                host: found.host.to_string(),
                port: i32::from(found.port),
                rack: broker.rack.as_deref().map(str::to_owned),
                is_fenced: broker.fenced,
                ..DescribeClusterBroker::default()
            })
        })
        .collect();
    let alive = brokers.iter().filter(|broker| !broker.is_fenced);
    let controller = alive.min_by_key(|broker| (broker.broker_id != core.node.get(), broker.broker_id));
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: core.cluster_id.clone(),
        controller_id: controller.map_or(-1, |broker| broker.broker_id),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            operations::CLUSTER
        } else {
            operations::NOT_ASKED
        },
        brokers,
        ..DescribeClusterResponse::default()
    }
}

fn refused(error: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse {
        error_code: error.code(),
        error_message: Some(message),
        ..DescribeClusterResponse::default()
    }
}
