//! The shard's timers: one time for each key, the earliest first, equal times in the order of the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use replication::time::Instant;

/// What a timer is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum TimerKey {
    /// Look for offsets that have expired, in all groups.
    OffsetExpiry,
    /// The classic group's rebalance has waited long enough for its members to join.
    ClassicJoin { group: Arc<str> },
    /// The classic group's members have had the time to ask for their assignment.
    ClassicSync { group: Arc<str> },
    /// The member of the classic group (joined or only given an id) has been silent too long.
    ClassicMember { group: Arc<str>, member: Arc<str> },
    /// The member of the consumer group has been silent too long.
    ConsumerSession { group: Arc<str>, member: Arc<str> },
    /// The member of the consumer group takes too long to give up partitions.
    ConsumerRebalance { group: Arc<str>, member: Arc<str> },
    /// The classic member of the consumer group has not joined again in time.
    ConsumerJoin { group: Arc<str>, member: Arc<str> },
    /// The classic member of the consumer group has not asked for its assignment in time.
    ConsumerSync { group: Arc<str>, member: Arc<str> },
    /// The consumer group's regular expressions are to be resolved again.
    ConsumerRegex { group: Arc<str> },
}

/// Times by key and keys by time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Timers {
    at: BTreeMap<TimerKey, Instant>,
    queue: BTreeSet<(Instant, TimerKey)>,
}

impl Timers {
    /// Sets the key's time, instead of the one it had.
    pub(crate) fn set(&mut self, key: TimerKey, at: Instant) {
        if let Some(before) = self.at.insert(key.clone(), at) {
            self.queue.remove(&(before, key.clone()));
        }
        self.queue.insert((at, key));
    }

    /// Forgets the key.
    pub(crate) fn cancel(&mut self, key: &TimerKey) {
        if let Some(at) = self.at.remove(key) {
            self.queue.remove(&(at, key.clone()));
        }
    }

    /// The time of the key, if it is set.
    pub(crate) fn get(&self, key: &TimerKey) -> Option<Instant> {
        self.at.get(key).copied()
    }

    /// The earliest time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes out the earliest key whose time has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<TimerKey> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.queue.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Timers::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(Duration::from_millis(ms))
    }

    fn join(group: &str) -> TimerKey {
        TimerKey::ClassicJoin { group: group.into() }
    }

    #[test]
    fn timers_come_due_in_order_and_a_later_time_replaces_the_earlier() {
        let mut timers = Timers::default();
        timers.set(join("a"), at(10));
        timers.set(join("b"), at(5));
        timers.set(join("a"), at(3));
        timers.set(join("c"), at(4));
        timers.cancel(&join("c"));
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.pop_due(at(2)), None);
        assert_eq!(timers.pop_due(at(20)), Some(join("a")));
        assert_eq!(timers.pop_due(at(20)), Some(join("b")));
        assert_eq!(timers.pop_due(at(20)), None);
        assert_eq!(timers.get(&join("a")), None);
    }
}
