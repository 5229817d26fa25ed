//! The Kafka to compare with: one broker of the reference, if it and Java are here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use testkit::real::free_ports;

/// How often a start is tried.
const ATTEMPTS: usize = 3;

/// A running Kafka; dropping it ends it.
#[derive(Debug)]
pub struct Kafka {
    script: PathBuf,
    pub folder: TempDir,
    pub address: String,
}

impl Kafka {
    /// The script that starts one, or `None`, said aloud.
    pub fn script() -> Option<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = root.join("../../shared/reference-kafka/refkafka");
        let java = Command::new("java").arg("-version").output();
        if script.exists() && java.is_ok_and(|output| output.status.success()) {
            return Some(script);
        }
        println!("SKIPPED: no java, or no Kafka to compare with at {}", script.display());
        None
    }

    /// Starts a broker and waits until it answers.
    pub fn start(script: &Path, settings: &[(&str, &str)]) -> Result<Kafka> {
        // Its ports are free when they are chosen; seconds later, when it listens, they may not be.
        let attempts = (1..ATTEMPTS).find_map(|_| Self::try_start(script, settings).ok());
        attempts.map_or_else(|| Self::try_start(script, settings), Ok)
    }

    fn try_start(script: &Path, settings: &[(&str, &str)]) -> Result<Kafka> {
        let folder = tempfile::Builder::new().prefix("kafka-").tempdir()?;
        // The controller listens on the port after the broker's.
        let port = free_ports(40)?
            .into_iter()
            .find(|port| std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok())
            .context("no two free ports side by side")?;
        let mut command = Command::new(script);
        command.args(["up", "--brokers", "1", "--port", &port.to_string(), "--dir"]);
        command.arg(folder.path());
        for (key, value) in settings {
            command.args(["--set", &format!("{key}={value}")]);
        }
        let address = format!("127.0.0.1:{port}");
        let kafka = Kafka { script: script.to_owned(), folder, address };
        let output = command.output()?;
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "the reference does not start: {problem}");
        Ok(kafka)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        // Fails only when there is nothing to end.
        let _ = Command::new(&self.script).args(["down", "--dir"]).arg(self.folder.path()).output();
    }
}
