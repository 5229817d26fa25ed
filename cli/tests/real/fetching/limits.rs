//! F01: the limits of request, partition and broker, and at least one batch. F05: whole batches, from whatever
//! offset. F06: the shape of an error.

use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::{FetchRequest, ListOffsetsRequest};

use super::{IDS, batches_of, fetch, one_node, only, part, produce, rows};
use crate::alone;

/// More than three batches, less than four.
const BROKER_LIMIT: usize = 2000;
const VALUE: [u8; 450] = [7; 450];

/// What partition 1 and 2 give with a limit for the request and one for each partition; 0 is empty.
struct Case {
    max_bytes: i32,
    partition_max_bytes: i32,
    first: usize,
    second: usize,
}

fn cases(batch: usize) -> Vec<Case> {
    let size = batch as i32;
    let case = |max_bytes, partition_max_bytes, first, second| Case {
        max_bytes,
        partition_max_bytes,
        first,
        second,
    };
    vec![
        // At least one batch, whatever the limits, and only of the first that has one.
        case(1, 1, batch, 0),
        case(0, 0, batch, 0),
        case(i32::MAX, 0, batch, 0),
        case(0, i32::MAX, batch, 0),
        case(i32::MAX, size - 1, batch, 0),
        case(size, size, batch, 0),
        // What is left for the second must hold a batch, and is then given to the byte.
        case(2 * size - 1, size, batch, 0),
        case(2 * size, size, batch, batch),
        case(2 * size + 10, size + 20, batch + 20, 0),
        case(2 * size + 30, size + 20, batch + 20, batch + 10),
        case(2 * size, i32::MAX, 2 * batch, 0),
        // The broker's limit counts like the request's.
        case(i32::MAX, i32::MAX, BROKER_LIMIT, 0),
        case(i32::MAX, size, batch, batch),
        case(i32::MAX, BROKER_LIMIT as i32 - size, BROKER_LIMIT - batch, batch),
    ]
}

#[test]
fn f01_limits_hold_but_for_one_batch_of_the_first_partition_that_has_any() {
    let _alone = alone();
    let limit = BROKER_LIMIT.to_string();
    let (_cluster, mut client, topic) = one_node("limits", 3, &[("fetch.max.bytes", &limit)]);
    for partition in [1, 2] {
        for _ in 0..4 {
            produce(&mut client, "limits", partition, &[&VALUE]);
        }
    }
    let whole =
        fetch(vec![topic.with(vec![FetchPartition { partition_max_bytes: 1, ..part(1, 0) }])]);
    let batch = rows(&client.call(IDS, whole).expect("an answer"))[0].2;
    assert!(3 * batch < BROKER_LIMIT && BROKER_LIMIT < 4 * batch, "batches of {batch} bytes");
    for version in [4, 7, 12, 13, IDS] {
        for case in cases(batch) {
            let limited = |partition, offset| FetchPartition {
                partition_max_bytes: case.partition_max_bytes,
                ..part(partition, offset)
            };
            let partitions = vec![limited(0, 0), limited(1, 0), limited(2, 0)];
            let request =
                FetchRequest { max_bytes: case.max_bytes, ..fetch(vec![topic.with(partitions)]) };
            let got = rows(&client.call(version, request).expect("an answer"));
            let wanted = [(0, 0, 0), (1, 0, case.first), (2, 0, case.second)];
            let limits = (case.max_bytes, case.partition_max_bytes);
            assert_eq!(got, wanted, "version {version}, limits {limits:?} of batches of {batch}");
        }
    }
    // A partition that fails passes the right to one batch on. Unknown ones are told last.
    let partitions = vec![part(9, 0), part(1, 99), part(2, 0)];
    let request = FetchRequest { max_bytes: 1, ..fetch(vec![topic.with(partitions)]) };
    let got = rows(&client.call(IDS, request).expect("an answer"));
    assert_eq!(got, [(1, 1, 0), (2, 0, batch), (9, 3, 0)]);
}

#[test]
fn f05_a_fetch_inside_a_batch_gives_it_from_its_beginning() {
    let _alone = alone();
    let (_cluster, mut client, topic) = one_node("batches", 1, &[]);
    for _ in 0..3 {
        produce(&mut client, "batches", 0, &[b"a", b"b", b"c"]);
    }
    let batches = [(0, 2), (3, 5), (6, 8)];
    for offset in 0..9 {
        let request = fetch(vec![topic.with(vec![part(0, offset)])]);
        let data = only(client.call(IDS, request).expect("an answer"));
        assert_eq!(batches_of(&data), &batches[offset as usize / 3..], "at {offset}");
        assert_eq!((data.high_watermark, data.log_start_offset), (9, 0));
    }
    let data =
        only(client.call(IDS, fetch(vec![topic.with(vec![part(0, 9)])])).expect("an answer"));
    assert_eq!((data.error_code, super::bytes_of(&data)), (0, 0));
}

/// Measured on Kafka 4.4.0: an unknown partition has an empty list of aborted transactions, one that the
/// broker has a null.
#[test]
fn f06_an_error_has_no_marks_and_empty_records_and_leaves_its_neighbours_alone() {
    let _alone = alone();
    let (cluster, mut client, topic) = one_node("errors", 1, &[]);
    produce(&mut client, "errors", 0, &[b"here"]);
    let epoch = |current_leader_epoch| FetchPartition { current_leader_epoch, ..part(0, 0) };
    for version in 4..=IDS {
        let mut wrong =
            vec![(part(9, 0), 3, true), (part(0, 2), 1, false), (part(0, -1), 1, false)];
        if version >= 9 {
            wrong.push((epoch(77), 75, false));
        }
        for (wrong, error, is_unknown) in wrong {
            for isolation_level in [0, 1] {
                let request = FetchRequest {
                    isolation_level,
                    ..fetch(vec![topic.with(vec![wrong.clone()])])
                };
                let data = only(client.call(version, request).expect("an answer"));
                let context = format!("version {version}, error {error}: {data:?}");
                assert_eq!(data.error_code, error, "{context}");
                let marks = (data.high_watermark, data.last_stable_offset, data.log_start_offset);
                assert_eq!(marks, (-1, -1, -1), "{context}");
                assert!(
                    data.records.as_ref().is_some_and(|records| records.is_empty()),
                    "{context}"
                );
                let aborted = data.aborted_transactions.as_ref().map(Vec::len);
                assert_eq!(aborted, is_unknown.then_some(0), "{context}");
                assert_eq!(data.preferred_read_replica, -1, "{context}");
                assert_eq!((data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (-1, -1));
            }
        }
        let both = fetch(vec![topic.with(vec![part(9, 0), part(0, 0)])]);
        let got = rows(&client.call(version, both).expect("an answer"));
        assert_eq!(got.len(), 2, "version {version}: {got:?}");
        assert!(got[0].0 == 0 && got[0].1 == 0 && got[0].2 > 0, "version {version}: {got:?}");
        assert_eq!(got[1], (9, 3, 0), "version {version}");
    }
    // A request that cannot be understood closes the connection, and only that one.
    let mut second = cluster.client(1).expect("a client");
    second
        .send_raw(&[&12i32.to_be_bytes(), &[0, 1, 0, 12, 0, 0, 0, 1, 0, 1, b'x', 0]])
        .expect("sent");
    assert!(second.is_closed());
    let answer = client.call(11, ListOffsetsRequest { replica_id: -1, ..Default::default() });
    assert!(answer.expect("an answer").topics.is_empty());
}
