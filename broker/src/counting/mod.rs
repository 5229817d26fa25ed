//! Numbers that many threads add to while requests are served: counters and histograms of relaxed
//! atomics, without a lock. They know no names and no clock; `metrics` reads and shows them.

mod histogram;

use std::sync::atomic::{AtomicU64, Ordering};

pub use histogram::{BUCKETS, Histogram, Snapshot};

/// A number that many threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` back; for gauges.
    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// Replaces the number; for gauges.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Raises the number to `value` if it is lower.
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
