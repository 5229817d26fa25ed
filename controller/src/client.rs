//! How a broker talks to the controllers: one [`ControllerClient`] per process, which knows all of
//! them, keeps to the one that leads, and asks again elsewhere when that changes.
//!
//! A call may be carried out more than once: when a connection breaks after a request was sent, the
//! answer is asked for again. Everything that brokers ask tolerates it, by broker epoch, partition
//! epoch, incarnation or name (Q07).

mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::messages::{Request, RequestBody, ResponseBody, WrongApi};
use protocol::types::{NodeId, Offset};
use protocol::{DecodeError, EncodeError, ErrorCode};
use tokio::time::Instant;
use tonic::transport::Channel;

pub use crate::rpc::proto::CallContext;
use crate::rpc::proto::control_client::ControlClient;
use crate::rpc::proto::{CallRequest, CallResponse};
use crate::rpc::{MAX_GRPC_MESSAGE_BYTES, peers, secure};

pub use stream::{MetadataStream, MetadataUpdate};

/// What a client needs to know.
#[derive(Clone, Debug)]
pub struct ControllerClientConfig {
    /// The cluster; controllers of another one refuse.
    pub cluster_id: String,
    /// This node.
    pub node_id: NodeId,
    /// All controllers, as `host:port` of their gRPC service.
    pub controllers: Vec<(NodeId, String)>,
    /// How long one controller is waited for before another is asked.
    pub attempt_timeout: Duration,
    /// The pause before the same question is asked again, at first; it doubles up to
    /// `longest_backoff`.
    pub backoff: Duration,
    /// The longest pause.
    pub longest_backoff: Duration,
    /// The TLS of the controllers' listener, if it has any.
    pub tls: Option<crate::handshake::Connector>,
}

impl ControllerClientConfig {
    /// Kafka's `controller.quorum.request.timeout.ms` (2 s) per attempt, and
    /// `controller.quorum.retry.backoff.ms` (20 ms) as the first pause.
    pub fn new(
        cluster_id: impl Into<String>,
        node_id: NodeId,
        controllers: Vec<(NodeId, String)>,
    ) -> Self {
        Self {
            cluster_id: cluster_id.into(),
            node_id,
            controllers,
            attempt_timeout: Duration::from_millis(2000),
            backoff: Duration::from_millis(20),
            longest_backoff: Duration::from_millis(500),
            tls: None,
        }
    }
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody answered in time; whether the request was carried out is not known.
    #[error("no controller answered in time, the last one said: {last}")]
    TimedOut {
        /// What the last attempt met.
        last: String,
    },
    /// The active controller refused the request as a whole.
    #[error("the controller refused: {} ({message})", code.kafka_name())]
    Refused {
        /// Kafka's error.
        code: ErrorCode,
        /// The controller's words.
        message: String,
    },
    /// The controllers belong to another cluster.
    #[error("{0}")]
    WrongCluster(String),
    /// The request does not exist in that version.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The answer is not what the version says.
    #[error("a controller's answer: {0}")]
    Decode(#[from] DecodeError),
    /// The answer belongs to another API.
    #[error(transparent)]
    WrongApi(#[from] WrongApi),
    /// No controllers are configured, or an address is none.
    #[error("controller addresses: {0}")]
    Address(String),
}

/// A client of all controllers. Cheap to clone; clones share connections and what they learn.
#[derive(Clone)]
pub struct ControllerClient {
    shared: Arc<Shared>,
}

struct Shared {
    config: ControllerClientConfig,
    channels: Vec<(NodeId, Channel)>,
    route: Mutex<Route>,
}

/// Whom to ask next.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    /// The leader and its epoch, as last heard.
    leader: Option<(NodeId, i32)>,
    /// Which controller to try while none is known to lead.
    next: usize,
}

/// What one attempt came to, when it was no answer.
enum Attempt {
    /// Ask again, perhaps elsewhere.
    Retry(String),
    Final(CallError),
}

impl ControllerClient {
    /// A client of `config.controllers`. Connects when first used.
    ///
    /// # Errors
    /// [`CallError::Address`] when there are none or one cannot be an address.
    pub fn new(config: ControllerClientConfig) -> Result<Self, CallError> {
        if config.controllers.is_empty() {
            return Err(CallError::Address("none configured".to_owned()));
        }
        let mut channels = Vec::with_capacity(config.controllers.len());
        for (id, address) in &config.controllers {
            let endpoint = peers::endpoint(address)
                .map_err(|error| CallError::Address(format!("{address}: {error}")))?;
            channels.push((*id, secure::connect_lazy(endpoint, config.tls.as_ref())));
        }
        let route = Mutex::new(Route::default());
        Ok(Self { shared: Arc::new(Shared { config, channels, route }) })
    }

    /// The controller that leads, as last heard.
    pub fn leader(&self) -> Option<NodeId> {
        self.shared.route.lock().leader.map(|(id, _)| id)
    }

    /// Asks the active controller for this node's own sake, and waits at most `patience` in all.
    ///
    /// # Errors
    /// [`CallError`] when there is no answer.
    pub async fn call<R: Request>(
        &self,
        api_version: i16,
        request: R,
        patience: Duration,
    ) -> Result<R::Response, CallError> {
        let body = request.into();
        let response = self.call_as(&self.own_context(), api_version, &body, patience).await?;
        Ok(R::Response::try_from(response)?)
    }

    /// As [`ControllerClient::call`] with any body, on behalf of `context`.
    ///
    /// # Errors
    /// [`CallError`] when there is no answer.
    pub async fn call_as(
        &self,
        context: &CallContext,
        api_version: i16,
        body: &RequestBody,
        patience: Duration,
    ) -> Result<ResponseBody, CallError> {
        let api_key = body.api_key();
        let request = CallRequest {
            cluster_id: self.shared.config.cluster_id.clone(),
            api_key: i32::from(api_key as i16),
            api_version: i32::from(api_version),
            body: body.to_bytes(api_version)?,
            context: Some(context.clone()),
        };
        let bytes = self.call_bytes(request, patience).await?;
        Ok(ResponseBody::from_bytes(api_key, api_version, bytes)?)
    }

    /// The context of requests that this node makes itself.
    pub fn own_context(&self) -> CallContext {
        CallContext { broker_id: self.shared.config.node_id.get(), ..Default::default() }
    }

    async fn call_bytes(
        &self,
        request: CallRequest,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + patience;
        let mut backoff = self.shared.config.backoff;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let attempt = left.min(self.shared.config.attempt_timeout);
            let target = self.shared.target();
            let mut timed = tonic::Request::new(request.clone());
            timed.set_timeout(attempt);
            let call = async {
                let mut client = self.shared.client(target);
                client.call(timed).await
            };
            let outcome = match tokio::time::timeout(attempt, call).await {
                Ok(Ok(response)) => self.shared.judge(target, response.into_inner()),
                Ok(Err(status)) => self.shared.judge_status(target, &status),
                Err(_) => {
                    self.shared.move_on(target);
                    Err(Attempt::Retry("no answer in time".to_owned()))
                }
            };
            let last = match outcome {
                Ok(bytes) => return Ok(bytes),
                Err(Attempt::Final(error)) => return Err(error),
                Err(Attempt::Retry(reason)) => reason,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left <= backoff {
                return Err(CallError::TimedOut { last });
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(self.shared.config.longest_backoff);
        }
    }

    /// The committed metadata from `from` on (0 for everything), kept up over failures and changes
    /// of leader until the stream is dropped.
    pub fn metadata_stream(&self, from: Offset) -> MetadataStream {
        MetadataStream::start(self.shared.clone(), from)
    }
}

impl Shared {
    fn client(&self, target: usize) -> ControlClient<Channel> {
        ControlClient::new(self.channels[target].1.clone())
            .max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_GRPC_MESSAGE_BYTES)
    }

    /// The place in `channels` of the controller to ask.
    fn target(&self) -> usize {
        let route = *self.route.lock();
        let leads =
            |(id, _): &(NodeId, Channel)| route.leader.is_some_and(|(known, _)| known == *id);
        self.channels.iter().position(leads).unwrap_or(route.next % self.channels.len())
    }

    /// Learns who leads; what is older than what is known is ignored.
    fn learn(&self, leader: i32, epoch: i32) {
        let mut route = self.route.lock();
        if leader >= 0 && route.leader.is_none_or(|(_, known)| epoch >= known) {
            route.leader = Some((NodeId(leader), epoch));
        }
    }

    /// Gives up on `target` for now.
    fn move_on(&self, target: usize) {
        let id = self.channels[target].0;
        let mut route = self.route.lock();
        if route.leader.is_some_and(|(leader, _)| leader == id) {
            route.leader = None;
        }
        route.next = (target + 1) % self.channels.len();
    }

    fn judge(&self, target: usize, response: CallResponse) -> Result<Bytes, Attempt> {
        let code = i16::try_from(response.error_code)
            .map_or(ErrorCode::UnknownServerError, ErrorCode::from_code);
        match code {
            ErrorCode::None => {
                self.learn(self.channels[target].0.get(), response.leader_epoch);
                Ok(response.body)
            }
            ErrorCode::NotController => {
                self.move_on(target);
                self.learn(response.leader_id, response.leader_epoch);
                Err(Attempt::Retry(response.error_message))
            }
            // The controller has more work than it takes.
            ErrorCode::RequestTimedOut => Err(Attempt::Retry(response.error_message)),
            code => {
                let message = response.error_message;
                Err(Attempt::Final(CallError::Refused { code, message }))
            }
        }
    }

    fn judge_status<T>(&self, target: usize, status: &tonic::Status) -> Result<T, Attempt> {
        let message = status.message().to_owned();
        match status.code() {
            tonic::Code::FailedPrecondition => {
                Err(Attempt::Final(CallError::WrongCluster(message)))
            }
            tonic::Code::OutOfRange => Err(Attempt::Final(CallError::Refused {
                code: ErrorCode::MessageTooLarge,
                message,
            })),
            _ => {
                self.move_on(target);
                Err(Attempt::Retry(message))
            }
        }
    }
}
