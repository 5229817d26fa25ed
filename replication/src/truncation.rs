//! What a follower does with an answer to its fetch, before it touches its log: apply it, cut the
//! log, ask where the leader's log lies, wait, or drop the answer.
//!
//! | answer | step | rule |
//! |---|---|---|
//! | for another offset or epochs than the fetcher has now | drop it whole | T10 |
//! | error 1 | ask the leader's latest, then its earliest offset | T11 |
//! | error 74 | stop until new metadata, if our epoch is still the one fenced | T09 |
//! | error 75, 6, 3 and others | back off, try again | T09 |
//! | diverging epoch | cut by our own epoch cache; no watermark moves | T03, T04, T08 |
//! | none of these | append, then the watermarks | H01 |
//!
//! Pure functions over the follower's epoch cache and position. Nothing here cuts: it says where to.

use protocol::{ErrorCode, LeaderEpoch, Offset};

use crate::bugs::{self, Bug};
use crate::epoch_cache::{EpochEndOffset, LeaderEpochCache};

/// Where a fetcher is in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPoint {
    /// The offset to fetch next: the follower's log end.
    pub fetch_offset: Offset,
    /// The leader epoch it fetches under.
    pub leader_epoch: LeaderEpoch,
    /// The epoch of the record below `fetch_offset`; [`LeaderEpoch::NONE`] for an empty log.
    pub last_fetched_epoch: LeaderEpoch,
}

/// Where to cut the log, and whether the place where the logs part is reached with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// The log's end after the cut; the present end when nothing is cut. The epoch cache must be cut
    /// to it all the same (KAFKA-10706).
    pub to: Offset,
    /// False when the leader named an epoch that this log lacks: the next fetch will diverge again or
    /// show that the logs agree (T03).
    pub complete: bool,
    /// The cut goes below the high watermark: legal only after an unclean election (T02), so the host
    /// warns.
    pub below_high_watermark: bool,
}

/// What an answer asks of the follower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchAnswerStep {
    /// Drop the answer whole.
    Drop,
    /// Cut the log; move no watermark; fetch from the cut.
    Truncate(Truncation),
    /// Append the records, then take the watermarks.
    Append,
    /// The offset is outside the leader's log: ask the leader, starting with
    /// [`OutOfRangeStep::AskLatest`].
    ResolveOutOfRange,
    /// Stop fetching this partition until metadata brings another epoch.
    StopUntilMetadata,
    /// Try again after the fetch backoff.
    BackOff,
}

/// The parts of an answer that decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchAnswer {
    /// The partition's error.
    pub error: ErrorCode,
    /// The diverging epoch, when the answer has one.
    pub diverging: Option<EpochEndOffset>,
}

/// The follower's log, as far as the decision needs it.
#[derive(Clone, Copy, Debug)]
pub struct FollowerLog<'a> {
    /// Its epochs.
    pub epochs: &'a LeaderEpochCache,
    /// Its end, exclusive.
    pub log_end: Offset,
    /// Its high watermark.
    pub high_watermark: Offset,
}

/// Whether an answer belongs to the fetcher's present state (T10): it was asked for the very offset
/// that is to be fetched next, under the same leader epoch, above a record of the same epoch. The last
/// matters when the log was cut and grew back to the same offset meanwhile: equal offset and epoch
/// below it mean an equal log (I1), so the answer then fits, whatever happened in between. `current` is `None` when the partition is
/// not fetched any more, or not yet.
pub fn is_answer_current(requested: FetchPoint, current: Option<FetchPoint>) -> bool {
    current == Some(requested)
}

/// What to do with an answer; the table at the head of this file.
pub fn on_fetch_answer(
    requested: FetchPoint,
    current: Option<FetchPoint>,
    answer: &FetchAnswer,
    log: &FollowerLog<'_>,
) -> FetchAnswerStep {
    if !is_answer_current(requested, current) {
        return FetchAnswerStep::Drop;
    }
    match (answer.error, answer.diverging) {
        (ErrorCode::None, Some(diverging)) => {
            FetchAnswerStep::Truncate(decide_truncation(diverging, log))
        }
        (ErrorCode::None, None) => FetchAnswerStep::Append,
        (ErrorCode::OffsetOutOfRange, _) => FetchAnswerStep::ResolveOutOfRange,
        (ErrorCode::FencedLeaderEpoch, _) => FetchAnswerStep::StopUntilMetadata,
        _ => FetchAnswerStep::BackOff,
    }
}

/// Where a follower cuts its log on a diverging answer, or on an OffsetForLeaderEpoch answer (T03, T04,
/// KIP-279). When it knows the leader's epoch, both ends of it are bounds, and the cut is final.
/// When it does not, it goes to the end of the greatest epoch below, and asks again from there.
/// Never beyond the log's end; below the high watermark only when the logs truly part there.
pub fn decide_truncation(diverging: EpochEndOffset, log: &FollowerLog<'_>) -> Truncation {
    let (to, complete) = if diverging.end_offset == Offset::NONE {
        // The leader knows nothing at all of the epoch: only what is committed is sure.
        (log.high_watermark, true)
    } else {
        let own = log.epochs.end_offset_for(diverging.epoch, log.log_end);
        if own.is_undefined() || bugs::is_on(Bug::OneStepEpochLookup) {
            // With the bug on wrong (KIP-279): our log may part from the leader's below this.
            (diverging.end_offset, true)
        } else if own.epoch != diverging.epoch {
            (own.end_offset, false)
        } else {
            (own.end_offset.min(diverging.end_offset), true)
        }
    };
    let to = to.clamp(Offset::ZERO, log.log_end);
    Truncation { to, complete, below_high_watermark: to < log.high_watermark }
}

/// What a follower does whose offset is outside the leader's log (T11): first ask for the leader's
/// latest offset, then, unless that lies below our end, for its earliest one. Each question carries
/// the follower's leader epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutOfRangeStep {
    /// Ask ListOffsets(-1) of the leader; its answer goes to [`on_leader_latest`](Self::on_leader_latest).
    AskLatest,
    /// Ask ListOffsets(-2) of the leader; its answer goes to
    /// [`on_leader_earliest`](Self::on_leader_earliest).
    AskEarliest,
    /// Cut the log to this offset and fetch from it.
    TruncateTo(Offset),
    /// Empty the log, start it at this offset, forget its epochs, fetch from it.
    StartAt(Offset),
    /// Leave the log alone and fetch from its end.
    FetchFrom(Offset),
}

impl OutOfRangeStep {
    /// The first step.
    pub const FIRST: OutOfRangeStep = OutOfRangeStep::AskLatest;

    /// The step after the leader said its log's end. One below ours means that ours is cut to it.
    pub fn on_leader_latest(leader_log_end: Offset, log_end: Offset) -> OutOfRangeStep {
        if leader_log_end < log_end {
            OutOfRangeStep::TruncateTo(leader_log_end)
        } else {
            OutOfRangeStep::AskEarliest
        }
    }

    /// The step after the leader said its log's start. One beyond our end means that nothing of ours
    /// is of use; else the leader's log has moved meanwhile, and ours goes on where it is.
    pub fn on_leader_earliest(leader_log_start: Offset, log_end: Offset) -> OutOfRangeStep {
        if leader_log_start > log_end {
            OutOfRangeStep::StartAt(leader_log_start)
        } else {
            OutOfRangeStep::FetchFrom(log_end)
        }
    }
}
