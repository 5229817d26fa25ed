//! The high watermark: the free function against its plain definition, and restarts. H06, H12, I8.

use proptest::prelude::*;
use protocol::Offset;
use replication::LogOffsetMetadata;
use replication::high_watermark::{
    FollowerProgress, advance, candidate_high_watermark, effective_min_isr, from_checkpoint,
};
use replication::trace::{Event, Why};

use crate::support::{Cluster, TestLog};

fn follower() -> impl Strategy<Value = FollowerProgress> {
    (-1..20i64, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(log_end, in_maximal_isr, is_caught_up, is_isr_eligible)| FollowerProgress {
            log_end: Offset(log_end).into(),
            in_maximal_isr,
            is_caught_up,
            is_isr_eligible,
        },
    )
}

/// The definition, from the other end: the greatest offset that everybody who matters has reached.
fn by_definition(leader_end: i64, followers: &[FollowerProgress]) -> i64 {
    let has = |follower: &FollowerProgress, offset| follower.log_end.offset.get() >= offset;
    (-1..=leader_end)
        .rev()
        .find(|offset| {
            followers.iter().all(|follower| {
                if follower.in_maximal_isr {
                    return has(follower, *offset);
                }
                let may_join = follower.is_caught_up && follower.is_isr_eligible;
                !may_join || has(follower, *offset)
            })
        })
        .expect("-1 is reached by all")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn h03_the_candidate_is_what_the_definition_says(
        leader_end in 0..20i64,
        followers in prop::collection::vec(follower(), 0..6),
        confirmed in 1..6usize,
        min_isr in 1..6usize,
    ) {
        let leader = LogOffsetMetadata::message_only(Offset(leader_end));
        let min = effective_min_isr(min_isr, followers.len() + 1);
        let candidate = candidate_high_watermark(leader, confirmed, min, followers.iter().copied());
        if confirmed < min {
            prop_assert_eq!(candidate, None);
        } else {
            let expected = by_definition(leader_end, &followers);
            prop_assert_eq!(candidate.map(|found| found.offset.get()), Some(expected));
        }
    }

    #[test]
    fn i08_advancing_never_goes_back(
        current in 0..20i64,
        candidate in -1..20i64,
    ) {
        let moved = advance(Offset(current).into(), Offset(candidate).into(), Offset(20));
        prop_assert_eq!(moved.map(|to| to.offset.get()), (candidate > current).then_some(candidate));
    }
}

#[test]
fn f04_a_roll_at_the_watermark_moves_its_place_and_not_its_offset() {
    let old = LogOffsetMetadata::new(Offset(10), Offset(0), 700);
    let rolled = LogOffsetMetadata::new(Offset(10), Offset(10), 0);
    assert_eq!(advance(old, rolled, Offset(10)), Some(rolled));
    assert_eq!(advance(rolled, old, Offset(10)), None);
}

#[test]
#[should_panic(expected = "beyond the log end")]
fn i08_a_watermark_beyond_the_log_stops_the_node() {
    let _ = advance(Offset(1).into(), Offset(21).into(), Offset(20));
}

#[test]
fn h12_a_checkpoint_is_brought_into_the_log() {
    for (checkpoint, start, end, expected) in [
        (Some(60), 0, 100, 60),
        (Some(160), 0, 100, 100),
        (Some(5), 20, 100, 20),
        (None, 0, 100, 0),
        (None, 20, 100, 20),
    ] {
        let found = from_checkpoint(checkpoint.map(Offset), Offset(start), Offset(end));
        assert_eq!(found, Offset(expected), "{checkpoint:?} in [{start}, {end}]");
    }
}

#[test]
fn h12_a_sole_replica_commits_all_it_has_when_it_leads_again() {
    let mut cluster = Cluster::new(1, 1);
    cluster.open(1, TestLog::of(&[(1, 100)]), Some(60));
    assert_eq!(cluster.high_watermark(1), 60);
    cluster.controller.elect(1);
    cluster.publish(1);
    assert_eq!(cluster.high_watermark(1), 100);
}

#[test]
fn h12_a_new_leader_climbs_with_its_followers_fetches() {
    let mut cluster = Cluster::new(3, 1);
    for id in 1..=3 {
        cluster.open(id, TestLog::of(&[(1, 100)]), Some(60));
    }
    cluster.controller.elect(1);
    cluster.publish_all();
    assert_eq!(cluster.high_watermark(1), 60);
    cluster.fetch(2);
    assert_eq!(cluster.high_watermark(1), 60);
    cluster.fetch(3);
    assert_eq!(cluster.high_watermark(1), 100);
}

#[test]
fn every_move_of_the_watermark_is_told_with_its_reason() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.fetch(2);
    cluster.fetch(2);
    cluster.fetch(2);
    let moves = |cluster: &Cluster, id| {
        let events = cluster.node(id).events.iter();
        let moves: Vec<(i64, i64, Why)> = events
            .filter_map(|event| match event {
                Event::HighWatermarkMoved { from, to, why, .. } => {
                    Some((from.get(), to.get(), *why))
                }
                _ => None,
            })
            .collect();
        moves
    };
    assert_eq!(moves(&cluster, 1), [(0, 1, Why::MaximalIsrHasIt)]);
    assert_eq!(moves(&cluster, 2), [(0, 1, Why::LeaderToldUs)]);
}
