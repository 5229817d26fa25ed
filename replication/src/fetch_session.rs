//! Fetch sessions, both ends (KIP-227, KIP-516): the server's cache of sessions and the client end
//! that a follower uses. Rules S01 to S08 of the replication rules.
//!
//! - [`FetchSessionCache`] opens, continues, closes and evicts sessions and turns a request into a
//!   [`FetchContext`]: which partitions to read, and afterwards which results to answer with.
//! - [`FetchSessionHandler`] decides what a fetcher puts into its next request, and what a response
//!   means for the session.
//!
//! Both ends cost what changes, not what the session holds: an idle request allocates nothing here.
//!
//! Locks, outermost first: cache shard, session, and then whatever the visitor of
//! [`FetchContext::for_each`] takes. No lock is held while a request is parked.

mod cache;
mod context;
mod handler;
mod partitions;

pub use cache::{FetchSessionCache, SeededSessionIds, SessionCacheConfig, SessionIdSource};
pub use context::{
    FetchContext, PartitionResult, ResultFacts, SessionReply, SessionRequest, TopicNames,
};
pub use handler::{FetchSessionHandler, ResponseVerdict, SessionFetch, SessionMetadata};
pub use partitions::{PartitionSet, PartitionSlot, SessionPartition};

use protocol::messages::fetch_request::FetchPartition;
use protocol::types::{LeaderEpoch, Offset, Uuid};
use std::sync::Arc;

/// The first version of Fetch that names topics by id.
pub const FIRST_TOPIC_ID_VERSION: i16 = 13;

/// How a request names a topic: by id from version 13 on, by name before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TopicKey {
    /// By id.
    Id(Uuid),
    /// By name.
    Name(Arc<str>),
}

/// How a request names a partition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionKey {
    /// Its topic.
    pub topic: TopicKey,
    /// Its index in the topic.
    pub partition: i32,
}

impl PartitionKey {
    /// A partition of the topic with this id.
    pub fn by_id(topic_id: Uuid, partition: i32) -> Self {
        Self { topic: TopicKey::Id(topic_id), partition }
    }

    /// A partition of the topic with this name.
    pub fn by_name(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: TopicKey::Name(topic.into()), partition }
    }
}

/// What a request wants of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionFetch {
    /// Where to read from.
    pub fetch_offset: Offset,
    /// The follower's own log start; -1 from a consumer.
    pub log_start_offset: Offset,
    /// Most bytes wanted of this partition.
    pub max_bytes: i32,
    /// The leader epoch the fetcher believes in; -1 when it asks for no check (KIP-320).
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the record before `fetch_offset`; -1 when unknown (KIP-595).
    pub last_fetched_epoch: LeaderEpoch,
}

impl PartitionFetch {
    /// What a request's partition asks for. Any negative epoch is none.
    pub fn from_message(partition: &FetchPartition) -> Self {
        Self {
            fetch_offset: Offset(partition.fetch_offset),
            log_start_offset: Offset(partition.log_start_offset),
            max_bytes: partition.partition_max_bytes,
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch)
                .max(LeaderEpoch::NONE),
            last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch).max(LeaderEpoch::NONE),
        }
    }
}
