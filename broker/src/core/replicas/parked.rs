//! Requests that wait in a purgatory: what each remembers, when its wait is over, and what it answers
//! then (F04, H07, I02).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset, TopicPartition};
use replication::PartitionError;
use replication::delayed_fetch::{
    FetchPartitionFault, FetchPartitionNow, ParkedPartition, ReadableEnd, wake_reason,
};
use replication::fetch_session::FetchContext;
use replication::partition::AckStatus;
use replication::purgatory::{DelayedOperation, Trigger};
use storage::Disk;

use super::append::{ProduceOutcome, ProduceReply, ack_status};
use super::delete_records::{DeleteRecordsOutcome, DeleteRecordsReply};
use super::fetch::{FetchParams, FetchReply};
use super::partition::Partition;

/// A request that waits; to be called when its client is gone.
pub struct Parked(Box<dyn FnOnce() + Send>);

impl Parked {
    pub(super) fn new(cancel: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(cancel))
    }

    /// Frees what the request holds; it is never answered (P05).
    pub fn cancel(self) {
        (self.0)();
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parked")
    }
}

/// A batch of an acks=all produce that is appended and not settled.
#[derive(Debug)]
pub(super) struct WaitingProduce<D: Disk> {
    /// Index of its outcome.
    at: usize,
    partition: Arc<Partition<D>>,
    epoch: LeaderEpoch,
    required: Offset,
    /// Once settled it stays so: a leader that is lost later does not take an acknowledgement back.
    settled: Mutex<Option<ErrorCode>>,
}

impl<D: Disk> WaitingProduce<D> {
    pub(super) fn new(
        at: usize,
        partition: Arc<Partition<D>>,
        epoch: LeaderEpoch,
        required: Offset,
    ) -> Self {
        Self { at, partition, epoch, required, settled: Mutex::new(None) }
    }

    fn is_settled(&self) -> bool {
        let mut settled = self.settled.lock();
        if settled.is_none() {
            *settled = match ack_status(&self.partition, self.epoch, self.required) {
                AckStatus::Waiting => None,
                AckStatus::Acknowledged => Some(ErrorCode::None),
                AckStatus::Failed(error) => Some(error.code()),
            };
        }
        settled.is_some()
    }
}

/// A produce with acks=all whose records are appended.
pub(super) struct DelayedProduce<D: Disk> {
    waiting: Vec<WaitingProduce<D>>,
    outcomes: Vec<ProduceOutcome>,
    reply: ProduceReply,
}

impl<D: Disk> DelayedProduce<D> {
    pub(super) fn new(
        waiting: Vec<WaitingProduce<D>>,
        outcomes: Vec<ProduceOutcome>,
        reply: ProduceReply,
    ) -> Self {
        Self { waiting, outcomes, reply }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.waiting.iter().all(WaitingProduce::is_settled)
    }

    pub(super) fn keys(&self) -> Vec<TopicPartition> {
        let ids = self.waiting.iter().map(|waiting| waiting.partition.id());
        ids.map(|id| id.topic_partition.clone()).collect()
    }

    /// The answer; what is not settled has timed out. `leader` names the leader beside error 6.
    pub(super) fn finish(
        self,
        leader: impl Fn(&Partition<D>) -> Option<(NodeId, LeaderEpoch)>,
    ) -> (Vec<ProduceOutcome>, ProduceReply) {
        let mut outcomes = self.outcomes;
        for waiting in self.waiting {
            waiting.is_settled();
            let error = waiting.settled.lock().unwrap_or(ErrorCode::RequestTimedOut);
            if error != ErrorCode::None {
                let refused = ProduceOutcome::refused(error, None);
                outcomes[waiting.at] = ProduceOutcome {
                    current_leader: (error == ErrorCode::NotLeaderOrFollower)
                        .then(|| leader(&waiting.partition))
                        .flatten(),
                    ..refused
                };
            }
        }
        (outcomes, self.reply)
    }
}

impl<D: Disk> fmt::Debug for DelayedProduce<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedProduce").field("waiting", &self.waiting.len()).finish()
    }
}

impl<D: Disk> DelayedOperation for DelayedProduce<D> {
    type Key = TopicPartition;

    fn is_satisfied(&self, trigger: Trigger<'_, TopicPartition>) -> bool {
        if let Trigger::Key(key) = trigger {
            // The others cannot have changed by this; look at them only when this one is settled.
            let of_key =
                |waiting: &&WaitingProduce<D>| waiting.partition.id().topic_partition == *key;
            if !self.waiting.iter().filter(of_key).all(WaitingProduce::is_settled) {
                return false;
            }
        }
        self.is_settled()
    }
}

/// What a parked fetch remembers of one partition.
#[derive(Debug)]
pub(super) struct ParkedFetchPartition<D: Disk> {
    pub(super) partition: Arc<Partition<D>>,
    pub(super) current_leader_epoch: LeaderEpoch,
    pub(super) parked: ParkedPartition,
    /// How much there was to read.
    pub(super) bytes: usize,
    /// The partition's count of changes when it was looked at.
    pub(super) changes: u64,
}

impl<D: Disk> ParkedFetchPartition<D> {
    /// Whether the partition is as it was when it was looked at.
    pub(super) fn is_unchanged(&self) -> bool {
        self.partition.changes() == self.changes
    }
}

/// A fetch that had too little to answer with.
pub(super) struct DelayedFetch<D: Disk> {
    pub(super) params: FetchParams,
    pub(super) partitions: Arc<Vec<ParkedFetchPartition<D>>>,
    /// It found nothing in any of them, and would find nothing while they do not change.
    pub(super) is_calm: bool,
    pub(super) context: FetchContext,
    pub(super) reply: FetchReply,
}

impl<D: Disk> fmt::Debug for DelayedFetch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedFetch").field("params", &self.params).finish_non_exhaustive()
    }
}

impl<D: Disk> DelayedFetch<D> {
    pub(super) fn keys(&self) -> Vec<TopicPartition> {
        let ids = self.partitions.iter().map(|parked| parked.partition.id());
        ids.map(|id| id.topic_partition.clone()).collect()
    }

    fn look_at(&self, parked: &ParkedFetchPartition<D>) -> FetchPartitionNow {
        if parked.partition.is_removed() {
            return Err(FetchPartitionFault::NotReplica);
        }
        let mut locked = parked.partition.lock();
        let replica = locked.quietly();
        replica.state.check_fetch(self.params.reader, parked.current_leader_epoch).map_err(
            |error| match error {
                PartitionError::StorageOffline => FetchPartitionFault::StorageOffline,
                PartitionError::FencedLeaderEpoch { .. }
                | PartitionError::UnknownLeaderEpoch { .. } => FetchPartitionFault::EpochMismatch,
                _ => FetchPartitionFault::NotLeader,
            },
        )?;
        let end = replica
            .readable_end(self.params.isolation)
            .map_err(|_| FetchPartitionFault::StorageOffline)?;
        let last_epoch = parked.parked.last_fetched_epoch;
        let epoch_end = (last_epoch > LeaderEpoch::NONE).then(|| {
            let log_end = replica.log.log_end_offset();
            let found = replica.log.epochs().end_offset_for(last_epoch, log_end);
            (found.epoch, found.end_offset)
        });
        Ok(ReadableEnd { end, epoch_end, is_throttled: false })
    }
}

impl<D: Disk> DelayedOperation for DelayedFetch<D> {
    type Key = TopicPartition;

    fn is_satisfied(&self, _trigger: Trigger<'_, TopicPartition>) -> bool {
        // Where a calm fetch sees no change, there is nothing to read and no reason to answer.
        let changed = |parked: &&ParkedFetchPartition<D>| !self.is_calm || !parked.is_unchanged();
        let mut partitions = self.partitions.iter().filter(changed).peekable();
        if self.is_calm && partitions.peek().is_none() {
            return false;
        }
        let partitions = partitions.map(|parked| (&parked.parked, self.look_at(parked)));
        wake_reason(self.params.min_bytes, partitions).is_some()
    }
}

/// A partition whose records were deleted here, and not on every live replica yet.
#[derive(Debug)]
pub(super) struct WaitingDeletion<D: Disk> {
    pub(super) at: usize,
    pub(super) partition: Arc<Partition<D>>,
    pub(super) required: Offset,
}

/// Looks up the low watermark of a partition under the metadata in force.
pub(super) type LowWatermark<D> =
    Arc<dyn Fn(&Partition<D>) -> Result<Offset, PartitionError> + Send + Sync>;

/// A DeleteRecords that waits for the low watermark.
pub(super) struct DelayedDeleteRecords<D: Disk> {
    pub(super) waiting: Vec<WaitingDeletion<D>>,
    pub(super) outcomes: Vec<DeleteRecordsOutcome>,
    pub(super) low_watermark: LowWatermark<D>,
    pub(super) reply: DeleteRecordsReply,
}

impl<D: Disk> fmt::Debug for DelayedDeleteRecords<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedDeleteRecords").field("waiting", &self.waiting.len()).finish()
    }
}

impl<D: Disk> DelayedDeleteRecords<D> {
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.iter().all(|waiting| match (self.low_watermark)(&waiting.partition) {
            Ok(low_watermark) => low_watermark >= waiting.required,
            Err(_) => true,
        })
    }

    pub(super) fn keys(&self) -> Vec<TopicPartition> {
        let ids = self.waiting.iter().map(|waiting| waiting.partition.id());
        ids.map(|id| id.topic_partition.clone()).collect()
    }

    /// The answer; a low watermark that is not there yet has timed out, and is told as it is.
    pub(super) fn finish(self) -> (Vec<DeleteRecordsOutcome>, DeleteRecordsReply) {
        let mut outcomes = self.outcomes;
        for waiting in &self.waiting {
            outcomes[waiting.at] = match (self.low_watermark)(&waiting.partition) {
                Ok(low) if low >= waiting.required => {
                    DeleteRecordsOutcome { error: ErrorCode::None, low_watermark: low }
                }
                Ok(low) => {
                    DeleteRecordsOutcome { error: ErrorCode::RequestTimedOut, low_watermark: low }
                }
                Err(error) => DeleteRecordsOutcome::refused(error.code()),
            };
        }
        (outcomes, self.reply)
    }
}

impl<D: Disk> DelayedOperation for DelayedDeleteRecords<D> {
    type Key = TopicPartition;

    fn is_satisfied(&self, _trigger: Trigger<'_, TopicPartition>) -> bool {
        self.is_settled()
    }
}
