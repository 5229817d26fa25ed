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
    let seen = ready::live_brokers(&mut None, &arguments.bootstrap)?;
    let (address, wanted) = (&arguments.bootstrap, arguments.brokers);
    ensure!(seen >= wanted, "{address} sees {seen} live brokers, {wanted} wanted");
    println!("{address} sees {seen} live brokers");
    Ok(())
}
