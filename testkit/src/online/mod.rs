//! The invariants of a cluster that runs, watched from outside by what any client can see; Apache Kafka's
//! clusters can be watched in the same way.
//!
//! | id | what is looked at |
//! |---|---|
//! | I1 | committed batches of all replicas, by base offset, epoch and checksum |
//! | I6 | committed batches that were given once, given again after every election |
//! | I8 | the latest offset that leaders tell (KIP-207) |
//! | I10 | the leader of each epoch, as every broker tells it |
//!
//! A look reads a bounded piece of every replica, from the log's start on, so that a large log is compared over
//! many looks. Compacted topics, and those with unclean elections, promise less and are judged by that.

mod look;
mod memory;

pub use look::{LookReport, Watcher};
pub use memory::{OnlineChecker, Promises, SeenBatch, SeenRead, WatchedPartition};
