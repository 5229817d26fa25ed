//! Committed offsets.

/// The committed offsets of the shard's groups.
#[derive(Debug, Default)]
pub(crate) struct Offsets {}
