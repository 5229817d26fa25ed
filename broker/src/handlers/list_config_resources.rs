//! ListConfigResources (KIP-1142; version 0 is KIP-714's list of client metrics subscriptions).
//!
//! Version 0 lists client metrics subscriptions, of which there are none. Version 1 takes types, all of
//! them when it names none: topics, brokers, client metrics and groups, the last two by their dynamic
//! configs. A type that does not exist is UNSUPPORTED_VERSION. Every broker has loggers (8).

use controller::ConfigResourceType;
use protocol::ErrorCode;
use protocol::messages::list_config_resources_response::ConfigResource;
use protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use storage::Disk;

use crate::core::{BrokerCore, CallContext};

/// In the order of the answer.
const ALL: [ConfigResourceType; 5] = [
    ConfigResourceType::Group,
    ConfigResourceType::ClientMetrics,
    ConfigResourceType::BrokerLogger,
    ConfigResourceType::Broker,
    ConfigResourceType::Topic,
];

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let wanted = match wanted_types(context.api_version, &request.resource_types) {
        Ok(wanted) => wanted,
        Err(error) => {
            return ListConfigResourcesResponse {
                error_code: error.code(),
                ..ListConfigResourcesResponse::default()
            };
        }
    };
    let config_resources = wanted.into_iter().flat_map(|kind| {
        names(core, &context.listener, kind).into_iter().map(move |name| ConfigResource {
            resource_name: name,
            resource_type: kind.code(),
            ..ConfigResource::default()
        })
    });
    ListConfigResourcesResponse {
        config_resources: config_resources.collect(),
        ..ListConfigResourcesResponse::default()
    }
}

fn wanted_types(version: i16, asked: &[i8]) -> Result<Vec<ConfigResourceType>, ErrorCode> {
    if version == 0 {
        return Ok(vec![ConfigResourceType::ClientMetrics]);
    }
    let known = |code: &i8| ConfigResourceType::from_code(*code).is_some();
    if !asked.iter().all(known) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    let is_wanted = |kind: &ConfigResourceType| asked.is_empty() || asked.contains(&kind.code());
    Ok(ALL.into_iter().filter(is_wanted).collect())
}

fn names<D: Disk>(core: &BrokerCore<D>, listener: &str, kind: ConfigResourceType) -> Vec<String> {
    let image = &core.directory().image;
    match kind {
        ConfigResourceType::Topic => {
            image.topics_by_name().map(|topic| topic.name.to_string()).collect()
        }
        ConfigResourceType::Broker | ConfigResourceType::BrokerLogger => image
            .brokers()
            .filter(|broker| !broker.fenced && broker.listener(listener).is_some())
            .map(|broker| broker.id.to_string())
            .collect(),
        ConfigResourceType::ClientMetrics | ConfigResourceType::Group => image
            .config_resources()
            .filter(|(resource, _)| resource.kind == kind)
            .map(|(resource, _)| resource.name.to_string())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::TestBroker;

    fn ask(broker: &TestBroker, version: i16, types: &[i8]) -> (i16, Vec<(i8, String)>) {
        let response = broker.ask(
            version,
            ListConfigResourcesRequest {
                resource_types: types.to_vec(),
                ..ListConfigResourcesRequest::default()
            },
        );
        let resources = response.config_resources.into_iter();
        (response.error_code, resources.map(|r| (r.resource_type, r.resource_name)).collect())
    }

    #[test]
    fn version_0_lists_client_metrics_and_version_1_what_is_asked_for() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        broker.set_config(16, "subscription", "interval.ms", "1000");
        let named = |kind: i8, name: &str| (kind, name.to_owned());
        assert_eq!(ask(&broker, 0, &[]), (0, vec![named(16, "subscription")]));
        let brokers = |kind: i8| [named(kind, "1"), named(kind, "2")];
        let mut all = vec![named(16, "subscription")];
        all.extend(brokers(8).into_iter().chain(brokers(4)).chain([named(2, "t")]));
        assert_eq!(ask(&broker, 1, &[]), (0, all));
        assert_eq!(ask(&broker, 1, &[2, 2]), (0, vec![named(2, "t")]));
        assert_eq!(ask(&broker, 1, &[8]), (0, brokers(8).to_vec()));
    }

    #[test]
    fn a_type_that_does_not_exist_is_an_unsupported_version() {
        assert_eq!(ask(&TestBroker::new(), 1, &[2, 77]), (35, Vec::new()));
    }
}
