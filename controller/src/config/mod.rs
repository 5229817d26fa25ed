//! The config keys of brokers, topics, groups and client metrics: which exist, what values they take, where a value comes
//! from. The keys, their types, defaults and ranges are Kafka 4.4's, in `configs/*.tsv`.
//!
//! Three questions, three parts: [`ConfigCatalogue`] (what is this key?), [`ConfigDef::validate`]
//! (may it have this value?) and [`ConfigLayers`] (what is in force, and why?).

mod broker_rules;
mod catalogue;
mod error;
mod group_rules;
mod layers;
mod resource;
mod topic_rules;
mod valid;
mod value;

#[cfg(test)]
mod tests;

pub use broker_rules::{
    QUOTAS, STORE_KEYS, THREAD_COUNTS, check_thread_count, validate_broker_changes,
};
pub use catalogue::{ConfigCatalogue, ConfigDef, ConfigDefault, ConfigScope, Fallback, Importance};
pub use error::ConfigError;
pub use group_rules::{validate_client_metrics_configs, validate_group_configs};
pub use layers::{ConfigLayers, ConfigSynonym, EffectiveConfig};
pub use resource::{ConfigResource, ConfigResourceType, ConfigSource};
pub use topic_rules::validate_topic_configs;
pub use valid::ValidValues;
pub use value::{ConfigType, ConfigValue, split_list};
