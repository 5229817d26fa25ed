//! The simulated host under test: whole clusters on one thread.

mod basics;
mod seeds;
