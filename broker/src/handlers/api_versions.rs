//! ApiVersions (KIP-35, KIP-511): what this broker serves, exactly.
//!
//! Versions: 3 checks the client's name and version, and tells the features that the cluster's brokers
//! support and those that are in force (KIP-584); 4 may list ones whose lowest version is 0; 5 carries
//! the cluster and node that the client believes to talk to (P01). An unknown version is
//! answered by the network in version 0 with error 35.

use controller::ClusterImage;
use controller::state::{FeatureSupport, default_features};
use protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ApiKey, ErrorCode};
use storage::Disk;

use super::SERVED;
use crate::core::{BrokerCore, CallContext};

/// The first version that may tell of features whose lowest level is 0.
const FIRST_WITH_LEVEL_0: i16 = 4;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &ApiVersionsRequest,
) -> ApiVersionsResponse {
    let error = check(core, context.api_version, request);
    if error != ErrorCode::None {
        return ApiVersionsResponse { error_code: error.code(), ..ApiVersionsResponse::default() };
    }
    let image = &core.directory().image;
    ApiVersionsResponse {
        api_keys: SERVED.iter().filter_map(|api_key| advertised(*api_key)).collect(),
        supported_features: supported_features(context.api_version),
        finalized_features_epoch: image.offset().get(),
        finalized_features: finalized_features(image),
        ..ApiVersionsResponse::default()
    }
}

/// Features that have a level at all; those of old versions must have one always.
fn supported_features(version: i16) -> Vec<SupportedFeatureKey> {
    let is_told = |feature: &FeatureSupport| {
        feature.max_level > 0 && (version >= FIRST_WITH_LEVEL_0 || feature.min_level > 0)
    };
    let features = default_features().into_iter().filter(is_told);
    let told = features.map(|feature| SupportedFeatureKey {
        name: feature.name,
        min_version: feature.min_level,
        max_version: feature.max_level,
        ..SupportedFeatureKey::default()
    });
    told.collect()
}

fn finalized_features(image: &ClusterImage) -> Vec<FinalizedFeatureKey> {
    let features = image.features().iter().filter(|(_, level)| **level > 0);
    let told = features.map(|(name, level)| FinalizedFeatureKey {
        name: name.clone(),
        max_version_level: *level,
        min_version_level: *level,
        ..FinalizedFeatureKey::default()
    });
    told.collect()
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
    use controller::records::FeatureLevel;

    use super::*;
    use crate::handlers::testing::TestBroker;

    fn request(cluster: Option<&str>, node: i32) -> ApiVersionsRequest {
        ApiVersionsRequest {
            client_software_name: "tests".into(),
            client_software_version: "1".into(),
            cluster_id: cluster.map(str::to_owned),
            node_id: node,
            ..ApiVersionsRequest::default()
        }
    }

    #[test]
    fn software_names_begin_and_end_with_a_letter_or_digit() {
        for good in ["librdkafka", "apache-kafka-java", "4.4.0", "a"] {
            assert!(is_software_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "a_b", "ä"] {
            assert!(!is_software_name(bad), "{bad}");
        }
    }

    #[test]
    fn features_are_told_from_version_3_on_as_the_metadata_has_them() {
        let broker = TestBroker::new();
        let level = FeatureLevel { name: "metadata.version".into(), level: 33 };
        broker.apply(&[level.into()]);
        let told = broker.ask(3, request(None, -1));
        let supported = |told: &ApiVersionsResponse| {
            let features = told.supported_features.iter();
            let levels = features.map(|f| (f.name.clone(), f.min_version, f.max_version));
            levels.collect::<Vec<_>>()
        };
        let metadata = ("metadata.version".to_owned(), 7, 33);
        assert_eq!(supported(&told), std::slice::from_ref(&metadata));
        let group = ("group.version".to_owned(), 0, 1);
        let eligible = ("eligible.leader.replicas.version".to_owned(), 0, 1);
        assert_eq!(supported(&broker.ask(4, request(None, -1))), [metadata, eligible, group]);
        let finalized = told.finalized_features.iter();
        let finalized =
            finalized.map(|f| (f.name.as_str(), f.min_version_level, f.max_version_level));
        assert_eq!(finalized.collect::<Vec<_>>(), [("metadata.version", 33, 33)]);
        assert_eq!(told.finalized_features_epoch, broker.core.directory().image.offset().get());
        broker.ask(2, request(None, -1));
    }

    #[test]
    fn exactly_the_served_apis_are_listed_and_every_version_listed_is_served() {
        let broker = TestBroker::new();
        for version in 0..=5 {
            let response = broker.ask(version, request(None, -1));
            let listed: Vec<i16> = response.api_keys.iter().map(|api| api.api_key).collect();
            let served: Vec<i16> = SERVED.iter().map(|api_key| api_key.to_i16()).collect();
            assert_eq!(listed, served);
        }
        for api in broker.ask(3, request(None, -1)).api_keys {
            let api_key = ApiKey::from_i16(api.api_key).unwrap();
            for version in api.min_version..=api.max_version {
                // Old clients must see Produce from 0 on, which is not served below 3 (KAFKA-18659).
                let is_pretended = api_key == ApiKey::Produce && version < 3;
                assert_eq!(super::super::serves(api_key, version), !is_pretended, "{api:?}");
            }
            assert!(!super::super::serves(api_key, api.max_version + 1), "{api:?} serves more");
        }
    }

    /// P01: what the client believes to talk to.
    #[test]
    fn a_client_that_means_another_cluster_or_node_is_sent_to_bootstrap_again() {
        let broker = TestBroker::new();
        for (cluster, node, error) in [
            (None, -1, ErrorCode::None),
            (Some("test-cluster"), 1, ErrorCode::None),
            (Some("test-cluster"), 2, ErrorCode::RebootstrapRequired),
            (Some("another"), 1, ErrorCode::RebootstrapRequired),
            (Some("test-cluster"), -1, ErrorCode::InvalidRequest),
            (None, 1, ErrorCode::InvalidRequest),
        ] {
            let response = broker.ask(5, request(cluster, node));
            assert_eq!(response.error_code, error.code(), "{cluster:?} {node}");
            assert_eq!(response.api_keys.is_empty(), error != ErrorCode::None);
        }
    }

    #[test]
    fn a_client_that_does_not_name_itself_is_refused_from_version_3_on() {
        let broker = TestBroker::new();
        assert_eq!(broker.ask(2, ApiVersionsRequest::default()).error_code, 0);
        let response = broker.ask(3, ApiVersionsRequest::default());
        assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
    }
}
