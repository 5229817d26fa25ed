//! The committed metadata as a broker follows it: in offset order, without gaps, from the leader
//! when it can be reached and from any other controller when not (they serve only what is committed).

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use protocol::types::{LeaderEpoch, NodeId, Offset};
use tokio::sync::mpsc;

use super::Shared;
use crate::image::ClusterImage;
use crate::records::{MetadataRecord, MetadataSnapshot, decode_batch};
use crate::rpc::METADATA_STATUS_INTERVAL;
use crate::rpc::proto::metadata_frame::Frame;
use crate::rpc::proto::{MetadataBatchFrame, MetadataRequest, MetadataSnapshotChunk};

/// Updates that wait for the broker.
const QUEUE: usize = 64;
/// Largest snapshot that is put together.
const MAX_SNAPSHOT_BYTES: usize = 256 * 1024 * 1024;

/// One step of the committed metadata.
#[derive(Clone, Debug)]
pub enum MetadataUpdate {
    /// Take this in place of everything known; its offset and epoch are in it.
    Snapshot(Box<ClusterImage>),
    /// Apply these records, the batch right after what is known.
    Batch {
        /// The batch's offset.
        offset: Offset,
        /// The quorum epoch it was written in.
        epoch: LeaderEpoch,
        /// Its records; none for a leader's first entry.
        records: Vec<MetadataRecord>,
    },
    /// Where the quorum stands, as the serving controller knows it.
    Status {
        /// Who leads; `None` when that controller knows nobody.
        leader: Option<NodeId>,
        /// The epoch.
        epoch: i32,
        /// The last committed offset.
        high_watermark: Offset,
    },
}

/// A running reader of the committed metadata. Dropping it ends the reading.
#[derive(Debug)]
pub struct MetadataStream {
    updates: mpsc::Receiver<MetadataUpdate>,
}

impl MetadataStream {
    pub(super) fn start(shared: Arc<Shared>, from: Offset) -> Self {
        let (sender, updates) = mpsc::channel(QUEUE);
        let reader = Reader { shared, next: from, updates: sender, unreachable: None };
        tokio::spawn(reader.run());
        Self { updates }
    }

    /// The next update; waits as long as it takes. `None` only when the runtime shuts down or the
    /// controllers belong to another cluster.
    pub async fn next(&mut self) -> Option<MetadataUpdate> {
        self.updates.recv().await
    }

    /// The next update if one is there already.
    pub fn try_next(&mut self) -> Option<MetadataUpdate> {
        self.updates.try_recv().ok()
    }
}

struct Reader {
    shared: Arc<Shared>,
    next: Offset,
    updates: mpsc::Sender<MetadataUpdate>,
    /// A leader that could not be reached, and its epoch: others serve until the epoch changes.
    unreachable: Option<(NodeId, i32)>,
}

/// Why one connection's stream ended.
enum Ended {
    /// The broker dropped its end, or will never be served.
    ForGood,
    /// Go to the leader that was named.
    Redirected,
    /// Try the next controller.
    Broken(String),
}

impl Reader {
    async fn run(mut self) {
        let mut backoff = self.shared.config.backoff;
        let updates = self.updates.clone();
        loop {
            let target = self.shared.target();
            let before = self.next;
            let ended = tokio::select! {
                ended = self.read_from(target) => ended,
                () = updates.closed() => return,
            };
            if self.next != before {
                backoff = self.shared.config.backoff;
            }
            match ended {
                Ended::ForGood => return,
                Ended::Redirected => {}
                Ended::Broken(reason) => {
                    tracing::debug!(controller = target, reason, "metadata stream ended");
                    self.note_unreachable(target);
                    self.shared.move_on(target);
                }
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(self.shared.config.longest_backoff);
        }
    }

    fn note_unreachable(&mut self, target: usize) {
        let id = self.shared.channels[target].0;
        let leader = self.shared.route.lock().leader;
        if let Some((leader, epoch)) = leader
            && leader == id
        {
            self.unreachable = Some((leader, epoch));
        }
    }

    async fn read_from(&mut self, target: usize) -> Ended {
        let request = MetadataRequest {
            cluster_id: self.shared.config.cluster_id.clone(),
            from_offset: self.next.get(),
            node_id: self.shared.config.node_id.get(),
        };
        let patience = METADATA_STATUS_INTERVAL * 3;
        let mut client = self.shared.client(target);
        let mut frames = match silence(patience, client.metadata(request)).await {
            Ok(response) => response.into_inner(),
            Err(ended) => return ended,
        };
        let mut snapshot = BytesMut::new();
        loop {
            let frame = match silence(patience, frames.message()).await {
                Ok(Some(frame)) => frame.frame,
                Ok(None) => return Ended::Broken("the controller ended it".to_owned()),
                Err(ended) => return ended,
            };
            let outcome = match frame {
                Some(Frame::Snapshot(chunk)) => self.on_chunk(&mut snapshot, chunk).await,
                Some(Frame::Batch(batch)) => self.on_batch(batch).await,
                Some(Frame::Status(status)) => self.on_status(target, status).await,
                None => Ok(()),
            };
            if let Err(ended) = outcome {
                return ended;
            }
        }
    }

    async fn on_chunk(
        &mut self,
        snapshot: &mut BytesMut,
        chunk: MetadataSnapshotChunk,
    ) -> Result<(), Ended> {
        if snapshot.len() + chunk.payload.len() > MAX_SNAPSHOT_BYTES {
            return Err(Ended::Broken("the snapshot is too large".to_owned()));
        }
        snapshot.extend_from_slice(&chunk.payload);
        if !chunk.last {
            return Ok(());
        }
        let bytes = snapshot.split().freeze();
        let image = MetadataSnapshot::from_bytes(&bytes)
            .map_err(|error| Ended::Broken(error.to_string()))
            .and_then(|decoded| {
                ClusterImage::from_snapshot(&decoded)
                    .map_err(|error| Ended::Broken(error.to_string()))
            })?;
        self.next = image.offset().next();
        self.emit(MetadataUpdate::Snapshot(Box::new(image))).await
    }

    async fn on_batch(&mut self, batch: MetadataBatchFrame) -> Result<(), Ended> {
        let offset = Offset(batch.offset);
        if offset != self.next.max(Offset(1)) {
            let gap = format!("batch {offset} where {} was due", self.next);
            return Err(Ended::Broken(gap));
        }
        let records = decode_batch(&batch.payload)
            .map_err(|error| Ended::Broken(format!("batch {offset}: {error}")))?;
        self.next = offset.next();
        let epoch = LeaderEpoch(batch.epoch);
        self.emit(MetadataUpdate::Batch { offset, epoch, records }).await
    }

    async fn on_status(
        &mut self,
        target: usize,
        status: crate::rpc::proto::MetadataStatus,
    ) -> Result<(), Ended> {
        let serving = self.shared.channels[target].0;
        let leader = (status.leader_id >= 0).then_some(NodeId(status.leader_id));
        let epoch = status.leader_epoch;
        let high_watermark = Offset(status.high_watermark);
        self.emit(MetadataUpdate::Status { leader, epoch, high_watermark }).await?;
        let Some(leader) = leader else { return Ok(()) };
        let is_elsewhere = leader != serving && self.unreachable != Some((leader, epoch));
        if is_elsewhere && self.shared.channels.iter().any(|(id, _)| *id == leader) {
            self.shared.learn(leader.get(), epoch);
            // Only when the route really leads there: what is known may be newer.
            if self.shared.target() != target {
                return Err(Ended::Redirected);
            }
        }
        Ok(())
    }

    async fn emit(&self, update: MetadataUpdate) -> Result<(), Ended> {
        self.updates.send(update).await.map_err(|_| Ended::ForGood)
    }
}

/// Waits at most `patience` for a controller.
async fn silence<T>(
    patience: Duration,
    call: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<T, Ended> {
    match tokio::time::timeout(patience, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(status)) if status.code() == tonic::Code::FailedPrecondition => {
            tracing::error!(reason = status.message(), "refused by a controller");
            Err(Ended::ForGood)
        }
        Ok(Err(status)) => Err(Ended::Broken(status.message().to_owned())),
        Err(_) => Err(Ended::Broken("silent".to_owned())),
    }
}
