//! A client of a real cluster that writes down what it does, as a history ([`crate::history`]).

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::produce_response::PartitionProduceResponse;

use super::cluster::{Cluster, NodeId};
use crate::client::{Client, ReadRecord, batch_of, read_batches};
use crate::history::{Act, Phase, Recorder, name_of, phase_of};

/// One connection to one broker, under a name of its own in the history: one client does one thing at a time.
/// Who loses its broker makes another of the same name.
#[derive(Debug)]
pub struct RecordedClient {
    client: Client,
    recorder: Recorder,
    name: String,
}

impl Cluster {
    /// A connection to a node, for the client `name`, that writes down what is done with it.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn recorded_client(
        &self,
        node: NodeId,
        recorder: &Recorder,
        name: &str,
    ) -> Result<RecordedClient> {
        let client = self.client(node)?;
        Ok(RecordedClient { client, recorder: recorder.clone(), name: name.to_owned() })
    }
}

impl RecordedClient {
    /// Produces one batch and gives its answer, whatever it says. Values should tell records apart. With acks=0 no
    /// broker answers, so that is refused.
    ///
    /// # Errors
    /// When there is no answer; the history has an `info` then.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        acks: i16,
        values: &[&[u8]],
        timeout: Duration,
    ) -> Result<PartitionProduceResponse> {
        ensure!(acks != 0, "nobody answers acks=0");
        let (batch, act) = (batch_of(values)?, Act::send(acks, values));
        let (recorder, name) = (&self.recorder, &self.name);
        recorder.begin(recorder.elapsed(), name, &format!("{topic}-{partition}"), act.clone());
        let answered = self.client.produce(topic, partition, acks, batch, timeout);
        let at = recorder.elapsed();
        match &answered {
            Ok(answer) => match ErrorCode::from_code(answer.error_code) {
                ErrorCode::None => {
                    recorder.end(at, name, Phase::Ok, act.sent_at(answer.base_offset), None);
                }
                error => recorder.end_without(at, name, phase_of(error), format!("{error:?}")),
            },
            Err(error) => recorder.end_without(at, name, Phase::Info, error),
        }
        answered
    }

    /// Reads everything from `offset` to the high watermark.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_all(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<Vec<ReadRecord>> {
        self.read(topic, partition, offset, false)
    }

    /// The last reading, when everything is healed and nobody writes any more: what was acknowledged and is not in
    /// it is lost.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_finally(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<Vec<ReadRecord>> {
        self.read(topic, partition, offset, true)
    }

    fn read(
        &mut self,
        topic: &str,
        index: i32,
        offset: i64,
        is_final: bool,
    ) -> Result<Vec<ReadRecord>> {
        let partition = format!("{topic}-{index}");
        self.recorder.assign(self.recorder.elapsed(), &self.name, &partition, offset);
        let (mut all, mut next) = (Vec::new(), offset);
        loop {
            let act = Act::Poll { from: next, records: Vec::new(), is_final };
            self.recorder.begin(self.recorder.elapsed(), &self.name, &partition, act.clone());
            let read = self.fetch(topic, index, next);
            let at = self.recorder.elapsed();
            let (records, after, end) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.recorder.end_without(at, &self.name, Phase::Fail, &error);
                    return Err(error);
                }
            };
            let named =
                records.iter().map(|record| (record.offset, name_of(record.value.as_deref())));
            self.recorder.end(at, &self.name, Phase::Ok, act.read(named.collect()), None);
            all.extend(records);
            if after >= end {
                return Ok(all);
            }
            ensure!(after > next, "{partition} gives nothing at {next}, below {end}");
            next = after;
        }
    }

    /// Some records, the offset after them, and the high watermark.
    fn fetch(&mut self, topic: &str, index: i32, from: i64) -> Result<(Vec<ReadRecord>, i64, i64)> {
        let data = self.client.fetch(topic, index, from)?;
        let error = ErrorCode::from_code(data.error_code);
        ensure!(error == ErrorCode::None, "fetch of {topic}-{index} at {from}: {error:?}");
        let bytes = data.records.map_or(Ok(Bytes::new()), |records| records.read())?;
        let mut records = Vec::new();
        let after = read_batches(bytes, from, &mut records)?;
        Ok((records, after, data.high_watermark))
    }
}
