//! A plain Kafka client for tests: one blocking connection, one request at a time, every field in
//! the caller's hands. It hides nothing: errors come back as the broker sent them.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use protocol::frame::{decode_response, encode_request, request_header};
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use protocol::messages::produce_response::PartitionProduceResponse;
use protocol::messages::{
    FetchRequest, ListOffsetsRequest, MetadataRequest, MetadataResponse,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use protocol::records::{BatchBuilder, Batches, ReadBuffer, ReadLimits};
use protocol::{Offset, Records, Request, RequestBody, Uuid};

/// Largest answer this client takes, in bytes.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// One connection to one broker.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

/// A record as a reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadRecord {
    /// Its place in the partition.
    pub offset: i64,
    /// The key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
}

impl Client {
    /// Connects to `host:port`; connecting, reading and writing each give up after `timeout`.
    pub fn connect(address: &str, timeout: Duration) -> Result<Client> {
        let resolved = address
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve {address}"))?
            .next()
            .with_context(|| format!("{address} resolves to nothing"))?;
        let stream = TcpStream::connect_timeout(&resolved, timeout)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Client { stream, correlation_id: 0 })
    }

    /// Sends a request in `version` and reads its answer.
    pub fn call<R: Request>(&mut self, version: i16, request: R) -> Result<R::Response> {
        let correlation_id = self.send(version, request.into())?;
        let frame = self.read_frame()?;
        let body = decode_response(frame, correlation_id, R::KEY, version)?;
        Ok(R::Response::try_from(body)?)
    }

    /// Sends a request without reading an answer; returns its correlation id.
    pub fn send(&mut self, version: i16, request: RequestBody) -> Result<i32> {
        self.correlation_id += 1;
        let header =
            request_header(request.api_key(), version, self.correlation_id, Some("testkit"));
        // In one write: a part by itself would be a packet by itself.
        self.stream.write_all(&protocol::join_parts(encode_request(header, &request)?)?)?;
        Ok(self.correlation_id)
    }

    /// Sends bytes as they are, for what no well-behaved client would send.
    pub fn send_raw(&mut self, parts: &[&[u8]]) -> Result<()> {
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let written = self.stream.write_vectored(&slices)?;
        ensure!(written == total, "wrote {written} of {total} bytes at once");
        Ok(())
    }

    /// Reads one answer without its size.
    pub fn read_frame(&mut self) -> Result<Bytes> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).context("the broker closed or did not answer")?;
        let size = usize::try_from(i32::from_be_bytes(size)).context("a negative size")?;
        ensure!(
            size <= MAX_RESPONSE_BYTES,
            "an answer of {size} bytes: this is no Kafka broker, or a listener with TLS"
        );
        let mut frame = vec![0; size];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    /// Whether the broker has closed the connection; waits up to the read timeout for it.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    /// All topics and brokers as this broker sees them.
    pub fn metadata(&mut self) -> Result<MetadataResponse> {
        self.call(
            12,
            MetadataRequest {
                topics: None,
                allow_auto_topic_creation: false,
                ..Default::default()
            },
        )
    }

    /// The id of a topic; an error when this broker does not know it.
    pub fn topic_id(&mut self, topic: &str) -> Result<Uuid> {
        let metadata = self.metadata()?;
        let found = metadata.topics.iter().find(|known| known.name.as_deref() == Some(topic));
        Ok(found.with_context(|| format!("no topic {topic}"))?.topic_id)
    }

    /// Produces one batch to one partition and returns its answer, whatever it says.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        acks: i16,
        batch: Bytes,
        timeout: Duration,
    ) -> Result<PartitionProduceResponse> {
        let request = produce_request(topic, partition, acks, batch, timeout);
        let response = self.call(12, request)?;
        let topic = response.responses.into_iter().next().context("no topic in the answer")?;
        topic.partition_responses.into_iter().next().context("no partition in the answer")
    }

    /// Fetches from one partition as an ordinary consumer, without a session.
    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> Result<PartitionData> {
        self.fetch_with(12, fetch_request(topic, partition, offset), topic)
    }

    /// Sends a fetch for one partition and unpacks the one answer.
    pub fn fetch_with(
        &mut self,
        version: i16,
        request: FetchRequest,
        topic: &str,
    ) -> Result<PartitionData> {
        let response = self.call(version, request)?;
        ensure!(response.error_code == 0, "fetch of {topic} failed whole: {}", response.error_code);
        let topic = response.responses.into_iter().next().context("no topic in the answer")?;
        topic.partitions.into_iter().next().context("no partition in the answer")
    }

    /// Asks for an offset: -1 latest, -2 earliest, else by time. Returns error code and offset.
    pub fn list_offset(&mut self, topic: &str, partition: i32, time: i64) -> Result<(i16, i64)> {
        let request = list_offsets_request(topic, partition, -1, time);
        let response = self.call(7, request)?;
        let topic = response.topics.first().context("no topic in the answer")?;
        let partition = topic.partitions.first().context("no partition in the answer")?;
        Ok((partition.error_code, partition.offset))
    }

    /// Reads everything from `offset` to the high watermark.
    pub fn read_all(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<Vec<ReadRecord>> {
        let mut records = Vec::new();
        let mut next = offset;
        loop {
            let data = self.fetch(topic, partition, next)?;
            ensure!(
                data.error_code == 0,
                "fetch of {topic}-{partition}@{next}: {}",
                data.error_code
            );
            let bytes = data.records.map_or(Ok(Bytes::new()), |records| records.read())?;
            let before = next;
            next = read_batches(bytes, next, &mut records)?;
            if next >= data.high_watermark {
                return Ok(records);
            }
            if next == before {
                bail!("{topic}-{partition} gives nothing at {next}, below {}", data.high_watermark);
            }
        }
    }
}

/// Unpacks batches, leaving out records below `from`; returns the offset after the last batch.
pub fn read_batches(bytes: Bytes, from: i64, records: &mut Vec<ReadRecord>) -> Result<i64> {
    let mut next = from;
    let mut buffer = ReadBuffer::default();
    for batch in Batches::new(bytes) {
        let batch = batch?;
        let view = batch.view();
        view.check_crc()?;
        let header = view.header();
        if !header.attributes().is_control() {
            for record in view.records(&mut buffer, ReadLimits::default().batch_bytes)? {
                let record = record?;
                if record.offset.get() >= from {
                    records.push(ReadRecord {
                        offset: record.offset.get(),
                        key: record.key.map(<[u8]>::to_vec),
                        value: record.value.map(<[u8]>::to_vec),
                    });
                }
            }
        }
        next = header.last_offset().get() + 1;
    }
    Ok(next)
}

/// One batch with a record for each value, stamped with the real clock.
pub fn batch_of(values: &[&[u8]]) -> Result<Bytes> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let mut builder = BatchBuilder::new(Offset::ZERO);
    for value in values {
        builder.append(now.as_millis() as i64, None, Some(value), [])?;
    }
    Ok(builder.build()?)
}

/// A produce request with one batch for one partition by name.
pub fn produce_request(
    topic: &str,
    partition: i32,
    acks: i16,
    batch: Bytes,
    timeout: Duration,
) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: timeout.as_millis() as i32,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(Records::Bytes(batch)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A consumer's question for an offset of one partition: -1 latest, -2 earliest, else by time.
pub fn list_offsets_request(
    topic: &str,
    partition: i32,
    current_leader_epoch: i32,
    timestamp: i64,
) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch,
                timestamp,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A consumer's question for where a leader epoch ends in one partition.
pub fn epoch_end_request(
    topic: &str,
    partition: i32,
    current_leader_epoch: i32,
    leader_epoch: i32,
) -> OffsetForLeaderEpochRequest {
    OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.into(),
            partitions: vec![OffsetForLeaderPartition {
                partition,
                current_leader_epoch,
                leader_epoch,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A consumer's fetch of one partition by name: no session, no wait, 8 MiB at most.
pub fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 8 << 20,
        topics: vec![FetchTopic {
            topic: topic.into(),
            partitions: vec![FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: 8 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}
