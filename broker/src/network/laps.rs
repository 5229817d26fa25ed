//! How long each part of a request's way takes, read off the clock only while somebody wants to know.

use std::time::{Duration, Instant};

use crate::metrics::Times;

/// A stopwatch for one request.
pub(super) struct Laps {
    /// Where the last lap ended; `None` when nobody wants to know.
    last: Option<Instant>,
    /// What was measured.
    pub(super) times: Times,
}

impl Laps {
    /// Begins now, if it is to measure at all.
    pub(super) fn start(on: bool) -> Laps {
        Laps { last: on.then(Instant::now), times: Times::default() }
    }

    /// Whether it measures.
    pub(super) fn are_on(&self) -> bool {
        self.last.is_some()
    }

    /// The time since the last lap; the next one begins.
    pub(super) fn lap(&mut self) -> Duration {
        self.lap_until(None)
    }

    /// The time between the last lap and `until`, or now; the next one begins there.
    pub(super) fn lap_until(&mut self, until: Option<Instant>) -> Duration {
        let Some(last) = self.last else {
            return Duration::ZERO;
        };
        let end = until.unwrap_or_else(Instant::now).max(last);
        self.last = Some(end);
        end - last
    }
}
