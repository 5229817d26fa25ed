//! One node inside this process: a runtime of its own with one worker, so that it can be killed and frozen
//! by itself.
//!
//! A kill drops the runtime: every task ends where it waits, nothing is told to anybody, nothing is
//! flushed, and what was written stays with the system, as when a process is killed. A freeze occupies
//! the one worker: sockets stay open and nothing answers. (The thread of a node's controller goes on
//! to count its time, and nobody hears of it.) What only a process of its own has is not here: it
//! shares memory, descriptors and the log of this process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use broker::config::BrokerConfig;
use broker::host::{Node, NodeOptions, StartError};
use controller::node::NodeStatus;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

/// How long a killed node's parts may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// The file by which a node holds a log directory.
const LOCK: &str = ".lock";
const POLL: Duration = Duration::from_millis(1);

/// How a node's run ended: in good order, or with what it said.
type Ended = Option<Result<(), String>>;

/// A running node. Dropping it kills it.
#[derive(Debug)]
pub struct NodeThread {
    /// `None` once it is being killed.
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: watch::Receiver<Ended>,
    /// Dropped to end a freeze.
    gate: Option<mpsc::Sender<()>>,
    /// Of its controller, which has a thread of its own; there once the node has started.
    controller: Arc<Mutex<Option<Controller>>>,
    dirs: Vec<PathBuf>,
}

type Controller = watch::Receiver<NodeStatus>;

impl NodeThread {
    /// Starts a node of a cluster, and returns at once.
    ///
    /// # Errors
    /// Settings that no node takes. What fails later is told by [`NodeThread::is_running`].
    pub fn start(settings: &BTreeMap<String, String>, cluster_id: &str) -> Result<NodeThread> {
        let (config, _) = BrokerConfig::from_settings(settings)?;
        let name = format!("node-{}", config.node_id);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .enable_all()
            .build()?;
        let (stop, told_to_stop) = oneshot::channel();
        let (tell, ended) = watch::channel(None);
        let options = NodeOptions::new(cluster_id);
        let dirs = config.log.dirs.iter().chain([&config.log.metadata_dir]).cloned().collect();
        let controller = Arc::new(Mutex::new(None));
        let found = controller.clone();
        runtime.spawn(async move {
            let result = live(config, options, &found, told_to_stop).await;
            tell.send_replace(Some(result));
            // Its end is told by the value; without one, by the loss of the sender.
            std::future::pending::<()>().await;
        });
        Ok(NodeThread {
            runtime: Some(runtime),
            stop: Some(stop),
            ended,
            gate: None,
            controller,
            dirs,
        })
    }

    /// Whether it runs.
    ///
    /// # Errors
    /// What it said when it failed.
    pub fn is_running(&self) -> Result<bool> {
        match &*self.ended.borrow() {
            None if self.ended.has_changed().is_err() => bail!("it panicked"),
            None => Ok(true),
            Some(Ok(())) => Ok(false),
            Some(Err(error)) => bail!("{error}"),
        }
    }

    /// Kills it as a crash does, and waits until it is gone.
    ///
    /// # Errors
    /// When parts of it stay.
    pub fn kill(mut self) -> Result<()> {
        self.end();
        let deadline = Instant::now() + KILL_PATIENCE;
        let controller = self.controller.lock().take();
        // The senders go with the last task, and with the controller's thread.
        while self.ended.has_changed().is_ok()
            || controller.as_ref().is_some_and(|status| status.has_changed().is_ok())
        {
            ensure!(
                Instant::now() < deadline,
                "a killed node does not go within {KILL_PATIENCE:?}"
            );
            std::thread::sleep(POLL);
        }
        // Parts of it that know each other stay in memory, with the locks; nobody runs them any more.
        for dir in &self.dirs {
            // Fails only where there is none.
            let _ = std::fs::remove_file(dir.join(LOCK));
        }
        Ok(())
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // Whoever is frozen finds the runtime ended.
        self.gate = None;
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// When it does not stop in time, or fails.
    pub fn stop(mut self, timeout: Duration) -> Result<()> {
        self.thaw();
        if let Some(stop) = self.stop.take() {
            // Fails only when it has ended already.
            let _ = stop.send(());
        }
        let deadline = Instant::now() + timeout;
        while self.is_running()? {
            ensure!(Instant::now() < deadline, "a node did not stop within {timeout:?}");
            std::thread::sleep(POLL);
        }
        self.kill()
    }

    /// Freezes it; returns when nothing of it is done any more.
    ///
    /// # Errors
    /// When it is too busy to be frozen.
    pub fn freeze(&mut self) -> Result<()> {
        let runtime = self.runtime.as_ref().context("the node has ended")?;
        ensure!(self.gate.is_none(), "the node is frozen already");
        let (gate, closed) = mpsc::channel::<()>();
        let (tell, frozen) = mpsc::channel();
        runtime.spawn(async move {
            let _ = tell.send(());
            // Ends with the other end of the channel.
            let _ = closed.recv();
        });
        frozen.recv_timeout(KILL_PATIENCE).context("the node is too busy to be frozen")?;
        self.gate = Some(gate);
        Ok(())
    }

    /// Ends a freeze.
    pub fn thaw(&mut self) {
        self.gate = None;
    }

    /// Whether it was frozen and not thawed.
    pub fn is_frozen(&self) -> bool {
        self.gate.is_some()
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        self.end();
    }
}

async fn live(
    config: BrokerConfig,
    options: NodeOptions,
    controller: &Mutex<Option<Controller>>,
    told_to_stop: oneshot::Receiver<()>,
) -> Result<(), String> {
    let mut node = Node::start(config, options).await.map_err(|error| described(&error))?;
    *controller.lock() = node.controller_status();
    let failure = tokio::select! {
        failure = node.failed() => Some(failure.to_string()),
        _ = told_to_stop => None,
    };
    node.stop().await;
    failure.map_or(Ok(()), Err)
}

/// The error with its causes.
fn described(error: &StartError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
