//! Rules F02, F04, H06 and H07 as predicates.

use protocol::types::{LeaderEpoch, Offset};
use replication::LogOffsetMetadata;
use replication::delayed_fetch::{
    FetchPartitionFault, FetchPartitionNow, FetchWake, ParkedPartition, ReadableEnd, wake_reason,
};
use replication::delayed_produce::{
    ProducePartitionNow, Settlement, SettlementTable, settle, settle_delete_records,
};

fn place(offset: i64, segment: i64, position: u32) -> LogOffsetMetadata {
    LogOffsetMetadata::new(Offset(offset), Offset(segment), position)
}

fn parked(start: LogOffsetMetadata) -> ParkedPartition {
    ParkedPartition { start: Some(start), max_bytes: 1000, last_fetched_epoch: LeaderEpoch(-1) }
}

fn end(end: LogOffsetMetadata) -> ReadableEnd {
    ReadableEnd { end, epoch_end: None, is_throttled: false }
}

fn wake(min_bytes: i32, parked: ParkedPartition, now: FetchPartitionNow) -> Option<FetchWake> {
    wake_reason(min_bytes, [(&parked, now)])
}

#[test]
fn f04_a_to_e_a_partition_that_cannot_be_read_any_more_wakes_the_fetch() {
    use FetchPartitionFault as Fault;
    for (fault, expected) in [
        (Fault::NotLeader, FetchWake::NotLeader),
        (Fault::NotReplica, FetchWake::NotReplica),
        (Fault::UnknownPartition, FetchWake::UnknownPartition),
        (Fault::StorageOffline, FetchWake::StorageOffline),
        (Fault::EpochMismatch, FetchWake::EpochMismatch),
    ] {
        assert_eq!(wake(1, parked(place(5, 0, 50)), Err(fault)), Some(expected));
    }
}

#[test]
fn f04_f_a_truncation_below_the_offset_or_a_roll_with_data_wakes_it() {
    let at_five = parked(place(5, 0, 50));
    assert_eq!(wake(1, at_five, Ok(end(place(4, 0, 40)))), Some(FetchWake::Truncated));
    assert_eq!(wake(500, at_five, Ok(end(place(6, 6, 0)))), Some(FetchWake::OlderSegment));
}

#[test]
fn f04_f_nothing_to_read_right_after_a_roll_does_not_wake_it() {
    // The watermark lies at the end of the old segment, the fetch at the start of the new one.
    let after_roll = parked(place(6, 6, 0));
    assert_eq!(wake(1, after_roll, Ok(end(place(6, 0, 60)))), None);
    let before_roll = parked(place(6, 0, 60));
    assert_eq!(wake(1, before_roll, Ok(end(place(6, 6, 0)))), None);
}

#[test]
fn f02_g_bytes_add_up_over_partitions_up_to_what_each_wants() {
    let start = parked(place(0, 0, 0));
    let now = Ok(end(place(9, 0, 5000)));
    assert_eq!(wake(1000, start, now), Some(FetchWake::EnoughBytes));
    assert_eq!(wake(1001, start, now), None, "a partition counts for no more than it wants");
    let two = [(&start, now), (&start, now)];
    assert_eq!(wake_reason(2000, two), Some(FetchWake::EnoughBytes));
    assert_eq!(wake_reason(2001, two), None);
    let throttled = Ok(ReadableEnd { is_throttled: true, ..end(place(9, 0, 5000)) });
    assert_eq!(wake(1, start, throttled), None);
    let nowhere = ParkedPartition { start: None, ..start };
    assert_eq!(wake(1, nowhere, now), None);
    assert_eq!(wake_reason(0, [(&nowhere, now)]), Some(FetchWake::EnoughBytes));
}

#[test]
fn f04_h_an_epoch_that_ends_below_the_offset_by_now_wakes_it() {
    let follower =
        ParkedPartition { last_fetched_epoch: LeaderEpoch(3), ..parked(place(5, 0, 50)) };
    let with = |epoch: i32, offset: i64| {
        let epoch_end = Some((LeaderEpoch(epoch), Offset(offset)));
        wake(1, follower, Ok(ReadableEnd { epoch_end, ..end(place(5, 0, 50)) }))
    };
    assert_eq!(with(3, 5), None);
    assert_eq!(with(3, 4), Some(FetchWake::Diverging));
    assert_eq!(with(2, 5), Some(FetchWake::Diverging));
    assert_eq!(with(-1, -1), Some(FetchWake::Diverging));
    let consumer = ParkedPartition { last_fetched_epoch: LeaderEpoch(-1), ..follower };
    let epoch_end = Some((LeaderEpoch(2), Offset(1)));
    let now = Ok(ReadableEnd { epoch_end, ..end(place(5, 0, 50)) });
    assert_eq!(wake(1, consumer, now), None, "no last epoch, no comparison");
}

fn leader(high_watermark: i64, maximal_isr: usize) -> ProducePartitionNow {
    ProducePartitionNow::Leader {
        high_watermark: Offset(high_watermark),
        maximal_isr,
        min_insync_replicas: 2,
    }
}

#[test]
fn h07_a_produce_settles_by_high_watermark_isr_and_leadership() {
    assert_eq!(settle(Offset(10), &leader(9, 3)), Settlement::Pending);
    assert_eq!(
        settle(Offset(10), &leader(9, 1)),
        Settlement::Pending,
        "20 only once it is committed"
    );
    assert_eq!(settle(Offset(10), &leader(10, 2)), Settlement::Settled(0));
    assert_eq!(settle(Offset(10), &leader(10, 1)), Settlement::Settled(20));
    assert_eq!(settle(Offset(10), &ProducePartitionNow::NotLeader), Settlement::Settled(6));
    let gone = ProducePartitionNow::Unavailable { error_code: 56 };
    assert_eq!(settle(Offset(10), &gone), Settlement::Settled(56));
}

#[test]
fn h07_a_settled_partition_stays_settled_and_the_rest_times_out() {
    let mut table = SettlementTable::new();
    table.push_pending("a", Offset(10));
    table.push_settled("b", 19);
    table.push_pending("c", Offset(5));
    assert_eq!(table.pending().copied().collect::<Vec<_>>(), ["a", "c"]);
    let mut asked = Vec::new();
    let done = table.advance(Some(&"c"), |key, required| {
        asked.push(*key);
        settle(required, &leader(7, 2))
    });
    assert!(!done);
    assert_eq!(asked, ["c"]);
    assert!(!table.advance(None, |_, required| settle(required, &leader(9, 2))));
    let answer: Vec<_> = table.clone().into_errors().collect();
    assert_eq!(answer, [("a", 7), ("b", 19), ("c", 0)]);
    assert!(table.advance(None, |_, _| Settlement::Settled(6)));
    let answer: Vec<_> = table.into_errors().collect();
    assert_eq!(answer, [("a", 6), ("b", 19), ("c", 0)], "c was settled before leadership went");
}

#[test]
fn i02_a_delete_settles_when_the_slowest_live_replica_has_it() {
    assert_eq!(settle_delete_records(Offset(50), Ok(Offset(49))), Settlement::Pending);
    assert_eq!(settle_delete_records(Offset(50), Ok(Offset(50))), Settlement::Settled(0));
    assert_eq!(settle_delete_records(Offset(50), Err(6)), Settlement::Settled(6));
}
