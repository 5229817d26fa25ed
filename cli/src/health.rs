//! `highwater health`: one question to one broker, for health checks of containers.

use anyhow::{Result, ensure};
use clap::Args;

use crate::ready;

/// Options of `health`.
#[derive(Debug, Args)]
pub struct HealthArguments {
    /// The broker's address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// How many live brokers it must know.
    #[arg(long, default_value_t = 1)]
    brokers: usize,
}

/// Fails unless the broker answers and knows enough live brokers.
pub fn run(arguments: &HealthArguments) -> Result<()> {
    let is_one = arguments.bootstrap.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(',') && port.parse::<u16>().is_ok()
    });
    ensure!(is_one, "--bootstrap {}: expected HOST:PORT of one broker", arguments.bootstrap);
    let seen = ready::live_brokers(&mut None, &arguments.bootstrap)?;
    let (address, wanted) = (&arguments.bootstrap, arguments.brokers);
    ensure!(seen >= wanted, "{address} sees {}, {wanted} wanted", live_brokers(seen));
    println!("{address} sees {}", live_brokers(seen));
    Ok(())
}

fn live_brokers(count: usize) -> String {
    format!("{count} live broker{}", if count == 1 { "" } else { "s" })
}
