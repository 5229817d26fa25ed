//! Drives one [`FetcherCore`] over TCP: connect to the leader's inter-broker listener, send what the
//! core wants, hand back what comes. Decides nothing about replication.
//!
//! The core sits behind a lock that is held while an answer is appended, so that
//! [`Fetcher::remove_partitions`] returns only when no answer can touch the log any more (T10).
//! A large answer is applied on a blocking thread, since appending writes to disk; a small one at once,
//! as the leader's own appends are, for the way to another thread and back would cost more than the
//! write. The bytes appended are slices of the frame as it was read.

use crate::access::ReplicaAccess;
use crate::core::{FetcherCore, FetcherRequest, FetcherResponse};
use crate::partition::{FetchState, FollowAssignment};
use crate::wire::{Dial, RoundTripError, Wire, connect, exchange};
use protocol::messages::FetchResponse;
use protocol::{BrokerEpoch, NodeId, Records, TopicIdPartition};
use replication::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The most bytes that are appended without another thread.
const APPLIED_AT_ONCE_BYTES: usize = 1024 * 1024;

/// What the loop needs of the broker around it.
pub trait FetcherEnvironment: Send + Sync {
    /// Host and port of a node's inter-broker listener; `None` while the metadata lacks it.
    fn endpoint(&self, node: NodeId) -> Option<(String, u16)>;
    /// The epoch of this broker's registration (KIP-903).
    fn broker_epoch(&self) -> BrokerEpoch;
    /// The host's monotonic clock.
    fn now(&self) -> Instant;
}

/// Settings of the connection.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// `replica.socket.timeout.ms`: how long to wait for a connection, and for an answer beyond the
    /// time that the leader may hold it back.
    pub timeout: Duration,
    /// The largest answer accepted, in bytes.
    pub max_frame_bytes: usize,
    /// The TLS of the inter-broker listener, if it has any.
    pub tls: Option<Arc<dyn Dial>>,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_frame_bytes: i32::MAX as usize, tls: None }
    }
}

/// What a fetcher has fetched so far.
#[derive(Debug, Default)]
pub struct FetcherCounts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl FetcherCounts {
    /// Requests that were answered.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes of records in the answers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, response: &FetcherResponse) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if let FetcherResponse::Fetch(fetch) = response {
            self.bytes.fetch_add(records_bytes(fetch) as u64, Ordering::Relaxed);
        }
    }
}

/// One fetcher: its core, and the loop that drives it.
pub struct Fetcher<A, E> {
    core: Mutex<FetcherCore>,
    access: Arc<A>,
    environment: Arc<E>,
    connection: ConnectionConfig,
    changed: Notify,
    counts: FetcherCounts,
}

impl<A, E> Fetcher<A, E>
where
    A: ReplicaAccess + Send + Sync + 'static,
    E: FetcherEnvironment + 'static,
{
    /// A fetcher around `core`; [`Fetcher::run`] drives it.
    pub fn new(
        core: FetcherCore,
        access: Arc<A>,
        environment: Arc<E>,
        connection: ConnectionConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Mutex::new(core),
            access,
            environment,
            connection,
            changed: Notify::new(),
            counts: FetcherCounts::default(),
        })
    }

    /// See [`FetcherCore::add_partitions`]. May write to disk.
    pub fn add_partitions(&self, assignments: impl IntoIterator<Item = FollowAssignment>) {
        let now = self.environment.now();
        self.core().add_partitions(&*self.access, assignments, now);
        self.changed.notify_one();
    }

    /// See [`FetcherCore::remove_partitions`]. Waits for an append in progress.
    pub fn remove_partitions<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicIdPartition>,
    ) -> Vec<FetchState> {
        self.core().remove_partitions(partitions)
    }

    /// What it has fetched so far.
    pub fn counts(&self) -> &FetcherCounts {
        &self.counts
    }

    /// Looks at the core, for metrics and the trace.
    pub fn inspect<T>(&self, look: impl FnOnce(&FetcherCore) -> T) -> T {
        look(&self.core())
    }

    /// A thread that panicked while it held the core has left it in some state between two inputs;
    /// every input checks what it relies on, so the loop goes on.
    fn core(&self) -> MutexGuard<'_, FetcherCore> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until `shutdown` turns true or its sender is gone.
    pub async fn run(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let mut stream: Option<Box<dyn Wire>> = None;
        let mut correlation_id: i32 = 0;
        while !*shutdown.borrow() {
            let now = self.environment.now();
            let epoch = self.environment.broker_epoch();
            let (request, wakeup) = {
                let mut core = self.core();
                let request = core.poll(&*self.access, epoch, now);
                let wakeup = core.next_wakeup(now);
                (request, wakeup)
            };
            let Some(request) = request else {
                if !self.pause(wakeup.map(|at| at.since(now)), &mut shutdown).await {
                    return;
                }
                continue;
            };
            correlation_id = correlation_id.wrapping_add(1);
            let answer = tokio::select! {
                answer = self.round_trip(&mut stream, request, correlation_id) => answer,
                _ = shutdown.changed() => return,
            };
            match answer {
                Ok(response) => {
                    self.counts.add(&response);
                    self.apply(response).await;
                }
                Err(error) => {
                    stream = None;
                    self.on_failure(&error);
                }
            }
        }
    }

    fn on_failure(&self, error: &RoundTripError) {
        let now = self.environment.now();
        let mut core = self.core();
        tracing::info!(leader = %core.leader(), %error, "no answer from the leader, backing off");
        core.on_request_failed(&*self.access, now);
    }

    /// Waits for new partitions or the next deadline. Answers false on shutdown.
    async fn pause(&self, at_most: Option<Duration>, shutdown: &mut watch::Receiver<bool>) -> bool {
        let sleep = async {
            match at_most {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => true,
            () = sleep => true,
            changed = shutdown.changed() => changed.is_ok(),
        }
    }

    async fn apply(self: &Arc<Self>, response: FetcherResponse) {
        let is_small = match &response {
            FetcherResponse::Fetch(fetch) => records_bytes(fetch) <= APPLIED_AT_ONCE_BYTES,
            FetcherResponse::ListOffsets(_) => false,
        };
        let fetcher = self.clone();
        let apply = move || {
            let now = fetcher.environment.now();
            fetcher.core().on_response(&*fetcher.access, response, now);
        };
        if is_small {
            apply();
        } else if let Err(error) = tokio::task::spawn_blocking(apply).await {
            tracing::error!(%error, "an answer of the leader could not be applied");
            let now = self.environment.now();
            self.core().on_request_failed(&*self.access, now);
        }
    }

    async fn round_trip(
        &self,
        stream: &mut Option<Box<dyn Wire>>,
        request: FetcherRequest,
        correlation_id: i32,
    ) -> Result<FetcherResponse, RoundTripError> {
        let (leader, client_id, max_wait) = {
            let core = self.core();
            let config = &core.config;
            let client_id = format!("broker-{}-fetcher-{}", config.replica_id, core.fetcher_id());
            (core.leader(), client_id, config.max_wait)
        };
        if stream.is_none() {
            *stream = Some(self.connect(leader).await?);
        }
        let Some(connected) = stream.as_mut() else {
            return Err(RoundTripError::NoEndpoint);
        };
        let limit = self.connection.timeout.saturating_add(max_wait);
        let exchange = exchange(
            &mut **connected,
            request,
            correlation_id,
            &client_id,
            self.connection.max_frame_bytes,
        );
        tokio::time::timeout(limit, exchange).await.map_err(|_| RoundTripError::TimedOut)?
    }

    async fn connect(&self, leader: NodeId) -> Result<Box<dyn Wire>, RoundTripError> {
        let (host, port) = self.environment.endpoint(leader).ok_or(RoundTripError::NoEndpoint)?;
        let connecting = connect(&host, port, self.connection.tls.as_deref());
        let connected = tokio::time::timeout(self.connection.timeout, connecting).await;
        connected.map_err(|_| RoundTripError::TimedOut)?
    }
}

/// The bytes of all records in an answer.
fn records_bytes(fetch: &FetchResponse) -> usize {
    let partitions = fetch.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|partition| partition.records.as_ref()).map(Records::len).sum()
}
