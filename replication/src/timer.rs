//! Deadlines in order, driven by [`Instant`] values.
//!
//! A tree rather than a wheel of buckets: expiry is exact to the instant, cancelling is exact, two
//! deadlines at one instant fire in the order in which they were set, and all of it costs O(log n).

use crate::time::Instant;
use std::collections::BTreeMap;

/// Names one scheduled entry; needed to cancel it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerKey {
    deadline: Instant,
    sequence: u64,
}

impl TimerKey {
    /// When the entry is due.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Entries waiting for their instant.
#[derive(Clone, Debug)]
pub struct Timer<T> {
    entries: BTreeMap<TimerKey, T>,
    next_sequence: u64,
}

impl<T> Default for Timer<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), next_sequence: 0 }
    }
}

impl<T> Timer<T> {
    /// An empty timer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `entry` come due at `deadline`.
    pub fn schedule(&mut self, deadline: Instant, entry: T) -> TimerKey {
        let key = TimerKey { deadline, sequence: self.next_sequence };
        self.next_sequence += 1;
        self.entries.insert(key, entry);
        key
    }

    /// Takes an entry back; `None` when it came due or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        self.entries.remove(&key)
    }

    /// When the earliest entry is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.entries.first_key_value().map(|(key, _)| key.deadline)
    }

    /// Takes the earliest entry that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let (key, _) = self.entries.first_key_value()?;
        if key.deadline > now { None } else { self.entries.pop_first().map(|(_, entry)| entry) }
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(ms: u64) -> Instant {
        Instant(Duration::from_millis(ms))
    }

    #[test]
    fn entries_come_due_by_deadline_and_then_by_the_order_they_were_set() {
        let mut timer = Timer::new();
        timer.schedule(at(5), "later");
        timer.schedule(at(3), "first");
        timer.schedule(at(3), "second");
        assert_eq!(timer.next_deadline(), Some(at(3)));
        assert_eq!(timer.pop_due(at(2)), None);
        assert_eq!(timer.pop_due(at(3)), Some("first"));
        assert_eq!(timer.pop_due(at(3)), Some("second"));
        assert_eq!(timer.pop_due(at(3)), None);
        assert_eq!(timer.pop_due(at(9)), Some("later"));
    }

    #[test]
    fn a_cancelled_entry_never_comes_due() {
        let mut timer = Timer::new();
        let key = timer.schedule(at(1), 1);
        assert_eq!(timer.cancel(key), Some(1));
        assert_eq!(timer.cancel(key), None);
        assert_eq!(timer.pop_due(at(10)), None);
    }
}
