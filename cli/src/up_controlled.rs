//! `highwater up --control`: the cluster of `up`, with a fault proxy on its links and an HTTP port by which it
//! is looked at and broken. In one process each node has a runtime of its own, so that it can be
//! killed and frozen by itself.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use broker::host::cluster_id_of;
use parking_lot::Mutex;
use testkit::real::{Crew, Hosting, Mesh, NodeSpec};

use crate::control::{self, Controlled, Planned, STOP_PATIENCE};
use crate::settings::check;
use crate::up::{Plan, announce, wait_until_ready};
use crate::up_processes::stop_flag;

const POLL: Duration = Duration::from_millis(50);

/// Runs the cluster until Ctrl-C or SIGTERM. Nodes that end meanwhile are somebody's experiment.
pub fn run(plan: &Plan, processes: bool, quiet: bool, control: &str) -> Result<()> {
    let told_to_stop = stop_flag()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control-port")
        .enable_all()
        .build()?;
    let listener = runtime.block_on(control::bind(control))?;
    let address = listener.local_addr()?;
    let controlled = Arc::new(man(plan, processes)?);
    let nodes = controlled.crew.lock().nodes();
    for node in nodes {
        controlled.crew.lock().start(node)?;
    }
    if processes {
        tell_processes(plan, &controlled)?;
    }
    wait_until_ready(plan, || {
        let mut crew = controlled.crew.lock();
        match crew.find_ended()?.first() {
            Some(node) => bail!("node {node} did not start:\n{}", crew.output(*node).trim_end()),
            None => Ok(()),
        }
    })?;
    runtime.spawn(control::serve(listener, controlled.clone()));
    announce(plan, quiet)?;
    if !quiet {
        // Whoever read the first line may have gone.
        let line =
            format!("  control: http://{address}/cluster, highwater describe --control {address}");
        let _ = writeln!(std::io::stdout(), "{line}");
    }
    while !told_to_stop.load(Ordering::SeqCst) {
        for node in controlled.crew.lock().find_ended()? {
            eprintln!("node {node} ended");
        }
        std::thread::sleep(POLL);
    }
    controlled.faults().heal(|_| true);
    controlled.crew.lock().stop_all(STOP_PATIENCE)
}

/// The nodes of the plan, with their links laid through the proxy.
fn man(plan: &Plan, processes: bool) -> Result<Controlled> {
    let first = plan.nodes.first().context("no nodes")?;
    // All nodes name the same voters here; through the proxy, each names them by its own addresses.
    let cluster_id = cluster_id_of(&check(&[&first.settings])?.0)?;
    let mut settings: BTreeMap<_, _> =
        plan.nodes.iter().map(|node| (node.id, node.settings.clone())).collect();
    let mesh = Mesh::lay(&mut settings, &replication_ports(plan)?)?;
    let specs = settings.into_iter().map(|(id, settings)| {
        let folder = plan.folder.join(format!("node{id}"));
        (id, NodeSpec { settings, folder, command: Vec::new() })
    });
    let hosting = match processes {
        true => Hosting::Processes(std::env::current_exe()?),
        false => Hosting::OneProcess,
    };
    let crew = Mutex::new(Crew::new(hosting, Some(cluster_id), specs.collect()));
    let planned = plan.nodes.iter().map(|node| {
        let address = node.port.map(|port| format!("127.0.0.1:{port}"));
        (node.id, Planned { address, is_controller: node.is_controller })
    });
    Ok(Controlled { crew, mesh, planned: planned.collect() })
}

/// A port for each broker behind those that the nodes listen on otherwise.
fn replication_ports(plan: &Plan) -> Result<BTreeMap<i32, u16>> {
    let brokers = plan.nodes.iter().filter_map(|node| Some((node.id, node.port?)));
    let first = brokers.clone().map(|(_, port)| port).min().context("no brokers")?;
    let above = u32::from(first) + 2 * plan.nodes.len() as u32;
    let mut ports = BTreeMap::new();
    for ((id, _), port) in brokers.zip(above..) {
        let port = u16::try_from(port).context(
            "--control: every broker takes a third port, and there are none above 65535",
        )?;
        if let Err(error) = std::net::TcpListener::bind(("127.0.0.1", port)) {
            bail!(
                "--control: every broker takes a third port, and {port} is not free ({error}): --port"
            );
        }
        ports.insert(id, port);
    }
    Ok(ports)
}

fn tell_processes(plan: &Plan, controlled: &Controlled) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for node in &plan.nodes {
        let port = node.port.map_or("-".to_owned(), |port| port.to_string());
        let pid = controlled.crew.lock().pid(node.id).unwrap_or_default();
        writeln!(out, "node {} pid {pid} port {port}", node.id)?;
    }
    Ok(out.flush()?)
}
