//! KIP-101: truncation by leader epoch. T01, T02, T07, T12, H01, E02.

use proptest::prelude::*;
use protocol::{ErrorCode, LeaderEpoch, NodeId, Offset};
use replication::truncation::FetchAnswerStep;
use replication::{EpochEndOffset, EpochEntry, LeaderEpochCache, RoleChange};

use crate::support::{Cluster, TestLog};

fn entry(epoch: i32, start: i64) -> EpochEntry {
    EpochEntry { epoch: LeaderEpoch(epoch), start_offset: Offset(start) }
}

pub fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
    LeaderEpochCache::from_entries(entries.iter().map(|(epoch, start)| entry(*epoch, *start)))
}

fn end(epoch: i32, offset: i64) -> EpochEndOffset {
    EpochEndOffset { epoch: LeaderEpoch(epoch), end_offset: Offset(offset) }
}

#[test]
fn t01_a_follower_that_restarts_and_leads_keeps_what_was_acknowledged() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[10, 11]);
    cluster.fetch(2);
    cluster.fetch(2);
    assert_eq!((cluster.high_watermark(1), cluster.high_watermark(2)), (2, 0));
    cluster.restart(2, 0);
    assert_eq!(cluster.log_end(2), 2, "a restart cuts nothing");
    cluster.controller.elect(2);
    cluster.publish(2);
    assert_eq!(cluster.node(2).state.leader_epoch_start(), Some(Offset(2)));
    let values: Vec<u32> = cluster.node(2).log.records.iter().map(|r| r.value).collect();
    assert_eq!(values, [10, 11]);

    cluster.restart(1, 2);
    cluster.publish(1);
    assert_eq!(cluster.fetch(1), FetchAnswerStep::Append, "nothing diverges");
    assert_eq!(cluster.node(1).log.runs(), [(1, 2)]);
    assert_eq!(cluster.high_watermark(2), 2);
}

#[test]
fn t02_after_an_unclean_election_the_old_leader_cuts_below_its_watermark_and_the_logs_agree() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[10]);
    cluster.catch_up(2);
    cluster.controller.isr = vec![1];
    cluster.controller.partition_epoch += 1;
    cluster.publish(1);
    cluster.pass(std::time::Duration::from_secs(31));
    cluster.produce(1, &[11]);
    assert_eq!(cluster.high_watermark(1), 2, "the ISR is the leader alone");
    cluster.restart(2, 1);
    cluster.controller.elect(2);
    assert_eq!(cluster.controller.isr, [2]);
    assert_eq!(cluster.controller.recovery, replication::LeaderRecoveryState::Recovering);
    cluster.publish(2);
    cluster.produce(2, &[12]);
    cluster.restart(1, 2);
    cluster.publish(1);
    let FetchAnswerStep::Truncate(truncation) = cluster.fetch(1) else {
        panic!("the logs part");
    };
    assert_eq!(truncation.to, Offset(1));
    assert!(truncation.complete && truncation.below_high_watermark);
    cluster.catch_up(1);
    assert_eq!(cluster.node(1).log.runs(), [(1, 1), (2, 1)]);
    assert_eq!(cluster.node(1).log.records, cluster.node(2).log.records);
    cluster.settle(2);
    assert_eq!(
        cluster.controller.recovery,
        replication::LeaderRecoveryState::Recovered,
        "the leader's first ISR change says that it has recovered"
    );
}

#[test]
fn t07_a_new_epoch_under_the_same_leader_restarts_the_fetcher_and_cuts_what_was_skipped() {
    let mut cluster = Cluster::new(3, 1);
    for _ in 0..4 {
        cluster.controller.elect(1);
    }
    cluster.publish_all();
    cluster.produce(1, &[1, 2]);
    cluster.catch_up(2);
    cluster.catch_up(3);
    // Node 2 gets three records of epoch 5 that the others never see; it misses epoch 6 (node 3).
    cluster.produce(1, &[3, 4, 5]);
    cluster.catch_up(2);
    cluster.node_mut(1).log.truncate_to(2);
    cluster.controller.elect(3);
    cluster.publish(3);
    cluster.publish(1);
    cluster.produce(3, &[60, 61]);
    cluster.catch_up(1);
    cluster.controller.elect(1);
    cluster.publish(1);
    assert_eq!(
        cluster.publish(2),
        RoleChange::Follower { restart_fetcher: true },
        "the leader is the same node, the epoch is not"
    );
    assert!(matches!(cluster.fetch(2), FetchAnswerStep::Truncate(_)));
    cluster.catch_up(2);
    assert_eq!(cluster.node(2).log.records, cluster.node(1).log.records);
    assert_eq!(cluster.node(2).log.runs(), [(5, 2), (6, 2)]);
    assert_eq!(
        cluster.publish(2),
        RoleChange::Follower { restart_fetcher: false },
        "the same record again restarts nothing"
    );
}

#[test]
fn t07_a_leader_that_skipped_epochs_forgets_how_far_its_followers_were() {
    // Node 1 writes at epoch 1 and never learns of epoch 2, in which node 2 led without the record
    // and node 3 cut it away. At epoch 3 node 1 leads again.
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[7]);
    cluster.fetch(3);
    cluster.fetch(3);
    let known = |cluster: &Cluster| {
        cluster.node(1).state.follower(NodeId(3)).map(|follower| follower.log_end.offset)
    };
    assert_eq!(known(&cluster), Some(Offset(1)));
    cluster.controller.elect(2);
    cluster.publish(2);
    cluster.publish(3);
    cluster.fetch(3);
    assert_eq!(cluster.log_end(3), 0);
    cluster.controller.fence(2);
    assert_eq!((cluster.controller.leader, cluster.controller.leader_epoch), (1, 3));
    cluster.publish(1);
    assert_eq!(known(&cluster), Some(Offset::NONE));
    assert_eq!(cluster.high_watermark(1), 0, "node 3, in the ISR, does not have it any more");
    cluster.publish(3);
    cluster.catch_up(3);
    assert_eq!(cluster.high_watermark(1), 1);
}

#[test]
fn t07_a_leader_that_is_elected_again_keeps_what_it_knows() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[7, 8]);
    cluster.catch_up(2);
    cluster.controller.elect(1);
    cluster.publish(1);
    let follower = cluster.node(1).state.follower(NodeId(2)).expect("a replica");
    assert_eq!(follower.log_end.offset, Offset(2));
}

#[test]
fn h01_a_followers_high_watermark_is_one_round_trip_behind() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[1]);
    cluster.fetch(3);
    cluster.fetch(3);
    let mut seen = vec![(cluster.high_watermark(1), cluster.high_watermark(2))];
    for _ in 0..3 {
        cluster.fetch(2);
        seen.push((cluster.high_watermark(1), cluster.high_watermark(2)));
    }
    assert_eq!(seen, [(0, 0), (0, 0), (1, 0), (1, 1)]);
}

#[test]
fn e02_the_end_of_an_epoch_by_the_table() {
    let mut epochs = cache(&[(2, 0), (4, 10), (7, 25)]);
    let ask =
        |epochs: &LeaderEpochCache, epoch| epochs.end_offset_for(LeaderEpoch(epoch), Offset(40));
    for (requested, expected) in [
        (-1, end(-1, -1)),
        (7, end(7, 40)),
        (4, end(4, 25)),
        (3, end(2, 10)),
        (1, end(1, 0)),
        (9, end(-1, -1)),
    ] {
        assert_eq!(ask(&epochs, requested), expected, "epoch {requested}");
    }
    assert_eq!(ask(&LeaderEpochCache::new(), 0), EpochEndOffset::UNDEFINED);
    assert!(epochs.truncate_from_start(Offset(12)));
    assert_eq!(epochs.entries(), [entry(4, 12), entry(7, 25)]);
    assert_eq!(ask(&epochs, 2), end(2, 12));
}

#[test]
fn i09_an_assigned_epoch_replaces_what_it_contradicts() {
    let mut epochs = cache(&[(1, 0), (2, 10)]);
    assert!(!epochs.assign(LeaderEpoch(2), Offset(12)), "a later batch of the epoch");
    assert!(epochs.assign(LeaderEpoch(3), Offset(10)), "epoch 2 was never written to");
    assert_eq!(epochs.entries(), [entry(1, 0), entry(3, 10)]);
    assert!(epochs.assign(LeaderEpoch(2), Offset(5)));
    assert_eq!(epochs.entries(), [entry(1, 0), entry(2, 5)]);
    assert_eq!(epochs.epoch_at(Offset(4)), Some(LeaderEpoch(1)));
    assert_eq!(epochs.epoch_at(Offset(5)), Some(LeaderEpoch(2)));
    assert_eq!(epochs.previous_epoch(LeaderEpoch(2)), Some(LeaderEpoch(1)));
    assert_eq!(epochs.previous_epoch(LeaderEpoch(1)), None);
}

#[test]
fn t12_a_cut_at_the_logs_end_drops_an_epoch_that_was_never_written_to() {
    let mut epochs = cache(&[(1, 0), (3, 10)]);
    assert!(epochs.truncate_from_end(Offset(10)), "KAFKA-10706");
    assert_eq!(epochs.entries(), [entry(1, 0)]);
    assert!(!epochs.truncate_from_end(Offset(10)));
}

#[test]
fn t12_a_loaded_cache_is_trimmed_to_the_recovered_log() {
    let mut lost_tail = cache(&[(1, 0), (2, 10), (3, 20)]);
    assert!(lost_tail.trim_to(Offset(0), Offset(12)));
    assert_eq!(lost_tail.entries(), [entry(1, 0), entry(2, 10)]);

    let mut stale_entry = cache(&[(1, 0), (2, 10), (3, 20)]);
    assert!(stale_entry.trim_to(Offset(0), Offset(20)));
    assert_eq!(stale_entry.entries(), [entry(1, 0), entry(2, 10)]);

    let mut deleted_head = cache(&[(1, 0), (2, 10)]);
    assert!(deleted_head.trim_to(Offset(15), Offset(20)));
    assert_eq!(deleted_head.entries(), [entry(2, 15)]);

    let mut nothing_left = cache(&[(1, 0), (2, 10)]);
    assert!(nothing_left.trim_to(Offset(0), Offset(0)));
    assert!(nothing_left.is_empty());

    let mut sound = cache(&[(1, 0), (2, 10)]);
    assert!(!sound.trim_to(Offset(0), Offset(20)));
}

#[test]
fn t12_a_damaged_file_becomes_a_sound_cache() {
    let damaged = cache(&[(4, 10), (-3, 5), (2, 0), (3, 12), (2, 4), (6, -1)]);
    assert_eq!(damaged.entries(), [entry(2, 0), entry(4, 10)]);
}

#[test]
fn t01_a_leader_knows_its_epochs_start_before_it_answers_anything() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2, 3]);
    cluster.catch_up(2);
    cluster.controller.elect(2);
    cluster.publish(2);
    assert_eq!(cluster.node(2).log.epochs.latest(), Some(entry(2, 3)));
    let answer = cluster.node(2).log.epochs.end_offset_for(LeaderEpoch(1), Offset(3));
    assert_eq!(answer, end(1, 3));
}

#[test]
fn i10_an_older_record_about_the_partition_is_ignored() {
    let mut cluster = Cluster::new(2, 1);
    let old = cluster.controller.clone();
    cluster.controller.elect(2);
    cluster.publish_all();
    cluster.controller = old;
    assert_eq!(cluster.publish(1), RoleChange::Stale);
    assert_eq!(cluster.node(1).state.leader(), NodeId(2));
    let request = cluster.request(1);
    assert_eq!(cluster.serve(&request).error, ErrorCode::None);
}

#[test]
fn t12_the_fetch_table_holds_straight_after_a_restart() {
    let mut cluster = Cluster::new(2, 1);
    cluster.open(1, TestLog::of(&[(1, 10), (2, 2)]), Some(0));
    cluster.controller.leader_epoch = 2;
    cluster.controller.elect(1);
    cluster.publish(1);
    cluster.open(2, TestLog::of(&[(1, 10), (2, 8)]), Some(0));
    cluster.publish(2);
    let reply = cluster.serve(&cluster.request(2));
    assert_eq!(reply.diverging, Some(end(2, 12)), "the leader lost the tail of epoch 2");
}

/// E02 from the records themselves: the last epoch not above `requested`, and where it ends.
fn end_by_definition(log: &TestLog, requested: i32) -> EpochEndOffset {
    let records =
        || (log.start..log.end()).filter_map(|offset| Some((offset, log.at(offset)?.epoch)));
    let latest = records().next_back().map(|(_, epoch)| epoch);
    if requested == -1 || latest.is_none_or(|latest| latest < requested) {
        return EpochEndOffset::UNDEFINED;
    }
    let floor = records().map(|(_, epoch)| epoch).rfind(|epoch| *epoch <= requested);
    let above = records().find(|(_, epoch)| *epoch > requested).map(|(offset, _)| offset);
    end(floor.unwrap_or(requested), above.unwrap_or(log.end()))
}

proptest! {
    #[test]
    fn e02_the_cache_says_what_the_records_say(
        runs in prop::collection::vec((1..4i32, 1..5i64), 1..8),
        cut in 0..30i64,
        start in 0..30i64,
        requested in -1..30i32,
    ) {
        let mut epoch = 0;
        let runs: Vec<(i32, i64)> = runs
            .into_iter()
            .map(|(step, count)| {
                epoch += step;
                (epoch, count)
            })
            .collect();
        let mut log = TestLog::of(&runs);
        log.truncate_to(cut.max(1));
        log.raise_start(start.min(log.end() - 1));
        let found = log.epochs.end_offset_for(LeaderEpoch(requested), Offset(log.end()));
        prop_assert_eq!(found, end_by_definition(&log, requested));
        let before = log.epochs.clone();
        log.recover();
        prop_assert_eq!(log.epochs, before, "a sound cache is left alone (T12)");
    }

    #[test]
    fn i09_epochs_and_starts_grow_strictly_whatever_is_done(
        steps in prop::collection::vec((0..4u8, 0..12i32, 0..30i64), 0..40),
    ) {
        let mut epochs = LeaderEpochCache::new();
        for (what, epoch, offset) in steps {
            match what {
                0 | 1 => drop(epochs.assign(LeaderEpoch(epoch), Offset(offset))),
                2 => drop(epochs.truncate_from_end(Offset(offset))),
                _ => drop(epochs.truncate_from_start(Offset(offset))),
            }
            prop_assert!(
                epochs.entries().windows(2).all(|pair| {
                    pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset
                }),
                "{:?}",
                epochs.entries()
            );
        }
    }
}

#[test]
fn e02_only_the_leader_answers_and_only_under_its_epoch() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2]);
    let ask = |id, current| {
        let node = cluster.node(id);
        node.state
            .end_offset_for_leader_epoch(
                LeaderEpoch(current),
                LeaderEpoch(1),
                &node.log.epochs,
                &node.log.facts(),
            )
            .map_err(|error| error.code())
    };
    assert_eq!(ask(1, 1), Ok(end(1, 2)));
    assert_eq!(ask(1, -1), Ok(end(1, 2)));
    assert_eq!(ask(1, 0), Err(ErrorCode::FencedLeaderEpoch));
    assert_eq!(ask(1, 2), Err(ErrorCode::UnknownLeaderEpoch));
    assert_eq!(ask(2, 1), Err(ErrorCode::NotLeaderOrFollower));
}
