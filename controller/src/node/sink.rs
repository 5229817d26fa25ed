//! What a controller hands to its host: messages, replies, and the committed metadata.

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::ResponseBody;
use protocol::types::{LeaderEpoch, NodeId, Offset};
use replication::trace::Event;

use crate::image::ClusterImage;
use crate::quorum::{LogEntry, QuorumRole};
use crate::records::MetadataRecord;

/// Names a request to its host. The host picks it; the controller only gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyToken(pub u64);

/// What became of a request. Answers are by far the most frequent, so they are not boxed.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer; all it rests on is committed.
    Answer(ResponseBody),
    /// Not decided here, or decided and not known to be committed: ask `leader`.
    NotController {
        /// The leader that this controller knows; `None` when it knows none.
        leader: Option<NodeId>,
        /// The epoch it is in.
        epoch: i32,
    },
    /// Refused as a whole; nothing was decided.
    Failed(ErrorCode),
}

/// Takes what [`super::ControllerNode::drain`] brings about.
pub trait NodeSink {
    /// A message for another controller. May be lost; order between two controllers should hold.
    fn send(&mut self, to: NodeId, message: Bytes);

    /// The one reply to a request.
    fn reply(&mut self, token: ReplyToken, reply: Reply);

    /// The batch at `offset` is committed and applied here; in order, each once.
    fn committed(&mut self, offset: Offset, epoch: LeaderEpoch, records: &[MetadataRecord]);

    /// What the batch at `offset` means, for the trace; without an offset, what this controller did. Every
    /// controller finds out the same: `leads` is true on the one that leads the quorum, so that a cluster
    /// of processes tells it once (in a rare change of leaders, twice).
    fn events(&mut self, _offset: Option<Offset>, _leads: bool, _events: Vec<Event>) {}

    /// Whether anybody wants [`NodeSink::events`].
    fn wants_events(&self) -> bool {
        false
    }

    /// A leader's snapshot took the place of everything committed here before.
    fn replaced(&mut self, image: &ClusterImage);
}

/// Where a controller stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// This controller.
    pub node_id: NodeId,
    /// Its role in the quorum.
    pub role: QuorumRole,
    /// The quorum's leader as far as it knows.
    pub leader: Option<NodeId>,
    /// The epoch it is in.
    pub epoch: i32,
    /// The last offset committed and applied here; -1 for none.
    pub high_watermark: Offset,
    /// Whether it decides.
    pub is_active: bool,
}

/// The next piece of the committed metadata for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRead {
    /// Everything up to and with `offset`, as an encoded `MetadataSnapshot`.
    Snapshot {
        /// The last offset contained.
        offset: Offset,
        /// That offset's epoch.
        epoch: LeaderEpoch,
        /// The encoded snapshot.
        data: Bytes,
    },
    /// The next batches, each an encoded `MetadataBatch`; none when there is nothing new.
    Batches(Vec<LogEntry>),
}

/// A [`NodeSink`] that keeps everything, in order, for one-threaded hosts and tests.
#[derive(Debug, Default)]
pub struct CollectedEffects {
    /// Messages to other controllers.
    pub messages: Vec<(NodeId, Bytes)>,
    /// Replies.
    pub replies: Vec<(ReplyToken, Reply)>,
    /// Committed batches.
    pub batches: Vec<(Offset, LeaderEpoch, Vec<MetadataRecord>)>,
    /// Whether a snapshot replaced the image.
    pub was_replaced: bool,
}

impl NodeSink for CollectedEffects {
    fn send(&mut self, to: NodeId, message: Bytes) {
        self.messages.push((to, message));
    }

    fn reply(&mut self, token: ReplyToken, reply: Reply) {
        self.replies.push((token, reply));
    }

    fn committed(&mut self, offset: Offset, epoch: LeaderEpoch, records: &[MetadataRecord]) {
        self.batches.push((offset, epoch, records.to_vec()));
    }

    fn replaced(&mut self, _image: &ClusterImage) {
        self.batches.clear();
        self.was_replaced = true;
    }
}
