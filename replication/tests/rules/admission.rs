//! Isolation, deleting records, and a failed log directory. F03, X03, I02, C08.

use protocol::{ErrorCode, LeaderEpoch, Offset};
use replication::partition::FetchReader;
use replication::{AckStatus, FetchIsolation, LogFacts, PartitionError};

use crate::support::Cluster;

#[test]
fn f03_each_isolation_has_its_end() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.produce(1, &[10, 11]);
    let node = cluster.node(1);
    let end = |isolation, first_unstable: Option<i64>, log_start| {
        let facts = LogFacts {
            log_start: Offset(log_start),
            first_unstable: first_unstable.map(|offset| Offset(offset).into()),
            ..node.log.facts()
        };
        node.state.last_fetchable_offset(isolation, &facts).offset.get()
    };
    assert_eq!(end(FetchIsolation::LogEnd, Some(4), 0), 12);
    assert_eq!(end(FetchIsolation::HighWatermark, Some(4), 0), 10);
    assert_eq!(end(FetchIsolation::TransactionCommitted, Some(4), 0), 4);
    assert_eq!(end(FetchIsolation::TransactionCommitted, Some(11), 0), 10, "X03: HW bounds it");
    assert_eq!(end(FetchIsolation::TransactionCommitted, None, 0), 10);
    assert_eq!(end(FetchIsolation::TransactionCommitted, Some(4), 6), 6, "X03: never below start");
}

#[test]
fn i02_delete_records_is_bounded_by_the_high_watermark() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &(0..90).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.produce(1, &(90..100).collect::<Vec<_>>());
    let node = cluster.node(1);
    let target = |offset| {
        node.state
            .delete_records_target(Offset(offset), &node.log.facts())
            .map(Offset::get)
            .map_err(|error| error.code())
    };
    assert_eq!(target(50), Ok(50));
    assert_eq!(target(-1), Ok(90));
    assert_eq!(target(90), Ok(90));
    assert_eq!(target(95), Err(ErrorCode::OffsetOutOfRange));
    assert_eq!(target(-2), Err(ErrorCode::OffsetOutOfRange));
    let follower = cluster.node(2);
    let refused = follower.state.delete_records_target(Offset(5), &follower.log.facts());
    assert_eq!(refused, Err(PartitionError::NotLeaderOrFollower));
}

#[test]
fn i02_the_low_watermark_waits_for_every_live_replica() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &(0..100).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.node_mut(1).log.raise_start(50);
    let low = |cluster: &Cluster| {
        let node = cluster.node(1);
        node.state.low_watermark(&node.log.facts(), &node.directory).map(Offset::get)
    };
    assert_eq!(low(&cluster), Ok(0));
    cluster.fetch(2);
    assert_eq!(cluster.node(2).log.start, 50, "the follower learned it from the answer");
    assert_eq!(low(&cluster), Ok(0), "the leader learns it from the next request");
    let request = cluster.request(2);
    cluster.serve(&request);
    assert_eq!(low(&cluster), Ok(0), "node 3 has not deleted yet");
    cluster.controller.fence(3);
    cluster.publish(1);
    assert_eq!(low(&cluster), Ok(50), "a dead replica is not waited for");
    let follower = cluster.node(2);
    let refused = follower.state.low_watermark(&follower.log.facts(), &follower.directory);
    assert_eq!(refused, Err(PartitionError::NotLeaderOrFollower));
}

#[test]
fn i02_a_followers_new_log_start_wakes_delayed_deletes() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2, 3]);
    cluster.catch_up(2);
    cluster.node_mut(2).log.raise_start(2);
    let request = cluster.request(2);
    let now = cluster.now;
    let node = cluster.node_mut(1);
    let facts = node.log.facts();
    let fetch = replication::FollowerFetch {
        fetch_offset: request.point.fetch_offset.into(),
        log_start_offset: request.log_start,
        leader_log_end: facts.log_end.offset,
        broker_epoch: request.broker_epoch,
        at: now,
    };
    let effects = node
        .state
        .on_follower_fetch(2.into(), &fetch, &facts, &node.directory)
        .expect("an ordinary fetch");
    assert!(effects.wake.delete_records && !effects.wake.produce);
}

#[test]
fn c08_a_failed_log_directory_refuses_everything_with_56() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    let effects = cluster.node_mut(1).state.mark_offline();
    assert!(effects.wake.produce && effects.wake.fetch && effects.wake.delete_records);
    let state = &cluster.node(1).state;
    let offline = PartitionError::StorageOffline;
    assert_eq!(offline.code(), ErrorCode::KafkaStorageError);
    assert_eq!(state.check_fetch(FetchReader::Consumer, LeaderEpoch::NONE), Err(offline));
    assert_eq!(state.check_current_leader_epoch(1.into(), true), Err(offline));
    assert_eq!(state.check_produce(1), Err(offline));
    assert_eq!(state.check_enough_replicas(1.into(), Offset(1)), AckStatus::Failed(offline));
    cluster.controller.elect(1);
    assert_eq!(cluster.publish(1), replication::RoleChange::Offline);
    assert!(!cluster.node(1).state.is_leader());
}
