//! DescribeConfigs: the configs of topics and of this broker, with where each value comes from.
//!
//! | resource | what is told |
//! |---|---|
//! | a topic | every topic key, with what the topic, this broker's layers and the defaults say |
//! | a broker by id | every broker key; only the broker itself knows its static ones, so another id is 42 |
//! | every broker (empty name) | the dynamic defaults that are set |
//! | a group, client metrics | every key of it, with what is set for it and, for a group, this broker's layers |
//! | the loggers of this broker | see [`super::loggers`] |
//!
//! Keys that Kafka calls internal are told when they are set. Values of passwords, and of keys that
//! nobody knows, are never told. A null or empty list of keys means all. Versions: 1 sources and synonyms; 3 types
//! and, when asked for, documentation (ours: what a key takes and whether Highwater acts on it).

use std::collections::{BTreeMap, BTreeSet};

use controller::config::{
    ConfigCatalogue, ConfigDef, ConfigLayers, ConfigResource, ConfigResourceType, ConfigScope,
    ConfigSource, ConfigSynonym, ConfigType, EffectiveConfig, QUOTAS,
};
use protocol::ErrorCode;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
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
        knows_documentation: context.api_version >= 3,
        with_documentation: context.api_version >= 3 && request.include_documentation,
    };
    // What is asked for again in the same words is told once: an answer is a thousand times larger than
    // its question, and a question may come a million times in one request.
    let mut told = BTreeSet::new();
    let mut resources: Vec<&DescribeConfigsResource> = request.resources.iter().collect();
    resources.retain(|resource| {
        let name = resource.resource_name.as_str();
        told.insert((resource.resource_type, name, &resource.configuration_keys))
    });
    let results = resources.into_iter().map(|resource| {
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
    DescribeConfigsResponse { results: results.collect(), ..DescribeConfigsResponse::default() }
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
    /// Whether answers of this version have documentation at all; loggers have an empty one.
    knows_documentation: bool,
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
            Some(ConfigResourceType::BrokerLogger) => {
                super::loggers::describe(self.node, name, self.knows_documentation)
                    .map_err(|(code, message)| (code, Some(message)))
            }
            Some(ConfigResourceType::Group) if name.is_empty() => {
                Err(invalid("Group name must not be empty".to_owned()))
            }
            Some(ConfigResourceType::ClientMetrics) if name.is_empty() => {
                Err(invalid("Client metrics subscription name must not be empty".to_owned()))
            }
            Some(kind @ (ConfigResourceType::ClientMetrics | ConfigResourceType::Group)) => {
                Ok(self.group_or_metrics(kind, name))
            }
            None => {
                Err(invalid(format!("resource type {} has no configs", resource.resource_type)))
            }
        }
    }

    fn topic(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        if !is_valid_name(name) {
            let message = format!("'{name}' cannot be a topic's name");
            return Err((ErrorCode::InvalidTopicException, Some(message)));
        }
        if self.directory.image.topic_by_name(name).is_none() {
            return Err((ErrorCode::UnknownTopicOrPartition, Some(String::new())));
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
        let unknown = unknown.into_iter().map(|(key, set)| self.unknown_entry(key, &set));
        Ok(known.chain(unknown).collect())
    }

    /// The dynamic defaults: what is set, and nothing else.
    fn every_broker(&self) -> Vec<DescribeConfigsResourceResult> {
        let layers = ConfigLayers {
            dynamic_default: self.directory.image.configs(&ConfigResource::default_broker()),
            ..ConfigLayers::default()
        };
        let set = layers.dynamic_default.into_iter().flatten();
        set.map(|(key, value)| match ConfigCatalogue::broker().get(key) {
            Some(def) => {
                let mut effective = layers.broker_config(def);
                effective
                    .synonyms
                    .retain(|synonym| synonym.source == ConfigSource::DynamicDefaultBroker);
                self.entry(def, effective, !def.is_dynamic())
            }
            None => self.unknown_entry(key, &[(ConfigSource::DynamicDefaultBroker, value)]),
        })
        .collect()
    }

    fn group_or_metrics(
        &self,
        kind: ConfigResourceType,
        name: &str,
    ) -> Vec<DescribeConfigsResourceResult> {
        let resource = ConfigResource { kind, name: name.into() };
        let own = self.directory.image.configs(&resource);
        let layers = layers(self.directory, self.node, self.static_configs);
        let (catalogue, is_group) = match kind {
            ConfigResourceType::Group => (ConfigCatalogue::group(), true),
            _ => (ConfigCatalogue::client_metrics(), false),
        };
        let is_set = |def: &ConfigDef| own.is_some_and(|own| own.contains_key(def.name));
        let shown = catalogue.iter().filter(|def| !def.internal || is_set(def));
        let described = shown.map(|def| {
            let effective = if is_group {
                layers.group_config(def, own)
            } else {
                layers.client_metrics_config(def, own)
            };
            self.entry(def, effective, false)
        });
        described.collect()
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

    /// A key that is not in the catalogue: a quota, or nobody knows whether its value is a secret. `set`
    /// are the layers that have it with its values, the strongest first.
    fn unknown_entry(
        &self,
        key: &str,
        set: &[(ConfigSource, &str)],
    ) -> DescribeConfigsResourceResult {
        let is_quota = QUOTAS.contains(&key);
        let shown = |value: &str| is_quota.then(|| value.to_owned());
        let synonyms = set.iter().map(|(source, value)| DescribeConfigsSynonym {
            name: key.to_owned(),
            value: shown(value),
            source: source.code(),
            ..DescribeConfigsSynonym::default()
        });
        DescribeConfigsResourceResult {
            name: key.to_owned(),
            value: set.first().and_then(|(_, value)| shown(value)),
            read_only: !is_quota,
            config_source: set.first().map_or(-1, |(source, _)| source.code()),
            is_sensitive: !is_quota,
            synonyms: if self.with_synonyms { synonyms.collect() } else { Vec::new() },
            config_type: if is_quota { ConfigType::Long.code() } else { UNKNOWN_TYPE },
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
fn unknown_keys<'a>(layers: &ConfigLayers<'a>) -> BTreeMap<&'a str, Vec<(ConfigSource, &'a str)>> {
    let mut found: BTreeMap<&str, Vec<(ConfigSource, &str)>> = BTreeMap::new();
    for (layer, source) in [
        (layers.dynamic_broker, ConfigSource::DynamicBroker),
        (layers.dynamic_default, ConfigSource::DynamicDefaultBroker),
        (layers.static_broker, ConfigSource::StaticBroker),
    ] {
        for (key, value) in layer.into_iter().flatten() {
            if ConfigCatalogue::broker().get(key).is_none() {
                found.entry(key).or_default().push((source, value));
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
        ConfigScope::Group => "Can change at run time, for the group.",
        ConfigScope::Subscription => "Can change at run time, for the subscription.",
    };
    let effect = if def.honoured {
        "Highwater acts on it."
    } else {
        "Highwater accepts and shows it, and does not act on it."
    };
    format!("Type {:?}. {change} {effect}", def.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::TestBroker;

    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    const CLIENT_METRICS: i8 = 16;
    const GROUP: i8 = 32;

    fn ask(
        broker: &TestBroker,
        kind: i8,
        name: &str,
        keys: Option<&[&str]>,
    ) -> DescribeConfigsResult {
        let mut response = broker.ask(
            4,
            DescribeConfigsRequest {
                resources: vec![DescribeConfigsResource {
                    resource_type: kind,
                    resource_name: name.to_owned(),
                    configuration_keys: keys
                        .map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
                    ..DescribeConfigsResource::default()
                }],
                include_synonyms: true,
                ..DescribeConfigsRequest::default()
            },
        );
        response.results.remove(0)
    }

    /// One key as `value source [name=value source, ..]`.
    fn told(broker: &TestBroker, kind: i8, name: &str, key: &str) -> String {
        let result = ask(broker, kind, name, Some(&[key]));
        assert_eq!(result.error_code, 0, "{:?}", result.error_message);
        assert_eq!(result.configs.len(), 1, "{key}");
        let config = &result.configs[0];
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
        let synonyms: Vec<String> = config
            .synonyms
            .iter()
            .map(|s| format!("{}={} {}", s.name, shown(&s.value), s.source))
            .collect();
        format!("{} {} [{}]", shown(&config.value), config.config_source, synonyms.join(", "))
    }

    /// Everything here as Kafka 4.4.0 tells it, measured.
    /// Keys that Kafka does not have.
    const OURS: usize = 4;

    #[test]
    fn the_source_and_synonyms_of_a_key_are_the_layers_that_give_it() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        let topic = |key: &str| told(&broker, TOPIC, "t", key);
        let own = |key: &str| told(&broker, BROKER, "1", key);
        assert_eq!(topic("retention.bytes"), "-1 5 [log.retention.bytes=-1 5]");
        // Only the last of three fallbacks has a value; then it is no synonym.
        assert_eq!(topic("retention.ms"), "604800000 5 []");
        assert_eq!(own("log.retention.ms"), "null 5 []");
        assert_eq!(own("log.retention.hours"), "168 5 [log.retention.hours=168 5]");

        broker.set_config(4, "", "log.retention.ms", "7777");
        broker.set_config(4, "1", "log.retention.ms", "8888");
        let layers =
            "[log.retention.ms=8888 2, log.retention.ms=7777 3, log.retention.hours=168 5]";
        assert_eq!(own("log.retention.ms"), format!("8888 2 {layers}"));
        assert_eq!(topic("retention.ms"), format!("8888 2 {layers}"));
        assert_eq!(
            told(&broker, BROKER, "", "log.retention.ms"),
            "7777 3 [log.retention.ms=7777 3]"
        );

        broker.set_config(2, "t", "retention.ms", "1000");
        let layers = layers.replacen('[', "[retention.ms=1000 1, ", 1);
        assert_eq!(topic("retention.ms"), format!("1000 1 {layers}"));
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn groups_and_client_metrics_have_keys_whether_or_not_anything_is_set() {
        let broker = TestBroker::new();
        assert_eq!(ask(&broker, GROUP, "g", None).configs.len(), 21);
        assert_eq!(ask(&broker, CLIENT_METRICS, "m", None).configs.len(), 3);
        let session = || told(&broker, GROUP, "g", "consumer.session.timeout.ms");
        let fallback = "group.consumer.session.timeout.ms=45000 5";
        assert_eq!(session(), format!("45000 5 [{fallback}]"));
        broker.set_config(32, "g", "consumer.session.timeout.ms", "50000");
        let own = "consumer.session.timeout.ms=50000 8";
        assert_eq!(session(), format!("50000 8 [{own}, {fallback}]"));
        assert_eq!(
            told(&broker, GROUP, "g", "share.isolation.level"),
            "read_uncommitted 5 [share.isolation.level=read_uncommitted 5]"
        );
        let interval = || told(&broker, CLIENT_METRICS, "m", "interval.ms");
        assert_eq!(interval(), "300000 5 []");
        broker.set_config(16, "m", "interval.ms", "5000");
        assert_eq!(interval(), "5000 7 [interval.ms=5000 7]");
        for kind in [GROUP, CLIENT_METRICS] {
            assert_eq!(ask(&broker, kind, "", None).error_code, 42);
        }
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn a_group_s_internal_keys_are_told_when_it_sets_them_and_values_as_they_were_read() {
        let broker = TestBroker::new();
        assert!(
            ask(&broker, GROUP, "g", Some(&["streams.num.warmup.replicas"])).configs.is_empty()
        );
        for (key, given, shown) in [
            ("streams.num.warmup.replicas", "5", "5"),
            ("consumer.session.timeout.ms", " 50000 ", "50000"),
            ("streams.rack.aware.assignment.tags", "a , b", "a,b"),
        ] {
            broker.set_config(i32::from(GROUP), "g", key, given);
            let told = told(&broker, GROUP, "g", key);
            assert!(
                told.starts_with(&format!("{shown} 8 [{key}={shown} 8, group.{key}=")),
                "{told}"
            );
        }
        assert_eq!(ask(&broker, GROUP, "g", None).configs.len(), 22);
        assert_eq!(ask(&broker, GROUP, "no such group", None).configs.len(), 21);
    }

    #[test]
    fn a_topics_own_value_alone_keeps_its_synonym() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        broker.set_config(2, "t", "retention.ms", "1000");
        assert_eq!(told(&broker, TOPIC, "t", "retention.ms"), "1000 1 [retention.ms=1000 1]");
    }

    #[test]
    fn no_keys_or_a_null_list_are_all_keys_that_are_not_internal() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        // Kafka 4.4.0's counts, measured.
        assert_eq!(ask(&broker, TOPIC, "t", None).configs.len(), 37);
        assert_eq!(ask(&broker, TOPIC, "t", Some(&[])).configs.len(), 37);
        assert_eq!(ask(&broker, BROKER, "1", None).configs.len(), 350 + OURS);
        assert!(ask(&broker, TOPIC, "t", Some(&["no.such.key"])).configs.is_empty());
        assert!(ask(&broker, BROKER, "", None).configs.is_empty());
    }

    #[test]
    fn passwords_and_keys_that_nobody_knows_are_never_shown() {
        let broker = TestBroker::with_configs(&[
            ("ssl.keystore.password", "hush-hush"),
            ("plugin.key", "hush-hush"),
            ("node.id", "1"),
        ]);
        broker.set_config(4, "", "plugin.key", "hush-hush");
        let result = ask(&broker, BROKER, "1", None);
        let config = |key: &str| result.configs.iter().find(|config| config.name == key).unwrap();
        assert!(!format!("{result:?}").contains("hush-hush"));
        let password = config("ssl.keystore.password");
        assert_eq!(
            (password.is_sensitive, password.config_source, password.config_type),
            (true, 4, 9)
        );
        let unknown = config("plugin.key");
        assert_eq!(
            (unknown.is_sensitive, unknown.config_source, unknown.config_type),
            (true, 3, 0)
        );
        assert_eq!(unknown.synonyms.len(), 2);
        assert!(unknown.read_only);
        let node = config("node.id");
        assert_eq!(
            (node.value.as_deref(), node.config_source, node.read_only),
            (Some("1"), 4, true)
        );
        assert!(!config("num.io.threads").read_only);
    }

    #[test]
    fn documentation_comes_from_version_3_on_and_only_when_asked_for() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        let mut request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: TOPIC,
                resource_name: "t".into(),
                ..DescribeConfigsResource::default()
            }],
            include_documentation: true,
            ..DescribeConfigsRequest::default()
        };
        let response = broker.ask(4, request.clone());
        let configs = &response.results[0].configs;
        assert!(configs.iter().all(|config| config.documentation.is_some()));
        // Without synonyms they are not told.
        assert!(configs.iter().all(|config| config.synonyms.is_empty()));
        request.include_documentation = false;
        let response = broker.ask(1, request);
        assert!(response.results[0].configs.iter().all(|config| config.documentation.is_none()));
    }

    #[test]
    fn resources_that_are_not_here_say_why() {
        let broker = TestBroker::new();
        for (kind, name, error) in [
            (TOPIC, "nowhere", ErrorCode::UnknownTopicOrPartition),
            (TOPIC, "no name", ErrorCode::InvalidTopicException),
            (BROKER, "2", ErrorCode::InvalidRequest),
            (BROKER, "x", ErrorCode::InvalidRequest),
            (8, "1", ErrorCode::InvalidRequest),
            (16, "", ErrorCode::InvalidRequest),
            (3, "x", ErrorCode::InvalidRequest),
        ] {
            let result = ask(&broker, kind, name, None);
            assert_eq!(result.error_code, error.code(), "{kind} {name}");
            assert!(result.configs.is_empty());
        }
    }

    #[test]
    fn a_resource_that_is_asked_for_again_in_the_same_words_is_told_once() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1])]);
        let resource = |kind: i8, name: &str, keys: Option<&str>| DescribeConfigsResource {
            resource_type: kind,
            resource_name: name.to_owned(),
            configuration_keys: keys.map(|key| vec![key.to_owned()]),
            ..DescribeConfigsResource::default()
        };
        let mut resources = vec![resource(TOPIC, "t", None); 1000];
        resources.push(resource(TOPIC, "t", Some("retention.ms")));
        resources.push(resource(BROKER, "1", None));
        resources.push(resource(TOPIC, "t", None));
        let request = DescribeConfigsRequest { resources, ..DescribeConfigsRequest::default() };
        let response = broker.ask(4, request);
        let told: Vec<(&str, usize)> = response
            .results
            .iter()
            .map(|result| (result.resource_name.as_str(), result.configs.len()))
            .collect();
        assert_eq!(told, [("t", 37), ("t", 1), ("1", 350 + OURS)]);
    }
}
