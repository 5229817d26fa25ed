//! The binary as a person or a test uses it: real processes, sockets, files, signals and clients.
//!
//! The clusters here are few, since each costs seconds; what can be shown in the simulator or in a
//! pure crate is shown there.

mod admin_tools;
mod check;
mod clients;
mod command_line;
mod control;
mod eligible;
mod failover;
mod failures;
mod faults;
mod fetching;
mod group_failover;
mod group_terminals;
mod group_tools;
mod groups;
mod log_dirs;
mod metrics;
mod readers_on_followers;
mod simulator;
mod stories;
mod stories_on_kafka;
mod tls;
mod volume;
mod zero_copy;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Two clusters at a time are more than two cores take with honest timeouts.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

const BINARY: &str = env!("CARGO_BIN_EXE_highwater");

fn cluster() -> testkit::real::ClusterBuilder {
    testkit::real::Cluster::builder().binary(BINARY)
}
