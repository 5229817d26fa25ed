//! The follower side of replication for one leader: which request goes out next (rules T07, T09 to
//! T11; KIP-227, KIP-320, KIP-595). What an answer means is in `response.rs` and `offsets.rs`.
//!
//! Invariants:
//! - one request at a time; its answer or its failure must come back before the next;
//! - a partition's fetch offset is its log's end. Both move together, in one call to the replica;
//! - an answer counts for a partition only while that stands as it was asked: same leader epoch,
//!   same offset, fetching (T10);
//! - the session names exactly the partitions that are ready; a request costs what changed.

use crate::access::{PartitionFailure, ReplicaAccess, ReplicaError};
use crate::partition::{FetchState, FollowAssignment, Phase, key_of};
use crate::request::{self, AskedOffset};
use protocol::messages::{FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse};
use protocol::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, TopicIdPartition};
use replication::bugs::{self, Bug};
use replication::fetch_session::{FetchSessionHandler, PartitionKey};
use replication::time::Instant;
use replication::trace::{Event, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many partitions are looked at per request for a log start that moved by itself (retention).
const LOG_START_SWEEP: usize = 256;
/// The first pause for a leader that does not know yet that it leads.
const FIRST_EARLY_PAUSE: Duration = Duration::from_millis(20);

/// Settings of the fetchers of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetcherConfig {
    /// This broker.
    pub replica_id: NodeId,
    /// `replica.fetch.wait.max.ms`.
    pub max_wait: Duration,
    /// `replica.fetch.min.bytes`.
    pub min_bytes: i32,
    /// `replica.fetch.response.max.bytes`.
    pub response_max_bytes: i32,
    /// `replica.fetch.max.bytes`, per partition.
    pub partition_max_bytes: i32,
    /// `replica.fetch.backoff.ms`.
    pub backoff: Duration,
}

impl FetcherConfig {
    /// Kafka's defaults for this broker.
    pub fn new(replica_id: NodeId) -> Self {
        Self {
            replica_id,
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            response_max_bytes: 10 * 1024 * 1024,
            partition_max_bytes: 1024 * 1024,
            backoff: Duration::from_millis(1000),
        }
    }
}

/// A request for the leader, in version [`request::FETCH_VERSION`] or [`request::LIST_OFFSETS_VERSION`].
#[derive(Clone, Debug, PartialEq)]
pub enum FetcherRequest {
    /// The ordinary pull.
    Fetch(FetchRequest),
    /// The leader's log ends or starts, for partitions out of its range.
    ListOffsets(ListOffsetsRequest),
}

/// The leader's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum FetcherResponse {
    /// To a fetch.
    Fetch(FetchResponse),
    /// To a question for offsets.
    ListOffsets(ListOffsetsResponse),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InFlight {
    Fetch,
    ListOffsets(Vec<AskedOffset>),
}

/// The pull loop of one leader and fetcher id, without the loop.
#[derive(Debug)]
pub struct FetcherCore {
    leader: NodeId,
    fetcher_id: u32,
    pub(crate) config: FetcherConfig,
    pub(crate) partitions: BTreeMap<PartitionKey, FetchState>,
    pub(crate) session: FetchSessionHandler,
    /// Partitions backing off, by when that ends.
    delayed: BTreeSet<(Instant, PartitionKey)>,
    /// Partitions to ask the leader's offsets for.
    asking: BTreeSet<PartitionKey>,
    pub(crate) in_flight: Option<InFlight>,
    /// The whole fetcher backs off: the leader cannot be reached, or refuses everything.
    backoff_until: Option<Instant>,
    pub(crate) resets_in_a_row: u32,
    sweep_from: Option<PartitionKey>,
}

impl FetcherCore {
    /// A fetcher without partitions.
    pub fn new(leader: NodeId, fetcher_id: u32, config: FetcherConfig) -> Self {
        Self {
            leader,
            fetcher_id,
            config,
            partitions: BTreeMap::new(),
            session: FetchSessionHandler::new(),
            delayed: BTreeSet::new(),
            asking: BTreeSet::new(),
            in_flight: None,
            backoff_until: None,
            resets_in_a_row: 0,
            sweep_from: None,
        }
    }

    /// Who is pulled from.
    pub fn leader(&self) -> NodeId {
        self.leader
    }

    /// Which of the leader's fetchers this is.
    pub fn fetcher_id(&self) -> u32 {
        self.fetcher_id
    }

    /// Changes `replica.fetch.backoff.ms`, for pauses that begin from now on.
    pub fn set_backoff(&mut self, backoff: Duration) {
        self.config.backoff = backoff;
    }

    /// Starts following. The fetch offset is read from the log here and now, so the fetcher that had
    /// the partition before must have released it (T10).
    ///
    /// A partition followed at this epoch already stays as it is, unless it had failed. A higher
    /// epoch starts it over even from the same leader (T07); a lower one is old news.
    pub fn add_partitions<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        assignments: impl IntoIterator<Item = FollowAssignment>,
        now: Instant,
    ) {
        for assignment in assignments {
            let key = key_of(&assignment.partition);
            if let Some(known) = self.partitions.get(&key) {
                let failed = matches!(known.phase, Phase::Failed(_));
                let newer = assignment.leader_epoch > known.leader_epoch;
                let again = failed && assignment.leader_epoch == known.leader_epoch;
                if !newer && !again {
                    continue;
                }
                self.forget(&key);
            }
            let state = FetchState {
                partition: assignment.partition,
                leader_epoch: assignment.leader_epoch,
                fetch_offset: Offset::ZERO,
                last_fetched_epoch: LeaderEpoch::NONE,
                log_start_offset: Offset::ZERO,
                lag: None,
                phase: Phase::Starting,
                delayed_until: None,
                early_tries: 0,
            };
            self.partitions.insert(key.clone(), state);
            self.start(access, &key, now);
        }
    }

    /// Stops following. Once this returns, no answer still on its way can touch the log (T10).
    /// Returns the partitions that were followed here.
    pub fn remove_partitions<'a>(
        &mut self,
        partitions: impl IntoIterator<Item = &'a TopicIdPartition>,
    ) -> Vec<FetchState> {
        partitions.into_iter().filter_map(|partition| self.forget(&key_of(partition))).collect()
    }

    fn forget(&mut self, key: &PartitionKey) -> Option<FetchState> {
        let state = self.partitions.remove(key)?;
        if let Some(until) = state.delayed_until {
            self.delayed.remove(&(until, key.clone()));
        }
        self.asking.remove(key);
        self.session.remove(key);
        Some(state)
    }

    /// Whether nothing is followed here any more.
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// How many partitions are followed, failed ones included.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// What is known of a partition.
    pub fn partition(&self, partition: &TopicIdPartition) -> Option<&FetchState> {
        self.partitions.get(&key_of(partition))
    }

    /// The partitions followed.
    pub fn partitions(&self) -> impl Iterator<Item = &FetchState> {
        self.partitions.values()
    }

    /// How many partitions failed (`FailedPartitionsCount`).
    pub fn failed_count(&self) -> usize {
        self.partitions.values().filter(|state| matches!(state.phase, Phase::Failed(_))).count()
    }

    /// The largest lag behind the leader's high watermark (`MaxLag`).
    pub fn max_lag(&self) -> i64 {
        self.partitions.values().filter_map(|state| state.lag).max().unwrap_or(0)
    }

    /// The next request, if there is something to ask and nothing in flight. Its answer goes to
    /// [`Self::on_response`], its failure to [`Self::on_request_failed`].
    pub fn poll<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        broker_epoch: BrokerEpoch,
        now: Instant,
    ) -> Option<FetcherRequest> {
        if self.in_flight.is_some() || self.backoff_until.is_some_and(|until| until > now) {
            return None;
        }
        self.backoff_until = None;
        self.wake_delayed(access, now);
        if !self.asking.is_empty() {
            return Some(self.ask_offsets());
        }
        if self.session.is_empty() {
            return None;
        }
        self.sweep_log_starts(access);
        let fetch = self.session.build();
        self.in_flight = Some(InFlight::Fetch);
        Some(FetcherRequest::Fetch(request::fetch_request(&self.config, broker_epoch, fetch)))
    }

    /// When to call [`Self::poll`] again if nothing else happens: `now` when a request is due. `None`
    /// while one is in flight or there is nothing to follow.
    pub fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        if self.in_flight.is_some() {
            return None;
        }
        let ready = !self.asking.is_empty() || !self.session.is_empty();
        let earliest =
            if ready { Some(now) } else { self.delayed.first().map(|(until, _)| *until) };
        earliest.map(|at| at.max(self.backoff_until.unwrap_or(at)))
    }

    /// The request was not answered: the connection failed, or the answer could not be read.
    pub fn on_request_failed<A: ReplicaAccess + ?Sized>(&mut self, access: &A, now: Instant) {
        if self.in_flight.take() == Some(InFlight::Fetch) {
            self.session.on_failure();
        }
        self.back_off(access, now);
    }

    pub(crate) fn back_off<A: ReplicaAccess + ?Sized>(&mut self, access: &A, now: Instant) {
        self.backoff_until = Some(now + self.config.backoff);
        access.trace(Event::FetcherBackedOff {
            leader: self.leader,
            pause_ms: self.config.backoff.as_millis() as i64,
            why: Why::LeaderOutOfReach,
        });
    }

    fn wake_delayed<A: ReplicaAccess + ?Sized>(&mut self, access: &A, now: Instant) {
        while let Some((until, key)) = self.delayed.pop_first() {
            if until > now {
                self.delayed.insert((until, key));
                return;
            }
            let Some(state) = self.partitions.get_mut(&key) else {
                continue;
            };
            state.delayed_until = None;
            match state.phase {
                Phase::Starting => self.start(access, &key, now),
                Phase::Fetching => self.offer(&key),
                Phase::AskingLatest | Phase::AskingEarliest { .. } => {
                    self.asking.insert(key);
                }
                Phase::Failed(_) => {}
            }
        }
    }

    /// Reads where to fetch from out of the log. A log that has records but no epoch history cannot
    /// be compared with the leader's: it is cut to its high watermark, which no leader lacks.
    fn start<A: ReplicaAccess + ?Sized>(&mut self, access: &A, key: &PartitionKey, now: Instant) {
        let Some(state) = self.partitions.get(key) else {
            return;
        };
        let partition = &state.partition;
        let log = access.log(partition).and_then(|log| {
            // With the bug on wrong (KIP-101): what is above may be committed, and we the last to have it.
            let mistrusts = log.latest_epoch.is_none() || bugs::is_on(Bug::TruncateToHighWatermark);
            if mistrusts && log.high_watermark < log.log_end_offset {
                access.truncate_to(partition, state.leader_epoch, log.high_watermark)?;
                return access.log(partition);
            }
            Ok(log)
        });
        match log {
            Ok(log) => self.resume_at(key, &log),
            Err(error) => self.on_replica_error(access, key, error, now),
        }
    }

    /// Fetches from the end of the log, whatever was going on before.
    pub(crate) fn resume_at(&mut self, key: &PartitionKey, log: &crate::access::ReplicaLog) {
        let Some(state) = self.partitions.get_mut(key) else {
            return;
        };
        state.fetch_offset = log.log_end_offset;
        state.log_start_offset = log.log_start_offset;
        state.last_fetched_epoch = log.latest_epoch.unwrap_or(LeaderEpoch::NONE);
        state.phase = Phase::Fetching;
        self.offer(key);
    }

    /// Has the session name the partition as it stands, if it is ready; and not otherwise.
    pub(crate) fn offer(&mut self, key: &PartitionKey) {
        match self.partitions.get(key) {
            Some(state) if state.is_ready_for_fetch() => {
                self.session.set(key.clone(), state.wish(self.config.partition_max_bytes));
            }
            _ => self.session.remove(key),
        }
    }

    /// Leaves the partition alone for the back-off after `error`, then goes on where it stands.
    pub(crate) fn delay<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        error: ErrorCode,
        now: Instant,
    ) {
        self.delay_for(access, key, (error, self.config.backoff), now);
    }

    /// The same for a leader that may learn of its part in a moment: the pauses begin short and double
    /// up to the back-off.
    pub(crate) fn delay_early<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        error: ErrorCode,
        now: Instant,
    ) {
        let Some(state) = self.partitions.get_mut(key) else {
            return;
        };
        let pause = FIRST_EARLY_PAUSE * (1 << state.early_tries.min(10));
        state.early_tries += 1;
        self.delay_for(access, key, (error, pause.min(self.config.backoff)), now);
    }

    fn delay_for<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        (error, pause): (ErrorCode, Duration),
        now: Instant,
    ) {
        let until = now + pause;
        if let Some(state) = self.partitions.get_mut(key)
            && state.delayed_until.is_none()
        {
            state.delayed_until = Some(until);
            access.trace(Event::FetchDelayed {
                partition: state.partition.topic_partition.clone(),
                error_code: error.code(),
                pause_ms: pause.as_millis() as i64,
                why: Why::LeaderNotReady,
            });
            self.delayed.insert((until, key.clone()));
            self.asking.remove(key);
            self.session.remove(key);
        }
    }

    /// Leaves the partition alone until it is assigned anew.
    pub(crate) fn fail<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        failure: PartitionFailure,
    ) {
        let Some(state) = self.partitions.get_mut(key) else {
            return;
        };
        tracing::warn!(partition = %state.partition.topic_partition, %failure, "not fetched any more");
        access.on_partition_failed(&state.partition, &failure);
        state.phase = Phase::Failed(failure);
        state.lag = None;
        if let Some(until) = state.delayed_until.take() {
            self.delayed.remove(&(until, key.clone()));
        }
        self.asking.remove(key);
        self.session.remove(key);
    }

    pub(crate) fn on_replica_error<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        error: ReplicaError,
        now: Instant,
    ) {
        match error {
            ReplicaError::Corrupt(_) | ReplicaError::NotFollower => {
                tracing::info!(?key, %error, "backing off");
                self.delay(access, key, ErrorCode::None, now);
            }
            ReplicaError::UnexpectedOffset { .. } => {
                // The log moved under us: read its end again, after a pause so as not to spin.
                if let Some(state) = self.partitions.get_mut(key) {
                    state.phase = Phase::Starting;
                }
                self.delay(access, key, ErrorCode::None, now);
            }
            ReplicaError::Storage(_) | ReplicaError::Other(_) => {
                self.fail(access, key, PartitionFailure::Replica(error));
            }
        }
    }

    pub(crate) fn ask(&mut self, key: &PartitionKey, phase: Phase) {
        if let Some(state) = self.partitions.get_mut(key) {
            state.phase = phase;
            self.asking.insert(key.clone());
            self.session.remove(key);
        }
    }

    pub(crate) fn done_asking(&mut self, key: &PartitionKey) {
        self.asking.remove(key);
    }

    fn ask_offsets(&mut self) -> FetcherRequest {
        let states = &self.partitions;
        let asked = self.asking.iter().filter_map(|key| states.get(key).map(|state| (key, state)));
        let (request, asked) = request::list_offsets_request(&self.config, asked);
        self.in_flight = Some(InFlight::ListOffsets(asked));
        FetcherRequest::ListOffsets(request)
    }

    /// Looks at some partitions for a log start that retention moved, in turns, so that every one
    /// is seen without a walk over all at each request.
    fn sweep_log_starts<A: ReplicaAccess + ?Sized>(&mut self, access: &A) {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = match self.sweep_from.take() {
            Some(key) => Excluded(key),
            None => Unbounded,
        };
        let mut moved = Vec::new();
        let mut last = None;
        for (key, state) in self.partitions.range((from, Unbounded)).take(LOG_START_SWEEP) {
            last = Some(key);
            if state.is_ready_for_fetch()
                && let Ok(log) = access.log(&state.partition)
                && log.log_start_offset != state.log_start_offset
            {
                moved.push((key.clone(), log.log_start_offset));
            }
        }
        self.sweep_from = last.cloned();
        for (key, log_start_offset) in moved {
            if let Some(state) = self.partitions.get_mut(&key) {
                state.log_start_offset = log_start_offset;
            }
            self.offer(&key);
        }
    }
}
