//! Producer state, fetch sessions, purgatory and the delayed operations' rules, by rule id.

mod delayed;
mod producer;
mod producer_model;
mod purgatory;
mod session_client;
mod session_model;
mod sessions;
