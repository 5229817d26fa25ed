//! The log levels of this process, as the requests for a broker's loggers see and change them (KIP-412).
//!
//! What prints events is the program's business: it [`install`]s what changes their levels. Without that (in a
//! simulation, or inside another program) a broker refuses such requests. Several nodes in one process share
//! their levels.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use thiserror::Error;

/// The logger that all others take their level from. Events of other crates are its too.
pub const ROOT: &str = "root";
/// The loggers: one for each crate that tells anything.
pub const LOGGERS: [&str; 7] =
    ["broker", "controller", "coordinator", "fetcher", "highwater", "replication", "storage"];

/// Kafka's levels, the most silent first. Nothing here is fatal, so `Fatal` silences a logger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Nothing.
    Fatal,
    /// What failed.
    Error,
    /// What may need somebody.
    Warn,
    /// What is good to know.
    Info,
    /// What helps to find out.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    const ALL: [LogLevel; 6] = [
        LogLevel::Fatal,
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
    ];

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Fatal => "FATAL",
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Info => "INFO",
            LogLevel::Debug => "DEBUG",
            LogLevel::Trace => "TRACE",
        }
    }

    /// The level with this name, in capitals as Kafka wants it.
    pub fn of_name(name: &str) -> Option<LogLevel> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// The level of everything, and of the loggers that have one of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    /// What [`ROOT`] says.
    pub root: LogLevel,
    /// Targets with a level of their own; those outside of [`LOGGERS`] came from the environment.
    pub own: BTreeMap<String, LogLevel>,
}

/// One change of a logger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LevelChange {
    /// Gives the logger a level.
    Set(String, LogLevel),
    /// The logger takes the level of [`ROOT`] again.
    Reset(String),
}

/// Why levels cannot change.
#[derive(Debug, Error)]
#[error("the log levels cannot be changed: {0}")]
pub struct LevelsError(pub String);

/// What prints events, and can print others.
pub trait LogLevels: Send + Sync {
    /// The levels in force.
    fn levels(&self) -> Levels;

    /// Puts levels in force.
    fn set_levels(&self, levels: Levels) -> Result<(), LevelsError>;
}

impl Levels {
    /// Every logger with its level.
    pub fn effective(&self) -> BTreeMap<&str, LogLevel> {
        let loggers = LOGGERS.into_iter().chain(self.own.keys().map(String::as_str));
        let levels = loggers.map(|name| (name, self.own.get(name).copied().unwrap_or(self.root)));
        levels.chain([(ROOT, self.root)]).collect()
    }

    /// Whether there is such a logger.
    pub fn knows(&self, logger: &str) -> bool {
        logger == ROOT || LOGGERS.contains(&logger) || self.own.contains_key(logger)
    }

    /// The levels after a change.
    pub fn apply(&mut self, change: LevelChange) {
        match change {
            LevelChange::Set(logger, level) if logger == ROOT => self.root = level,
            LevelChange::Set(logger, level) => {
                self.own.insert(logger, level);
            }
            LevelChange::Reset(logger) => {
                self.own.remove(&logger);
            }
        }
    }
}

static INSTALLED: OnceLock<Box<dyn LogLevels>> = OnceLock::new();

/// Gives the requests of all brokers in this process something to change; the first call counts.
pub fn install(levels: Box<dyn LogLevels>) {
    let _ = INSTALLED.set(levels);
}

/// What was installed, if anything was.
pub fn installed() -> Option<&'static dyn LogLevels> {
    INSTALLED.get().map(AsRef::as_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logger_has_the_root_s_level_until_it_has_its_own() {
        let mut levels = Levels { root: LogLevel::Warn, own: BTreeMap::new() };
        levels.apply(LevelChange::Set("storage".into(), LogLevel::Debug));
        levels.apply(LevelChange::Set(ROOT.into(), LogLevel::Info));
        let effective = levels.effective();
        assert_eq!(effective["storage"], LogLevel::Debug);
        assert_eq!((effective["broker"], effective[ROOT]), (LogLevel::Info, LogLevel::Info));
        levels.apply(LevelChange::Reset("storage".into()));
        assert_eq!(levels.effective()["storage"], LogLevel::Info);
    }
}
