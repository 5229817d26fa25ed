//! When a parked fetch must be answered (rules F02 and F04), decided on values that the host reads
//! from each partition.
//!
//! | case | the wait ends because |
//! |---|---|
//! | A | this broker does not lead a partition that the fetch may only read from a leader |
//! | B | this broker holds no replica of a partition any more |
//! | C | a partition is not known any more |
//! | D | a partition's log directory failed |
//! | E | the fetch's leader epoch is fenced, or newer than ours |
//! | F | the fetch offset is above the readable end (the log was truncated), or the readable end is in a later segment than the offset (a whole segment is there to read) |
//! | G | enough bytes can be read over all partitions |
//! | H | the fetcher's last epoch ends below its offset by now: it must truncate |
//!
//! Case F does not look at an offset that equals the readable end: right after a roll the high
//! watermark still lies on the old segment although there is nothing to read (KAFKA-3159). Partitions
//! whose fetch offset could not be placed in the log on arrival count for nothing, as does a
//! throttled follower's share.

use crate::log_offset::LogOffsetMetadata;
use protocol::types::{LeaderEpoch, Offset};

/// Why a fetch waits no longer; the letter of the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchWake {
    /// Case A.
    NotLeader,
    /// Case B.
    NotReplica,
    /// Case C.
    UnknownPartition,
    /// Case D.
    StorageOffline,
    /// Case E.
    EpochMismatch,
    /// Case F, by truncation.
    Truncated,
    /// Case F, by a roll.
    OlderSegment,
    /// Case G.
    EnoughBytes,
    /// Case H.
    Diverging,
}

/// Why the host cannot look at a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchPartitionFault {
    /// Case A: error 6, the fetch needs a leader.
    NotLeader,
    /// Case B: error 6, no replica here.
    NotReplica,
    /// Case C: error 3, 100 or 103.
    UnknownPartition,
    /// Case D: error 56.
    StorageOffline,
    /// Case E: error 74 or 75.
    EpochMismatch,
}

/// The readable part of a partition now, for the isolation of the fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadableEnd {
    /// Log end, high watermark or last stable offset, with its place in the log.
    pub end: LogOffsetMetadata,
    /// Where the epoch nearest to the fetcher's last one ends here: (that epoch, its end). `None`
    /// when the fetch names no last epoch. [`LeaderEpoch::NONE`] when nothing is known of it.
    pub epoch_end: Option<(LeaderEpoch, Offset)>,
    /// Whether the replication quota holds this follower back.
    pub is_throttled: bool,
}

/// A partition as it is at the moment of the check.
pub type FetchPartitionNow = Result<ReadableEnd, FetchPartitionFault>;

/// What a parked fetch remembers of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkedPartition {
    /// Where it reads from, placed in the log when it arrived; `None` when it could not be placed.
    pub start: Option<LogOffsetMetadata>,
    /// Most bytes it wants of the partition.
    pub max_bytes: i32,
    /// Epoch of the record before its offset; -1 for none.
    pub last_fetched_epoch: LeaderEpoch,
}

/// What one partition contributes: a reason to answer now, or so many readable bytes.
///
/// # Errors
/// The reason to answer now.
pub fn partition_bytes(
    parked: &ParkedPartition,
    now: &FetchPartitionNow,
) -> Result<u64, FetchWake> {
    let Some(start) = parked.start else {
        return Ok(0);
    };
    let readable = match now {
        Ok(readable) => readable,
        Err(FetchPartitionFault::NotLeader) => return Err(FetchWake::NotLeader),
        Err(FetchPartitionFault::NotReplica) => return Err(FetchWake::NotReplica),
        Err(FetchPartitionFault::UnknownPartition) => return Err(FetchWake::UnknownPartition),
        Err(FetchPartitionFault::StorageOffline) => return Err(FetchWake::StorageOffline),
        Err(FetchPartitionFault::EpochMismatch) => return Err(FetchWake::EpochMismatch),
    };
    let bytes = bytes_between(&start, parked.max_bytes, readable)?;
    if parked.last_fetched_epoch > LeaderEpoch::NONE
        && let Some((epoch, end)) = readable.epoch_end
    {
        let unknown = epoch == LeaderEpoch::NONE || end == Offset::NONE;
        if unknown || epoch < parked.last_fetched_epoch || end < start.offset {
            return Err(FetchWake::Diverging);
        }
    }
    Ok(bytes)
}

/// Cases F and G for one partition.
fn bytes_between(
    start: &LogOffsetMetadata,
    max_bytes: i32,
    readable: &ReadableEnd,
) -> Result<u64, FetchWake> {
    let end = &readable.end;
    if start.offset > end.offset {
        return Err(FetchWake::Truncated);
    }
    if start.offset == end.offset || readable.is_throttled {
        return Ok(0);
    }
    if start.is_on_older_segment(end) {
        return Err(FetchWake::OlderSegment);
    }
    let available = end.position_diff(start).unwrap_or(0);
    Ok(available.clamp(0, i64::from(max_bytes.max(0))) as u64)
}

/// The decision over all partitions: `None` while the fetch has to wait. A `min_bytes` of 0 or less
/// never waits.
pub fn wake_reason<'a>(
    min_bytes: i32,
    partitions: impl IntoIterator<Item = (&'a ParkedPartition, FetchPartitionNow)>,
) -> Option<FetchWake> {
    let mut bytes: u64 = 0;
    for (parked, now) in partitions {
        match partition_bytes(parked, &now) {
            Ok(more) => bytes = bytes.saturating_add(more),
            Err(reason) => return Some(reason),
        }
    }
    (bytes >= min_bytes.max(0) as u64).then_some(FetchWake::EnoughBytes)
}
