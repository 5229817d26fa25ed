//! Answers that come late, and offsets outside the leader's log. T10, T11, I02.

use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset};
use replication::truncation::{FetchAnswerStep, OutOfRangeStep};

use crate::support::{Cluster, TestLog};

#[test]
fn t10_an_answer_for_an_offset_that_has_moved_is_dropped_whole() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &(0..100).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.produce(1, &[100, 101, 102, 103]);
    let early = cluster.request(2);
    let late = cluster.serve(&early);
    assert_eq!(late.records.len(), 4);
    cluster.node_mut(2).log.truncate_to(97);
    assert_eq!(cluster.apply(&early, &late), FetchAnswerStep::Drop);
    assert_eq!(cluster.log_end(2), 97);
    cluster.catch_up(2);
    assert_eq!(cluster.log_end(2), 104);
    assert_eq!(cluster.apply(&early, &late), FetchAnswerStep::Drop, "and a second time");
    assert_eq!(cluster.node(2).log.records, cluster.node(1).log.records);
}

#[test]
fn t10_an_answer_from_before_a_new_epoch_is_dropped_whole() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[1, 2]);
    cluster.catch_up(2);
    cluster.produce(1, &[3]);
    let early = cluster.request(2);
    let late = cluster.serve(&early);
    cluster.controller.elect(3);
    cluster.publish(2);
    assert_eq!(cluster.request(2).point.fetch_offset, early.point.fetch_offset);
    assert_eq!(cluster.apply(&early, &late), FetchAnswerStep::Drop);
    assert_eq!(cluster.log_end(2), 2);
}

#[test]
fn t10_an_answer_from_before_a_cut_is_dropped_when_the_log_has_grown_back_to_its_offset() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.controller.isr = vec![2];
    cluster.controller.elect(2);
    cluster.publish_all();
    cluster.produce(2, &[2]);
    let early = cluster.request(1);
    let late = cluster.serve(&early);
    assert!(late.diverging.is_some());
    cluster.catch_up(1);
    assert_eq!((cluster.log_end(1), cluster.high_watermark(1)), (1, 1));
    let point = cluster.request(1).point;
    assert_eq!((point.fetch_offset, point.leader_epoch), (early.point.fetch_offset, 2.into()));
    assert_eq!(cluster.apply(&early, &late), FetchAnswerStep::Drop);
    assert_eq!(cluster.log_end(1), 1, "the committed record stays");
}

#[test]
fn t10_an_answer_to_a_fetcher_that_leads_or_stopped_is_dropped() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    let early = cluster.request(2);
    let late = cluster.serve(&early);
    cluster.controller.elect(2);
    cluster.publish(2);
    assert_eq!(cluster.apply(&early, &late), FetchAnswerStep::Drop);
    assert_eq!(cluster.log_end(2), 0);
    let node = cluster.node_mut(2);
    let facts = node.log.facts();
    let refused = node.state.on_fetch_response(LeaderEpoch(1), Offset(1), Offset(0), &facts);
    assert_eq!(refused.map_err(|e| e.code()).err(), Some(ErrorCode::NotLeaderOrFollower));
}

#[test]
fn t11_a_follower_below_the_leaders_start_starts_anew_there() {
    let mut cluster = Cluster::new(2, 1);
    cluster.controller.isr = vec![1];
    cluster.open(1, TestLog::of(&[(1, 20)]), Some(20));
    cluster.open(2, TestLog::of(&[(1, 5)]), Some(5));
    cluster.node_mut(1).log.raise_start(15);
    cluster.controller.elect(1);
    cluster.publish_all();
    assert_eq!(cluster.fetch(2), FetchAnswerStep::ResolveOutOfRange);
    let node = cluster.node(2);
    assert_eq!((node.log.start, node.log.end()), (15, 15));
    assert_eq!(cluster.high_watermark(2), 15, "not the 5 of before");
    assert!(cluster.node(2).log.epochs.is_empty());
    cluster.catch_up(2);
    assert_eq!(cluster.log_end(2), 20);
    assert_eq!(cluster.high_watermark(2), 20);
}

#[test]
fn t11_a_follower_beyond_the_leaders_end_is_cut_to_it() {
    let mut cluster = Cluster::new(2, 1);
    cluster.controller.isr = vec![1];
    cluster.open(1, TestLog::of(&[(1, 20)]), Some(20));
    cluster.open(2, TestLog::of(&[(1, 30)]), Some(20));
    cluster.node_mut(2).log.epochs.clear();
    cluster.controller.elect(1);
    cluster.publish_all();
    assert_eq!(cluster.fetch(2), FetchAnswerStep::ResolveOutOfRange);
    assert_eq!(cluster.log_end(2), 20);
    assert_eq!(cluster.fetch(2), FetchAnswerStep::Append);
}

#[test]
fn t11_the_steps_of_an_offset_out_of_range() {
    let latest = |leader, own| OutOfRangeStep::on_leader_latest(Offset(leader), Offset(own));
    let earliest = |leader, own| OutOfRangeStep::on_leader_earliest(Offset(leader), Offset(own));
    assert_eq!(latest(20, 30), OutOfRangeStep::TruncateTo(Offset(20)));
    assert_eq!(latest(30, 30), OutOfRangeStep::AskEarliest);
    assert_eq!(latest(40, 30), OutOfRangeStep::AskEarliest);
    assert_eq!(earliest(35, 30), OutOfRangeStep::StartAt(Offset(35)));
    assert_eq!(earliest(30, 30), OutOfRangeStep::FetchFrom(Offset(30)));
    assert_eq!(earliest(10, 30), OutOfRangeStep::FetchFrom(Offset(30)));
}

#[test]
fn h11_an_offset_beyond_the_leaders_end_is_never_counted() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    let request = cluster.request(2);
    let node = cluster.node_mut(1);
    let facts = node.log.facts();
    let fetch = replication::FollowerFetch {
        fetch_offset: Offset(5).into(),
        log_start_offset: Offset(0),
        leader_log_end: Offset(1),
        broker_epoch: request.broker_epoch,
        at: crate::support::seconds(200),
    };
    let result = node.state.on_follower_fetch(NodeId(2), &fetch, &facts, &node.directory);
    assert_eq!(result.map_err(|e| e.code()).err(), Some(ErrorCode::OffsetOutOfRange));
    assert_eq!(cluster.high_watermark(1), 0);
}
