//! Rules S01, S02 and S04 to S08 at the server's end.

use protocol::types::{LeaderEpoch, Offset, SessionEpoch, SessionId, Uuid};
use replication::fetch_session::{
    FetchContext, FetchSessionCache, PartitionFetch, PartitionKey, PartitionResult, PartitionSlot,
    ResultFacts, SeededSessionIds, SessionCacheConfig, SessionReply, SessionRequest,
};
use replication::time::Instant;
use std::sync::Arc;
use std::time::Duration;

pub const VERSION: i16 = 17;

pub fn at(ms: u64) -> Instant {
    Instant(Duration::from_millis(ms))
}

pub fn topic(n: u8) -> Uuid {
    Uuid([n; 16])
}

pub fn key(partition: i32) -> PartitionKey {
    PartitionKey::by_id(topic(1), partition)
}

pub fn fetch(offset: i64) -> PartitionFetch {
    PartitionFetch {
        fetch_offset: Offset(offset),
        log_start_offset: Offset(-1),
        max_bytes: 1000,
        current_leader_epoch: LeaderEpoch(0),
        last_fetched_epoch: LeaderEpoch(-1),
    }
}

pub fn cache(slots: usize, eviction_ms: u64) -> FetchSessionCache {
    let config =
        SessionCacheConfig { slots, shards: 1, eviction_age: Duration::from_millis(eviction_ms) };
    FetchSessionCache::new(config, Box::new(SeededSessionIds::new(7)))
}

pub fn request(id: i32, epoch: i32, partitions: &[i32]) -> SessionRequest {
    SessionRequest {
        session_id: SessionId(id),
        session_epoch: SessionEpoch(epoch),
        version: VERSION,
        is_follower: false,
        partitions: partitions.iter().map(|p| (key(*p), fetch(0))).collect(),
        forgotten: Vec::new(),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub slot: PartitionSlot,
    pub partition: i32,
    pub topic: Option<Arc<str>>,
    pub offset: i64,
    pub facts: ResultFacts,
}

impl PartitionResult for Row {
    fn slot(&self) -> PartitionSlot {
        self.slot
    }
    fn facts(&self) -> ResultFacts {
        self.facts
    }
}

pub fn no_names(_: Uuid) -> Option<Arc<str>> {
    None
}

/// Reads every partition; `facts` plays the log.
pub fn read(context: &mut FetchContext, facts: impl Fn(i32) -> ResultFacts) -> Vec<Row> {
    let mut rows = Vec::new();
    context.for_each(&no_names, |slot, partition| {
        rows.push(Row {
            slot,
            partition: partition.key.partition,
            topic: partition.topic.clone(),
            offset: partition.fetch.fetch_offset.get(),
            facts: facts(partition.key.partition),
        });
    });
    rows
}

pub fn quiet(_: i32) -> ResultFacts {
    ResultFacts { high_watermark: Offset(10), log_start_offset: Offset(0), ..Default::default() }
}

/// One request from end to end: the reply and the partitions answered, in order.
pub fn run(
    cache: &FetchSessionCache,
    request: SessionRequest,
    now: Instant,
    facts: impl Fn(i32) -> ResultFacts,
) -> (SessionReply, Vec<i32>) {
    let mut context = cache.new_context(request, now);
    if let Some(reply) = context.error_reply() {
        return (reply, Vec::new());
    }
    let mut rows = read(&mut context, facts);
    let reply = context.finish(cache, &mut rows, now);
    (reply, rows.iter().map(|row| row.partition).collect())
}

fn open(cache: &FetchSessionCache, partitions: &[i32], now: Instant) -> i32 {
    let (reply, answered) = run(cache, request(0, 0, partitions), now, quiet);
    assert_eq!(reply.error_code, 0);
    assert_eq!(answered, partitions);
    reply.session_id.get()
}

#[test]
fn s01_a_request_without_a_session_gets_everything_and_no_session() {
    let cache = cache(10, 1000);
    let (reply, answered) = run(&cache, request(0, -1, &[0, 1]), at(0), quiet);
    assert_eq!((reply.error_code, reply.session_id.get()), (0, 0));
    assert_eq!(answered, [0, 1]);
    assert_eq!(cache.session_count(), 0);
}

#[test]
fn s01_a_session_expects_epoch_one_and_counts_on() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0, 1], at(0));
    assert_ne!(id, 0);
    for epoch in 1..4 {
        let (reply, answered) = run(&cache, request(id, epoch, &[]), at(1), quiet);
        assert_eq!((reply.error_code, reply.session_id.get()), (0, id));
        assert!(answered.is_empty());
    }
    let (reply, answered) = run(&cache, request(id, 7, &[]), at(1), quiet);
    assert_eq!((reply.error_code, reply.session_id.get()), (71, 0));
    assert!(answered.is_empty());
    let (reply, _) = run(&cache, request(id, 4, &[]), at(1), quiet);
    assert_eq!(reply.error_code, 0, "a wrong epoch leaves the session as it was");
}

#[test]
fn s01_unknown_and_impossible_ids_answer_70() {
    let cache = cache(10, 1000);
    for id in [1, 12345, i32::MAX, -1, i32::MIN, 0] {
        let (reply, _) = run(&cache, request(id, 5, &[0]), at(0), quiet);
        assert_eq!((reply.error_code, reply.session_id.get()), (70, 0), "id {id}");
    }
}

#[test]
fn s01_a_full_request_closes_the_session_it_names() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    let (reply, answered) = run(&cache, request(id, 0, &[0, 1]), at(0), quiet);
    let reopened = reply.session_id.get();
    assert_ne!(reopened, 0);
    assert_eq!(answered, [0, 1]);
    assert_eq!(cache.session_count(), 1);
    let (reply, _) = run(&cache, request(reopened, -1, &[0]), at(0), quiet);
    assert_eq!((reply.error_code, reply.session_id.get()), (0, 0));
    assert_eq!(cache.session_count(), 0);
    let (reply, _) = run(&cache, request(reopened, 1, &[]), at(0), quiet);
    assert_eq!(reply.error_code, 70);
}

#[test]
fn s01_forgetting_every_partition_removes_the_session() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0, 1], at(0));
    let mut forget = request(id, 1, &[]);
    forget.forgotten = vec![key(0), key(1)];
    let (reply, answered) = run(&cache, forget, at(0), quiet);
    assert_eq!((reply.error_code, reply.session_id.get()), (0, 0));
    assert!(answered.is_empty());
    assert_eq!((cache.session_count(), cache.partition_count()), (0, 0));
}

#[test]
fn s01_a_session_does_not_change_between_names_and_ids() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    let mut by_name = request(id, 1, &[]);
    by_name.version = 12;
    assert_eq!(run(&cache, by_name, at(0), quiet).0, reply(106, 0));
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), quiet).0, reply(0, id));

    let mut open_by_name = request(0, 0, &[]);
    open_by_name.version = 12;
    open_by_name.partitions = vec![(PartitionKey::by_name("t", 0), fetch(0))];
    let id = run(&cache, open_by_name, at(0), quiet).0.session_id.get();
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), quiet).0, reply(106, 0));
}

fn reply(error_code: i16, session_id: i32) -> SessionReply {
    SessionReply { error_code, session_id: SessionId(session_id) }
}

#[test]
fn s01_an_answer_after_the_session_moved_on_is_71_with_the_sessions_id() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    let mut parked = cache.new_context(request(id, 1, &[]), at(1));
    let mut rows = read(&mut parked, |_| ResultFacts { records_bytes: 5, ..quiet(0) });
    assert_eq!(run(&cache, request(id, 2, &[]), at(2), quiet).0, reply(0, id));
    assert_eq!(parked.finish(&cache, &mut rows, at(3)), reply(71, id));
    assert!(rows.is_empty());
}

#[test]
fn s02_an_idle_session_goes_first_and_a_touched_one_stays() {
    let cache = cache(2, 1000);
    let first = open(&cache, &[0, 1], at(0));
    let second = open(&cache, &[0, 1], at(500));
    run(&cache, request(first, 1, &[]), at(1000), quiet);
    assert_eq!(open(&cache, &[0, 1], at(1500)), 0, "idle for exactly the age is not yet idle");
    let third = open(&cache, &[0, 1], at(1501));
    assert_ne!(third, 0);
    assert_eq!(run(&cache, request(second, 1, &[]), at(1501), quiet).0, reply(70, 0));
    assert_eq!(run(&cache, request(first, 2, &[]), at(1501), quiet).0, reply(0, first));
    assert_eq!(cache.eviction_count(), 1);
}

#[test]
fn s02_a_follower_drives_out_the_smallest_consumer_however_fresh() {
    let cache = cache(3, 1000);
    let follower =
        |partitions: &[i32]| SessionRequest { is_follower: true, ..request(0, 0, partitions) };
    let first = run(&cache, follower(&[0]), at(0), quiet).0.session_id.get();
    let large = open(&cache, &[0, 1, 2], at(500));
    let small = open(&cache, &[0, 1], at(500));
    let third = run(&cache, follower(&[0]), at(900), quiet).0.session_id.get();
    assert_ne!(third, 0);
    assert_eq!(run(&cache, request(small, 1, &[]), at(900), quiet).0, reply(70, 0));
    let fourth = run(&cache, follower(&[0]), at(900), quiet).0.session_id.get();
    assert_ne!(fourth, 0);
    assert_eq!(run(&cache, request(large, 1, &[]), at(900), quiet).0, reply(70, 0));
    let refused = run(&cache, follower(&[0, 1, 2]), at(900), quiet);
    assert_eq!(refused.0, reply(0, 0), "a fresh follower's session is safe from followers");
    assert_eq!(refused.1, [0, 1, 2], "and the newcomer is answered in full");
    assert_eq!(run(&cache, request(first, 1, &[]), at(900), quiet).0, reply(0, first));
}

#[test]
fn s02_an_old_session_yields_to_more_partitions_but_not_to_as_many() {
    let cache = cache(1, 1000);
    let old = open(&cache, &[0, 1], at(0));
    run(&cache, request(old, 1, &[]), at(900), quiet);
    assert_eq!(open(&cache, &[0, 1, 2], at(950)), 0, "not old yet");
    run(&cache, request(old, 2, &[]), at(1001), quiet);
    assert_eq!(open(&cache, &[0, 1], at(1100)), 0, "as many are not more");
    assert_ne!(open(&cache, &[0, 1, 2], at(1100)), 0);
    assert_eq!(run(&cache, request(old, 3, &[]), at(1100), quiet).0, reply(70, 0));
}

#[test]
fn s04_only_changes_are_answered_and_an_error_is_always_taken_back() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0, 1], at(0));
    let mut epoch = 0;
    let mut next = |facts: &dyn Fn(i32) -> ResultFacts| {
        epoch += 1;
        run(&cache, request(id, epoch, &[]), at(0), facts).1
    };
    let with = |changed: ResultFacts| move |p: i32| if p == 1 { changed } else { quiet(p) };
    assert_eq!(next(&quiet), [0; 0]);
    let moved = ResultFacts { high_watermark: Offset(11), ..quiet(1) };
    assert_eq!(next(&with(moved)), [1], "the high watermark moved");
    assert_eq!(next(&with(moved)), [0; 0]);
    let started = ResultFacts { log_start_offset: Offset(2), ..moved };
    assert_eq!(next(&with(started)), [1], "the log start moved");
    let failed = ResultFacts {
        error_code: 6,
        high_watermark: Offset(-1),
        log_start_offset: Offset(-1),
        ..Default::default()
    };
    assert_eq!(next(&with(failed)), [1]);
    assert_eq!(next(&with(failed)), [1], "an error is answered every time");
    assert_eq!(next(&with(started)), [1], "and so is its end");
    assert_eq!(next(&with(started)), [0; 0]);
    let redirected = ResultFacts { has_preferred_read_replica: true, ..started };
    assert_eq!(next(&with(redirected)), [1]);
    let diverging = ResultFacts { has_diverging_epoch: true, ..started };
    assert_eq!(next(&with(diverging)), [1]);
    let records = ResultFacts { records_bytes: 1, ..started };
    assert_eq!(next(&with(records)), [1]);
}

#[test]
fn s04_the_end_of_an_error_is_answered_though_no_mark_moved() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    // The marks in the failing answer are those of the answers around it.
    let failed = |_| ResultFacts { error_code: 56, ..quiet(0) };
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), failed).1, [0]);
    assert_eq!(run(&cache, request(id, 2, &[]), at(0), quiet).1, [0]);
    assert_eq!(run(&cache, request(id, 3, &[]), at(0), quiet).1, [0; 0]);
}

#[test]
fn t08_marks_told_beside_a_diverging_epoch_are_told_again() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    let diverging = |_| ResultFacts { has_diverging_epoch: true, ..quiet(0) };
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), diverging).1, [0]);
    assert_eq!(run(&cache, request(id, 2, &[]), at(0), quiet).1, [0]);
    assert_eq!(run(&cache, request(id, 3, &[]), at(0), quiet).1, [0; 0]);
}

#[test]
fn s04_an_error_in_the_first_answer_is_taken_back_even_at_the_same_high_watermark() {
    let cache = cache(10, 1000);
    let failed = |_| ResultFacts { error_code: 56, ..quiet(0) };
    let id = run(&cache, request(0, 0, &[0]), at(0), failed).0.session_id.get();
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), quiet).1, [0]);
    assert_eq!(run(&cache, request(id, 2, &[]), at(0), quiet).1, [0; 0]);
}

#[test]
fn s05_partitions_that_gave_records_go_to_the_end() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0, 1, 2], at(0));
    for epoch in 1..=6 {
        // The first partition read takes all of the response.
        let mut context = cache.new_context(request(id, epoch, &[]), at(0));
        let mut rows = read(&mut context, quiet);
        assert_eq!(rows[0].partition, (epoch - 1) % 3);
        rows[0].facts.records_bytes = 1_000_000;
        context.finish(&cache, &mut rows, at(0));
        assert_eq!(rows.len(), 1);
    }
    // Answered for another reason: stays where it is.
    let moved = |p: i32| ResultFacts { high_watermark: Offset(11), ..quiet(p) };
    assert_eq!(run(&cache, request(id, 7, &[]), at(0), moved).1, [0, 1, 2]);
    assert_eq!(
        run(&cache, request(id, 8, &[]), at(0), |p| ResultFacts { records_bytes: 1, ..moved(p) }).1,
        [0, 1, 2]
    );
}

#[test]
fn s06_partitions_are_overwritten_added_and_then_forgotten() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0, 1], at(0));
    let mut update = request(id, 1, &[2, 3]);
    update.partitions.push((key(0), fetch(42)));
    update.forgotten = vec![key(3), key(1), key(77)];
    let mut context = cache.new_context(update, at(0));
    let rows = read(&mut context, quiet);
    let seen: Vec<_> = rows.iter().map(|row| (row.partition, row.offset)).collect();
    assert_eq!(seen, [(0, 42), (2, 0)]);
    assert_eq!(cache.partition_count(), 2);
    let mut context = cache.new_context(request(id, 2, &[]), at(0));
    assert_eq!(read(&mut context, quiet)[0].offset, 42, "the broker does not advance it");
}

#[test]
fn f02_a_partition_twice_in_a_request_counts_once_with_the_later_offset() {
    let cache = cache(10, 1000);
    let mut twice = request(0, -1, &[0, 1]);
    twice.partitions.push((key(0), fetch(9)));
    let mut context = cache.new_context(twice, at(0));
    let rows = read(&mut context, quiet);
    let seen: Vec<_> = rows.iter().map(|row| (row.partition, row.offset)).collect();
    assert_eq!(seen, [(0, 9), (1, 0)]);
}

#[test]
fn s07_an_unknown_id_stays_in_the_session_until_it_has_a_name_and_keeps_it() {
    let cache = cache(10, 1000);
    let mut context = cache.new_context(request(0, 0, &[0]), at(0));
    let unknown = |_| ResultFacts { error_code: 100, ..Default::default() };
    let mut rows = read(&mut context, unknown);
    assert_eq!(rows[0].topic, None);
    let id = context.finish(&cache, &mut rows, at(0)).session_id.get();

    let names = |name: &'static str| move |_: Uuid| Some(Arc::<str>::from(name));
    let mut seen = Vec::new();
    for (epoch, name) in [(1, "orders"), (2, "other")] {
        let mut context = cache.new_context(request(id, epoch, &[]), at(0));
        context.for_each(&names(name), |_, partition| seen.push(partition.topic.clone()));
    }
    let orders: Option<Arc<str>> = Some("orders".into());
    assert_eq!(seen, [orders.clone(), orders], "a name once resolved stays (103 tells them apart)");

    let mut forget = request(id, 3, &[]);
    forget.forgotten = vec![key(0)];
    assert_eq!(run(&cache, forget, at(0), quiet).0, reply(0, 0));
}

#[test]
fn s08_a_throttled_answer_keeps_the_session_and_consumes_the_epoch() {
    let cache = cache(10, 1000);
    let id = open(&cache, &[0], at(0));
    let context = cache.new_context(request(id, 1, &[]), at(0));
    assert_eq!(context.finish_throttled(), reply(0, id));
    assert_eq!(run(&cache, request(id, 1, &[]), at(0), quiet).0, reply(71, 0));
    assert_eq!(run(&cache, request(id, 2, &[]), at(0), quiet).0, reply(0, id));
    let full = cache.new_context(request(0, 0, &[0]), at(0));
    assert_eq!(full.finish_throttled(), reply(0, 0));
}

#[test]
fn ids_are_spread_over_the_shards_and_found_again() {
    let config = SessionCacheConfig { slots: 16, ..Default::default() };
    let cache = FetchSessionCache::new(config, Box::new(SeededSessionIds::new(1)));
    let mut ids: Vec<i32> = (0..16).map(|_| open(&cache, &[0], at(0))).collect();
    assert!(ids.iter().all(|id| *id > 0));
    for id in &ids {
        assert_eq!(run(&cache, request(*id, 1, &[]), at(1), quiet).0, reply(0, *id));
    }
    assert_eq!(open(&cache, &[0], at(1)), 0, "two slots in each of eight shards are taken");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 16);
}
