//! The shard: the groups of one partition of `__consumer_offsets`, and the entry points the host
//! calls. See the head of the crate for the contract.

mod config;
mod output;
mod scope;
mod timers;
mod topics;

use protocol::messages::RequestBody;
use protocol::{ErrorCode, Offset};
use replication::time::{Instant, Now};

pub use config::{MigrationPolicy, ShardConfig};
pub(crate) use output::Then;
pub use output::{Answer, Output, Token, Write};
pub use scope::Caller;
pub(crate) use scope::{Call, Scope};
pub(crate) use timers::{TimerKey, Timers};
pub use topics::Topics;

use crate::consumer;
use crate::group::Groups;
use crate::offsets::Offsets;
use crate::random::Random;
use crate::record::Record;

/// The groups whose id falls on one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    random: Random,
    timers: Timers,
    groups: Groups,
    offsets: Offsets,
    loaded: bool,
    /// The last offset of the partition that was replayed or written.
    last_written: Option<Offset>,
}

impl Shard {
    /// An empty shard. `seed` is what the ids of its members are made from.
    pub fn new(config: ShardConfig, seed: u64) -> Shard {
        Shard {
            config,
            random: Random::new(seed),
            timers: Timers::default(),
            groups: Groups::new(),
            offsets: Offsets::default(),
            loaded: false,
            last_written: None,
        }
    }

    /// Other settings from now on; what runs already keeps the times it has.
    pub fn set_config(&mut self, config: ShardConfig) {
        self.config = config;
    }

    /// Loading: takes in one record of the partition. `timestamp_ms` is the record's.
    pub fn replay(&mut self, record: &Record, offset: Offset, timestamp_ms: i64) {
        let _ = (record, timestamp_ms);
        self.last_written = Some(offset);
    }

    /// The whole partition was replayed: sessions of the members begin anew.
    pub fn on_loaded(&mut self, topics: &dyn Topics, now: Now) -> Output {
        self.loaded = true;
        self.with_scope(topics, now, |groups, scope| consumer::on_loaded(groups, scope))
    }

    /// Leadership is lost, or the shard is given up. The requests that wait inside the shard are
    /// named; the host answers them NOT_COORDINATOR. The shard must not be used afterwards.
    pub fn on_unloaded(&mut self) -> Vec<Token> {
        self.timers.clear();
        Vec::new()
    }

    /// A request of one of the APIs OffsetCommit, OffsetFetch, JoinGroup, Heartbeat, LeaveGroup,
    /// SyncGroup, DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, ConsumerGroupHeartbeat,
    /// ConsumerGroupDescribe; another one is answered with `Err`. Of requests that name several groups
    /// the host gives each shard those that are its own, and joins the answers.
    pub fn on_request(
        &mut self,
        token: Token,
        caller: &Caller,
        version: i16,
        request: RequestBody,
        topics: &dyn Topics,
        now: Now,
    ) -> Output {
        let call = Call { token, caller, version };
        self.with_scope(topics, now, |groups, scope| match request {
            RequestBody::ConsumerGroupHeartbeat(request) => {
                consumer::heartbeat(groups, scope, call, request);
            }
            RequestBody::ConsumerGroupDescribe(request) => {
                consumer::describe(groups, scope, call, request);
            }
            _ => {}
        })
    }

    /// The records of this write are in the log, from `base_offset` on, not yet committed.
    pub fn on_written(
        &mut self,
        write: Write,
        base_offset: Offset,
        timestamp_ms: i64,
        topics: &dyn Topics,
        now: Now,
    ) -> Output {
        for (at, record) in (0..).zip(&write.records) {
            self.replay(record, base_offset + at, timestamp_ms);
        }
        let seen = self.last_written;
        self.with_scope(topics, now, |groups, scope| {
            match write.then {
                Then::Consumer(then) => consumer::on_written(groups, scope, then),
                Then::Classic(_) | Then::Nothing => {}
            }
            for (token, response) in write.answers {
                scope.output.answer_seen(token, response, seen);
            }
        })
    }

    /// The records of this write are not in the log. `error` is the error of the append.
    pub fn on_write_failed(
        &mut self,
        write: Write,
        error: ErrorCode,
        topics: &dyn Topics,
        now: Now,
    ) -> Output {
        self.with_scope(topics, now, |groups, scope| match write.then {
            Then::Consumer(then) => consumer::on_write_failed(groups, scope, then, error),
            Then::Classic(_) | Then::Nothing => {}
        })
    }

    /// Everything that is due: sessions, rebalances, expiry of offsets.
    pub fn on_tick(&mut self, topics: &dyn Topics, now: Now) -> Output {
        self.with_scope(topics, now, |groups, scope| {
            while let Some(key) = scope.timers.pop_due(now.monotonic) {
                consumer::on_timer(groups, scope, key);
            }
        })
    }

    /// When [`Shard::on_tick`] must be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Topics or partitions came or went. Deleted topics lose their offsets.
    pub fn on_topics_changed(&mut self, topics: &dyn Topics, now: Now) -> Output {
        self.with_scope(topics, now, |groups, scope| consumer::on_topics_changed(groups, scope))
    }

    fn with_scope(
        &mut self,
        topics: &dyn Topics,
        now: Now,
        work: impl FnOnce(&mut Groups, &mut Scope<'_>),
    ) -> Output {
        let mut output = Output::default();
        let mut scope = Scope {
            config: &self.config,
            topics,
            now,
            random: &mut self.random,
            timers: &mut self.timers,
            output: &mut output,
        };
        work(&mut self.groups, &mut scope);
        output
    }
}
