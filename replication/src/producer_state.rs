//! The idempotent and transactional producers of one partition: which batch may be appended, which
//! one is a repeat, which transactions are open (rules X01, X02, X03, X05; KIP-98, KIP-360).
//!
//! The order is check, append, update: [`ProducerStateManager::check_append`] only reads, the log is
//! written, then [`ProducerStateManager::update`] follows. Recovery and followers skip the check and
//! only update, so that every replica derives the same state from the same log (X05).
//!
//! Invariants: the state is a function of the log below [`ProducerStateManager::map_end_offset`];
//! `ongoing` holds exactly the open transactions of the entries; a completed transaction stays in
//! `unreplicated` until the high watermark has passed its marker, so the last stable offset never
//! moves on a marker that only the leader has (X03).

mod entry;
pub mod sequence;
pub mod snapshot;

pub use entry::{BatchMetadata, ProducerStateEntry, REMEMBERED_BATCHES};
pub use snapshot::SnapshotError;

use protocol::types::{Offset, ProducerEpoch, ProducerId};
use sequence::NO_SEQUENCE;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who asks for the append; decides how strict the check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOrigin {
    /// A client's Produce: epoch and sequence are checked, repeats are recognised.
    Client,
    /// A group or transaction coordinator of this cluster: only the epoch is checked.
    Coordinator,
    /// The leader's bytes on a follower, or recovery: nothing is refused (X05).
    Replication,
}

/// The end-of-transaction marker inside a control batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndTransactionMarker {
    /// Epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
    /// Whether the transaction was aborted rather than committed.
    pub is_abort: bool,
}

/// What a batch holds, as far as producer state cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// Records of a producer.
    Data {
        /// Sequence number of the first record.
        base_sequence: i32,
        /// Whether the batch belongs to a transaction.
        is_transactional: bool,
    },
    /// A control batch. `None` when compaction removed its marker: nothing to learn from it.
    Control(Option<EndTransactionMarker>),
}

/// A batch with a producer id, reduced to what this module decides on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerBatch {
    /// The producer; must not be [`ProducerId::NONE`].
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Offset of the first record. Not looked at by the check, which runs before offsets are assigned.
    pub base_offset: Offset,
    /// Offset of the last record minus that of the first.
    pub last_offset_delta: i32,
    /// The largest timestamp, in milliseconds since 1970; for a marker the record's own.
    pub max_timestamp_ms: i64,
    /// Data or control.
    pub kind: BatchKind,
}

impl ProducerBatch {
    /// Offset of the batch's last record.
    pub fn last_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta)
    }
}

/// What to do with a batch that passed the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendCheck {
    /// Append it.
    Append,
    /// It is one of the last five batches again: answer as for that one, append nothing (X01).
    Duplicate(BatchMetadata),
}

/// Why a batch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProducerStateError {
    /// Error 45: a gap, an old repeat, or a new epoch that does not start at 0.
    #[error(
        "producer {producer_id} epoch {producer_epoch}: sequence {sequence} does not follow {last_sequence}"
    )]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        producer_epoch: ProducerEpoch,
        /// The batch's first sequence.
        sequence: i32,
        /// The last sequence known, -1 for none.
        last_sequence: i32,
    },
    /// Error 47: an epoch lower than the one known.
    #[error("producer {producer_id}: epoch {producer_epoch} is fenced by {current_epoch}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The batch's epoch.
        producer_epoch: ProducerEpoch,
        /// The epoch known.
        current_epoch: ProducerEpoch,
    },
    /// Error 48: a batch outside any transaction while the producer has one open.
    #[error("producer {producer_id}: a plain batch inside the transaction begun at {first_offset}")]
    InvalidTransactionState {
        /// The producer.
        producer_id: ProducerId,
        /// Where its transaction began.
        first_offset: Offset,
    },
    /// Error 52: a marker from a coordinator that has been replaced.
    #[error(
        "producer {producer_id}: coordinator epoch {coordinator_epoch} is fenced by {current_epoch}"
    )]
    TransactionCoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The marker's coordinator epoch.
        coordinator_epoch: i32,
        /// The coordinator epoch known.
        current_epoch: i32,
    },
}

impl ProducerStateError {
    /// Kafka's error code for the answer.
    pub fn code(&self) -> i16 {
        match self {
            ProducerStateError::OutOfOrderSequence { .. } => 45,
            ProducerStateError::InvalidProducerEpoch { .. } => 47,
            ProducerStateError::InvalidTransactionState { .. } => 48,
            ProducerStateError::TransactionCoordinatorFenced { .. } => 52,
        }
    }
}

/// A transaction that a marker has just ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletedTransaction {
    /// The producer.
    pub producer_id: ProducerId,
    /// Offset of the transaction's first record.
    pub first_offset: Offset,
    /// Offset of the marker.
    pub last_offset: Offset,
    /// Whether it was aborted: only then it goes to the transaction index.
    pub is_aborted: bool,
    /// The last stable offset once this marker is replicated; the index entry carries it.
    pub last_stable_offset: Offset,
}

/// A producer as DescribeProducers shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveProducer {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub producer_epoch: ProducerEpoch,
    /// Last sequence number, -1 for none.
    pub last_sequence: i32,
    /// Timestamp of its last batch or marker, in milliseconds since 1970.
    pub last_timestamp_ms: i64,
    /// Epoch of the coordinator of its last marker, -1 for none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, -1 for none.
    pub current_transaction_start_offset: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OngoingTransaction {
    producer_id: ProducerId,
}

/// The producers of one partition.
#[derive(Clone, Debug)]
pub struct ProducerStateManager {
    producers: BTreeMap<ProducerId, ProducerStateEntry>,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, OngoingTransaction>,
    /// Ended transactions whose marker is not below the high watermark: first offset to marker offset.
    unreplicated: BTreeMap<Offset, Offset>,
    map_end_offset: Offset,
    last_snapshot_offset: Offset,
    expiration: Duration,
}

impl ProducerStateManager {
    /// An empty state. `expiration` is `producer.id.expiration.ms`.
    pub fn new(expiration: Duration) -> Self {
        Self {
            producers: BTreeMap::new(),
            ongoing: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            map_end_offset: Offset::ZERO,
            last_snapshot_offset: Offset::ZERO,
            expiration,
        }
    }

    /// Decides on a batch before it is appended.
    ///
    /// # Errors
    /// See [`ProducerStateError`]; never for [`AppendOrigin::Replication`].
    pub fn check_append(
        &self,
        batch: &ProducerBatch,
        origin: AppendOrigin,
    ) -> Result<AppendCheck, ProducerStateError> {
        if origin == AppendOrigin::Replication {
            return Ok(AppendCheck::Append);
        }
        let Some(entry) = self.producers.get(&batch.producer_id) else {
            return Ok(AppendCheck::Append);
        };
        match batch.kind {
            BatchKind::Control(None) => Ok(AppendCheck::Append),
            BatchKind::Control(Some(marker)) => {
                check_epoch(entry, batch)?;
                check_coordinator(entry, batch, &marker)
            }
            BatchKind::Data { base_sequence, is_transactional } => {
                if origin == AppendOrigin::Client {
                    let last_sequence =
                        sequence::advance(base_sequence.max(0), batch.last_offset_delta);
                    if let Some(known) =
                        entry.find_duplicate(batch.producer_epoch, base_sequence, last_sequence)
                    {
                        return Ok(AppendCheck::Duplicate(*known));
                    }
                }
                check_epoch(entry, batch)?;
                if origin == AppendOrigin::Client {
                    check_sequence(entry, batch, base_sequence)?;
                }
                check_transaction(entry, batch, is_transactional)
            }
        }
    }

    /// Learns an appended (or recovered, or replicated) batch, whatever it holds. Returns the
    /// transaction that it ended, if it ended one; an aborted one belongs into the transaction index.
    ///
    /// Moves [`Self::map_end_offset`] behind the batch.
    pub fn update(&mut self, batch: &ProducerBatch) -> Option<CompletedTransaction> {
        self.map_end_offset = batch.last_offset().next();
        match batch.kind {
            BatchKind::Data { base_sequence, is_transactional } => {
                self.update_data(batch, base_sequence, is_transactional);
                None
            }
            BatchKind::Control(Some(marker)) => self.update_marker(batch, &marker),
            BatchKind::Control(None) => None,
        }
    }

    fn update_data(&mut self, batch: &ProducerBatch, base_sequence: i32, is_transactional: bool) {
        let id = batch.producer_id;
        let entry = self.producers.entry(id).or_insert_with(|| ProducerStateEntry::empty(id));
        entry.adopt_epoch(batch.producer_epoch);
        entry.last_timestamp_ms = batch.max_timestamp_ms;
        if base_sequence != NO_SEQUENCE {
            entry.remember(BatchMetadata {
                last_sequence: sequence::advance(base_sequence.max(0), batch.last_offset_delta),
                last_offset: batch.last_offset(),
                offset_delta: batch.last_offset_delta,
                timestamp_ms: batch.max_timestamp_ms,
            });
        }
        if is_transactional && entry.current_transaction_first_offset.is_none() {
            entry.current_transaction_first_offset = Some(batch.base_offset);
            self.ongoing.insert(batch.base_offset, OngoingTransaction { producer_id: id });
        }
    }

    fn update_marker(
        &mut self,
        batch: &ProducerBatch,
        marker: &EndTransactionMarker,
    ) -> Option<CompletedTransaction> {
        let id = batch.producer_id;
        let entry = self.producers.entry(id).or_insert_with(|| ProducerStateEntry::empty(id));
        entry.adopt_epoch(batch.producer_epoch);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp_ms = batch.max_timestamp_ms;
        // A marker without records before it moves nothing and is not worth an index entry.
        let first_offset = entry.current_transaction_first_offset.take()?;
        self.ongoing.remove(&first_offset);
        self.unreplicated.insert(first_offset, batch.base_offset);
        let last_stable_offset =
            self.ongoing.keys().next().copied().unwrap_or(batch.base_offset.next());
        Some(CompletedTransaction {
            producer_id: id,
            first_offset,
            last_offset: batch.base_offset,
            is_aborted: marker.is_abort,
            last_stable_offset,
        })
    }

    /// The first offset that is not stable: of an open transaction, or of an ended one whose marker
    /// may still be lost. Not bounded by the high watermark; see [`last_stable_offset`].
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        let open = self.ongoing.keys().next().copied();
        let unreplicated = self.unreplicated.keys().next().copied();
        match (open, unreplicated) {
            (Some(open), Some(unreplicated)) => Some(open.min(unreplicated)),
            (open, unreplicated) => open.or(unreplicated),
        }
    }

    /// The high watermark moved: markers below it are safe (X03).
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= high_watermark);
    }

    /// The log start moved (retention, DeleteRecords). Producers stay until they expire: their last
    /// sequence is still true. Ended transactions below are of no interest any more.
    pub fn on_log_start(&mut self, log_start_offset: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= log_start_offset);
        self.map_end_offset = self.map_end_offset.max(log_start_offset);
        self.last_snapshot_offset = self.last_snapshot_offset.max(log_start_offset);
    }

    /// The log was cut at `log_end_offset`, below what is known: starts over from `snapshot`, the
    /// newest one at or below the cut, or from nothing. The caller then feeds the log between the
    /// returned offset and the cut to [`Self::update`] (X02).
    ///
    /// Nothing happens when the state already ends at `log_end_offset`; that offset is returned then.
    pub fn truncate_and_reload(
        &mut self,
        log_start_offset: Offset,
        log_end_offset: Offset,
        snapshot: Option<(Offset, Vec<ProducerStateEntry>)>,
        wall_clock_ms: i64,
    ) -> Offset {
        if self.map_end_offset == log_end_offset {
            self.on_log_start(log_start_offset);
            return log_end_offset;
        }
        self.clear(log_start_offset);
        if let Some((offset, entries)) = snapshot {
            debug_assert!(offset <= log_end_offset, "snapshot {offset} above {log_end_offset}");
            self.load(offset, entries, wall_clock_ms);
        }
        self.map_end_offset
    }

    /// Forgets everything; the state then ends at `start_offset`. For a log that was emptied.
    pub fn clear(&mut self, start_offset: Offset) {
        self.producers.clear();
        self.ongoing.clear();
        self.unreplicated.clear();
        self.map_end_offset = start_offset;
        self.last_snapshot_offset = start_offset;
    }

    /// Takes the entries of a snapshot that was written at `offset`, but for those that expired.
    pub fn load(&mut self, offset: Offset, entries: Vec<ProducerStateEntry>, wall_clock_ms: i64) {
        for entry in entries {
            if self.is_expired(&entry, wall_clock_ms) {
                continue;
            }
            if let Some(first) = entry.current_transaction_first_offset {
                self.ongoing.insert(first, OngoingTransaction { producer_id: entry.producer_id });
            }
            self.producers.insert(entry.producer_id, entry);
        }
        self.map_end_offset = offset;
        self.last_snapshot_offset = offset;
    }

    /// The offset up to which the log has been learnt, exclusive.
    pub fn map_end_offset(&self) -> Offset {
        self.map_end_offset
    }

    /// The log grew by batches without a producer id up to `offset`, exclusive.
    pub fn set_map_end_offset(&mut self, offset: Offset) {
        self.map_end_offset = offset;
    }

    /// Where a snapshot is worth writing now, if the state moved since the last one: its file is
    /// named by this offset.
    pub fn snapshot_due(&self) -> Option<Offset> {
        (self.map_end_offset > self.last_snapshot_offset).then_some(self.map_end_offset)
    }

    /// The bytes of a snapshot file for the state as it is, producers in the order of their ids.
    pub fn encode_snapshot(&self) -> Vec<u8> {
        snapshot::encode(self.producers.values())
    }

    /// The snapshot named by `offset` is on disk.
    pub fn on_snapshot_written(&mut self, offset: Offset) {
        self.last_snapshot_offset = offset;
    }

    /// Forgets producers that were idle for `producer.id.expiration.ms` and have no open
    /// transaction. Returns how many.
    pub fn remove_expired(&mut self, wall_clock_ms: i64) -> usize {
        let before = self.producers.len();
        let expiration = self.expiration;
        self.producers.retain(|_, entry| !has_expired(expiration, entry, wall_clock_ms));
        before - self.producers.len()
    }

    fn is_expired(&self, entry: &ProducerStateEntry, wall_clock_ms: i64) -> bool {
        has_expired(self.expiration, entry, wall_clock_ms)
    }

    /// Changes `producer.id.expiration.ms`.
    pub fn set_expiration(&mut self, expiration: Duration) {
        self.expiration = expiration;
    }

    /// What is known of a producer.
    pub fn entry(&self, producer_id: ProducerId) -> Option<&ProducerStateEntry> {
        self.producers.get(&producer_id)
    }

    /// How many producers are known.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether no producer is known.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The open transactions, first offsets ascending.
    pub fn ongoing_transactions(&self) -> impl Iterator<Item = (Offset, ProducerId)> {
        self.ongoing.iter().map(|(first_offset, open)| (*first_offset, open.producer_id))
    }

    /// Whether some transaction has been open without a write for longer than `limit`, by the wall
    /// clock; such a one is hanging.
    pub fn has_late_transaction(&self, limit: Duration, wall_clock_ms: i64) -> bool {
        let limit_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        self.ongoing.values().any(|open| {
            self.producers.get(&open.producer_id).is_some_and(|entry| {
                entry.last_timestamp_ms > 0
                    && wall_clock_ms.saturating_sub(entry.last_timestamp_ms) > limit_ms
            })
        })
    }

    /// The producers as DescribeProducers lists them, by id.
    pub fn active_producers(&self) -> impl Iterator<Item = ActiveProducer> {
        self.producers.values().map(|entry| ActiveProducer {
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_sequence(),
            last_timestamp_ms: entry.last_timestamp_ms,
            coordinator_epoch: entry.coordinator_epoch,
            current_transaction_start_offset: entry
                .current_transaction_first_offset
                .unwrap_or(Offset::NONE),
        })
    }
}

/// The last stable offset (X03): the first unstable one, but never above the high watermark nor
/// below the log start. Where DeleteRecords put the log start inside an open transaction's batch,
/// the log start is the answer.
pub fn last_stable_offset(
    first_unstable_offset: Option<Offset>,
    high_watermark: Offset,
    log_start_offset: Offset,
) -> Offset {
    match first_unstable_offset {
        Some(unstable) if unstable < high_watermark => unstable.max(log_start_offset),
        _ => high_watermark,
    }
}

fn has_expired(expiration: Duration, entry: &ProducerStateEntry, wall_clock_ms: i64) -> bool {
    let expiration_ms = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
    entry.current_transaction_first_offset.is_none()
        && wall_clock_ms.saturating_sub(entry.last_timestamp_ms) >= expiration_ms
}

fn check_epoch(
    entry: &ProducerStateEntry,
    batch: &ProducerBatch,
) -> Result<(), ProducerStateError> {
    if batch.producer_epoch < entry.producer_epoch {
        return Err(ProducerStateError::InvalidProducerEpoch {
            producer_id: batch.producer_id,
            producer_epoch: batch.producer_epoch,
            current_epoch: entry.producer_epoch,
        });
    }
    Ok(())
}

fn check_sequence(
    entry: &ProducerStateEntry,
    batch: &ProducerBatch,
    base_sequence: i32,
) -> Result<(), ProducerStateError> {
    let (last_sequence, in_order) = if batch.producer_epoch == entry.producer_epoch {
        let last = entry.last_sequence();
        (last, sequence::follows(last, base_sequence))
    } else {
        // A new epoch starts over. Without an old epoch nothing is known: any sequence will do.
        let fresh = entry.producer_epoch == ProducerEpoch::NONE;
        (NO_SEQUENCE, fresh || base_sequence == 0)
    };
    if in_order {
        return Ok(());
    }
    Err(ProducerStateError::OutOfOrderSequence {
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        sequence: base_sequence,
        last_sequence,
    })
}

fn check_transaction(
    entry: &ProducerStateEntry,
    batch: &ProducerBatch,
    is_transactional: bool,
) -> Result<AppendCheck, ProducerStateError> {
    match entry.current_transaction_first_offset {
        Some(first_offset) if !is_transactional => {
            Err(ProducerStateError::InvalidTransactionState {
                producer_id: batch.producer_id,
                first_offset,
            })
        }
        _ => Ok(AppendCheck::Append),
    }
}

fn check_coordinator(
    entry: &ProducerStateEntry,
    batch: &ProducerBatch,
    marker: &EndTransactionMarker,
) -> Result<AppendCheck, ProducerStateError> {
    if entry.coordinator_epoch > marker.coordinator_epoch {
        return Err(ProducerStateError::TransactionCoordinatorFenced {
            producer_id: batch.producer_id,
            coordinator_epoch: marker.coordinator_epoch,
            current_epoch: entry.coordinator_epoch,
        });
    }
    Ok(AppendCheck::Append)
}
