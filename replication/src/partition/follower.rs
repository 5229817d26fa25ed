//! What a follower decides: whom to follow (T07), what a fetch answer does to its watermarks (H01,
//! T08, I02), and what a cut of its log does to them (I8, T11).

use super::{
    Effects, HighWatermarkMove, LogFacts, PartitionRegistration, PartitionState, Role, RoleChange,
    Wake,
};
use crate::bugs::{self, Bug};
use crate::error::PartitionError;
use crate::log_offset::LogOffsetMetadata;
use crate::trace::{Event, Why};
use protocol::{LeaderEpoch, Offset};

impl PartitionState {
    /// Follows under `registration`. Every increase of the leader epoch restarts the fetcher, even
    /// under the same leader: epochs in between may have written what this log lacks (T07). All
    /// that waits is woken, since it waited for a leader or an epoch that is gone (F04, H07c).
    pub fn become_follower(
        &mut self,
        registration: &PartitionRegistration,
    ) -> (RoleChange, Effects) {
        let led_before = self.is_leader();
        let mut restart_fetcher = led_before || registration.leader_epoch > self.leader_epoch;
        if bugs::is_on(Bug::SameLeaderNotFollowedAnew) {
            // Wrong (KAFKA-7164): another leader may have been between the two epochs.
            restart_fetcher = led_before || registration.leader != self.leader;
        }
        self.note(registration);
        self.role = Role::Follower;
        let mut effects = Effects::default();
        if restart_fetcher {
            effects.wake = Wake::ALL;
            effects.events.push(Event::BecameFollower {
                partition: self.topic_partition.clone(),
                leader: registration.leader,
                leader_epoch: registration.leader_epoch,
                why: Why::NewEpochRestartsFetching,
            });
        }
        (RoleChange::Follower { restart_fetcher }, effects)
    }

    /// The watermarks of a fetch answer that did **not** diverge, after its records (if any) were
    /// appended; `log` is the log after that. The high watermark becomes the leader's, bounded by
    /// our log end; it may go down under a new leader, which is legal (I8). The log start follows
    /// the leader's, bounded by the high watermark (I02).
    ///
    /// A diverging answer must not come here: it moves nothing (T08). `answered_epoch` is the epoch
    /// the fetch was made under; another than ours is refused, since metadata has overtaken it (T10).
    pub fn on_fetch_response(
        &mut self,
        answered_epoch: LeaderEpoch,
        leader_high_watermark: Offset,
        leader_log_start: Offset,
        log: &LogFacts,
    ) -> Result<Effects, PartitionError> {
        match self.role {
            Role::Follower => {}
            Role::Leader(_) => return Err(PartitionError::NotLeaderOrFollower),
            Role::Offline => return Err(PartitionError::StorageOffline),
        }
        self.check_leader_epoch(answered_epoch)?;
        let mut effects = self.set_follower_high_watermark(leader_high_watermark, log);
        let log_start = leader_log_start.min(self.high_watermark.offset);
        if log_start > log.log_start {
            effects.raise_log_start = Some(log_start);
            effects.events.push(Event::LogStartMoved {
                partition: self.topic_partition.clone(),
                from: log.log_start,
                to: log_start,
                why: Why::RecordsDeleted,
            });
        }
        Ok(effects)
    }

    fn set_follower_high_watermark(
        &mut self,
        leader_high_watermark: Offset,
        log: &LogFacts,
    ) -> Effects {
        let from = self.high_watermark;
        let offset = leader_high_watermark.clamp(log.log_start, log.log_end.offset);
        if offset == from.offset {
            return Effects::default();
        }
        let to = if offset == log.log_end.offset {
            log.log_end
        } else {
            LogOffsetMetadata::message_only(offset)
        };
        self.high_watermark = to;
        Effects {
            high_watermark: Some(HighWatermarkMove { from, to }),
            wake: Wake { fetch: true, ..Wake::NONE },
            events: vec![Event::HighWatermarkMoved {
                partition: self.topic_partition.clone(),
                from: from.offset,
                to: to.offset,
                why: Why::LeaderToldUs,
            }],
            ..Effects::default()
        }
    }

    /// The log was cut, or emptied and started elsewhere; `log` is the log after that. The high
    /// watermark is brought into what is left (T04, T11), and parked fetches are checked (F04).
    ///
    /// Panics on a leader: a leader never cuts its log.
    pub fn on_truncated(&mut self, log: &LogFacts, why: Why) -> Effects {
        assert!(!self.is_leader(), "{}: a leader's log was cut", self.topic_partition);
        let moved = self.keep_high_watermark_in_log(log);
        let mut effects = Effects {
            high_watermark: moved,
            wake: Wake { fetch: true, ..Wake::NONE },
            ..Effects::default()
        };
        if let Some(moved) = moved {
            effects.events.push(Event::HighWatermarkMoved {
                partition: self.topic_partition.clone(),
                from: moved.from.offset,
                to: moved.to.offset,
                why,
            });
        }
        effects
    }

    /// Brings the high watermark into [log start, log end].
    pub(super) fn keep_high_watermark_in_log(
        &mut self,
        log: &LogFacts,
    ) -> Option<HighWatermarkMove> {
        let from = self.high_watermark;
        let offset = from.offset.clamp(log.log_start, log.log_end.offset);
        if offset == from.offset {
            return None;
        }
        self.high_watermark = LogOffsetMetadata::message_only(offset);
        Some(HighWatermarkMove { from, to: self.high_watermark })
    }
}
