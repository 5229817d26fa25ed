//! `KAFKA_` environment variables as configuration, by the rule of the official image: the prefix is
//! dropped, letters become small, and of underscores three are `-`, two are `_` and one is `.`.
//! Variables that the image reads for itself (JVM, logging) are no configuration.

use std::collections::BTreeMap;

/// Names with the prefix that are no broker keys: the image's own, and those of Kafka's start scripts.
const NOT_CONFIGURATION: &[&str] = &[
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_HEAP_OPTS",
    "KAFKA_JMX_HOSTNAME",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_OPTS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_VERSION",
];

/// Everything that starts like this belongs to log4j.
const LOG4J_PREFIX: &str = "KAFKA_LOG4J_";

/// What the environment says about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentConfig {
    /// Keys in their dotted form with their values.
    pub settings: BTreeMap<String, String>,
    /// `CLUSTER_ID`, which the official image formats its storage with.
    pub cluster_id: Option<String>,
}

/// Picks the configuration out of environment variables, such as those of `std::env::vars()`.
pub fn from_variables(variables: impl IntoIterator<Item = (String, String)>) -> EnvironmentConfig {
    let mut config = EnvironmentConfig::default();
    for (name, value) in variables {
        if name == "CLUSTER_ID" {
            config.cluster_id = Some(value).filter(|value| !value.is_empty());
        } else if let Some(key) = key_of_variable(&name) {
            config.settings.insert(key, value);
        }
    }
    config
}

/// The key that a variable sets, or `None` when it sets none.
pub fn key_of_variable(name: &str) -> Option<String> {
    let rest = name.strip_prefix("KAFKA_").filter(|rest| !rest.is_empty())?;
    if NOT_CONFIGURATION.contains(&name) || name.starts_with(LOG4J_PREFIX) {
        return None;
    }
    let dotted = rest.to_lowercase().replace("___", "-").replace("__", "\0").replace('_', ".");
    Some(dotted.replace('\0', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_become_dots_underscores_and_dashes() {
        for (name, key) in [
            ("KAFKA_NODE_ID", "node.id"),
            ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
            ("KAFKA_LISTENER_NAME_A__B_SSL___X", "listener.name.a_b.ssl-x"),
            ("KAFKA_A____B", "a-.b"),
        ] {
            assert_eq!(key_of_variable(name).as_deref(), Some(key), "{name}");
        }
    }

    #[test]
    fn variables_of_the_image_itself_are_no_configuration() {
        for name in [
            "KAFKA_HEAP_OPTS",
            "KAFKA_OPTS",
            "KAFKA_LOG4J_ROOT_LOGLEVEL",
            "KAFKA_LOG4J_LOGGERS",
            "KAFKA_JVM_PERFORMANCE_OPTS",
            "KAFKA_",
            "PATH",
            "XKAFKA_NODE_ID",
        ] {
            assert_eq!(key_of_variable(name), None, "{name}");
        }
    }

    #[test]
    fn the_cluster_id_comes_from_its_own_variable() {
        let variables =
            [("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw"), ("KAFKA_NODE_ID", "3"), ("HOME", "/root")];
        let config =
            from_variables(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(config.cluster_id.as_deref(), Some("4L6g3nShT-eMCtK--X86sw"));
        assert_eq!(
            config.settings.into_iter().collect::<Vec<_>>(),
            [("node.id".to_owned(), "3".to_owned())]
        );
        let empty = from_variables([("CLUSTER_ID".to_owned(), String::new())]);
        assert_eq!(empty.cluster_id, None);
    }
}
