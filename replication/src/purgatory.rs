//! Requests that wait for a condition, a deadline or the end of their connection (rules F02, F04, P05).
//!
//! An operation is watched under every key whose change may satisfy it. Whoever changes something
//! under a key calls [`Purgatory::check`] afterwards, and gets back the operations that are now
//! satisfied; completing them is the caller's business, outside every lock. So the path is:
//! append, release the partition, check its key, complete what comes back.
//!
//! Invariants:
//! - an operation leaves the purgatory exactly once: by check, deadline, cancel or drain, whichever
//!   takes it first;
//! - no change is missed: the condition is evaluated again after the operation is registered, so a
//!   change between the first look and the registration is seen by one of the two sides;
//! - no purgatory lock is held while a condition is evaluated, except the operation's own.
//!
//! The order of locks is: the operation's own, then whatever its condition locks (a partition).
//! Therefore nobody may call in here while holding a partition's lock.
//!
//! An operation may be watched standing: when its time is up, its place under its keys stays for the next one that
//! waits for the same, until the [`StandingWatch`] that stands for it is dropped. What is kept there meanwhile is
//! dropped by the first change under a key: whoever kept it may not outlive what it speaks of.
//!
//! Completed operations stay listed under their other keys until those are checked, grow, or are swept;
//! such a leftover is an empty shell. With one thread everything happens in one order that depends on the
//! calls alone.

use crate::time::Instant;
use crate::timer::{Timer, TimerKey};
use std::any::Any;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;

/// A list this short is not cleaned when it grows.
const FIRST_CLEANING: usize = 16;

/// Sweep leftovers once so many operations were completed since the last sweep.
const SWEEP_AFTER: usize = 1000;

/// What made an operation's condition be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger<'a, K> {
    /// It is being registered: look at everything.
    Registration,
    /// Something changed under this key. An operation that one key can satisfy may look at it alone.
    Key(&'a K),
}

/// A request that waits.
pub trait DelayedOperation: Send {
    /// What changes are announced under; a partition, usually.
    type Key: Ord + Hash + Clone + Send;

    /// Whether the wait is over. May lock partitions. Must not call into the purgatory, nor change
    /// anything that others see: it may be called again.
    fn is_satisfied(&self, trigger: Trigger<'_, Self::Key>) -> bool;
}

/// A watched operation's shell: the operation until somebody takes it, its place in the timer.
#[derive(Debug)]
struct Watched<O> {
    operation: Mutex<Option<O>>,
    timer_key: Mutex<Option<TimerKey>>,
    /// Its place is kept though it be empty.
    stands: AtomicBool,
    /// What is kept at an empty place for the next operation.
    kept: Mutex<Option<Kept>>,
    /// Grows with each operation at this place.
    generation: AtomicU64,
}

/// What may be kept at a place.
pub type Kept = Box<dyn Any + Send>;

impl<O> Watched<O> {
    fn take(&self) -> Option<O> {
        lock(&self.operation).take()
    }

    fn take_kept(&self) -> Option<Kept> {
        lock(&self.kept).take()
    }

    fn is_gone(&self) -> bool {
        // Somebody evaluating it right now holds the lock: then it is not gone yet.
        !self.stands.load(Ordering::Acquire)
            && self.operation.try_lock().is_ok_and(|operation| operation.is_none())
    }
}

/// Names a parked operation, to cancel it. Keeps no more than the empty shell alive.
#[derive(Debug)]
pub struct WatchHandle<O> {
    watched: Arc<Watched<O>>,
    /// The place may be another operation's by now.
    generation: u64,
}

impl<O> Clone for WatchHandle<O> {
    fn clone(&self) -> Self {
        Self { watched: self.watched.clone(), generation: self.generation }
    }
}

/// The place of an operation whose time was up, for the next one that waits for the same.
#[derive(Debug)]
pub struct StandingWatch<O>(Option<Arc<Watched<O>>>);

impl<O> StandingWatch<O> {
    /// Keeps something for the next operation, until something changes under a key.
    pub fn keep(&self, kept: Kept) {
        if let Some(watched) = &self.0 {
            *lock(&watched.kept) = Some(kept);
        }
    }

    /// Takes out what was kept, if nothing changed since.
    pub fn take_kept(&self) -> Option<Kept> {
        self.0.as_ref()?.take_kept()
    }
}

impl<O> Drop for StandingWatch<O> {
    fn drop(&mut self) {
        if let Some(watched) = &self.0 {
            watched.stands.store(false, Ordering::Release);
            drop(watched.take_kept());
        }
    }
}

/// An operation whose time was up.
#[derive(Debug)]
pub struct Expired<O> {
    /// The operation.
    pub operation: O,
    /// Its place, if it was watched standing.
    pub standing: Option<StandingWatch<O>>,
}

impl<O> WatchHandle<O> {
    /// How many know the place, this handle among them; for tests of what is left behind.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.watched)
    }
}

/// What became of an operation handed to [`Purgatory::watch`].
#[derive(Debug)]
pub enum Watch<O> {
    /// Its condition holds already: complete it now.
    Satisfied(O),
    /// It waits. (Or another thread has satisfied it meanwhile and completes it.)
    Parked(WatchHandle<O>),
}

/// What waits under one key, in the order in which it came.
#[derive(Debug)]
struct Watchers<O> {
    list: Vec<Arc<Watched<O>>>,
    /// Leftovers are looked for once the list is so long, which costs nothing much for each that comes.
    clean_at: usize,
}

impl<O> Watchers<O> {
    fn add(&mut self, watched: Arc<Watched<O>>) {
        if self.list.len() >= self.clean_at {
            self.clean();
        }
        self.list.push(watched);
    }

    fn clean(&mut self) {
        self.list.retain(|watched| !watched.is_gone());
        self.clean_at = (2 * self.list.len()).max(FIRST_CLEANING);
    }
}

type WatchList<K, O> = BTreeMap<K, Watchers<O>>;

/// Operations waiting under keys and for deadlines.
#[derive(Debug)]
pub struct Purgatory<O: DelayedOperation> {
    shards: Vec<Mutex<WatchList<O::Key, O>>>,
    timer: Mutex<Timer<Arc<Watched<O>>>>,
    completed_since_sweep: AtomicUsize,
    counts: Counts,
}

/// How operations left, since the start.
#[derive(Debug, Default)]
struct Counts {
    by_event: AtomicU64,
    by_deadline: AtomicU64,
    cancelled: AtomicU64,
}

/// How many operations left a purgatory, and by which door.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completed {
    /// Because their condition came to hold after they were parked.
    pub by_event: u64,
    /// Because their time was up.
    pub by_deadline: u64,
    /// Because nobody waits for them any more.
    pub cancelled: u64,
}

impl<O: DelayedOperation> Default for Purgatory<O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<O: DelayedOperation> Purgatory<O> {
    /// An empty purgatory.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(BTreeMap::new())).collect(),
            timer: Mutex::new(Timer::new()),
            completed_since_sweep: AtomicUsize::new(0),
            counts: Counts::default(),
        }
    }

    /// Parks an operation under its keys until `deadline`, unless it is satisfied already.
    pub fn watch<'k>(
        &self,
        operation: O,
        keys: impl IntoIterator<Item = &'k O::Key>,
        deadline: Instant,
    ) -> Watch<O>
    where
        O::Key: 'k,
    {
        if operation.is_satisfied(Trigger::Registration) {
            return Watch::Satisfied(operation);
        }
        self.register(operation, keys, deadline, false)
    }

    /// Like [`Self::watch`], for an operation whose condition the caller has just found not to hold:
    /// saves the first of the two evaluations.
    pub fn watch_checked<'k>(
        &self,
        operation: O,
        keys: impl IntoIterator<Item = &'k O::Key>,
        deadline: Instant,
    ) -> Watch<O>
    where
        O::Key: 'k,
    {
        self.register(operation, keys, deadline, false)
    }

    /// Like [`Self::watch_checked`], but when its time is up, its place is kept: see [`Self::expire_standing`].
    pub fn watch_standing<'k>(
        &self,
        operation: O,
        keys: impl IntoIterator<Item = &'k O::Key>,
        deadline: Instant,
    ) -> Watch<O>
    where
        O::Key: 'k,
    {
        self.register(operation, keys, deadline, true)
    }

    /// Parks an operation at the place of one that waited for the same before it, under the same keys.
    pub fn watch_again(
        &self,
        mut place: StandingWatch<O>,
        operation: O,
        deadline: Instant,
    ) -> Watch<O> {
        let Some(watched) = place.0.take() else { return Watch::Satisfied(operation) };
        {
            // Whoever takes the operation finds its deadline: both are there once the lock is released.
            let mut empty = lock(&watched.operation);
            let timer_key = lock(&self.timer).schedule(deadline, watched.clone());
            *lock(&watched.timer_key) = Some(timer_key);
            watched.generation.fetch_add(1, Ordering::Relaxed);
            *empty = Some(operation);
        }
        self.look_once_more(watched)
    }

    fn register<'k>(
        &self,
        operation: O,
        keys: impl IntoIterator<Item = &'k O::Key>,
        deadline: Instant,
        stands: bool,
    ) -> Watch<O>
    where
        O::Key: 'k,
    {
        let watched = Arc::new(Watched {
            operation: Mutex::new(Some(operation)),
            timer_key: Mutex::new(None),
            stands: AtomicBool::new(stands),
            kept: Mutex::new(None),
            generation: AtomicU64::new(0),
        });
        // The deadline comes first: who completes the operation from here on finds it to cancel.
        *lock(&watched.timer_key) = Some(lock(&self.timer).schedule(deadline, watched.clone()));
        for key in keys {
            let mut shard = lock(self.shard(key));
            match shard.get_mut(key) {
                Some(watchers) => watchers.add(watched.clone()),
                None => {
                    let list = vec![watched.clone()];
                    shard.insert(key.clone(), Watchers { list, clean_at: FIRST_CLEANING });
                }
            }
        }
        self.look_once_more(watched)
    }

    fn look_once_more(&self, watched: Arc<Watched<O>>) -> Watch<O> {
        let generation = watched.generation.load(Ordering::Relaxed);
        // A change before the registration was announced to nobody: look once more (F04).
        match self.take_if_satisfied(&watched, Trigger::Registration) {
            Some(operation) => Watch::Satisfied(operation),
            None => Watch::Parked(WatchHandle { watched, generation }),
        }
    }

    /// Something changed under `key`: takes out the operations that are satisfied by it, in the
    /// order in which they were parked. The caller completes them. Must not be called with a lock
    /// held that a condition takes.
    pub fn check(&self, key: &O::Key) -> Vec<O> {
        let watching: Vec<Arc<Watched<O>>> = match lock(self.shard(key)).get(key) {
            Some(watchers) => watchers.list.clone(),
            None => return Vec::new(),
        };
        let mut satisfied = Vec::new();
        for watched in &watching {
            satisfied.extend(self.take_if_satisfied(watched, Trigger::Key(key)));
        }
        self.drop_leftovers(key);
        self.maybe_sweep();
        satisfied
    }

    /// Takes out every operation whose deadline is not after `now`, earliest first.
    pub fn expire(&self, now: Instant) -> Vec<O> {
        self.expire_standing(now).into_iter().map(|expired| expired.operation).collect()
    }

    /// Like [`Self::expire`], with the places of those that were watched standing.
    pub fn expire_standing(&self, now: Instant) -> Vec<Expired<O>> {
        let mut expired = Vec::new();
        loop {
            // Not `while let`: the timer's lock must not be held while the operation's is taken.
            let due = lock(&self.timer).pop_due(now);
            let Some(watched) = due else { break };
            if let Some(operation) = watched.take() {
                self.completed_since_sweep.fetch_add(1, Ordering::Relaxed);
                self.counts.by_deadline.fetch_add(1, Ordering::Relaxed);
                let stands = watched.stands.load(Ordering::Acquire);
                let standing = stands.then(|| StandingWatch(Some(watched)));
                expired.push(Expired { operation, standing });
            }
        }
        self.maybe_sweep();
        expired
    }

    /// When the earliest deadline is, if anything waits.
    pub fn next_deadline(&self) -> Option<Instant> {
        lock(&self.timer).next_deadline()
    }

    /// Takes an operation out whatever its condition: its connection is gone, or its owner wants to
    /// complete it now. `None` when it was completed before.
    pub fn cancel(&self, handle: &WatchHandle<O>) -> Option<O> {
        let WatchHandle { watched, generation } = handle;
        let mut waiting = lock(&watched.operation);
        if watched.generation.load(Ordering::Relaxed) != *generation {
            return None;
        }
        let operation = waiting.take()?;
        drop(waiting);
        self.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        self.on_taken(watched);
        self.maybe_sweep();
        Some(operation)
    }

    /// Takes everything out, in the order of the deadlines; for a shutdown.
    pub fn drain(&self) -> Vec<O> {
        let all = self.expire(Instant(std::time::Duration::MAX));
        self.sweep();
        all
    }

    /// How many operations wait (`NumDelayedOperations`).
    pub fn delayed(&self) -> usize {
        lock(&self.timer).len()
    }

    /// How many places under keys are taken, leftovers included (`PurgatorySize`).
    pub fn watched(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| lock(shard).values().map(|watchers| watchers.list.len()).sum::<usize>())
            .sum()
    }

    /// How many operations have left so far.
    pub fn completed(&self) -> Completed {
        Completed {
            by_event: self.counts.by_event.load(Ordering::Relaxed),
            by_deadline: self.counts.by_deadline.load(Ordering::Relaxed),
            cancelled: self.counts.cancelled.load(Ordering::Relaxed),
        }
    }

    /// How many operations wait under this key.
    pub fn waiting_under(&self, key: &O::Key) -> usize {
        lock(self.shard(key))
            .get(key)
            .map_or(0, |own| own.list.iter().filter(|watched| !watched.is_gone()).count())
    }

    fn take_if_satisfied(&self, watched: &Watched<O>, trigger: Trigger<'_, O::Key>) -> Option<O> {
        let mut guard = lock(&watched.operation);
        if guard.is_none() {
            drop(guard);
            drop(watched.take_kept());
            return None;
        }
        let satisfied = guard.as_ref().is_some_and(|operation| operation.is_satisfied(trigger));
        let taken = if satisfied { guard.take() } else { None };
        drop(guard);
        if taken.is_some() {
            self.counts.by_event.fetch_add(1, Ordering::Relaxed);
            self.on_taken(watched);
        }
        taken
    }

    fn on_taken(&self, watched: &Watched<O>) {
        watched.stands.store(false, Ordering::Release);
        self.completed_since_sweep.fetch_add(1, Ordering::Relaxed);
        let key = lock(&watched.timer_key).take();
        if let Some(key) = key {
            lock(&self.timer).cancel(key);
        }
    }

    fn drop_leftovers(&self, key: &O::Key) {
        let mut shard = lock(self.shard(key));
        if let Some(watchers) = shard.get_mut(key) {
            watchers.clean();
            if watchers.list.is_empty() {
                shard.remove(key);
            }
        }
    }

    fn maybe_sweep(&self) {
        if self.completed_since_sweep.load(Ordering::Relaxed) > SWEEP_AFTER {
            self.sweep();
        }
    }

    fn sweep(&self) {
        self.completed_since_sweep.store(0, Ordering::Relaxed);
        for shard in &self.shards {
            lock(shard).retain(|_, watchers| {
                watchers.clean();
                !watchers.list.is_empty()
            });
        }
    }

    fn shard(&self, key: &O::Key) -> &Mutex<WatchList<O::Key, O>> {
        // `DefaultHasher::new` has fixed keys: the same key is in the same shard in every run.
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.shards[hasher.finish() as usize % SHARDS]
    }
}

/// A thread that panicked inside a condition has changed nothing here: the data stays good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
