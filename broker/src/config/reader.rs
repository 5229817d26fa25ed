//! Reads typed values out of merged settings, with the catalogue's defaults. Every setting is validated
//! once, at the start; the getters then never fail, and remember which keys were read, so that a
//! test can hold the catalogue to what it calls honoured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use controller::config::{ConfigCatalogue, ConfigDef, ConfigDefault, ConfigError, ConfigValue};

use super::report::ConfigWarning;
use super::tls::{LISTENER_KEYS, listener_prefix};

/// Longest duration given out. Clocks can count that far; "never" needs no more.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Keys under these belong to one listener or to plug-ins; they have no entry of their own.
const PREFIXES: &[&str] = &["listener.name.", "rlmm.config.", "rsm.config.", "config.providers."];

pub(super) struct Reader<'a> {
    settings: &'a BTreeMap<String, String>,
    pub(super) errors: Vec<ConfigError>,
    read: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    /// Validates every setting by itself.
    pub(super) fn new(settings: &'a BTreeMap<String, String>) -> Reader<'a> {
        let catalogue = ConfigCatalogue::broker();
        let mut errors = Vec::new();
        for (key, text) in settings {
            if let Some(Err(error)) = catalogue.get(key).map(|def| def.validate(text)) {
                errors.push(error);
            }
        }
        for def in catalogue.iter().filter(|def| def.default == ConfigDefault::Required) {
            if !settings.contains_key(def.name) {
                errors.push(ConfigError::Missing(def.name.to_owned()));
            }
        }
        Reader { settings, errors, read: BTreeSet::new() }
    }

    /// Whether the key was set, rather than left to its default.
    pub(super) fn is_set(&self, key: &'static str) -> bool {
        self.settings.contains_key(key)
    }

    fn value(&mut self, key: &'static str) -> Option<ConfigValue> {
        let def = definition(key);
        self.read.insert(def.name);
        let set = self.settings.get(key).and_then(|text| def.validate(text).ok());
        set.or_else(|| def.default_value())
    }

    pub(super) fn optional_number(&mut self, key: &'static str) -> Option<i64> {
        self.value(key).and_then(|value| value.as_i64())
    }

    /// A number; 0 where a required one is missing, which is an error already.
    pub(super) fn number(&mut self, key: &'static str) -> i64 {
        self.optional_number(key).unwrap_or(0)
    }

    /// A 32-bit number, which the catalogue keeps in its range.
    pub(super) fn int(&mut self, key: &'static str) -> i32 {
        i32::try_from(self.number(key)).unwrap_or(i32::MAX)
    }

    /// A count or a size in bytes; 0 for a negative one.
    pub(super) fn size(&mut self, key: &'static str) -> usize {
        usize::try_from(self.number(key)).unwrap_or(0)
    }

    /// A size where -1 means that the system decides.
    pub(super) fn optional_size(&mut self, key: &'static str) -> Option<usize> {
        self.optional_number(key).and_then(|number| usize::try_from(number).ok())
    }

    /// A key in milliseconds; a negative one is no time at all.
    pub(super) fn millis(&mut self, key: &'static str) -> Duration {
        self.optional_millis(key).unwrap_or_default()
    }

    pub(super) fn optional_millis(&mut self, key: &'static str) -> Option<Duration> {
        self.optional_number(key).map(|number| duration(number, 1))
    }

    /// A key in milliseconds where a negative one is for ever.
    pub(super) fn millis_or_forever(&mut self, key: &'static str) -> Duration {
        match self.number(key) {
            ..0 => LONGEST,
            number => duration(number, 1),
        }
    }

    pub(super) fn seconds(&mut self, key: &'static str) -> Duration {
        duration(self.number(key), 1000)
    }

    pub(super) fn flag(&mut self, key: &'static str) -> bool {
        self.value(key).and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// Text; `None` when it is not set or empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.value(key)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Text of a listener's own key, `listener.name.<name>.<key>`, else of the key itself.
    pub(super) fn listener_text(&mut self, listener: &str, key: &'static str) -> Option<String> {
        let own = format!("{}{key}", listener_prefix(listener));
        let Some(text) = self.settings.get(&own) else {
            let value = self.value(key)?;
            let text = value.as_list().map(|elements| elements.join(","));
            let text = text.or_else(|| value.as_str().map(str::to_owned));
            let text = text.or_else(|| value.as_bool().map(|value| value.to_string()));
            return text.filter(|text| !text.is_empty());
        };
        let def = definition(key);
        self.read.insert(def.name);
        if let Err(ConfigError::Invalid { value, reason, .. }) = def.validate(text) {
            self.refuse(&own, value, reason);
        }
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    pub(super) fn list(&mut self, key: &'static str) -> Vec<String> {
        let value = self.value(key);
        let elements = value.as_ref().and_then(ConfigValue::as_list).unwrap_or_default();
        elements.iter().filter(|element| !element.is_empty()).cloned().collect()
    }

    /// Notes a value that is wrong for a reason the catalogue does not know.
    pub(super) fn refuse(
        &mut self,
        key: &str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let (key, value, reason) = (key.to_owned(), value.into(), reason.into());
        // One complaint about a key is enough; the first is about its own value.
        let known = |error: &ConfigError| match error {
            ConfigError::Invalid { key: other, .. } | ConfigError::Missing(other) => *other == key,
            _ => false,
        };
        if !self.errors.iter().any(known) {
            self.errors.push(ConfigError::Invalid { key, value, reason });
        }
    }

    /// Notes values that are wrong together.
    pub(super) fn conflict(&mut self, text: impl Into<String>) {
        self.errors.push(ConfigError::Conflict(text.into()));
    }

    /// One warning for each setting that does nothing: unknown keys, and known ones that the catalogue
    /// does not call honoured.
    pub(super) fn warnings(&self) -> Vec<ConfigWarning> {
        let (catalogue, topic_defaults) = (ConfigCatalogue::broker(), topic_default_keys());
        let mut warnings = Vec::new();
        for key in self.settings.keys() {
            if is_listener_key(key) {
                continue;
            }
            let by_prefix = PREFIXES.iter().any(|prefix| key.starts_with(prefix));
            match catalogue.get(key) {
                None if !by_prefix => warnings.push(ConfigWarning::Unknown { key: key.clone() }),
                Some(def) if def.honoured || topic_defaults.contains(def.name) => {}
                _ => warnings.push(ConfigWarning::NoEffect { key: key.clone() }),
            }
        }
        warnings
    }

    /// The keys read so far.
    #[cfg(test)]
    pub(super) fn read_keys(&self) -> &BTreeSet<&'static str> {
        &self.read
    }
}

/// A listener's own value of a key that listeners obey.
fn is_listener_key(key: &str) -> bool {
    let rest = key.strip_prefix("listener.name.").and_then(|rest| rest.split_once('.'));
    rest.is_some_and(|(_, key)| LISTENER_KEYS.contains(&key))
}

/// Broker keys that work by being the default of a topic key that is acted on.
fn topic_default_keys() -> BTreeSet<&'static str> {
    let honoured = ConfigCatalogue::topic().iter().filter(|def| def.honoured);
    honoured.flat_map(|def| def.fallbacks.iter().map(|fallback| fallback.key)).collect()
}

fn definition(key: &'static str) -> &'static ConfigDef {
    match ConfigCatalogue::broker().get(key) {
        Some(def) => def,
        None => panic!("{key} is read but is not in the catalogue"),
    }
}

fn duration(number: i64, millis_each: u64) -> Duration {
    let number = u64::try_from(number).unwrap_or(0);
    Duration::from_millis(number.saturating_mul(millis_each)).min(LONGEST)
}
