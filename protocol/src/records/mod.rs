//! Record batches of format 2 (KIP-98): parsing, checking, reading, changing in place and building.
//!
//! A batch is 61 bytes of header ([`BatchHeader`]) and its records, which may be compressed as one.
//! - [`BatchView`] and [`Batch`] check structure (length, magic) when made; the CRC only on
//!   [`BatchView::check_crc`], so that recovery, produce and fetch each decide what they pay for.
//! - [`BatchViews`] and [`Batches`] walk a buffer and stop quietly at a torn tail.
//! - [`BatchView::records`] iterates records as slices; decompression is bounded by a limit.
//! - [`BatchView::walk`] looks at all records in one pass and keeps nothing; [`validate_client_batch`]
//!   is the leader's check of what clients produce (rule P04).
//! - [`BatchBuilder`] writes batches.
//! - [`patch`] changes a batch in place, and knows what the CRC covers.
//!
//! Nothing here trusts a length before comparing it with the bytes that are there, and no input
//! panics. Formats 0 and 1 are recognised and refused by name.

mod builder;
mod compression;
mod control;
mod error;
mod header;
pub mod patch;
mod record;
mod validate;
mod varint;
mod view;
mod walk;

pub use builder::{BatchBuilder, BuildError, ProducerStamp};
pub use compression::{Codec, ReadBuffer};
pub use control::{ControlType, EndTransactionMarker, leader_change_batch};
pub use error::{BatchError, RecordProblem};
pub use header::{
    Attributes, BATCH_HEADER_BYTES, BYTES_TO_MAGIC, BatchHeader, Compression, LOG_OVERHEAD_BYTES,
    MAGIC, MIN_BATCH_LENGTH, NO_SEQUENCE, NO_TIMESTAMP, TimestampType, increment_sequence,
};
pub use record::{Header, Headers, Record, RecordIter};
pub use validate::{
    ClientBatchError, ProduceRules, RecordError, ValidatedBatch, validate_client_batch,
};
pub use view::{Batch, BatchView, BatchViews, Batches, first_batch, valid_bytes};
pub use walk::{ReadLimits, RecordFacts, WalkSummary};
