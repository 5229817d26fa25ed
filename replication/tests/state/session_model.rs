//! Random requests against the plainest session there can be: a list, searched from the front, and a
//! copy of everything ever answered.

use super::sessions::{Row, at, cache, fetch, key, read, request};
use proptest::prelude::*;
use protocol::types::Offset;
use replication::fetch_session::ResultFacts;

#[derive(Clone, Debug)]
struct Step {
    add: Vec<i32>,
    forget: Vec<i32>,
    /// Facts of partition p are `worlds[p]`.
    worlds: Vec<(u8, i64, i64)>,
}

fn step() -> impl Strategy<Value = Step> {
    (
        prop::collection::vec(0..6i32, 0..3),
        prop::collection::vec(0..6i32, 0..3),
        prop::collection::vec((0..8u8, 0..3i64, 0..2i64), 6),
    )
        .prop_map(|(add, forget, worlds)| Step { add, forget, worlds })
}

fn facts(world: (u8, i64, i64)) -> ResultFacts {
    let (kind, high_watermark, log_start) = world;
    let error_code = if kind == 0 { 6 } else { 0 };
    ResultFacts {
        records_bytes: if kind == 1 { 10 } else { 0 },
        high_watermark: Offset(if kind == 0 { -1 } else { high_watermark }),
        log_start_offset: Offset(if kind == 0 { -1 } else { log_start }),
        error_code,
        has_preferred_read_replica: kind == 2,
        has_diverging_epoch: kind == 3,
    }
}

struct Cached {
    partition: i32,
    offset: i64,
    high_watermark: i64,
    log_start: i64,
}

#[derive(Default)]
struct Model(Vec<Cached>);

impl Model {
    fn update(&mut self, add: &[i32], forget: &[i32], offset: i64) {
        for partition in add {
            match self.0.iter_mut().find(|cached| cached.partition == *partition) {
                Some(cached) => cached.offset = offset,
                None => self.0.push(Cached {
                    partition: *partition,
                    offset,
                    high_watermark: -1,
                    log_start: -1,
                }),
            }
        }
        self.0.retain(|cached| !forget.contains(&cached.partition));
    }

    fn answer(&mut self, worlds: &[(u8, i64, i64)]) -> Vec<i32> {
        let order: Vec<i32> = self.0.iter().map(|cached| cached.partition).collect();
        let mut answered = Vec::new();
        for partition in order {
            let facts = facts(worlds[partition as usize]);
            let index = self.0.iter().position(|cached| cached.partition == partition).unwrap();
            let cached = &mut self.0[index];
            let include = facts.records_bytes > 0
                || cached.high_watermark != facts.high_watermark.get()
                || cached.log_start != facts.log_start_offset.get()
                || facts.has_preferred_read_replica
                || facts.has_diverging_epoch
                || facts.error_code != 0;
            let taken = facts.error_code == 0 && !facts.has_diverging_epoch;
            cached.high_watermark = if taken { facts.high_watermark.get() } else { -1 };
            cached.log_start = facts.log_start_offset.get();
            if facts.records_bytes > 0 {
                let moved = self.0.remove(index);
                self.0.push(moved);
            }
            if include {
                answered.push(partition);
            }
        }
        answered
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn s04_to_s06_agree_with_a_plain_list(steps in prop::collection::vec(step(), 1..25)) {
        let cache = cache(4, 1000);
        let mut model = Model::default();
        let initial = [0, 1, 2];
        let mut open = cache.new_context(request(0, 0, &initial), at(0));
        let mut rows = read(&mut open, |p| facts((7, i64::from(p), 0)));
        let id = open.finish(&cache, &mut rows, at(0)).session_id.get();
        model.update(&initial, &[], 0);
        for cached in &mut model.0 {
            cached.high_watermark = i64::from(cached.partition);
            cached.log_start = 0;
        }
        for (number, step) in steps.iter().enumerate() {
            let epoch = number as i32 + 1;
            let mut incremental = request(id, epoch, &[]);
            let offset = i64::from(epoch);
            incremental.partitions = step.add.iter().map(|p| (key(*p), fetch(offset))).collect();
            incremental.forgotten = step.forget.iter().map(|p| key(*p)).collect();
            model.update(&step.add, &step.forget, offset);
            let mut context = cache.new_context(incremental, at(0));
            prop_assert!(context.error_reply().is_none());
            if model.0.is_empty() {
                let reply = context.finish(&cache, &mut Vec::<Row>::new(), at(0));
                prop_assert_eq!(reply.session_id.get(), 0);
                prop_assert_eq!(cache.session_count(), 0);
                return Ok(());
            }
            let mut rows = read(&mut context, |p| facts(step.worlds[p as usize]));
            let seen: Vec<_> = rows.iter().map(|row| (row.partition, row.offset)).collect();
            let expected: Vec<_> =
                model.0.iter().map(|cached| (cached.partition, cached.offset)).collect();
            prop_assert_eq!(seen, expected);
            context.finish(&cache, &mut rows, at(0));
            let answered: Vec<i32> = rows.iter().map(|row| row.partition).collect();
            prop_assert_eq!(answered, model.answer(&step.worlds));
            prop_assert_eq!(cache.partition_count(), model.0.len());
        }
    }
}
