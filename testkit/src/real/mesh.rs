//! How a cluster is laid over a fault proxy: where brokers listen for each other behind it, and the
//! settings by which every node goes through it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::NodeId;
use super::proxy::{Faults, Proxy};

/// The listener by which brokers reach each other through the proxy.
const LISTENER: &str = "REPLICATION";
const VOTERS: &str = "controller.quorum.voters";
const MAP: &str = "listener.security.protocol.map";

/// A cluster's links.
#[derive(Debug)]
pub struct Mesh {
    proxy: Proxy,
}

impl Mesh {
    /// Changes the settings of a cluster's nodes so that all links between them lead through a proxy.
    /// `ports` are free ones of the loopback interface, one for each broker, where it listens for the
    /// proxy. Nodes have to be told the same cluster id, since they name their voters differently.
    ///
    /// # Errors
    /// Links under TLS, or no free port.
    pub fn lay(
        nodes: &mut BTreeMap<NodeId, BTreeMap<String, String>>,
        ports: &BTreeMap<NodeId, u16>,
    ) -> Result<Mesh> {
        let proxy = Proxy::start()?;
        for (node, settings) in nodes {
            if settings.get(MAP).is_some_and(|map| map.contains("SSL")) {
                bail!("links under TLS cannot be understood by the fault proxy");
            }
            let voters = settings.get(VOTERS).context("a cluster has controllers")?;
            let mut through = Vec::new();
            for voter in voters.split(',') {
                let (id, address) = voter.split_once('@').context("a voter is id@host:port")?;
                let entrance = proxy.to_controller(*node, id.trim().parse()?, address)?;
                through.push(format!("{id}@{entrance}"));
            }
            settings.insert(VOTERS.into(), through.join(","));
            if let Some(port) = ports.get(node) {
                let own = format!("127.0.0.1:{port}");
                let entrance = proxy.to_broker(*node, &own)?;
                let mut add = |key: &str, value: String| {
                    let all = settings.entry(key.into()).or_default();
                    *all = if all.is_empty() { value } else { format!("{all},{value}") };
                };
                add("listeners", format!("{LISTENER}://{own}"));
                add("advertised.listeners", format!("{LISTENER}://{entrance}"));
                add(MAP, format!("{LISTENER}:PLAINTEXT"));
                settings.insert("inter.broker.listener.name".into(), LISTENER.into());
            }
        }
        Ok(Mesh { proxy })
    }

    /// The faults of its links.
    pub fn faults(&self) -> &Faults {
        self.proxy.faults()
    }
}
