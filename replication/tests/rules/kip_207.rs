//! KIP-207: the latest offset told to clients never goes backwards. H02.

use protocol::{ErrorCode, Offset};
use replication::FetchIsolation;
use replication::partition::FetchReader;

use crate::support::Cluster;

/// Node 2 was elected with ten records and a high watermark of 7; node 3 has not fetched from it.
fn failed_over() -> Cluster {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &(0..7).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.fetch(2);
    cluster.produce(1, &[7, 8, 9]);
    cluster.fetch(2);
    cluster.catch_up(3);
    cluster.fetch(2);
    cluster.controller.fence(1);
    cluster.publish(2);
    cluster
}

#[test]
fn h02_the_latest_offset_waits_for_the_epochs_start() {
    let mut cluster = failed_over();
    let node = cluster.node(2);
    let facts = node.log.facts();
    assert_eq!(node.state.high_watermark().offset, Offset(7));
    assert_eq!(node.state.leader_epoch_start(), Some(Offset(10)));
    for isolation in [FetchIsolation::HighWatermark, FetchIsolation::TransactionCommitted] {
        let latest = node.state.latest_offset(isolation, &facts);
        assert_eq!(latest.map_err(|e| e.code()), Err(ErrorCode::OffsetNotAvailable));
    }
    assert_eq!(node.state.latest_offset(FetchIsolation::LogEnd, &facts), Ok(Offset(10)));

    cluster.publish(3);
    cluster.catch_up(3);
    let node = cluster.node(2);
    let latest = node.state.latest_offset(FetchIsolation::HighWatermark, &node.log.facts());
    assert_eq!(latest, Ok(Offset(10)));
}

#[test]
fn h02_a_lookup_by_time_answers_only_what_is_surely_committed() {
    let cluster = failed_over();
    let node = cluster.node(2);
    let facts = node.log.facts();
    let admit = |found: Option<i64>, isolation| {
        node.state
            .admit_found_offset(found.map(Offset), isolation, &facts)
            .map_err(|error| error.code())
    };
    assert_eq!(admit(Some(6), FetchIsolation::HighWatermark), Ok(Some(Offset(6))));
    assert_eq!(admit(Some(7), FetchIsolation::HighWatermark), Err(ErrorCode::OffsetNotAvailable));
    assert_eq!(admit(None, FetchIsolation::HighWatermark), Err(ErrorCode::OffsetNotAvailable));
    assert_eq!(admit(Some(9), FetchIsolation::LogEnd), Ok(Some(Offset(9))));
    assert_eq!(admit(None, FetchIsolation::LogEnd), Ok(None));
}

#[test]
fn h02_a_consumer_ahead_of_the_new_watermark_gets_nothing_and_no_error() {
    let cluster = failed_over();
    let node = cluster.node(2);
    let facts = node.log.facts();
    let epoch = node.state.leader_epoch();
    assert_eq!(node.state.check_fetch(FetchReader::Consumer, epoch), Ok(()));
    let at = |offset| node.state.check_fetch_offset(&node.log.epochs, &facts, None, Offset(offset));
    assert_eq!(at(9), Ok(None));
    assert_eq!(at(11).map_err(|error| error.code()), Err(ErrorCode::OffsetOutOfRange));
    let limit = node.state.last_fetchable_offset(FetchIsolation::HighWatermark, &facts);
    assert_eq!(limit.offset, Offset(7));
    assert_eq!(node.log.read(9, limit.offset.get()), []);
}
