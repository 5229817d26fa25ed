//! The clocks of a simulated node. Monotonic time is the simulation's own and never jumps; the wall
//! clock of a node may be wrong and may jump.

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
}

impl SimClock {
    /// Clocks that are right.
    pub fn new(time: VirtualTime) -> Self {
        Self { time, wall_offset_ms: Arc::default() }
    }

    /// Sets the wall clock forward, or back.
    pub fn jump(&self, by_ms: i64) {
        self.wall_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Both clocks.
    pub fn read(&self) -> Now {
        let monotonic = self.time.now();
        let passed = i64::try_from(monotonic.0.as_millis()).unwrap_or(i64::MAX);
        let wall_clock_ms = WALL_START_MS + passed + self.wall_offset_ms.load(Ordering::Relaxed);
        Now { monotonic, wall_clock_ms }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Now {
        self.read()
    }
}
