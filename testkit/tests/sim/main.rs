//! The simulated host under test: whole clusters on one thread, every rule in them, random runs.

mod basics;
mod cleaning;
mod clocks;
mod controllers;
mod groups;
mod histories;
mod log_dirs;
mod seeds;
mod subscribers;
mod support;
mod table;
mod truncation;
mod watermarks;
