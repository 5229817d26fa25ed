//! `highwater up --processes`: every node a child process, for experiments that kill and freeze them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::real::NodeProcess;

use crate::up::{NodePlan, Plan, announce, wait_until_ready};

/// How long a child may take to stop cleanly.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Runs the children until Ctrl-C or SIGTERM, then stops those that still run.
pub fn run(plan: &Plan, quiet: bool) -> Result<()> {
    let binary = std::env::current_exe()?;
    let told_to_stop = stop_flag()?;
    let mut children = Vec::new();
    for node in &plan.nodes {
        let (properties, log) = write_files(plan, node)?;
        let child = NodeProcess::start(&binary, &properties, &log, plan.nodes.len())?;
        children.push((node, child, log));
    }
    {
        let mut out = std::io::stdout().lock();
        for (node, child, _) in &children {
            let port = node.port.map_or("-".to_owned(), |port| port.to_string());
            writeln!(out, "node {} pid {} port {port}", node.id, child.id())?;
        }
        out.flush()?;
    }
    // Somebody else's cluster may answer on these ports: ready is only what our own nodes make so.
    wait_until_ready(plan, || {
        for (node, child, log) in &mut children {
            if !child.is_running()? {
                let output = std::fs::read_to_string(log.as_path()).unwrap_or_default();
                bail!("node {} did not start; its output:\n{}", node.id, output.trim_end());
            }
        }
        Ok(())
    })?;
    announce(plan, quiet)?;
    let mut ended = vec![false; children.len()];
    while !told_to_stop.load(Ordering::SeqCst) {
        for (at, (node, child, _)) in children.iter_mut().enumerate() {
            if !ended[at] && !child.is_running()? {
                ended[at] = true;
                eprintln!("node {} ended", node.id);
            }
        }
        std::thread::sleep(POLL);
    }
    stop_all(children.into_iter().map(|(_, child, _)| child).collect())
}

/// Stops all children at the same time, as a person who presses Ctrl-C expects.
fn stop_all(children: Vec<NodeProcess>) -> Result<()> {
    let stopping: Vec<_> = children
        .into_iter()
        .map(|mut child| {
            std::thread::spawn(move || -> Result<()> {
                if child.is_running()? {
                    child.stop(STOP_PATIENCE)?;
                }
                Ok(())
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

fn write_files(plan: &Plan, node: &NodePlan) -> Result<(PathBuf, PathBuf)> {
    let folder = plan.folder.join(format!("node{}", node.id));
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let mut text = String::new();
    for (key, value) in &node.settings {
        writeln!(text, "{key}={}", value.replace('\\', "\\\\"))?;
    }
    let properties = folder.join("server.properties");
    std::fs::write(&properties, text)?;
    Ok((properties, folder.join("output")))
}

/// Becomes true when SIGINT or SIGTERM arrives.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let told = flag.clone();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            told.store(true, Ordering::SeqCst);
        });
    });
    Ok(flag)
}
