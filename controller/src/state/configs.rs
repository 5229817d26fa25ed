//! Dynamic configs of topics, brokers, groups and client metrics: single steps (KIP-339) and the older replacement of a
//! resource's whole set. A resource's change applies as a whole or not at all.

use std::collections::BTreeMap;

use protocol::ErrorCode;
use protocol::messages::alter_configs_request::AlterableConfig;
use protocol::messages::alter_configs_response::AlterConfigsResourceResponse as AlterResponse;
use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, incremental_alter_configs_request as incremental,
};
use protocol::types::NodeId;
use replication::time::Instant;

use super::eligible::MIN_INSYNC_REPLICAS;
use super::repeats::repeated;
use super::topics::invalid_name_reason;
use super::{ApiError, ControllerState, code_and_message};
use crate::config::{
    ConfigCatalogue, ConfigError, ConfigResource, ConfigResourceType, ConfigType, split_list,
    validate_broker_changes, validate_client_metrics_configs, validate_group_configs,
    validate_topic_configs,
};
use crate::image::ConfigMap;
use crate::records::Config;

/// One step of one key, by Kafka's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Set,
    Delete,
    Append,
    Subtract,
}

impl Operation {
    fn from_code(code: i8) -> Option<Self> {
        Some(match code {
            0 => Operation::Set,
            1 => Operation::Delete,
            2 => Operation::Append,
            3 => Operation::Subtract,
            _ => return None,
        })
    }
}

/// One key's step as a request gives it.
struct Step<'a> {
    key: &'a str,
    /// `None` for one that does not exist.
    operation: Option<Operation>,
    value: Option<&'a str>,
}

impl<'a> Step<'a> {
    fn of(config: &'a incremental::AlterableConfig) -> Self {
        Step {
            key: &config.name,
            operation: Operation::from_code(config.config_operation),
            value: config.value.as_deref(),
        }
    }

    fn setting(config: &'a AlterableConfig) -> Self {
        let value = config.value.as_deref();
        Step { key: &config.name, operation: Some(Operation::Set), value }
    }
}

/// The keys of a resource that get a new value, or none.
type Changes = BTreeMap<String, Option<String>>;

impl ControllerState {
    pub(super) fn on_incremental_alter_configs(
        &mut self,
        request: &IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let resources = &request.resources;
        let responses = self.deciding(request.validate_only, |state| {
            let mut responses = Vec::with_capacity(resources.len());
            let names = resources.iter().map(|r| (r.resource_type, r.resource_name.as_str()));
            let repeated = repeated(names);
            // A step that does not exist makes nonsense of the whole request, not of its resource alone.
            let mut operations = resources.iter().flat_map(|resource| &resource.configs);
            let has_unknown =
                operations.any(|config| Operation::from_code(config.config_operation).is_none());
            for resource in resources {
                let key = (resource.resource_type, resource.resource_name.as_str());
                let outcome = once(repeated.contains(&key)).and_then(|()| {
                    let steps: Vec<Step<'_>> = resource.configs.iter().map(Step::of).collect();
                    check_steps(&steps)?;
                    if has_unknown {
                        return Err(ErrorCode::UnknownServerError.into());
                    }
                    let target = state.config_resource(key.0, key.1)?;
                    let changes = state.incremental_changes(&target, &steps)?;
                    state.change_configs(&target, changes)
                });
                let (error_code, error_message) = code_and_message(outcome);
                responses.push(AlterConfigsResourceResponse {
                    error_code,
                    error_message,
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.clone(),
                    ..Default::default()
                });
            }
            responses
        });
        IncrementalAlterConfigsResponse { responses, ..Default::default() }
    }

    pub(super) fn on_alter_configs(
        &mut self,
        request: &AlterConfigsRequest,
    ) -> AlterConfigsResponse {
        let resources = &request.resources;
        let responses = self.deciding(request.validate_only, |state| {
            let mut responses = Vec::with_capacity(resources.len());
            let names = resources.iter().map(|r| (r.resource_type, r.resource_name.as_str()));
            let repeated = repeated(names);
            for resource in resources {
                let key = (resource.resource_type, resource.resource_name.as_str());
                let outcome = once(repeated.contains(&key)).and_then(|()| {
                    let steps: Vec<Step<'_>> = resource.configs.iter().map(Step::setting).collect();
                    check_steps(&steps)?;
                    let target = state.config_resource(key.0, key.1)?;
                    let mut changes = state.incremental_changes(&target, &steps)?;
                    // What the request leaves out is removed.
                    for key in state.image.configs(&target).into_iter().flat_map(ConfigMap::keys) {
                        changes.entry(key.clone()).or_insert(None);
                    }
                    state.change_configs(&target, changes)
                });
                let (error_code, error_message) = code_and_message(outcome);
                responses.push(AlterResponse {
                    error_code,
                    error_message,
                    resource_type: resource.resource_type,
                    resource_name: resource.resource_name.clone(),
                    ..Default::default()
                });
            }
            responses
        });
        AlterConfigsResponse { responses, ..Default::default() }
    }

    /// The resource a request names, if it exists.
    fn config_resource(&self, kind: i8, name: &str) -> Result<ConfigResource, ApiError> {
        let invalid = |text: String| ApiError::new(ErrorCode::InvalidRequest, text);
        let kind = ConfigResourceType::from_code(kind)
            .ok_or_else(|| invalid(format!("Unknown resource type {kind}")))?;
        match kind {
            ConfigResourceType::Topic if name.is_empty() => {
                return Err(invalid("Default topic resources are not allowed.".to_owned()));
            }
            ConfigResourceType::Topic if invalid_name_reason(name).is_some() => {
                let reason = invalid_name_reason(name).unwrap_or_default();
                return Err(ApiError::new(
                    ErrorCode::InvalidTopicException,
                    format!("Topic name is invalid: {reason}"),
                ));
            }
            ConfigResourceType::Topic if self.image.topic_id(name).is_none() => {
                return Err(ApiError::new(
                    ErrorCode::UnknownTopicOrPartition,
                    format!("The topic '{name}' does not exist."),
                ));
            }
            ConfigResourceType::Broker if !name.is_empty() => {
                let id: i32 = name.parse().map_err(|_| {
                    invalid("Unable to parse broker name as a base 10 number.".to_owned())
                })?;
                if self.image.broker(NodeId(id)).is_none() {
                    return Err(ApiError::new(
                        ErrorCode::BrokerIdNotRegistered,
                        format!("No broker with id {id} found."),
                    ));
                }
                return Ok(ConfigResource::broker(NodeId(id)));
            }
            ConfigResourceType::Group if name.is_empty() => {
                return Err(invalid("Default group resources are not allowed.".to_owned()));
            }
            ConfigResourceType::ClientMetrics if name.is_empty() => {
                return Err(invalid("Subscription name can't be empty".to_owned()));
            }
            ConfigResourceType::BrokerLogger => {
                return Err(invalid("Log levels are not for the controller to change.".to_owned()));
            }
            _ => {}
        }
        Ok(ConfigResource { kind, name: name.into() })
    }

    fn incremental_changes(
        &self,
        resource: &ConfigResource,
        steps: &[Step<'_>],
    ) -> Result<Changes, ApiError> {
        let mut changes = Changes::new();
        for step in steps {
            let value = match (step.operation, step.value) {
                (Some(Operation::Set), Some(value)) => Some(value.to_owned()),
                (Some(operation @ (Operation::Append | Operation::Subtract)), Some(value)) => {
                    Some(self.edited_list(resource, step.key, operation, value)?)
                }
                // Deletions; `check_steps` let no other step without a value pass.
                _ => None,
            };
            changes.insert(step.key.to_owned(), value);
        }
        Ok(changes)
    }

    /// A list with elements added that it lacks, or without the given ones.
    fn edited_list(
        &self,
        resource: &ConfigResource,
        key: &str,
        operation: Operation,
        value: &str,
    ) -> Result<String, ApiError> {
        // Lists of groups and subscriptions are set as a whole, as in Kafka.
        let def = match resource.kind {
            ConfigResourceType::Topic => ConfigCatalogue::topic().get(key),
            ConfigResourceType::Broker => ConfigCatalogue::broker().get(key),
            _ => None,
        };
        let def = def.filter(|def| def.kind == ConfigType::List);
        let Some(def) = def else {
            let name = if operation == Operation::Append { "APPEND" } else { "SUBTRACT" };
            return Err(ApiError::new(
                ErrorCode::InvalidConfig,
                format!("Can't {name} to key {key} because its type is not LIST."),
            ));
        };
        let current = self.image.configs(resource).and_then(|configs| configs.get(key));
        let current = current.map(String::as_str).or(def.default_text()).unwrap_or_default();
        let mut elements = split_list(current);
        for given in split_list(value) {
            match operation {
                Operation::Subtract => elements.retain(|element| *element != given),
                _ if elements.contains(&given) => {}
                _ => elements.push(given),
            }
        }
        Ok(elements.join(","))
    }

    /// Whether a resource may have the configs `after`, which `changes` lead to.
    fn check_configs(
        &self,
        resource: &ConfigResource,
        changes: &Changes,
        after: &ConfigMap,
    ) -> Result<(), ApiError> {
        let (checked, code) = match resource.kind {
            ConfigResourceType::Topic => (
                validate_topic_configs(after, &self.config_layers().borrow()),
                ErrorCode::InvalidConfig,
            ),
            ConfigResourceType::Group => (
                validate_group_configs(after, &self.config_layers().borrow()),
                ErrorCode::InvalidConfig,
            ),
            ConfigResourceType::ClientMetrics => {
                let checked = validate_client_metrics_configs(after);
                let is_invalid = matches!(checked, Err(ConfigError::Invalid { .. }));
                let code =
                    if is_invalid { ErrorCode::InvalidConfig } else { ErrorCode::InvalidRequest };
                (checked, code)
            }
            ConfigResourceType::Broker | ConfigResourceType::BrokerLogger => (
                validate_broker_changes(resource.name.is_empty(), changes),
                ErrorCode::InvalidRequest,
            ),
        };
        checked.map_err(|error| ApiError::new(code, error.to_string()))
    }

    fn change_configs(
        &mut self,
        resource: &ConfigResource,
        changes: Changes,
    ) -> Result<(), ApiError> {
        let current = self.image.configs(resource).cloned().unwrap_or_default();
        let mut after = current.clone();
        for (key, value) in &changes {
            match value {
                Some(value) => after.insert(key.clone(), value.clone()),
                None => after.remove(key),
            };
        }
        self.check_configs(resource, &changes, &after)?;
        if let Some(value) = changes.get(MIN_INSYNC_REPLICAS) {
            self.check_min_isr_change(resource, value.as_deref())?;
        }
        for (key, value) in changes {
            // A broker reads its files again when it is told what it knows.
            let is_known = current.get(&key) == value.as_ref();
            if is_known && resource.kind != ConfigResourceType::Broker {
                continue;
            }
            if key == "unclean.leader.election.enable" {
                // Leaderless partitions need not wait for the next poll (C05).
                self.next_unclean_check = Instant::ZERO;
            }
            if key == MIN_INSYNC_REPLICAS {
                self.forget_eligible(resource);
            }
            self.decide(Config {
                resource_type: i32::from(resource.kind.code()),
                resource_name: resource.name.to_string(),
                key,
                value,
            });
        }
        Ok(())
    }
}

fn once(is_repeated: bool) -> Result<(), ApiError> {
    if is_repeated {
        let text = "Each resource must appear at most once.";
        return Err(ApiError::new(ErrorCode::InvalidRequest, text));
    }
    Ok(())
}

/// What can be said of a resource's steps without looking at the resource.
fn check_steps(steps: &[Step<'_>]) -> Result<(), ApiError> {
    let invalid = |text: String| Err(ApiError::new(ErrorCode::InvalidRequest, text));
    if !repeated(steps.iter().map(|step| step.key)).is_empty() {
        return invalid("Error due to duplicate config keys".to_owned());
    }
    let needs_value = |step: &&Step<'_>| step.operation != Some(Operation::Delete);
    let mut without = steps.iter().filter(needs_value).filter(|step| step.value.is_none());
    match without.next() {
        Some(step) => invalid(format!("Null value not supported for : {}", step.key)),
        None => Ok(()),
    }
}
