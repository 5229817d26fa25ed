//! What the program tells on stderr: events of a level and above, or what `RUST_LOG` asks for, until a
//! request for this process's loggers changes that.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use broker::log_levels::{self, Levels, LevelsError, LogLevel, LogLevels};
use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, reload};

/// Begins to print events as `directives` say, unless `RUST_LOG` says otherwise.
pub fn start(directives: &str) {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let wanted = from_environment.as_deref().unwrap_or(directives);
    let targets: Targets = match wanted.parse().or_else(|_| directives.parse()) {
        Ok(targets) => targets,
        Err(_) => Targets::new().with_default(LevelFilter::ERROR),
    };
    let levels = levels_of(&targets);
    let (filter, handle) = reload::Layer::new(targets);
    let printer = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false);
    if tracing_subscriber::registry().with(filter).with(printer).try_init().is_ok() {
        log_levels::install(Box::new(Printed { handle, levels: Mutex::new(levels) }));
    }
}

/// The events that are printed, and the filter that decides it.
struct Printed {
    handle: reload::Handle<Targets, Registry>,
    levels: Mutex<Levels>,
}

impl LogLevels for Printed {
    fn levels(&self) -> Levels {
        self.levels.lock().clone()
    }

    fn set_levels(&self, levels: Levels) -> Result<(), LevelsError> {
        let mut current = self.levels.lock();
        let reloaded = self.handle.reload(targets_of(&levels));
        reloaded.map_err(|error| LevelsError(error.to_string()))?;
        *current = levels;
        Ok(())
    }
}

fn levels_of(targets: &Targets) -> Levels {
    let own: BTreeMap<String, LogLevel> =
        targets.iter().map(|(target, filter)| (target.to_owned(), level_of(filter))).collect();
    Levels { root: targets.default_level().map_or(LogLevel::Fatal, level_of), own }
}

fn targets_of(levels: &Levels) -> Targets {
    let own = levels.own.iter().map(|(target, level)| (target.clone(), filter_of(*level)));
    Targets::new().with_targets(own).with_default(filter_of(levels.root))
}

fn level_of(filter: LevelFilter) -> LogLevel {
    match filter {
        LevelFilter::OFF => LogLevel::Fatal,
        LevelFilter::ERROR => LogLevel::Error,
        LevelFilter::WARN => LogLevel::Warn,
        LevelFilter::INFO => LogLevel::Info,
        LevelFilter::DEBUG => LogLevel::Debug,
        LevelFilter::TRACE => LogLevel::Trace,
    }
}

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Fatal => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_levels_and_levels_are_directives_again() {
        let targets: Targets = "info,h2=warn,broker::network=off".parse().expect("directives");
        let levels = levels_of(&targets);
        assert_eq!(levels.root, LogLevel::Info);
        assert_eq!(levels.own["h2"], LogLevel::Warn);
        assert_eq!(levels.own["broker::network"], LogLevel::Fatal);
        assert_eq!(levels_of(&targets_of(&levels)), levels);
    }
}
