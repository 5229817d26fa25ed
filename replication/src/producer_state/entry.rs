//! What a partition remembers of one producer: its epoch, its last five batches and its open
//! transaction (rules X01 and X03).
//!
//! Invariant: the remembered batches are all of the entry's epoch, oldest first; a new epoch forgets
//! them, since its sequence numbers start over.

use super::sequence::{self, NO_SEQUENCE};
use protocol::types::{Offset, ProducerEpoch, ProducerId};
use std::collections::VecDeque;

/// How many batches of a producer are kept to recognise a repeated one. Clients keep no more than
/// this many requests in flight, so an older repeat is a client's error.
pub const REMEMBERED_BATCHES: usize = 5;

/// One appended batch as a later repeat of it must match it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchMetadata {
    /// Sequence number of the batch's last record.
    pub last_sequence: i32,
    /// Offset of the batch's last record.
    pub last_offset: Offset,
    /// Offset of the last record relative to the first.
    pub offset_delta: i32,
    /// The batch's largest timestamp as stored, in milliseconds since 1970.
    pub timestamp_ms: i64,
}

impl BatchMetadata {
    /// Sequence number of the batch's first record.
    pub fn first_sequence(&self) -> i32 {
        sequence::go_back(self.last_sequence, self.offset_delta)
    }

    /// Offset of the batch's first record: what a repeat of the batch is answered with.
    pub fn first_offset(&self) -> Offset {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// A producer as one partition knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerStateEntry {
    /// Whose state this is.
    pub producer_id: ProducerId,
    /// The epoch last written with.
    pub producer_epoch: ProducerEpoch,
    /// Epoch of the transaction coordinator that wrote the last marker; -1 before the first.
    pub coordinator_epoch: i32,
    /// Timestamp of the last batch or marker, in milliseconds since 1970; -1 when nothing was written.
    pub last_timestamp_ms: i64,
    /// First offset of the transaction that is open, if one is.
    pub current_transaction_first_offset: Option<Offset>,
    pub(super) batches: VecDeque<BatchMetadata>,
}

impl ProducerStateEntry {
    /// The state of a producer that wrote nothing yet.
    pub fn empty(producer_id: ProducerId) -> Self {
        Self {
            producer_id,
            producer_epoch: ProducerEpoch::NONE,
            coordinator_epoch: -1,
            last_timestamp_ms: -1,
            current_transaction_first_offset: None,
            batches: VecDeque::new(),
        }
    }

    /// The remembered batches, oldest first; at most [`REMEMBERED_BATCHES`].
    pub fn batches(&self) -> impl Iterator<Item = &BatchMetadata> {
        self.batches.iter()
    }

    /// The batch appended last in this epoch.
    pub fn last_batch(&self) -> Option<&BatchMetadata> {
        self.batches.back()
    }

    /// Sequence number of the last record; [`NO_SEQUENCE`] when no batch of this epoch is known.
    pub fn last_sequence(&self) -> i32 {
        self.batches.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }

    /// Offset of the last data record; -1 when no batch of this epoch is known.
    pub fn last_data_offset(&self) -> Offset {
        self.batches.back().map_or(Offset::NONE, |batch| batch.last_offset)
    }

    /// The remembered batch that holds exactly these sequence numbers in this epoch (X01).
    pub fn find_duplicate(
        &self,
        producer_epoch: ProducerEpoch,
        first_sequence: i32,
        last_sequence: i32,
    ) -> Option<&BatchMetadata> {
        if producer_epoch != self.producer_epoch {
            return None;
        }
        self.batches.iter().find(|batch| {
            batch.first_sequence() == first_sequence && batch.last_sequence == last_sequence
        })
    }

    pub(super) fn adopt_epoch(&mut self, producer_epoch: ProducerEpoch) {
        if producer_epoch != self.producer_epoch {
            self.batches.clear();
            self.producer_epoch = producer_epoch;
        }
    }

    pub(super) fn remember(&mut self, batch: BatchMetadata) {
        if self.batches.len() == REMEMBERED_BATCHES {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }
}
