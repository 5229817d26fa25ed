//! What the rules ask of their host: values, carried out by the host after the call, in the order of
//! the fields.

use protocol::Offset;

use crate::epoch_cache::EpochEntry;
use crate::isr::IsrProposal;
use crate::log_offset::LogOffsetMetadata;
use crate::trace::Event;

/// A high watermark that moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HighWatermarkMove {
    /// Before.
    pub from: LogOffsetMetadata,
    /// After.
    pub to: LogOffsetMetadata,
}

/// Which delayed operations of the partition may have become complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wake {
    /// Produce requests with acks=all.
    pub produce: bool,
    /// Fetches, of consumers and of followers.
    pub fetch: bool,
    /// DeleteRecords waiting for the low watermark.
    pub delete_records: bool,
}

impl Wake {
    /// All of them.
    pub const ALL: Wake = Wake { produce: true, fetch: true, delete_records: true };
    /// None of them.
    pub const NONE: Wake = Wake { produce: false, fetch: false, delete_records: false };

    /// Those of either.
    #[must_use]
    pub fn or(self, other: Wake) -> Wake {
        Wake {
            produce: self.produce || other.produce,
            fetch: self.fetch || other.fetch,
            delete_records: self.delete_records || other.delete_records,
        }
    }
}

/// What to do after a decision. Dropping it loses decisions, so it must be used.
#[must_use]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// An entry for the log's epoch cache, to be durable before anything is appended or answered
    /// under this epoch (I9, T12).
    pub assign_epoch: Option<EpochEntry>,
    /// Raise the log's start to here (I02).
    pub raise_log_start: Option<Offset>,
    /// The high watermark moved: already in force, told for retention, metrics and checkpoints.
    pub high_watermark: Option<HighWatermarkMove>,
    /// Send this AlterPartition now.
    pub propose: Option<IsrProposal>,
    /// Send this AlterPartition again after a pause: its outcome is not known.
    pub propose_again: Option<IsrProposal>,
    /// Check these delayed operations, after the partition's lock is released.
    pub wake: Wake,
    /// What to tell the trace, in order.
    pub events: Vec<Event>,
}

impl Effects {
    /// Both, `later` after `self`.
    pub fn then(mut self, later: Effects) -> Effects {
        self.assign_epoch = later.assign_epoch.or(self.assign_epoch);
        self.raise_log_start = later.raise_log_start.max(self.raise_log_start);
        self.high_watermark = match (self.high_watermark, later.high_watermark) {
            (Some(first), Some(second)) => {
                Some(HighWatermarkMove { from: first.from, to: second.to })
            }
            (first, second) => first.or(second),
        };
        self.propose = later.propose.or(self.propose);
        self.propose_again = later.propose_again.or(self.propose_again);
        self.wake = self.wake.or(later.wake);
        self.events.extend(later.events);
        self
    }
}
