//! The Control service over one controller: checks the cluster id, turns bytes into inputs and
//! replies into bytes. Nothing here waits for the disk or holds a lock.

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::{RequestBody, ResponseBody};
use protocol::types::{NodeId, Offset};
use protocol::{ApiKey, ErrorCode};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::host::{CallFailure, ControllerHandle, HostError, Input};
use super::incoming::Speaking;
use super::proto::control_server::{Control, ControlServer};
use super::proto::metadata_frame::Frame;
use super::proto::{
    CallContext, CallRequest, CallResponse, MetadataBatchFrame, MetadataFrame, MetadataRequest,
    MetadataSnapshotChunk, MetadataStatus, RaftClosed, RaftFrame,
};
use super::{
    FRAME_PAYLOAD_BYTES, MAX_GRPC_MESSAGE_BYTES, MAX_RAFT_MESSAGE_BYTES, METADATA_STATUS_INTERVAL,
};
use crate::node::{MetadataRead, NodeStatus, Reply};
use crate::state::RequestContext;

/// Frames of one metadata stream that wait for its reader.
const METADATA_QUEUE: usize = 16;
/// About how much of the log is read for one stream at a time, in bytes.
const METADATA_READ_BYTES: u64 = 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Serves until `stop` fires or is dropped.
pub(super) async fn serve(
    handle: ControllerHandle,
    listener: tokio::net::TcpListener,
    tls: Option<crate::handshake::Acceptor>,
    stop: oneshot::Receiver<()>,
) -> Result<(), HostError> {
    let service = ControlServer::new(Service { handle })
        .max_decoding_message_size(MAX_GRPC_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_GRPC_MESSAGE_BYTES);
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .serve_with_incoming_shutdown(service, Speaking::on(listener, tls), async {
            let _ = stop.await;
        })
        .await
        .map_err(|error| HostError::Service(error.to_string()))
}

struct Service {
    handle: ControllerHandle,
}

impl Service {
    /// Kafka's 104 as a gRPC status: a node of another cluster is told so and goes away.
    fn check_cluster(&self, cluster_id: &str) -> Result<(), Status> {
        if cluster_id == &*self.handle.cluster_id {
            return Ok(());
        }
        let own = &self.handle.cluster_id;
        let code = ErrorCode::InconsistentClusterId.kafka_name();
        let message = format!("{code}: this is cluster {own}, not {cluster_id}");
        tracing::warn!(%message, "refused a node of another cluster");
        Err(Status::failed_precondition(message))
    }
}

#[tonic::async_trait]
impl Control for Service {
    async fn raft(
        &self,
        request: Request<Streaming<RaftFrame>>,
    ) -> Result<Response<RaftClosed>, Status> {
        let mut frames = request.into_inner();
        let mut assembled: Vec<u8> = Vec::new();
        let mut is_known = false;
        let mut stopped = std::pin::pin!(self.handle.stopped());
        loop {
            // A stopped controller's streams end with it, so that its peers look for the next one.
            let frame = tokio::select! {
                frame = frames.message() => frame?,
                () = &mut stopped => return Err(Status::unavailable("the controller stopped")),
            };
            let Some(frame) = frame else { break };
            if !is_known {
                self.check_cluster(&frame.cluster_id)?;
                is_known = true;
            }
            if assembled.is_empty() && !frame.more {
                self.handle.offer(Input::Raft(frame.payload));
                continue;
            }
            if assembled.len() + frame.payload.len() > MAX_RAFT_MESSAGE_BYTES {
                return Err(Status::resource_exhausted("a quorum message is too large"));
            }
            assembled.extend_from_slice(&frame.payload);
            if !frame.more {
                self.handle.offer(Input::Raft(Bytes::from(std::mem::take(&mut assembled))));
            }
        }
        Ok(Response::new(RaftClosed {}))
    }

    async fn call(&self, request: Request<CallRequest>) -> Result<Response<CallResponse>, Status> {
        let request = request.into_inner();
        self.check_cluster(&request.cluster_id)?;
        let version = i16::try_from(request.api_version).unwrap_or(-1);
        let api_key = i16::try_from(request.api_key).ok().and_then(ApiKey::from_i16);
        let Some(api_key) = api_key.filter(|key| key.valid_versions().contains(&version)) else {
            let text = format!("api {} version {version}", request.api_key);
            return Ok(Response::new(self.refusal(ErrorCode::UnsupportedVersion, text)));
        };
        let body = match RequestBody::from_bytes(api_key, version, request.body) {
            Ok(body) => body,
            Err(error) => {
                let refusal = self.refusal(ErrorCode::InvalidRequest, error.to_string());
                return Ok(Response::new(refusal));
            }
        };
        let context = request_context(request.context.unwrap_or_default());
        let reply = self.handle.call(context, version, body).await;
        Ok(Response::new(self.call_response(version, reply)))
    }

    type MetadataStream = ReceiverStream<Result<MetadataFrame, Status>>;

    async fn metadata(
        &self,
        request: Request<MetadataRequest>,
    ) -> Result<Response<Self::MetadataStream>, Status> {
        let request = request.into_inner();
        self.check_cluster(&request.cluster_id)?;
        let (frames, receiver) = mpsc::channel(METADATA_QUEUE);
        let reader = MetadataReader {
            handle: self.handle.clone(),
            next: Offset(request.from_offset.max(0)),
            observer: NodeId(request.node_id),
            frames,
        };
        tokio::spawn(reader.run());
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

impl Service {
    fn refusal(&self, code: ErrorCode, message: String) -> CallResponse {
        let status = *self.handle.status().borrow();
        CallResponse {
            error_code: i32::from(code.code()),
            error_message: message,
            leader_id: status.leader.map_or(-1, NodeId::get),
            leader_epoch: status.epoch,
            body: Bytes::new(),
        }
    }

    fn call_response(&self, version: i16, reply: Result<Reply, CallFailure>) -> CallResponse {
        match reply {
            Ok(Reply::Answer(body)) => self.answer(version, &body),
            Ok(Reply::NotController { leader, epoch }) => CallResponse {
                error_code: i32::from(ErrorCode::NotController.code()),
                error_message: "this controller does not lead".to_owned(),
                leader_id: leader.map_or(-1, NodeId::get),
                leader_epoch: epoch,
                body: Bytes::new(),
            },
            Ok(Reply::Failed(code)) => self.refusal(code, "the controller refused".to_owned()),
            Err(error @ CallFailure::Overloaded) => {
                self.refusal(ErrorCode::RequestTimedOut, error.to_string())
            }
            Err(error @ CallFailure::Stopped) => {
                self.refusal(ErrorCode::NotController, error.to_string())
            }
        }
    }

    fn answer(&self, version: i16, body: &ResponseBody) -> CallResponse {
        match body.to_bytes(version) {
            Ok(bytes) => {
                let mut response = self.refusal(ErrorCode::None, String::new());
                response.body = bytes;
                response
            }
            Err(error) => self.refusal(ErrorCode::UnknownServerError, error.to_string()),
        }
    }
}

fn request_context(context: CallContext) -> RequestContext {
    RequestContext {
        principal: context.principal,
        client_id: context.client_id,
        client_address: context.client_address,
        listener: context.listener,
        broker_id: NodeId(context.broker_id),
    }
}

/// Feeds one metadata stream: what is committed from an offset on, at the reader's pace, and the
/// quorum's status first, after every change, and every few seconds.
struct MetadataReader {
    handle: ControllerHandle,
    next: Offset,
    observer: NodeId,
    frames: mpsc::Sender<Result<MetadataFrame, Status>>,
}

impl MetadataReader {
    async fn run(mut self) {
        let mut statuses = self.handle.status();
        let mut told = None;
        loop {
            let status = *statuses.borrow_and_update();
            if told != Some(status)
                && self.send(Frame::Status(status_frame(&status))).await.is_err()
            {
                return;
            }
            told = Some(status);
            match self.send_news().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(Ended) => return,
            }
            tokio::select! {
                changed = statuses.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(METADATA_STATUS_INTERVAL) => told = None,
                () = self.frames.closed() => return,
            }
        }
    }

    /// Sends the next committed metadata; whether there was any.
    async fn send_news(&mut self) -> Result<bool, Ended> {
        let read = self.handle.read_metadata(self.next, METADATA_READ_BYTES, self.observer).await;
        match read {
            Ok(MetadataRead::Batches(batches)) => {
                let has_news = !batches.is_empty();
                for batch in batches {
                    self.next = Offset(batch.index as i64 + 1);
                    let frame = MetadataBatchFrame {
                        offset: batch.index as i64,
                        epoch: batch.term as i32,
                        payload: batch.data,
                    };
                    self.send(Frame::Batch(frame)).await?;
                }
                Ok(has_news)
            }
            Ok(MetadataRead::Snapshot { offset, epoch, mut data }) => {
                loop {
                    let payload = data.split_to(data.len().min(FRAME_PAYLOAD_BYTES));
                    let last = data.is_empty();
                    let (offset, epoch) = (offset.get(), epoch.get());
                    let chunk = MetadataSnapshotChunk { offset, epoch, payload, last };
                    self.send(Frame::Snapshot(chunk)).await?;
                    if last {
                        break;
                    }
                }
                self.next = offset.next();
                Ok(true)
            }
            Err(CallFailure::Overloaded) => Ok(false),
            Err(CallFailure::Stopped) => Err(Ended),
        }
    }

    async fn send(&self, frame: Frame) -> Result<(), Ended> {
        self.frames.send(Ok(MetadataFrame { frame: Some(frame) })).await.map_err(|_| Ended)
    }
}

/// The reader went away or the controller stopped.
struct Ended;

fn status_frame(status: &NodeStatus) -> MetadataStatus {
    MetadataStatus {
        node_id: status.node_id.get(),
        leader_id: status.leader.map_or(-1, NodeId::get),
        leader_epoch: status.epoch,
        high_watermark: status.high_watermark.get(),
    }
}
