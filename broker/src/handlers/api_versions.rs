//! ApiVersions (KIP-35, KIP-511): what this broker serves, exactly.
//!
//! Versions: 3 checks the client's name and version; 4 lists features whose lowest version is 0; 5
//! carries the cluster and node that the client believes to talk to (P01). An unknown version is
//! answered by the network in version 0 with error 35.

use protocol::messages::api_versions_response::ApiVersion;
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ApiKey, ErrorCode};
use storage::Disk;

use super::SERVED;
use crate::core::{BrokerCore, CallContext};

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &ApiVersionsRequest,
) -> ApiVersionsResponse {
    let error = check(core, context.api_version, request);
    if error != ErrorCode::None {
        return ApiVersionsResponse {
            error_code: error.code(),
            ..ApiVersionsResponse::default()
        };
    }
    ApiVersionsResponse {
        api_keys: SERVED.iter().filter_map(|api_key| advertised(*api_key)).collect(),
        ..ApiVersionsResponse::default()
    }
}

fn check<D: Disk>(core: &BrokerCore<D>, version: i16, request: &ApiVersionsRequest) -> ErrorCode {
    if version >= 3
        && !(is_software_name(&request.client_software_name)
            && is_software_name(&request.client_software_version))
    {
        return ErrorCode::InvalidRequest;
    }
    if version < 5 {
        return ErrorCode::None;
    }
    match (&request.cluster_id, request.node_id) {
        (None, -1) => ErrorCode::None,
        (Some(cluster), node) if node != -1 => {
            if *cluster == core.cluster_id && node == core.node.get() {
                ErrorCode::None
            } else {
                ErrorCode::RebootstrapRequired
            }
        }
        _ => ErrorCode::InvalidRequest,
    }
}

/// Letters, digits, dots and dashes, beginning and ending with a letter or digit.
fn is_software_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|byte| inner(*byte))
}

fn advertised(api_key: ApiKey) -> Option<ApiVersion> {
    let versions = api_key.advertised_versions()?;
    Some(ApiVersion {
        api_key: api_key.to_i16(),
        min_version: *versions.start(),
        max_version: *versions.end(),
        ..ApiVersion::default()
    })
}

#[cfg(test)]
mod tests {
    use super::is_software_name;

    #[test]
    fn software_names_begin_and_end_with_a_letter_or_digit() {
        for good in ["librdkafka", "apache-kafka-java", "4.4.0", "a"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a_b", "ä"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }
}
