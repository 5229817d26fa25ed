//! Which value is in force. From strongest to weakest: the topic's or group's own, the broker's dynamic
//! one, the dynamic default of all brokers, the broker's properties, the key's default. A key that the
//! topic or group does not set falls back to broker keys in each of the lower layers.

use std::collections::BTreeMap;

use super::{ConfigCatalogue, ConfigDef, ConfigSource, ConfigValue, Fallback};
use crate::image::ConfigMap;

/// One place where a value was found, for DescribeConfigs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The key that holds it: the topic's or a broker's.
    pub name: &'static str,
    /// The text there; `None` when the key's default is no value.
    pub value: Option<String>,
    /// The layer.
    pub source: ConfigSource,
}

/// The value in force for a key, and the layers below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveConfig {
    /// The key.
    pub name: &'static str,
    /// The value in the key's own unit; `None` when the key has no value.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Every place that gives a value, the one in force first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// The layers that belong to one broker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigLayers<'a> {
    /// The broker's own dynamic configs.
    pub dynamic_broker: Option<&'a ConfigMap>,
    /// The dynamic configs of every broker.
    pub dynamic_default: Option<&'a ConfigMap>,
    /// The broker's properties.
    pub static_broker: Option<&'a BTreeMap<String, String>>,
}

impl<'a> ConfigLayers<'a> {
    /// A broker key in force.
    pub fn broker_config(&self, def: &ConfigDef) -> EffectiveConfig {
        let own = Fallback { key: def.name, factor: 1 };
        self.effective(def, None, ConfigSource::Default, &[own])
    }

    /// A topic key in force for a topic with the configs `topic`.
    pub fn topic_config(&self, def: &ConfigDef, topic: Option<&ConfigMap>) -> EffectiveConfig {
        self.effective(def, topic, ConfigSource::DynamicTopic, &def.fallbacks)
    }

    /// A group's key in force for a group with the configs `group`. What the group sets is told as the
    /// value that was read, not as the text that came.
    pub fn group_config(&self, def: &ConfigDef, group: Option<&ConfigMap>) -> EffectiveConfig {
        let own = group.and_then(|group| group.get(def.name)).map(|text| canonical(def, text));
        let own = own.map(|text| ConfigMap::from([(def.name.to_owned(), text)]));
        let source = ConfigSource::DynamicGroup;
        let mut config = self.effective(def, own.as_ref(), source, &def.fallbacks);
        if let (true, Some(text)) = (def.fallbacks.is_empty(), def.default_text()) {
            config.synonyms.push(ConfigSynonym {
                name: def.name,
                value: Some(text.to_owned()),
                source: ConfigSource::Default,
            });
        }
        config
    }

    /// A key in force for a subscription of client metrics, whose keys no broker key stands in for.
    pub fn client_metrics_config(
        &self,
        def: &ConfigDef,
        subscription: Option<&ConfigMap>,
    ) -> EffectiveConfig {
        self.effective(def, subscription, ConfigSource::DynamicClientMetrics, &[])
    }

    /// A broker key's value in force, parsed.
    pub fn broker_value(&self, key: &str) -> Option<ConfigValue> {
        let def = ConfigCatalogue::broker().get(key)?;
        let effective = self.broker_config(def).value;
        effective.and_then(|text| def.kind.parse(def.name, &text).ok()).or(def.default_value())
    }

    /// A topic key's value in force, parsed; the default when a stored text does not parse any more.
    pub fn topic_value(&self, key: &str, topic: Option<&ConfigMap>) -> Option<ConfigValue> {
        let def = ConfigCatalogue::topic().get(key)?;
        let effective = self.topic_config(def, topic).value;
        effective.and_then(|text| def.kind.parse(def.name, &text).ok()).or(def.default_value())
    }

    fn effective(
        &self,
        def: &ConfigDef,
        own: Option<&ConfigMap>,
        own_source: ConfigSource,
        fallbacks: &[Fallback],
    ) -> EffectiveConfig {
        let mut value = None;
        let mut synonyms = Vec::new();
        if let Some(text) = own.and_then(|own| own.get(def.name)) {
            value = Some(text.clone());
            synonyms.push(ConfigSynonym {
                name: def.name,
                value: Some(text.clone()),
                source: own_source,
            });
        }
        for fallback in fallbacks {
            self.collect(fallback, &mut value, &mut synonyms);
        }
        let source = synonyms.first().map_or(ConfigSource::Default, |synonym| synonym.source);
        let value = value.or_else(|| def.default_text().map(str::to_owned));
        EffectiveConfig { name: def.name, value, source, synonyms }
    }

    /// Adds what the layers say about one broker key, in their order.
    fn collect(
        &self,
        fallback: &Fallback,
        value: &mut Option<String>,
        synonyms: &mut Vec<ConfigSynonym>,
    ) {
        let Some(def) = ConfigCatalogue::broker().get(fallback.key) else {
            return;
        };
        let layers = [
            (self.dynamic_broker, ConfigSource::DynamicBroker),
            (self.dynamic_default, ConfigSource::DynamicDefaultBroker),
            (self.static_broker, ConfigSource::StaticBroker),
        ];
        for (layer, source) in layers {
            let Some(text) = layer.and_then(|layer| layer.get(def.name)) else {
                continue;
            };
            value.get_or_insert_with(|| converted(text, fallback.factor));
            synonyms.push(ConfigSynonym { name: def.name, value: Some(text.clone()), source });
        }
        if let Some(text) = def.default_text() {
            value.get_or_insert_with(|| converted(text, fallback.factor));
            synonyms.push(ConfigSynonym {
                name: def.name,
                value: Some(text.to_owned()),
                source: ConfigSource::Default,
            });
        }
    }
}

/// The value that `text` stands for, written as Kafka writes it: without white space, signs and zeros that
/// say nothing. The text itself when it is no value, which no validated one is.
fn canonical(def: &ConfigDef, text: &str) -> String {
    match def.kind.parse(def.name, text) {
        Ok(ConfigValue::Boolean(value)) => value.to_string(),
        Ok(ConfigValue::List(elements)) => elements.join(","),
        Ok(value) => {
            value.as_i64().map_or_else(|| text.trim().to_owned(), |number| number.to_string())
        }
        Err(_) => text.to_owned(),
    }
}

/// `text` times `factor`; the text itself when it is no number, which no validated one is.
fn converted(text: &str, factor: i64) -> String {
    match text.trim().parse::<i64>() {
        Ok(number) if factor != 1 => number.saturating_mul(factor).to_string(),
        _ => text.to_owned(),
    }
}
