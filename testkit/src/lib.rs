//! Clusters for tests: simulated ones now; real ones as processes.

pub mod sim;
