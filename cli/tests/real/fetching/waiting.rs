//! F02: what is answered at once, what waits, and how much is enough. No test here depends on speed: what
//! must not wait would wait longer than the client's patience, what must wait is at least as late as it said.

use std::time::{Duration, Instant};

use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::{FetchRequest, FetchResponse};
use testkit::client::Client;

use super::{FOREVER_MS, IDS, NAMES, batches_of, fetch, one_node, only, part, produce, rows};
use crate::alone;

const WAIT_MS: i32 = 300;
const VALUE: [u8; 100] = [5; 100];

fn answered_at_once(client: &mut Client, version: i16, request: FetchRequest) -> FetchResponse {
    let request = FetchRequest { max_wait_ms: FOREVER_MS, ..request };
    client.call(version, request).expect("an answer before the client loses patience")
}

fn answered_after_waiting(
    client: &mut Client,
    version: i16,
    request: FetchRequest,
) -> FetchResponse {
    let request = FetchRequest { max_wait_ms: WAIT_MS, ..request };
    let start = Instant::now();
    let response = client.call(version, request).expect("an answer");
    assert!(start.elapsed() >= Duration::from_millis(WAIT_MS as u64), "{:?}", start.elapsed());
    response
}

#[test]
fn f02_the_immediate_cases_are_immediate_and_nothing_else_is() {
    let _alone = alone();
    let (_cluster, mut client, topic) = one_node("immediate", 2, &[]);
    produce(&mut client, "immediate", 0, &[&VALUE]);
    for version in [4, NAMES, 13, IDS] {
        let at_the_end = || fetch(vec![topic.with(vec![part(0, 1), part(1, 0)])]);
        // No wait is wanted.
        for max_wait_ms in [0, -1, i32::MIN] {
            let request = FetchRequest { max_wait_ms, ..at_the_end() };
            assert_eq!(rows(&client.call(version, request).expect("an answer")).len(), 2);
        }
        // Nothing was asked for.
        assert!(rows(&answered_at_once(&mut client, version, fetch(Vec::new()))).is_empty());
        // No bytes are wanted.
        for min_bytes in [0, -1, i32::MIN] {
            let request = FetchRequest { min_bytes, ..at_the_end() };
            assert_eq!(rows(&answered_at_once(&mut client, version, request)).len(), 2);
        }
        // There is enough; one partition fails beside one that has nothing.
        let enough = fetch(vec![topic.with(vec![part(1, 0), part(0, 0)])]);
        assert!(rows(&answered_at_once(&mut client, version, enough))[1].2 > 0);
        let failing = fetch(vec![topic.with(vec![part(1, 0), part(0, 5)])]);
        let got = rows(&answered_at_once(&mut client, version, failing));
        assert_eq!(got, [(1, 0, 0), (0, 1, 0)]);
        // None of those asked for is there.
        let unknown = fetch(vec![topic.with(vec![part(9, 0), part(8, 0)])]);
        let got = rows(&answered_at_once(&mut client, version, unknown));
        assert_eq!(got, [(9, 3, 0), (8, 3, 0)]);
        // Nothing of that: it waits as long as it said.
        let got = rows(&answered_after_waiting(&mut client, version, at_the_end()));
        assert_eq!(got, [(0, 0, 0), (1, 0, 0)]);
        // One that is not there does not end the wait of one that is.
        let partly = fetch(vec![topic.with(vec![part(9, 0), part(1, 0)])]);
        let got = rows(&answered_after_waiting(&mut client, version, partly));
        assert_eq!(got, [(1, 0, 0), (9, 3, 0)]);
    }
    // The reader's log parts from ours.
    for version in [NAMES, IDS] {
        let partition = FetchPartition { last_fetched_epoch: 0, ..part(0, 5) };
        let request = fetch(vec![topic.with(vec![part(1, 0), partition])]);
        let response = answered_at_once(&mut client, version, request);
        let data = &response.responses[0].partitions[1];
        assert_eq!((data.error_code, data.records.as_ref().map(|it| it.len())), (0, Some(0)));
        assert_eq!((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (0, 1));
    }
}

#[test]
fn f02_min_bytes_is_kept_to_the_byte() {
    let _alone = alone();
    let (cluster, mut client, topic) = one_node("exact", 2, &[]);
    for partition in [0, 1] {
        produce(&mut client, "exact", partition, &[&VALUE]);
    }
    let both = || fetch(vec![topic.with(vec![part(0, 0), part(1, 0)])]);
    let got = rows(&client.call(IDS, both()).expect("an answer"));
    let batch = got[0].2 as i32;
    assert_eq!(got[1].2 as i32, batch);
    // All partitions count together.
    let request = FetchRequest { min_bytes: 2 * batch, ..both() };
    assert_eq!(rows(&answered_at_once(&mut client, IDS, request)), got);
    let request = FetchRequest { min_bytes: 2 * batch + 1, ..both() };
    assert_eq!(rows(&answered_after_waiting(&mut client, IDS, request)), got);
    // More than the answer may hold cannot be waited for.
    let request = FetchRequest { min_bytes: i32::MAX, max_bytes: batch, ..both() };
    assert_eq!(rows(&answered_at_once(&mut client, IDS, request))[0].2 as i32, batch);

    // One byte short of enough goes on waiting, enough ends the wait: seen by what the answer holds.
    let mut writer = cluster.client(1).expect("a client");
    let mut expect = |min_bytes: i32, appended: i64| {
        let end = client.list_offset("exact", 0, -1).expect("an answer").1;
        let waiting = FetchRequest {
            min_bytes,
            max_wait_ms: FOREVER_MS,
            ..fetch(vec![topic.with(vec![part(0, end)])])
        };
        client.send(IDS, waiting.into()).expect("sent");
        for _ in 0..appended {
            produce(&mut writer, "exact", 0, &[&VALUE]);
        }
        let frame = client.read_frame().expect("an answer");
        let correlation_id = i32::from_be_bytes(frame[..4].try_into().expect("four bytes"));
        let key = protocol::ApiKey::Fetch;
        let body = protocol::frame::decode_response(frame, correlation_id, key, IDS);
        let response = FetchResponse::try_from(body.expect("readable")).expect("a fetch's answer");
        let batches: Vec<_> = (end..end + appended).map(|offset| (offset, offset)).collect();
        assert_eq!(batches_of(&only(response)), batches, "{min_bytes} bytes wanted");
    };
    expect(1, 1);
    expect(batch, 1);
    expect(batch + 1, 2);
    expect(2 * batch, 2);
    expect(2 * batch + 1, 3);
}

/// A fetch behind another on its connection is answered behind it; one on another connection is not held up.
#[test]
fn f02_a_waiting_fetch_holds_up_its_own_connection_only() {
    let _alone = alone();
    let (cluster, mut client, topic) = one_node("order", 1, &[]);
    let waiting =
        FetchRequest { max_wait_ms: FOREVER_MS, ..fetch(vec![topic.with(vec![part(0, 0)])]) };
    let first = client.send(IDS, waiting.into()).expect("sent");
    let second = client.send(IDS, fetch(Vec::new()).into()).expect("sent");
    let mut other = cluster.client(1).expect("a client");
    let now = other.call(IDS, fetch(vec![topic.with(vec![part(0, 0)])])).expect("an answer");
    assert_eq!(rows(&now), [(0, 0, 0)]);
    produce(&mut other, "order", 0, &[&VALUE]);
    for wanted in [first, second] {
        let frame = client.read_frame().expect("an answer");
        assert_eq!(i32::from_be_bytes(frame[..4].try_into().expect("four bytes")), wanted);
    }
}
