//! Fetch, for consumers and followers alike. Every partition is read once: a position and a slice of
//! its file, never bytes. Too little to answer with parks the request; whoever completes it reads
//! again from scratch (F02), and then no follower is counted a second time.
//!
//! An answer is immediate when (F02): nothing may be waited for, nothing was asked for that is there, there
//! are enough bytes, a partition failed, a reader diverges, or a reader is sent to a nearer replica.
//! Partitions that the metadata does not have are told last. As in Kafka, a consumer that asks for others
//! too waits with them all the same, lest it ask again at once; a follower is told at once, since what its
//! leader has not heard of yet is there soon.

use std::sync::Arc;
use std::time::Duration;

use protocol::{
    BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, Records, TopicPartition, Uuid,
};
use replication::delayed_fetch::ParkedPartition;
use replication::fetch_session::{
    FetchContext, PartitionKey, PartitionResult, PartitionSlot, ResultFacts, SessionPartition,
    TopicKey,
};
use replication::partition::{FetchIsolation, FetchReader};
use replication::purgatory::Watch;
use replication::time::{Instant, Now};
use replication::trace::{Event, Why};
use replication::{EpochEndOffset, FollowerFetch, LogOffsetMetadata, PartitionError};
use storage::{AbortedTransaction, Disk, LogError};

use super::append::log_error_code;
use super::parked::{DelayedFetch, Parked, ParkedFetchPartition};
use super::partition::{AfterLock, Partition, Replica};
use super::{Missing, ReplicaManager};
use crate::core::directory::Directory;

/// What a fetch asks for beside its partitions.
#[derive(Clone, Debug)]
pub struct FetchParams {
    /// The request's version.
    pub version: i16,
    /// Who reads.
    pub reader: FetchReader,
    /// The follower's broker epoch; [`BrokerEpoch::NONE`] from consumers and old versions.
    pub replica_epoch: BrokerEpoch,
    /// How far it may see.
    pub isolation: FetchIsolation,
    /// The longest wait.
    pub max_wait: Duration,
    /// The least bytes worth an answer before that.
    pub min_bytes: i32,
    /// The most bytes, but for a first batch.
    pub max_bytes: i32,
    /// The consumer's rack; empty for none.
    pub client_rack: String,
    /// The listener it came in on: a redirect must be reachable there.
    pub listener: Arc<str>,
}

impl FetchParams {
    fn reader_id(&self) -> NodeId {
        match self.reader {
            FetchReader::Replica(id) => id,
            FetchReader::Consumer | FetchReader::OldConsumer => NodeId::NONE,
        }
    }
}

/// One partition's answer.
#[derive(Clone, Debug)]
pub struct FetchResult {
    /// Its place in the session.
    pub slot: PartitionSlot,
    /// The partition as the request names it.
    pub key: PartitionKey,
    /// The topic's name, where it is known.
    pub topic: Option<Arc<str>>,
    /// 0, or why not.
    pub error: ErrorCode,
    /// -1 with an error.
    pub high_watermark: Offset,
    /// -1 with an error.
    pub last_stable_offset: Offset,
    /// -1 with an error.
    pub log_start_offset: Offset,
    /// Where the reader's log parts from ours.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// For read_committed; `None` is null.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// The replica to read from instead.
    pub preferred_read_replica: Option<NodeId>,
    /// The batches.
    pub records: Records,
    /// Who leads, beside errors 6 and 74 (KIP-951).
    pub current_leader: Option<(NodeId, LeaderEpoch)>,
}

impl PartitionResult for FetchResult {
    fn slot(&self) -> PartitionSlot {
        self.slot
    }

    fn facts(&self) -> ResultFacts {
        ResultFacts {
            records_bytes: self.records.len(),
            high_watermark: self.high_watermark,
            log_start_offset: self.log_start_offset,
            error_code: self.error.code(),
            has_preferred_read_replica: self.preferred_read_replica.is_some(),
            has_diverging_epoch: self.diverging_epoch.is_some(),
        }
    }
}

/// Takes the answer: the context to close the session's part with, and the results in reading order.
pub type FetchReply = Box<dyn FnOnce(FetchContext, Vec<FetchResult>) + Send>;

/// All partitions read once.
pub(super) struct ReadPass<D: Disk> {
    results: Vec<FetchResult>,
    /// What the metadata does not have; told after the others.
    unknown: Vec<FetchResult>,
    parked: Vec<ParkedFetchPartition<D>>,
    bytes: u64,
    answer_now: bool,
    /// Every partition is here and read to its end.
    is_calm: bool,
    after: Vec<(Arc<Partition<D>>, AfterLock)>,
    failures: Vec<(Arc<Partition<D>>, LogError)>,
}

impl<D: Disk> ReadPass<D> {
    fn with_room_for(partitions: usize) -> Self {
        Self {
            results: Vec::with_capacity(partitions),
            unknown: Vec::new(),
            parked: Vec::with_capacity(partitions),
            bytes: 0,
            answer_now: false,
            is_calm: true,
            after: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn add_missing(&mut self, result: FetchResult, missing: Missing, reader: FetchReader) {
        self.is_calm = false;
        if missing.is_unknown() {
            self.answer_now |= matches!(reader, FetchReader::Replica(_));
            self.unknown.push(result);
        } else {
            self.answer_now = true;
            self.results.push(result);
        }
    }

    /// All results, in the order of the answer: unknown ids before unknown partitions, as in Kafka.
    pub(super) fn results(&mut self) -> Vec<FetchResult> {
        self.unknown.sort_by_key(|result| result.error != ErrorCode::UnknownTopicId);
        self.results.append(&mut self.unknown);
        std::mem::take(&mut self.results)
    }
}

/// What reading one partition gave.
struct PartitionRead {
    result: FetchResult,
    start: Option<LogOffsetMetadata>,
    /// Whether it read to the end of what it may see.
    at_end: bool,
    /// The partition's count of changes then.
    changes: u64,
    after: AfterLock,
    failure: Option<LogError>,
}

impl PartitionRead {
    fn of(result: FetchResult) -> Self {
        Self {
            result,
            start: None,
            at_end: false,
            changes: 0,
            after: AfterLock::default(),
            failure: None,
        }
    }
}

impl<D: Disk> ReplicaManager<D> {
    /// Reads, and answers at once or later. A request that waits can be taken back with what is
    /// returned.
    pub fn fetch(
        self: &Arc<Self>,
        mut params: FetchParams,
        context: FetchContext,
        reply: FetchReply,
    ) -> Option<Parked> {
        params.max_bytes = params.max_bytes.min(self.config.fetch_max_bytes);
        params.min_bytes = params.min_bytes.min(params.max_bytes);
        let now = self.now();
        let (mut context, reply) = match self.fetch_quietly(&params, context, reply, now) {
            Ok(parked) => return parked,
            Err(back) => back,
        };
        let mut pass = self.read_all(&params, &mut context, true, now);
        let enough = pass.bytes >= u64::try_from(params.min_bytes).unwrap_or(0);
        let nothing_asked = pass.results.is_empty();
        let (results, parked, answer_now) = (pass.results(), pass.parked, pass.answer_now);
        self.settle_pass(pass.after, pass.failures);
        if params.max_wait.is_zero() || nothing_asked || enough || answer_now {
            self.count_bytes_out(&params, &parked);
            reply(context, results);
            return None;
        }
        let deadline = now.monotonic + params.max_wait;
        let is_calm =
            pass.is_calm && self.may_be_calm(&params, &context) && !context.would_tell(&results);
        let fetch = DelayedFetch { params, partitions: Arc::new(parked), is_calm, context, reply };
        let keys = fetch.keys();
        let watched = if is_calm {
            self.fetches.watch_standing(fetch, &keys, deadline)
        } else {
            self.fetches.watch_checked(fetch, &keys, deadline)
        };
        self.park_fetch(watched, deadline)
    }

    /// What becomes of a fetch that was handed to the purgatory.
    pub(super) fn park_fetch(
        self: &Arc<Self>,
        watched: Watch<DelayedFetch<D>>,
        deadline: Instant,
    ) -> Option<Parked> {
        match self.parked(watched, deadline) {
            Ok(handle) => {
                let manager = Arc::downgrade(self);
                Some(Parked::new(move || {
                    if let Some(manager) = manager.upgrade() {
                        drop(manager.fetches.cancel(&handle));
                    }
                }))
            }
            Err(fetch) => {
                self.complete_fetch(fetch);
                None
            }
        }
    }

    /// Answers a fetch that waits no longer with what is there now.
    pub(super) fn complete_fetch(&self, fetch: DelayedFetch<D>) {
        let DelayedFetch { params, mut context, reply, .. } = fetch;
        let mut pass = self.read_all(&params, &mut context, false, self.now());
        let results = pass.results();
        self.settle_pass(pass.after, pass.failures);
        self.count_bytes_out(&params, &pass.parked);
        reply(context, results);
    }

    /// The bytes of an answer that leaves.
    fn count_bytes_out(&self, params: &FetchParams, read: &[ParkedFetchPartition<D>]) {
        let is_follower = matches!(params.reader, FetchReader::Replica(_));
        for read in read.iter().filter(|read| read.bytes > 0) {
            if is_follower {
                self.counts.replication_bytes_out.add(read.bytes as u64);
            } else {
                read.partition.counts().bytes_out.add(read.bytes as u64);
            }
        }
    }

    fn settle_pass(
        &self,
        after: Vec<(Arc<Partition<D>>, AfterLock)>,
        failures: Vec<(Arc<Partition<D>>, LogError)>,
    ) {
        for (partition, after) in after {
            self.after(&partition, after);
        }
        for (partition, error) in failures {
            self.on_storage_failure(&partition, &error);
        }
    }

    /// Reads the partitions in the session's order, dividing the bytes as F01 says: the first that has
    /// any gives at least one batch, later ones share what is left. Only the first pass of a request counts
    /// it, and the progress of its follower.
    pub(super) fn read_all(
        &self,
        params: &FetchParams,
        context: &mut FetchContext,
        is_first: bool,
        now: Now,
    ) -> ReadPass<D> {
        let mut pass = ReadPass::with_room_for(context.len());
        let directory = self.directory();
        let mut left = usize::try_from(params.max_bytes).unwrap_or(0);
        let mut min_one_batch = true;
        let names = |id: Uuid| directory.image.topic_name(id).cloned();
        context.for_each(&names, |slot, wanted| {
            let found = self.find(wanted);
            let partition = match found {
                Ok(partition) => partition,
                Err(missing) => {
                    if is_first {
                        self.counts.elsewhere().on_fetched(missing.code());
                    }
                    let result = self.missing_result(params, slot, wanted, missing);
                    return pass.add_missing(result, missing, params.reader);
                }
            };
            let limit = left.min(usize::try_from(wanted.fetch.max_bytes).unwrap_or(0));
            let reading = Reading {
                params,
                directory: &directory,
                slot,
                wanted,
                limit,
                min_one_batch,
                count_follower: is_first,
                now,
            };
            let read = self.read_one(&partition, &reading);
            let bytes = read.result.records.len();
            if is_first {
                partition.counts().on_fetched(read.result.error);
            }
            if bytes > 0 {
                min_one_batch = false;
            }
            left = left.saturating_sub(bytes);
            pass.bytes += bytes as u64;
            pass.answer_now |= read.result.error != ErrorCode::None
                || read.result.diverging_epoch.is_some()
                || read.result.preferred_read_replica.is_some();
            pass.is_calm &= read.at_end && read.result.error == ErrorCode::None;
            pass.parked.push(ParkedFetchPartition {
                partition: partition.clone(),
                current_leader_epoch: wanted.fetch.current_leader_epoch,
                parked: ParkedPartition {
                    start: read.start,
                    max_bytes: wanted.fetch.max_bytes,
                    last_fetched_epoch: wanted.fetch.last_fetched_epoch,
                },
                bytes,
                changes: read.changes,
            });
            pass.results.push(read.result);
            if let Some(error) = read.failure {
                pass.failures.push((partition.clone(), error));
            }
            if !read.after.is_empty() {
                pass.after.push((partition, read.after));
            }
        });
        pass
    }

    fn find(&self, wanted: &SessionPartition) -> Result<Arc<Partition<D>>, Missing> {
        let topic_id = match &wanted.key.topic {
            TopicKey::Id(id) => *id,
            TopicKey::Name(_) => Uuid::ZERO,
        };
        let name = wanted.topic.clone().ok_or(Missing::UnknownId)?;
        let found = self.partition(&TopicPartition::new(name, wanted.key.partition), topic_id);
        // A session that has had the name misses that, not the id (S07).
        found.map_err(|missing| match missing {
            Missing::UnknownId => Missing::UnknownName,
            other => other,
        })
    }

    fn missing_result(
        &self,
        params: &FetchParams,
        slot: PartitionSlot,
        wanted: &SessionPartition,
        missing: Missing,
    ) -> FetchResult {
        let mut error = missing.code();
        if missing == Missing::NotReplica
            && matches!(params.reader, FetchReader::Replica(_))
            && wanted.fetch.current_leader_epoch != LeaderEpoch::NONE
        {
            error = ErrorCode::NotLeaderOrFollower;
        }
        let mut result = error_result(slot, wanted, error);
        if missing.is_unknown() {
            result.aborted_transactions = Some(Vec::new());
        }
        self.with_hint(result, wanted)
    }

    fn with_hint(&self, mut result: FetchResult, wanted: &SessionPartition) -> FetchResult {
        if let Some(topic) = &wanted.topic {
            let partition = TopicPartition::new(topic.clone(), wanted.key.partition);
            result.current_leader = self.leader_hint(result.error, &partition);
        }
        result
    }

    fn read_one(&self, partition: &Partition<D>, reading: &Reading<'_>) -> PartitionRead {
        let refused = |error: ErrorCode| {
            let result = error_result(reading.slot, reading.wanted, error);
            PartitionRead::of(self.with_hint(result, reading.wanted))
        };
        let mut replica = partition.lock();
        match self.read_locked(replica.quietly(), partition, reading) {
            Ok(read) => {
                // A follower's progress is news to others once the high watermark moves.
                if read.after.wake.fetch || read.after.wake.produce {
                    replica.note_change();
                }
                PartitionRead { changes: replica.changes(), ..read }
            }
            Err(ReadError::Refused(error)) => refused(error.code()),
            Err(ReadError::Log(error)) => {
                let read = refused(log_error_code(&error));
                PartitionRead { failure: error.is_storage_failure().then_some(error), ..read }
            }
        }
    }

    fn read_locked(
        &self,
        replica: &mut Replica<D>,
        partition: &Partition<D>,
        reading: &Reading<'_>,
    ) -> Result<PartitionRead, ReadError> {
        let (params, fetch) = (reading.params, &reading.wanted.fetch);
        replica.state.check_fetch(params.reader, fetch.current_leader_epoch)?;
        let facts = replica.facts();
        if let Some(nearer) = self.preferred_replica(replica, reading, &facts) {
            let mut result = self.marks(replica, reading);
            result.preferred_read_replica = Some(nearer);
            return Ok(PartitionRead::of(result));
        }
        let last_epoch = Some(fetch.last_fetched_epoch);
        let diverging = replica.state.check_fetch_offset(
            replica.log.epochs(),
            &facts,
            last_epoch,
            fetch.fetch_offset,
        )?;
        if let Some(end) = diverging {
            let mut result = self.marks(replica, reading);
            result.diverging_epoch = Some(end);
            let event = Event::FetchDiverged {
                partition: partition.id().topic_partition.clone(),
                reader: params.reader_id(),
                fetch_offset: fetch.fetch_offset,
                last_fetched_epoch: fetch.last_fetched_epoch,
                epoch: end.epoch,
                end_offset: end.end_offset,
                why: Why::LogsDiverge,
            };
            let after = AfterLock { events: vec![event], ..AfterLock::default() };
            return Ok(PartitionRead { after, ..PartitionRead::of(result) });
        }
        let bound = replica.readable_end(params.isolation)?;
        let mut data =
            replica.log.read(fetch.fetch_offset, reading.limit, bound, reading.min_one_batch)?;
        if data.first_batch_incomplete {
            // A batch that does not fit is left for a fetch that has room (F01).
            data.records = Records::empty();
        }
        let after = self.count_follower(replica, reading, data.start, &facts)?;
        let mut result = self.marks(replica, reading);
        if params.isolation == FetchIsolation::TransactionCommitted {
            let upper = data.upper_bound_offset;
            let aborted = replica.log.aborted_transactions(fetch.fetch_offset, upper)?;
            result.aborted_transactions = Some(aborted);
        }
        result.records = data.records;
        let at_end = data.start.offset == bound.offset;
        Ok(PartitionRead { start: Some(data.start), at_end, after, ..PartitionRead::of(result) })
    }

    /// A follower's fetch tells how far it is: its state, the ISR and the high watermark follow.
    fn count_follower(
        &self,
        replica: &mut Replica<D>,
        reading: &Reading<'_>,
        start: LogOffsetMetadata,
        facts: &replication::partition::LogFacts,
    ) -> Result<AfterLock, ReadError> {
        let FetchReader::Replica(id) = reading.params.reader else {
            return Ok(AfterLock::default());
        };
        if !reading.count_follower {
            return Ok(AfterLock::default());
        }
        let progress = FollowerFetch {
            fetch_offset: start,
            log_start_offset: reading.wanted.fetch.log_start_offset,
            leader_log_end: facts.log_end.offset,
            broker_epoch: reading.params.replica_epoch,
            at: reading.now.monotonic,
        };
        let effects =
            replica.state.on_follower_fetch(id, &progress, facts, reading.directory.as_ref())?;
        let mut after = replica.carry_out(effects)?;
        // Its log start may be what a DeleteRecords waits for.
        after.wake.delete_records = true;
        Ok(after)
    }

    /// The answer's marks without records.
    fn marks(&self, replica: &Replica<D>, reading: &Reading<'_>) -> FetchResult {
        let facts = replica.facts();
        FetchResult {
            high_watermark: replica.state.high_watermark().offset,
            last_stable_offset: replica.state.last_stable_offset(&facts).offset,
            log_start_offset: facts.log_start,
            error: ErrorCode::None,
            aborted_transactions: (reading.params.isolation
                == FetchIsolation::TransactionCommitted)
                .then(Vec::new),
            ..error_result(reading.slot, reading.wanted, ErrorCode::None)
        }
    }

    fn preferred_replica(
        &self,
        replica: &Replica<D>,
        reading: &Reading<'_>,
        facts: &replication::partition::LogFacts,
    ) -> Option<NodeId> {
        let params = reading.params;
        if !self.config.rack_aware_selector
            || params.reader != FetchReader::Consumer
            || params.client_rack.is_empty()
        {
            return None;
        }
        let racks = |id: NodeId| {
            reading.directory.endpoint(id, &params.listener)?;
            let broker = reading.directory.alive(id)?;
            broker.rack.as_deref().map(str::to_owned)
        };
        replica.state.preferred_read_replica(
            &params.client_rack,
            reading.wanted.fetch.fetch_offset,
            facts,
            &racks,
            reading.now.monotonic,
        )
    }
}

/// One partition's part of a pass.
struct Reading<'a> {
    params: &'a FetchParams,
    directory: &'a Arc<Directory>,
    slot: PartitionSlot,
    wanted: &'a SessionPartition,
    limit: usize,
    min_one_batch: bool,
    count_follower: bool,
    now: Now,
}

enum ReadError {
    Refused(PartitionError),
    Log(LogError),
}

impl From<PartitionError> for ReadError {
    fn from(error: PartitionError) -> Self {
        ReadError::Refused(error)
    }
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> Self {
        ReadError::Log(error)
    }
}

/// The shape of an error (F06): every mark -1, records empty and not null.
fn error_result(slot: PartitionSlot, wanted: &SessionPartition, error: ErrorCode) -> FetchResult {
    FetchResult {
        slot,
        key: wanted.key.clone(),
        topic: wanted.topic.clone(),
        error,
        high_watermark: Offset::NONE,
        last_stable_offset: Offset::NONE,
        log_start_offset: Offset::NONE,
        diverging_epoch: None,
        aborted_transactions: None,
        preferred_read_replica: None,
        records: Records::empty(),
        current_leader: None,
    }
}
