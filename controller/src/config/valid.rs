//! The values a key allows, read from Kafka's own way of showing them: `[1,...]`, `[a, b]`, ...

use super::{ConfigError, ConfigValue};

/// What a parsed value must still satisfy.
#[derive(Clone, Debug, PartialEq)]
pub enum ValidValues {
    /// Anything of the type.
    Any,
    /// A number in a range, both ends included; the texts are the ends as Kafka shows them.
    Range {
        /// The lowest value.
        min: f64,
        /// The highest value.
        max: Option<f64>,
    },
    /// A number in a range, or one other number.
    RangeOr {
        /// The lowest value.
        min: i64,
        /// The highest value.
        max: i64,
        /// The other number.
        other: i64,
    },
    /// One of these, or a list of these.
    OneOf(&'static [&'static str]),
    /// One of these, in any case.
    OneOfIgnoringCase(&'static [&'static str]),
    /// `*`, or a list of `partition:broker`.
    ThrottledReplicas,
    /// Text of at least one character.
    NonEmpty,
}

impl ValidValues {
    /// Reads the catalogue's column; `None` when it is none of the known forms.
    pub(super) fn from_text(text: &'static str) -> Option<Self> {
        match text {
            "" | "non-null string" | "non-empty list" => return Some(ValidValues::Any),
            "non-empty string" => return Some(ValidValues::NonEmpty),
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..." => {
                return Some(ValidValues::ThrottledReplicas);
            }
            _ => {}
        }
        if let Some(names) = text.strip_prefix("(case insensitive) ") {
            return Some(ValidValues::OneOfIgnoringCase(names_in(names)?));
        }
        if let Some((range, other)) = text.split_once(" or ") {
            let (min, max) = range_in(range)?;
            let other = other.parse().ok()?;
            return Some(ValidValues::RangeOr { min: min as i64, max: max? as i64, other });
        }
        if text.contains("...") {
            let (min, max) = range_in(text)?;
            return Some(ValidValues::Range { min, max });
        }
        Some(ValidValues::OneOf(names_in(text)?))
    }

    /// Whether `value`, given as `text`, is allowed for `key`.
    pub(super) fn check(
        &self,
        key: &str,
        text: &str,
        value: &ConfigValue,
    ) -> Result<(), ConfigError> {
        let refuse = |value: &str, reason: String| {
            Err(ConfigError::Invalid { key: key.to_owned(), value: value.to_owned(), reason })
        };
        match self {
            ValidValues::Any => Ok(()),
            ValidValues::Range { min, max } => match value.as_f64() {
                Some(number) if number < *min => {
                    refuse(text, format!("Value must be at least {min}"))
                }
                Some(number) if max.is_some_and(|max| number > max) => {
                    refuse(text, format!("Value must be no more than {}", max.unwrap_or_default()))
                }
                _ => Ok(()),
            },
            ValidValues::RangeOr { min, max, other } => match value.as_i64() {
                Some(number) if (*min..=*max).contains(&number) || number == *other => Ok(()),
                _ => refuse(
                    text,
                    format!("Value must be between {min} and {max} or equal to {other}"),
                ),
            },
            ValidValues::OneOf(names) => match each(value).find(|given| !names.contains(given)) {
                Some(given) => {
                    refuse(given, format!("String must be one of: {}", names.join(", ")))
                }
                None => Ok(()),
            },
            ValidValues::OneOfIgnoringCase(names) => {
                let known =
                    |given: &&str| names.iter().any(|name| name.eq_ignore_ascii_case(given));
                match each(value).find(|given| !known(given)) {
                    Some(given) => refuse(
                        given,
                        format!("String must be one of (case insensitive): {}", names.join(", ")),
                    ),
                    None => Ok(()),
                }
            }
            ValidValues::ThrottledReplicas if is_throttled_replicas(value) => Ok(()),
            ValidValues::ThrottledReplicas => refuse(
                &format!("[{}]", value.as_list().unwrap_or_default().join(", ")),
                format!(
                    "{key} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                ),
            ),
            ValidValues::NonEmpty => match value.as_str() {
                Some("") => refuse(text, "String must be non-empty".to_owned()),
                _ => Ok(()),
            },
        }
    }
}

/// The elements of a list, or the one text of a string.
fn each(value: &ConfigValue) -> impl Iterator<Item = &str> {
    let list = value.as_list().unwrap_or_default().iter().map(String::as_str);
    list.chain(value.as_str())
}

fn is_throttled_replicas(value: &ConfigValue) -> bool {
    let elements = value.as_list().unwrap_or_default();
    let numbers = |element: &str| {
        let digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        element
            .split_once(':')
            .is_some_and(|(partition, broker)| digits(partition) && digits(broker))
    };
    matches!(elements, [one] if one == "*") || elements.iter().all(|element| numbers(element))
}

fn range_in(text: &str) -> Option<(f64, Option<f64>)> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let (min, max) = inner.split_once(",...")?;
    let max = match max.strip_prefix(',') {
        Some(max) => Some(max.parse().ok()?),
        None if max.is_empty() => None,
        None => return None,
    };
    Some((min.parse().ok()?, max))
}

fn names_in(text: &'static str) -> Option<&'static [&'static str]> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    // Lives as long as the catalogue, which is built once.
    Some(Vec::leak(inner.split(", ").collect()))
}
