//! How long the disk takes to make files durable: one histogram for the process, as nodes that share it
//! share the disk.

use std::sync::LazyLock;
use std::time::Duration;

use crate::counting::{Histogram, Snapshot};

static SYNCS: LazyLock<Histogram> = LazyLock::new(Histogram::default);

/// Counts a sync.
pub fn record(took: Duration) {
    SYNCS.record(took.as_micros() as u64);
}

/// All syncs so far, in microseconds.
pub(super) fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    SYNCS.add_to(&mut snapshot);
    snapshot
}
