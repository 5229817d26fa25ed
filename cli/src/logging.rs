//! What the program tells on stderr: warnings and errors, or what `RUST_LOG` asks for.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Begins to print events of `level` and above, unless `RUST_LOG` says otherwise.
pub fn start(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init();
}
