//! `highwater serve`: one node from a properties file, until SIGTERM or Ctrl-C.

use std::path::PathBuf;

use anyhow::{Result, bail};
use broker::config::{environment, properties};
use broker::host::{Node, NodeOptions, cluster_id_of};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::logging;
use crate::settings::{Settings, configure, parse_sets};

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// The properties file; may be left out when the environment (`KAFKA_NODE_ID`, ...) or `--set` say all.
    file: Option<PathBuf>,
    /// Sets a config key; stronger than the file and the environment. Repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

/// Runs a node until it is told to stop.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    logging::start("info,h2=warn,tower=warn,hyper=warn");
    let file = match &arguments.file {
        Some(path) => properties::read_file(path)?,
        None => Settings::new(),
    };
    let from_environment = environment::from_variables(std::env::vars());
    let sets = parse_sets(&arguments.sets)?;
    if arguments.file.is_none() && from_environment.settings.is_empty() && sets.is_empty() {
        bail!("no properties file named, no KAFKA_ variables in the environment and no --set");
    }
    let config = configure(&[&file, &from_environment.settings, &sets])?;
    let cluster_id = match from_environment.cluster_id {
        Some(id) => id,
        None => cluster_id_of(&config)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let id = config.node_id;
        let mut node = Node::start(config, NodeOptions::new(cluster_id)).await?;
        tracing::info!(%id, "node started");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            error = node.failed() => return Err(error.into()),
        }
        tracing::info!(%id, "stopping");
        node.stop().await;
        tracing::info!(%id, "stopped");
        Ok(())
    })
}
