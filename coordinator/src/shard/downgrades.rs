//! Which groups were made classic (KIP-848's downgrade) and have not rebalanced since, as the log tells it.
//!
//! The rebalance that a downgrade begins is in no record: it ends with the next generation's. A failover in
//! between would leave the partitions of the members that went without a reader until something else makes
//! the group rebalance. Kafka 4.4.0 leaves it at that; here, whoever loads the partition begins the rebalance
//! anew.
//!
//! A downgrade is one batch, in which the classic group's record follows the tombstone of the consumer
//! group's epoch. Any later record of the classic group ends it. In a log that was cleaned the tombstone may
//! be gone; that takes longer than `delete.retention.ms`, and no rebalance does.

use std::collections::{BTreeMap, BTreeSet};

use protocol::Offset;

use crate::record::Record;

/// What was seen of it while loading.
#[derive(Debug, Default)]
pub(super) struct Downgrades {
    /// Where the epochs of consumer groups ended last.
    ended: BTreeMap<String, Offset>,
    unfinished: BTreeSet<String>,
}

impl Downgrades {
    /// Takes in a record that is loaded.
    pub(super) fn replay(&mut self, record: &Record, offset: Offset) {
        match record {
            Record::ConsumerGroupMetadata(key, None) => {
                self.ended.insert(key.group_id.clone(), offset);
            }
            Record::GroupMetadata(key, value) => {
                let ended = self.ended.remove(&key.group);
                if value.is_some() && ended.is_some_and(|ended| ended.next() == offset) {
                    self.unfinished.insert(key.group.clone());
                } else {
                    self.unfinished.remove(&key.group);
                }
            }
            _ => {}
        }
    }

    /// The groups that have still to rebalance; all is forgotten.
    pub(super) fn finish(&mut self) -> BTreeSet<String> {
        std::mem::take(self).unfinished
    }
}
