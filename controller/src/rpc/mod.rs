//! The control plane on the wire: gRPC between controllers, and from brokers to controllers.
//!
//! [`host`] owns a [`crate::node::ControllerNode`] on one thread of its own, the only place where its
//! disk is written; [`server`] serves the Control service and [`peers`] keeps the streams to the
//! other controllers. None of them decides anything about the quorum: they carry bytes in and out.
//! The client that brokers use is [`crate::client`].

pub mod host;
mod incoming;
pub(crate) mod peers;
pub(crate) mod secure;
mod server;

pub use host::{
    CallFailure, ControllerHandle, ControllerHost, HANDOVER_PATIENCE, HostConfig, HostError,
    MonotonicClock,
};
pub use secure::ControlSecurity;

/// The generated messages, server and client of `proto/control.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("highwater.control");
}

/// Most payload in one frame of a stream; longer messages and snapshots take several.
pub(crate) const FRAME_PAYLOAD_BYTES: usize = 1024 * 1024;
/// Longest quorum message put together from frames: bounds a snapshot, and what a peer can make this
/// process hold.
pub(crate) const MAX_RAFT_MESSAGE_BYTES: usize = 256 * 1024 * 1024;
/// Longest gRPC message on this service, above the largest request that a broker forwards.
pub(crate) const MAX_GRPC_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// How often a metadata stream shows a sign of life when nothing happens.
pub(crate) const METADATA_STATUS_INTERVAL: std::time::Duration = std::time::Duration::from_secs(2);
