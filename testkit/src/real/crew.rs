//! The nodes of a real cluster, each by its settings: started, killed, stopped, frozen, and their log
//! directories taken from under them. As child processes or as threads of this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::NodeId;
use super::process::NodeProcess;
use super::thread::NodeThread;

/// What a log directory is called while a file stands in its place.
const TAKEN_AWAY: &str = "taken-away";

/// How nodes run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hosting {
    /// Each as a child process of this `highwater` binary.
    Processes(PathBuf),
    /// All in this process, each with a runtime of its own.
    OneProcess,
}

/// What a node is started from.
#[derive(Clone, Debug, Default)]
pub struct NodeSpec {
    /// Its whole configuration.
    pub settings: BTreeMap<String, String>,
    /// Where its properties file and what it prints are kept.
    pub folder: PathBuf,
    /// The command under which a process is started, as `ip netns exec NAME`; none as a rule.
    pub command: Vec<String>,
}

/// How a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    /// It runs.
    Runs,
    /// It runs, and does nothing.
    IsFrozen,
    /// It was killed or stopped, or was never started.
    IsDown,
    /// It ended by itself.
    HasFailed,
}

impl NodeState {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            NodeState::Runs => "running",
            NodeState::IsFrozen => "frozen",
            NodeState::IsDown => "down",
            NodeState::HasFailed => "failed",
        }
    }
}

#[derive(Debug)]
enum Running {
    Process(NodeProcess),
    Thread(NodeThread),
}

impl Running {
    /// Stops it, if it has not ended by itself; ends a freeze for that.
    fn stop(self, patience: Duration) -> Result<()> {
        match self {
            Running::Process(mut process) => {
                if process.is_running()? {
                    process.thaw()?;
                    process.stop(patience)?;
                }
                Ok(())
            }
            Running::Thread(thread) => thread.stop(patience),
        }
    }

    fn is_frozen(&self) -> bool {
        match self {
            Running::Process(process) => process.is_frozen(),
            Running::Thread(thread) => thread.is_frozen(),
        }
    }
}

/// See the head of this file. Dropping it kills all nodes.
#[derive(Debug)]
pub struct Crew {
    hosting: Hosting,
    /// `None`: what the settings say, which then have to name the same voters on all nodes.
    cluster_id: Option<String>,
    specs: BTreeMap<NodeId, NodeSpec>,
    running: BTreeMap<NodeId, Running>,
    /// What nodes said that ended by themselves.
    failed: BTreeMap<NodeId, String>,
}

impl Crew {
    /// Nodes that do not run yet.
    pub fn new(
        hosting: Hosting,
        cluster_id: Option<String>,
        specs: BTreeMap<NodeId, NodeSpec>,
    ) -> Self {
        let (running, failed) = (BTreeMap::new(), BTreeMap::new());
        Self { hosting, cluster_id, specs, running, failed }
    }

    /// All nodes, running or not.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.specs.keys().copied().collect()
    }

    /// How they run.
    pub fn hosting(&self) -> &Hosting {
        &self.hosting
    }

    /// What a node is started from.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn spec(&self, node: NodeId) -> Result<&NodeSpec> {
        self.specs.get(&node).with_context(|| {
            let nodes: Vec<String> = self.specs.keys().map(ToString::to_string).collect();
            format!("there is no node {node}, only {}", nodes.join(", "))
        })
    }

    /// The nodes that were started and not ended, frozen ones included.
    pub fn running(&self) -> Vec<NodeId> {
        self.running.keys().copied().collect()
    }

    /// The nodes that can answer.
    pub fn responsive(&self) -> Vec<NodeId> {
        let nodes = self.running.iter().filter(|(_, running)| !running.is_frozen());
        nodes.map(|(node, _)| *node).collect()
    }

    /// How a node is.
    pub fn state(&self, node: NodeId) -> NodeState {
        match self.running.get(&node) {
            Some(running) if running.is_frozen() => NodeState::IsFrozen,
            Some(_) => NodeState::Runs,
            None if self.failed.contains_key(&node) => NodeState::HasFailed,
            None => NodeState::IsDown,
        }
    }

    /// The process id of a node that runs as a process.
    pub fn pid(&self, node: NodeId) -> Option<u32> {
        match self.running.get(&node)? {
            Running::Process(process) => Some(process.id()),
            Running::Thread(_) => None,
        }
    }

    /// What a node printed so far, over all its lives; with what it failed by, if it did.
    pub fn output(&self, node: NodeId) -> String {
        let file = self.specs.get(&node).map(|spec| spec.folder.join("output"));
        let printed = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        match self.failed.get(&node) {
            Some(error) if !printed.contains(error) => format!("{printed}{error}\n"),
            _ => printed,
        }
    }

    /// Starts a node that does not run; returns at once.
    ///
    /// # Errors
    /// When it runs already or cannot be started.
    pub fn start(&mut self, node: NodeId) -> Result<()> {
        let spec = self.spec(node)?;
        ensure!(!self.running.contains_key(&node), "node {node} runs already");
        let running = match &self.hosting {
            Hosting::Processes(binary) => {
                let properties = write_properties(spec)?;
                let log = spec.folder.join("output");
                let cluster_id = self.cluster_id.as_deref();
                let count = self.specs.len();
                Running::Process(NodeProcess::start_under(
                    &spec.command,
                    binary,
                    &properties,
                    &log,
                    count,
                    cluster_id,
                )?)
            }
            Hosting::OneProcess => {
                let cluster_id = self.cluster_id.as_deref();
                let cluster_id = cluster_id.context("a cluster in one process has an id")?;
                Running::Thread(NodeThread::start(&spec.settings, cluster_id)?)
            }
        };
        self.failed.remove(&node);
        self.running.insert(node, running);
        Ok(())
    }

    /// Kills a node as a crash does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, node: NodeId) -> Result<()> {
        match self.take(node)? {
            Running::Process(process) => process.kill(),
            Running::Thread(thread) => thread.kill(),
        }
    }

    /// Stops a node cleanly: its leaders move first.
    ///
    /// # Errors
    /// When it does not run, does not stop in time, or fails.
    pub fn stop(&mut self, node: NodeId, patience: Duration) -> Result<()> {
        match self.take(node)? {
            Running::Process(process) => {
                let status = process.stop(patience)?;
                ensure!(
                    status.success(),
                    "node {node} ended with {status}:\n{}",
                    self.output(node)
                );
                Ok(())
            }
            Running::Thread(thread) => thread.stop(patience),
        }
    }

    /// Stops all that run at the same time, as a person who presses Ctrl-C expects.
    ///
    /// # Errors
    /// What the first said that did not stop well.
    pub fn stop_all(&mut self, patience: Duration) -> Result<()> {
        let stopping: Vec<_> = std::mem::take(&mut self.running)
            .into_iter()
            .map(|(node, running)| {
                std::thread::spawn(move || {
                    running.stop(patience).with_context(|| format!("node {node}"))
                })
            })
            .collect();
        for stopped in stopping {
            match stopped.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread that stops a node panicked"),
            }
        }
        Ok(())
    }

    /// Freezes a node: alive, and silent.
    ///
    /// # Errors
    /// When it does not run, or is frozen.
    pub fn freeze(&mut self, node: NodeId) -> Result<()> {
        match self.find(node)? {
            running if running.is_frozen() => bail!("node {node} is frozen already"),
            Running::Process(process) => process.freeze(),
            Running::Thread(thread) => thread.freeze(),
        }
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// When it does not run, or is not frozen.
    pub fn thaw(&mut self, node: NodeId) -> Result<()> {
        match self.find(node)? {
            running if !running.is_frozen() => bail!("node {node} is not frozen"),
            Running::Process(process) => process.thaw(),
            Running::Thread(thread) => {
                thread.thaw();
                Ok(())
            }
        }
    }

    /// Finds nodes that ended by themselves since the last call; they do not run any more.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn find_ended(&mut self) -> Result<Vec<NodeId>> {
        let mut ended = Vec::new();
        for (node, running) in &mut self.running {
            let is_running = match running {
                Running::Process(process) => process.is_running(),
                Running::Thread(thread) => thread.is_running(),
            };
            match (is_running, &running) {
                (Ok(true), _) => continue,
                (Ok(false), _) => self.failed.insert(*node, "it ended by itself".to_owned()),
                (Err(error), Running::Thread(_)) => self.failed.insert(*node, format!("{error:#}")),
                (Err(error), Running::Process(_)) => return Err(error),
            };
            ended.push(*node);
        }
        for node in &ended {
            if let Some(Running::Thread(thread)) = self.running.remove(node) {
                thread.kill()?;
            }
        }
        Ok(ended)
    }

    fn find(&mut self, node: NodeId) -> Result<&mut Running> {
        self.spec(node)?;
        self.running.get_mut(&node).with_context(|| format!("node {node} does not run"))
    }

    fn take(&mut self, node: NodeId) -> Result<Running> {
        self.spec(node)?;
        self.running.remove(&node).with_context(|| format!("node {node} does not run"))
    }

    /// A node's log directories.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn log_dirs(&self, node: NodeId) -> Result<Vec<PathBuf>> {
        let settings = &self.spec(node)?.settings;
        let dirs = settings.get("log.dirs").or(settings.get("log.dir")).map_or("", String::as_str);
        Ok(dirs.split(',').map(|dir| PathBuf::from(dir.trim())).collect())
    }

    /// Takes a log directory away from a node, running or not, as when a volume is unmounted under it: what
    /// the node has open stays open, and nothing can be opened, made or renamed there any more. A
    /// running node notices with its next checkpoint or segment.
    ///
    /// # Errors
    /// When it is none of the node's, or is taken away already.
    pub fn fail_disk(&mut self, node: NodeId, dir: &Path) -> Result<()> {
        let dirs = self.log_dirs(node)?;
        ensure!(
            dirs.iter().any(|own| own == dir),
            "{} is no log directory of node {node}; it has {dirs:?}",
            dir.display()
        );
        ensure!(dir.is_dir(), "{} is taken away already", dir.display());
        std::fs::rename(dir, away(dir))?;
        std::fs::write(dir, "this log directory was taken away\n")?;
        Ok(())
    }

    /// Gives a node back all log directories that were taken away; it takes them up when it starts. Gives
    /// how many they were.
    ///
    /// # Errors
    /// When files cannot be moved.
    pub fn mend_disk(&mut self, node: NodeId) -> Result<usize> {
        let mut mended = 0;
        for dir in self.log_dirs(node)? {
            if away(&dir).is_dir() {
                if dir.is_file() {
                    std::fs::remove_file(&dir)?;
                }
                std::fs::rename(away(&dir), &dir)?;
                mended += 1;
            }
        }
        Ok(mended)
    }

    /// Whether a log directory is taken away.
    pub fn is_taken_away(dir: &Path) -> bool {
        away(dir).is_dir()
    }

    /// Where the files of a log directory are, also while it is taken away.
    pub fn files_of(dir: &Path) -> PathBuf {
        if Crew::is_taken_away(dir) { away(dir) } else { dir.to_path_buf() }
    }
}

fn away(dir: &Path) -> PathBuf {
    dir.with_extension(TAKEN_AWAY)
}

fn write_properties(spec: &NodeSpec) -> Result<PathBuf> {
    std::fs::create_dir_all(&spec.folder)
        .with_context(|| format!("cannot create {}", spec.folder.display()))?;
    let mut text = String::new();
    for (key, value) in &spec.settings {
        writeln!(text, "{key}={}", value.replace('\\', "\\\\"))?;
    }
    let properties = spec.folder.join("server.properties");
    std::fs::write(&properties, text)?;
    Ok(properties)
}
