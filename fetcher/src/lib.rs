//! The follower side: one pull loop per leader and fetcher id.
//!
//! - [`core`] decides what to ask next; `response` and `offsets` decide what an answer means. Pure;
//! - [`access`] is what they need of this broker's replicas;
//! - [`manager`] spreads the partitions over the fetchers. Pure;
//! - [`host`] drives one core over TCP, by way of `wire`.

pub mod access;
pub mod core;
pub mod host;
pub mod manager;
mod offsets;
pub mod partition;
pub mod request;
mod response;
mod wire;

pub use access::{LeaderData, PartitionFailure, ReplicaAccess, ReplicaError, ReplicaLog};
pub use core::{FetcherConfig, FetcherCore, FetcherRequest, FetcherResponse};
pub use manager::{FetcherKey, FetcherManager, Follow, Plan};
pub use partition::{FetchState, FollowAssignment, Phase};
pub use wire::{Dial, Dialing, Wire};
