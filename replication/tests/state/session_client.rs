//! The client end of fetch sessions, alone and against the server's end.

use super::sessions::{Row, at, cache, fetch, key, no_names, quiet, read};
use proptest::prelude::*;
use protocol::types::{Offset, SessionEpoch, SessionId};
use replication::fetch_session::{
    FetchSessionCache, FetchSessionHandler, PartitionKey, ResponseVerdict, SessionFetch,
    SessionRequest,
};
use std::collections::BTreeMap;

fn partitions(fetch: &SessionFetch) -> Vec<(i32, i64)> {
    fetch.to_send.iter().map(|(key, fetch)| (key.partition, fetch.fetch_offset.get())).collect()
}

fn accept(handler: &mut FetchSessionHandler, id: i32, answered: &[PartitionKey]) {
    let verdict = handler.on_response(0, SessionId(id), false, answered.iter());
    assert_eq!(verdict, ResponseVerdict::Accept);
}

fn opened() -> FetchSessionHandler {
    let mut handler = FetchSessionHandler::new();
    handler.set(key(0), fetch(0));
    handler.set(key(1), fetch(0));
    let first = handler.build();
    assert_eq!((first.metadata.id, first.metadata.epoch), (SessionId(0), SessionEpoch(0)));
    assert_eq!(partitions(&first), [(0, 0), (1, 0)]);
    accept(&mut handler, 9, &[key(0), key(1)]);
    handler
}

#[test]
fn an_incremental_request_names_what_changed_only() {
    let mut handler = opened();
    let idle = handler.build();
    assert_eq!((idle.metadata.id, idle.metadata.epoch), (SessionId(9), SessionEpoch(1)));
    assert!(idle.to_send.is_empty() && idle.to_forget.is_empty());
    accept(&mut handler, 9, &[]);

    handler.set(key(1), fetch(5));
    handler.set(key(2), fetch(0));
    handler.remove(&key(0));
    let changed = handler.build();
    assert_eq!(changed.metadata.epoch, SessionEpoch(2));
    assert_eq!(partitions(&changed), [(1, 5), (2, 0)]);
    assert_eq!(changed.to_forget, [key(0)]);
}

#[test]
fn a_change_taken_back_before_the_request_is_not_sent() {
    let mut handler = opened();
    handler.set(key(0), fetch(5));
    handler.set(key(0), fetch(0));
    handler.remove(&key(1));
    handler.set(key(1), fetch(0));
    handler.set(key(3), fetch(0));
    handler.remove(&key(3));
    let idle = handler.build();
    assert!(idle.to_send.is_empty() && idle.to_forget.is_empty(), "{idle:?}");
}

#[test]
fn errors_and_failures_start_over_with_everything() {
    for (error, id) in [(70, 0), (71, 9), (106, 9), (1, 9)] {
        let mut handler = opened();
        handler.build();
        let verdict = handler.on_response(error, SessionId(0), false, std::iter::empty());
        assert_eq!(verdict, ResponseVerdict::Reset);
        let next = handler.build();
        assert_eq!((next.metadata.id, next.metadata.epoch), (SessionId(id), SessionEpoch(0)));
        assert_eq!(partitions(&next).len(), 2, "error {error}");
    }
    let mut handler = opened();
    handler.build();
    handler.on_failure();
    let next = handler.build();
    assert_eq!((next.metadata.id, next.metadata.epoch), (SessionId(9), SessionEpoch(0)));
}

#[test]
fn a_server_without_room_gets_full_requests_in_rotation() {
    let mut handler = FetchSessionHandler::new();
    for partition in 0..3 {
        handler.set(key(partition), fetch(0));
    }
    let order = |handler: &mut FetchSessionHandler| -> Vec<i32> {
        let sent = handler.build();
        accept(handler, 0, &[key(0), key(1), key(2)]);
        sent.to_send.iter().map(|(key, _)| key.partition).collect()
    };
    assert_eq!(order(&mut handler), [0, 1, 2]);
    handler.move_to_end(&key(0));
    assert_eq!(order(&mut handler), [1, 2, 0]);
    handler.move_to_end(&key(1));
    assert_eq!(order(&mut handler), [2, 0, 1]);
}

#[test]
fn an_incomplete_full_answer_or_a_foreign_partition_is_not_used() {
    let mut handler = FetchSessionHandler::new();
    handler.set(key(0), fetch(0));
    handler.set(key(1), fetch(0));
    handler.build();
    let half = handler.on_response(0, SessionId(9), false, [key(0)].iter());
    assert_eq!(half, ResponseVerdict::Reset);
    assert!(handler.next_is_full());

    let mut handler = opened();
    handler.build();
    let foreign = handler.on_response(0, SessionId(9), false, [key(77)].iter());
    assert_eq!(foreign, ResponseVerdict::Reset);
    assert!(handler.next_is_full());
}

#[test]
fn a_throttled_full_answer_is_empty_and_no_session() {
    let mut handler = FetchSessionHandler::new();
    handler.set(key(0), fetch(0));
    handler.build();
    let verdict = handler.on_response(0, SessionId(0), true, std::iter::empty());
    assert_eq!(verdict, ResponseVerdict::Reset);
    assert_eq!(handler.build().metadata.id, SessionId(0));
}

#[test]
fn changes_during_a_request_do_not_spoil_its_answer() {
    let mut handler = FetchSessionHandler::new();
    handler.set(key(0), fetch(0));
    handler.set(key(1), fetch(0));
    handler.build();
    handler.remove(&key(0));
    handler.set(key(2), fetch(0));
    handler.remove(&key(1));
    handler.set(key(1), fetch(8));
    assert_eq!(handler.sent(&key(1)).unwrap().fetch_offset, Offset(0), "as it was asked");
    assert_eq!(handler.sent(&key(2)), None);
    accept(&mut handler, 9, &[key(0), key(1)]);
    let next = handler.build();
    assert_eq!(partitions(&next), [(1, 8), (2, 0)]);
    assert_eq!(next.to_forget, [key(0)]);
}

/// Sends what the handler builds to a server; answers what the server then holds.
fn exchange(
    cache: &FetchSessionCache,
    handler: &mut FetchSessionHandler,
    is_lost: bool,
) -> BTreeMap<i32, i64> {
    let sent = handler.build();
    let request = SessionRequest {
        session_id: sent.metadata.id,
        session_epoch: sent.metadata.epoch,
        version: 17,
        is_follower: true,
        partitions: sent.to_send,
        forgotten: sent.to_forget,
    };
    let mut context = cache.new_context(request, at(0));
    let mut held = BTreeMap::new();
    let mut answered = Vec::new();
    if let Some(reply) = context.error_reply() {
        handler.on_response(reply.error_code, reply.session_id, false, std::iter::empty());
        return held;
    }
    context.for_each(&no_names, |_, partition| {
        held.insert(partition.key.partition, partition.fetch.fetch_offset.get());
    });
    let mut rows: Vec<Row> = read(&mut context, quiet);
    let reply = context.finish(cache, &mut rows, at(0));
    answered.extend(rows.iter().map(|row| key(row.partition)));
    if is_lost {
        handler.on_failure();
    } else {
        handler.on_response(reply.error_code, reply.session_id, false, answered.iter());
    }
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_server_reads_exactly_what_the_client_wants_whatever_is_lost(
        rounds in prop::collection::vec(
            (prop::collection::vec((0..6i32, prop::option::of(0..4i64)), 0..5), 0..6u8),
            1..30,
        ),
    ) {
        let cache = cache(3, 1000);
        let mut handler = FetchSessionHandler::new();
        let mut wanted: BTreeMap<i32, i64> = BTreeMap::new();
        for (changes, luck) in rounds {
            for (partition, offset) in changes {
                match offset {
                    Some(offset) => {
                        wanted.insert(partition, offset);
                        handler.set(key(partition), fetch(offset));
                    }
                    None => {
                        wanted.remove(&partition);
                        handler.remove(&key(partition));
                    }
                }
            }
            if wanted.is_empty() {
                continue;
            }
            let held = exchange(&cache, &mut handler, luck == 0);
            prop_assert_eq!(&held, &wanted);
        }
    }
}
