//! Groups through the broker: routing, loading, waiting for the high watermark, and losing the lead.

use std::time::Duration;

use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, DescribeGroupsRequest, FetchRequest,
    HeartbeatRequest, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
};
use protocol::{ErrorCode, TopicPartition, Uuid};

use crate::core::replicas::{ProduceEntry, ProduceOutcome};
use crate::handlers::testing::{Inbox, TestBroker, answer_of, keyed_batch, log_end};
use crate::host::drive::beat;

const COMMIT_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 8;

/// A commit by a client that is in no group.
fn commit(group: &str, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_leader_epoch: -1,
                committed_metadata: Some("m".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn fetch(groups: &[&str]) -> OffsetFetchRequest {
    let groups = groups.iter().map(|group| OffsetFetchRequestGroup {
        group_id: (*group).into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: vec![0],
            ..Default::default()
        }]),
        ..Default::default()
    });
    OffsetFetchRequest { groups: groups.collect(), ..Default::default() }
}

/// The committed offset, or the error of each group.
fn offsets(broker: &TestBroker, groups: &[&str]) -> Vec<Result<i64, i16>> {
    let response = broker.ask(FETCH_VERSION, fetch(groups));
    let of = |group: &protocol::messages::offset_fetch_response::OffsetFetchResponseGroup| {
        if group.error_code != 0 {
            return Err(group.error_code);
        }
        Ok(group.topics[0].partitions[0].committed_offset)
    };
    response.groups.iter().map(of).collect()
}

fn commit_error(inbox: &Inbox) -> i16 {
    let response = answer_of::<OffsetCommitRequest>(inbox, COMMIT_VERSION);
    response.topics[0].partitions[0].error_code
}

/// The follower, broker 2, has everything below `offset` of partition 0.
fn follower_at(broker: &TestBroker, offset: i64) {
    let topics = vec![FetchTopic {
        topic: "__consumer_offsets".into(),
        partitions: vec![FetchPartition {
            partition: 0,
            fetch_offset: offset,
            partition_max_bytes: 1 << 20,
            ..Default::default()
        }],
        ..Default::default()
    }];
    broker.send(12, FetchRequest { replica_id: 2, topics, ..Default::default() });
}

/// A broker that leads the topic's partitions as placed, with a topic `t` beside it.
fn broker(placement: &[(i32, &[i32])]) -> (TestBroker, Uuid) {
    let broker = TestBroker::new();
    broker.add_topic("t", 8, &[(1, &[1])]);
    let id = broker.add_topic("__consumer_offsets", 7, placement);
    broker.core.on_tick();
    (broker, id)
}

#[test]
fn a_commit_is_read_back_and_survives_a_change_of_the_leader() {
    let (broker, id) = broker(&[(1, &[1])]);
    assert_eq!(commit_error(&broker.send(COMMIT_VERSION, commit("g", 41))), 0);
    assert_eq!(offsets(&broker, &["g"]), [Ok(41)]);
    let end = log_end(&broker, "__consumer_offsets", 0);
    broker.elect(id, 0, 2);
    let lost = Err(ErrorCode::NotCoordinator.code());
    assert_eq!(offsets(&broker, &["g"]), [lost]);
    broker.elect(id, 0, 1);
    assert_eq!(offsets(&broker, &["g"]), [Err(ErrorCode::CoordinatorLoadInProgress.code())]);
    // As Kafka does, so that members do not look for another coordinator meanwhile.
    let heartbeat = HeartbeatRequest { group_id: "g".into(), ..Default::default() };
    assert_eq!(broker.ask(4, heartbeat).error_code, 0);
    let loading = broker.ask(4, ListGroupsRequest::default());
    assert_eq!(loading.error_code, ErrorCode::CoordinatorLoadInProgress.code());
    for _ in 0..3 {
        broker.core.on_tick();
    }
    assert_eq!(offsets(&broker, &["g"]), [Ok(41)], "loaded from the log");
    assert_eq!(log_end(&broker, "__consumer_offsets", 0), end, "loading writes nothing");
}

#[test]
fn a_commit_is_answered_and_read_only_once_every_replica_has_it() {
    let (broker, _) = broker(&[(1, &[1, 2])]);
    let committing = broker.send(COMMIT_VERSION, commit("g", 41));
    let end = log_end(&broker, "__consumer_offsets", 0);
    assert!(end > 0, "the record is in the log");
    assert!(committing.take().is_none(), "answered before the follower has it");
    let reading = broker.send(FETCH_VERSION, fetch(&["g"]));
    assert!(reading.take().is_none(), "an offset that a failover takes back was told");
    follower_at(&broker, end);
    assert_eq!(commit_error(&committing), 0);
    let read = answer_of::<OffsetFetchRequest>(&reading, FETCH_VERSION);
    assert_eq!(read.groups[0].topics[0].partitions[0].committed_offset, 41);
}

#[test]
fn who_waits_for_the_high_watermark_is_told_when_the_lead_is_lost() {
    let (broker, id) = broker(&[(1, &[1, 2])]);
    let committing = broker.send(COMMIT_VERSION, commit("g", 41));
    assert!(committing.take().is_none());
    broker.elect(id, 0, 2);
    assert_eq!(commit_error(&committing), ErrorCode::NotCoordinator.code());
}

#[test]
fn requests_about_several_groups_are_divided_and_joined_in_order() {
    let (broker, _) = broker(&[(1, &[1]), (2, &[2]), (1, &[1])]);
    let named = |wanted: i32| {
        let mut names = (0..100).map(|at| format!("g{at}"));
        names.find(|name| broker.core.groups.partition_of(name) == Some(wanted)).unwrap()
    };
    let names = [named(0), named(1), named(2)];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (name, expected) in names.iter().zip([0, ErrorCode::NotCoordinator.code(), 0]) {
        assert_eq!(commit_error(&broker.send(COMMIT_VERSION, commit(name, 5))), expected);
    }
    let elsewhere = Err(ErrorCode::NotCoordinator.code());
    assert_eq!(offsets(&broker, &names), [Ok(5), elsewhere, Ok(5)]);
    assert!(offsets(&broker, &[]).is_empty());

    let request = DescribeGroupsRequest {
        groups: names.iter().map(|name| (*name).to_owned()).collect(),
        include_authorized_operations: true,
        ..Default::default()
    };
    let described = broker.ask(5, request).groups;
    let told: Vec<(&str, i16)> =
        described.iter().map(|group| (group.group_id.as_str(), group.error_code)).collect();
    assert_eq!(told, [(names[0], 0), (names[1], 16), (names[2], 0)]);
    assert_eq!(described[0].authorized_operations, 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11);
    assert_eq!(described[1].authorized_operations, i32::MIN);

    let mut listed: Vec<String> = broker
        .ask(4, ListGroupsRequest::default())
        .groups
        .into_iter()
        .map(|group| group.group_id)
        .collect();
    listed.sort_unstable();
    let mut own = vec![names[0].to_owned(), names[2].to_owned()];
    own.sort_unstable();
    assert_eq!(listed, own, "the groups of this broker's partitions");
}

/// As Kafka 4.4.0 answers.
#[test]
fn a_group_that_is_named_twice_is_deleted_once() {
    let (broker, _) = broker(&[(1, &[1])]);
    assert_eq!(commit_error(&broker.send(COMMIT_VERSION, commit("g", 5))), 0);
    let names = ["g", "h", "g"].map(str::to_owned).to_vec();
    let response = broker.ask(2, DeleteGroupsRequest { groups_names: names, ..Default::default() });
    let told: Vec<(&str, i16)> =
        response.results.iter().map(|r| (r.group_id.as_str(), r.error_code)).collect();
    assert_eq!(told, [("g", 0), ("h", ErrorCode::GroupIdNotFound.code())]);
}

#[test]
fn without_the_topic_nobody_is_the_coordinator() {
    let broker = TestBroker::new();
    assert_eq!(broker.core.groups.partition_of("g"), None);
    let request = HeartbeatRequest { group_id: "g".into(), ..Default::default() };
    assert_eq!(broker.ask(4, request).error_code, ErrorCode::NotCoordinator.code());
    let listed = broker.ask(4, ListGroupsRequest::default());
    assert_eq!((listed.error_code, listed.groups.len()), (0, 0));
}

#[test]
fn a_record_that_cannot_be_read_leaves_the_partition_without_a_coordinator() {
    let (broker, id) = broker(&[(1, &[1])]);
    let bad = keyed_batch(&[(b"\x00\x01\x00", Some(b"x"))]);
    let entry = ProduceEntry {
        partition: TopicPartition::new("__consumer_offsets", 0),
        topic_id: id,
        records: bad,
    };
    let written = |outcomes: Vec<ProduceOutcome>| assert_eq!(outcomes[0].error, ErrorCode::None);
    broker.core.replicas.append(1, Duration::ZERO, 9, vec![entry], Box::new(written));
    broker.elect(id, 0, 2);
    broker.elect(id, 0, 1);
    for _ in 0..3 {
        broker.core.on_tick();
    }
    assert_eq!(offsets(&broker, &["g"]), [Err(ErrorCode::NotCoordinator.code())]);
}

/// As Kafka does: what is set out of the broker's bounds is brought to the nearest.
#[test]
fn a_group_s_config_that_is_set_at_run_time_is_in_force_at_the_next_heartbeat() {
    let (broker, _) = broker(&[(1, &[1])]);
    let beat = |member_epoch: i32| {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: "g".to_owned(),
            member_id: "m".to_owned(),
            member_epoch,
            rebalance_timeout_ms: 60_000,
            subscribed_topic_names: Some(vec!["t".to_owned()]),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        let response = broker.ask(1, request);
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        (response.member_epoch, response.heartbeat_interval_ms)
    };
    let (epoch, interval) = beat(0);
    assert_eq!(interval, 5000);
    for (set, in_force) in [("7000", 7000), ("15001", 15_000)] {
        broker.set_config(32, "g", "consumer.heartbeat.interval.ms", set);
        assert_eq!(beat(epoch).1, in_force);
    }
}

#[test]
fn a_tick_does_not_wait_for_a_group_that_is_long_at_work() {
    let (broker, _) = broker(&[(1, &[1])]);
    broker.core.on_tick();
    let mut next = None;
    broker.core.groups.while_busy(0, || next = broker.core.groups.on_tick());
    assert!(next.is_some(), "it is looked at again");
}

#[tokio::test]
async fn heartbeats_do_not_wait_for_a_tick_that_is_long_at_work() {
    let broker = TestBroker::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let beating = tokio::spawn(beat(broker.core.clone(), stopped));
    // Nobody ticks: the tick is at work for ever.
    while broker.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    stop.send(true).unwrap();
    beating.await.unwrap();
}
