//! From a batch to what the log's other parts need to know of it.

use protocol::Offset;
use protocol::records::{BatchError, BatchView, EndTransactionMarker, ReadBuffer};
use replication::producer_state::{self, BatchKind, CompletedTransaction, ProducerBatch};

use crate::txn_index::AbortedTransaction;

/// Records of one batch never take more memory than this when they are decompressed.
pub(crate) const MAX_RECORDS_BYTES: usize = 1 << 30;

/// The producer's side of a batch that stands, or will stand, at `base_offset`; `None` when it has
/// no producer id.
pub(crate) fn producer_batch(
    view: &BatchView<'_>,
    base_offset: Offset,
) -> Result<Option<ProducerBatch>, BatchError> {
    if !view.has_producer_id() {
        return Ok(None);
    }
    let mut max_timestamp_ms = view.max_timestamp();
    let kind = if view.is_control() {
        let mut buffer = ReadBuffer::new();
        let first = view.records(&mut buffer, MAX_RECORDS_BYTES)?.next().transpose()?;
        let marker = match &first {
            Some(record) => EndTransactionMarker::parse(record)?,
            None => None,
        };
        if let Some(record) = &first {
            max_timestamp_ms = record.timestamp;
        }
        BatchKind::Control(marker.map(|marker| producer_state::EndTransactionMarker {
            coordinator_epoch: marker.coordinator_epoch,
            is_abort: !marker.commit,
        }))
    } else {
        BatchKind::Data {
            base_sequence: view.base_sequence(),
            is_transactional: view.is_transactional(),
        }
    };
    Ok(Some(ProducerBatch {
        producer_id: view.producer_id(),
        producer_epoch: view.producer_epoch(),
        base_offset,
        last_offset_delta: view.last_offset_delta(),
        max_timestamp_ms,
        kind,
    }))
}

/// The index entry of a transaction, if it was aborted.
pub(crate) fn aborted(completed: &CompletedTransaction) -> Option<AbortedTransaction> {
    completed.is_aborted.then_some(AbortedTransaction {
        producer_id: completed.producer_id,
        first_offset: completed.first_offset,
        last_offset: completed.last_offset,
        last_stable_offset: completed.last_stable_offset,
    })
}
