//! The life of one connection: read a frame, answer it, read the next. One request is in flight at a
//! time, so answers keep the order of requests however long one of them waits (rule P05).
//!
//! While a request waits, the socket is still read a little way ahead: that is how a client that left
//! is noticed, which cancels what waits for it. What the client sent before it left is still worked on,
//! as a producer with acks=0 may count on. With more read ahead than the buffer takes, the end is seen
//! only when the request is answered.

use std::future::pending;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};

use bytes::Bytes;
use protocol::frame::{FrameError, RequestStart, encode_response};
use protocol::messages::{ApiVersionsResponse, ResponseBody, api_versions_response::ApiVersion};
use protocol::{ApiKey, EncodeError, ErrorCode};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::counters::NetworkCounters;
use super::inbound::Inbound;
use super::laps::Laps;
use super::limits::Place;
use super::request_slot::{Outcome, RequestSlot};
use super::service::{ConnectionInfo, RequestContext, RequestService};
use super::stream::Stream;
use super::writer::{SendError, Sent};
use crate::metrics::{Ended, Observer};

/// Bytes of a refused client that are taken from the socket before it closes. Unread bytes would make the
/// close a reset, which can overtake the answers before it (rule P02).
const DRAIN_BYTES: usize = 1024 * 1024;
/// A request beyond this may take long to work on: see [`on_this_thread`].
const LARGE_REQUEST_BYTES: usize = 256 * 1024;

/// What a connection shares with the server: how to name it, stop it, and tell how busy it is.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    pub(super) info: Arc<ConnectionInfo>,
    pub(super) slot: Arc<RequestSlot>,
    /// Milliseconds after the server's start at which bytes last moved.
    pub(super) last_active_ms: AtomicU64,
}

/// What all connections of a server use.
pub(super) struct ConnectionShared {
    pub(super) service: Arc<dyn RequestService>,
    pub(super) counters: Arc<NetworkCounters>,
    pub(super) observer: Arc<Observer>,
    pub(super) max_request_bytes: usize,
    pub(super) max_idle: Duration,
    pub(super) started: Instant,
}

/// What a size that is no size tells about the client: the four bytes are the beginning of something else.
fn guess(error: &FrameError) -> &'static str {
    match error {
        FrameError::TooLarge { size: 0x1603_0000..=0x1603_04ff, .. } => {
            "; it begins like TLS, which this listener does not have"
        }
        FrameError::TooLarge { size, .. } if matches!(*size, HTTP_GET | HTTP_POST) => {
            "; it begins like HTTP"
        }
        _ => "",
    }
}

/// `GET ` and `POST` read as sizes.
const HTTP_GET: usize = 0x4745_5420;
const HTTP_POST: usize = 0x504f_5354;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ending {
    #[error("the client closed it")]
    ByClient,
    #[error("the client closed it within a request")]
    WithinRequest,
    #[error("nothing moved for too long")]
    Idle,
    #[error("the server stops")]
    Stopping,
    #[error("its keys have encrypted as much as they should")]
    WornOut,
    #[error("request refused: {}{}", .0, guess(.0))]
    Refused(#[from] FrameError),
    #[error("version {version} of {api_key} is not served here")]
    NotServed { api_key: ApiKey, version: i16 },
    #[error("the handler of {api_key} closed it")]
    ByHandler { api_key: ApiKey },
    #[error("the answer to {api_key} cannot be written in version {version}: {error}")]
    Unwritable { api_key: ApiKey, version: i16, error: EncodeError },
    #[error("reading failed: {0}")]
    Read(io::Error),
    #[error(transparent)]
    Send(#[from] SendError),
}

/// One connection, driven by [`Connection::run`].
pub(super) struct Connection {
    stream: Stream,
    inbound: Inbound,
    handle: Arc<ConnectionHandle>,
    shared: Arc<ConnectionShared>,
    last_active: Instant,
    idle: Pin<Box<Sleep>>,
    /// Held until the connection is gone.
    _place: Place,
}

/// What is needed to answer a request whose body has been handed on.
struct Pending {
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl Connection {
    pub(super) fn new(
        stream: Stream,
        handle: Arc<ConnectionHandle>,
        shared: Arc<ConnectionShared>,
        place: Place,
    ) -> Connection {
        let last_active = Instant::now();
        Connection {
            stream,
            inbound: Inbound::new(shared.max_request_bytes),
            idle: Box::pin(tokio::time::sleep(shared.max_idle)),
            handle,
            shared,
            last_active,
            _place: place,
        }
    }

    /// Serves the connection to its end.
    pub(super) async fn run(mut self) {
        let ending = loop {
            let frame = match self.next_frame().await {
                Ok(frame) => frame,
                Err(ending) => break ending,
            };
            if let Err(ending) = self.serve(frame).await {
                break ending;
            }
        };
        self.handle.slot.cancel();
        if !matches!(ending, Ending::Read(_) | Ending::Send(_)) {
            self.stream.say_goodbye().await;
        }
        self.finish(&ending);
    }

    fn finish(&self, ending: &Ending) {
        let (info, counters) = (&self.handle.info, &self.shared.counters);
        match ending {
            Ending::Refused(_) | Ending::NotServed { .. } => {
                counters.requests_refused.add(1);
                tracing::info!(peer = %info.peer, listener = %info.listener, "closing a connection: {ending}");
            }
            Ending::Send(SendError::Disk { region, error }) => {
                counters.disk_errors.add(1);
                tracing::error!(peer = %info.peer, "closing a connection: {ending}");
                self.shared.service.on_disk_error(region, error);
            }
            Ending::Unwritable { .. } => {
                tracing::error!(peer = %info.peer, "closing a connection: {ending}");
            }
            Ending::Idle => {
                counters.connections_expired.add(1);
                tracing::debug!(peer = %info.peer, "closing a connection: {ending}");
            }
            _ => tracing::debug!(peer = %info.peer, "closing a connection: {ending}"),
        }
        self.drain();
    }

    /// Takes what the client already sent out of the socket, so that closing is no reset.
    fn drain(&self) {
        let mut scratch = [0; 4096];
        let mut left = DRAIN_BYTES;
        while let Ok(read @ 1..) = self.stream.socket().try_read(&mut scratch) {
            left = left.saturating_sub(read);
            if left == 0 {
                return;
            }
        }
    }

    /// The next frame, from the buffer or the socket. An empty one has no header and is refused like any
    /// other that cannot be read (rule P03).
    async fn next_frame(&mut self) -> Result<Bytes, Ending> {
        loop {
            if self.handle.slot.is_stopping() {
                return Err(Ending::Stopping);
            }
            match self.inbound.take_frame()? {
                Some(frame) => return Ok(frame),
                None if self.stream.is_worn_out() => return Err(Ending::WornOut),
                None if !self.inbound.has_ended() => self.read_more().await?,
                None if self.inbound.is_empty() => return Err(Ending::ByClient),
                None => return Err(Ending::WithinRequest),
            }
        }
    }

    /// Reads once, unless nothing comes for too long or the server stops.
    async fn read_more(&mut self) -> Result<(), Ending> {
        loop {
            tokio::select! {
                biased;
                read = self.inbound.read(&mut self.stream) => {
                    let read = read.map_err(Ending::Read)?;
                    self.note_received(read);
                    return Ok(());
                }
                () = self.handle.slot.stop_requested() => return Err(Ending::Stopping),
                () = self.idle.as_mut() => {
                    // The timer is not moved at every read; it looks here how long ago the last one was.
                    let expires = self.last_active + self.shared.max_idle;
                    if expires <= Instant::now() {
                        return Err(Ending::Idle);
                    }
                    self.idle.as_mut().reset(expires);
                }
            }
        }
    }

    fn note_received(&mut self, bytes: usize) {
        self.shared.counters.bytes_received.add(bytes as u64);
        self.note_active();
    }

    fn note_active(&mut self) {
        self.last_active = Instant::now();
        let since_start = self.last_active.duration_since(self.shared.started).as_millis() as u64;
        self.handle.last_active_ms.store(since_start, Ordering::Relaxed);
    }

    /// Answers one request.
    async fn serve(&mut self, frame: Bytes) -> Result<(), Ending> {
        let size_bytes = frame.len();
        let mut laps = Laps::start(self.shared.observer.is_on());
        let start = RequestStart::read(frame)?;
        let pending = Pending {
            api_key: start.api_key,
            version: start.response_version(),
            correlation_id: start.header.correlation_id,
        };
        self.shared.counters.requests.add(1);
        if start.is_unknown_api_versions() {
            return self.answer(&pending, &unknown_api_versions(), &mut Sent::default()).await;
        }
        let (api_key, api_version) = (start.api_key, start.api_version);
        let info = &self.handle.info;
        if !self.shared.service.serves(&info.listener, api_key, api_version) {
            return Err(Ending::NotServed { api_key, version: api_version });
        }
        let client_id = start.header.client_id.clone();
        let body = on_this_thread(size_bytes, || start.read_body())?;

        let (reply, cancellation) = self.handle.slot.begin();
        let context = RequestContext {
            connection: Arc::clone(info),
            api_key,
            api_version,
            correlation_id: pending.correlation_id,
            client_id,
            size_bytes,
            cancellation,
        };
        let observed = laps.are_on().then(|| self.shared.observer.begin(&context, &body));
        laps.times.queue = laps.lap();
        on_this_thread(size_bytes, || self.shared.service.call(context, body, reply));
        laps.times.local = laps.lap();
        let outcome = match self.handle.slot.try_take() {
            Some(outcome) => outcome,
            None => {
                let (outcome, given) = self.wait_for_outcome().await?;
                laps.times.remote = laps.lap_until(given);
                laps.times.response_queue = laps.lap();
                outcome
            }
        };
        let mut sent = Sent::default();
        let (result, response) = match &outcome {
            Outcome::Answer(body) => {
                let result = self.answer(&pending, body, &mut sent).await;
                laps.times.send = laps.lap();
                (result, Some(body))
            }
            Outcome::NoResponse => (Ok(()), None),
            Outcome::Close => (Err(Ending::ByHandler { api_key }), None),
        };
        if let Some(observed) = observed {
            let ended = Ended { times: laps.times, response, response_bytes: sent.bytes };
            self.shared.observer.end(observed, &ended);
        }
        result
    }

    /// Waits for the outcome, with the time it was given, and watches the client meanwhile.
    async fn wait_for_outcome(&mut self) -> Result<(Outcome, Option<StdInstant>), Ending> {
        let slot = Arc::clone(&self.handle.slot);
        loop {
            let watched = tokio::select! {
                biased;
                outcome = slot.outcome() => return Ok(outcome),
                watched = read_ahead(&mut self.inbound, &mut self.stream) => watched,
            };
            if let ControlFlow::Continue(read) = watched {
                self.note_received(read);
                continue;
            }
            // The client is gone, or sends no more: whoever works for it may stop. Broken connections take
            // no answer at all; after an orderly end the client may still be reading.
            slot.cancel();
            if let ControlFlow::Break(Some(error)) = watched {
                return Err(Ending::Read(error));
            }
        }
    }

    async fn answer(
        &mut self,
        pending: &Pending,
        body: &ResponseBody,
        sent: &mut Sent,
    ) -> Result<(), Ending> {
        let Pending { api_key, version, correlation_id } = *pending;
        let parts = encode_response(correlation_id, api_key, version, body)
            .map_err(|error| Ending::Unwritable { api_key, version, error })?;
        let result = self.stream.send(parts, self.shared.max_idle, sent).await;
        self.shared.counters.bytes_sent_by_write.add(sent.bytes - sent.by_sendfile);
        self.shared.counters.bytes_sent_by_sendfile.add(sent.by_sendfile);
        self.note_active();
        Ok(result?)
    }
}

/// Does the work of a request of that size. A large one may keep its thread for seconds, and as many of
/// them as there are threads would keep all other connections, the heartbeats and the replication
/// waiting; so the runtime is told to put another thread in this one's place meanwhile.
fn on_this_thread<T>(size_bytes: usize, work: impl FnOnce() -> T) -> T {
    // Only runtimes of several threads have others to give the work of this one to.
    let has_others =
        || Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread;
    if size_bytes > LARGE_REQUEST_BYTES && has_others() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Reads while a request is in flight: how much came, or an end with its error if it was not orderly.
/// Waits for ever when no more may be read.
async fn read_ahead(
    inbound: &mut Inbound,
    stream: &mut Stream,
) -> ControlFlow<Option<io::Error>, usize> {
    if !inbound.may_read_ahead() {
        return pending().await;
    }
    match inbound.read(stream).await {
        Ok(0) => ControlFlow::Break(None),
        Ok(read) => ControlFlow::Continue(read),
        Err(error) => ControlFlow::Break(Some(error)),
    }
}

/// The answer to an ApiVersions request of a version that does not exist: the versions of ApiVersions
/// itself, so that the client can ask again (rule P01, KIP-511).
fn unknown_api_versions() -> ResponseBody {
    let versions = ApiKey::ApiVersions.served_versions();
    ResponseBody::ApiVersions(ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![ApiVersion {
            api_key: ApiKey::ApiVersions.to_i16(),
            min_version: *versions.start(),
            max_version: *versions.end(),
            ..Default::default()
        }],
        ..Default::default()
    })
}
