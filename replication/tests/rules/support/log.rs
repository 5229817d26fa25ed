//! A log in memory: records with their epochs, a start, and an epoch cache kept as storage keeps it.

use protocol::{LeaderEpoch, Offset};
use replication::{LeaderEpochCache, LogFacts};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub epoch: i32,
    pub value: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TestLog {
    /// Offset of the first record kept.
    pub base: i64,
    /// The log start offset, at or after `base`.
    pub start: i64,
    pub records: Vec<Record>,
    pub epochs: LeaderEpochCache,
}

impl TestLog {
    /// A log of (epoch, count) runs from offset 0; values are `100 * epoch` and up.
    pub fn of(runs: &[(i32, i64)]) -> Self {
        let mut log = Self::default();
        for (epoch, count) in runs {
            for i in 0..*count {
                log.append(Record { epoch: *epoch, value: *epoch as u32 * 100 + i as u32 });
            }
        }
        log
    }

    pub fn end(&self) -> i64 {
        self.base + self.records.len() as i64
    }

    pub fn facts(&self) -> LogFacts {
        LogFacts {
            log_start: Offset(self.start),
            log_end: Offset(self.end()).into(),
            first_unstable: None,
        }
    }

    pub fn at(&self, offset: i64) -> Option<Record> {
        let index = usize::try_from(offset - self.base).ok()?;
        self.records.get(index).copied()
    }

    /// (epoch, count) runs of what is kept.
    pub fn runs(&self) -> Vec<(i32, i64)> {
        let mut runs: Vec<(i32, i64)> = Vec::new();
        for record in &self.records {
            match runs.last_mut() {
                Some((epoch, count)) if *epoch == record.epoch => *count += 1,
                _ => runs.push((record.epoch, 1)),
            }
        }
        runs
    }

    pub fn append(&mut self, record: Record) {
        self.epochs.assign(LeaderEpoch(record.epoch), Offset(self.end()));
        self.records.push(record);
    }

    pub fn read(&self, from: i64, to: i64) -> Vec<Record> {
        (from..to).filter_map(|offset| self.at(offset)).collect()
    }

    /// Cuts the log; the epoch cache is cut even when the log needs no cut (KAFKA-10706).
    pub fn truncate_to(&mut self, to: i64) {
        let to = to.min(self.end());
        self.records.truncate(usize::try_from(to - self.base).unwrap_or(0));
        self.base = self.base.min(to);
        self.start = self.start.min(to);
        self.epochs.truncate_from_end(Offset(to));
    }

    pub fn start_at(&mut self, start: i64) {
        *self = Self { base: start, start, ..Self::default() };
    }

    pub fn raise_start(&mut self, start: i64) {
        self.start = self.start.max(start);
        self.epochs.truncate_from_start(Offset(self.start));
    }

    /// What recovery does to the cache after a crash (T12).
    pub fn recover(&mut self) {
        self.epochs.trim_to(Offset(self.start), Offset(self.end()));
    }
}
