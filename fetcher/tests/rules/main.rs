//! The follower's rules, by id, against a leader and replicas held in memory.

mod fake;
mod fetching;
mod host;
mod manager;
mod truncating;
