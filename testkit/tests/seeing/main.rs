//! Seeing a node: three nodes in this process with their metrics, and every metric moved by what moves it.

mod endpoint;
mod families;
mod requests;
mod world;
