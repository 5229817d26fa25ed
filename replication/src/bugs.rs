//! The wrong rules of the past, on a switch: each stands beside the right one as
//! `if bugs::is_on(Bug::X) { wrong }`, so that tests can show what each of them costs and that an
//! invariant sees it.
//!
//! Only with the feature `historical-bugs` can one be on, and then only for the thread that asked, which
//! is the simulator's. Without it [`is_on`] is `false` for the compiler too, and nothing of them is left.

/// A wrong rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Bug {
    /// T01.
    TruncateToHighWatermark,
    /// T03.
    OneStepEpochLookup,
    /// E01, T09, H13.
    NoEpochFencing,
    /// H03.
    WatermarkFromProposedIsr,
    /// H03.
    WatermarkFromCommittedIsr,
    /// H11.
    StaleBrokerEpochJoins,
    /// H05.
    JoinsBelowEpochStart,
    /// H06.
    WatermarkUnderMinIsr,
    /// T08.
    WatermarkFromDivergingAnswer,
    /// H02.
    LatestOffsetGoesBack,
    /// H07.
    AckedByAppendAlone,
    /// C05.
    UncleanLeaderUnasked,
    /// T04, I9.
    EpochsOutliveTruncation,
    /// T07.
    SameLeaderNotFollowedAnew,
    /// H10.
    FencedReplicaJoins,
    /// H04.
    WatermarkWaitsForNextFetch,
    /// C06.
    UncleanReplicaStaysEligible,
}

/// What a bug is called, where it comes from, and what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// Its name on command lines and in tables.
    pub name: &'static str,
    /// The KIP or the JIRA ticket that tells of it.
    pub origin: &'static str,
    /// What the wrong rule does.
    pub what: &'static str,
}

const fn description(name: &'static str, origin: &'static str, what: &'static str) -> Description {
    Description { name, origin, what }
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 17] = [
        Bug::TruncateToHighWatermark,
        Bug::OneStepEpochLookup,
        Bug::NoEpochFencing,
        Bug::WatermarkFromProposedIsr,
        Bug::WatermarkFromCommittedIsr,
        Bug::StaleBrokerEpochJoins,
        Bug::JoinsBelowEpochStart,
        Bug::WatermarkUnderMinIsr,
        Bug::WatermarkFromDivergingAnswer,
        Bug::LatestOffsetGoesBack,
        Bug::AckedByAppendAlone,
        Bug::UncleanLeaderUnasked,
        Bug::EpochsOutliveTruncation,
        Bug::SameLeaderNotFollowedAnew,
        Bug::FencedReplicaJoins,
        Bug::WatermarkWaitsForNextFetch,
        Bug::UncleanReplicaStaysEligible,
    ];

    /// Name, origin and effect.
    pub const fn description(self) -> Description {
        match self {
            Bug::TruncateToHighWatermark => description(
                "truncate-to-high-watermark",
                "KIP-101",
                "a new follower first cuts its log to its high watermark",
            ),
            Bug::OneStepEpochLookup => description(
                "one-step-epoch-lookup",
                "KIP-279",
                "logs are compared by the end of an epoch alone, whichever epoch it is the end of",
            ),
            Bug::NoEpochFencing => description(
                "no-epoch-fencing",
                "KIP-320",
                "fetches and ISR changes of other leader epochs are served",
            ),
            Bug::WatermarkFromProposedIsr => description(
                "watermark-from-proposed-isr",
                "KIP-497",
                "members proposed to leave the ISR are not waited for any more",
            ),
            Bug::WatermarkFromCommittedIsr => description(
                "watermark-from-committed-isr",
                "KIP-497",
                "a replica proposed to join the ISR is not waited for yet",
            ),
            Bug::StaleBrokerEpochJoins => description(
                "stale-broker-epoch-joins",
                "KIP-903",
                "a fetch from before a broker's restart lets it join the ISR",
            ),
            Bug::JoinsBelowEpochStart => description(
                "joins-below-epoch-start",
                "KIP-320, its TLA+ model",
                "a replica joins the ISR at a new leader's own high watermark",
            ),
            Bug::WatermarkUnderMinIsr => description(
                "watermark-under-min-isr",
                "KIP-966",
                "the high watermark moves under min.insync.replicas",
            ),
            Bug::WatermarkFromDivergingAnswer => description(
                "watermark-from-diverging-answer",
                "KAFKA-14704",
                "the high watermark of a diverging answer is taken before the log is cut",
            ),
            Bug::LatestOffsetGoesBack => description(
                "latest-offset-goes-back",
                "KIP-207",
                "a new leader tells its high watermark before it has reached its epoch's start",
            ),
            Bug::AckedByAppendAlone => description(
                "acked-by-append-alone",
                "H07",
                "acks=all is acknowledged as soon as the leader has the records",
            ),
            Bug::UncleanLeaderUnasked => description(
                "unclean-leader-unasked",
                "KIP-106",
                "a replica outside the ISR is elected although nobody allowed it",
            ),
            Bug::EpochsOutliveTruncation => description(
                "epochs-outlive-truncation",
                "KAFKA-10706",
                "cutting the log leaves its epoch cache as it was",
            ),
            Bug::SameLeaderNotFollowedAnew => description(
                "same-leader-not-followed-anew",
                "KAFKA-7164",
                "a follower goes on under its old epoch when the leader's id is the same",
            ),
            Bug::FencedReplicaJoins => description(
                "fenced-replica-joins",
                "KIP-841",
                "fenced and stopping brokers may join the ISR",
            ),
            Bug::WatermarkWaitsForNextFetch => description(
                "watermark-waits-for-next-fetch",
                "KAFKA-13091",
                "a confirmed ISR does not move the high watermark",
            ),
            Bug::UncleanReplicaStaysEligible => description(
                "unclean-replica-stays-eligible",
                "KIP-966",
                "a replica whose process ended uncleanly may still be elected without an ISR",
            ),
        }
    }
}

#[cfg(feature = "historical-bugs")]
mod switch {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static ON: Cell<u64> = const { Cell::new(0) };
    }

    /// Whether this thread has the bug on.
    pub fn is_on(bug: Bug) -> bool {
        ON.get() & (1 << bug as u8) != 0
    }

    /// Has exactly these bugs on in this thread.
    pub fn set(bugs: &[Bug]) {
        ON.set(bugs.iter().fold(0, |on, bug| on | 1 << *bug as u8));
    }
}

#[cfg(feature = "historical-bugs")]
pub use switch::{is_on, set};

/// Whether this thread has the bug on: never, without the feature `historical-bugs`.
#[cfg(not(feature = "historical-bugs"))]
#[inline(always)]
pub const fn is_on(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_name_of_its_own_and_is_in_the_list_at_its_number() {
        for (at, bug) in Bug::ALL.into_iter().enumerate() {
            assert_eq!(bug as usize, at);
            let same = Bug::ALL.iter().filter(|b| b.description().name == bug.description().name);
            assert_eq!(same.count(), 1, "{bug:?}");
        }
    }

    #[test]
    #[cfg(feature = "historical-bugs")]
    fn only_the_bugs_that_were_set_are_on() {
        set(&[Bug::ALL[0], Bug::ALL[15]]);
        let on: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| is_on(*bug)).collect();
        assert_eq!(on, [Bug::ALL[0], Bug::ALL[15]]);
        set(&[]);
        assert!(!Bug::ALL.into_iter().any(is_on));
    }
}
