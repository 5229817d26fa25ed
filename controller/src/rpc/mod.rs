//! The control plane on the wire: gRPC between controllers, and from brokers to controllers.

/// The generated messages, server and client of `proto/control.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("highwater.control");
}
