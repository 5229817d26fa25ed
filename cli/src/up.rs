//! `highwater up`: a whole cluster on this machine, in one process or a process per node.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::iter::repeat;
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::kept_data::KeptData;
use crate::settings::{Settings, check, parse_sets};
use crate::{control, logging, ready, up_controlled, up_processes, up_threads};

/// How long a cluster may take to be ready.
pub const READY_PATIENCE: Duration = Duration::from_secs(60);
/// Controllers of their own get ids from here.
const FIRST_CONTROLLER_ID: i32 = 3000;
/// The metrics' first port above the brokers': 9404 for 9092, the usual port of exporters for Java.
const METRICS_ABOVE: u16 = 312;
/// The key that says where a node's metrics are.
const METRICS_LISTENER: &str = "highwater.metrics.listener";
/// Keys that differ from node to node, so that `--set` cannot give them to all.
const KEYS_OF_ITS_OWN: [&str; 6] =
    ["broker.id", "controller.quorum.voters", "log.dir", "log.dirs", "node.id", "process.roles"];

/// Options of `up`.
#[derive(Debug, Clone, Args)]
pub struct UpArguments {
    /// How many brokers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=100))]
    brokers: i32,
    /// How many controllers of their own; 0: the brokers (at most five of them) are controllers too.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=9))]
    controllers: i32,
    /// The first broker's port; the others listen on every second one after it.
    #[arg(long, default_value_t = 9092, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// The port of the first node's metrics, at /metrics; the other nodes' are after it. 0 for none; 312
    /// above --port (9404) unless it is given.
    #[arg(long, value_name = "FIRST")]
    metrics_port: Option<u16>,
    /// Keeps the data here and starts from it; a temporary folder otherwise.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Racks, given to the brokers in turn.
    #[arg(long, value_delimiter = ',', value_name = "A,B,C")]
    racks: Vec<String>,
    /// Sets a config key on every node. Repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Runs every node as a child process of its own.
    #[arg(long)]
    processes: bool,
    /// Watches the cluster as `highwater check` does, and tells on standard error what it sees broken.
    #[arg(long)]
    check: bool,
    /// Opens a control port, by which the cluster is looked at and broken: `highwater describe`, `highwater
    /// fault`, GET /cluster, GET /openapi.json. HOST:PORT, or a port of this machine.
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = control::DEFAULT_ADDRESS)]
    control: Option<String>,
    /// Prints the `ready` line and nothing else.
    #[arg(long)]
    quiet: bool,
}

/// One node of the cluster to be.
#[derive(Debug, Clone)]
pub struct NodePlan {
    /// `node.id`.
    pub id: i32,
    /// The port for clients; `None` for a node that is only a controller.
    pub port: Option<u16>,
    /// Whether it votes in the metadata quorum.
    pub is_controller: bool,
    /// Everything that makes its properties file.
    pub settings: Settings,
}

/// The whole cluster to be.
#[derive(Debug)]
pub struct Plan {
    /// Its nodes, brokers first.
    pub nodes: Vec<NodePlan>,
    /// `host:port` of every broker.
    pub bootstrap: Vec<String>,
    /// Where the metrics of every node are.
    pub metrics: Vec<String>,
    /// Where everything is kept.
    pub folder: PathBuf,
    /// Whether it is watched while it runs.
    pub is_checked: bool,
}

/// Starts the cluster and runs it until Ctrl-C or SIGTERM.
pub fn run(arguments: &UpArguments) -> Result<()> {
    logging::start("error");
    let temporary;
    let folder = match &arguments.data {
        Some(folder) => folder.clone(),
        None => {
            temporary = tempfile::Builder::new().prefix("highwater-").tempdir()?;
            temporary.path().to_path_buf()
        }
    };
    let plan = plan(arguments, &folder)?;
    check_settings(&plan)?;
    check_ports(&plan)?;
    if let Some(control) = &arguments.control {
        up_controlled::run(&plan, arguments.processes, arguments.quiet, control)
    } else if arguments.processes {
        up_processes::run(&plan, arguments.quiet)
    } else {
        up_threads::run(&plan, arguments.quiet)
    }
}

/// What is printed once clients can work; from then on the cluster is watched, if that is wanted.
pub fn announce(plan: &Plan, quiet: bool) -> Result<()> {
    if plan.is_checked {
        crate::check::watch_beside(plan.bootstrap.join(","));
    }
    let bootstrap = plan.bootstrap.join(",");
    let mut text = format!("ready bootstrap={bootstrap}\n");
    if !quiet {
        let first = &plan.bootstrap[0];
        text += &format!("  produce: echo hello | kcat -b {first} -t greetings -P\n");
        text += &format!("  consume: kcat -b {first} -t greetings -C -o beginning -e\n");
        if !plan.metrics.is_empty() {
            text += &format!("  metrics: {}\n", plan.metrics.join(" "));
        }
        text += &format!("  data in {}, Ctrl-C stops\n", plan.folder.display());
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever read the first line may have gone, as `head -1` does; the cluster goes on.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Waits for [`ready::wait`] over all brokers, for as long as `still_hopeful` says.
pub fn wait_until_ready(plan: &Plan, still_hopeful: impl FnMut() -> Result<()>) -> Result<()> {
    ready::wait(&plan.bootstrap, plan.bootstrap.len(), READY_PATIENCE, still_hopeful)
}

/// Refuses wrong values before anything starts, and tells each odd one once for all nodes.
fn check_settings(plan: &Plan) -> Result<()> {
    let mut told = BTreeSet::new();
    for node in &plan.nodes {
        let (_, warnings) = check(&[&node.settings])?;
        for warning in warnings {
            if told.insert(warning.to_string()) {
                eprintln!("highwater: {warning}");
            }
        }
    }
    Ok(())
}

/// Says which port another process has, before any node starts.
fn check_ports(plan: &Plan) -> Result<()> {
    let listeners = plan.nodes.iter().filter_map(|node| node.settings.get("listeners"));
    let addresses =
        listeners.flat_map(|all| all.split(',')).filter_map(|one| one.split("://").nth(1));
    let metrics = plan.nodes.iter().filter_map(|node| node.settings.get(METRICS_LISTENER));
    for address in addresses.chain(metrics.map(String::as_str)) {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => bail!(
                "another process listens on {address}: stop it, or start elsewhere with --port FIRST; every \
                 node takes the next two ports (--metrics-port FIRST: one of its own for metrics)"
            ),
            // Whatever else is wrong is told by the node that listens there.
            _ => {}
        }
    }
    Ok(())
}

fn plan(arguments: &UpArguments, folder: &Path) -> Result<Plan> {
    let (brokers, controllers) = (arguments.brokers, arguments.controllers);
    let kept = KeptData::find(folder, FIRST_CONTROLLER_ID)?;
    let ports = i32::from(arguments.port) + 2 * (brokers + controllers);
    ensure!(
        ports <= i32::from(u16::MAX),
        "--port {}: {} ports from there on are needed, and there are none above 65535",
        arguments.port,
        2 * (brokers + controllers)
    );
    ensure!(arguments.racks.iter().all(|rack| !rack.is_empty()), "--racks: a name is empty");
    let port_of = |place: i32| arguments.port + 2 * place as u16;
    // Brokers take the even places of the port range, controllers the port after each.
    let combined = kept.combined().unwrap_or(5).min(brokers);
    let voters: Vec<String> = if controllers == 0 {
        (0..combined).map(|at| format!("{}@127.0.0.1:{}", at + 1, port_of(at) + 1)).collect()
    } else {
        (0..controllers)
            .map(|at| {
                let port = port_of(brokers + at) + 1;
                format!("{}@127.0.0.1:{port}", FIRST_CONTROLLER_ID + at)
            })
            .collect()
    };
    let sets = parse_sets(&arguments.sets)?;
    if let Some(key) = KEYS_OF_ITS_OWN.iter().find(|key| sets.contains_key(**key)) {
        bail!("--set {key}: `up` gives every node its own; `serve` runs a node as you say");
    }
    let metrics = match sets.contains_key(METRICS_LISTENER) {
        true => 0..0,
        false => metrics_ports(arguments)?,
    };
    let mut nodes = Vec::new();
    for at in 0..brokers {
        let is_controller = controllers == 0 && at < combined;
        let mut settings = broker_settings(at + 1, port_of(at), is_controller, brokers);
        if let Some(rack) = arguments.racks.get(at as usize % arguments.racks.len().max(1)) {
            settings.insert("broker.rack".into(), rack.clone());
        }
        let (id, port) = (at + 1, Some(port_of(at)));
        nodes.push(NodePlan { id, port, is_controller, settings });
    }
    for at in 0..controllers {
        nodes.push(NodePlan {
            id: FIRST_CONTROLLER_ID + at,
            port: None,
            is_controller: true,
            settings: controller_settings(port_of(brokers + at) + 1),
        });
    }
    let metrics = complete(&mut nodes, folder, &voters, &sets, metrics);
    let ids = |of: &dyn Fn(&NodePlan) -> bool| {
        nodes.iter().filter(|node| of(node)).map(|node| node.id).collect::<BTreeSet<i32>>()
    };
    kept.check(folder, &ids(&|node| node.port.is_some()), &ids(&|node| node.is_controller))?;
    let bootstrap = (0..brokers).map(|at| format!("127.0.0.1:{}", port_of(at))).collect();
    if nodes.is_empty() {
        bail!("no nodes");
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let is_checked = arguments.check;
    Ok(Plan { nodes, bootstrap, metrics, folder: folder.to_path_buf(), is_checked })
}

/// Adds what all nodes have; gives where their metrics are.
fn complete(
    nodes: &mut [NodePlan],
    folder: &Path,
    voters: &[String],
    sets: &Settings,
    metrics: Range<u16>,
) -> Vec<String> {
    let mut urls = Vec::new();
    for (node, metrics_port) in nodes.iter_mut().zip(metrics.map(Some).chain(repeat(None))) {
        if let Some(port) = metrics_port {
            let address = format!("127.0.0.1:{port}");
            urls.push(format!("http://{address}/metrics"));
            node.settings.insert(METRICS_LISTENER.into(), address);
        }
        let own = folder.join(format!("node{}", node.id));
        let common = [
            ("node.id", node.id.to_string()),
            ("controller.quorum.voters", voters.join(",")),
            ("controller.listener.names", "CONTROLLER".into()),
            ("log.dirs", own.join("data").display().to_string()),
        ];
        node.settings.extend(common.map(|(key, value)| (key.to_owned(), value)));
        node.settings.extend(sets.clone());
    }
    urls
}

/// A port for the metrics of each node; none when they are not wanted.
fn metrics_ports(arguments: &UpArguments) -> Result<Range<u16>> {
    let nodes = u16::try_from(arguments.brokers + arguments.controllers)?;
    let first = arguments.metrics_port.or(arguments.port.checked_add(METRICS_ABOVE));
    let end = first.and_then(|first| first.checked_add(nodes));
    match (first, end) {
        (Some(0), _) => Ok(0..0),
        (Some(first), Some(end)) if first < arguments.port + 2 * nodes && end > arguments.port => {
            bail!(
                "--metrics-port {first}: the nodes listen on {} to {}; each needs one more port for its metrics",
                arguments.port,
                arguments.port + 2 * nodes - 1
            )
        }
        (Some(first), Some(end)) => Ok(first..end),
        _ => bail!("no ports left for metrics; give --metrics-port, or 0 for none"),
    }
}

fn broker_settings(id: i32, port: u16, is_controller: bool, brokers: i32) -> Settings {
    let plaintext = format!("PLAINTEXT://127.0.0.1:{port}");
    let (roles, listeners) = if is_controller {
        let controller = format!("CONTROLLER://127.0.0.1:{}", port + 1);
        ("broker,controller", format!("{plaintext},{controller}"))
    } else {
        ("broker", plaintext.clone())
    };
    let replicas = brokers.min(3).to_string();
    BTreeMap::from(
        [
            ("node.id", id.to_string()),
            ("process.roles", roles.to_owned()),
            ("listeners", listeners),
            ("advertised.listeners", plaintext),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".into()),
            ("default.replication.factor", replicas.clone()),
            ("offsets.topic.replication.factor", replicas.clone()),
            ("transaction.state.log.replication.factor", replicas),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}

fn controller_settings(port: u16) -> Settings {
    BTreeMap::from(
        [
            ("process.roles", "controller".to_owned()),
            ("listeners", format!("CONTROLLER://127.0.0.1:{port}")),
            ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT".into()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}
