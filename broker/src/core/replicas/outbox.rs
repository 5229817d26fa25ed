//! What waits to be told to the controller about partitions. Everything that gathers while one request is
//! under way goes together in the next; what has to go again may be held back for a pause.

use std::collections::BTreeMap;

use protocol::TopicIdPartition;
use replication::time::Instant;

/// Messages by partition, the newest of each.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    waiting: BTreeMap<TopicIdPartition, T>,
    in_flight: bool,
    /// No request before this.
    not_before: Option<Instant>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), in_flight: false, not_before: None }
    }
}

impl<T> Outbox<T> {
    /// Replaces what waits for the partition.
    pub(super) fn put(&mut self, partition: TopicIdPartition, message: T) {
        self.waiting.insert(partition, message);
    }

    /// Puts back what must go again, unless something newer waits for the partition.
    pub(super) fn put_back(&mut self, partition: TopicIdPartition, message: T) {
        self.waiting.entry(partition).or_insert(message);
    }

    /// Nothing goes before this.
    pub(super) fn hold_until(&mut self, at: Instant) {
        self.not_before = Some(at);
    }

    /// Takes what goes now, at most so much; the request counts as under way until [`Outbox::answered`].
    ///
    /// # Errors
    /// When nothing may go now: the instant from which on it may, if time alone is in the way.
    pub(super) fn take(
        &mut self,
        most: usize,
        now: Instant,
    ) -> Result<BTreeMap<TopicIdPartition, T>, Option<Instant>> {
        if self.in_flight || self.waiting.is_empty() {
            return Err(None);
        }
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Err(Some(at));
        }
        self.not_before = None;
        self.in_flight = true;
        let mut taken = std::mem::take(&mut self.waiting);
        if let Some(first_left) = taken.keys().nth(most).cloned() {
            self.waiting = taken.split_off(&first_left);
        }
        Ok(taken)
    }

    /// The request that was under way is settled.
    pub(super) fn answered(&mut self) {
        self.in_flight = false;
    }

    /// When the next request may go, if something waits for it.
    pub(super) fn wanted_at(&self, now: Instant) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.not_before.unwrap_or(now))
    }
}
