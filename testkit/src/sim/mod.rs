//! The simulated host: whole nodes (the broker's core, the controller's node, the fetchers) over
//! virtual time on one thread from one seed, with an in-memory disk and network that crash, lose,
//! delay and cut, and the invariants checked after every step.
//!
//! | file | what it is |
//! |---|---|
//! | `world.rs` | the queue of events, steps, questions and answers |
//! | `deliver.rs` | what a node's host does with what comes in |
//! | `node.rs`, `links.rs` | one node and what its core sees of the host |
//! | `control.rs` | starting, stopping, breaking, single requests |
//! | `network.rs`, `disk.rs`, `quorum_storage.rs`, `clock.rs`, `random.rs` | what nodes stand on |
//! | `clients.rs` | producers, consumers, members of groups |
//! | `observe.rs` | what the invariants and the trace get to see |
//! | `query.rs` | what stories and tests ask of a cluster |
//! | `run.rs`, `run/` | random runs: drawing, playing and shrinking them |
//! | `trace_lines.rs` | the trace as JSON Lines |

mod clients;
mod clock;
mod control;
mod deliver;
pub mod disk;
mod links;
mod network;
mod node;
mod observe;
mod query;
mod quorum_storage;
pub mod random;
mod run;
mod sending;
mod trace_lines;
mod world;

pub use clients::{
    ConsumerSettings, Language, MemberSettings, ProducerSettings, SimConsumer, SimMember,
    SimProducer, SimSubscriber, SubscriberSettings,
};
pub use clock::{SimClock, VirtualTime};
pub use links::{SimTrace, TraceEntry};
pub use network::{Address, Fate, HoldId, Kind, NetworkConfig, Pattern, Plane, RpcAnswer, Sort};
pub use node::{CLUSTER_ID, LISTENER, NodeSettings, RunningNode, SimNode, log_dir};
pub use quorum_storage::SimQuorumStorage;
pub use run::{
    Event, Faults, RunFailure, RunPlan, RunReport, Script, Shrunk, Theme, play, play_and_record,
    shrink,
};
pub use trace_lines::write_trace_lines;
pub use world::{SimConfig, Simulation};
