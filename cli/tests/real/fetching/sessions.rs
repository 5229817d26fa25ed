//! S01: the whole state table of fetch sessions over the wire, by names and by topic ids. S02: what a full
//! cache does.

use protocol::messages::{FetchRequest, FetchResponse};
use testkit::client::Client;

use super::{FOREVER_MS, IDS, NAMES, Named, fetch, one_node, part, produce, rows};
use crate::alone;

const NOT_FOUND: i16 = 70;
const WRONG_EPOCH: i16 = 71;
const OTHER_NAMES: i16 = 106;

/// One connection that asks in one version.
struct Asking {
    client: Client,
    version: i16,
}

impl Asking {
    fn ask(&mut self, session_id: i32, session_epoch: i32, rest: FetchRequest) -> FetchResponse {
        let request = FetchRequest { session_id, session_epoch, ..rest };
        self.client.call(self.version, request).expect("an answer")
    }

    /// An incremental request that changes nothing.
    fn go_on(&mut self, id: i32, epoch: i32) -> FetchResponse {
        self.ask(id, epoch, fetch(Vec::new()))
    }

    /// A new session with all partitions of the topic; none of them has anything.
    fn open(&mut self, topic: &Named) -> i32 {
        let response = self.ask(0, 0, all(topic));
        assert_eq!(rows(&response), [(0, 0, 0), (1, 0, 0)], "all partitions are told at first");
        assert_ne!(response.session_id, 0);
        response.session_id
    }
}

fn all(topic: &Named) -> FetchRequest {
    fetch(vec![topic.with(vec![part(0, 0), part(1, 0)])])
}

/// Refused as a whole: nothing but the error.
fn assert_refused(response: &FetchResponse, error: i16) {
    let told = (response.error_code, response.session_id, response.responses.len());
    assert_eq!(told, (error, 0, 0));
}

/// Answered with this session and these partitions.
fn assert_answered(response: &FetchResponse, session_id: i32, partitions: usize) {
    let told = (response.error_code, response.session_id, rows(response).len());
    assert_eq!(told, (0, session_id, partitions));
}

#[test]
fn s01_the_whole_state_table() {
    let _alone = alone();
    let (cluster, client, topic) = one_node("sessions", 2, &[]);
    let mut asking = Asking { client, version: NAMES };
    for version in [7, NAMES, 13, IDS] {
        asking.version = version;
        // (0, -1): no session. So with every version that knows none.
        assert_answered(&asking.ask(0, -1, all(&topic)), 0, 2);
        let old = Asking { client: cluster.client(1).expect("a client"), version: 4 }.ask(
            0,
            -1,
            all(&topic),
        );
        assert_answered(&old, 0, 2);
        // Ids that nothing has, any epoch but 0 and -1; with these two the id does not matter.
        // (Kafka has no shard for the largest and smallest ids, and answers -1.)
        for id in [0, 1, -1, 200_000_000, -200_000_000] {
            for epoch in [1, 2, -2, i32::MAX, i32::MIN] {
                assert_refused(&asking.ask(id, epoch, all(&topic)), NOT_FOUND);
            }
            assert_answered(&asking.ask(id, -1, all(&topic)), 0, 2);
        }
        let id = asking.open(&topic);
        // The right epoch counts on; every other is refused and changes nothing.
        assert_answered(&asking.go_on(id, 1), id, 0);
        for epoch in [1, 3, -2, i32::MAX, i32::MIN] {
            assert_refused(&asking.ask(id, epoch, all(&topic)), WRONG_EPOCH);
        }
        assert_answered(&asking.go_on(id, 2), id, 0);
        // Names in a session of ids, and the reverse.
        asking.version = if version < 13 { IDS } else { NAMES };
        assert_refused(&asking.ask(id, 3, all(&topic)), OTHER_NAMES);
        asking.version = version;
        assert_answered(&asking.go_on(id, 3), id, 0);
        // A full request replaces the session that it names.
        let replaced = asking.ask(id, 0, all(&topic));
        let id = replaced.session_id;
        assert_answered(&replaced, id, 2);
        assert_ne!(id, 0);
        assert_answered(&asking.go_on(id, 1), id, 0);
        // (id, -1) ends it.
        assert_answered(&asking.ask(id, -1, all(&topic)), 0, 2);
        assert_refused(&asking.go_on(id, 2), NOT_FOUND);
    }
}

#[test]
fn s01_a_replaced_or_emptied_session_is_gone() {
    let _alone = alone();
    let (_cluster, client, topic) = one_node("gone", 2, &[]);
    let mut asking = Asking { client, version: NAMES };
    for version in [7, NAMES, 13, IDS] {
        asking.version = version;
        let id = asking.open(&topic);
        let next = asking.ask(id, 0, all(&topic)).session_id;
        if next != id {
            assert_refused(&asking.go_on(id, 1), NOT_FOUND);
        }
        let forgetting = FetchRequest {
            forgotten_topics_data: vec![super::session_contents::forgotten(&topic, &[0, 1])],
            ..fetch(Vec::new())
        };
        assert_answered(&asking.ask(next, 1, forgetting), 0, 0);
        assert_refused(&asking.go_on(next, 2), NOT_FOUND);
        // Nothing to read makes a session all the same.
        let empty = asking.ask(0, 0, fetch(Vec::new()));
        assert_ne!(empty.session_id, 0);
        assert_answered(&empty, empty.session_id, 0);
    }
}

/// A session that went on while a request of it was parked: its answer would tell of partitions what the
/// reader has been told otherwise.
#[test]
fn s01_a_parked_request_whose_session_went_on_is_refused_with_the_sessions_id() {
    let _alone = alone();
    let (cluster, client, topic) = one_node("overtaken", 2, &[]);
    let mut asking = Asking { client, version: NAMES };
    for version in [NAMES, IDS] {
        asking.version = version;
        let end = asking.client.list_offset("overtaken", 0, -1).expect("an answer").1;
        let from = fetch(vec![topic.with(vec![part(0, end), part(1, 0)])]);
        let id = asking.ask(0, 0, from).session_id;
        let mut parked = cluster.client(1).expect("a client");
        let waiting = FetchRequest {
            session_id: id,
            session_epoch: 1,
            max_wait_ms: FOREVER_MS,
            ..fetch(Vec::new())
        };
        let correlation_id = parked.send(version, waiting.into()).expect("sent");
        // The other connection may be served first; then the epoch is not this one's yet.
        let overtaking = loop {
            let response = asking.go_on(id, 2);
            if response.error_code != WRONG_EPOCH {
                break response;
            }
        };
        assert_answered(&overtaking, id, 0);
        produce(&mut asking.client, "overtaken", 0, &[b"the end of the wait"]);
        let frame = parked.read_frame().expect("an answer");
        let key = protocol::ApiKey::Fetch;
        let body = protocol::frame::decode_response(frame, correlation_id, key, version);
        let late = FetchResponse::try_from(body.expect("readable")).expect("a fetch's answer");
        let told = (late.error_code, late.session_id, late.responses.len());
        assert_eq!(told, (WRONG_EPOCH, id, 0), "version {version}");
        let next = asking.go_on(id, 3);
        assert_eq!((next.error_code, next.session_id, rows(&next).len()), (0, id, 1));
    }
}

/// Which shard a session goes to is random; so many tries miss none of the eight.
#[test]
fn s02_a_full_cache_answers_newcomers_of_equal_size_without_a_session_and_evicts_nobody() {
    let _alone = alone();
    let slots = [("max.incremental.fetch.session.cache.slots", "8")];
    let (_cluster, client, topic) = one_node("full", 2, &slots);
    let mut asking = Asking { client, version: IDS };
    let mut ids = Vec::new();
    for _ in 0..300 {
        let response = asking.ask(0, 0, all(&topic));
        assert_answered(&response, response.session_id, 2);
        if response.session_id != 0 {
            ids.push(response.session_id);
        }
    }
    assert_eq!(ids.len(), 8, "one of each shard: {ids:?}");
    for id in &ids {
        assert_answered(&asking.go_on(*id, 1), *id, 0);
    }
    // One that ends makes room.
    assert_answered(&asking.ask(ids[0], -1, all(&topic)), 0, 2);
    let opened = (0..300).filter(|_| asking.ask(0, 0, all(&topic)).session_id != 0).count();
    assert_eq!(opened, 1);
}
