//! An idempotent producer with acks=all that never gives up: it keeps sending the same batch, with the
//! same sequence, to whoever leads, until it is acknowledged. What it was told is its history.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use protocol::messages::{InitProducerIdRequest, ProduceResponse};
use protocol::records::{BatchBuilder, ProducerStamp};
use protocol::{ErrorCode, Offset, ProducerEpoch, ProducerId};

use crate::client::{Client, produce_request};

/// How long one attempt may take, on the wire and at the broker.
const ATTEMPT: Duration = Duration::from_millis(1500);
const PAUSE: Duration = Duration::from_millis(20);

/// A record that was acknowledged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// Where the broker said it is.
    pub offset: i64,
    /// What it says.
    pub value: Vec<u8>,
    /// How long the acknowledgement took, retries included.
    pub took: Duration,
}

/// A producer for one partition.
#[derive(Debug)]
pub struct RetryingProducer {
    bootstrap: Vec<String>,
    topic: String,
    partition: i32,
    connection: Option<Client>,
    producer_id: i64,
    next_sequence: i32,
    /// Everything acknowledged so far, in the order in which it was sent.
    pub history: Vec<Acknowledged>,
}

impl RetryingProducer {
    /// A producer that finds its leader through any of `bootstrap`.
    pub fn new(bootstrap: &str, topic: &str, partition: i32) -> Result<Self> {
        let mut producer = Self {
            bootstrap: bootstrap.split(',').map(str::to_owned).collect(),
            topic: topic.into(),
            partition,
            connection: None,
            producer_id: -1,
            next_sequence: 0,
            history: Vec::new(),
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while producer.producer_id < 0 {
            if Instant::now() > deadline {
                bail!("no producer id within 30 s");
            }
            producer.producer_id = producer.ask_for_id().unwrap_or(-1);
        }
        Ok(producer)
    }

    fn ask_for_id(&self) -> Result<i64> {
        for address in &self.bootstrap {
            let Ok(mut client) = Client::connect(address, ATTEMPT) else { continue };
            let request = InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: 60_000,
                ..InitProducerIdRequest::default()
            };
            let response = client.call(4, request)?;
            if response.error_code == 0 {
                return Ok(response.producer_id);
            }
        }
        bail!("nobody gave a producer id")
    }

    /// Sends one record until it is acknowledged; fails after `patience`, or on an error that no retry
    /// mends.
    pub fn send(&mut self, value: &[u8], patience: Duration) -> Result<()> {
        let started = Instant::now();
        let batch = self.batch(value)?;
        loop {
            match self.attempt(batch.clone()) {
                Ok(offset) => {
                    self.next_sequence += 1;
                    let value = value.to_vec();
                    self.history.push(Acknowledged { offset, value, took: started.elapsed() });
                    return Ok(());
                }
                Err(Attempt::Fatal(error)) => return Err(error),
                Err(Attempt::Retry(last)) => {
                    self.connection = None;
                    if started.elapsed() > patience {
                        bail!("not acknowledged within {patience:?}: {last}");
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn batch(&self, value: &[u8]) -> Result<bytes::Bytes> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let mut builder = BatchBuilder::new(Offset::ZERO).producer(ProducerStamp {
            id: ProducerId(self.producer_id),
            epoch: ProducerEpoch(0),
            base_sequence: self.next_sequence,
        });
        builder.append(now.as_millis() as i64, None, Some(value), [])?;
        Ok(builder.build()?)
    }

    fn attempt(&mut self, batch: bytes::Bytes) -> std::result::Result<i64, Attempt> {
        if self.connection.is_none() {
            self.connection = Some(self.connect_to_leader().map_err(Attempt::retry)?);
        }
        let request = produce_request(&self.topic, self.partition, -1, batch, ATTEMPT);
        let Some(connection) = self.connection.as_mut() else {
            return Err(Attempt::Retry("not connected".into()));
        };
        let response: ProduceResponse = connection.call(12, request).map_err(Attempt::retry)?;
        let answer = response
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .context("no partition in the answer")
            .map_err(Attempt::retry)?;
        let error = ErrorCode::from_code(answer.error_code);
        match error {
            ErrorCode::None => Ok(answer.base_offset),
            error if error.is_retriable() => Err(Attempt::Retry(error.kafka_name().into())),
            error => Err(Attempt::Fatal(anyhow::anyhow!(
                "produce of sequence {}: {}",
                self.next_sequence,
                error.kafka_name()
            ))),
        }
    }

    fn connect_to_leader(&self) -> Result<Client> {
        let mut last = anyhow::anyhow!("nobody answers");
        for address in &self.bootstrap {
            match self.leader_by(address) {
                Ok(leader) => return Client::connect(&leader, ATTEMPT + PAUSE),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn leader_by(&self, address: &str) -> Result<String> {
        let metadata = Client::connect(address, Duration::from_millis(500))?.metadata()?;
        let partition = metadata
            .topics
            .iter()
            .filter(|topic| topic.name.as_deref() == Some(self.topic.as_str()))
            .flat_map(|topic| &topic.partitions)
            .find(|partition| partition.partition_index == self.partition)
            .context("the partition is not known")?;
        let leader = metadata
            .brokers
            .iter()
            .find(|broker| broker.node_id == partition.leader_id)
            .context("no leader")?;
        Ok(format!("{}:{}", leader.host, leader.port))
    }
}

enum Attempt {
    Retry(String),
    Fatal(anyhow::Error),
}

impl Attempt {
    fn retry(error: anyhow::Error) -> Self {
        Attempt::Retry(format!("{error:#}"))
    }
}
