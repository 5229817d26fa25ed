//! One partition of `__consumer_offsets` that this broker leads, and the shard of the group coordinator
//! that lives in it.
//!
//! The shard decides under one lock; its writes are appended under it, in their order. Answers made from
//! records that are not committed yet are held until the high watermark has passed them, so no client
//! learns of what a failover could take back. Whatever calls out (replies, waking) waits until the lock
//! is free: it is gathered in [`Afterwards`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{
    Answer, Caller, Output, Record, Shard, Token, Write, append_error, fail_response,
    refuse_request,
};
use parking_lot::Mutex;
use protocol::messages::HeartbeatResponse;
use protocol::records::{BatchBuilder, BatchViews, ReadBuffer};
use protocol::{ErrorCode, LeaderEpoch, Offset, RequestBody, ResponseBody};
use replication::time::{Instant, Now};
use storage::Disk;

use super::topics::TopicsView;
use super::{GroupConfig, GroupReply};
use crate::core::replicas::{Partition, ReplicaManager, Unsettled};

/// No batch of the topic may need more memory than this, decompressed.
const BATCH_LIMIT_BYTES: usize = 256 << 20;
/// When a tick looks again at a shard that was busy.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Where a shard stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Its records are being read, up to here so far.
    Loading { next: Offset },
    /// It answers.
    Active,
    /// It could not be read, or the leadership is lost: somebody else answers, or nobody.
    Gone,
}

/// A request inside the shard.
struct Waiting {
    version: i16,
    reply: GroupReply,
}

/// An answer that waits for the high watermark.
struct Held {
    version: i16,
    reply: GroupReply,
    response: ResponseBody,
    deadline: Instant,
}

struct Inner {
    stage: Stage,
    epoch: LeaderEpoch,
    shard: Shard,
    waiting: BTreeMap<Token, Waiting>,
    /// By the offset that the high watermark must pass; the token keeps those of one offset apart.
    held: BTreeMap<(Offset, Token), Held>,
    next_token: u64,
}

/// A partition of the topic and its shard.
pub(super) struct Hosted<D: Disk> {
    partition: Arc<Partition<D>>,
    inner: Mutex<Inner>,
}

/// What an input is given besides itself.
pub(super) struct Surroundings<'a, D: Disk> {
    pub(super) replicas: &'a ReplicaManager<D>,
    pub(super) config: &'a GroupConfig,
    pub(super) topics: &'a TopicsView,
    pub(super) now: Now,
}

/// What is left to do once the shard's lock is free.
#[derive(Default)]
#[must_use]
pub(super) struct Afterwards {
    unsettled: Unsettled,
    replies: Vec<(GroupReply, ResponseBody)>,
    /// When the shard wants to be ticked.
    pub(super) next: Option<Instant>,
}

impl<D: Disk> Hosted<D> {
    /// A shard that is still to be loaded.
    pub(super) fn new(partition: Arc<Partition<D>>, epoch: LeaderEpoch, shard: Shard) -> Self {
        let inner = Inner {
            stage: Stage::Loading { next: Offset::ZERO },
            epoch,
            shard,
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            next_token: 0,
        };
        Self { partition, inner: Mutex::new(inner) }
    }

    pub(super) fn partition(&self) -> &Arc<Partition<D>> {
        &self.partition
    }

    /// The type and the state of every group; `None` while they are being loaded, and when they are not.
    pub(super) fn group_states(&self) -> Option<Vec<(&'static str, &'static str)>> {
        let inner = self.inner.lock();
        (inner.stage == Stage::Active).then(|| inner.shard.group_states().collect())
    }

    /// Does what is left to do, with no lock held.
    pub(super) fn finish(&self, replicas: &ReplicaManager<D>, afterwards: Afterwards) {
        replicas.settle(&self.partition, afterwards.unsettled);
        for (reply, response) in afterwards.replies {
            reply(response);
        }
    }

    /// This broker leads on in a later epoch: what the shard knows still holds.
    pub(super) fn on_new_epoch(
        &self,
        epoch: LeaderEpoch,
        around: &Surroundings<'_, D>,
    ) -> Afterwards {
        let mut inner = self.inner.lock();
        inner.epoch = inner.epoch.max(epoch);
        self.close(&mut inner, around, Afterwards::default())
    }

    /// Takes a request.
    pub(super) fn on_request(
        &self,
        caller: &Caller,
        version: i16,
        request: RequestBody,
        reply: GroupReply,
        around: &Surroundings<'_, D>,
    ) -> Afterwards {
        let mut afterwards = Afterwards::default();
        let mut inner = self.inner.lock();
        let refusal = match inner.stage {
            Stage::Active => None,
            Stage::Loading { .. } => Some(ErrorCode::CoordinatorLoadInProgress),
            Stage::Gone => Some(ErrorCode::NotCoordinator),
        };
        if let Some(error) = refusal {
            // Whoever is in a group that is being loaded will be told so by what it asks next.
            if error == ErrorCode::CoordinatorLoadInProgress
                && matches!(request, RequestBody::Heartbeat(_))
            {
                afterwards.replies.push((reply, HeartbeatResponse::default().into()));
            } else if let Some(response) = refuse_request(version, &request, error) {
                afterwards.replies.push((reply, response));
            }
            return afterwards;
        }
        let token = Token(inner.next_token);
        inner.next_token += 1;
        inner.waiting.insert(token, Waiting { version, reply });
        let output =
            inner.shard.on_request(token, caller, version, request, around.topics, around.now);
        self.carry_out(&mut inner, output, around, &mut afterwards);
        self.close(&mut inner, around, afterwards)
    }

    /// Topics or partitions came or went.
    pub(super) fn on_topics_changed(&self, around: &Surroundings<'_, D>) -> Afterwards {
        let mut afterwards = Afterwards::default();
        let mut inner = self.inner.lock();
        if inner.stage == Stage::Active {
            let output = inner.shard.on_topics_changed(around.topics, around.now);
            self.carry_out(&mut inner, output, around, &mut afterwards);
        }
        self.close(&mut inner, around, afterwards)
    }

    /// The high watermark moved, perhaps.
    pub(super) fn on_progress(&self, around: &Surroundings<'_, D>) -> Afterwards {
        let mut inner = self.inner.lock();
        self.close(&mut inner, around, Afterwards::default())
    }

    /// Time has passed: goes on loading, or does what is due.
    pub(super) fn on_tick(&self, around: &Surroundings<'_, D>) -> Afterwards {
        let mut afterwards = Afterwards::default();
        let Some(mut inner) = self.inner.try_lock() else {
            // One request may be long at work, and all else that is due must not wait for it.
            afterwards.next = Some(around.now.monotonic + BUSY_PAUSE);
            return afterwards;
        };
        match inner.stage {
            Stage::Loading { next } => self.load(&mut inner, next, around, &mut afterwards),
            Stage::Active => {
                if inner.shard.next_deadline().is_some_and(|at| at <= around.now.monotonic) {
                    let output = inner.shard.on_tick(around.topics, around.now);
                    self.carry_out(&mut inner, output, around, &mut afterwards);
                }
                expire(&mut inner, around.now, &mut afterwards);
            }
            Stage::Gone => {}
        }
        self.close(&mut inner, around, afterwards)
    }

    /// Does `other` while the shard is busy.
    #[cfg(test)]
    pub(super) fn while_busy(&self, other: impl FnOnce()) {
        let _inner = self.inner.lock();
        other();
    }

    /// The leadership is lost: everybody who waits must look for the coordinator again.
    pub(super) fn on_lost(&self) -> Afterwards {
        let mut afterwards = Afterwards::default();
        let mut inner = self.inner.lock();
        give_up(&mut inner, &mut afterwards);
        afterwards
    }

    /// Appends the shard's writes in order, feeds the outcome back, and takes in all answers.
    fn carry_out(
        &self,
        inner: &mut Inner,
        output: Output,
        around: &Surroundings<'_, D>,
        afterwards: &mut Afterwards,
    ) {
        let (topics, now) = (around.topics, around.now);
        let mut writes = VecDeque::from(output.writes);
        take_answers(inner, output.answers, around, afterwards);
        while let Some(write) = writes.pop_front() {
            let more = match self.append(inner.epoch, &write, around, &mut afterwards.unsettled) {
                Ok(base) => inner.shard.on_written(write, base, now.wall_clock_ms, topics, now),
                Err(error) => {
                    tracing::warn!(partition = %self.partition.id().topic_partition, %error,
                        "the group coordinator cannot write");
                    inner.shard.on_write_failed(write, error, topics, now)
                }
            };
            writes.extend(more.writes);
            take_answers(inner, more.answers, around, afterwards);
        }
    }

    fn append(
        &self,
        epoch: LeaderEpoch,
        write: &Write,
        around: &Surroundings<'_, D>,
        unsettled: &mut Unsettled,
    ) -> Result<Offset, ErrorCode> {
        let batch = batch_of(&write.records, around).map_err(|error| {
            tracing::error!(error, "a record of the group coordinator cannot be written");
            ErrorCode::UnknownServerError
        })?;
        around.replicas.append_for_coordinator(
            &self.partition,
            epoch,
            &batch,
            around.now,
            unsettled,
        )
    }

    /// Reads the next piece of the partition; at its end the shard becomes active.
    fn load(
        &self,
        inner: &mut Inner,
        next: Offset,
        around: &Surroundings<'_, D>,
        afterwards: &mut Afterwards,
    ) {
        let name = &self.partition.id().topic_partition;
        let read = around.replicas.read_for_coordinator(
            &self.partition,
            inner.epoch,
            next,
            around.config.load_bytes,
            &mut afterwards.unsettled,
        );
        let loaded = match read {
            Ok(bytes) => replay(&mut inner.shard, next, &bytes),
            Err(error) => Err(error.kafka_name().to_owned()),
        };
        match loaded {
            Ok(Some(next)) => inner.stage = Stage::Loading { next },
            Ok(None) => {
                tracing::debug!(partition = %name, epoch = %inner.epoch, end = %next,
                    "the group coordinator is loaded");
                inner.stage = Stage::Active;
                let output = inner.shard.on_loaded(around.topics, around.now);
                self.carry_out(inner, output, around, afterwards);
            }
            Err(error) => {
                tracing::error!(partition = %name, %error,
                    "the group coordinator cannot load its partition");
                give_up(inner, afterwards);
            }
        }
    }

    /// The end of every input: releases what the high watermark has passed and says when to come again.
    fn close(
        &self,
        inner: &mut Inner,
        around: &Surroundings<'_, D>,
        mut afterwards: Afterwards,
    ) -> Afterwards {
        if !inner.held.is_empty()
            && let Some(high_watermark) =
                around.replicas.high_watermark_of(&self.partition, inner.epoch)
        {
            let left = inner.held.split_off(&(high_watermark, Token(0)));
            for (_, held) in std::mem::replace(&mut inner.held, left) {
                afterwards.replies.push((held.reply, held.response));
            }
        }
        let timeout = inner.held.values().map(|held| held.deadline).min();
        afterwards.next = match inner.stage {
            Stage::Loading { .. } => Some(around.now.monotonic),
            Stage::Active => inner.shard.next_deadline().into_iter().chain(timeout).min(),
            Stage::Gone => None,
        };
        afterwards
    }
}

/// Answers go out at once, or wait for the high watermark.
fn take_answers<D: Disk>(
    inner: &mut Inner,
    answers: Vec<Answer>,
    around: &Surroundings<'_, D>,
    afterwards: &mut Afterwards,
) {
    for Answer { token, response, seen } in answers {
        let Some(Waiting { version, reply }) = inner.waiting.remove(&token) else {
            tracing::error!(?token, "the group coordinator answered a request twice");
            continue;
        };
        match seen {
            None => afterwards.replies.push((reply, response)),
            Some(offset) => {
                let deadline = around.now.monotonic + around.config.commit_timeout;
                let held = Held { version, reply, response, deadline };
                inner.held.insert((offset, token), held);
            }
        }
    }
}

/// Held answers that have waited too long say so.
fn expire(inner: &mut Inner, now: Now, afterwards: &mut Afterwards) {
    let due = |held: &Held| held.deadline <= now.monotonic;
    if !inner.held.values().any(due) {
        return;
    }
    let (late, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(&mut inner.held).into_iter().partition(|(_, held)| due(held));
    inner.held = left;
    for held in late.into_values() {
        let error = append_error(ErrorCode::RequestTimedOut);
        afterwards.replies.push((held.reply, fail_response(held.version, held.response, error)));
    }
}

/// Nothing is answered from here any more.
fn give_up(inner: &mut Inner, afterwards: &mut Afterwards) {
    inner.stage = Stage::Gone;
    for Answer { token, response, .. } in inner.shard.on_unloaded() {
        if let Some(waiting) = inner.waiting.remove(&token) {
            afterwards.replies.push((waiting.reply, response));
        }
    }
    for held in std::mem::take(&mut inner.held).into_values() {
        let response = fail_response(held.version, held.response, ErrorCode::NotCoordinator);
        afterwards.replies.push((held.reply, response));
    }
}

/// The records as one batch.
fn batch_of<D: Disk>(records: &[Record], around: &Surroundings<'_, D>) -> Result<Bytes, String> {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(around.config.compression);
    for record in records {
        let (key, value) = record.encode().map_err(|error| error.to_string())?;
        builder
            .append(around.now.wall_clock_ms, Some(&key), value.as_deref(), [])
            .map_err(|error| error.to_string())?;
    }
    builder.build().map_err(|error| error.to_string())
}

/// Replays whole batches; gives where to read on, or nothing when there was no batch.
///
/// Control batches and records of transactions are passed over: offsets committed in transactions are
/// not served yet.
fn replay(shard: &mut Shard, from: Offset, bytes: &Bytes) -> Result<Option<Offset>, String> {
    let mut next = None;
    let mut buffer = ReadBuffer::default();
    for batch in BatchViews::new(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.check_crc().map_err(|error| error.to_string())?;
        next = Some(batch.last_offset().next());
        if batch.is_control() || batch.is_transactional() {
            continue;
        }
        let records = batch.records(&mut buffer, BATCH_LIMIT_BYTES);
        for record in records.map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            if record.offset < from {
                continue;
            }
            let Some(key) = record.key.map(Bytes::copy_from_slice) else {
                return Err(format!("the record at offset {} has no key", record.offset));
            };
            let value = record.value.map(Bytes::copy_from_slice);
            match Record::decode(key, value) {
                Ok(Some(decoded)) => shard.replay(&decoded, record.offset, record.timestamp),
                // Of a kind that is not known here: share and streams groups, later releases.
                Ok(None) => {}
                Err(error) => {
                    return Err(format!("the record at offset {}: {error}", record.offset));
                }
            }
        }
    }
    Ok(next)
}
