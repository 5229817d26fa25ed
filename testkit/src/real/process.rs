//! One node as a child process: started from a properties file, signalled, and always ended with
//! its owner, also when that is killed: the node ends when the pipe to its standard input does.

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// The variable by which the runtime learns how many threads to work with.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// The variable by which a node learns its cluster's id.
const CLUSTER_ID: &str = "CLUSTER_ID";

/// A running node. Dropping it kills the process.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    frozen: bool,
}

impl NodeProcess {
    /// Runs `binary serve properties`, with everything it prints added to `log`. It is one of `nodes`
    /// on this machine, which share its cores: more threads would only hand work to each other. The
    /// environment's `TOKIO_WORKER_THREADS` is stronger.
    pub fn start(
        binary: &Path,
        properties: &Path,
        log: &Path,
        nodes: usize,
    ) -> Result<NodeProcess> {
        NodeProcess::start_under(&[], binary, properties, log, nodes, None)
    }

    /// The same under a command that becomes the program, as `ip netns exec NAME` does; of the cluster with
    /// this id, if it is told one.
    pub fn start_under(
        command: &[String],
        binary: &Path,
        properties: &Path,
        log: &Path,
        nodes: usize,
        cluster_id: Option<&str>,
    ) -> Result<NodeProcess> {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = std::env::var_os(WORKER_THREADS)
            .unwrap_or_else(|| cores.div_ceil(nodes.max(1)).to_string().into());
        let mut line = command.iter().map(OsStr::new).chain([binary.as_os_str()]);
        let child = Command::new(line.next().unwrap_or(binary.as_os_str()))
            .args(line)
            .env(WORKER_THREADS, threads)
            .envs(cluster_id.map(|id| (CLUSTER_ID, id)))
            .arg("serve")
            .arg(properties)
            .arg("--while-stdin")
            // Kept in the child's handle. No other child inherits it.
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(NodeProcess { child, frozen: false })
    }

    /// The operating system's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs (a frozen one does).
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Kills the process as a crash does (SIGKILL) and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks for a clean stop (SIGTERM) and waits for it.
    pub fn stop(mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("process {} did not stop within {timeout:?} of SIGTERM", self.id());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Freezes the process (SIGSTOP): its sockets stay open and nothing answers.
    pub fn freeze(&mut self) -> Result<()> {
        self.frozen = true;
        self.signal(Signal::STOP)
    }

    /// Ends a freeze (SIGCONT).
    pub fn thaw(&mut self) -> Result<()> {
        self.frozen = false;
        self.signal(Signal::CONT)
    }

    /// Whether the process was frozen and not thawed.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a child has a positive id")?, signal)?;
        Ok(())
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the `highwater` binary: `HIGHWATER_BIN`, or beside the running test or program.
pub fn find_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HIGHWATER_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    for folder in own.ancestors().skip(1).take(2) {
        let candidate = folder.join("highwater");
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!("no `highwater` beside {}: build it first, or set HIGHWATER_BIN", own.display())
}

/// Where ports are looked for: below those that Linux gives to outgoing connections, which come and go.
const PORTS: std::ops::Range<u32> = 12_000..32_000;

/// Ports that nothing listens on just now, distinct from each other and from those of earlier calls, as long
/// as there are such. Other processes begin to look elsewhere.
///
/// # Errors
/// When there are not so many.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicU32::new(rand::random_range(PORTS)));
    let candidates = (0..PORTS.len()).map(|_| {
        // Far enough from each other that the next ones are free too, for those who want a row.
        let drawn = next.fetch_add(37, Ordering::Relaxed) % PORTS.len() as u32;
        (PORTS.start + drawn) as u16
    });
    // All are held until the last is found.
    let free = candidates.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let held: Vec<TcpListener> = free.take(count).collect();
    ensure!(held.len() == count, "{count} ports are wanted, and not so many are free in {PORTS:?}");
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// The first of so many free ports in a row.
///
/// # Errors
/// When no such row is found.
pub fn free_row(count: u16) -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    // Behind each: a process that another thread just began may have those that were held a moment longer.
    let row_behind = |drawn: u16| {
        let first = drawn.checked_add(1)?;
        (first..first.checked_add(count)?).all(is_free).then_some(first)
    };
    free_ports(50)?.into_iter().find_map(row_behind).context("not enough free ports in a row")
}
