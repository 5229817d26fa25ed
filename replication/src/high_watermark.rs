//! How far a partition is committed: the candidate high watermark as one free function.
//!
//! The rule, whole: under the effective min.insync.replicas nothing moves (H06). Otherwise the
//! candidate is the least log end among the leader, every member of the *maximal* ISR (H03), and every
//! other replica that is caught up within the lag limit and may join: such a one is waited for, or it
//! could never catch up with a moving watermark. The caller applies it only when it is greater than
//! the present one, so it grows within a leader epoch (I8).
//!
//! Where the leader's epoch starts needs no term of its own here: the leader's own log end counts
//! and a new leader knows no follower's log end, so it climbs with their fetches (H02, H12).
//! Admission to the ISR is where the epoch's start counts (H05).

use protocol::Offset;

use crate::bugs::{self, Bug};
use crate::log_offset::LogOffsetMetadata;

/// One follower as the rule sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerProgress {
    /// Its log end as of its last fetch; unknown (-1) before that.
    pub log_end: LogOffsetMetadata,
    /// Whether it is in the maximal ISR.
    pub in_maximal_isr: bool,
    /// Whether it is caught up by time (H09).
    pub is_caught_up: bool,
    /// Whether the controller would take it into the ISR (H10, H11).
    pub is_isr_eligible: bool,
}

/// The effective min.insync.replicas: never more than there are replicas (H06).
pub fn effective_min_isr(min_insync_replicas: usize, replicas: usize) -> usize {
    min_insync_replicas.min(replicas)
}

/// The offset up to which the partition is committed; `None` when the confirmed ISR is under the
/// effective min.insync.replicas and nothing may move.
pub fn candidate_high_watermark(
    leader_log_end: LogOffsetMetadata,
    confirmed_isr: usize,
    effective_min_isr: usize,
    followers: impl IntoIterator<Item = FollowerProgress>,
) -> Option<LogOffsetMetadata> {
    // With the bug on wrong (KIP-966): too few may have it to survive what the topic promises.
    if confirmed_isr < effective_min_isr && !bugs::is_on(Bug::WatermarkUnderMinIsr) {
        return None;
    }
    let mut candidate = leader_log_end;
    for follower in followers {
        let waited_for =
            follower.in_maximal_isr || (follower.is_caught_up && follower.is_isr_eligible);
        if waited_for && follower.log_end.offset < candidate.offset {
            candidate = follower.log_end;
        }
    }
    Some(candidate)
}

/// The high watermark after `candidate`: greater offsets win, and an equal offset that is known to lie
/// in a newer segment replaces the older place of it (a roll happened at the watermark, F04).
/// Panics when the candidate is beyond the leader's log end.
pub fn advance(
    current: LogOffsetMetadata,
    candidate: LogOffsetMetadata,
    leader_log_end: Offset,
) -> Option<LogOffsetMetadata> {
    assert!(
        candidate.offset <= leader_log_end,
        "high watermark {candidate} beyond the log end {leader_log_end}"
    );
    let moves = current.offset < candidate.offset
        || (current.offset == candidate.offset && current.is_on_older_segment(&candidate));
    moves.then_some(candidate)
}

/// The high watermark at start (H12): the checkpoint, or 0 without one, brought into the log.
pub fn from_checkpoint(checkpoint: Option<Offset>, log_start: Offset, log_end: Offset) -> Offset {
    assert!(log_start <= log_end, "log start {log_start} beyond its end {log_end}");
    checkpoint.unwrap_or(Offset::ZERO).clamp(log_start, log_end)
}
