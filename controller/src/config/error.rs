//! Why a config was refused, in the words clients know from Kafka.

/// A key or value that cannot be. The text names the key, the value and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value that does not parse or is out of its range.
    #[error("Invalid value {value} for configuration {key}: {reason}")]
    Invalid {
        /// The key.
        key: String,
        /// The value as given.
        value: String,
        /// What is allowed.
        reason: String,
    },
    /// A topic key that does not exist.
    #[error("Unknown topic config name: {0}")]
    UnknownTopicKey(String),
    /// A group's key that does not exist.
    #[error("Unknown group config name: {0}")]
    UnknownGroupKey(String),
    /// A key of client metrics that does not exist.
    #[error("Unknown client metrics configuration: {0}")]
    UnknownClientMetricsKey(String),
    /// A number outside what the brokers' configs, or the code, allow.
    #[error("{key} must be in the range {min} to {max} inclusive.")]
    OutOfRange {
        /// The key.
        key: String,
        /// The least allowed.
        min: i64,
        /// The most allowed.
        max: i64,
    },
    /// Keys that have no value and need one.
    #[error("Missing required configuration \"{0}\" which has no default value.")]
    Missing(String),
    /// Values that are fine alone and not together.
    #[error("{0}")]
    Conflict(String),
}
