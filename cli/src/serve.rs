//! `highwater serve`: one node from a properties file, until SIGTERM or Ctrl-C.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use broker::config::environment;
use broker::config::properties::{self, PropertiesError};
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
    /// Stops when standard input ends, as it does when whoever started the node with a pipe is killed.
    #[arg(long)]
    while_stdin: bool,
}

/// Runs a node until it is told to stop.
pub fn run(arguments: &ServeArguments) -> Result<()> {
    logging::start("info,h2=warn,tower=warn,hyper=warn");
    let file = match &arguments.file {
        Some(path) => properties::read_file(path).map_err(|error| match error {
            PropertiesError::Unreadable { .. } => anyhow!("{error}"),
            _ => anyhow!("{}: {error}", path.display()),
        })?,
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
    let while_stdin = arguments.while_stdin;
    runtime.block_on(async move {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let id = config.node_id;
        let own = config.listeners.broker.iter().chain(&config.listeners.controller);
        let listeners = own.map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut node = Node::start(config, NodeOptions::new(cluster_id)).await?;
        tracing::info!(%id, %listeners, version = env!("CARGO_PKG_VERSION"), "node started");
        tokio::select! {
            () = end_of_stdin(while_stdin) => tracing::info!(%id, "standard input has ended"),
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

/// Ends with standard input, if that is watched. A thread waits, for reading from it cannot be given up.
async fn end_of_stdin(is_watched: bool) {
    if !is_watched {
        return std::future::pending().await;
    }
    let (sender, ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = ended.await;
}
