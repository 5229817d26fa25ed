//! The loggers of a broker as config resources (KIP-412): each key is a logger, each value its level. They belong
//! to one process, are forgotten when it ends, and are neither forwarded nor kept.
//!
//! | asked | answer |
//! |---|---|
//! | another broker's loggers | INVALID_REQUEST |
//! | a logger or a level that does not exist | INVALID_CONFIG |
//! | the root logger's own level taken away, lists edited, a value left out | INVALID_REQUEST |

use std::collections::BTreeSet;

use protocol::ErrorCode;
use protocol::messages::describe_configs_response::DescribeConfigsResourceResult;

use super::alter_configs::{DELETE, SET, Step};
use crate::log_levels::{LevelChange, Levels, LogLevel, LogLevels, ROOT, installed};

/// The source of a level in DescribeConfigs.
const LOGGER_SOURCE: i8 = 6;

/// Why a resource is refused.
type Refusal = (ErrorCode, String);

/// The loggers of this broker, named by its id.
pub(super) fn describe(
    node: i32,
    name: &str,
    with_documentation: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let levels = own_levels(node, name)?.levels();
    let entries =
        levels.effective().into_iter().map(|(logger, level)| DescribeConfigsResourceResult {
            name: logger.to_owned(),
            value: Some(level.name().to_owned()),
            config_source: LOGGER_SOURCE,
            documentation: Some(String::new()).filter(|_| with_documentation),
            ..DescribeConfigsResourceResult::default()
        });
    Ok(entries.collect())
}

/// Changes levels, or only checks whether they could be.
pub(super) fn alter(
    node: i32,
    name: &str,
    steps: &[Step<'_>],
    validate_only: bool,
) -> Result<(), Refusal> {
    let changer = own_levels(node, name)?;
    let mut levels = changer.levels();
    for change in changes(&levels, steps)? {
        levels.apply(change);
    }
    if validate_only {
        return Ok(());
    }
    let changed = changer.set_levels(levels);
    changed.map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))
}

fn own_levels(node: i32, name: &str) -> Result<&'static dyn LogLevels, Refusal> {
    if name.parse() != Ok(node) {
        return Err(invalid(format!("this is broker {node}: it has no loggers of '{name}'")));
    }
    installed().ok_or_else(|| invalid("this broker's log levels cannot change".into()))
}

fn changes(levels: &Levels, steps: &[Step<'_>]) -> Result<Vec<LevelChange>, Refusal> {
    let keys: BTreeSet<&str> = steps.iter().map(|step| step.key).collect();
    if keys.len() < steps.len() {
        return Err(invalid("a logger comes twice".into()));
    }
    steps.iter().map(|step| change(levels, step)).collect()
}

fn change(levels: &Levels, step: &Step<'_>) -> Result<LevelChange, Refusal> {
    let logger = step.key;
    let wrong = |text: String| Err((ErrorCode::InvalidConfig, text));
    match (step.operation, step.value) {
        (SET, None) => Err(invalid(format!("logger {logger} needs a level"))),
        (SET | DELETE, _) if !levels.knows(logger) => wrong(format!("there is no logger {logger}")),
        (SET, Some(name)) => match LogLevel::of_name(name) {
            Some(level) => Ok(LevelChange::Set(logger.to_owned(), level)),
            None => {
                wrong(format!("{name} is no level: FATAL, ERROR, WARN, INFO, DEBUG, TRACE are"))
            }
        },
        (DELETE, _) if logger == ROOT => {
            Err(invalid("the root logger cannot be without a level".into()))
        }
        (DELETE, _) => Ok(LevelChange::Reset(logger.to_owned())),
        (operation, _) => Err(invalid(format!("operation {operation} is not for loggers"))),
    }
}

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn step<'a>(key: &'a str, operation: i8, value: Option<&'a str>) -> Step<'a> {
        Step { key, operation, value }
    }

    /// Measured on Kafka 4.4.0.
    #[test]
    fn a_level_is_set_or_taken_away_and_nothing_else_kip_412() {
        let levels = Levels { root: LogLevel::Warn, own: BTreeMap::new() };
        let code = |key: &str, operation: i8, value: Option<&str>| {
            changes(&levels, &[step(key, operation, value)]).map_err(|(code, _)| code.code())
        };
        let set = LevelChange::Set("broker".into(), LogLevel::Debug);
        assert_eq!(code("broker", SET, Some("DEBUG")), Ok(vec![set]));
        assert_eq!(code("broker", DELETE, None), Ok(vec![LevelChange::Reset("broker".into())]));
        assert_eq!(code("broker", SET, Some("debug")), Err(40));
        assert_eq!(code("nosuch", SET, Some("DEBUG")), Err(40));
        assert_eq!(code("nosuch", DELETE, None), Err(40));
        assert_eq!(code(ROOT, SET, None), Err(42));
        assert_eq!(code(ROOT, DELETE, None), Err(42));
        for operation in [2, 3, 9] {
            assert_eq!(code(ROOT, operation, Some("INFO")), Err(42), "{operation}");
        }
        let twice = [step(ROOT, SET, Some("INFO")), step(ROOT, SET, Some("WARN"))];
        assert_eq!(changes(&levels, &twice).map_err(|(code, _)| code.code()), Err(42));
    }

    #[test]
    fn only_its_own_loggers_are_a_broker_s_and_only_where_something_prints() {
        for name in ["2", "", "x", "1"] {
            assert_eq!(describe(1, name, false).map_err(|(code, _)| code.code()), Err(42));
        }
    }
}
