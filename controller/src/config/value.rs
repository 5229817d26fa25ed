//! The types of config values and how text becomes a value.

use super::ConfigError;

/// Kafka's types of config values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// `true` or `false`, in any case.
    Boolean,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// 16 bits.
    Short,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Texts, separated by commas.
    List,
    /// The name of a class, or of the behaviour that it stands for.
    Class,
    /// Text that is never shown.
    Password,
}

impl ConfigType {
    /// The number that DescribeConfigs shows.
    pub fn code(self) -> i8 {
        match self {
            ConfigType::Boolean => 1,
            ConfigType::String => 2,
            ConfigType::Int => 3,
            ConfigType::Short => 4,
            ConfigType::Long => 5,
            ConfigType::Double => 6,
            ConfigType::List => 7,
            ConfigType::Class => 8,
            ConfigType::Password => 9,
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "boolean" => ConfigType::Boolean,
            "int" => ConfigType::Int,
            "long" => ConfigType::Long,
            "short" => ConfigType::Short,
            "double" => ConfigType::Double,
            "string" => ConfigType::String,
            "list" => ConfigType::List,
            "class" => ConfigType::Class,
            "password" => ConfigType::Password,
            _ => return None,
        })
    }

    fn kafka_name(self) -> &'static str {
        match self {
            ConfigType::Boolean => "BOOLEAN",
            ConfigType::Int => "INT",
            ConfigType::Long => "LONG",
            ConfigType::Short => "SHORT",
            ConfigType::Double => "DOUBLE",
            ConfigType::String => "STRING",
            ConfigType::List => "LIST",
            ConfigType::Class => "CLASS",
            ConfigType::Password => "PASSWORD",
        }
    }

    /// Reads `text`; white space around it does not count.
    pub fn parse(self, key: &str, text: &str) -> Result<ConfigValue, ConfigError> {
        let trimmed = text.trim();
        let refuse = |reason: String| ConfigError::Invalid {
            key: key.to_owned(),
            value: text.to_owned(),
            reason,
        };
        let not_a_number = || refuse(format!("Not a number of type {}", self.kafka_name()));
        Ok(match self {
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("true") => {
                ConfigValue::Boolean(true)
            }
            ConfigType::Boolean if trimmed.eq_ignore_ascii_case("false") => {
                ConfigValue::Boolean(false)
            }
            ConfigType::Boolean => {
                return Err(refuse("Expected value to be either true or false".to_owned()));
            }
            ConfigType::Int => ConfigValue::Int(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Long => ConfigValue::Long(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Short => ConfigValue::Short(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::Double => ConfigValue::Double(trimmed.parse().map_err(|_| not_a_number())?),
            ConfigType::String => ConfigValue::String(trimmed.to_owned()),
            ConfigType::Class => ConfigValue::Class(trimmed.to_owned()),
            ConfigType::Password => ConfigValue::Password(trimmed.to_owned()),
            ConfigType::List => ConfigValue::List(split_list(trimmed)),
        })
    }
}

/// The elements of a list's text. Empty text is an empty list; white space around commas is dropped.
pub fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|element| element.trim().to_owned()).collect()
}

/// A value of its key's type.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// Of a [`ConfigType::Boolean`].
    Boolean(bool),
    /// Of a [`ConfigType::Int`].
    Int(i32),
    /// Of a [`ConfigType::Long`].
    Long(i64),
    /// Of a [`ConfigType::Short`].
    Short(i16),
    /// Of a [`ConfigType::Double`].
    Double(f64),
    /// Of a [`ConfigType::String`].
    String(String),
    /// Of a [`ConfigType::List`].
    List(Vec<String>),
    /// Of a [`ConfigType::Class`].
    Class(String),
    /// Of a [`ConfigType::Password`].
    Password(String),
}

impl ConfigValue {
    /// The truth value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            ConfigValue::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// The number of an int, long or short.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            ConfigValue::Int(value) => Some(i64::from(*value)),
            ConfigValue::Long(value) => Some(*value),
            ConfigValue::Short(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    /// The number of any numeric type.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            ConfigValue::Double(value) => Some(*value),
            other => other.as_i64().map(|value| value as f64),
        }
    }

    /// The text of a string, class or password.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            ConfigValue::String(text) | ConfigValue::Class(text) | ConfigValue::Password(text) => {
                Some(text)
            }
            _ => None,
        }
    }

    /// The elements of a list.
    pub fn as_list(&self) -> Option<&[String]> {
        match self {
            ConfigValue::List(elements) => Some(elements),
            _ => None,
        }
    }
}
