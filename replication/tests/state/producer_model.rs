//! Random batches against the plainest reading of X01: keep every batch ever appended, and look
//! through them.

use super::producer::{data, manager};
use proptest::prelude::*;
use replication::producer_state::{AppendCheck, AppendOrigin};

const MODULUS: i64 = 1 << 31;

#[derive(Clone, Debug)]
struct Appended {
    epoch: i16,
    sequences: Vec<i64>,
    offset: i64,
}

#[derive(Default)]
struct Model {
    batches: Vec<Appended>,
}

impl Model {
    /// Error code, or the offset of the batch repeated, or -1 for an append.
    fn judge(&self, epoch: i16, sequence: i64, count: i64) -> Result<i64, i16> {
        let sequences: Vec<i64> = (0..count).map(|i| (sequence + i) % MODULUS).collect();
        let Some(last) = self.batches.last() else {
            return Ok(-1);
        };
        if epoch < last.epoch {
            return Err(47);
        }
        if epoch > last.epoch {
            return if sequence == 0 { Ok(-1) } else { Err(45) };
        }
        let of_epoch = self.batches.iter().rev().take_while(|batch| batch.epoch == epoch);
        for known in of_epoch.take(5) {
            if known.sequences == sequences {
                return Ok(known.offset);
            }
        }
        let expected = (last.sequences.last().unwrap() + 1) % MODULUS;
        if sequence == expected { Ok(-1) } else { Err(45) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn x01_agrees_with_a_model_that_remembers_everything(
        start in prop_oneof![Just(0i64), Just(MODULUS - 6)],
        steps in prop::collection::vec((0..8u8, 0..10i64, 1..4i64), 1..60),
    ) {
        let mut state = manager();
        let mut model = Model::default();
        let (mut epoch, mut next, mut offset) = (0i16, start, 0i64);
        for (kind, back, count) in steps {
            let (batch_epoch, sequence, count) = match kind {
                // An earlier batch again, exactly.
                0 | 1 if !model.batches.is_empty() => {
                    let index = model.batches.len().saturating_sub(1 + back as usize);
                    let known = &model.batches[index];
                    (known.epoch, known.sequences[0], known.sequences.len() as i64)
                }
                // Somewhere near.
                2 => (epoch, (next + back + MODULUS - 5) % MODULUS, count),
                3 => (epoch + 1, if back < 5 { 0 } else { back }, count),
                4 => (epoch - 1, back, count),
                _ => (epoch, next, count),
            };
            if batch_epoch < 0 {
                continue;
            }
            let batch = data(1, batch_epoch, sequence as i32, offset, count as i32);
            let answer = match state.check_append(&batch, AppendOrigin::Client) {
                Ok(AppendCheck::Append) => Ok(-1),
                Ok(AppendCheck::Duplicate(known)) => Ok(known.first_offset().get()),
                Err(error) => Err(error.code()),
            };
            // A fenced epoch that repeats a batch is answered as fenced, there as here.
            prop_assert_eq!(&answer, &model.judge(batch_epoch, sequence, count));
            if answer == Ok(-1) {
                state.update(&batch);
                let sequences = (0..count).map(|i| (sequence + i) % MODULUS).collect();
                model.batches.push(Appended { epoch: batch_epoch, sequences, offset });
                epoch = batch_epoch;
                next = (sequence + count) % MODULUS;
                offset += count;
            }
        }
    }
}
