//! Real clusters: every node a child process with real sockets, files and signals.

mod cluster;
mod encryption;
mod links;
mod process;

pub use cluster::{Cluster, ClusterBuilder, NodeId, Plane};
pub use encryption::Encryption;
pub use links::Links;
pub use process::{NodeProcess, find_binary, free_ports};
