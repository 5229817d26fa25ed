//! Clusters for tests: real ones as child processes, simulated ones on one thread, and a plain client.

pub mod client;
pub mod group;
pub mod history;
pub mod invariants;
pub mod metrics;
pub mod online;
pub mod producer;
pub mod real;
pub mod sim;
pub mod stage;
pub mod trace;
