//! Random histories against a naive model: a list of batches. After every step the log must hold
//! exactly the model's batches; after a crash a prefix of them that is no shorter than what was
//! flushed (T12), with epochs and producers to match (X02).

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use protocol::records::{BatchViews, patch};
use protocol::{LeaderEpoch, Offset, ProducerId};
use storage::Log;

use crate::common::{Given, append, append_records, now, producer_batch, read_all, small};
use crate::mem_disk::{Crash, MemDisk};

#[derive(Clone, Debug)]
enum Step {
    Append { records: usize, new_epoch: bool },
    AppendIdempotent { records: usize },
    Truncate { back: usize },
    MoveStart { forth: usize },
    Roll,
    Flush,
    Retain,
    Reopen,
    Crash(Crash),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let crash = prop_oneof![
        Just(Crash::KeepAll),
        Just(Crash::LoseUnsynced),
        any::<u64>().prop_map(Crash::Torn),
    ];
    let step = prop_oneof![
        6 => (1..5usize, any::<bool>())
            .prop_map(|(records, new_epoch)| Step::Append { records, new_epoch }),
        4 => (1..4usize).prop_map(|records| Step::AppendIdempotent { records }),
        2 => (0..20usize).prop_map(|back| Step::Truncate { back }),
        1 => (0..6usize).prop_map(|forth| Step::MoveStart { forth }),
        1 => Just(Step::Roll),
        2 => Just(Step::Flush),
        1 => Just(Step::Retain),
        1 => Just(Step::Reopen),
        2 => crash.prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

struct ModelBatch {
    base: i64,
    last: i64,
    epoch: i32,
    last_sequence: Option<i32>,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Model {
    batches: Vec<ModelBatch>,
    start: i64,
    end: i64,
    epoch: i32,
    sequence: i32,
}

impl Model {
    fn push(&mut self, batch: &Bytes, sequence: Option<i32>) {
        let mut bytes = batch.to_vec();
        patch::set_base_offset(&mut bytes, Offset(self.end));
        patch::set_partition_leader_epoch(&mut bytes, LeaderEpoch(self.epoch));
        let view = BatchViews::new(&bytes).next().expect("one").expect("whole");
        let last = view.last_offset().0;
        self.batches.push(ModelBatch {
            base: self.end,
            last,
            epoch: self.epoch,
            last_sequence: sequence,
            bytes,
        });
        self.end = last + 1;
    }

    /// Cuts at a batch boundary at or below `end`.
    fn cut(&mut self, end: i64) {
        self.batches.retain(|batch| batch.last < end);
        self.end = self.batches.last().map_or(self.end.min(end), |batch| batch.last + 1);
        self.resume();
    }

    fn resume(&mut self) {
        self.sequence = self.last_sequence().map_or(0, |last| last + 1);
    }

    fn last_sequence(&self) -> Option<i32> {
        self.batches.iter().rev().find_map(|batch| batch.last_sequence)
    }
}

fn open(disk: &MemDisk, model: &Model, recovery_point: i64, clean: bool) -> Log<MemDisk> {
    let mut given = Given::new(disk, Path::new("/data/t-0"), small());
    given.start = model.start;
    given.recovery_point = recovery_point;
    given.clean = clean;
    given.open()
}

fn check(log: &Log<MemDisk>, model: &Model) {
    assert_eq!(log.log_start_offset().0, model.start);
    assert_eq!(log.log_end_offset().0, model.end);
    assert!(log.recovery_point() <= log.log_end_offset());
    let expected: Vec<u8> = model
        .batches
        .iter()
        .filter(|batch| batch.last >= model.start)
        .flat_map(|batch| batch.bytes.clone())
        .collect();
    assert_eq!(read_all(log, log.log_start_offset()), expected);
    for batch in model.batches.iter().filter(|batch| batch.last >= model.start) {
        let middle = Offset(((batch.base + batch.last) / 2).max(model.start));
        let info = log.read(middle, 1, log.log_end(), true).expect("reads");
        assert_eq!(info.records.read().expect("reads"), batch.bytes, "the batch of {middle}");
        assert_eq!(log.offset_metadata(middle).expect("found"), info.start);
        let epoch = log.epochs().epoch_at(Offset(batch.base.max(model.start)));
        assert_eq!(epoch, Some(LeaderEpoch(batch.epoch)), "the epoch of {}", batch.base);
        let bounded = log.read(Offset(batch.base.max(model.start)), usize::MAX, info.start, true);
        let bounded = bounded.expect("reads").records.len();
        assert_eq!(bounded, 0, "nothing at or above the bound");
    }
    let known = log.producers().entry(ProducerId(7)).map(|entry| entry.last_sequence());
    // Once its batches are gone a producer is known from snapshots, which a crash may take.
    let first = log.segment_base_offsets().next().map_or(0, |base| base.0);
    let newest = model.batches.iter().rev().find(|batch| batch.last_sequence.is_some());
    if let Some(newest) = newest
        && (newest.base >= first || known.is_some())
    {
        assert_eq!(known, newest.last_sequence);
    }
}

struct Run {
    disk: MemDisk,
    log: Log<MemDisk>,
    model: Model,
    /// What the checkpoint file says, at least.
    flushed: i64,
}

impl Run {
    fn step(&mut self, step: &Step) {
        let (log, model) = (&mut self.log, &mut self.model);
        match step {
            Step::Append { records, new_epoch } => {
                model.epoch += i32::from(*new_epoch);
                let timestamps: Vec<i64> = (0..*records as i64).map(|at| 10 + at).collect();
                let batch = crate::common::batch(&timestamps);
                let info = append(log, &batch, model.epoch);
                assert_eq!(info.base_offset.0, model.end);
                model.push(&batch, None);
            }
            Step::AppendIdempotent { records } => {
                let batch = producer_batch(7, model.sequence, *records, false);
                append(log, &batch, model.epoch);
                model.sequence += *records as i32;
                let last = model.sequence - 1;
                model.push(&batch, Some(last));
            }
            Step::Truncate { back } => self.truncate(*back as i64),
            Step::MoveStart { forth } => {
                model.start = (model.start + *forth as i64).min(model.end);
                log.increment_log_start(Offset(model.start)).expect("moves");
            }
            Step::Roll => {
                log.roll(now(3_000)).expect("rolls");
            }
            Step::Flush => {
                log.flush().expect("flushes");
                self.flushed = log.recovery_point().0;
                assert_eq!(self.flushed, model.end);
            }
            Step::Retain => {
                log.delete_old_segments(Offset(model.end), now(3_000)).expect("deletes");
                log.remove_deleted_files(now(500_000).monotonic).expect("removes");
            }
            Step::Reopen => {
                log.close().expect("closes");
                self.log = open(&self.disk, &self.model, 0, true);
                self.flushed = self.model.end;
            }
            Step::Crash(crash) => self.crash(*crash),
        }
    }

    fn truncate(&mut self, back: i64) {
        let target = (self.model.end - back).max(0);
        self.log.truncate_to(Offset(target), now(3_000)).expect("truncates");
        let first = self.log.segment_base_offsets().next().map_or(0, |base| base.0);
        let end = self.log.log_end_offset().0;
        assert!(end <= self.model.end);
        if target < self.model.end {
            self.model.batches.retain(|batch| batch.last < target);
            let left = self.model.batches.iter().rfind(|batch| batch.base >= first);
            let left = left.map_or(end, |batch| batch.last + 1);
            assert_eq!(end, left);
            self.model.end = end;
            self.model.start = self.model.start.min(end);
            self.model.resume();
        }
        self.flushed = self.flushed.min(end);
    }

    fn crash(&mut self, crash: Crash) {
        self.disk = self.disk.crash(crash);
        self.log = open(&self.disk, &self.model, self.flushed, false);
        let end = self.log.log_end_offset().0;
        assert!(end <= self.model.end.max(self.model.start), "nothing comes from nowhere");
        assert!(end >= self.flushed.min(self.model.end), "what was flushed is there");
        if crash == Crash::KeepAll {
            assert_eq!(end, self.model.end, "a killed process loses nothing");
        }
        if end <= self.model.start {
            self.model.batches.retain(|batch| batch.last < end);
            self.model.end = end;
            self.model.resume();
        } else {
            self.model.cut(end);
        }
        assert_eq!(self.model.end, end, "a whole number of batches");
        self.flushed = self.flushed.min(end);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_log_holds_what_a_list_of_batches_would(steps in steps()) {
        let disk = MemDisk::default();
        let model = Model::default();
        let log = open(&disk, &model, 0, false);
        let mut run = Run { disk, log, model, flushed: 0 };
        for step in &steps {
            run.step(step);
            check(&run.log, &run.model);
        }
    }
}

#[test]
fn a_killed_process_loses_no_batch_that_reached_the_page_cache() {
    let disk = MemDisk::default();
    let model = Model::default();
    let mut log = open(&disk, &model, 0, false);
    for at in 0..50 {
        append_records(&mut log, 3, at * 10, 1);
    }
    let before = read_all(&log, Offset(0));
    let log = open(&disk.crash(Crash::KeepAll), &model, 0, false);
    assert_eq!(read_all(&log, Offset(0)), before);
}
