//! Requests, sessions, stale answers (T10) and errors.

use super::fake::{
    Leader, Log, Replicas, TOPIC, asked, assignment, at, core, error_data, poll, poll_fetch, round,
    tip,
};
use super::truncating::answer;
use fetcher::{FetcherResponse, Phase, ReplicaError};
use protocol::messages::FetchResponse;

#[test]
fn a_request_says_who_fetches_what_and_how_far_it_is() {
    let replicas = Replicas::with(vec![Log { start: 2, ..Log::of(&[(3, 7)]) }]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 4)], at(0));
    let request = poll_fetch(&mut core, &replicas, at(0));
    assert_eq!((request.replica_state.replica_id, request.replica_state.replica_epoch), (2, 5));
    assert_eq!((request.max_wait_ms, request.min_bytes), (500, 1));
    assert_eq!(request.max_bytes, 10 * 1024 * 1024);
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    let topic = &request.topics[0];
    assert_eq!(topic.topic_id, TOPIC);
    let partition = &topic.partitions[0];
    assert_eq!((partition.fetch_offset, partition.log_start_offset), (7, 2));
    assert_eq!((partition.current_leader_epoch, partition.last_fetched_epoch), (4, 3));
    assert_eq!(partition.partition_max_bytes, 1024 * 1024);
    assert_eq!(poll(&mut core, &replicas, at(9999)), None, "one request at a time");
}

#[test]
fn an_idle_session_sends_empty_requests_and_then_only_what_moved() {
    let replicas = Replicas::with(vec![Log::default(), Log::default()]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0), assignment(1, 0)], at(0));
    let mut leader = Leader::new(0, vec![Log::default(), Log::default()]);
    let first = poll_fetch(&mut core, &replicas, at(0));
    let opened = FetchResponse { session_id: 33, ..leader.fetch(&first) };
    core.on_response(&replicas, FetcherResponse::Fetch(opened), at(0));
    let idle = poll_fetch(&mut core, &replicas, at(0));
    assert_eq!((idle.session_id, idle.session_epoch, idle.topics.len()), (33, 1, 0));

    leader.logs[1] = Log { high_watermark: 2, ..Log::of(&[(0, 2)]) };
    let mut news = leader.fetch(&first);
    news.session_id = 33;
    news.responses[0].partitions.retain(|data| data.partition_index == 1);
    core.on_response(&replicas, FetcherResponse::Fetch(news), at(0));
    assert_eq!(replicas.log_of(1).end, 2);
    let next = poll_fetch(&mut core, &replicas, at(0));
    assert_eq!((next.session_epoch, asked(&next)), (2, vec![(1, 2, 0)]));
    let empty = FetchResponse { session_id: 33, ..Default::default() };
    core.on_response(&replicas, FetcherResponse::Fetch(empty), at(0));
    core.remove_partitions([&tip(0)]);
    let last = poll_fetch(&mut core, &replicas, at(0));
    assert_eq!(last.forgotten_topics_data[0].partitions, [0]);
}

#[test]
fn a_log_start_that_retention_moved_is_told_to_the_leader() {
    let replicas = Replicas::with(vec![Log::of(&[(0, 5)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let leader = Leader::new(0, vec![Log::of(&[(0, 5)])]);
    let first = poll_fetch(&mut core, &replicas, at(0));
    let opened = FetchResponse { session_id: 33, ..leader.fetch(&first) };
    core.on_response(&replicas, FetcherResponse::Fetch(opened), at(0));
    replicas.logs.lock().unwrap()[0].start = 3;
    let told = (0..3).any(|_| {
        let request = poll_fetch(&mut core, &replicas, at(0));
        let empty = FetchResponse { session_id: 33, ..Default::default() };
        core.on_response(&replicas, FetcherResponse::Fetch(empty), at(0));
        request.topics.iter().any(|topic| topic.partitions[0].log_start_offset == 3)
    });
    assert!(told);
}

#[test]
fn t10_an_answer_for_a_partition_removed_or_moved_meanwhile_is_dropped() {
    let leader = Leader::new(0, vec![Log::of(&[(0, 5)])]);
    let replicas = Replicas::with(vec![Log::default()]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let request = poll(&mut core, &replicas, at(0)).unwrap();
    core.remove_partitions([&tip(0)]);
    core.on_response(&replicas, leader.answer(&request), at(0));
    assert_eq!(replicas.log_of(0).end, 0);
    assert!(core.is_empty());

    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let request = poll(&mut core, &replicas, at(0)).unwrap();
    // Another fetcher had it meanwhile and appended two records.
    core.remove_partitions([&tip(0)]);
    replicas.logs.lock().unwrap()[0] = Log::of(&[(0, 2)]);
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    core.on_response(&replicas, leader.answer(&request), at(0));
    assert_eq!(replicas.log_of(0).end, 2, "no gap and no repeat");
    let told = replicas.take_events();
    assert!(
        matches!(&told[..], [one] if one.contains("dropped an answer for 0, fetching at 2")),
        "{told:?}"
    );
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(replicas.log_of(0).batches, leader.logs[0].batches);
}

#[test]
fn t10_a_log_that_moved_under_the_fetcher_is_read_again() {
    let leader = Leader::new(0, vec![Log::of(&[(0, 5)])]);
    let replicas = Replicas::with(vec![Log::default()]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let moved = ReplicaError::UnexpectedOffset { log_end_offset: protocol::Offset(2) };
    *replicas.next_error.lock().unwrap() = Some(moved);
    replicas.logs.lock().unwrap()[0] = Log::of(&[(0, 2)]);
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(core.partition(&tip(0)).unwrap().phase, Phase::Starting);
    round(&mut core, &replicas, &leader, at(1000));
    assert_eq!(replicas.log_of(0).end, 5);
}

#[test]
fn retriable_errors_back_off_and_leave_the_others_alone() {
    for error in [2, 3, 6, 56, 75, 78, 100, 103, -1] {
        let replicas = Replicas::with(vec![Log::default(), Log::default()]);
        let leader = Leader::new(0, vec![Log::of(&[(0, 1)]), Log::of(&[(0, 1)])]);
        let mut core = core();
        core.add_partitions(&replicas, [assignment(0, 0), assignment(1, 0)], at(0));
        let request = poll_fetch(&mut core, &replicas, at(0));
        let mut response = leader.fetch(&request);
        response.responses[0].partitions[0] = error_data(0, error);
        core.on_response(&replicas, FetcherResponse::Fetch(response), at(0));
        assert_eq!(replicas.log_of(1).end, 1, "error {error}");
        let next = poll_fetch(&mut core, &replicas, at(1));
        assert_eq!(asked(&next), [(1, 1, 0)], "error {error}");
        core.on_response(&replicas, FetcherResponse::Fetch(leader.fetch(&next)), at(1));
        let later = poll_fetch(&mut core, &replicas, at(1000));
        assert!(asked(&later).contains(&(0, 0, -1)), "error {error}");
    }
}

#[test]
fn a_leader_that_has_not_heard_yet_is_asked_again_soon_and_ever_later_up_to_the_back_off() {
    for error in [3, 6, 75, 100] {
        let replicas = Replicas::with(vec![Log::default()]);
        let leader = Leader::new(0, vec![Log::of(&[(0, 1)])]);
        let mut core = core();
        core.add_partitions(&replicas, [assignment(0, 0)], at(0));
        let mut now = 0;
        for pause in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            let request = poll_fetch(&mut core, &replicas, at(now));
            let mut response = leader.fetch(&request);
            response.responses[0].partitions[0] = error_data(0, error);
            core.on_response(&replicas, FetcherResponse::Fetch(response), at(now));
            assert_eq!(core.next_wakeup(at(now)), Some(at(now + pause)), "error {error}");
            now += pause;
        }
        round(&mut core, &replicas, &leader, at(now));
        assert_eq!(replicas.log_of(0).end, 1, "error {error}");
        let request = poll_fetch(&mut core, &replicas, at(now));
        let mut response = leader.fetch(&request);
        response.responses[0].partitions = vec![error_data(0, error)];
        core.on_response(&replicas, FetcherResponse::Fetch(response), at(now));
        assert_eq!(core.next_wakeup(at(now)), Some(at(now + 20)), "a success makes it short again");
    }
}

#[test]
fn a_failing_disk_stops_the_partition_and_bad_bytes_are_fetched_again() {
    let replicas = Replicas::with(vec![Log::default()]);
    let leader = Leader::new(0, vec![Log::of(&[(0, 1)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    *replicas.next_error.lock().unwrap() = Some(ReplicaError::Corrupt("crc".into()));
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(poll(&mut core, &replicas, at(0)), None);
    *replicas.next_error.lock().unwrap() = Some(ReplicaError::Storage("gone".into()));
    round(&mut core, &replicas, &leader, at(1000));
    assert_eq!(core.failed_count(), 1);
    assert_eq!(core.next_wakeup(at(1000)), None);
    core.add_partitions(&replicas, [assignment(0, 0)], at(2000));
    round(&mut core, &replicas, &leader, at(2000));
    assert_eq!(replicas.log_of(0).end, 1, "assigned anew at the same epoch");
}

#[test]
fn a_lost_session_is_opened_again_at_once_and_a_refusing_leader_after_a_pause() {
    let replicas = Replicas::with(vec![Log::default()]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let top = |error_code: i16| {
        FetcherResponse::Fetch(FetchResponse { error_code, ..Default::default() })
    };
    poll_fetch(&mut core, &replicas, at(0));
    core.on_response(&replicas, top(70), at(0));
    assert_eq!(poll_fetch(&mut core, &replicas, at(0)).session_epoch, 0);
    core.on_response(&replicas, top(71), at(0));
    assert_eq!(poll(&mut core, &replicas, at(0)), None, "twice in a row is not at once");
    assert_eq!(core.next_wakeup(at(0)), Some(at(1000)));
    poll_fetch(&mut core, &replicas, at(1000));
    core.on_response(&replicas, answer(error_data(0, 6)), at(1000));
    poll_fetch(&mut core, &replicas, at(2000));
    core.on_response(&replicas, top(106), at(2000));
    assert_eq!(poll(&mut core, &replicas, at(2999)), None);
    assert!(poll(&mut core, &replicas, at(3000)).is_some());
}

#[test]
fn a_failed_request_backs_off_and_the_next_one_is_full() {
    let replicas = Replicas::with(vec![Log::default()]);
    let leader = Leader::new(0, vec![Log::default()]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 0)], at(0));
    let first = poll_fetch(&mut core, &replicas, at(0));
    let opened = FetchResponse { session_id: 33, ..leader.fetch(&first) };
    core.on_response(&replicas, FetcherResponse::Fetch(opened), at(0));
    poll_fetch(&mut core, &replicas, at(0));
    core.on_request_failed(&replicas, at(0));
    assert_eq!(replicas.take_events().len(), 1, "one back-off of the whole fetcher");
    assert_eq!(poll(&mut core, &replicas, at(999)), None);
    let again = poll_fetch(&mut core, &replicas, at(1000));
    assert_eq!((again.session_id, again.session_epoch), (33, 0));
    assert_eq!(asked(&again), [(0, 0, -1)]);
}
