//! F07: ListOffsets' special questions, over the wire. How each version answers each of them is compared with
//! Kafka in `cli/tests/compare`; here is what needs records made for it.

use protocol::Offset;
use protocol::messages::ListOffsetsRequest;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::records::BatchBuilder;
use testkit::client::Client;

use super::{PATIENCE, one_node};
use crate::alone;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const NEWEST: i64 = -3;
const INVALID_REQUEST: i16 = 42;
const UNSUPPORTED_VERSION: i16 = 35;

fn question(partition_index: i32, timestamp: i64) -> ListOffsetsPartition {
    ListOffsetsPartition {
        partition_index,
        current_leader_epoch: -1,
        timestamp,
        ..ListOffsetsPartition::default()
    }
}

/// Error, offset, timestamp and epoch of every question, in order.
fn ask(
    client: &mut Client,
    version: i16,
    topic: &str,
    partitions: Vec<ListOffsetsPartition>,
) -> Vec<(i16, i64, i64, i32)> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions,
            ..ListOffsetsTopic::default()
        }],
        ..ListOffsetsRequest::default()
    };
    let response = client.call(version, request).expect("an answer");
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|told| (told.error_code, told.offset, told.timestamp, told.leader_epoch))
        .collect()
}

fn ask_one(client: &mut Client, version: i16, topic: &str, time: i64) -> (i16, i64, i64, i32) {
    ask(client, version, topic, vec![question(0, time)])[0]
}

/// A batch whose records carry these times.
fn produce_at(client: &mut Client, topic: &str, times: &[i64]) {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    for time in times {
        builder.append(*time, None, Some(b"value"), []).expect("room");
    }
    let batch = builder.build().expect("a batch");
    let answer = client.produce(topic, 0, -1, batch, PATIENCE).expect("an answer");
    assert_eq!(answer.error_code, 0);
}

#[test]
fn f07_offsets_by_time_are_those_of_records_and_of_equal_times_the_first() {
    let _alone = alone();
    let (_cluster, mut client, _) = one_node("times", 1, &[("log.retention.ms", "-1")]);
    // An empty log starts and ends at 0 and has no newest record.
    assert_eq!(ask_one(&mut client, 7, "times", LATEST), (0, 0, -1, 0));
    assert_eq!(ask_one(&mut client, 7, "times", EARLIEST), (0, 0, -1, 0));
    assert_eq!(ask_one(&mut client, 7, "times", NEWEST), (0, -1, -1, -1));
    // Offsets 0 to 2, 3 to 5 and 6 to 7; the newest time is twice there, in two batches.
    produce_at(&mut client, "times", &[100, 300, 200]);
    produce_at(&mut client, "times", &[150, 500, 400]);
    produce_at(&mut client, "times", &[500, 120]);
    for version in 7..=11 {
        let mut at = |time| ask_one(&mut client, version, "times", time);
        assert_eq!(at(NEWEST), (0, 4, 500, 0), "version {version}");
        assert_eq!(at(LATEST), (0, 8, -1, 0));
        assert_eq!(at(EARLIEST), (0, 0, -1, 0));
        // The first record at or after a time, inside its batch; nothing after the newest.
        for (time, offset, told) in
            [(0, 0, 100), (100, 0, 100), (101, 1, 300), (300, 1, 300), (301, 4, 500), (500, 4, 500)]
        {
            assert_eq!(at(time), (0, offset, told, 0), "version {version}, time {time}");
        }
        assert_eq!(at(501), (0, -1, -1, -1), "version {version}");
    }
    // Before version 4 no epoch is told.
    assert_eq!(ask_one(&mut client, 3, "times", LATEST), (0, 8, -1, -1));
}

#[test]
fn f07_special_times_below_their_version_and_partitions_twice_are_refused() {
    let _alone = alone();
    let (_cluster, mut client, _) = one_node("special", 2, &[]);
    // Measured on Kafka 4.4.0: the first version of each special time.
    for (time, first) in [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99), (i64::MIN, 99)] {
        for version in 1..=11 {
            let told = ask_one(&mut client, version, "special", time);
            let wanted = if version >= first { 0 } else { UNSUPPORTED_VERSION };
            assert_eq!(told.0, wanted, "time {time} in version {version}");
            if wanted != 0 {
                assert_eq!((told.1, told.2, told.3), (-1, -1, -1), "time {time}");
            }
        }
    }
    for version in 1..=11 {
        let twice = vec![question(0, LATEST), question(1, LATEST), question(0, EARLIEST)];
        let told = ask(&mut client, version, "special", twice);
        let errors: Vec<i16> = told.iter().map(|told| told.0).collect();
        assert_eq!(
            errors.iter().filter(|error| **error == INVALID_REQUEST).count(),
            errors.len() - 1
        );
        assert!(errors.contains(&0), "the partition asked for once is answered: {told:?}");
    }
}
