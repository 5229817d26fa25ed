//! KIP-279: truncation over several rounds when the leader names an epoch that the follower lacks.
//! T03, T04, and the property that any two logs end up the same.

use proptest::prelude::*;
use protocol::{LeaderEpoch, Offset};
use replication::EpochEndOffset;
use replication::truncation::{FetchAnswerStep, FollowerLog, Truncation, decide_truncation};

use crate::kip_101::cache;
use crate::support::{Cluster, TestLog};

fn end(epoch: i32, offset: i64) -> EpochEndOffset {
    EpochEndOffset { epoch: LeaderEpoch(epoch), end_offset: Offset(offset) }
}

/// Node 1 leads at `epoch` with one log, node 2 follows with another.
pub fn two_logs(leader: &[(i32, i64)], follower: &[(i32, i64)], epoch: i32) -> Cluster {
    let mut cluster = Cluster::new(2, 1);
    cluster.open(1, TestLog::of(leader), None);
    cluster.open(2, TestLog::of(follower), None);
    cluster.controller.leader_epoch = epoch;
    cluster.controller.partition_epoch += 1;
    cluster.controller.isr = vec![1];
    cluster.publish_all();
    cluster
}

/// Plays the rounds until one is not diverging; gives (diverging answer, cut, complete) of each.
fn rounds(cluster: &mut Cluster) -> Vec<(EpochEndOffset, i64, bool)> {
    let mut rounds = Vec::new();
    loop {
        let request = cluster.request(2);
        let before = cluster.node(1).state.follower(2.into()).copied();
        let reply = cluster.serve(&request);
        match cluster.apply(&request, &reply) {
            FetchAnswerStep::Truncate(truncation) => {
                let answer = reply.diverging.expect("the answer that was applied");
                rounds.push((answer, truncation.to.get(), truncation.complete));
                let after = cluster.node(1).state.follower(2.into()).copied();
                assert_eq!(before, after, "a diverging fetch counts for nothing (T08)");
                assert!(cluster.high_watermark(2) <= cluster.log_end(2));
            }
            FetchAnswerStep::Append => return rounds,
            other => panic!("{other:?}"),
        }
        assert!(rounds.len() < 50, "truncation does not end: {rounds:?}");
    }
}

#[test]
fn t03_an_epoch_the_follower_lacks_sends_it_below_and_asks_again() {
    let mut cluster = two_logs(&[(1, 10), (2, 10)], &[(1, 10), (3, 5)], 4);
    assert_eq!(rounds(&mut cluster), [(end(2, 20), 10, false)]);
    assert_eq!(cluster.node(2).log.records, cluster.node(1).log.records);
}

#[test]
fn t04_a_chain_of_epochs_is_walked_one_by_one() {
    let mut cluster =
        two_logs(&[(1, 10), (2, 1), (4, 2), (6, 2)], &[(1, 10), (3, 2), (5, 2), (7, 2)], 8);
    assert_eq!(
        rounds(&mut cluster),
        [(end(6, 15), 14, false), (end(4, 13), 12, false), (end(2, 11), 10, false)]
    );
    assert_eq!(cluster.node(2).log.runs(), [(1, 10), (2, 1), (4, 2), (6, 2)]);
}

#[test]
fn t05_the_other_ways_two_logs_part() {
    let mut longer = two_logs(&[(1, 5)], &[(1, 9)], 2);
    assert_eq!(rounds(&mut longer), [(end(1, 5), 5, true)]);

    let mut higher_epoch = two_logs(&[(1, 5)], &[(1, 5), (3, 2)], 4);
    assert_eq!(rounds(&mut higher_epoch), [(end(1, 5), 5, true)]);

    let mut nothing_common = two_logs(&[(2, 5)], &[(1, 4)], 3);
    assert_eq!(rounds(&mut nothing_common), [(end(1, 0), 0, true)]);
    assert_eq!(nothing_common.node(2).log.runs(), [(2, 5)]);
}

#[test]
fn t04_a_cut_is_bounded_by_both_ends_of_a_common_epoch() {
    let epochs = cache(&[(1, 0), (2, 10)]);
    let log = FollowerLog { epochs: &epochs, log_end: Offset(15), high_watermark: Offset(8) };
    let cut = |epoch, offset| decide_truncation(end(epoch, offset), &log);
    let to = |to, complete| Truncation { to: Offset(to), complete, below_high_watermark: to < 8 };
    assert_eq!(cut(2, 12), to(12, true));
    assert_eq!(cut(1, 12), to(10, true));
    assert_eq!(cut(1, 6), to(6, true));
    assert_eq!(cut(2, 40), to(15, true));
    assert_eq!(cut(-1, -1), to(8, true), "the leader knows nothing: only the committed part stays");
    let empty = cache(&[]);
    let log = FollowerLog { epochs: &empty, log_end: Offset(15), high_watermark: Offset(8) };
    assert_eq!(decide_truncation(end(1, 12), &log), to(12, true));
}

#[test]
fn t12_back_to_back_elections_without_writes_end_in_truncation_that_ends() {
    // KAFKA-10706: the follower led at epoch 5 and wrote nothing; its cache names an epoch that the
    // leader never had, at the very end of its log.
    let mut cluster = two_logs(&[(1, 10), (4, 2)], &[(1, 10)], 6);
    cluster.node_mut(2).log.epochs.assign(LeaderEpoch(5), Offset(10));
    assert_eq!(rounds(&mut cluster).len(), 1);
    assert_eq!(cluster.node(2).log.records, cluster.node(1).log.records);
    assert_eq!(cluster.node(2).log.epochs.latest_epoch(), Some(LeaderEpoch(4)));
}

/// A log as runs of (epoch, count).
type Runs = Vec<(i32, i64)>;

fn any_pair() -> impl Strategy<Value = (Runs, Runs)> {
    let run = (any::<bool>(), 1..4i64);
    (0..5i64, prop::collection::vec(run, 0..8)).prop_map(|(common, runs)| {
        let mut logs: [Runs; 2] = [Vec::new(), Vec::new()];
        if common > 0 {
            logs.iter_mut().for_each(|log| log.push((1, common)));
        }
        for (epoch, (whose, count)) in (2..).zip(runs) {
            logs[usize::from(whose)].push((epoch, count));
        }
        let [leader, follower] = logs;
        (leader, follower)
    })
}

proptest! {
    #[test]
    fn t03_any_two_logs_agree_after_truncation_and_nothing_common_is_lost(
        (leader, follower) in any_pair()
    ) {
        let mut cluster = two_logs(&leader, &follower, 20);
        let common = cluster.node(1).log.records.iter()
            .zip(&cluster.node(2).log.records)
            .take_while(|(a, b)| a == b)
            .count() as i64;
        let cuts = rounds(&mut cluster);
        let last = cuts.last().map(|(_, to, _)| *to);
        prop_assert!(last.is_none_or(|to| to == common), "cut to {last:?}, common {common}");
        prop_assert_eq!(&cluster.node(2).log.records, &cluster.node(1).log.records);
    }
}
