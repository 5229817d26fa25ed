//! `highwater up` in one process: all nodes as tasks of one runtime.
//!
//! A node that fails beyond repair (its disk is full, its metadata is damaged) is said on stderr and
//! stopped, and the others go on as they would on machines of their own, for as long as the cluster can
//! work: a broker is left, and a majority of the controllers. When it cannot, everything ends. Either
//! way the exit code says that something failed.

use std::fmt::Display;

use anyhow::{Result, bail, ensure};
use broker::host::{Node, NodeFailure, NodeOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ready;
use crate::settings::check;
use crate::up::{Plan, READY_PATIENCE, announce};

/// A node that ended its run: told to, or because of a failure.
struct Ended {
    id: i32,
    node: Node,
    failure: Option<NodeFailure>,
}

/// Who is left.
struct Left {
    brokers: usize,
    controllers: usize,
    /// So many controllers are needed.
    majority: usize,
    failed: Vec<i32>,
}

impl Left {
    fn of(plan: &Plan) -> Left {
        let controllers = plan.nodes.iter().filter(|node| node.is_controller).count();
        let brokers = plan.nodes.iter().filter(|node| node.port.is_some()).count();
        Left { brokers, controllers, majority: controllers / 2 + 1, failed: Vec::new() }
    }

    fn lose(&mut self, plan: &Plan, id: i32) {
        self.failed.push(id);
        for node in plan.nodes.iter().filter(|node| node.id == id) {
            self.brokers -= usize::from(node.port.is_some());
            self.controllers -= usize::from(node.is_controller);
        }
    }

    fn can_work(&self) -> bool {
        self.brokers > 0 && self.controllers >= self.majority
    }
}

/// Runs the nodes until Ctrl-C or SIGTERM, or until too many of them failed.
pub fn run(plan: &Plan, quiet: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run_nodes(plan, quiet))
}

async fn run_nodes(plan: &Plan, quiet: bool) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, told_to_stop) = watch::channel(false);
    let mut running = start(plan, &told_to_stop).await?;
    let addresses = plan.bootstrap.clone();
    let ended = told_to_stop.clone();
    let mut waiting = tokio::task::spawn_blocking(move || {
        ready::wait(&addresses, addresses.len(), READY_PATIENCE, || {
            ensure!(!*ended.borrow(), "told to stop");
            Ok(())
        })
    });
    let mut is_ready = false;
    let mut left = Left::of(plan);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            ready = &mut waiting, if !is_ready => {
                ready??;
                is_ready = true;
                announce(plan, quiet)?;
            }
            Some(ended) = running.join_next() => {
                let Ended { id, node, failure } = ended?;
                tell(id, failure);
                node.stop().await;
                left.lose(plan, id);
                if !is_ready || !left.can_work() {
                    break;
                }
            }
        }
    }
    stop.send_replace(true);
    stop_all(running).await?;
    match left.failed[..] {
        [] => Ok(()),
        _ if !is_ready => bail!("the cluster did not start"),
        _ if !left.can_work() => bail!("too many nodes failed: {:?}", left.failed),
        _ => bail!("nodes failed while the cluster ran: {:?}", left.failed),
    }
}

async fn start(plan: &Plan, told_to_stop: &watch::Receiver<bool>) -> Result<JoinSet<Ended>> {
    let mut starting = Vec::new();
    for node in &plan.nodes {
        let (config, _) = check(&[&node.settings])?;
        let options = NodeOptions::new(broker::host::cluster_id_of(&config)?);
        starting.push((node.id, tokio::spawn(Node::start(config, options))));
    }
    let mut running = JoinSet::new();
    for (id, node) in starting {
        running.spawn(live(id, node.await??, told_to_stop.clone()));
    }
    Ok(running)
}

async fn live(id: i32, mut node: Node, mut told_to_stop: watch::Receiver<bool>) -> Ended {
    let failure = tokio::select! {
        failure = node.failed() => Some(failure),
        _ = told_to_stop.wait_for(|told| *told) => None,
    };
    Ended { id, node, failure }
}

fn tell(id: i32, failure: Option<impl Display>) {
    if let Some(failure) = failure {
        eprintln!("highwater: node {id} failed and is stopped: {failure}");
    }
}

/// Brokers first, while there are controllers to ask; then the rest.
async fn stop_all(mut running: JoinSet<Ended>) -> Result<()> {
    let mut brokers = JoinSet::new();
    while let Some(ended) = running.join_next().await {
        let Ended { id, mut node, failure } = ended?;
        tell(id, failure);
        brokers.spawn(async move {
            node.stop_broker().await;
            node
        });
    }
    let mut stopping = JoinSet::new();
    while let Some(node) = brokers.join_next().await {
        stopping.spawn(node?.stop());
    }
    while let Some(stopped) = stopping.join_next().await {
        stopped?;
    }
    Ok(())
}
