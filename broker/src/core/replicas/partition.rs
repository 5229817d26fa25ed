//! One partition on this broker: the rules' state and the log under one lock, and the carrying out of
//! what the rules ask.
//!
//! What must happen under the lock (epoch entry, log start, high watermark) happens in
//! [`Replica::carry_out`]; what must not (proposals, waking, the trace) is handed back as an
//! [`AfterLock`], which the replica manager works off once the lock is released.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use protocol::TopicIdPartition;
use replication::LogOffsetMetadata;
use replication::isr::IsrProposal;
use replication::partition::{Effects, FetchIsolation, LogFacts, PartitionState, Wake};
use replication::trace::Event;
use storage::{Disk, Log, LogError};

use crate::core::counts::TopicCounts;
use crate::core::settings::TopicSettings;

/// The rules' state of a partition, and its log.
#[derive(Debug)]
pub struct Replica<D: Disk> {
    /// Role, epochs, ISR, high watermark.
    pub state: PartitionState,
    /// The bytes.
    pub log: Log<D>,
}

/// A partition that this broker has a log for.
#[derive(Debug)]
pub struct Partition<D: Disk> {
    id: TopicIdPartition,
    dir: usize,
    replica: Mutex<Replica<D>>,
    settings: RwLock<Arc<TopicSettings>>,
    /// Set once the log is deleted or given up; whoever still holds the partition must let go.
    removed: AtomicBool,
    /// How often something was changed that a fetch might answer otherwise by.
    changes: AtomicU64,
    counts: Arc<TopicCounts>,
}

/// What is left to do once the partition's lock is released.
#[must_use]
#[derive(Debug, Default)]
pub struct AfterLock {
    /// Send this AlterPartition.
    pub propose: Option<IsrProposal>,
    /// Send this AlterPartition again, after a pause.
    pub propose_again: Option<IsrProposal>,
    /// Check these delayed operations.
    pub wake: Wake,
    /// Tell these to the trace.
    pub events: Vec<Event>,
}

impl AfterLock {
    /// Nothing but waking.
    pub fn waking(wake: Wake) -> AfterLock {
        AfterLock { wake, ..AfterLock::default() }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.propose.is_none()
            && self.propose_again.is_none()
            && self.wake == Wake::NONE
            && self.events.is_empty()
    }

    /// Both, `later` after `self`.
    pub fn then(mut self, later: AfterLock) -> AfterLock {
        self.propose = later.propose.or(self.propose);
        self.propose_again = later.propose_again.or(self.propose_again);
        self.wake = self.wake.or(later.wake);
        self.events.extend(later.events);
        self
    }
}

impl<D: Disk> Replica<D> {
    /// The log as the rules need to know it.
    pub fn facts(&self) -> LogFacts {
        LogFacts {
            log_start: self.log.log_start_offset(),
            log_end: self.log.log_end(),
            first_unstable: self.log.first_unstable_offset().map(LogOffsetMetadata::message_only),
        }
    }

    /// Does what must be done under the lock, in the order of the effects' fields.
    ///
    /// # Errors
    /// A storage failure: the log directory has to go offline.
    pub fn carry_out(&mut self, effects: Effects) -> Result<AfterLock, LogError> {
        if let Some(entry) = effects.assign_epoch {
            self.log.assign_leader_epoch(entry.epoch)?;
        }
        let mut wake = effects.wake;
        if let Some(start) = effects.raise_log_start {
            self.log.increment_log_start(start)?;
            wake.delete_records = true;
        }
        if let Some(moved) = effects.high_watermark {
            self.log.on_high_watermark(moved.to.offset);
        }
        Ok(AfterLock {
            propose: effects.propose,
            propose_again: effects.propose_again,
            wake,
            events: effects.events,
        })
    }

    /// The end of what `isolation` may see, with its place in the log, so that readers can count the
    /// bytes before it.
    ///
    /// # Errors
    /// A storage failure while looking the place up.
    pub fn readable_end(
        &mut self,
        isolation: FetchIsolation,
    ) -> Result<LogOffsetMetadata, LogError> {
        let high_watermark = self.state.high_watermark();
        if high_watermark.is_message_only() {
            let place = self.placed(high_watermark)?;
            self.state.place_high_watermark(place);
        }
        let end = self.state.last_fetchable_offset(isolation, &self.facts());
        self.placed(end)
    }

    fn placed(&self, offset: LogOffsetMetadata) -> Result<LogOffsetMetadata, LogError> {
        let range = self.log.log_start_offset()..=self.log.log_end_offset();
        if offset.is_message_only() && range.contains(&offset.offset) {
            self.log.offset_metadata(offset.offset)
        } else {
            Ok(offset)
        }
    }
}

impl<D: Disk> Partition<D> {
    /// A partition whose log lies in the log directory with index `dir`.
    pub fn new(
        id: TopicIdPartition,
        dir: usize,
        replica: Replica<D>,
        settings: Arc<TopicSettings>,
        counts: Arc<TopicCounts>,
    ) -> Self {
        Self {
            id,
            dir,
            replica: Mutex::new(replica),
            settings: RwLock::new(settings),
            removed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            counts,
        }
    }

    /// Its topic's id and name, and its index.
    pub fn id(&self) -> &TopicIdPartition {
        &self.id
    }

    /// Index of its log directory.
    pub fn dir(&self) -> usize {
        self.dir
    }

    /// What is counted of its topic.
    pub fn counts(&self) -> &TopicCounts {
        &self.counts
    }

    /// Takes the lock of state and log. Never to be held while a request is answered, a purgatory is
    /// checked or the controller is called.
    pub fn lock(&self) -> Held<'_, D> {
        Held { replica: self.replica.lock(), changes: &self.changes, is_changed: false }
    }

    /// How often it was changed so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The topic's configs in force.
    pub fn settings(&self) -> Arc<TopicSettings> {
        self.settings.read().clone()
    }

    /// Replaces the topic's configs.
    pub fn set_settings(&self, settings: Arc<TopicSettings>) {
        let mut replica = self.lock();
        replica.log.set_config(settings.log.clone());
        replica.state.set_settings(settings.partition);
        *self.settings.write() = settings;
    }

    /// Whether the log is gone.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Marks the log as gone.
    pub fn mark_removed(&self) {
        self.removed.store(true, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// State and log of a partition, locked. Whoever takes them mutably counts as having changed them, unless
/// it is said otherwise.
pub struct Held<'a, D: Disk> {
    replica: MutexGuard<'a, Replica<D>>,
    changes: &'a AtomicU64,
    is_changed: bool,
}

impl<D: Disk> Held<'_, D> {
    /// For what changes nothing that a fetch might answer otherwise by: places looked up and remembered,
    /// files flushed, a follower's progress.
    pub fn quietly(&mut self) -> &mut Replica<D> {
        &mut self.replica
    }

    /// Says that what was done quietly changed something after all.
    pub fn note_change(&mut self) {
        self.is_changed = true;
    }

    /// The count of changes that will be there when the lock is released.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed) + u64::from(self.is_changed)
    }
}

impl<D: Disk> Deref for Held<'_, D> {
    type Target = Replica<D>;

    fn deref(&self) -> &Replica<D> {
        &self.replica
    }
}

impl<D: Disk> DerefMut for Held<'_, D> {
    fn deref_mut(&mut self) -> &mut Replica<D> {
        self.is_changed = true;
        &mut self.replica
    }
}

impl<D: Disk> Drop for Held<'_, D> {
    fn drop(&mut self) {
        if self.is_changed {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}
