//! What a simulated node's core sees of its host: everything it asks for is put into an outbox, which
//! the world empties after each step. Nothing here calls back into the core, but for the fetchers,
//! which obey at once (T10).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use broker::core::host::{ControllerLink, ControllerReply, FetcherLink, FollowedPartition};
use broker::core::replicas::ReplicaManager;
use broker::core::{ClientGone, Outcome};
use fetcher::{FetcherConfig, FetcherCore, FetcherKey, FetcherManager, Follow, Plan};
use parking_lot::Mutex;
use protocol::{NodeId, RequestBody, TopicIdPartition};
use replication::time::{Instant, Now};
use replication::trace::{Event, TraceSink};

use super::clock::SimClock;
use super::disk::SimDisk;

/// Something the core wants of the world.
pub(super) enum Action {
    /// A request to the active controller.
    Call { version: i16, request: RequestBody, timeout: Duration, reply: ControllerReply },
    /// To be called by then.
    WakeBy(Instant),
    /// The outcome of the Kafka request with this number.
    Answer(u64, Outcome),
    /// The request with this number was given up by a fetcher.
    Abandon(u64),
}

/// What a node's core wants, in order.
#[derive(Clone, Default)]
pub(super) struct Outbox {
    actions: Arc<Mutex<Vec<Action>>>,
}

impl Outbox {
    pub(super) fn push(&self, action: Action) {
        self.actions.lock().push(action);
    }

    pub(super) fn take(&self) -> Vec<Action> {
        std::mem::take(&mut *self.actions.lock())
    }
}

impl ControllerLink for Outbox {
    fn call(&self, version: i16, request: RequestBody, timeout: Duration, reply: ControllerReply) {
        self.push(Action::Call { version, request, timeout, reply });
    }
}

/// One event of the run.
#[derive(Clone, Debug)]
pub struct TraceEntry {
    /// When it happened, by the node's clocks.
    pub at: Now,
    /// Where.
    pub node: NodeId,
    /// What.
    pub event: Event,
}

/// The run's events, from all nodes, in order.
#[derive(Clone, Default)]
pub struct SimTrace {
    entries: Arc<Mutex<Vec<TraceEntry>>>,
}

impl std::fmt::Debug for SimTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimTrace({} events)", self.len())
    }
}

impl SimTrace {
    /// How many events there are.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events from place `from` on.
    pub fn since(&self, from: usize) -> Vec<TraceEntry> {
        self.entries.lock().get(from..).unwrap_or_default().to_vec()
    }
}

impl TraceSink for SimTrace {
    fn emit(&self, at: Now, node: NodeId, event: Event) {
        self.entries.lock().push(TraceEntry { at, node, event });
    }
}

/// The connections of requests that a broker works on: who is gone frees what waits for him (P05).
#[derive(Clone, Default)]
pub(super) struct Connections {
    waiting: Arc<Mutex<BTreeMap<u64, Callbacks>>>,
}

type Callbacks = Vec<Box<dyn FnOnce() + Send>>;

impl Connections {
    pub(super) fn opened(&self, request: u64) {
        self.waiting.lock().insert(request, Vec::new());
    }

    pub(super) fn answered(&self, request: u64) {
        self.waiting.lock().remove(&request);
    }

    /// The client of this request is gone.
    pub(super) fn gone(&self, request: u64) {
        let callbacks = self.waiting.lock().remove(&request);
        for callback in callbacks.into_iter().flatten() {
            callback();
        }
    }

    /// All clients are gone: the node dies.
    pub(super) fn all_gone(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for callback in waiting.into_values().flatten() {
            callback();
        }
    }
}

/// One request's connection, as the core sees it.
pub(super) struct Connection {
    pub(super) request: u64,
    pub(super) connections: Connections,
}

impl ClientGone for Connection {
    fn on_gone(&self, callback: Box<dyn FnOnce() + Send>) {
        let mut waiting = self.connections.waiting.lock();
        match waiting.get_mut(&self.request) {
            Some(callbacks) => callbacks.push(callback),
            None => {
                drop(waiting);
                callback();
            }
        }
    }
}

/// A fetcher and the number of its request on the way.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) core: FetcherCore,
    pub(super) request: Option<u64>,
}

#[derive(Debug)]
struct FetcherState {
    manager: FetcherManager,
    slots: BTreeMap<FetcherKey, Slot>,
}

type Change = (Vec<TopicIdPartition>, Vec<FollowedPartition>);

/// A node's fetchers.
pub struct SimFetchers {
    state: Mutex<FetcherState>,
    /// Changes asked for while an answer was being applied.
    deferred: Mutex<Vec<Change>>,
    access: OnceLock<Weak<ReplicaManager<SimDisk>>>,
    config: FetcherConfig,
    clock: SimClock,
    outbox: Outbox,
}

impl std::fmt::Debug for SimFetchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimFetchers")
    }
}

impl SimFetchers {
    pub(super) fn new(config: FetcherConfig, clock: SimClock, outbox: Outbox) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(FetcherState {
                manager: FetcherManager::new(1),
                slots: BTreeMap::new(),
            }),
            deferred: Mutex::new(Vec::new()),
            access: OnceLock::new(),
            config,
            clock,
            outbox,
        })
    }

    pub(super) fn set_access(&self, replicas: &Arc<ReplicaManager<SimDisk>>) {
        let _ = self.access.set(Arc::downgrade(replicas));
    }

    pub(super) fn access(&self) -> Option<Arc<ReplicaManager<SimDisk>>> {
        self.access.get().and_then(Weak::upgrade)
    }

    /// Runs `work` over every fetcher; what the work asks to change is done after it.
    pub(super) fn with_slots<T>(
        &self,
        work: impl FnOnce(&mut BTreeMap<FetcherKey, Slot>) -> T,
    ) -> T {
        let result = work(&mut self.state.lock().slots);
        loop {
            let deferred = std::mem::take(&mut *self.deferred.lock());
            if deferred.is_empty() {
                return result;
            }
            for (stop, start) in deferred {
                self.change(stop, start);
            }
        }
    }

    /// Who this node fetches a partition from, by the fetchers themselves.
    pub fn sources(&self, partition: &TopicIdPartition) -> Vec<NodeId> {
        let state = self.state.lock();
        state
            .slots
            .iter()
            .filter(|(_, slot)| slot.core.partition(partition).is_some())
            .map(|(key, _)| key.leader)
            .collect()
    }

    fn carry_out(&self, state: &mut FetcherState, plan: Plan) {
        let Some(access) = self.access() else {
            return;
        };
        let now = self.clock.read().monotonic;
        for (key, partitions) in &plan.removals {
            if let Some(slot) = state.slots.get_mut(key) {
                slot.core.remove_partitions(partitions);
            }
        }
        for (key, assignments) in plan.additions {
            let config = self.config;
            let slot = state.slots.entry(key).or_insert_with(|| Slot {
                core: FetcherCore::new(key.leader, key.fetcher_id, config),
                request: None,
            });
            slot.core.add_partitions(&*access, assignments, now);
        }
        for key in plan.idle {
            if let Some(slot) = state.slots.remove(&key)
                && let Some(request) = slot.request
            {
                self.outbox.push(Action::Abandon(request));
            }
        }
    }
}

impl FetcherLink for SimFetchers {
    fn change(&self, stop: Vec<TopicIdPartition>, start: Vec<FollowedPartition>) {
        let Some(mut state) = self.state.try_lock() else {
            self.deferred.lock().push((stop, start));
            return;
        };
        let plan = state.manager.unfollow(&stop);
        self.carry_out(&mut state, plan);
        let follows = start.into_iter().map(|followed| Follow {
            partition: followed.partition,
            leader: followed.leader,
            leader_epoch: followed.leader_epoch,
        });
        let plan = state.manager.follow(follows.collect::<Vec<_>>());
        self.carry_out(&mut state, plan);
    }
}
