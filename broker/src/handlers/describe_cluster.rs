//! DescribeCluster (KIP-700): the cluster's id and its brokers, as this broker knows them.
//!
//! Versions: 1 has the type of the endpoint that the client believes to talk to: a broker's listener
//! answers 1 (brokers); 2 (controllers) is a mismatch (114), anything else not supported (115). 2 can
//! include fenced brokers and marks them. The controller named is a broker: any takes a controller's
//! requests and passes them on.

use protocol::ErrorCode;
use protocol::messages::describe_cluster_response::DescribeClusterBroker;
use protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};
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
    let controller =
        alive.min_by_key(|broker| (broker.broker_id != core.node.get(), broker.broker_id));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::TestBroker;

    #[test]
    fn fenced_brokers_are_told_only_to_those_who_ask() {
        let broker = TestBroker::new();
        let response = broker.ask(1, DescribeClusterRequest::default());
        let facts = |response: &DescribeClusterResponse| -> Vec<(i32, String, i32, bool)> {
            let brokers = response.brokers.iter();
            brokers.map(|b| (b.broker_id, b.host.clone(), b.port, b.is_fenced)).collect()
        };
        let alive = [(1, "host1".to_owned(), 9091, false), (2, "host2".to_owned(), 9092, false)];
        assert_eq!(facts(&response), alive);
        assert_eq!(response.brokers[1].rack.as_deref(), Some("b"));
        assert_eq!((response.cluster_id.as_str(), response.controller_id), ("test-cluster", 1));
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        let response = broker.ask(
            2,
            DescribeClusterRequest {
                include_fenced_brokers: true,
                include_cluster_authorized_operations: true,
                ..DescribeClusterRequest::default()
            },
        );
        assert_eq!(facts(&response)[2], (3, "host3".to_owned(), 9093, true));
        // Measured at Kafka 4.4.0.
        assert_eq!(response.cluster_authorized_operations, 8096);
    }

    #[test]
    fn a_request_meant_for_controllers_is_told_that_this_is_a_broker() {
        let broker = TestBroker::new();
        for (endpoint_type, error) in [(2, 114), (7, 115)] {
            let response = broker.ask(
                1,
                DescribeClusterRequest { endpoint_type, ..DescribeClusterRequest::default() },
            );
            assert_eq!((response.error_code, response.endpoint_type), (error, 1));
            assert!(response.brokers.is_empty());
        }
    }
}
