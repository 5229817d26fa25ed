//! When an acks=all produce is answered, and with what (rules H06, H07).
//!
//! | case | a partition is settled because | error |
//! |---|---|---|
//! | A | this broker holds no replica of it any more, does not know it, or its directory failed | as given |
//! | B | this broker no longer leads it | 6 |
//! | C1 | the high watermark passed the records, but the ISR is below the minimum by now | 20 |
//! | C2 | the high watermark passed the records | 0 |
//! | D | the time is up | 7 |
//!
//! The request is answered when every partition is settled, or at its deadline. Partitions whose
//! append failed are settled from the start with that error. The same shape serves DeleteRecords
//! (I02): wait until every live replica's log start has reached an offset.

use protocol::types::Offset;

/// Error code 7.
const REQUEST_TIMED_OUT: i16 = 7;
/// Error code 6.
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// Error code 20.
const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;

/// A partition as it is at the moment of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducePartitionNow {
    /// Case A: the error that a produce to it would get.
    Unavailable {
        /// Its code.
        error_code: i16,
    },
    /// Case B.
    NotLeader,
    /// Case C.
    Leader {
        /// How far the high watermark is.
        high_watermark: Offset,
        /// Size of the maximal ISR (H03).
        maximal_isr: usize,
        /// The effective min.insync.replicas (H06).
        min_insync_replicas: usize,
    },
}

/// What became of one partition of a parked request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    /// Still waiting.
    Pending,
    /// Settled with this error code, 0 for success.
    Settled(i16),
}

/// Decides on one partition whose records end before `required_offset`.
pub fn settle(required_offset: Offset, now: &ProducePartitionNow) -> Settlement {
    match *now {
        ProducePartitionNow::Unavailable { error_code } => Settlement::Settled(error_code),
        ProducePartitionNow::NotLeader => Settlement::Settled(NOT_LEADER_OR_FOLLOWER),
        ProducePartitionNow::Leader { high_watermark, maximal_isr, min_insync_replicas } => {
            if high_watermark < required_offset {
                Settlement::Pending
            } else if maximal_isr < min_insync_replicas {
                Settlement::Settled(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            } else {
                Settlement::Settled(0)
            }
        }
    }
}

/// Decides on one partition of a parked DeleteRecords: the low watermark has to reach
/// `required_offset`. `low_watermark` is the least log start of the live replicas.
pub fn settle_delete_records(
    required_offset: Offset,
    low_watermark: Result<Offset, i16>,
) -> Settlement {
    match low_watermark {
        Err(error_code) => Settlement::Settled(error_code),
        Ok(low_watermark) if low_watermark >= required_offset => Settlement::Settled(0),
        Ok(_) => Settlement::Pending,
    }
}

/// The partitions of one parked request. A settled partition stays as it was settled.
#[derive(Clone, Debug)]
pub struct SettlementTable<K> {
    rows: Vec<Row<K>>,
    pending: usize,
}

#[derive(Clone, Debug)]
struct Row<K> {
    key: K,
    required_offset: Offset,
    settlement: Settlement,
}

impl<K: PartialEq> Default for SettlementTable<K> {
    fn default() -> Self {
        Self { rows: Vec::new(), pending: 0 }
    }
}

impl<K: PartialEq> SettlementTable<K> {
    /// No partition yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a partition that waits for `required_offset`.
    pub fn push_pending(&mut self, key: K, required_offset: Offset) {
        self.rows.push(Row { key, required_offset, settlement: Settlement::Pending });
        self.pending += 1;
    }

    /// Adds a partition whose outcome is known.
    pub fn push_settled(&mut self, key: K, error_code: i16) {
        let settlement = Settlement::Settled(error_code);
        self.rows.push(Row { key, required_offset: Offset::NONE, settlement });
    }

    /// Whether every partition is settled.
    pub fn is_settled(&self) -> bool {
        self.pending == 0
    }

    /// The partitions still waiting.
    pub fn pending(&self) -> impl Iterator<Item = &K> {
        self.rows.iter().filter(|row| row.settlement == Settlement::Pending).map(|row| &row.key)
    }

    /// Looks at the pending partitions, or at the one named by `only`, with `judge(key, required
    /// offset)`. Returns whether every partition is settled now.
    pub fn advance(
        &mut self,
        only: Option<&K>,
        mut judge: impl FnMut(&K, Offset) -> Settlement,
    ) -> bool {
        for row in &mut self.rows {
            let concerned = only.is_none_or(|key| *key == row.key);
            if row.settlement == Settlement::Pending && concerned {
                row.settlement = judge(&row.key, row.required_offset);
                self.pending -= usize::from(row.settlement != Settlement::Pending);
            }
        }
        self.pending == 0
    }

    /// The answer, in the order of the request; a partition still pending timed out (case D).
    pub fn into_errors(self) -> impl Iterator<Item = (K, i16)> {
        self.rows.into_iter().map(|row| match row.settlement {
            Settlement::Settled(error_code) => (row.key, error_code),
            Settlement::Pending => (row.key, REQUEST_TIMED_OUT),
        })
    }
}
