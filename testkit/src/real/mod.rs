//! Real clusters: nodes with real sockets, files and signals, as child processes or in this one, and a
//! proxy between them that makes faults. Beside them Apache Kafka's, to compare with.

mod builder;
mod cluster;
mod crew;
mod encryption;
mod kafka;
mod links;
mod mesh;
mod on_sockets;
mod process;
mod proxy;
mod recorded;
mod thread;
mod view;

pub use builder::ClusterBuilder;
pub use cluster::{Cluster, NodeId};
pub use crew::{Crew, Hosting, NodeSpec, NodeState};
pub use encryption::Encryption;
pub use kafka::KafkaCluster;
pub use links::Links;
pub use mesh::Mesh;
pub use on_sockets::OnSockets;
pub use process::{NodeProcess, find_binary, free_ports, free_row};
pub use proxy::{Fault, FaultId, Faults, Harm, LONGEST_LATENCY, Message, Plane, Proxy, Way};
pub use recorded::RecordedClient;
pub use thread::NodeThread;
pub use view::{ClusterView, PartitionView, ReplicaView, look};
