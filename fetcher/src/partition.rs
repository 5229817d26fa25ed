//! What a fetcher keeps of one partition.

use crate::access::PartitionFailure;
use protocol::{LeaderEpoch, Offset, TopicIdPartition};
use replication::fetch_session::{PartitionFetch, PartitionKey};
use replication::time::Instant;

/// An order to follow a leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowAssignment {
    /// The partition; its topic id must be known.
    pub partition: TopicIdPartition,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
}

/// What the fetcher is doing with a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The log could not be read yet; it is tried again after the back-off.
    Starting,
    /// Named in fetch requests.
    Fetching,
    /// Out of the leader's range: asking for the leader's log end (T11).
    AskingLatest,
    /// Out of the leader's range and not above its end: asking for its log start (T11).
    AskingEarliest {
        /// The leader's log end as answered before.
        leader_end: Offset,
    },
    /// Not fetched until it is assigned anew.
    Failed(PartitionFailure),
}

/// One partition of a fetcher.
#[derive(Clone, Debug)]
pub struct FetchState {
    /// Which.
    pub partition: TopicIdPartition,
    /// The leader epoch that is followed.
    pub leader_epoch: LeaderEpoch,
    /// The next offset to fetch: the log's end.
    pub fetch_offset: Offset,
    /// Epoch of the record before it, -1 for none.
    pub last_fetched_epoch: LeaderEpoch,
    /// The own log start, as last told to the leader.
    pub log_start_offset: Offset,
    /// Records between here and the leader's high watermark, once a fetch told.
    pub lag: Option<i64>,
    /// What is going on.
    pub phase: Phase,
    /// Set while backing off.
    pub delayed_until: Option<Instant>,
    /// How often in a row the leader did not know yet that it leads; makes the pauses longer.
    pub early_tries: u32,
}

impl FetchState {
    /// Whether the next fetch request names it.
    pub fn is_ready_for_fetch(&self) -> bool {
        self.phase == Phase::Fetching && self.delayed_until.is_none()
    }

    pub(crate) fn wish(&self, max_bytes: i32) -> PartitionFetch {
        PartitionFetch {
            fetch_offset: self.fetch_offset,
            log_start_offset: self.log_start_offset,
            max_bytes,
            current_leader_epoch: self.leader_epoch,
            last_fetched_epoch: self.last_fetched_epoch,
        }
    }
}

/// How requests name the partition: by its topic's id.
pub(crate) fn key_of(partition: &TopicIdPartition) -> PartitionKey {
    PartitionKey::by_id(partition.topic_id, partition.topic_partition.partition)
}
