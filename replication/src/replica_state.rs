//! What a leader knows of one follower, and the one rule that says when it was last caught up (H09).
//!
//! Pure: [`ReplicaState::on_fetch`] takes the old state and a fetch and gives the new state. The state
//! that was judged for the ISR is the value that is proposed to the controller (H11).

use std::time::Duration;

use protocol::{BrokerEpoch, Offset};

use crate::log_offset::LogOffsetMetadata;
use crate::time::Instant;

/// A follower as its leader sees it. Small and `Copy`: a snapshot is an ordinary copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaState {
    /// The follower's log end: the offset it fetched last. Unknown until it has fetched.
    pub log_end: LogOffsetMetadata,
    /// The follower's log start; [`Offset::NONE`] until it has fetched.
    pub log_start_offset: Offset,
    /// The leader's log end when the follower last fetched, before that read.
    pub last_fetch_leader_log_end: Offset,
    /// When the follower last fetched; `None` before it has.
    pub last_fetch_time: Option<Instant>,
    /// The last moment at which the follower is known to have had everything; `None` for "never".
    /// Not a time of zero: a node that has just started would take that for a moment ago.
    pub last_caught_up_time: Option<Instant>,
    /// The broker epoch of the last fetch; `None` before it has fetched (KIP-903).
    pub broker_epoch: Option<BrokerEpoch>,
}

/// A follower's fetch, as far as the leader's picture of the follower is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerFetch {
    /// The offset fetched, with its place in the leader's log: the follower has all below it.
    pub fetch_offset: LogOffsetMetadata,
    /// The follower's log start, as the request says.
    pub log_start_offset: Offset,
    /// The leader's log end *before* the records for this fetch were read.
    pub leader_log_end: Offset,
    /// The sender's broker epoch; [`BrokerEpoch::NONE`] from versions that carry none.
    pub broker_epoch: BrokerEpoch,
    /// When the fetch was read.
    pub at: Instant,
}

impl ReplicaState {
    /// A follower that has not fetched yet, and is not known to have ever been caught up.
    pub const UNKNOWN: ReplicaState = ReplicaState {
        log_end: LogOffsetMetadata::UNKNOWN,
        log_start_offset: Offset::NONE,
        last_fetch_leader_log_end: Offset::NONE,
        last_fetch_time: None,
        last_caught_up_time: None,
        broker_epoch: None,
    };

    /// The state after `fetch` (H09). A fetch at or past the leader's end is caught up now; one at or
    /// past the end that the leader had at the fetch before was caught up then; any other leaves the
    /// time alone. The time never goes back.
    #[must_use]
    pub fn on_fetch(&self, fetch: &FollowerFetch) -> ReplicaState {
        let offset = fetch.fetch_offset.offset;
        let caught_up = if offset >= fetch.leader_log_end {
            Some(fetch.at)
        } else if self.last_fetch_time.is_some() && offset >= self.last_fetch_leader_log_end {
            self.last_fetch_time
        } else {
            None
        };
        ReplicaState {
            log_end: fetch.fetch_offset,
            log_start_offset: fetch.log_start_offset,
            last_fetch_leader_log_end: fetch.leader_log_end.max(self.last_fetch_leader_log_end),
            last_fetch_time: Some(fetch.at),
            last_caught_up_time: self.last_caught_up_time.max(caught_up),
            broker_epoch: Some(fetch.broker_epoch),
        }
    }

    /// The state at the start of a new leader epoch (H09). ISR members count as caught up now, others
    /// as never, lest they hold the high watermark back. When this node led the epoch before as well,
    /// what it knows of the follower's log stays; otherwise (`is_new_leader`) it is forgotten.
    #[must_use]
    pub fn reset(
        &self,
        now: Instant,
        leader_log_end: Offset,
        is_new_leader: bool,
        is_in_isr: bool,
    ) -> ReplicaState {
        let caught_up = is_in_isr.then_some(now);
        if is_new_leader {
            return ReplicaState { last_caught_up_time: caught_up, ..ReplicaState::UNKNOWN };
        }
        ReplicaState {
            last_fetch_leader_log_end: leader_log_end,
            last_fetch_time: caught_up,
            last_caught_up_time: caught_up,
            ..*self
        }
    }

    /// Whether the follower is in sync by time: at the leader's end, or there within `lag_time_max`.
    pub fn is_caught_up(
        &self,
        leader_log_end: Offset,
        now: Instant,
        lag_time_max: Duration,
    ) -> bool {
        self.log_end.offset == leader_log_end
            || self.last_caught_up_time.is_some_and(|at| now.since(at) <= lag_time_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn fetch(offset: i64, leader_log_end: i64, seconds: u64) -> FollowerFetch {
        FollowerFetch {
            fetch_offset: Offset(offset).into(),
            log_start_offset: Offset(0),
            leader_log_end: Offset(leader_log_end),
            broker_epoch: BrokerEpoch(1),
            at: at(seconds),
        }
    }

    #[test]
    fn h09_a_follower_one_batch_behind_was_caught_up_at_its_previous_fetch() {
        let first = ReplicaState::UNKNOWN.on_fetch(&fetch(0, 10, 1));
        assert_eq!(first.last_caught_up_time, None);
        let second = first.on_fetch(&fetch(10, 20, 2));
        assert_eq!(second.last_caught_up_time, Some(at(1)));
        let third = second.on_fetch(&fetch(20, 20, 3));
        assert_eq!(third.last_caught_up_time, Some(at(3)));
    }

    #[test]
    fn h09_a_first_fetch_cannot_be_caught_up_at_an_earlier_one() {
        let state = ReplicaState::UNKNOWN.on_fetch(&fetch(0, 10, 5));
        assert_eq!(state.last_caught_up_time, None);
        assert!(!state.is_caught_up(Offset(10), at(5), Duration::from_secs(30)));
    }

    #[test]
    fn h09_never_caught_up_is_not_caught_up_at_time_zero() {
        let reset = ReplicaState::UNKNOWN.reset(at(5), Offset(10), true, false);
        assert!(!reset.is_caught_up(Offset(10), at(5), Duration::from_secs(30)));
        let member = ReplicaState::UNKNOWN.reset(at(5), Offset(10), true, true);
        assert!(member.is_caught_up(Offset(10), at(35), Duration::from_secs(30)));
        assert!(!member.is_caught_up(Offset(10), at(36), Duration::from_secs(30)));
    }

    #[test]
    fn a_re_elected_leader_keeps_what_it_knows_of_the_follower() {
        let known = ReplicaState::UNKNOWN.on_fetch(&fetch(8, 10, 1));
        let reset = known.reset(at(9), Offset(12), false, true);
        assert_eq!(reset.log_end, known.log_end);
        assert_eq!(reset.broker_epoch, Some(BrokerEpoch(1)));
        assert_eq!(reset.last_fetch_leader_log_end, Offset(12));
        let forgotten = known.reset(at(9), Offset(12), true, true);
        assert_eq!(forgotten.log_end, LogOffsetMetadata::UNKNOWN);
        assert_eq!(forgotten.broker_epoch, None);
    }
}
