//! The clocks of a simulated node. Monotonic time is the simulation's own and never jumps; the wall
//! clock of a node may be wrong, may jump, and may go too fast or too slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use broker::core::host::Clock;
use replication::time::{Instant, Now};

/// What every wall clock shows when a simulation begins, in milliseconds since 1970.
const WALL_START_MS: i64 = 1_700_000_000_000;

/// The simulation's time, shared by all nodes. Clones are the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualTime {
    nanos: Arc<AtomicU64>,
}

impl VirtualTime {
    /// The moment.
    pub fn now(&self) -> Instant {
        Instant(Duration::from_nanos(self.nanos.load(Ordering::Relaxed)))
    }

    /// Moves on to `instant`; time never goes back.
    pub fn advance_to(&self, instant: Instant) {
        let nanos = u64::try_from(instant.0.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// A node's two clocks.
#[derive(Clone, Debug)]
pub struct SimClock {
    time: VirtualTime,
    wall_offset_ms: Arc<AtomicI64>,
    /// By how much of a million it goes too fast, and since which microsecond.
    drift: Arc<(AtomicI64, AtomicI64)>,
}

impl SimClock {
    /// Clocks that are right.
    pub fn new(time: VirtualTime) -> Self {
        Self { time, wall_offset_ms: Arc::default(), drift: Arc::default() }
    }

    /// Sets the wall clock forward, or back.
    pub fn jump(&self, by_ms: i64) {
        self.wall_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Lets the wall clock go too fast by so many millionths of the time, or too slow.
    pub fn drift(&self, millionths: i64) {
        self.jump(self.drifted_ms());
        let micros = i64::try_from(self.time.now().0.as_micros()).unwrap_or(i64::MAX);
        self.drift.0.store(millionths, Ordering::Relaxed);
        self.drift.1.store(micros, Ordering::Relaxed);
    }

    fn drifted_ms(&self) -> i64 {
        let millionths = self.drift.0.load(Ordering::Relaxed);
        if millionths == 0 {
            return 0;
        }
        let micros = i64::try_from(self.time.now().0.as_micros()).unwrap_or(i64::MAX);
        (micros - self.drift.1.load(Ordering::Relaxed)) / 1000 * millionths / 1_000_000
    }

    /// Both clocks.
    pub fn read(&self) -> Now {
        let monotonic = self.time.now();
        let passed = i64::try_from(monotonic.0.as_millis()).unwrap_or(i64::MAX);
        let wrong = self.wall_offset_ms.load(Ordering::Relaxed) + self.drifted_ms();
        let wall_clock_ms = WALL_START_MS + passed + wrong;
        Now { monotonic, wall_clock_ms }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        self.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_keeps_what_it_gained_when_it_goes_right_again() {
        let time = VirtualTime::default();
        let clock = SimClock::new(time.clone());
        clock.drift(100_000);
        time.advance_to(Instant(Duration::from_secs(10)));
        assert_eq!(clock.read().wall_clock_ms, WALL_START_MS + 11_000);
        clock.drift(0);
        time.advance_to(Instant(Duration::from_secs(20)));
        assert_eq!(clock.read().wall_clock_ms, WALL_START_MS + 21_000);
    }
}
