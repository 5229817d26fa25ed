//! Links that can be cut: every node lives in a network namespace of its own, all behind one that routes,
//! and this process beside them. A cut is a rule of the router: packets are lost on the way and nobody is
//! told, as in a broken network. Needs root and `ip` of iproute2; see [`Links::missing`].
//!
//! Node `n` of a cluster has the address `10.A.B.(4n+2)`; A and B come from the process and a counter, so
//! that clusters of several tests do not meet.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use super::NodeId;

/// How many clusters with links this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// One cluster's network. Dropping it removes the namespaces.
#[derive(Debug)]
pub struct Links {
    tag: String,
    subnet: (u32, u32),
    nodes: Vec<NodeId>,
    cuts: Vec<String>,
}

/// Runs `ip`; its output, or an error with what it said.
fn ip(arguments: &str) -> Result<Output> {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).output().context("no `ip` here")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {}", said.trim());
    Ok(output)
}

impl Links {
    /// Why links cannot be made here, if they cannot.
    pub fn missing() -> Option<String> {
        let trial = format!("hwt{}", std::process::id());
        let tried =
            ip(&format!("netns add {trial}")).and_then(|_| ip(&format!("netns del {trial}")));
        tried.err().map(|error| format!("{error:#}"))
    }

    /// Makes the network of these nodes, with all links whole.
    ///
    /// # Errors
    /// Without the right to, or without `ip`; what was made until then is removed.
    pub fn make(nodes: &[NodeId]) -> Result<Links> {
        ensure!(nodes.iter().all(|node| (1..=60).contains(node)), "at most 60 nodes");
        let (process, count) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let links = Links {
            tag: format!("hw{process}c{count}"),
            subnet: (64 + process % 64, (process / 64 + count) % 256),
            nodes: nodes.to_vec(),
            cuts: Vec::new(),
        };
        links.set_up()?;
        Ok(links)
    }

    fn set_up(&self) -> Result<()> {
        let (router, net) = (self.router(), self.net());
        ip(&format!("netns add {router}"))?;
        ip(&format!("-n {router} link set lo up"))?;
        let forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let forward = Command::new("ip")
            .args(["netns", "exec", &router, "sh", "-c", forwarding])
            .status()
            .context("no `ip` here")?;
        ensure!(forward.success(), "the router namespace does not forward: {forward}");
        // This process's side of the router: the first four addresses.
        let outside = self.outside();
        ip(&format!("link add {outside} type veth peer name host netns {router}"))?;
        ip(&format!("addr add {net}.1/30 dev {outside}"))?;
        ip(&format!("link set {outside} up"))?;
        ip(&format!("-n {router} addr add {net}.2/30 dev host"))?;
        ip(&format!("-n {router} link set host up"))?;
        ip(&format!("route add {net}.0/24 via {net}.2"))?;
        for node in &self.nodes {
            self.add_node(*node)?;
        }
        Ok(())
    }

    fn add_node(&self, node: NodeId) -> Result<()> {
        let (router, space, net) = (self.router(), self.space(node), self.net());
        let (gateway, own) = (4 * node + 1, 4 * node + 2);
        ip(&format!("netns add {space}"))?;
        ip(&format!("-n {space} link set lo up"))?;
        ip(&format!("-n {router} link add n{node} type veth peer name eth0 netns {space}"))?;
        ip(&format!("-n {router} addr add {net}.{gateway}/30 dev n{node}"))?;
        ip(&format!("-n {router} link set n{node} up"))?;
        ip(&format!("-n {space} addr add {net}.{own}/30 dev eth0"))?;
        ip(&format!("-n {space} link set eth0 up"))?;
        ip(&format!("-n {space} route add default via {net}.{gateway}"))?;
        Ok(())
    }

    fn router(&self) -> String {
        format!("{}r", self.tag)
    }

    fn space(&self, node: NodeId) -> String {
        format!("{}n{node}", self.tag)
    }

    /// The interface on this process's side; names of interfaces have fifteen characters at most.
    fn outside(&self) -> String {
        format!("hwo{}x{}", self.subnet.0, self.subnet.1)
    }

    fn net(&self) -> String {
        format!("10.{}.{}", self.subnet.0, self.subnet.1)
    }

    /// The node's address.
    pub fn address(&self, node: NodeId) -> String {
        format!("{}.{}", self.net(), 4 * node + 2)
    }

    /// The command under which the node's program has to be started.
    pub fn command(&self, node: NodeId) -> Vec<String> {
        ["ip", "netns", "exec", &self.space(node)].map(str::to_owned).to_vec()
    }

    /// Loses every packet between two nodes that belongs to a connection to one of these ports of
    /// theirs, in both directions.
    ///
    /// # Errors
    /// When the router refuses the rule.
    pub fn cut(&mut self, one: (NodeId, u16), other: (NodeId, u16)) -> Result<()> {
        for ((from, from_port), (to, to_port)) in [(one, other), (other, one)] {
            for ports in [format!("dport {to_port}"), format!("sport {from_port}")] {
                let (from, to) = (self.address(from), self.address(to));
                let rule = format!("from {from} to {to} ipproto tcp {ports} blackhole");
                ip(&format!("-n {} rule add {rule}", self.router()))?;
                self.cuts.push(rule);
            }
        }
        Ok(())
    }

    /// Makes all links whole.
    ///
    /// # Errors
    /// When the router refuses to forget a rule.
    pub fn heal(&mut self) -> Result<()> {
        for rule in std::mem::take(&mut self.cuts) {
            ip(&format!("-n {} rule del {rule}", self.router()))?;
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // What fails here was never made. The outer interface goes with the router.
        for space in self.nodes.iter().map(|node| self.space(*node)).chain([self.router()]) {
            let _ = ip(&format!("netns del {space}"));
        }
        let _ = ip(&format!("link del {}", self.outside()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_loses_what_it_names_and_nothing_else_until_it_is_healed() {
        if let Some(missing) = Links::missing() {
            println!("SKIPPED: no network namespaces here: {missing}");
            return;
        }
        let mut links = Links::make(&[1, 2]).unwrap();
        let answers = |links: &Links, port: u16| {
            let reach = format!(
                "timeout 1 bash -c 'exec 3<>/dev/tcp/{}/{port}' 2>&1 | grep -q refused && echo 1",
                links.address(2)
            );
            let mut command = links.command(1);
            command.extend(["bash".to_owned(), "-c".to_owned(), reach]);
            let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == "1"
        };
        // Nobody listens: what reaches node 2 is refused, what is cut is never answered.
        assert!(answers(&links, 7001) && answers(&links, 7002));
        links.cut((1, 7001), (2, 7001)).unwrap();
        assert!(!answers(&links, 7001), "the cut port answers");
        assert!(answers(&links, 7002), "a port that was not cut does not answer");
        links.heal().unwrap();
        assert!(answers(&links, 7001));
    }
}
