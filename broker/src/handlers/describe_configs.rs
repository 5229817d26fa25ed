//! DescribeConfigs: the configs of topics and of this broker, with where each value comes from.
//!
//! | resource | what is told |
//! |---|---|
//! | a topic | every topic key, with what the topic, this broker's layers and the defaults say |
//! | a broker by id | every broker key; only the broker itself knows its static ones, so another id is 42 |
//! | every broker (empty name) | the dynamic defaults that are set |
//! | a group, client metrics | what is set for it |
//! | a logger | refused: log levels are not for requests to see or change |
//!
//! Keys that Kafka calls internal are told when they are set. Values of passwords, and of keys that
//! nobody knows, are never told. A null or empty list of keys means all. Versions: 1 sources and synonyms; 3 types
//! and, when asked for, documentation (ours: what a key takes and whether Highwater acts on it).

use std::collections::BTreeMap;

use controller::config::{
    ConfigCatalogue, ConfigDef, ConfigLayers, ConfigResource, ConfigResourceType, ConfigScope,
    ConfigSource, ConfigSynonym, EffectiveConfig,
};
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use protocol::ErrorCode;
use storage::Disk;

use super::create_topics::is_valid_name;
use crate::core::directory::Directory;
use crate::core::settings::StaticConfigs;
use crate::core::{BrokerCore, CallContext};

/// The type of a key that nobody knows.
const UNKNOWN_TYPE: i8 = 0;

/// Why a resource is refused.
type Refusal = (ErrorCode, Option<String>);

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    context: &CallContext,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let directory = core.directory();
    let describer = Describer {
        node: core.node.get(),
        directory: &directory,
        static_configs: core.replicas.static_configs(),
        with_synonyms: request.include_synonyms,
        with_documentation: context.api_version >= 3 && request.include_documentation,
    };
    let results = request.resources.iter().map(|resource| {
        let (refusal, mut configs) = match describer.describe(resource) {
            Ok(configs) => ((ErrorCode::None, Some(String::new())), configs),
            Err(refusal) => (refusal, Vec::new()),
        };
        if let Some(keys) = &resource.configuration_keys
            && !keys.is_empty()
        {
            configs.retain(|config| keys.contains(&config.name));
        }
        DescribeConfigsResult {
            error_code: refusal.0.code(),
            error_message: refusal.1,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            configs,
            ..DescribeConfigsResult::default()
        }
    });
    DescribeConfigsResponse {
        results: results.collect(),
        ..DescribeConfigsResponse::default()
    }
}

/// A broker key's value in force on this broker.
pub(super) fn broker_value<D: Disk>(core: &BrokerCore<D>, key: &str) -> Option<String> {
    let def = ConfigCatalogue::broker().get(key)?;
    let directory = core.directory();
    let layers = layers(&directory, core.node.get(), core.replicas.static_configs());
    layers.broker_config(def).value
}

fn layers<'a>(
    directory: &'a Directory,
    node: i32,
    static_configs: &'a StaticConfigs,
) -> ConfigLayers<'a> {
    ConfigLayers {
        dynamic_broker: directory.image.configs(&ConfigResource::broker(node.into())),
        dynamic_default: directory.image.configs(&ConfigResource::default_broker()),
        static_broker: Some(static_configs),
    }
}

struct Describer<'a> {
    node: i32,
    directory: &'a Directory,
    static_configs: &'a StaticConfigs,
    with_synonyms: bool,
    with_documentation: bool,
}

impl Describer<'_> {
    fn describe(
        &self,
        resource: &DescribeConfigsResource,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let name = resource.resource_name.as_str();
        match ConfigResourceType::from_code(resource.resource_type) {
            Some(ConfigResourceType::Topic) => self.topic(name),
            Some(ConfigResourceType::Broker) if name.is_empty() => Ok(self.every_broker()),
            Some(ConfigResourceType::Broker) => self.broker(name),
            Some(ConfigResourceType::BrokerLogger) => Err(invalid(
                "this broker's log levels are set at its start and cannot be asked for".to_owned(),
            )),
            Some(kind @ (ConfigResourceType::ClientMetrics | ConfigResourceType::Group)) => {
                self.by_what_is_set(kind, name)
            }
            None => Err(invalid(format!(
                "resource type {} has no configs",
                resource.resource_type
            ))),
        }
    }

    fn topic(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        if !is_valid_name(name) {
            let message = format!("'{name}' cannot be a topic's name");
            return Err((ErrorCode::InvalidTopicException, Some(message)));
        }
        if self.directory.image.topic_by_name(name).is_none() {
            return Err((ErrorCode::UnknownTopicOrPartition, None));
        }
        let own = self.directory.image.configs(&ConfigResource::topic(name));
        let layers = layers(self.directory, self.node, self.static_configs);
        let is_set = |def: &ConfigDef| own.is_some_and(|own| own.contains_key(def.name));
        let shown = ConfigCatalogue::topic().iter().filter(|def| !def.internal || is_set(def));
        let described = shown.map(|def| {
            let mut effective = layers.topic_config(def, own);
            if let Some(first) = def.fallbacks.first() {
                drop_indirect(&mut effective, first.key, is_set(def));
            }
            self.entry(def, effective, false)
        });
        Ok(described.collect())
    }

    fn broker(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let id: i32 = name
            .parse()
            .map_err(|_| invalid(format!("'{name}' is no broker id: it must be a number")))?;
        if id != self.node {
            return Err(invalid(format!(
                "broker {} cannot tell the configs of broker {id}: ask that one",
                self.node
            )));
        }
        let layers = layers(self.directory, self.node, self.static_configs);
        let is_set = |def: &ConfigDef| self.static_configs.contains_key(def.name);
        let catalogue = ConfigCatalogue::broker();
        let known = catalogue.iter().filter(|def| !def.internal || is_set(def));
        let known = known.map(|def| {
            let effective = broker_config(&layers, def);
            self.entry(def, effective, !def.is_dynamic())
        });
        let unknown = unknown_keys(&layers);
        let unknown = unknown.into_iter().map(|(key, sources)| self.unknown_entry(key, &sources));
        Ok(known.chain(unknown).collect())
    }

    /// The dynamic defaults: what is set, and nothing else.
    fn every_broker(&self) -> Vec<DescribeConfigsResourceResult> {
        let layers = ConfigLayers {
            dynamic_default: self.directory.image.configs(&ConfigResource::default_broker()),
            ..ConfigLayers::default()
        };
        let set = layers.dynamic_default.into_iter().flatten();
        set.map(|(key, _)| match ConfigCatalogue::broker().get(key) {
            Some(def) => {
                let mut effective = layers.broker_config(def);
                effective.synonyms.retain(|synonym| {
                    synonym.source == ConfigSource::DynamicDefaultBroker
                });
                self.entry(def, effective, !def.is_dynamic())
            }
            None => self.unknown_entry(key, &[ConfigSource::DynamicDefaultBroker]),
        })
        .collect()
    }

    fn by_what_is_set(
        &self,
        kind: ConfigResourceType,
        name: &str,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        if name.is_empty() {
            return Err(invalid(format!("a resource of type {kind} needs a name")));
        }
        let resource = ConfigResource {
            kind,
            name: name.into(),
        };
        let set = self.directory.image.configs(&resource).into_iter().flatten();
        Ok(set
            .map(|(key, value)| DescribeConfigsResourceResult {
                name: key.clone(),
                value: Some(value.clone()),
                ..DescribeConfigsResourceResult::default()
            })
            .collect())
    }

    fn entry(
        &self,
        def: &ConfigDef,
        effective: EffectiveConfig,
        read_only: bool,
    ) -> DescribeConfigsResourceResult {
        let shown = |value: Option<String>| value.filter(|_| !def.sensitive);
        let synonyms = if self.with_synonyms { effective.synonyms } else { Vec::new() };
        let synonyms = synonyms.into_iter().map(|synonym: ConfigSynonym| DescribeConfigsSynonym {
            name: synonym.name.to_owned(),
            value: shown(synonym.value),
            source: synonym.source.code(),
            ..DescribeConfigsSynonym::default()
        });
        DescribeConfigsResourceResult {
            name: def.name.to_owned(),
            value: shown(effective.value),
            read_only,
            config_source: effective.source.code(),
            is_sensitive: def.sensitive,
            synonyms: synonyms.collect(),
            config_type: def.kind.code(),
            documentation: self.with_documentation.then(|| documentation(def)),
            ..DescribeConfigsResourceResult::default()
        }
    }

    /// A key that is not in the catalogue: nobody knows whether its value is a secret. `sources` are
    /// the layers that have it, the strongest first.
    fn unknown_entry(&self, key: &str, sources: &[ConfigSource]) -> DescribeConfigsResourceResult {
        let synonyms = sources.iter().map(|source| DescribeConfigsSynonym {
            name: key.to_owned(),
            value: None,
            source: source.code(),
            ..DescribeConfigsSynonym::default()
        });
        DescribeConfigsResourceResult {
            name: key.to_owned(),
            value: None,
            read_only: true,
            config_source: sources.first().map_or(-1, |source| source.code()),
            is_sensitive: true,
            synonyms: if self.with_synonyms { synonyms.collect() } else { Vec::new() },
            config_type: UNKNOWN_TYPE,
            documentation: None,
            ..DescribeConfigsResourceResult::default()
        }
    }
}

/// A broker key in force. One that leads a topic key's fallbacks (`log.retention.ms`) shows what it
/// stands before (`log.retention.hours`) among its synonyms; its value is its own.
fn broker_config(layers: &ConfigLayers<'_>, def: &ConfigDef) -> EffectiveConfig {
    let mut effective = layers.broker_config(def);
    let leads = |topic: &&ConfigDef| {
        topic.fallbacks.len() > 1 && topic.fallbacks.first().is_some_and(|own| own.key == def.name)
    };
    if let Some(topic) = ConfigCatalogue::topic().iter().find(leads) {
        effective.synonyms = layers.topic_config(topic, None).synonyms;
        drop_indirect(&mut effective, def.name, false);
    }
    effective
}

/// Kafka shows the keys that `first` stands before only below a value of `first` itself: a topic whose
/// retention comes from `log.retention.hours` alone has no synonyms, and its source is the default.
fn drop_indirect(effective: &mut EffectiveConfig, first: &str, keep_own: bool) {
    let own = usize::from(keep_own);
    let fallbacks = effective.synonyms.iter().skip(own);
    let indirect = fallbacks.take_while(|synonym| synonym.name != first).count();
    effective.synonyms.drain(own..own + indirect);
    effective.source =
        effective.synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source);
}

/// Keys of a broker's layers that are not in the catalogue, with the layers that have them.
fn unknown_keys<'a>(layers: &ConfigLayers<'a>) -> BTreeMap<&'a str, Vec<ConfigSource>> {
    let mut found: BTreeMap<&str, Vec<ConfigSource>> = BTreeMap::new();
    for (layer, source) in [
        (layers.dynamic_broker, ConfigSource::DynamicBroker),
        (layers.dynamic_default, ConfigSource::DynamicDefaultBroker),
        (layers.static_broker, ConfigSource::StaticBroker),
    ] {
        for key in layer.into_iter().flat_map(BTreeMap::keys) {
            if ConfigCatalogue::broker().get(key).is_none() {
                found.entry(key).or_default().push(source);
            }
        }
    }
    found
}

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, Some(message))
}

/// What a key is, in a sentence or two.
fn documentation(def: &ConfigDef) -> String {
    let change = match def.scope {
        ConfigScope::Static => "Changes with a restart.",
        ConfigScope::Cluster => "Can change at run time, for one broker or for all.",
        ConfigScope::Broker => "Can change at run time, for one broker.",
        ConfigScope::Topic => "Can change at run time, for the topic.",
    };
    let effect = if def.honoured {
        "Highwater acts on it."
    } else {
        "Highwater accepts and shows it, and does not act on it."
    };
    format!("Type {:?}. {change} {effect}", def.kind)
}
