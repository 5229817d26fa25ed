//! What is wrong or odd with a configuration, in words for the one who wrote it.

use std::fmt;

use controller::config::ConfigError;

/// Everything that is wrong; the node does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Something the node starts with all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigWarning {
    /// Kafka has the key; Highwater does nothing with it yet.
    NoEffect {
        /// The key.
        key: String,
    },
    /// There is no such key.
    Unknown {
        /// The key.
        key: String,
    },
    /// Values that work badly together.
    Advice(String),
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigWarning::NoEffect { key } => {
                write!(f, "configuration {key} is accepted but has no effect yet")
            }
            ConfigWarning::Unknown { key } => {
                write!(f, "configuration {key} is not known and is ignored")
            }
            ConfigWarning::Advice(text) => f.write_str(text),
        }
    }
}
