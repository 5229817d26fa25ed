//! Which batches of a walk over the log belong to aborted transactions, and which markers end
//! transactions that have no batch left. The walk must begin at the log's first batch, or at the first
//! one that matters, and go up in offsets.
//!
//! A marker without records before it tells readers nothing: it may go once its delete horizon is
//! past. An abort marker whose transaction still has a batch, be it an emptied one, keeps its entry in
//! the index of aborted transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::records::{BatchError, BatchHeader, BatchView, ControlType, ReadBuffer};
use protocol::{Offset, ProducerId};

use crate::batches::MAX_RECORDS_BYTES;
use crate::txn_index::AbortedTransaction;

#[derive(Clone, Debug)]
struct Aborted {
    entry: AbortedTransaction,
    has_batches: bool,
}

/// What a control batch means for the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Control {
    /// Nothing that it speaks of is left.
    pub(super) is_pointless: bool,
    /// The aborted transaction that it ends, if that still has batches.
    pub(super) aborted: Option<AbortedTransaction>,
}

/// The transactions that are open at the walk's place.
#[derive(Clone, Debug)]
pub(super) struct Transactions {
    /// Those not reached yet, first offsets ascending.
    ahead: VecDeque<AbortedTransaction>,
    aborted: BTreeMap<ProducerId, Aborted>,
    committed: BTreeSet<ProducerId>,
}

impl Transactions {
    /// A walk over a section in which `aborted` transactions overlap, first offsets ascending.
    pub(super) fn new(aborted: &[AbortedTransaction]) -> Self {
        Self {
            ahead: aborted.iter().copied().collect(),
            aborted: BTreeMap::new(),
            committed: BTreeSet::new(),
        }
    }

    /// A data batch; gives whether its transaction was aborted.
    pub(super) fn on_data(&mut self, batch: &BatchHeader) -> bool {
        self.reach(batch.last_offset());
        if !batch.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&batch.producer_id()) {
            Some(transaction) => {
                transaction.has_batches = true;
                true
            }
            None => {
                self.committed.insert(batch.producer_id());
                false
            }
        }
    }

    /// A control batch.
    pub(super) fn on_control(&mut self, batch: &BatchView<'_>) -> Result<Control, BatchError> {
        self.reach(batch.last_offset());
        let mut buffer = ReadBuffer::new();
        let first = batch.records(&mut buffer, MAX_RECORDS_BYTES)?.next().transpose()?;
        let Some(first) = first else {
            // Emptied by an earlier cleaning.
            return Ok(Control { is_pointless: true, aborted: None });
        };
        let producer = batch.producer_id();
        Ok(match ControlType::parse(&first)? {
            ControlType::Abort => match self.aborted.remove(&producer) {
                Some(Aborted { entry, has_batches: true }) => {
                    Control { is_pointless: false, aborted: Some(entry) }
                }
                _ => Control { is_pointless: true, aborted: None },
            },
            ControlType::Commit => {
                Control { is_pointless: !self.committed.remove(&producer), aborted: None }
            }
            _ => Control { is_pointless: false, aborted: None },
        })
    }

    fn reach(&mut self, offset: Offset) {
        while self.ahead.front().is_some_and(|entry| entry.first_offset <= offset) {
            if let Some(entry) = self.ahead.pop_front() {
                let begun = Aborted { entry, has_batches: false };
                self.aborted.entry(entry.producer_id).or_insert(begun);
            }
        }
    }
}
