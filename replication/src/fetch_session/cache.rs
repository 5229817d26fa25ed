//! The server's fetch sessions: opened, continued, closed and evicted (rules S01 and S02).
//!
//! Ids are dealt in ranges, one per shard, so the id alone finds the shard. Each shard holds at most
//! its share of `max.incremental.fetch.session.cache.slots`.
//!
//! On a full shard, in this order: a session idle for longer than the eviction age goes, privileged
//! or not; else a privileged newcomer drives out the smallest unprivileged session; else a newcomer
//! with strictly more partitions drives out the smallest session that is past the eviction age and
//! no more privileged. Otherwise the newcomer gets no session, which is no error.
//!
//! Invariant: `by_last_use` and the evictable orders hold exactly the keys stored in `sessions`.

use super::context::{
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, FetchContext,
    INVALID_FETCH_SESSION_EPOCH, Keepsake, SessionRequest, lock,
};
use super::partitions::PartitionSet;
use crate::time::Instant;
use protocol::types::{SessionEpoch, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where new session ids come from. Injected, so that a simulation repeats itself.
pub trait SessionIdSource: Send {
    /// Some id in `low..high`; any will do, the cache asks again when it is taken.
    fn next_id(&mut self, low: i32, high: i32) -> i32;
}

/// Session ids from a seed (splitmix64). Ids need not be secret, only spread.
#[derive(Clone, Debug)]
pub struct SeededSessionIds(u64);

impl SeededSessionIds {
    /// The sequence of ids that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl SessionIdSource for SeededSessionIds {
    fn next_id(&mut self, low: i32, high: i32) -> i32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let width = i64::from(high) - i64::from(low);
        let step = (bits >> 1) as i64 % width.max(1);
        low.saturating_add(step as i32)
    }
}

/// Bounds of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionCacheConfig {
    /// `max.incremental.fetch.session.cache.slots`, shared evenly by the shards. 0 turns sessions off.
    pub slots: usize,
    /// How many shards, each with a lock of its own; at least 1.
    pub shards: usize,
    /// Idle for longer than this a session may go for any newcomer.
    pub eviction_age: Duration,
}

impl Default for SessionCacheConfig {
    fn default() -> Self {
        Self { slots: 1000, shards: 8, eviction_age: Duration::from_millis(120_000) }
    }
}

/// A session's own state, behind its own lock.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) partitions: PartitionSet,
    pub(super) epoch: SessionEpoch,
    uses_topic_ids: bool,
    /// What the host left here, as long as the partitions and what is wanted of them stay.
    pub(super) keepsake: Option<Keepsake>,
}

/// Order of eviction: unprivileged first, then smaller, then by id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct EvictionKey {
    privileged: bool,
    size: usize,
    id: i32,
}

#[derive(Debug)]
struct Held {
    session: Arc<Mutex<Session>>,
    privileged: bool,
    created: Instant,
    last_used: Instant,
    /// Partitions when last touched: a session that grows meanwhile keeps its rank.
    size: usize,
}

impl Held {
    fn eviction_key(&self, id: i32) -> EvictionKey {
        EvictionKey { privileged: self.privileged, size: self.size, id }
    }
}

#[derive(Debug, Default)]
struct Shard {
    sessions: BTreeMap<i32, Held>,
    by_last_use: BTreeSet<(Instant, i32)>,
    evictable_by_privileged: BTreeSet<EvictionKey>,
    evictable_by_all: BTreeSet<EvictionKey>,
    partitions: usize,
}

/// The sessions of a broker.
pub struct FetchSessionCache {
    shards: Vec<Mutex<Shard>>,
    slots_per_shard: usize,
    ids_per_shard: i32,
    eviction_age: Duration,
    ids: Mutex<Box<dyn SessionIdSource>>,
    next_shard: AtomicUsize,
    evictions: AtomicU64,
}

impl std::fmt::Debug for FetchSessionCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchSessionCache")
            .field("shards", &self.shards.len())
            .field("sessions", &self.session_count())
            .finish_non_exhaustive()
    }
}

impl FetchSessionCache {
    /// An empty cache.
    pub fn new(config: SessionCacheConfig, ids: Box<dyn SessionIdSource>) -> Self {
        let shards = config.shards.clamp(1, 1024);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::default())).collect(),
            slots_per_shard: config.slots / shards,
            ids_per_shard: i32::MAX / shards as i32,
            eviction_age: config.eviction_age,
            ids: Mutex::new(ids),
            next_shard: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Puts a request into its session: table S01.
    pub fn new_context(&self, request: SessionRequest, now: Instant) -> FetchContext {
        if request.is_full() {
            // A session named by a full request is closed, whatever becomes of the request.
            if request.session_id != SessionId::NONE
                && let Some(shard) = self.shard_of(request.session_id)
            {
                lock(shard).remove(request.session_id.get());
            }
            if request.session_epoch == SessionEpoch::FINAL {
                return FetchContext::sessionless(request.partitions);
            }
            return FetchContext::full(request);
        }
        match self.shard_of(request.session_id) {
            Some(shard) => lock(shard).continue_session(request, now, self.eviction_age),
            None => FetchContext::error(FETCH_SESSION_ID_NOT_FOUND),
        }
    }

    /// Opens a session with these partitions, evicting another by rule S02 if it must. Answers 0
    /// when there is no room.
    pub(super) fn maybe_create_session(
        &self,
        partitions: PartitionSet,
        privileged: bool,
        uses_topic_ids: bool,
        now: Instant,
    ) -> SessionId {
        let number = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let mut shard = lock(&self.shards[number]);
        if shard.sessions.len() >= self.slots_per_shard {
            let newcomer = EvictionKey { privileged, size: partitions.len(), id: 0 };
            let Some(evicted) = shard.evictable_for(newcomer, now, self.eviction_age) else {
                return SessionId::NONE;
            };
            shard.remove(evicted);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        let id = self.unused_id(number as i32, &shard);
        let session = Session {
            partitions,
            epoch: SessionEpoch::INITIAL.next(),
            uses_topic_ids,
            keepsake: None,
        };
        shard.insert(id, session, privileged, now, self.eviction_age);
        SessionId(id)
    }

    fn unused_id(&self, shard_number: i32, shard: &Shard) -> i32 {
        let low = (shard_number * self.ids_per_shard).max(1);
        let high = (shard_number + 1) * self.ids_per_shard;
        let mut ids = lock(&self.ids);
        loop {
            let id = ids.next_id(low, high).clamp(low, high - 1);
            if !shard.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    /// The shard whose range holds the id; `None` for ids that no shard deals out.
    fn shard_of(&self, id: SessionId) -> Option<&Mutex<Shard>> {
        let number = usize::try_from(id.get()).ok()? / self.ids_per_shard as usize;
        self.shards.get(number)
    }

    /// How many sessions are open (`NumIncrementalFetchSessions`).
    pub fn session_count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).sessions.len()).sum()
    }

    /// How many partitions they hold (`NumIncrementalFetchPartitionsCached`).
    pub fn partition_count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).partitions).sum()
    }

    /// How many sessions were evicted so far (`IncrementalFetchSessionEvictionsPerSec`).
    pub fn eviction_count(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

impl Shard {
    fn continue_session(
        &mut self,
        request: SessionRequest,
        now: Instant,
        eviction_age: Duration,
    ) -> FetchContext {
        let id = request.session_id;
        let Some(held) = self.sessions.get(&id.get()) else {
            return FetchContext::error(FETCH_SESSION_ID_NOT_FOUND);
        };
        let shared = held.session.clone();
        let mut session = lock(&shared);
        if session.epoch != request.session_epoch {
            return FetchContext::error(INVALID_FETCH_SESSION_EPOCH);
        }
        if session.uses_topic_ids != request.uses_topic_ids() {
            return FetchContext::error(FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if !request.partitions.is_empty() || !request.forgotten.is_empty() {
            session.keepsake = None;
        }
        for (key, fetch) in &request.partitions {
            session.partitions.upsert(key.clone(), *fetch);
        }
        // After the additions: a partition in both lists ends up forgotten (S06).
        for key in &request.forgotten {
            session.partitions.remove(key);
        }
        let size = session.partitions.len();
        if size == 0 {
            drop(session);
            self.remove(id.get());
            return FetchContext::sessionless(request.partitions);
        }
        session.epoch = session.epoch.next();
        let expected_epoch = session.epoch;
        drop(session);
        self.touch(id.get(), size, now, eviction_age);
        FetchContext::incremental(shared, id, expected_epoch)
    }

    fn insert(
        &mut self,
        id: i32,
        session: Session,
        privileged: bool,
        now: Instant,
        eviction_age: Duration,
    ) {
        let size = session.partitions.len();
        let session = Arc::new(Mutex::new(session));
        let held = Held { session, privileged, created: now, last_used: now, size };
        self.partitions += size;
        self.sessions.insert(id, held);
        self.rank(id, eviction_age, now);
    }

    fn touch(&mut self, id: i32, size: usize, now: Instant, eviction_age: Duration) {
        self.unrank(id);
        if let Some(held) = self.sessions.get_mut(&id) {
            self.partitions = self.partitions - held.size + size;
            held.last_used = now;
            held.size = size;
        }
        self.rank(id, eviction_age, now);
    }

    fn remove(&mut self, id: i32) {
        self.unrank(id);
        if let Some(held) = self.sessions.remove(&id) {
            self.partitions -= held.size;
        }
    }

    fn rank(&mut self, id: i32, eviction_age: Duration, now: Instant) {
        let Some(held) = self.sessions.get(&id) else {
            return;
        };
        let key = held.eviction_key(id);
        let is_old = now.since(held.created) > eviction_age;
        self.by_last_use.insert((held.last_used, id));
        if is_old || !held.privileged {
            self.evictable_by_privileged.insert(key);
        }
        if is_old {
            self.evictable_by_all.insert(key);
        }
    }

    fn unrank(&mut self, id: i32) {
        let Some(held) = self.sessions.get(&id) else {
            return;
        };
        let key = held.eviction_key(id);
        self.by_last_use.remove(&(held.last_used, id));
        self.evictable_by_privileged.remove(&key);
        self.evictable_by_all.remove(&key);
    }

    /// The session that has to go for the newcomer, if one has to (S02).
    fn evictable_for(
        &self,
        newcomer: EvictionKey,
        now: Instant,
        eviction_age: Duration,
    ) -> Option<i32> {
        let (last_used, idlest) = self.by_last_use.first()?;
        if now.since(*last_used) > eviction_age {
            return Some(*idlest);
        }
        let candidates = if newcomer.privileged {
            &self.evictable_by_privileged
        } else {
            &self.evictable_by_all
        };
        candidates.first().filter(|least| newcomer > **least).map(|least| least.id)
    }
}
