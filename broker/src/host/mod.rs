//! The real host of a node: tokio, TCP, files, gRPC. It waits and carries out; the core decides.
//!
//! | file | what it does |
//! |---|---|
//! | `node.rs` | starts the parts of a node in their order, and stops them in the reverse one |
//! | `errors.rs` | why a node does not start or cannot go on |
//! | `links.rs` | the core's ways out: controller, clock, trace |
//! | `security.rs` | the node's TLS |
//! | `service.rs` | requests from the network into the core |
//! | `fetchers.rs` | the fetch loops, as the core orders them |
//! | `drive.rs` | time and committed metadata into the core |
//! | `observing.rs` | metrics and the request log of a node |

pub(crate) mod drive;
mod errors;
mod fetchers;
mod links;
mod node;
mod observing;
mod security;
mod service;

pub use errors::{DirsFailure, NodeFailure, StartError};
pub use node::{Node, NodeOptions, cluster_id_of};
