//! What must hold between a topic's configs, and the check of a whole set.

use std::collections::BTreeMap;

use super::{ConfigCatalogue, ConfigError, ConfigLayers};
use crate::image::ConfigMap;

/// Checks the whole set of a topic's own configs: known keys, allowed values, and the rules between
/// keys, for which unset keys count with what the broker layers give.
pub fn validate_topic_configs(
    configs: &ConfigMap,
    layers: &ConfigLayers<'_>,
) -> Result<(), ConfigError> {
    let catalogue = ConfigCatalogue::topic();
    let unknown = configs.keys().find(|key| catalogue.get(key).is_none());
    if let Some(key) = unknown {
        return Err(ConfigError::UnknownTopicKey(key.clone()));
    }
    let mut values = BTreeMap::new();
    for (key, text) in configs {
        if let Some(def) = catalogue.get(key) {
            values.insert(key.as_str(), def.validate(text)?);
        }
    }
    if values.get("remote.storage.enable").and_then(|value| value.as_bool()) == Some(true) {
        return Err(ConfigError::Conflict(
            "Tiered Storage functionality is disabled in the broker. \
             Topic cannot be configured with remote log storage."
                .to_owned(),
        ));
    }
    let lag = |key: &str| {
        layers.topic_value(key, Some(configs)).and_then(|value| value.as_i64()).unwrap_or_default()
    };
    let (min, max) = (lag("min.compaction.lag.ms"), lag("max.compaction.lag.ms"));
    if min > max {
        return Err(ConfigError::Conflict(format!(
            "conflict topic config setting min.compaction.lag.ms ({min}) > \
             max.compaction.lag.ms ({max})"
        )));
    }
    Ok(())
}
