//! The group coordinator: groups, their members and their committed offsets as a replayed state
//! machine. Pure: values and time in, records and answers out.
//!
//! One [`Shard`] is the whole state of one partition of `__consumer_offsets` on the broker that leads
//! it. Of `replication` this crate uses the time types alone.
//!
//! # The contract with the host
//!
//! The host keeps one lock per shard. Under it, and in this order:
//!
//! 1. **Loading.** Every record of the partition goes through [`Shard::replay`], then
//!    [`Shard::on_loaded`] starts the sessions of the members that were found.
//! 2. **An input** ([`Shard::on_request`], [`Shard::on_tick`], [`Shard::on_topics_changed`]) gives an
//!    [`Output`]. Each [`Write`] in it is appended as one batch, in order, before anything else is
//!    asked of the shard. Then [`Shard::on_written`] says at which offset, or
//!    [`Shard::on_write_failed`] says why not; both give an [`Output`] of their own, treated alike,
//!    its writes after those that are still to be done.
//! 3. **An answer** is sent once the high watermark is beyond [`Answer::seen`]; at once without one.
//!    So nobody learns of a commit, or of a generation, that a failover takes back.
//! 4. **Time.** [`Shard::on_tick`] is called when [`Shard::next_deadline`] has come.
//! 5. **Leadership lost.** [`Shard::on_unloaded`] answers the requests still waiting inside the shard;
//!    [`fail_response`] turns the answers that wait for the high watermark into NOT_COORDINATOR.
//!
//! What the log holds changes in `replay` and `on_written` only. What the log does not hold (timers,
//! waiting joins, the generation being formed) may change with any input, and a new leader does
//! without it.

mod assignor;
mod classic;
mod consumer;
mod group;
mod offsets;
mod random;
pub mod record;
mod shard;

pub use record::{Record, RecordError};
pub use shard::{
    Answer, Caller, MigrationPolicy, Output, Shard, ShardConfig, Token, Topics, Write,
    append_error, fail_response, refuse_request,
};
