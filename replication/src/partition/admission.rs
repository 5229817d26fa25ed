//! Who may ask what of a partition, and how far it may see: the epoch matrix (E01), isolation (F03),
//! the latest offset after a failover (H02), enough replicas for a write (H07), the nearest replica
//! to read from (K01) and deleting records (I02). Nothing here changes state.

use protocol::{LeaderEpoch, NodeId, Offset};

use super::{LeaderState, LogFacts, PartitionState, Role};
use crate::bugs::{self, Bug};
use crate::epoch_cache::{
    EpochEndOffset, FetchPosition, LeaderEpochCache, validate_fetch_position,
};
use crate::error::PartitionError;
use crate::log_offset::LogOffsetMetadata;
use crate::preferred_replica::{ReplicaView, select_preferred_replica};
use crate::time::Instant;

/// Who fetches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchReader {
    /// A follower: only the leader serves it.
    Replica(NodeId),
    /// A consumer whose request may be served by any replica: Fetch v11 and above (KIP-392).
    Consumer,
    /// A consumer of Fetch v10 and below: only the leader serves it.
    OldConsumer,
}

/// How far a reader may see (F03).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchIsolation {
    /// To the log's end: replicas.
    LogEnd,
    /// To the high watermark: read_uncommitted.
    HighWatermark,
    /// To the last stable offset: read_committed.
    TransactionCommitted,
}

/// How an acks=all write stands (H07).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckStatus {
    /// Not committed yet; the request's timeout decides.
    Waiting,
    /// Committed, with enough replicas.
    Acknowledged,
    /// Over, with an error.
    Failed(PartitionError),
}

impl PartitionState {
    /// Compares the requester's leader epoch with ours (E01): an older one is fenced (74), a newer one
    /// unknown (75), an absent one (-1) passes. This check comes before that of leadership.
    pub fn check_leader_epoch(&self, requested: LeaderEpoch) -> Result<(), PartitionError> {
        let current = self.leader_epoch;
        if bugs::is_on(Bug::NoEpochFencing) {
            return Ok(()); // wrong (KIP-320): the other side may be in another leader's time
        }
        match requested {
            LeaderEpoch::NONE => Ok(()),
            older if older < current => {
                Err(PartitionError::FencedLeaderEpoch { requested: older, current })
            }
            newer if newer > current => {
                Err(PartitionError::UnknownLeaderEpoch { requested: newer, current })
            }
            _ => Ok(()),
        }
    }

    /// The E01 matrix for ListOffsets, OffsetForLeaderEpoch, Produce and DeleteRecords
    /// (`leader_only`), and for debugging requests that any replica answers.
    pub fn check_current_leader_epoch(
        &self,
        requested: LeaderEpoch,
        leader_only: bool,
    ) -> Result<(), PartitionError> {
        if self.is_offline() {
            return Err(PartitionError::StorageOffline);
        }
        self.check_leader_epoch(requested)?;
        if leader_only { self.require_leader().map(|_| ()) } else { Ok(()) }
    }

    /// The E01 matrix for Fetch. A broker that is no replica by our metadata gets 75 when it named our
    /// epoch, so that it tries again: our metadata may be behind a reassignment (C07).
    pub fn check_fetch(
        &self,
        reader: FetchReader,
        requested: LeaderEpoch,
    ) -> Result<(), PartitionError> {
        self.check_current_leader_epoch(requested, reader != FetchReader::Consumer)?;
        match reader {
            FetchReader::Replica(replica) if self.follower(replica).is_none() => {
                if requested == LeaderEpoch::NONE {
                    Err(PartitionError::NotLeaderOrFollower)
                } else {
                    Err(PartitionError::UnknownReplica { replica })
                }
            }
            _ => Ok(()),
        }
    }

    /// The answer to OffsetForLeaderEpoch (E02): only the leader answers, after the epoch check (E01).
    /// An epoch that is not known is an undefined end, not an error.
    pub fn end_offset_for_leader_epoch(
        &self,
        current_leader_epoch: LeaderEpoch,
        requested: LeaderEpoch,
        epochs: &LeaderEpochCache,
        log: &LogFacts,
    ) -> Result<EpochEndOffset, PartitionError> {
        self.check_current_leader_epoch(current_leader_epoch, true)?;
        Ok(epochs.end_offset_for(requested, log.log_end.offset))
    }

    /// Where a fetch may start: the divergence table (T05) when the reader says its last epoch, then
    /// the range [log start, log end]. `Some` is the diverging answer: no records, no watermark is
    /// counted (T08).
    pub fn check_fetch_offset(
        &self,
        epochs: &LeaderEpochCache,
        log: &LogFacts,
        last_fetched_epoch: Option<LeaderEpoch>,
        fetch_offset: Offset,
    ) -> Result<Option<EpochEndOffset>, PartitionError> {
        let log_end = log.log_end.offset;
        let out_of_range = PartitionError::OffsetOutOfRange {
            offset: fetch_offset,
            log_start: log.log_start,
            log_end,
        };
        if let Some(epoch) = last_fetched_epoch.filter(|epoch| *epoch != LeaderEpoch::NONE) {
            match validate_fetch_position(epochs, log.log_start, log_end, epoch, fetch_offset) {
                FetchPosition::Ok => {}
                FetchPosition::Diverging(end) => return Ok(Some(end)),
                FetchPosition::OutOfRange if fetch_offset < log.log_start => {
                    return Err(out_of_range);
                }
                FetchPosition::OutOfRange => {
                    return Err(PartitionError::UnknownEpochEnd { epoch });
                }
            }
        }
        if fetch_offset < log.log_start || fetch_offset > log_end {
            return Err(out_of_range);
        }
        Ok(None)
    }

    /// The end of what `isolation` may see, exclusive (F03).
    pub fn last_fetchable_offset(
        &self,
        isolation: FetchIsolation,
        log: &LogFacts,
    ) -> LogOffsetMetadata {
        match isolation {
            FetchIsolation::LogEnd => log.log_end,
            FetchIsolation::HighWatermark => self.high_watermark,
            FetchIsolation::TransactionCommitted => self.last_stable_offset(log),
        }
    }

    /// The end of what read_committed may see: the high watermark, or where the oldest undecided
    /// transaction starts, but never below the log's start (X03).
    pub fn last_stable_offset(&self, log: &LogFacts) -> LogOffsetMetadata {
        match log.first_unstable {
            Some(unstable) if unstable.offset < self.high_watermark.offset => {
                if unstable.offset < log.log_start {
                    LogOffsetMetadata::message_only(log.log_start)
                } else {
                    unstable
                }
            }
            _ => self.high_watermark,
        }
    }

    /// The answer to ListOffsets(-1) (F07). A client (`isolation` other than the log's end) of a new
    /// leader gets 78 until the high watermark has reached the epoch's start (H02).
    pub fn latest_offset(
        &self,
        isolation: FetchIsolation,
        log: &LogFacts,
    ) -> Result<Offset, PartitionError> {
        if isolation != FetchIsolation::LogEnd {
            self.check_offset_available()?;
        }
        Ok(self.last_fetchable_offset(isolation, log).offset)
    }

    /// Whether an offset found by time may be told (H02): `Some` when it is below what the reader may
    /// see. Otherwise nothing was found, or 78 while a new leader cannot know.
    pub fn admit_found_offset(
        &self,
        found: Option<Offset>,
        isolation: FetchIsolation,
        log: &LogFacts,
    ) -> Result<Option<Offset>, PartitionError> {
        let limit = self.last_fetchable_offset(isolation, log).offset;
        if let Some(offset) = found.filter(|offset| *offset < limit) {
            return Ok(Some(offset));
        }
        if isolation != FetchIsolation::LogEnd {
            self.check_offset_available()?;
        }
        Ok(None)
    }

    fn check_offset_available(&self) -> Result<(), PartitionError> {
        let high_watermark = self.high_watermark.offset;
        if bugs::is_on(Bug::LatestOffsetGoesBack) {
            return Ok(()); // wrong (KIP-207): the leader before us may have told more
        }
        match self.leader_epoch_start() {
            Some(epoch_start) if high_watermark < epoch_start => {
                Err(PartitionError::OffsetNotAvailable { epoch_start, high_watermark })
            }
            _ => Ok(()),
        }
    }

    /// Whether a produce request may be appended (H06, H07): only by the leader, acks one of -1, 0
    /// and 1, and for acks=all not under the effective min.insync.replicas.
    pub fn check_produce(&self, acks: i16) -> Result<(), PartitionError> {
        if !matches!(acks, -1..=1) {
            return Err(PartitionError::InvalidRequiredAcks { acks });
        }
        let leader = self.require_leader()?;
        let (in_sync, min) = (leader.isr.effective().len(), self.effective_min_isr());
        if acks == -1 && in_sync < min {
            return Err(PartitionError::NotEnoughReplicas { in_sync, min });
        }
        Ok(())
    }

    /// How an acks=all write stands that was appended under `appended_epoch` and ends before
    /// `required` (H07). Committed means that the high watermark has reached `required`; it then fails
    /// with code 20 when even the maximal ISR is under the effective min.insync.replicas.
    ///
    /// Leadership lost since the append fails the write at once (6), even when it was won back:
    /// other records may be at its offsets by now.
    pub fn check_enough_replicas(
        &self,
        appended_epoch: LeaderEpoch,
        required: Offset,
    ) -> AckStatus {
        let leader = match self.require_leader() {
            Ok(leader) if leader.leading_since <= appended_epoch => leader,
            Ok(_) => return AckStatus::Failed(PartitionError::NotLeaderOrFollower),
            Err(error) => return AckStatus::Failed(error),
        };
        if bugs::is_on(Bug::AckedByAppendAlone) {
            return AckStatus::Acknowledged; // wrong (H07): nobody else may have it
        }
        if self.high_watermark.offset < required {
            return AckStatus::Waiting;
        }
        let (in_sync, min) = (leader.isr.maximal_len(), self.effective_min_isr());
        if in_sync < min {
            AckStatus::Failed(PartitionError::NotEnoughReplicasAfterAppend { in_sync, min })
        } else {
            AckStatus::Acknowledged
        }
    }

    /// Which replica a consumer in `client_rack` should read from instead of this leader (K01); `None`
    /// to read here. `racks` gives the rack of a broker that is alive on the client's listener;
    /// `None` for one that is not, or has no rack.
    pub fn preferred_read_replica(
        &self,
        client_rack: &str,
        fetch_offset: Offset,
        log: &LogFacts,
        racks: &dyn Fn(NodeId) -> Option<String>,
        now: Instant,
    ) -> Option<NodeId> {
        let leader = self.leader_state()?;
        let view = |id: NodeId, log_start, log_end, since_caught_up| {
            racks(id).map(|rack| ReplicaView { id, rack, log_start, log_end, since_caught_up })
        };
        let own = view(self.node, log.log_start, log.log_end.offset, std::time::Duration::ZERO);
        let followers = leader.followers.iter().filter_map(|(id, state)| {
            if !leader.isr.effective().contains(id) {
                return None;
            }
            let since =
                state.last_caught_up_time.map_or(std::time::Duration::MAX, |at| now.since(at));
            view(*id, state.log_start_offset, state.log_end.offset, since)
        });
        let views: Vec<ReplicaView> = own.into_iter().chain(followers).collect();
        select_preferred_replica(&views, self.node, client_rack, fetch_offset)
    }

    /// Where DeleteRecords(`requested`) puts the log's start: -1 means the high watermark; below -1 or
    /// beyond the high watermark is out of range (I02). A start below the present one is a no-op.
    pub fn delete_records_target(
        &self,
        requested: Offset,
        log: &LogFacts,
    ) -> Result<Offset, PartitionError> {
        self.require_leader()?;
        let high_watermark = self.high_watermark.offset;
        if requested == Offset::NONE {
            return Ok(high_watermark);
        }
        if requested < Offset::ZERO || requested > high_watermark {
            return Err(PartitionError::OffsetOutOfRange {
                offset: requested,
                log_start: log.log_start,
                log_end: high_watermark,
            });
        }
        Ok(requested)
    }

    pub(super) fn require_leader(&self) -> Result<&LeaderState, PartitionError> {
        match &self.role {
            Role::Leader(leader) => Ok(leader),
            Role::Follower => Err(PartitionError::NotLeaderOrFollower),
            Role::Offline => Err(PartitionError::StorageOffline),
        }
    }
}
