//! KIP-320: epochs fence fetches, and a fetch itself tells where logs part. T05, T08, T09, E01, H05.

use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset};
use replication::partition::FetchReader;
use replication::truncation::FetchAnswerStep;
use replication::{FetchPosition, PartitionError, PartitionState, validate_fetch_position};

use crate::kip_279::two_logs;
use crate::support::{Cluster, TestLog};

fn position(log: &TestLog, epoch: i32, offset: i64) -> FetchPosition {
    validate_fetch_position(
        &log.epochs,
        Offset(log.start),
        Offset(log.end()),
        LeaderEpoch(epoch),
        Offset(offset),
    )
}

fn diverging(epoch: i32, offset: i64) -> FetchPosition {
    FetchPosition::Diverging(replication::EpochEndOffset {
        epoch: LeaderEpoch(epoch),
        end_offset: Offset(offset),
    })
}

fn table_log() -> TestLog {
    let mut log = TestLog::of(&[(0, 2), (3, 3), (3, 3), (4, 5), (7, 1), (9, 3)]);
    log.epochs.assign(LeaderEpoch(10), Offset(17));
    log
}

#[test]
fn t05_the_divergence_table() {
    let log = table_log();
    for (epoch, offset, expected) in [
        (2, 5, diverging(0, 2)),
        (0, 4, diverging(0, 2)),
        (6, 6, diverging(4, 13)),
        (5, 9, diverging(4, 13)),
        (10, 18, diverging(10, 17)),
        (0, 2, FetchPosition::Ok),
        (7, 14, FetchPosition::Ok),
        (9, 17, FetchPosition::Ok),
        (10, 17, FetchPosition::Ok),
        (11, 5, FetchPosition::OutOfRange),
    ] {
        assert_eq!(position(&log, epoch, offset), expected, "({epoch}, {offset})");
    }
}

#[test]
fn t05_the_divergence_table_after_the_log_start_moved() {
    let mut log = table_log();
    log.raise_start(5);
    assert_eq!(position(&log, 2, 8), diverging(2, 5));
    assert_eq!(position(&log, 0, 5), FetchPosition::Ok);
    assert_eq!(position(&log, 3, 5), FetchPosition::Ok);
    assert_eq!(position(&log, 0, 0), FetchPosition::OutOfRange);
    log.raise_start(10);
    assert_eq!(position(&log, 5, 6), FetchPosition::OutOfRange);
    assert_eq!(position(&log, 3, 6), FetchPosition::OutOfRange);
}

#[test]
fn t08_a_diverging_answer_moves_no_watermark_on_either_side() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.fetch(3);
    // Node 1 has five records of epoch 1 that nobody else has; node 2 leads and commits up to 18.
    cluster.produce(1, &[900, 901, 902, 903, 904]);
    assert_eq!(cluster.high_watermark(1), 10);
    cluster.controller.elect(2);
    cluster.controller.isr = vec![2, 3];
    cluster.publish(2);
    cluster.publish(3);
    cluster.produce(2, &(20..28).collect::<Vec<_>>());
    cluster.catch_up(3);
    assert_eq!(cluster.high_watermark(2), 18);
    cluster.publish(1);
    let request = cluster.request(1);
    let reply = cluster.serve(&request);
    assert_eq!(reply.high_watermark, Offset(18), "the answer carries the leader's watermark");
    assert!(reply.diverging.is_some());
    let follower = cluster.node(2).state.follower(NodeId(1)).expect("a replica");
    assert_eq!(follower.log_end.offset, Offset::NONE, "offset 15 is not counted");
    cluster.apply(&request, &reply);
    assert_eq!(cluster.high_watermark(1), 10, "it would show 10..14, which are not committed");
    assert_eq!(cluster.log_end(1), 10);
    cluster.fetch(1);
    assert_eq!(cluster.high_watermark(1), 18);
}

#[test]
fn t09_epochs_that_differ_neither_truncate_nor_append() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[1, 2, 3]);
    cluster.catch_up(2);
    cluster.produce(1, &[4]);
    let stale_leader = 1;
    cluster.controller.elect(3);
    cluster.publish(2);
    cluster.publish(3);
    // The follower knows epoch 2, its request reaches the leader of epoch 1.
    let mut request = cluster.request(2);
    request.to = stale_leader;
    let before = cluster.node(2).log.clone();
    let reply = cluster.serve(&request);
    assert_eq!(reply.error, ErrorCode::UnknownLeaderEpoch);
    assert_eq!(cluster.apply(&request, &reply), FetchAnswerStep::BackOff);
    assert!(cluster.node(2).fetching);
    assert_eq!(cluster.node(2).log, before);

    // The follower knows epoch 2, the leader is at 3.
    cluster.controller.elect(3);
    cluster.publish(3);
    let request = cluster.request(2);
    let reply = cluster.serve(&request);
    assert_eq!(reply.error, ErrorCode::FencedLeaderEpoch);
    assert_eq!(cluster.apply(&request, &reply), FetchAnswerStep::StopUntilMetadata);
    assert!(!cluster.node(2).fetching);
    cluster.publish(2);
    assert!(cluster.node(2).fetching);
}

fn code(result: Result<(), PartitionError>) -> i16 {
    result.err().map_or(0, |error| error.code().code())
}

/// The answers to an absent epoch, n, n-1 and n+1.
fn row(state: &PartitionState, ask: impl Fn(&PartitionState, LeaderEpoch) -> i16) -> [i16; 4] {
    let n = state.leader_epoch().get();
    [-1, n, n - 1, n + 1].map(|epoch| ask(state, LeaderEpoch(epoch)))
}

#[test]
fn e01_the_matrix_of_leader_epochs() {
    let mut cluster = Cluster::new(3, 1);
    cluster.controller.elect(1);
    cluster.publish_all();
    let leader_only =
        |state: &PartitionState, epoch| code(state.check_current_leader_epoch(epoch, true));
    let fetch =
        |reader| move |state: &PartitionState, epoch| code(state.check_fetch(reader, epoch));
    let leader = &cluster.node(1).state;
    let follower = &cluster.node(2).state;
    let replica = FetchReader::Replica(NodeId(3));
    let serves = [0, 0, 74, 75];
    assert_eq!(row(leader, leader_only), serves);
    assert_eq!(row(leader, fetch(FetchReader::Consumer)), serves);
    assert_eq!(row(leader, fetch(FetchReader::OldConsumer)), serves);
    assert_eq!(row(leader, fetch(replica)), serves);
    assert_eq!(row(follower, fetch(FetchReader::Consumer)), serves);
    let refuses = [6, 6, 74, 75];
    assert_eq!(row(follower, leader_only), refuses);
    assert_eq!(row(follower, fetch(FetchReader::OldConsumer)), refuses);
    assert_eq!(row(follower, fetch(replica)), refuses);
    let stranger = FetchReader::Replica(NodeId(9));
    assert_eq!(row(leader, fetch(stranger)), [6, 75, 74, 75]);
}

#[test]
fn h05_a_replica_joins_only_at_the_start_of_the_leaders_epoch() {
    let mut cluster = Cluster::new(3, 1);
    cluster.controller.isr = vec![2, 3];
    cluster.controller.leader = 3;
    cluster.publish_all();
    cluster.produce(3, &(0..8).collect::<Vec<_>>());
    cluster.catch_up(1);
    cluster.node_mut(3).outbox.clear();
    cluster.produce(3, &[8, 9]);
    cluster.fetch(2);
    // Node 2 has all ten and an old high watermark when it is elected; node 1 has eight.
    let old = cluster.high_watermark(2);
    assert!(old <= 8);
    cluster.controller.elect(2);
    cluster.publish(2);
    cluster.publish(1);
    cluster.publish(3);
    assert_eq!(cluster.node(2).state.leader_epoch_start(), Some(Offset(10)));
    let request = cluster.request(1);
    assert_eq!(request.point.fetch_offset, Offset(8));
    cluster.serve(&request);
    assert!(cluster.node(2).outbox.is_empty(), "8 has reached the old watermark, not the epoch");
    cluster.catch_up(3);
    cluster.catch_up(1);
    assert_eq!(cluster.node(2).outbox.len(), 1);
}

#[test]
fn t05_a_fetch_without_an_epoch_is_checked_by_range_alone() {
    let cluster = two_logs(&[(1, 10)], &[(1, 5)], 2);
    let node = cluster.node(1);
    let check = |epoch: Option<i32>, offset| {
        node.state
            .check_fetch_offset(
                &node.log.epochs,
                &node.log.facts(),
                epoch.map(LeaderEpoch),
                Offset(offset),
            )
            .map_err(|error| error.code())
    };
    assert_eq!(check(None, 10), Ok(None));
    assert_eq!(check(None, 11), Err(ErrorCode::OffsetOutOfRange));
    assert_eq!(check(None, -1), Err(ErrorCode::OffsetOutOfRange));
    assert_eq!(check(Some(-1), 10), Ok(None), "-1 is no epoch");
    assert_eq!(check(Some(9), 10), Err(ErrorCode::OffsetOutOfRange));
    assert!(matches!(check(Some(1), 11), Ok(Some(_))));
}
