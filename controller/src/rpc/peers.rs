//! The streams to the other controllers: one task each, connected when there is something to send.
//! A queue that is full, and whatever waits while a peer cannot be reached, is dropped: the quorum
//! repeats what matters, and an old message is worth less than the next one.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::handshake::Connector;
use bytes::Bytes;
use protocol::types::NodeId;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::FRAME_PAYLOAD_BYTES;
use super::host::Input;
use super::proto::RaftFrame;
use super::proto::control_client::ControlClient;
use super::secure;

/// Messages that wait for one peer.
const QUEUE: usize = 256;
/// Frames handed to a stream before it must make room: flow control by the peer shows here.
const FRAMES_IN_FLIGHT: usize = 8;
const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a silent connection with an open stream is trusted.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The queues to all other controllers. Dropping it ends their tasks.
pub(super) struct Peers {
    queues: BTreeMap<NodeId, mpsc::Sender<Bytes>>,
}

impl Peers {
    pub(super) fn connect(
        runtime: &tokio::runtime::Handle,
        cluster_id: &str,
        me: NodeId,
        addresses: &BTreeMap<NodeId, String>,
        tls: Option<&Connector>,
        feedback: SyncSender<Input>,
    ) -> Self {
        let mut queues = BTreeMap::new();
        for (id, address) in addresses.iter().filter(|(id, _)| **id != me) {
            let (queue, messages) = mpsc::channel(QUEUE);
            let peer = Peer {
                id: *id,
                me,
                cluster_id: cluster_id.to_owned(),
                address: address.clone(),
                tls: tls.cloned(),
                messages,
                feedback: feedback.clone(),
            };
            runtime.spawn(peer.run());
            queues.insert(*id, queue);
        }
        Self { queues }
    }

    pub(super) fn send(&self, to: NodeId, message: Bytes) {
        if let Some(queue) = self.queues.get(&to)
            && queue.try_send(message).is_err()
        {
            tracing::debug!(%to, "dropped a quorum message, its queue is full");
        }
    }
}

struct Peer {
    id: NodeId,
    me: NodeId,
    cluster_id: String,
    address: String,
    tls: Option<Connector>,
    messages: mpsc::Receiver<Bytes>,
    feedback: SyncSender<Input>,
}

impl Peer {
    async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        while let Some(first) = self.messages.recv().await {
            match connect(&self.address, self.tls.as_ref()).await {
                Ok(client) => {
                    backoff = FIRST_BACKOFF;
                    let reason = self.stream(client, first).await;
                    tracing::debug!(peer = %self.id, reason, "quorum stream ended");
                }
                Err(error) => {
                    tracing::debug!(peer = %self.id, %error, "peer not reachable");
                    backoff = (backoff * 2).min(LONGEST_BACKOFF);
                }
            }
            // At most one report per attempt, and none that waits for the controller's thread.
            let _ = self.feedback.try_send(Input::Unreachable(self.id));
            tokio::time::sleep(backoff).await;
            while self.messages.try_recv().is_ok() {}
        }
    }

    /// Sends `first` and all that follows until the stream breaks; says why it did.
    async fn stream(&mut self, mut client: ControlClient<Channel>, first: Bytes) -> String {
        let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
        let mut call = std::pin::pin!(client.raft(ReceiverStream::new(receiver)));
        let mut next = Some(first);
        loop {
            let message = match next.take() {
                Some(message) => message,
                None => tokio::select! {
                    message = self.messages.recv() => match message {
                        Some(message) => message,
                        None => return "this controller stops".to_owned(),
                    },
                    ended = &mut call => return describe(ended),
                },
            };
            for frame in split(&self.cluster_id, self.me, message) {
                tokio::select! {
                    sent = frames.send(frame) => if sent.is_err() {
                        return "closed".to_owned();
                    },
                    ended = &mut call => return describe(ended),
                }
            }
        }
    }
}

fn describe<T>(ended: Result<T, tonic::Status>) -> String {
    match ended {
        Ok(_) => "the peer closed it".to_owned(),
        Err(status) => {
            if status.code() == tonic::Code::FailedPrecondition {
                tracing::error!(reason = status.message(), "refused by another controller");
            }
            status.message().to_owned()
        }
    }
}

/// `message` in frames that fit.
fn split(cluster_id: &str, me: NodeId, mut message: Bytes) -> Vec<RaftFrame> {
    let mut frames = Vec::new();
    loop {
        let payload = message.split_to(message.len().min(FRAME_PAYLOAD_BYTES));
        let more = !message.is_empty();
        let cluster_id = cluster_id.to_owned();
        frames.push(RaftFrame { cluster_id, from: me.get(), payload, more });
        if !more {
            return frames;
        }
    }
}

/// An endpoint of the control plane at `host:port`, set up for small messages that must not wait.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE))
}

async fn connect(
    address: &str,
    tls: Option<&Connector>,
) -> Result<ControlClient<Channel>, tonic::transport::Error> {
    Ok(ControlClient::new(secure::connect(endpoint(address)?, tls).await?))
}
