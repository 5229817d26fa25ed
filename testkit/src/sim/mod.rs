//! The simulated host: whole nodes over virtual time on one thread, from one seed.

pub mod disk;
pub mod random;

pub use disk::{CrashKind, SimDisk};
pub use random::SimRandom;
