//! The log cleaner: of every key the last value stays (`cleanup.policy=compact`).
//!
//! A cleaning takes one log through these steps, each bounded in bytes, none under the log's lock but
//! the swap, so that a host may put them anywhere and a simulator may crash between any two:
//!
//! 1. flush: what makes older records superfluous must not be lost after they are gone;
//! 2. map: the dirty section is read from its start and the last offset of every key noted, until the
//!    section or the memory ends;
//! 3. for each group of neighbouring segments that fit into one: copy what stays into a new segment
//!    ([`CleaningStep::Worked`]), then have it put in place ([`CleaningStep::Install`]).
//!
//! Kept true: offsets never change; nothing at or above the last stable offset is touched; the last
//! value of every key below the end of the cleaning is there, before, during and after it; a log that
//! was changed meanwhile by truncation or retention is left alone.
//!
//! | file | what it holds |
//! |---|---|
//! | `offset_map.rs` | key to last offset in bounded memory |
//! | `transactions.rs` | which batches were aborted, which markers have become pointless |
//! | `filter.rs` | what stays of one batch, delete horizons (KIP-534) |
//! | `job.rs` | the steps |
//! | `../log/clean.rs` | what may be cleaned, the swap |
//! | `../log/sweep.rs` | recovery of a swap |

mod filter;
mod job;
mod offset_map;
mod transactions;

pub use job::{Cleaning, CleaningStats, CleaningStep};
pub use offset_map::OffsetMap;

pub(crate) use filter::LastRecord;
pub(crate) use job::{Plan, Source};
