//! `--set key=value`, and the configuration that comes of all layers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use broker::config::{BrokerConfig, ConfigWarning, merge};

/// Config keys and values.
pub type Settings = BTreeMap<String, String>;

/// Takes `--set` apart.
pub fn parse_sets(sets: &[String]) -> Result<Settings> {
    let mut settings = Settings::new();
    for set in sets {
        let (key, value) =
            set.split_once('=').with_context(|| format!("--set {set}: expected key=value"))?;
        if key.trim().is_empty() {
            bail!("--set {set}: the key is empty");
        }
        settings.insert(key.trim().to_owned(), value.to_owned());
    }
    Ok(settings)
}

/// Checks merged layers, and gives what is odd about them.
pub fn check(layers: &[&Settings]) -> Result<(BrokerConfig, Vec<ConfigWarning>)> {
    let merged = merge(layers.iter().copied());
    Ok(BrokerConfig::from_settings(&merged)?)
}

/// Checks merged layers, printing each warning once.
pub fn configure(layers: &[&Settings]) -> Result<BrokerConfig> {
    let (config, warnings) = check(layers)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_without_an_equals_sign_is_refused_by_name() {
        let error = parse_sets(&["num.partitions".into()]).expect_err("no value");
        assert!(error.to_string().contains("num.partitions"), "{error}");
        let settings = parse_sets(&["a=b=c".into()]).expect("a value with a sign in it");
        assert_eq!(settings["a"], "b=c");
    }
}
