//! The Kafka server of a node: configuration, network, request handlers, the replica manager and the
//! hosts of everything that needs a clock, a socket or a thread.

pub mod config;
pub mod core;
pub mod counting;
pub mod handlers;
pub mod host;
pub mod log_levels;
pub mod metrics;
pub mod network;
pub mod tls;
