//! What the code of the groups is handed with every input.

use protocol::Offset;
use replication::time::Now;

use super::{Output, ShardConfig, Timers, Token, Topics};
use crate::random::Random;

/// Who sent a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// `client.id` of the request's header; empty when it has none.
    pub client_id: String,
    /// The peer's address as Kafka writes it: `/127.0.0.1`.
    pub client_host: String,
}

/// A request besides its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Names the request.
    pub token: Token,
    /// Who sent it.
    pub caller: &'a Caller,
    /// The version of the request.
    pub version: i16,
}

/// The surroundings of one input.
pub(crate) struct Scope<'a> {
    /// The broker's settings.
    pub config: &'a ShardConfig,
    /// The cluster's topics.
    pub topics: &'a dyn Topics,
    /// The time of the input.
    pub now: Now,
    /// Where member ids come from.
    pub random: &'a mut Random,
    /// The shard's timers.
    pub timers: &'a mut Timers,
    /// What the input leads to.
    pub output: &'a mut Output,
    /// The last offset written in the shard; readers of several groups, or of none, have seen it.
    pub written: Option<Offset>,
}
