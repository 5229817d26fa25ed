//! What a leader decides: taking over (I9, H05, H09), counting a follower's fetch (H09, H11), and
//! moving the high watermark (H01, H03, H04, H06).

use std::collections::{BTreeMap, BTreeSet};

use protocol::{NodeId, Offset};

use super::{
    BrokerDirectory, Effects, HighWatermarkMove, LeaderState, LogFacts, PartitionRegistration,
    PartitionState, Role, RoleChange, Wake,
};
use crate::bugs::{self, Bug};
use crate::epoch_cache::EpochEntry;
use crate::error::PartitionError;
use crate::high_watermark::{FollowerProgress, advance, candidate_high_watermark};
use crate::isr::IsrState;
use crate::replica_state::{FollowerFetch, ReplicaState};
use crate::time::Instant;
use crate::trace::{Event, Why};

impl PartitionState {
    /// Leads under `registration`. A new epoch starts at the log's end, resets what is known of the
    /// followers, and must be in the epoch cache before anything is answered (I9). Under the same
    /// epoch only a newer partition epoch replaces the ISR: a record of the same partition epoch
    /// tells nothing new, and must not forget a change in flight (H03).
    ///
    /// What is known of the followers survives only an epoch that follows ours directly. When epochs
    /// were skipped another node led in between, and the followers may have truncated to its log
    /// since: counting their old log ends would commit what they no longer have. This is T07 seen
    /// from the leader; Apache Kafka keeps the old log ends here.
    pub fn become_leader(
        &mut self,
        registration: &PartitionRegistration,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> (RoleChange, Effects) {
        let led_before = self.leader_state().map(|leader| leader.leading_since);
        let newly = led_before.is_none();
        let new_epoch = registration.leader_epoch > self.leader_epoch;
        if !newly && !new_epoch && registration.partition_epoch == self.partition_epoch {
            return (RoleChange::Leader { newly: false, new_epoch: false }, Effects::default());
        }
        let epoch_start = match self.leader_state() {
            Some(leader) if !new_epoch => leader.epoch_start,
            _ => log.log_end.offset,
        };
        let skipped_epochs = registration.leader_epoch.get() - 1 > self.leader_epoch.get();
        let forget = newly || skipped_epochs;
        let isr = IsrState::committed(registration.isr.iter().copied());
        let followers = self.followers_under(registration, epoch_start, new_epoch, forget, now);
        let mut effects = Effects::default();
        if new_epoch || newly {
            effects.assign_epoch =
                Some(EpochEntry { epoch: registration.leader_epoch, start_offset: epoch_start });
            effects.events.push(Event::BecameLeader {
                partition: self.topic_partition.clone(),
                leader_epoch: registration.leader_epoch,
                epoch_start,
                isr: isr.effective().iter().collect(),
                why: Why::LeaderChosenByController,
            });
            effects.wake = Wake::ALL;
        } else {
            effects.events.extend(self.isr_event(&isr, registration.partition_epoch));
        }
        self.note(registration);
        self.role = Role::Leader(LeaderState {
            epoch_start,
            leading_since: led_before.unwrap_or(registration.leader_epoch),
            isr,
            followers,
        });
        self.keep_high_watermark_in_log(log);
        let moved = self.maybe_increment_high_watermark(log, brokers, now, Why::MaximalIsrHasIt);
        (RoleChange::Leader { newly, new_epoch }, effects.then(moved))
    }

    fn followers_under(
        &self,
        registration: &PartitionRegistration,
        epoch_start: Offset,
        new_epoch: bool,
        forget: bool,
        now: Instant,
    ) -> BTreeMap<NodeId, ReplicaState> {
        let known = self.leader_state().map(|leader| &leader.followers);
        // Members of the ISR are tracked whatever the replica set says: one that is not tracked
        // would not be waited for.
        let tracked: BTreeSet<&NodeId> =
            registration.replicas.iter().chain(&registration.isr).collect();
        tracked
            .into_iter()
            .filter(|id| **id != self.node)
            .map(|id| {
                let before = known.and_then(|known| known.get(id)).copied();
                let state = before.unwrap_or(ReplicaState::UNKNOWN);
                let in_isr = registration.isr.contains(id);
                let state = if new_epoch || forget {
                    state.reset(now, epoch_start, forget, in_isr)
                } else {
                    state
                };
                (*id, state)
            })
            .collect()
    }

    fn isr_event(&self, isr: &IsrState, epoch: protocol::PartitionEpoch) -> Option<Event> {
        let before = self.isr()?.effective();
        (before != isr.effective()).then(|| Event::IsrChanged {
            partition: self.topic_partition.clone(),
            partition_epoch: epoch,
            from: before.iter().collect(),
            to: isr.effective().iter().collect(),
            why: Why::IsrConfirmed,
        })
    }

    /// The leader appended: parked fetches may have data, and the high watermark moves at once when
    /// nobody else is waited for.
    pub fn on_leader_append(
        &mut self,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> Effects {
        let mut effects =
            self.maybe_increment_high_watermark(log, brokers, now, Why::MaximalIsrHasIt);
        effects.wake.fetch = true;
        effects
    }

    /// Counts a follower's fetch that was read without error and without diverging (T08: a diverging
    /// fetch must not come here; F02: nor a parked fetch's second read). In order: the follower's
    /// state, a proposal that it join, the high watermark.
    ///
    /// Errors: not the leader; a stranger (75); a fetch from before the broker registered again
    /// (H11a, 6); an offset beyond the leader's end, which must never be counted.
    pub fn on_follower_fetch(
        &mut self,
        replica: NodeId,
        fetch: &FollowerFetch,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
    ) -> Result<Effects, PartitionError> {
        let Role::Leader(leader) = &mut self.role else {
            return Err(PartitionError::NotLeaderOrFollower);
        };
        let Some(state) = leader.followers.get_mut(&replica) else {
            return Err(PartitionError::UnknownReplica { replica });
        };
        let is_stale = fetch.broker_epoch != protocol::BrokerEpoch::NONE
            && brokers.broker(replica).is_some_and(|status| status.epoch > fetch.broker_epoch);
        // With the bug on wrong (KIP-903): the broker may have lost since what it had then.
        if is_stale && !bugs::is_on(Bug::StaleBrokerEpochJoins) {
            return Err(PartitionError::StaleBrokerEpoch { replica });
        }
        let offset = fetch.fetch_offset.offset;
        if offset > log.log_end.offset {
            return Err(PartitionError::OffsetOutOfRange {
                offset,
                log_start: log.log_start,
                log_end: log.log_end.offset,
            });
        }
        let before = *state;
        *state = before.on_fetch(fetch);
        let mut effects = Effects::default();
        effects.wake.delete_records = before.log_start_offset != fetch.log_start_offset;
        if before.log_end.offset != offset {
            effects.events.push(Event::FollowerProgressed {
                partition: self.topic_partition.clone(),
                replica,
                from: before.log_end.offset,
                to: offset,
                why: Why::FetchedFromLeader,
            });
        }
        let proposed = self.maybe_expand_isr(replica, log, brokers);
        let moved =
            self.maybe_increment_high_watermark(log, brokers, fetch.at, Why::MaximalIsrHasIt);
        Ok(effects.then(proposed).then(moved))
    }

    /// Moves the high watermark as far as the rule of [`crate::high_watermark`] allows. Does nothing
    /// on a follower. Called by all that could let it move; also for the host after a change of
    /// configuration.
    pub fn maybe_increment_high_watermark(
        &mut self,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
        why: Why,
    ) -> Effects {
        let Some(leader) = self.leader_state() else {
            return Effects::default();
        };
        let log_end = log.log_end;
        let lag_time_max = self.settings.replica_lag_time_max;
        let followers = leader.followers.iter().map(|(id, state)| FollowerProgress {
            log_end: state.log_end,
            in_maximal_isr: leader.isr.is_maximal_member(*id),
            is_caught_up: state.is_caught_up(log_end.offset, now, lag_time_max),
            is_isr_eligible: is_isr_eligible(*id, state, brokers),
        });
        let confirmed = leader.isr.effective().len();
        let candidate =
            candidate_high_watermark(log_end, confirmed, self.effective_min_isr(), followers);
        let from = self.high_watermark;
        let Some(to) = candidate.and_then(|to| advance(from, to, log_end.offset)) else {
            return Effects::default();
        };
        assert!(
            log.log_start <= to.offset,
            "{}: high watermark {to} below the log start {}",
            self.topic_partition,
            log.log_start
        );
        self.high_watermark = to;
        if to.offset == from.offset {
            return Effects::default();
        }
        Effects {
            high_watermark: Some(HighWatermarkMove { from, to }),
            wake: Wake::ALL,
            events: vec![Event::HighWatermarkMoved {
                partition: self.topic_partition.clone(),
                from: from.offset,
                to: to.offset,
                why,
            }],
            ..Effects::default()
        }
    }

    /// The least log start among this leader and its live followers: how far DeleteRecords is done
    /// (I02). A live follower that has not fetched yet counts as -1.
    pub fn low_watermark(
        &self,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
    ) -> Result<Offset, PartitionError> {
        let leader = self.require_leader()?;
        let live = leader
            .followers
            .iter()
            .filter(|(id, _)| brokers.broker(**id).is_some_and(|status| !status.fenced));
        Ok(live.map(|(_, state)| state.log_start_offset).fold(log.log_start, Offset::min))
    }
}

/// Whether the controller would take `replica` into an ISR: registered, neither fenced nor stopping
/// (H10), and the judged fetch is of that very registration (H11). A fetch without a broker epoch
/// passes the last check: only old versions send none.
pub(super) fn is_isr_eligible(
    replica: NodeId,
    state: &ReplicaState,
    brokers: &dyn BrokerDirectory,
) -> bool {
    let (Some(status), Some(fetched)) = (brokers.broker(replica), state.broker_epoch) else {
        return false;
    };
    let is_of_this_start = fetched == protocol::BrokerEpoch::NONE
        || fetched == status.epoch
        || bugs::is_on(Bug::StaleBrokerEpochJoins); // wrong (KIP-903)
    if bugs::is_on(Bug::FencedReplicaJoins) {
        return is_of_this_start; // wrong (KIP-841): it may be gone, or about to go
    }
    is_of_this_start && !status.fenced && !status.in_controlled_shutdown
}
