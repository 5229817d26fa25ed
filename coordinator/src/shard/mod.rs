//! The shard: the groups of one partition of `__consumer_offsets`, and the entry points the host
//! calls. See the head of the crate for the contract.

mod config;
mod downgrades;
mod failure;
mod list;
mod output;
mod refusal;
mod scope;
mod timers;
mod topics;

use std::time::Duration;

use protocol::messages::RequestBody;
use protocol::{ErrorCode, Offset};
use replication::time::{Instant, Now};

pub use config::{MigrationPolicy, ShardConfig};
use downgrades::Downgrades;
pub use failure::{append_error, fail_response, refuse_request};
pub(crate) use output::Then;
pub use output::{Answer, Output, Token, Write};
pub use scope::Caller;
pub(crate) use scope::{Call, Scope};
pub(crate) use timers::{TimerKey, Timers};
pub use topics::Topics;

use crate::classic;
use crate::consumer;
use crate::group::Groups;
use crate::offsets::{self, Offsets};
use crate::random::Random;
use crate::record::Record;

/// Answers to JoinGroup, OffsetCommit and the like in this version are good in the others too.
const FITS_ALL_VERSIONS: i16 = 6;

/// The groups whose id falls on one partition of `__consumer_offsets`.
#[derive(Debug)]
pub struct Shard {
    config: ShardConfig,
    random: Random,
    timers: Timers,
    groups: Groups,
    offsets: Offsets,
    is_loaded: bool,
    /// Only while it is loaded.
    downgrades: Downgrades,
    /// The last offset of the partition that was replayed or written.
    written: Option<Offset>,
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
            is_loaded: false,
            downgrades: Downgrades::default(),
            written: None,
        }
    }

    /// Other settings from now on; what runs already keeps the times it has.
    pub fn set_config(&mut self, config: ShardConfig) {
        self.config = config;
    }

    /// Loading: takes in one record of the partition. `timestamp_ms` is the record's.
    pub fn replay(&mut self, record: &Record, offset: Offset, timestamp_ms: i64) {
        self.written = Some(offset);
        if !self.is_loaded {
            self.downgrades.replay(record, offset);
        }
        match record {
            Record::OffsetCommit(key, value) => {
                self.offsets.replay(&mut self.groups, key, value.as_ref());
            }
            Record::LegacyOffsetCommit(key, value) => {
                let (key, value) = crate::record::modern_commit(key, value.as_ref());
                self.offsets.replay(&mut self.groups, &key, value.as_ref());
            }
            Record::GroupMetadata(key, value) => {
                classic::replay(&mut self.groups, key, value.as_ref(), !self.is_loaded);
            }
            other => consumer::replay(&mut self.groups, other, offset, timestamp_ms),
        }
        if let Some(group) = self.groups.get_mut(record.group()) {
            group.written = Some(offset);
        }
    }

    /// The type and the state of every group, by the names of ListGroups.
    pub fn group_states(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.groups.values().map(|group| (group.type_name(), group.state_name()))
    }

    /// The whole partition was replayed: sessions of the members begin anew.
    pub fn on_loaded(&mut self, topics: &dyn Topics, now: Now) -> Output {
        self.is_loaded = true;
        self.offsets.see_topics(topics);
        let unfinished = self.downgrades.finish();
        let next = now.monotonic + self.config.offsets_retention_check_interval;
        self.timers.set(TimerKey::OffsetExpiry, next);
        self.with_scope(topics, now, |groups, _, scope| {
            classic::on_loaded(groups, scope, &unfinished);
            consumer::on_loaded(groups, scope);
        })
    }

    /// Leadership is lost, or the shard is given up. Everything that waits inside the shard is
    /// answered NOT_COORDINATOR. The shard must not be used afterwards.
    #[must_use]
    pub fn on_unloaded(&mut self) -> Vec<Answer> {
        self.timers.clear();
        classic::on_unloaded(&mut self.groups)
    }

    /// A request of one of the APIs OffsetCommit, OffsetFetch, OffsetDelete, JoinGroup, SyncGroup,
    /// Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups, ConsumerGroupHeartbeat,
    /// ConsumerGroupDescribe. Of requests that name several groups the host gives each shard those
    /// that are its own, and joins the answers.
    ///
    /// # Panics
    ///
    /// On a request of another API.
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
        self.with_scope(topics, now, |groups, offsets, scope| {
            dispatch(groups, offsets, scope, call, request);
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
        self.with_scope(topics, now, |groups, _, scope| {
            match write.then {
                Then::Classic(then) => classic::on_written(groups, scope, then),
                Then::Consumer(then) => consumer::on_written(groups, scope, then),
                Then::Nothing => {}
            }
            for (token, response) in write.answers {
                scope.output.answer_seen(token, response, scope.written);
            }
        })
    }

    /// The records of this write are not in the log, none of them. `error` is that of the append.
    pub fn on_write_failed(
        &mut self,
        write: Write,
        error: ErrorCode,
        topics: &dyn Topics,
        now: Now,
    ) -> Output {
        let error = append_error(error);
        self.with_scope(topics, now, |groups, _, scope| {
            match write.then {
                Then::Classic(then) => classic::on_write_failed(groups, scope, then, error),
                Then::Consumer(then) => consumer::on_write_failed(groups, scope, then, error),
                Then::Nothing => {}
            }
            for (token, response) in write.answers {
                // Of the answers to writes only JoinGroup's differ, and this form fits all versions.
                let response = fail_response(FITS_ALL_VERSIONS, response, error);
                scope.output.answer(token, response);
            }
        })
    }

    /// Everything that is due: sessions, rebalances, expiry of offsets.
    pub fn on_tick(&mut self, topics: &dyn Topics, now: Now) -> Output {
        let least = Duration::from_millis(1);
        let expiry_interval = self.config.offsets_retention_check_interval.max(least);
        self.with_scope(topics, now, |groups, offsets, scope| {
            while let Some(key) = scope.timers.pop_due(now.monotonic) {
                match key {
                    TimerKey::OffsetExpiry => {
                        offsets::expire(groups, offsets, scope);
                        scope.timers.set(key, now.monotonic + expiry_interval);
                    }
                    TimerKey::ClassicJoin { .. }
                    | TimerKey::ClassicSync { .. }
                    | TimerKey::ClassicMember { .. } => classic::on_timer(groups, scope, &key),
                    other => consumer::on_timer(groups, scope, other),
                }
            }
        })
    }

    /// When [`Shard::on_tick`] must be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Topics or partitions came or went. Deleted topics lose their offsets.
    pub fn on_topics_changed(&mut self, topics: &dyn Topics, now: Now) -> Output {
        self.with_scope(topics, now, |groups, offsets, scope| {
            offsets::on_topics_changed(offsets, scope);
            consumer::on_topics_changed(groups, scope);
        })
    }

    /// The groups, to look at.
    #[cfg(test)]
    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    fn with_scope(
        &mut self,
        topics: &dyn Topics,
        now: Now,
        work: impl FnOnce(&mut Groups, &mut Offsets, &mut Scope<'_>),
    ) -> Output {
        let mut output = Output::default();
        let mut scope = Scope {
            config: &self.config,
            topics,
            now,
            random: &mut self.random,
            timers: &mut self.timers,
            output: &mut output,
            written: self.written,
        };
        work(&mut self.groups, &mut self.offsets, &mut scope);
        output
    }
}

fn dispatch(
    groups: &mut Groups,
    offsets: &mut Offsets,
    scope: &mut Scope<'_>,
    call: Call<'_>,
    request: RequestBody,
) {
    match request {
        RequestBody::OffsetCommit(request) => {
            offsets::commit(groups, offsets, scope, call, request);
        }
        RequestBody::OffsetFetch(request) => offsets::fetch(groups, offsets, scope, call, request),
        RequestBody::OffsetDelete(request) => {
            offsets::delete_offsets(groups, offsets, scope, call, request);
        }
        RequestBody::DeleteGroups(request) => {
            offsets::delete_groups(groups, offsets, scope, call, request);
        }
        RequestBody::JoinGroup(request) => classic::join(groups, scope, call, request),
        RequestBody::SyncGroup(request) => classic::sync(groups, scope, call, request),
        RequestBody::Heartbeat(request) => classic::heartbeat(groups, scope, call, request),
        RequestBody::LeaveGroup(request) => classic::leave(groups, scope, call, request),
        RequestBody::DescribeGroups(request) => classic::describe(groups, scope, call, request),
        RequestBody::ListGroups(request) => list::list(groups, scope, call, request),
        RequestBody::ConsumerGroupHeartbeat(request) => {
            consumer::heartbeat(groups, scope, call, request);
        }
        RequestBody::ConsumerGroupDescribe(request) => {
            consumer::describe(groups, scope, call, request);
        }
        other => panic!("{} is not an API of the group coordinator", other.api_key()),
    }
}
