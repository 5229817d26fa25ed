//! Real clusters: every node a process with real sockets, files and signals. Ours, and Apache Kafka's to
//! compare with.

mod cluster;
mod encryption;
mod kafka;
mod links;
mod on_sockets;
mod process;

pub use cluster::{Cluster, ClusterBuilder, NodeId, Plane};
pub use encryption::Encryption;
pub use kafka::KafkaCluster;
pub use links::Links;
pub use on_sockets::OnSockets;
pub use process::{NodeProcess, find_binary, free_ports};
