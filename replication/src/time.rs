//! Time as a value. The rules never read a clock: every input that needs time carries [`Now`].

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the host's monotonic clock, as time since the host started. Virtual in the simulator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub Duration);

impl Instant {
    /// The start of the host.
    pub const ZERO: Instant = Instant(Duration::ZERO);

    /// Time passed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

/// The two clocks an input may need, read once by the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For timeouts and lags; never goes back.
    pub monotonic: Instant,
    /// Wall clock in milliseconds since 1970, for record timestamps and retention.
    pub wall_clock_ms: i64,
}
