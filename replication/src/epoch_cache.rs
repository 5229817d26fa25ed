//! Which leader epoch starts at which offset: the memory by which two logs find where they part.
//!
//! Keeps I9: epochs and start offsets both grow strictly, and an entry never starts beyond the log's
//! end once [`LeaderEpochCache::trim_to`] has run. Decides E02 (the end of an epoch), T05 (whether a
//! fetch position diverges) and T12 (what of a loaded cache may stay). The text file is storage's.

use protocol::{LeaderEpoch, Offset};

use crate::bugs::{self, Bug};

/// Where an epoch starts in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEntry {
    /// The leader epoch; never negative.
    pub epoch: LeaderEpoch,
    /// Offset of its first record, or where it would be.
    pub start_offset: Offset,
}

/// The last offset of an epoch, exclusive, as OffsetForLeaderEpoch and diverging answers give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEndOffset {
    /// The greatest known epoch that is not above the requested one; or the requested one itself
    /// when it lies below all known.
    pub epoch: LeaderEpoch,
    /// Where the epoch after it starts, or the log's end.
    pub end_offset: Offset,
}

impl EpochEndOffset {
    /// "Not known": -1 and -1 (KAFKA-6857: never the log's end).
    pub const UNDEFINED: EpochEndOffset =
        EpochEndOffset { epoch: LeaderEpoch::NONE, end_offset: Offset::NONE };

    /// Whether this is the answer that says nothing.
    pub fn is_undefined(&self) -> bool {
        self.epoch == LeaderEpoch::NONE || self.end_offset == Offset::NONE
    }
}

/// Whether a reader whose last record has `last_fetched_epoch` may go on at its fetch offset (T05).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchPosition {
    /// The reader's log is a prefix of ours.
    Ok,
    /// The logs part: the reader must truncate by this answer before it may fetch again.
    Diverging(EpochEndOffset),
    /// Below the log's start, or with an epoch above all known: OFFSET_OUT_OF_RANGE.
    OutOfRange,
}

/// The epochs of one log, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochCache {
    /// A cache of an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a cache from a file's entries, in any order. A later entry that breaks the strict
    /// growth replaces those it contradicts, as [`assign`](Self::assign) does; entries with a
    /// negative epoch or offset are dropped, since a damaged file must not stop a start.
    pub fn from_entries(entries: impl IntoIterator<Item = EpochEntry>) -> Self {
        let mut cache = Self::new();
        let mut sorted: Vec<EpochEntry> = entries
            .into_iter()
            .filter(|entry| entry.epoch.get() >= 0 && entry.start_offset.get() >= 0)
            .collect();
        sorted.sort_by_key(|entry| (entry.epoch, entry.start_offset));
        for entry in sorted {
            cache.assign(entry.epoch, entry.start_offset);
        }
        cache
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Whether no epoch is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes that `epoch` starts at `start_offset`; returns whether anything changed (the host then
    /// writes the file before it goes on, T12: an entry is never missing). Entries that start at or
    /// after it, or whose epoch is not below, are dropped: nothing was written in them.
    ///
    /// Panics on a negative epoch or offset: both come from ourselves or from a checked batch.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        assert!(
            epoch.get() >= 0 && start_offset.get() >= 0,
            "leader epoch {epoch} cannot start at offset {start_offset}"
        );
        if let Some(latest) = self.entries.last()
            && latest.epoch == epoch
            && start_offset >= latest.start_offset
        {
            return false;
        }
        while let Some(latest) = self.entries.last()
            && (latest.epoch >= epoch || latest.start_offset >= start_offset)
        {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The latest entry.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The latest epoch; what a follower sends as `last_fetched_epoch`.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// The oldest entry.
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// The epoch that the record at `offset` was written in; `None` below the first entry.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let above = self.entries.partition_point(|entry| entry.start_offset <= offset);
        above.checked_sub(1).map(|floor| self.entries[floor].epoch)
    }

    /// The greatest known epoch below `epoch`.
    pub fn previous_epoch(&self, epoch: LeaderEpoch) -> Option<LeaderEpoch> {
        let at_or_above = self.entries.partition_point(|entry| entry.epoch < epoch);
        at_or_above.checked_sub(1).map(|below| self.entries[below].epoch)
    }

    /// The end of `requested` (E02): the greatest known epoch not above it, and where the next known
    /// epoch starts, or `log_end` for the latest. Below the first entry the requested epoch is
    /// echoed with the first start. -1, or an epoch above all known, is undefined.
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> EpochEndOffset {
        if requested == LeaderEpoch::NONE {
            return EpochEndOffset::UNDEFINED;
        }
        if self.latest_epoch() == Some(requested) {
            return EpochEndOffset { epoch: requested, end_offset: log_end };
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= requested);
        let Some(next) = self.entries.get(higher) else {
            return EpochEndOffset::UNDEFINED;
        };
        let epoch = match higher.checked_sub(1) {
            Some(floor) => self.entries[floor].epoch,
            None => requested,
        };
        EpochEndOffset { epoch, end_offset: next.start_offset }
    }

    /// Drops entries that start at or beyond `end_offset`; returns whether any were dropped. The
    /// host calls it with min(target, log end) even when the log itself needs no cut: an epoch that
    /// was opened here and never written to may contradict the new leader's (KAFKA-10706).
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Drops epochs that end at or before `start_offset` and lets the one that spans it start there;
    /// returns whether anything changed. The latest epoch always survives.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let above = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(floor) = above.checked_sub(1) else {
            return false;
        };
        let changed = floor > 0 || self.entries[floor].start_offset != start_offset;
        self.entries.drain(..floor);
        self.entries[0].start_offset = start_offset;
        changed
    }

    /// What of a loaded cache may stay beside a recovered log (T12): entries that start at or beyond
    /// the log's end go, those below its start collapse into one that starts there. Returns whether
    /// anything changed.
    pub fn trim_to(&mut self, log_start: Offset, log_end: Offset) -> bool {
        let end = self.truncate_from_end(log_end);
        let start = self.truncate_from_start(log_start);
        end || start
    }

    /// Forgets everything: the log was emptied and starts elsewhere (T11).
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }
}

/// Judges a reader's position against a log (T05, KIP-279, KIP-320): `last_fetched_epoch` is the
/// epoch of the record before `fetch_offset` in the reader's log.
///
/// An epoch above all known is out of range; the range check against the log's start precedes the
/// divergence check. Whether `fetch_offset` lies beyond the log's end without diverging is the
/// reading's business, since a fetch without an epoch needs that check too.
pub fn validate_fetch_position(
    epochs: &LeaderEpochCache,
    log_start: Offset,
    log_end: Offset,
    last_fetched_epoch: LeaderEpoch,
    fetch_offset: Offset,
) -> FetchPosition {
    let end = epochs.end_offset_for(last_fetched_epoch, log_end);
    if end.is_undefined() || fetch_offset < log_start {
        return FetchPosition::OutOfRange;
    }
    if bugs::is_on(Bug::OneStepEpochLookup) && end.end_offset >= fetch_offset {
        return FetchPosition::Ok; // wrong (KIP-279): the end may be that of another epoch
    }
    if end.epoch < last_fetched_epoch || end.end_offset < fetch_offset {
        return FetchPosition::Diverging(end);
    }
    FetchPosition::Ok
}
