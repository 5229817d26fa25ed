//! One request's view of its session: which partitions to read, and which results to answer with.
//!
//! | context | opened by (session id, epoch) | answers with |
//! |---|---|---|
//! | sessionless | (any, -1), versions below 7, or a session that lost its last partition | everything |
//! | full | (any, 0) | everything, and a new session if the cache has room |
//! | incremental | (id, the epoch expected) | what changed (S04) |
//! | error | (id, anything else) | a top-level error and no partition |

use super::cache::{FetchSessionCache, Session};
use super::partitions::{PartitionSet, PartitionSlot, SessionPartition};
use super::{FIRST_TOPIC_ID_VERSION, PartitionFetch, PartitionKey, TopicKey};
use crate::time::Instant;
use protocol::messages::FetchRequest;
use protocol::types::{Offset, SessionEpoch, SessionId, Uuid};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const ERROR_NONE: i16 = 0;
pub(super) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
pub(super) const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
pub(super) const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

/// Names of the topics known here, by id.
pub trait TopicNames {
    /// The name of a topic, if the metadata has it.
    fn name_of(&self, topic_id: Uuid) -> Option<Arc<str>>;
}

impl<F: Fn(Uuid) -> Option<Arc<str>>> TopicNames for F {
    fn name_of(&self, topic_id: Uuid) -> Option<Arc<str>> {
        self(topic_id)
    }
}

/// The parts of a Fetch request that sessions look at.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// The session it claims to continue; 0 for none. Below version 7 always 0.
    pub session_id: SessionId,
    /// The epoch it claims; 0 opens, -1 asks for no session. Below version 7 always -1.
    pub session_epoch: SessionEpoch,
    /// The request's version.
    pub version: i16,
    /// Whether a follower asks; its session is privileged (S02).
    pub is_follower: bool,
    /// Partitions named, in the request's order. A partition twice counts once, the later fetch
    /// winning at the earlier place (F02).
    pub partitions: Vec<(PartitionKey, PartitionFetch)>,
    /// Partitions the session is to forget.
    pub forgotten: Vec<PartitionKey>,
}

impl SessionRequest {
    /// The session's view of a Fetch request of this version. Below version 7 there are no sessions.
    pub fn from_fetch(request: &FetchRequest, version: i16, is_follower: bool) -> Self {
        let uses_topic_ids = version >= FIRST_TOPIC_ID_VERSION;
        let topic_key = |id: Uuid, name: &str| {
            if uses_topic_ids { TopicKey::Id(id) } else { TopicKey::Name(name.into()) }
        };
        let mut partitions = Vec::new();
        for topic in &request.topics {
            let key = topic_key(topic.topic_id, &topic.topic);
            for partition in &topic.partitions {
                let key = PartitionKey { topic: key.clone(), partition: partition.partition };
                partitions.push((key, PartitionFetch::from_message(partition)));
            }
        }
        let mut forgotten = Vec::new();
        for topic in &request.forgotten_topics_data {
            let key = topic_key(topic.topic_id, &topic.topic);
            for partition in &topic.partitions {
                forgotten.push(PartitionKey { topic: key.clone(), partition: *partition });
            }
        }
        Self {
            session_id: SessionId(request.session_id),
            session_epoch: SessionEpoch(request.session_epoch),
            version,
            is_follower,
            partitions,
            forgotten,
        }
    }

    /// Whether the request lists all that it wants, rather than what changed.
    pub fn is_full(&self) -> bool {
        self.session_epoch == SessionEpoch::INITIAL || self.session_epoch == SessionEpoch::FINAL
    }

    pub(super) fn uses_topic_ids(&self) -> bool {
        self.version >= FIRST_TOPIC_ID_VERSION
    }
}

/// What of a partition's result decides whether an incremental answer must carry it (S04).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResultFacts {
    /// Bytes of records.
    pub records_bytes: usize,
    /// The high watermark as answered.
    pub high_watermark: Offset,
    /// The log start as answered.
    pub log_start_offset: Offset,
    /// The partition's error code, 0 for none.
    pub error_code: i16,
    /// Whether it redirects to a preferred replica.
    pub has_preferred_read_replica: bool,
    /// Whether it carries a diverging epoch.
    pub has_diverging_epoch: bool,
}

/// A partition's result as the host holds it.
pub trait PartitionResult {
    /// The slot that [`FetchContext::for_each`] gave for it.
    fn slot(&self) -> PartitionSlot;
    /// What decides on its place in the answer.
    fn facts(&self) -> ResultFacts;
}

/// The session's part of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionReply {
    /// The top-level error code, 0 for none. Otherwise no partition is answered.
    pub error_code: i16,
    /// The session id to answer with.
    pub session_id: SessionId,
}

#[derive(Debug)]
enum Kind {
    Error(i16),
    Sessionless(PartitionSet),
    Full { partitions: PartitionSet, is_follower: bool, uses_topic_ids: bool },
    Incremental { session: Arc<Mutex<Session>>, id: SessionId, expected_epoch: SessionEpoch },
}

/// A request in the light of its session. Keep it with the request while that is parked.
#[derive(Debug)]
pub struct FetchContext {
    kind: Kind,
}

impl FetchContext {
    pub(super) fn error(code: i16) -> Self {
        Self { kind: Kind::Error(code) }
    }

    pub(super) fn sessionless(partitions: Vec<(PartitionKey, PartitionFetch)>) -> Self {
        Self { kind: Kind::Sessionless(collect(partitions)) }
    }

    pub(super) fn full(request: SessionRequest) -> Self {
        Self {
            kind: Kind::Full {
                uses_topic_ids: request.uses_topic_ids(),
                is_follower: request.is_follower,
                partitions: collect(request.partitions),
            },
        }
    }

    pub(super) fn incremental(
        session: Arc<Mutex<Session>>,
        id: SessionId,
        expected_epoch: SessionEpoch,
    ) -> Self {
        Self { kind: Kind::Incremental { session, id, expected_epoch } }
    }

    /// The top-level error to answer at once, if the request has one; there is nothing to read then.
    pub fn error_reply(&self) -> Option<SessionReply> {
        match self.kind {
            Kind::Error(error_code) => {
                Some(SessionReply { error_code, session_id: SessionId::NONE })
            }
            _ => None,
        }
    }

    /// Whether only changed partitions will be answered.
    pub fn is_incremental(&self) -> bool {
        matches!(self.kind, Kind::Incremental { .. })
    }

    /// What the host left with the session after the last fetch, if the session is still what it was.
    pub fn take_keepsake(&self) -> Option<Keepsake> {
        match &self.kind {
            Kind::Incremental { session, .. } => lock(session).keepsake.take(),
            _ => None,
        }
    }

    /// Leaves something with the session for its next fetch. It is dropped when the session ends or is
    /// changed by a request, and at once when there is no session or it moved on.
    pub fn keep(&self, keepsake: Keepsake) {
        if let Kind::Incremental { session, expected_epoch, .. } = &self.kind {
            let mut session = lock(session);
            if session.epoch == *expected_epoch {
                session.keepsake = Some(keepsake);
            }
        }
    }

    /// Whether an answer with these results would carry any partition.
    pub fn would_tell<R: PartitionResult>(&self, results: &[R]) -> bool {
        let Kind::Incremental { session, .. } = &self.kind else { return !results.is_empty() };
        let session = lock(session);
        results.iter().any(|result| {
            let known = session.partitions.get(result.slot());
            known.is_none_or(|partition| is_news(partition, &result.facts()))
        })
    }

    /// How many partitions there are to read.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Error(_) => 0,
            Kind::Sessionless(partitions) | Kind::Full { partitions, .. } => partitions.len(),
            Kind::Incremental { session, .. } => lock(session).partitions.len(),
        }
    }

    /// Whether there is no partition to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the partitions in the order in which they are to be read, resolving topic names that
    /// were unknown so far (S07). Holds the session's lock meanwhile: the visitor must not call
    /// into the cache or into a context.
    pub fn for_each(
        &mut self,
        names: &dyn TopicNames,
        mut visit: impl FnMut(PartitionSlot, &SessionPartition),
    ) {
        let resolve_and_visit = |slot: PartitionSlot, partition: &mut SessionPartition| {
            if partition.topic.is_none()
                && let TopicKey::Id(id) = partition.key.topic
            {
                partition.topic = names.name_of(id);
            }
            visit(slot, partition);
        };
        match &mut self.kind {
            Kind::Error(_) => {}
            Kind::Sessionless(partitions) | Kind::Full { partitions, .. } => {
                partitions.for_each_mut(resolve_and_visit);
            }
            Kind::Incremental { session, .. } => {
                lock(session).partitions.for_each_mut(resolve_and_visit);
            }
        }
    }

    /// Turns results, in the order they were read, into the answer: removes those that an
    /// incremental answer leaves out (S04), rotates partitions that gave records to the end (S05),
    /// and opens a session for a full request if the cache has room (S02).
    ///
    /// Answers 71 and drops all results when the session moved on while the request was parked (S01).
    pub fn finish<R: PartitionResult>(
        &mut self,
        cache: &FetchSessionCache,
        results: &mut Vec<R>,
        now: Instant,
    ) -> SessionReply {
        match &mut self.kind {
            Kind::Error(error_code) => {
                results.clear();
                SessionReply { error_code: *error_code, session_id: SessionId::NONE }
            }
            Kind::Sessionless(_) => no_session(),
            Kind::Full { partitions, is_follower, uses_topic_ids } => {
                let mut partitions = std::mem::take(partitions);
                for result in results.iter() {
                    seed(&mut partitions, result.slot(), &result.facts());
                }
                let session_id =
                    cache.maybe_create_session(partitions, *is_follower, *uses_topic_ids, now);
                SessionReply { error_code: ERROR_NONE, session_id }
            }
            Kind::Incremental { session, id, expected_epoch } => {
                let mut session = lock(session);
                if session.epoch != *expected_epoch {
                    results.clear();
                    return SessionReply {
                        error_code: INVALID_FETCH_SESSION_EPOCH,
                        session_id: *id,
                    };
                }
                results.retain(|result| {
                    select(&mut session.partitions, result.slot(), &result.facts())
                });
                SessionReply { error_code: ERROR_NONE, session_id: *id }
            }
        }
    }

    /// The answer to a request that a quota holds back: no partition, the session's epoch consumed
    /// all the same (S08).
    pub fn finish_throttled(&self) -> SessionReply {
        match &self.kind {
            Kind::Error(error_code) => {
                SessionReply { error_code: *error_code, session_id: SessionId::NONE }
            }
            Kind::Sessionless(_) | Kind::Full { .. } => no_session(),
            Kind::Incremental { session, id, expected_epoch } => {
                let current = lock(session).epoch == *expected_epoch;
                let error_code = if current { ERROR_NONE } else { INVALID_FETCH_SESSION_EPOCH };
                SessionReply { error_code, session_id: *id }
            }
        }
    }
}

fn no_session() -> SessionReply {
    SessionReply { error_code: ERROR_NONE, session_id: SessionId::NONE }
}

fn collect(requested: Vec<(PartitionKey, PartitionFetch)>) -> PartitionSet {
    let mut partitions = PartitionSet::default();
    for (key, fetch) in requested {
        partitions.upsert(key, fetch);
    }
    partitions
}

/// Remembers what the first, full answer told.
fn seed(partitions: &mut PartitionSet, slot: PartitionSlot, facts: &ResultFacts) {
    if let Some(partition) = partitions.get_mut(slot) {
        partition.sent_high_watermark = facts.high_watermark;
        partition.sent_log_start_offset = facts.log_start_offset;
        if !facts.marks_are_taken() {
            partition.sent_high_watermark = Offset::NONE;
        }
    }
}

impl ResultFacts {
    /// Whether the reader takes the marks of the answer over: not with an error, and not beside a
    /// diverging epoch (T08). Then the next answer must carry them, even if they did not move.
    fn marks_are_taken(&self) -> bool {
        self.error_code == ERROR_NONE && !self.has_diverging_epoch
    }
}

/// What a host leaves with a session.
pub type Keepsake = Box<dyn Any + Send>;

/// Whether an incremental answer must carry a partition (S04).
fn is_news(partition: &SessionPartition, facts: &ResultFacts) -> bool {
    facts.records_bytes > 0
        || facts.has_preferred_read_replica
        || facts.has_diverging_epoch
        || facts.error_code != ERROR_NONE
        || partition.sent_high_watermark != facts.high_watermark
        || partition.sent_log_start_offset != facts.log_start_offset
}

/// Rule S04, and the rotation of S05. Returns whether the answer must carry the partition.
fn select(partitions: &mut PartitionSet, slot: PartitionSlot, facts: &ResultFacts) -> bool {
    let Some(partition) = partitions.get_mut(slot) else {
        return true;
    };
    let changed = is_news(partition, facts);
    partition.sent_high_watermark = facts.high_watermark;
    partition.sent_log_start_offset = facts.log_start_offset;
    if !facts.marks_are_taken() {
        partition.sent_high_watermark = Offset::NONE;
    }
    if facts.records_bytes > 0 {
        partitions.move_to_end(slot);
    }
    changed
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
