//! The same requests as Kafka 4.4.0 was sent (`tests/answers/consumer_groups.jsonl`), with equal
//! answers and equal records.
//!
//! The file has a line with the topics, then one for each case: the bodies of requests and answers as
//! they were on the wire, pauses, and the records that the case left in `__consumer_offsets`. Not
//! compared: times, the version of the cluster's metadata, and the order of what Kafka keeps in hash
//! tables.

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::{RequestBody, ResponseBody};
use protocol::{ApiKey, Uuid};
use serde_json::Value;

use super::{Cluster, Host};
use crate::record::Record;
use crate::shard::ShardConfig;

const ANSWERS: &str = include_str!("../../../tests/answers/consumer_groups.jsonl");

/// Every request was answered this long before the next was sent.
const BETWEEN: Duration = Duration::from_millis(200);

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal text").as_bytes();
    let digit = |at: usize| char::from(text[at]).to_digit(16).expect("a hexadecimal digit") as u8;
    (0..text.len() / 2).map(|at| digit(2 * at) << 4 | digit(2 * at + 1)).collect()
}

fn cluster(line: &Value) -> Cluster {
    let mut cluster = Cluster { version: 1, ..Cluster::default() };
    for topic in line["topics"].as_array().expect("topics") {
        let name = topic["name"].as_str().expect("a name").to_owned();
        let id = Uuid(bytes(&topic["id"]).try_into().expect("sixteen bytes"));
        let partitions = topic["partitions"].as_i64().expect("a number") as i32;
        cluster.topics.insert(name, (id, partitions));
    }
    cluster
}

/// A member id that Kafka made, and the one made here in its place; equally long.
#[derive(Default)]
struct MemberIds {
    kafka: Vec<u8>,
    here: Vec<u8>,
}

impl MemberIds {
    fn replace(bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut bytes = bytes;
        let length = from.len();
        if length > 0 && length == to.len() {
            for at in 0..bytes.len().saturating_sub(length - 1) {
                if bytes[at..at + length] == *from {
                    bytes[at..at + length].copy_from_slice(to);
                }
            }
        }
        bytes
    }

    fn to_here(&self, bytes: Vec<u8>) -> Vec<u8> {
        MemberIds::replace(bytes, &self.kafka, &self.here)
    }

    /// Learns the id from the first JoinGroup answer.
    fn learn(&mut self, response: &ResponseBody) {
        if let ResponseBody::JoinGroup(response) = response
            && self.here.is_empty()
            && response.member_id.len() == self.kafka.len()
        {
            self.here = response.member_id.clone().into_bytes();
        }
    }
}

/// Takes the order and the wording out that are nobody's business.
fn comparable(response: ResponseBody) -> ResponseBody {
    match response {
        ResponseBody::ConsumerGroupHeartbeat(mut response) => {
            if let Some(assignment) = &mut response.assignment {
                assignment.topic_partitions.sort_by_key(|topic| topic.topic_id);
            }
            if response.error_code == protocol::ErrorCode::InvalidRegularExpression.code() {
                response.error_message = None;
            }
            response.into()
        }
        ResponseBody::ConsumerGroupDescribe(mut response) => {
            for group in &mut response.groups {
                group.members.sort_by(|one, other| one.member_id.cmp(&other.member_id));
                for member in &mut group.members {
                    for assignment in [&mut member.assignment, &mut member.target_assignment] {
                        assignment.topic_partitions.sort_by_key(|topic| topic.topic_id);
                    }
                }
            }
            response.into()
        }
        other => other,
    }
}

/// Records without times and versions; runs of one kind in the order of their keys.
fn comparable_records(records: Vec<Record>) -> Vec<Record> {
    let mut records: Vec<(i16, Vec<u8>, Record)> = records
        .into_iter()
        .map(|mut record| {
            match &mut record {
                Record::ConsumerGroupTargetAssignmentMetadata(_, Some(value)) => {
                    value.assignment_timestamp = value.assignment_timestamp.min(1);
                }
                Record::ConsumerGroupRegularExpression(_, Some(value)) => {
                    (value.version, value.timestamp) = (0, 0);
                }
                Record::GroupMetadata(_, Some(value)) => value.current_state_timestamp = 0,
                Record::ConsumerGroupCurrentMemberAssignment(_, Some(value)) => {
                    value.assigned_partitions.sort_by_key(|topic| topic.topic_id);
                    value.partitions_pending_revocation.sort_by_key(|topic| topic.topic_id);
                }
                Record::ConsumerGroupTargetAssignmentMember(_, Some(value)) => {
                    value.topic_partitions.sort_by_key(|topic| topic.topic_id);
                }
                _ => {}
            }
            let (key, _) = record.encode().expect("a record that can be written");
            (i16::from_be_bytes([key[0], key[1]]), key.to_vec(), record)
        })
        .collect();
    let mut start = 0;
    while start < records.len() {
        let kind = records[start].0;
        let length = records[start..].iter().take_while(|(other, _, _)| *other == kind).count();
        // A key that comes twice in a run has an order that matters; the sort is stable.
        records[start..start + length].sort_by(|one, other| one.1.cmp(&other.1));
        start += length;
    }
    records.into_iter().map(|(_, _, record)| record).collect()
}

fn run(case: &Value, topics: &Cluster) {
    let name = case["case"].as_str().expect("a name");
    let config = ShardConfig {
        initial_rebalance_delay: Duration::ZERO,
        consumer_assignment_interval: Duration::ZERO,
        ..ShardConfig::default()
    };
    let mut host = Host::new(config, topics.clone());
    let mut ids = MemberIds::default();
    if let Some(generated) = case["generated"].as_str() {
        ids.kafka = generated.as_bytes().to_vec();
    }
    for (at, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        if let Some(ms) = step["wait_ms"].as_u64() {
            host.pass(Duration::from_millis(ms));
            continue;
        }
        let key = step["api"].as_i64().and_then(|key| ApiKey::from_i16(key as i16));
        let key = key.expect("a known API");
        let version = step["version"].as_i64().expect("a version") as i16;
        let request = Bytes::from(ids.to_here(bytes(&step["request"])));
        let request = RequestBody::from_bytes(key, version, request).expect("a request");
        let (token, response) = host.send(version, request);
        host.pass(BETWEEN);
        let response = response.or_else(|| host.take_answer(token));
        let response = response.unwrap_or_else(|| panic!("{name}: step {at} has no answer"));
        ids.learn(&response);
        // What the version does not carry is nobody's business either.
        let written = response.to_bytes(version).expect("an answer that can be written");
        let response = ResponseBody::from_bytes(key, version, written).expect("an answer");
        let expected = Bytes::from(ids.to_here(bytes(&step["response"])));
        let expected = ResponseBody::from_bytes(key, version, expected).expect("an answer");
        assert_eq!(
            comparable(response),
            comparable(expected),
            "{name}: step {at}, {}",
            step["what"]
        );
        host.assert_replay_equals_live();
    }
    let expected: Vec<Record> = case["records"]
        .as_array()
        .expect("records")
        .iter()
        .map(|record| {
            let key = Bytes::from(ids.to_here(bytes(&record["key"])));
            let value = (!record["value"].is_null())
                .then(|| Bytes::from(ids.to_here(bytes(&record["value"]))));
            let read = Record::decode(key.clone(), value.clone());
            let read = read.unwrap_or_else(|error| panic!("{name}: {record}: {error}"));
            let read = read.expect("a known kind");
            assert_eq!(read.encode().expect("a writable record"), (key, value), "{name}: {read:?}");
            read
        })
        .collect();
    compare_records(name, host.log, &expected);
}

fn compare_records(name: &str, mut ours: Vec<Record>, expected: &[Record]) {
    ours.retain(|record| !matches!(record, Record::OffsetCommit(..)));
    let length = ours.len();
    assert!(length <= expected.len(), "{name}: more records than Kafka's");
    let (expected, later) = expected.split_at(length);
    let (ours, expected) = (comparable_records(ours), comparable_records(expected.to_vec()));
    for (at, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
        assert_eq!(ours, expected, "{name}: record {at} of {length}");
    }
    // Kafka's log was read after the last case: by then members of the others had been thrown out.
    for record in later {
        let (_, value) = record.encode().expect("a record that can be written");
        let is_epoch = matches!(
            record,
            Record::ConsumerGroupMetadata(..)
                | Record::ConsumerGroupTargetAssignmentMetadata(..)
                | Record::GroupMetadata(..)
        );
        assert!(is_epoch || value.is_none(), "{name}: {record:?} is missing");
    }
}

#[test]
fn answers_and_records_are_those_of_kafka() {
    let mut lines = ANSWERS.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let topics = cluster(&lines.next().expect("the topics"));
    let cases: Vec<Value> = lines.collect();
    assert!(cases.len() >= 8);
    for case in &cases {
        run(case, &topics);
    }
}
