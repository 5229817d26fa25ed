//! Rules T03, T04, T05, T07, T08, T09 and T11.

use super::fake::{
    Leader, Log, Replicas, asked, assignment, at, core, error_data, poll, poll_fetch, round, tip,
};
use fetcher::{FetcherRequest, FetcherResponse, PartitionFailure, Phase};
use protocol::LeaderEpoch;
use protocol::messages::FetchResponse;
use protocol::messages::fetch_response::FetchableTopicResponse;

/// Fetches until the logs agree; the (offset, epoch) of each fetch.
fn converge(follower: Log, leader: &Leader) -> (Vec<(i64, i32)>, Replicas) {
    let replicas = Replicas::with(vec![follower]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, leader.epoch)], at(0));
    let mut fetches = Vec::new();
    for _ in 0..10 {
        let FetcherRequest::Fetch(request) = round(&mut core, &replicas, leader, at(0)) else {
            panic!("only fetches here");
        };
        let (_, offset, epoch) = asked(&request)[0];
        fetches.push((offset, epoch));
        if replicas.log_of(0).batches == leader.logs[0].batches {
            return (fetches, replicas);
        }
    }
    panic!("no agreement after {fetches:?}: {:?}", replicas.log_of(0));
}

#[test]
fn t03_an_epoch_unknown_here_cuts_to_the_one_below_and_asks_again() {
    let leader = Leader::new(4, vec![Log::of(&[(1, 10), (2, 10)])]);
    let (fetches, replicas) = converge(Log::of(&[(1, 10), (3, 5)]), &leader);
    assert_eq!(fetches, [(15, 3), (10, 1)]);
    assert_eq!(replicas.take_calls()[0], "truncate 10");
}

#[test]
fn t04_a_chain_of_forks_is_cut_epoch_by_epoch() {
    let leader = Leader::new(8, vec![Log::of(&[(1, 10), (2, 1), (4, 2), (6, 2)])]);
    let follower = Log::of(&[(1, 10), (3, 2), (5, 2), (7, 2)]);
    let (fetches, replicas) = converge(follower, &leader);
    assert_eq!(fetches, [(16, 7), (14, 5), (12, 3), (10, 1)]);
    assert_eq!(replicas.take_calls()[..3], ["truncate 14", "truncate 12", "truncate 10"]);
}

#[test]
fn t02_records_of_the_same_epoch_beyond_the_leaders_are_cut() {
    let mut leader_log = Log::of(&[(1, 1), (2, 2)]);
    leader_log.high_watermark = 3;
    let leader = Leader::new(2, vec![leader_log]);
    let follower = Log { high_watermark: 2, ..Log::of(&[(1, 2)]) };
    let (fetches, replicas) = converge(follower, &leader);
    assert_eq!(fetches, [(2, 1), (1, 1)]);
    assert_eq!(replicas.log_of(0).high_watermark, 3);
}

#[test]
fn t05_logs_without_a_common_epoch_are_cut_to_the_start() {
    let leader = Leader::new(5, vec![Log::of(&[(2, 3), (4, 3)])]);
    let (fetches, _) = converge(Log::of(&[(1, 2), (3, 2)]), &leader);
    assert_eq!(fetches.last(), Some(&(0, -1)));
}

#[test]
fn t07_a_higher_epoch_starts_over_even_with_the_same_leader() {
    let replicas = Replicas::with(vec![Log::of(&[(5, 13)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 5)], at(0));
    let stale = poll(&mut core, &replicas, at(0)).unwrap();
    core.add_partitions(&replicas, [assignment(0, 7)], at(0));
    let leader5 = Leader::new(5, vec![Log::of(&[(5, 20)])]);
    core.on_response(&replicas, leader5.answer(&stale), at(0));
    assert_eq!(replicas.log_of(0).end, 13, "the answer of epoch 5 is not for epoch 7");

    let leader7 = Leader::new(7, vec![Log::of(&[(5, 10), (6, 2)])]);
    for _ in 0..2 {
        round(&mut core, &replicas, &leader7, at(0));
    }
    assert_eq!(replicas.log_of(0).batches, leader7.logs[0].batches);
    core.add_partitions(&replicas, [assignment(0, 6)], at(0));
    assert_eq!(core.partition(&tip(0)).unwrap().leader_epoch, LeaderEpoch(7), "old news");
}

#[test]
fn t08_a_diverging_answer_moves_no_mark() {
    let leader_log = Log { high_watermark: 18, ..Log::of(&[(1, 10), (2, 10)]) };
    let leader = Leader::new(2, vec![leader_log]);
    let replicas = Replicas::with(vec![Log { high_watermark: 10, ..Log::of(&[(1, 15)]) }]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 2)], at(0));
    round(&mut core, &replicas, &leader, at(0));
    let log = replicas.log_of(0);
    assert_eq!((log.end, log.high_watermark), (10, 10));
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(replicas.log_of(0).high_watermark, 18);
}

#[test]
fn t09_a_newer_leader_stops_the_partition_and_an_older_one_delays_it() {
    let replicas = Replicas::with(vec![Log::of(&[(6, 4)]), Log::of(&[(6, 4)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 6), assignment(1, 8)], at(0));
    let leader = Leader::new(7, vec![Log::of(&[(1, 1)]), Log::of(&[(1, 1)])]);
    round(&mut core, &replicas, &leader, at(0));
    let fenced = Phase::Failed(PartitionFailure::Fenced(LeaderEpoch(6)));
    assert_eq!(core.partition(&tip(0)).unwrap().phase, fenced);
    assert_eq!(core.failed_count(), 1);
    assert_eq!(core.partition(&tip(1)).unwrap().delayed_until, Some(at(20)));
    let told = replicas.take_events();
    assert!(matches!(&told[..], [one] if one.contains("waits 20 ms after error 75")), "{told:?}");
    assert_eq!(core.next_wakeup(at(0)), Some(at(20)));
    assert_eq!(poll(&mut core, &replicas, at(19)), None);
    let request = poll_fetch(&mut core, &replicas, at(20));
    assert_eq!(asked(&request), [(1, 4, 6)], "the fenced one waits for metadata");
    assert!(replicas.take_calls().iter().all(|call| call.starts_with("failed 0")));
    core.on_request_failed(&replicas, at(20));
    core.add_partitions(&replicas, [assignment(0, 9)], at(20));
    assert_eq!(asked(&poll_fetch(&mut core, &replicas, at(1020))), [(1, 4, 6), (0, 4, 6)]);
}

#[test]
fn t11_a_follower_below_the_leaders_start_begins_there_with_a_whole_batch() {
    let leader_log =
        Log { start: 15, end: 20, high_watermark: 20, batches: vec![(10, 19, 3)], opened: None };
    let leader = Leader::new(3, vec![leader_log]);
    let follower = Log { high_watermark: 5, ..Log::of(&[(3, 5)]) };
    let replicas = Replicas::with(vec![follower]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 3)], at(0));
    round(&mut core, &replicas, &leader, at(0));
    for timestamp in [-1, -2] {
        let FetcherRequest::ListOffsets(list) = round(&mut core, &replicas, &leader, at(0)) else {
            panic!("the leader's offsets were due");
        };
        assert_eq!(list.topics[0].partitions[0].timestamp, timestamp);
        assert_eq!(list.topics[0].partitions[0].current_leader_epoch, 3);
        assert_eq!(list.replica_id, 2);
    }
    let log = replicas.log_of(0);
    assert_eq!((log.start, log.end, log.high_watermark), (15, 15, 15));
    let FetcherRequest::Fetch(fetch) = round(&mut core, &replicas, &leader, at(0)) else {
        panic!("a fetch was due");
    };
    assert_eq!(asked(&fetch), [(0, 15, -1)]);
    assert_eq!(replicas.log_of(0).end, 20);
    assert_eq!(replicas.take_calls(), ["start at 15", "append [(10, 19, 3)]"]);
}

#[test]
fn t11_a_follower_above_the_leaders_end_is_cut_to_it() {
    let leader = Leader::new(2, vec![Log::of(&[(2, 20)])]);
    let replicas = Replicas::with(vec![Log::of(&[(2, 30)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 2)], at(0));
    // Range errors come from leaders that do not compare epochs.
    poll(&mut core, &replicas, at(0)).unwrap();
    core.on_response(&replicas, answer(error_data(0, 1)), at(0));
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(replicas.log_of(0).end, 20);
    assert_eq!(replicas.take_calls(), ["truncate 20"]);
    assert_eq!(core.partition(&tip(0)).unwrap().phase, Phase::Fetching);
}

#[test]
fn t11_a_leader_that_fences_the_question_stops_the_partition() {
    let replicas = Replicas::with(vec![Log::of(&[(2, 30)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 2)], at(0));
    poll(&mut core, &replicas, at(0)).unwrap();
    core.on_response(&replicas, answer(error_data(0, 1)), at(0));
    let leader = Leader::new(3, vec![Log::of(&[(2, 20)])]);
    round(&mut core, &replicas, &leader, at(0));
    assert_eq!(core.failed_count(), 1);
    assert_eq!(replicas.log_of(0).end, 30);
}

#[test]
fn t10_an_offset_asked_for_under_an_earlier_epoch_cuts_nothing() {
    let replicas = Replicas::with(vec![Log::of(&[(2, 30)])]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 2)], at(0));
    poll(&mut core, &replicas, at(0)).unwrap();
    core.on_response(&replicas, answer(error_data(0, 1)), at(0));
    let question = poll(&mut core, &replicas, at(0)).unwrap();
    core.add_partitions(&replicas, [assignment(0, 3)], at(0));
    let leader = Leader::new(2, vec![Log::of(&[(2, 20)])]);
    core.on_response(&replicas, leader.answer(&question), at(0));
    assert_eq!(replicas.log_of(0).end, 30);
    assert_eq!(asked(&poll_fetch(&mut core, &replicas, at(0))), [(0, 30, 2)]);
}

#[test]
fn a_log_without_epochs_is_cut_to_its_high_watermark_first() {
    let log = Log { end: 9, high_watermark: 4, ..Default::default() };
    let replicas = Replicas::with(vec![log]);
    let mut core = core();
    core.add_partitions(&replicas, [assignment(0, 2)], at(0));
    assert_eq!(asked(&poll_fetch(&mut core, &replicas, at(0))), [(0, 4, -1)]);
}

pub fn answer(data: protocol::messages::fetch_response::PartitionData) -> FetcherResponse {
    FetcherResponse::Fetch(FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic_id: super::fake::TOPIC,
            partitions: vec![data],
            ..Default::default()
        }],
        ..Default::default()
    })
}
