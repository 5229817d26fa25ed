//! F08: a reader that takes a few kilobytes at a time while the files under it are deleted, rolled, cleaned or
//! cut. It gets the bytes that were there when the answer was made, whole, or a closed connection; never others.
//!
//! Answers are larger than what the kernel's buffers hold, and the reader goes on only when the file is seen to
//! be gone or another: what it then gets was sent afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use protocol::frame::{decode_response, encode_request, request_header};
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest, FetchResponse};
use protocol::records::BatchBuilder;
use protocol::{ApiKey, Offset, RequestBody};
use testkit::client::{Client, ReadRecord, fetch_request, produce_request, read_batches};
use testkit::real::{Cluster, NodeId};

use super::{PATIENCE, bytes_of, only};
use crate::alone;

const TOPIC: &str = "slowly";
const RECORD_BYTES: usize = 500_000;
/// Twelve megabytes in one segment: sockets hold about six.
const RECORDS: usize = 24;
const SEGMENT_BYTES: usize = 12_200_000;
/// What the reader takes at a time.
const SIP_BYTES: usize = 4096;
const SIPS_AT_FIRST: usize = 8;

/// A reader that has begun to take an answer.
pub struct SlowReader {
    stream: TcpStream,
    taken: Vec<u8>,
    size: usize,
}

/// How an answer ended.
pub enum Ending {
    /// With all its bytes.
    Whole(Vec<ReadRecord>),
    /// With the connection closed, after these bytes.
    Closed(Bytes),
}

impl SlowReader {
    /// Asks for a topic from offset 0 and takes the first kilobytes.
    pub fn begin(address: &str, topic: &str, partition: i32) -> SlowReader {
        let stream = TcpStream::connect(address).expect("connected");
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 16 * 1024)
            .expect("a small buffer");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut request = fetch_request(topic, partition, 0);
        request.max_bytes = i32::MAX;
        request.topics[0].partitions[0].partition_max_bytes = i32::MAX;
        let parts = encode_request(
            request_header(ApiKey::Fetch, super::NAMES, 1, Some("slow")),
            &RequestBody::Fetch(request),
        );
        let frame = protocol::join_parts(parts.expect("writable")).expect("in memory");
        (&stream).write_all(&frame).expect("sent");
        let mut size = [0; 4];
        (&stream).read_exact(&mut size).expect("an answer");
        let size = i32::from_be_bytes(size) as usize;
        let mut reader = SlowReader { stream, taken: Vec::with_capacity(size), size };
        for _ in 0..SIPS_AT_FIRST {
            assert!(reader.sip(), "the answer goes on");
        }
        assert!(size > RECORDS / 2 * RECORD_BYTES, "{size} bytes are too few to be in no buffer");
        reader
    }

    /// Takes some; whether there was any.
    fn sip(&mut self) -> bool {
        let mut bytes = [0; SIP_BYTES];
        let most = SIP_BYTES.min(self.size - self.taken.len());
        match self.stream.read(&mut bytes[..most]) {
            Ok(count) => {
                self.taken.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("the answer neither goes on nor ends: {error}"),
        }
    }

    /// Takes the rest.
    pub fn finish(mut self) -> Ending {
        while self.taken.len() < self.size && self.sip() {}
        let is_whole = self.taken.len() == self.size;
        if is_whole {
            let mut records = Vec::new();
            let body = decode_response(self.taken.into(), 1, ApiKey::Fetch, super::NAMES);
            let response =
                FetchResponse::try_from(body.expect("readable")).expect("a fetch's answer");
            let data = only(response);
            assert!(bytes_of(&data) > 0, "{}", data.error_code);
            let bytes = data.records.map(|records| records.read().expect("bytes"));
            read_batches(bytes.unwrap_or_default(), 0, &mut records).expect("whole batches");
            return Ending::Whole(records);
        }
        Ending::Closed(self.taken.into())
    }

    fn expect_whole(self, wanted: &[ReadRecord]) {
        let Ending::Whole(records) = self.finish() else { panic!("the connection was closed") };
        assert!(records == wanted, "other records than were there");
    }
}

/// A value that is known by its number, and all of whose bytes are.
fn value(number: usize) -> Vec<u8> {
    (0..RECORD_BYTES).map(|at| ((at / 7 + number * 31) % 251) as u8).collect()
}

/// Records with few keys, so that cleaning finds what to drop.
pub fn fill(
    client: &mut Client,
    topic: &str,
    partition: i32,
    numbers: std::ops::Range<usize>,
) -> Vec<ReadRecord> {
    let mut records = Vec::new();
    for number in numbers {
        let (key, value) = (vec![(number % 3) as u8], value(number));
        let mut builder = BatchBuilder::new(Offset::ZERO);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_millis() as i64;
        builder.append(now, Some(&key), Some(&value), []).expect("room");
        let batch = builder.build().expect("a batch");
        let request = produce_request(topic, partition, -1, batch, PATIENCE);
        let response = client.call(12, request).expect("an answer");
        let told = &response.responses[0].partition_responses[0];
        assert_eq!(told.error_code, 0, "record {number}");
        records.push(ReadRecord { offset: told.base_offset, key: Some(key), value: Some(value) });
    }
    records
}

fn node_with(configs: &[(&str, &str)]) -> (Cluster, Client, PathBuf) {
    let mut cluster = crate::cluster()
        .brokers(1)
        .set("log.retention.check.interval.ms", 200)
        .set("log.cleaner.backoff.ms", 100)
        .set("log.initial.task.delay.ms", 100)
        .start()
        .expect("a node");
    let segment = SEGMENT_BYTES.to_string();
    let mut all = vec![("segment.bytes", &segment[..]), ("file.delete.delay.ms", "100")];
    all.extend(configs);
    cluster.create_topic(TOPIC, &[&[1]], &all).expect("a topic");
    super::wait_until_led(&mut cluster, TOPIC, 1);
    let client = cluster.client(1).expect("a client");
    let folder = cluster.data_folder(1).join(format!("{TOPIC}-0"));
    (cluster, client, folder)
}

fn segment(folder: &Path, base: usize) -> PathBuf {
    folder.join(format!("{base:020}.log"))
}

/// Waits until nothing in the folder, by whatever name, is the file with this number.
fn wait_until_gone(cluster: &mut Cluster, folder: &Path, inode: u64) {
    let parent = folder.parent().expect("a log directory").to_path_buf();
    cluster
        .wait_for("the file to be gone", |_| {
            let mut files = BTreeMap::new();
            for dir in
                fs::read_dir(&parent)?.filter_map(Result::ok).filter(|entry| entry.path().is_dir())
            {
                let entries = fs::read_dir(dir.path()).into_iter().flatten().filter_map(Result::ok);
                let known =
                    entries.filter_map(|entry| Some((entry.metadata().ok()?.ino(), entry.path())));
                files.extend(known);
            }
            Ok(files.get(&inode).map_or(Ok(()), |path| Err(format!("{} is there", path.display()))))
        })
        .expect("gone");
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").ino()
}

#[test]
fn f08_a_reader_keeps_its_bytes_while_the_topic_is_deleted_under_it() {
    let _alone = alone();
    let (mut cluster, mut client, folder) = node_with(&[]);
    let records = fill(&mut client, TOPIC, 0, 0..RECORDS);
    let file = inode(&segment(&folder, 0));
    let reader = SlowReader::begin(&cluster.bootstrap(), TOPIC, 0);
    // A second one goes away in the middle: nobody's log directory fails by that.
    drop(SlowReader::begin(&cluster.bootstrap(), TOPIC, 0));
    fill(&mut client, TOPIC, 0, RECORDS..RECORDS + 1);
    let request = DeleteTopicsRequest {
        topic_names: vec![TOPIC.into()],
        timeout_ms: 20_000,
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, request).expect("an answer").responses[0].error_code, 0);
    wait_until_gone(&mut cluster, &folder, file);
    cluster.create_topic(TOPIC, &[&[1]], &[]).expect("the same name anew");
    super::wait_until_led(&mut cluster, TOPIC, 1);
    fill(&mut client, TOPIC, 0, 100..102);
    reader.expect_whole(&records);
    assert!(!cluster.output(1).contains("log directory failed"), "{}", cluster.output(1));
}

#[test]
fn f08_a_reader_keeps_its_bytes_while_segments_roll_and_expire_under_it() {
    let _alone = alone();
    let (mut cluster, mut client, folder) = node_with(&[]);
    let records = fill(&mut client, TOPIC, 0, 0..RECORDS);
    let file = inode(&segment(&folder, 0));
    let reader = SlowReader::begin(&cluster.bootstrap(), TOPIC, 0);
    let more = fill(&mut client, TOPIC, 0, RECORDS..RECORDS + 2);
    assert!(segment(&folder, RECORDS).exists(), "the segment rolled");
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: TOPIC.into(),
            partitions: vec![DeleteRecordsPartition {
                offset: RECORDS as i64 + 1,
                ..DeleteRecordsPartition::default()
            }],
            ..DeleteRecordsTopic::default()
        }],
        timeout_ms: 20_000,
        ..DeleteRecordsRequest::default()
    };
    let response = client.call(2, request).expect("an answer");
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
    wait_until_gone(&mut cluster, &folder, file);
    reader.expect_whole(&records);
    assert_eq!(client.fetch(TOPIC, 0, 0).expect("an answer").error_code, 1);
    let left = client.read_all(TOPIC, 0, RECORDS as i64 + 1).expect("what is left");
    assert!(left == more[1..]);
}

#[test]
fn f08_a_reader_keeps_its_bytes_while_the_log_is_cleaned_under_it() {
    let _alone = alone();
    let (mut cluster, mut client, folder) =
        node_with(&[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01")]);
    let records = fill(&mut client, TOPIC, 0, 0..RECORDS);
    let file = inode(&segment(&folder, 0));
    let reader = SlowReader::begin(&cluster.bootstrap(), TOPIC, 0);
    // The rolled segment may be cleaned.
    let more = fill(&mut client, TOPIC, 0, RECORDS..RECORDS + 2);
    wait_until_gone(&mut cluster, &folder, file);
    reader.expect_whole(&records);
    // F05: who reads now gets the last record of each key, and goes on over the holes.
    let left = client.read_all(TOPIC, 0, 0).expect("what is left");
    let offsets: Vec<i64> = left.iter().map(|record| record.offset).collect();
    assert!(offsets.len() < RECORDS / 2, "{offsets:?}");
    assert!(left.ends_with(&more) && offsets.is_sorted(), "{offsets:?}");
    for offset in 0..offsets[0] {
        let bytes = client.fetch(TOPIC, 0, offset).expect("an answer").records.expect("records");
        let mut found = Vec::new();
        read_batches(bytes.read().expect("bytes"), offset, &mut found).expect("batches");
        assert_eq!(
            found.first().map(|record| record.offset),
            offsets.first().copied(),
            "at {offset}"
        );
    }
}

/// The other replica missed everything and leads uncleanly. This one, which is sending, becomes its follower,
/// cuts its log to nothing and fills it again with other bytes.
#[test]
fn f08_a_reader_keeps_its_bytes_or_is_cut_off_when_a_replica_becomes_a_follower() {
    let _alone = alone();
    let mut cluster = crate::cluster()
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .set("replica.fetch.backoff.ms", 100)
        .start()
        .expect("a cluster");
    let segment = SEGMENT_BYTES.to_string();
    let settings = [
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "1"),
        ("segment.bytes", &segment[..]),
    ];
    cluster.create_topic(TOPIC, &[&[1, 2]], &settings).expect("a topic");
    cluster.kill(2).expect("killed");
    cluster.wait_for_isr(TOPIC, 0, &[1]).expect("an ISR without it");
    let records = fill(&mut cluster.client(1).expect("a client"), TOPIC, 0, 0..RECORDS);
    let reader = SlowReader::begin(&format!("127.0.0.1:{}", cluster.port(1)), TOPIC, 0);
    cluster.freeze(1).expect("frozen");
    cluster.start(2).expect("started");
    wait_for_leader(&mut cluster, 2);
    let mut second = cluster.client(2).expect("a client");
    let anew = fill(&mut second, TOPIC, 0, 200..200 + RECORDS / 2);
    cluster.thaw(1).expect("thawed");
    cluster
        .wait_for("node 1 to hold what node 2 holds", |cluster| {
            let held = cluster.read_replica(1, TOPIC, 0);
            Ok(match held {
                Ok(held) if held == anew => Ok(()),
                Ok(held) => Err(format!("{} records", held.len())),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .expect("a follower");
    match reader.finish() {
        Ending::Whole(got) => assert!(got == records, "other records than were there"),
        Ending::Closed(taken) => check_begun(taken, &records),
    }
}

/// The batches that arrived whole before the connection closed are those that were there.
fn check_begun(taken: Bytes, wanted: &[ReadRecord]) {
    // They begin behind the head of the answer, with the offset 0, and have one size.
    let head = taken.windows(17).position(|bytes| bytes[..8] == [0; 8] && bytes[16] == 2);
    let rest = taken.slice(head.expect("a batch")..);
    let batch = i32::from_be_bytes(rest[8..12].try_into().expect("four bytes")) as usize + 12;
    let mut records = Vec::new();
    read_batches(rest.slice(..rest.len() / batch * batch), 0, &mut records).expect("whole batches");
    assert!(wanted.starts_with(&records), "other records than were there");
    println!("the connection was closed after {} of {} records", records.len(), wanted.len());
}

/// Waits until a node leads and takes records, by the word of a node that is not frozen.
fn wait_for_leader(cluster: &mut Cluster, wanted: NodeId) {
    cluster
        .wait_for("an unclean leader", |cluster| {
            let metadata = cluster.client(wanted)?.metadata()?;
            let topic = metadata.topics.iter().find(|topic| topic.name.as_deref() == Some(TOPIC));
            let leader = topic.map_or(-1, |topic| topic.partitions[0].leader_id);
            let (error, _) = cluster.client(wanted)?.list_offset(TOPIC, 0, -1)?;
            let is_so = leader == wanted && error == 0;
            Ok(if is_so { Ok(()) } else { Err(format!("leader {leader}, error {error}")) })
        })
        .expect("a leader");
}
