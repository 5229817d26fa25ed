//! The catalogue: every key with its type, default, allowed values and whereabouts.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::{ConfigError, ConfigType, ConfigValue, ValidValues};

/// What a key is worth when nobody set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigDefault {
    /// It must be set.
    Required,
    /// It has no value; other keys or the code decide.
    Null,
    /// This text.
    Value(&'static str),
}

/// How much a key matters, in Kafka's judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Look at it first.
    High,
    /// For tuning.
    Medium,
    /// Rarely touched.
    Low,
}

/// Where a key can change while the cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigScope {
    /// Only in the properties, with a restart.
    Static,
    /// For every broker at once, or for one.
    Cluster,
    /// For one broker only.
    Broker,
    /// For a topic.
    Topic,
    /// For a group.
    Group,
    /// For a subscription of client metrics.
    Subscription,
}

/// A broker key that stands in for a key of a topic or a group that is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The broker key.
    pub key: &'static str,
    /// What its number is multiplied by to give the topic key's unit; 1 for the same text.
    pub factor: i64,
}

/// One key.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigDef {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ConfigType,
    /// Its value when nobody set it.
    pub default: ConfigDefault,
    /// The values it allows.
    pub valid: ValidValues,
    /// How much it matters.
    pub importance: Importance,
    /// Whether it is hidden unless it is set.
    pub internal: bool,
    /// Whether its value is never shown.
    pub sensitive: bool,
    /// Where it can change at run time.
    pub scope: ConfigScope,
    /// For a key of a topic or a group: the broker keys it falls back to, in order.
    pub fallbacks: Vec<Fallback>,
    /// Whether Highwater acts on it. The others are accepted, checked and shown.
    pub honoured: bool,
}

impl ConfigDef {
    /// Reads and checks a value.
    pub fn validate(&self, text: &str) -> Result<ConfigValue, ConfigError> {
        let value = self.kind.parse(self.name, text)?;
        self.valid.check(self.name, text, &value)?;
        Ok(value)
    }

    /// The default as a value; `None` for keys that have none.
    pub fn default_value(&self) -> Option<ConfigValue> {
        match self.default {
            // Defaults are Kafka's own and some lie outside what a user may set, so only parsed.
            ConfigDefault::Value(text) => self.kind.parse(self.name, text).ok(),
            ConfigDefault::Required | ConfigDefault::Null => None,
        }
    }

    /// The default as text.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.default {
            ConfigDefault::Value(text) => Some(text),
            ConfigDefault::Required | ConfigDefault::Null => None,
        }
    }

    /// Whether it can change while the broker runs.
    pub fn is_dynamic(&self) -> bool {
        self.scope != ConfigScope::Static
    }
}

/// The keys of one kind of resource.
#[derive(Debug)]
pub struct ConfigCatalogue {
    defs: BTreeMap<&'static str, ConfigDef>,
}

impl ConfigCatalogue {
    /// The keys of `server.properties`.
    pub fn broker() -> &'static ConfigCatalogue {
        static CATALOGUE: OnceLock<ConfigCatalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| Self::read(include_str!("../../configs/broker.tsv")))
    }

    /// The keys of a topic.
    pub fn topic() -> &'static ConfigCatalogue {
        static CATALOGUE: OnceLock<ConfigCatalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| Self::read(include_str!("../../configs/topic.tsv")))
    }

    /// The keys of a group.
    pub fn group() -> &'static ConfigCatalogue {
        static CATALOGUE: OnceLock<ConfigCatalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| Self::read(include_str!("../../configs/group.tsv")))
    }

    /// The keys of a subscription of client metrics (KIP-714).
    pub fn client_metrics() -> &'static ConfigCatalogue {
        static CATALOGUE: OnceLock<ConfigCatalogue> = OnceLock::new();
        CATALOGUE.get_or_init(|| Self::read(include_str!("../../configs/client_metrics.tsv")))
    }

    /// One key.
    pub fn get(&self, name: &str) -> Option<&ConfigDef> {
        self.defs.get(name)
    }

    /// Every key, by name.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigDef> {
        self.defs.values()
    }

    /// Panics on a malformed line: the file is part of the program and a test reads all of it.
    fn read(table: &'static str) -> ConfigCatalogue {
        let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let defs = lines.map(|line| {
            let def = read_line(line).unwrap_or_else(|| panic!("malformed config line: {line}"));
            (def.name, def)
        });
        ConfigCatalogue { defs: defs.collect() }
    }
}

fn read_line(line: &'static str) -> Option<ConfigDef> {
    let columns: Vec<&'static str> = line.split('\t').collect();
    let &[name, kind, default, valid, importance, flags, scope, fallbacks, honoured] =
        columns.as_slice()
    else {
        return None;
    };
    let default = match default {
        "required" => ConfigDefault::Required,
        "null" => ConfigDefault::Null,
        text => ConfigDefault::Value(text.strip_prefix('=')?),
    };
    let scope = match scope {
        "static" => ConfigScope::Static,
        "cluster" => ConfigScope::Cluster,
        "broker" => ConfigScope::Broker,
        "topic" => ConfigScope::Topic,
        "group" => ConfigScope::Group,
        "subscription" => ConfigScope::Subscription,
        _ => return None,
    };
    let importance = match importance {
        "high" => Importance::High,
        "medium" => Importance::Medium,
        "low" => Importance::Low,
        _ => return None,
    };
    let has_flag = |flag: &str| flags.split(',').any(|given| given == flag);
    Some(ConfigDef {
        name,
        kind: ConfigType::from_name(kind)?,
        default,
        valid: ValidValues::from_text(valid)?,
        importance,
        internal: has_flag("internal"),
        sensitive: has_flag("sensitive"),
        scope,
        fallbacks: read_fallbacks(fallbacks)?,
        honoured: honoured == "yes",
    })
}

fn read_fallbacks(text: &'static str) -> Option<Vec<Fallback>> {
    let keys = text.split(',').filter(|key| !key.is_empty());
    keys.map(|key| match key.split_once('*') {
        Some((key, factor)) => Some(Fallback { key, factor: factor.parse().ok()? }),
        None => Some(Fallback { key, factor: 1 }),
    })
    .collect()
}
