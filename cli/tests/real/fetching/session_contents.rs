//! What a session holds and what its answers carry, over the wire: S04, S05, S06 and S07.

use protocol::messages::fetch_request::{FetchPartition, ForgottenTopic};
use protocol::messages::{DeleteTopicsRequest, FetchRequest};
use testkit::client::Client;

use super::{IDS, NAMES, Named, fetch, one_node, part, produce, rows};
use crate::alone;

const OUT_OF_RANGE: i16 = 1;

/// Partitions that a session shall drop.
pub fn forgotten(topic: &Named, partitions: &[i32]) -> ForgottenTopic {
    ForgottenTopic {
        topic: topic.name.clone(),
        topic_id: topic.id,
        partitions: partitions.to_vec(),
        ..ForgottenTopic::default()
    }
}

/// A session and the epoch it expects.
struct Session<'a> {
    client: &'a mut Client,
    version: i16,
    id: i32,
    epoch: i32,
}

impl<'a> Session<'a> {
    fn open(
        client: &'a mut Client,
        version: i16,
        request: FetchRequest,
    ) -> (Self, Vec<(i32, i16, usize)>) {
        let opening = FetchRequest { session_epoch: 0, ..request };
        let response = client.call(version, opening).expect("an answer");
        assert_eq!(response.error_code, 0);
        assert_ne!(response.session_id, 0);
        (Session { client, version, id: response.session_id, epoch: 1 }, rows(&response))
    }

    fn ask(&mut self, request: FetchRequest) -> Vec<(i32, i16, usize)> {
        let request = FetchRequest { session_id: self.id, session_epoch: self.epoch, ..request };
        self.epoch += 1;
        let response = self.client.call(self.version, request).expect("an answer");
        assert_eq!((response.error_code, response.session_id), (0, self.id));
        rows(&response)
    }

    /// What has changed.
    fn go_on(&mut self) -> Vec<(i32, i16, usize)> {
        self.ask(fetch(Vec::new()))
    }
}

#[test]
fn s04_an_incremental_answer_carries_what_changed() {
    let _alone = alone();
    let (cluster, mut client, topic) = one_node("changes", 2, &[]);
    let mut writer = cluster.client(1).expect("a client");
    for version in [7, NAMES, 13, IDS] {
        let end = writer.list_offset("changes", 0, -1).expect("an answer").1;
        let from = |one: i64| fetch(vec![topic.with(vec![part(0, one), part(1, end)])]);
        let (mut session, first) = Session::open(&mut client, version, from(end));
        assert_eq!(first, [(0, 0, 0), (1, 0, 0)]);
        assert_eq!(session.go_on(), []);
        // Data in both, and room for one: the other is told for its high watermark alone, and only once.
        for partition in [0, 1] {
            produce(&mut writer, "changes", partition, &[b"new"]);
        }
        let narrow = || FetchRequest { max_bytes: 1, ..fetch(Vec::new()) };
        let got = session.ask(narrow());
        assert_eq!((got.len(), got[0].0, got[1]), (2, 0, (1, 0, 0)));
        let batch = got[0].2;
        assert!(batch > 0);
        // Records are told again and again, by turns; what gives none is told no more.
        assert_eq!(session.ask(narrow()), [(1, 0, batch)]);
        assert_eq!(session.ask(narrow()), [(0, 0, batch)]);
        // An error is told every time; its end once, though the marks are what they were.
        let at = |offset| fetch(vec![topic.with(vec![part(0, offset), part(1, end + 1)])]);
        assert_eq!(session.ask(at(end + 99)), [(0, OUT_OF_RANGE, 0)]);
        assert_eq!(session.go_on(), [(0, OUT_OF_RANGE, 0)]);
        assert_eq!(session.ask(at(end + 1)), [(0, 0, 0)]);
        assert_eq!(session.go_on(), []);
    }
}

#[test]
fn s05_partitions_that_gave_records_go_to_the_end_of_their_session() {
    let _alone = alone();
    let (_cluster, mut client, topic) = one_node("turns", 3, &[]);
    for partition in 0..3 {
        for _ in 0..4 {
            produce(&mut client, "turns", partition, &[b"backlog"]);
        }
    }
    let narrow = |topics| FetchRequest { max_bytes: 1, ..fetch(topics) };
    let all = || narrow(vec![topic.with((0..3).map(|partition| part(partition, 0)).collect())]);
    let giving = |rows: Vec<(i32, i16, usize)>| -> Vec<i32> {
        rows.into_iter().filter(|row| row.2 > 0).map(|row| row.0).collect()
    };
    for version in [7, NAMES, 13, IDS] {
        let (mut session, first) = Session::open(&mut client, version, all());
        // The order is the first request's; turns begin with the second.
        assert_eq!(giving(first), [0]);
        let mut turns = Vec::new();
        for _ in 0..6 {
            turns.extend(giving(session.ask(narrow(Vec::new()))));
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2], "version {version}");
        // Without a session the order is the request's, every time.
        for _ in 0..3 {
            let response = client.call(version, all()).expect("an answer");
            assert_eq!(giving(rows(&response)), [0], "version {version}");
        }
    }
}

#[test]
fn s06_sessions_keep_offsets_take_new_ones_and_forget() {
    let _alone = alone();
    let (_cluster, mut client, topic) = one_node("kept", 3, &[]);
    for partition in 0..3 {
        produce(&mut client, "kept", partition, &[b"one"]);
        produce(&mut client, "kept", partition, &[b"two"]);
    }
    for version in [7, NAMES, 13, IDS] {
        let opening = fetch(vec![topic.with(vec![part(0, 0)])]);
        let (mut session, first) = Session::open(&mut client, version, opening);
        let both = first[0].2;
        // The broker does not move on by itself.
        assert_eq!(session.go_on(), [(0, 0, both)]);
        // A partition that is sent again has what was sent, one that is new comes behind.
        let moved = fetch(vec![topic.with(vec![part(0, 1), part(1, 0)])]);
        assert_eq!(session.ask(moved), [(0, 0, both / 2), (1, 0, both)]);
        let narrow = FetchPartition { partition_max_bytes: 1, ..part(1, 0) };
        let limited = session.ask(fetch(vec![topic.with(vec![part(0, 2), narrow])]));
        assert_eq!(limited, [(1, 0, both / 2)]);
        // In both lists: forgotten. Not there at all: no matter.
        let request = FetchRequest {
            forgotten_topics_data: vec![forgotten(&topic, &[1, 2, 7]), forgotten(&topic, &[1])],
            ..fetch(vec![topic.with(vec![part(2, 0)])])
        };
        assert_eq!(session.ask(request), []);
        assert_eq!(session.ask(fetch(vec![topic.with(vec![part(0, 1)])])), [(0, 0, both / 2)]);
        // Twice in one request: once, with the later offset.
        let twice = fetch(vec![topic.with(vec![part(0, 0), part(0, 1)])]);
        assert_eq!(session.ask(twice), [(0, 0, both / 2)]);
    }
}

#[test]
fn s07_what_is_unknown_is_told_every_time_until_it_is_forgotten() {
    let _alone = alone();
    let (_cluster, mut client, topic) = one_node("known", 1, &[]);
    let unknown = Named { name: "unknown".into(), id: protocol::Uuid([77; 16]) };
    for (version, error) in [(7, 3), (NAMES, 3), (13, 100), (IDS, 100)] {
        let opening = fetch(vec![topic.with(vec![part(0, 0)]), unknown.with(vec![part(0, 0)])]);
        let (mut session, first) = Session::open(&mut client, version, opening);
        assert_eq!(first, [(0, 0, 0), (0, error, 0)]);
        for _ in 0..2 {
            assert_eq!(session.go_on(), [(0, error, 0)]);
        }
        let forgetting = FetchRequest {
            forgotten_topics_data: vec![forgotten(&unknown, &[0])],
            ..fetch(Vec::new())
        };
        assert_eq!(session.ask(forgetting), []);
        assert_eq!(session.go_on(), []);
    }
}

#[test]
fn s07_a_topic_made_anew_is_another_one_to_a_session_of_ids() {
    let _alone = alone();
    let (mut cluster, mut client, old) = one_node("anew", 1, &[]);
    produce(&mut client, "anew", 0, &[b"of the first"]);
    let mut reader = cluster.client(1).expect("a client");
    let opening = fetch(vec![old.with(vec![part(0, 0)])]);
    let (mut session, first) = Session::open(&mut reader, IDS, opening.clone());
    assert!(first[0].2 > 0);
    let request = DeleteTopicsRequest {
        topic_names: vec!["anew".into()],
        timeout_ms: 20_000,
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, request).expect("an answer").responses[0].error_code, 0);
    cluster
        .wait_for("the topic to be gone", |cluster| {
            Ok(cluster.client(1)?.topic_id("anew").map_or(Ok(()), |_| Err("still there".into())))
        })
        .expect("gone");
    // Gone, and then there again with another id.
    assert_eq!(session.go_on(), [(0, 3, 0)]);
    cluster.create_topic("anew", &[&[1]], &[]).expect("a topic");
    super::wait_until_led(&mut cluster, "anew", 1);
    let new = Named::of(&mut client, "anew");
    assert_ne!(new.id, old.id);
    for _ in 0..2 {
        assert_eq!(session.go_on(), [(0, 103, 0)]);
    }
    // Asked for afresh, the old id is nobody's; the new topic is empty and counts from 0.
    let got = rows(&client.call(IDS, opening).expect("an answer"));
    assert_eq!(got, [(0, 100, 0)]);
    let request = fetch(vec![new.with(vec![part(0, 0)])]);
    assert_eq!(rows(&client.call(IDS, request).expect("an answer")), [(0, 0, 0)]);
    assert_eq!(session.ask(fetch(vec![new.with(vec![part(0, 0)])])), [(0, 103, 0), (0, 0, 0)]);
    // By name there is one topic of that name.
    let request = fetch(vec![new.with(vec![part(0, 1)])]);
    assert_eq!(rows(&client.call(NAMES, request).expect("an answer")), [(0, 1, 0)]);
}
