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
use crate::request::{FETCH_VERSION, LIST_OFFSETS_VERSION};
use bytes::{BufMut, Bytes, BytesMut};
use protocol::frame::{self, FrameError, SIZE_PREFIX_BYTES};
use protocol::messages::FetchResponse;
use protocol::{
    ApiKey, BrokerEpoch, EncodeError, NodeId, Records, RequestBody, ResponseBody, TopicIdPartition,
};
use replication::time::Instant;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

/// Room for an answer's size and a small body.
const FIRST_READ_BYTES: usize = 16 * 1024;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionConfig {
    /// `replica.socket.timeout.ms`: how long to wait for a connection, and for an answer beyond the
    /// time that the leader may hold it back.
    pub timeout: Duration,
    /// The largest answer accepted, in bytes.
    pub max_frame_bytes: usize,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_frame_bytes: i32::MAX as usize }
    }
}

/// Why a round trip failed. The core backs off; the next one connects anew.
#[derive(Debug, thiserror::Error)]
enum RoundTripError {
    #[error("the leader's address is not known")]
    NoEndpoint,
    #[error("timed out")]
    TimedOut,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("an answer of another API")]
    WrongApi,
    #[error("more bytes than the one answer asked for")]
    Surplus,
}

/// One fetcher: its core, and the loop that drives it.
pub struct Fetcher<A, E> {
    core: Mutex<FetcherCore>,
    access: Arc<A>,
    environment: Arc<E>,
    connection: ConnectionConfig,
    changed: Notify,
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
        let mut stream: Option<TcpStream> = None;
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
                Ok(response) => self.apply(response).await,
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
        stream: &mut Option<TcpStream>,
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
            connected,
            request,
            correlation_id,
            &client_id,
            self.connection.max_frame_bytes,
        );
        tokio::time::timeout(limit, exchange).await.map_err(|_| RoundTripError::TimedOut)?
    }

    async fn connect(&self, leader: NodeId) -> Result<TcpStream, RoundTripError> {
        let (host, port) = self.environment.endpoint(leader).ok_or(RoundTripError::NoEndpoint)?;
        let connecting = TcpStream::connect((host.as_str(), port));
        let stream = tokio::time::timeout(self.connection.timeout, connecting)
            .await
            .map_err(|_| RoundTripError::TimedOut)??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// The bytes of all records in an answer.
fn records_bytes(fetch: &FetchResponse) -> usize {
    let partitions = fetch.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.filter_map(|partition| partition.records.as_ref()).map(Records::len).sum()
}

/// Sends one request and reads its answer.
async fn exchange(
    stream: &mut TcpStream,
    request: FetcherRequest,
    correlation_id: i32,
    client_id: &str,
    max_frame_bytes: usize,
) -> Result<FetcherResponse, RoundTripError> {
    let (api_key, version, body) = match request {
        FetcherRequest::Fetch(fetch) => (ApiKey::Fetch, FETCH_VERSION, RequestBody::Fetch(fetch)),
        FetcherRequest::ListOffsets(list) => {
            (ApiKey::ListOffsets, LIST_OFFSETS_VERSION, RequestBody::ListOffsets(list))
        }
    };
    let header = frame::request_header(api_key, version, correlation_id, Some(client_id));
    let bytes = protocol::join_parts(frame::encode_request(header, &body)?)?;
    stream.write_all(&bytes).await?;
    let frame = read_frame(stream, max_frame_bytes).await?;
    match frame::decode_response(frame, correlation_id, api_key, version)? {
        ResponseBody::Fetch(fetch) => Ok(FetcherResponse::Fetch(fetch)),
        ResponseBody::ListOffsets(list) => Ok(FetcherResponse::ListOffsets(list)),
        _ => Err(RoundTripError::WrongApi),
    }
}

/// Reads one frame; what is decoded from it are slices of the buffer. With one request in flight nothing
/// follows the frame, so its size and a small body come with one read.
async fn read_frame(stream: &mut TcpStream, max_bytes: usize) -> Result<Bytes, RoundTripError> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    let size = loop {
        if let Some(prefix) = buffer.first_chunk::<SIZE_PREFIX_BYTES>() {
            break frame::check_frame_size(*prefix, max_bytes)?;
        }
        read_some(stream, &mut buffer, FIRST_READ_BYTES).await?;
    };
    let whole = SIZE_PREFIX_BYTES + size;
    // Grown as bytes arrive: a size that is not true costs no memory.
    buffer.reserve(whole.min(16 * 1024 * 1024).saturating_sub(buffer.len()));
    while buffer.len() < whole {
        let missing = whole - buffer.len();
        if buffer.capacity() == buffer.len() {
            buffer.reserve(buffer.len().min(missing));
        }
        read_some(stream, &mut buffer, missing).await?;
    }
    if buffer.len() > whole {
        return Err(RoundTripError::Surplus);
    }
    Ok(buffer.freeze().split_off(SIZE_PREFIX_BYTES))
}

/// Reads at least a byte and at most so many.
async fn read_some(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    at_most: usize,
) -> Result<(), RoundTripError> {
    match stream.read_buf(&mut buffer.limit(at_most)).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        _ => Ok(()),
    }
}
