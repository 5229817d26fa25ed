//! What cleaning leaves of one batch (KIP-534 for the delete horizons).
//!
//! A record stays when it lies above what the offset map speaks for, or is the last one of its key
//! there and no tombstone whose time is up. Records without a key, and those of aborted transactions,
//! go. A batch that lost all its records stays as an empty header when it is the last one of an active
//! producer, whose sequence and epoch it carries, or the last one of its new segment, so that the
//! segment ends where it ended: a follower that copies it gets to the same end, and recovery sees that
//! nothing is missing.
//!
//! Nothing that stays changes its offset, and no batch its base or last offset. A batch that first
//! keeps a tombstone, or a marker whose transaction is gone, gets the delete horizon: now plus
//! `delete.retention.ms`.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::records::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchError, BatchView, BuildError, ProducerStamp, ReadBuffer,
    Record, RecordIter, TimestampType,
};
use protocol::{Offset, ProducerEpoch, ProducerId};

use super::offset_map::OffsetMap;
use crate::batches::MAX_RECORDS_BYTES;
use crate::patch::{self, HeaderBytes};

/// What becomes of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It stays byte for byte.
    Keep,
    /// These bytes take its place.
    Rewrite(Bytes),
    /// It goes.
    Drop,
}

/// What is last, of what may be cleaned, of a producer that is not forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastRecord {
    /// Its last data record; `None` when a marker is all that its epoch has.
    pub(crate) last_data_offset: Option<Offset>,
    pub(crate) producer_epoch: ProducerEpoch,
}

/// By what a batch is judged.
#[derive(Debug)]
pub(super) struct Rules<'a> {
    pub(super) map: &'a OffsetMap,
    pub(super) now_ms: i64,
    pub(super) delete_retention_ms: i64,
    pub(super) last_records: &'a BTreeMap<ProducerId, LastRecord>,
    /// Where the new segment ends, exclusive.
    pub(super) end_offset: Offset,
}

/// What the walk over the transactions says of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Data that counts.
    Data,
    /// Data of an aborted transaction.
    Aborted,
    /// A control batch.
    Marker {
        /// Nothing that it speaks of is left.
        is_pointless: bool,
    },
}

/// Why a batch cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("cannot write the batch anew: {0}")]
    Build(#[from] BuildError),
}

impl Rules<'_> {
    /// Judges one batch.
    pub(super) fn judge(
        &self,
        batch: &BatchView<'_>,
        standing: Standing,
        buffer: &mut ReadBuffer,
    ) -> Result<Verdict, FilterError> {
        let time_is_up = batch.delete_horizon().is_some_and(|horizon| horizon <= self.now_ms);
        let (all_go, pointless_marker) = match standing {
            Standing::Data => (false, false),
            Standing::Aborted => (true, false),
            Standing::Marker { is_pointless } => (is_pointless && time_is_up, is_pointless),
        };
        if all_go || batch.count() == 0 {
            return Ok(self.emptied(batch));
        }
        let records = batch.records(buffer, MAX_RECORDS_BYTES)?;
        let mut kept = 0;
        let mut has_tombstone = false;
        for record in records.clone() {
            let record = record?;
            if batch.is_control() || self.stays(&record, time_is_up) {
                kept += 1;
                has_tombstone |= record.value.is_none() && !batch.is_control();
            }
        }
        let new_horizon = (has_tombstone || pointless_marker) && batch.delete_horizon().is_none();
        if kept == 0 {
            return Ok(self.emptied(batch));
        }
        if kept == batch.count() && !new_horizon {
            return Ok(Verdict::Keep);
        }
        let horizon = if new_horizon {
            Some(self.now_ms.saturating_add(self.delete_retention_ms.max(0)))
        } else {
            batch.delete_horizon()
        };
        self.rewrite(batch, records, horizon, time_is_up).map(Verdict::Rewrite)
    }

    fn stays(&self, record: &Record<'_>, time_is_up: bool) -> bool {
        if record.offset > self.map.latest_offset() {
            return true;
        }
        let Some(key) = record.key else {
            return false;
        };
        let is_last = self.map.get(key).is_none_or(|last| record.offset >= last);
        is_last && (record.value.is_some() || !time_is_up)
    }

    /// What is left of a batch without records.
    fn emptied(&self, batch: &BatchView<'_>) -> Verdict {
        if !self.is_last_of_producer(batch) && batch.next_offset() != self.end_offset {
            return Verdict::Drop;
        }
        if batch.count() == 0 {
            return Verdict::Keep;
        }
        let mut header: HeaderBytes = [0; BATCH_HEADER_BYTES];
        header.copy_from_slice(&batch.as_bytes()[..BATCH_HEADER_BYTES]);
        patch::set_empty(&mut header);
        Verdict::Rewrite(Bytes::copy_from_slice(&header))
    }

    fn is_last_of_producer(&self, batch: &BatchView<'_>) -> bool {
        if !batch.has_producer_id() {
            return false;
        }
        match self.last_records.get(&batch.producer_id()) {
            None => false,
            Some(LastRecord { last_data_offset: Some(last), .. }) => batch.last_offset() == *last,
            Some(LastRecord { last_data_offset: None, producer_epoch }) => {
                batch.is_control() && batch.producer_epoch() == *producer_epoch
            }
        }
    }

    fn rewrite(
        &self,
        batch: &BatchView<'_>,
        records: RecordIter<'_>,
        horizon: Option<i64>,
        time_is_up: bool,
    ) -> Result<Bytes, FilterError> {
        let mut builder = BatchBuilder::with_capacity(batch.base_offset(), batch.payload().len())
            .leader_epoch(batch.partition_leader_epoch())
            .compression(batch.compression()?)
            .producer(ProducerStamp {
                id: batch.producer_id(),
                epoch: batch.producer_epoch(),
                base_sequence: batch.base_sequence(),
            });
        if batch.timestamp_type() == TimestampType::LogAppendTime {
            builder = builder.log_append_time(batch.max_timestamp());
        }
        if batch.is_transactional() {
            builder = builder.transactional();
        }
        if batch.is_control() {
            builder = builder.control();
        }
        if let Some(horizon) = horizon {
            builder = builder.delete_horizon(horizon);
        }
        for record in records {
            let record = record?;
            if batch.is_control() || self.stays(&record, time_is_up) {
                let headers = record.headers.map(|header| (header.key, header.value));
                let Record { offset, timestamp, key, value, .. } = record;
                builder.append_at(offset, timestamp, key, value, headers)?;
            }
        }
        builder.extend_last_offset(batch.last_offset());
        Ok(builder.build()?)
    }
}
