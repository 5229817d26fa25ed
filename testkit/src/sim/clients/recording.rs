//! What producers and consumers do, as a history ([`crate::history`]). A send begins when its batch is sent for
//! the first time and ends when the producer knows, or gives up to know, how; a poll is one fetch. A consumer that the
//! cluster sets back is assigned anew. Nothing of this changes what happens.

use protocol::messages::FetchResponse;
use protocol::{NodeId, Offset, RequestBody, ResponseBody, TopicIdPartition};

use super::{Client, Effect, Simulation};
use crate::history::{Act, Phase, RecordName, Recorder, name_of};
use crate::invariants::{SendOutcome, SendRecord};

use anyhow::{Context, Result, bail, ensure};

/// Who reads everything when a run is over.
const LAST_READER: &str = "last reader";
/// The last version in which a fetch names topics by their names.
const FETCH_BY_NAME: i16 = 12;

/// A record at its offset.
type NamedRecord = (i64, RecordName);

/// What an answer told a client, as far as its effects do not say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// There was none to wait for.
    None,
    /// A fetch's, within a session, without anything new.
    NoNews,
    /// Another, or that there is none.
    Other,
}

impl Answer {
    pub(super) fn of(body: Option<&ResponseBody>) -> Answer {
        match body {
            Some(ResponseBody::Fetch(FetchResponse { error_code: 0, responses, .. }))
                if responses.is_empty() =>
            {
                Answer::NoNews
            }
            _ => Answer::Other,
        }
    }
}

fn name(partition: &TopicIdPartition) -> String {
    let partition = &partition.topic_partition;
    format!("{}-{}", partition.topic, partition.partition)
}

fn named(records: &[(Offset, bytes::Bytes)]) -> Vec<(i64, RecordName)> {
    records.iter().map(|(offset, value)| (offset.get(), name_of(Some(value)))).collect()
}

impl Simulation {
    /// From now on producers and consumers write down what they do.
    pub fn record_history(&mut self, recorder: Recorder) {
        self.history = Some(recorder);
    }

    /// Writes down what a client does next, before it is done.
    pub(super) fn record_client(&self, id: u32, answer: Answer, effects: &[Effect]) {
        let Some(history) = &self.history else {
            return;
        };
        match self.clients.get(&id) {
            Some(Client::Producer(producer)) => {
                let partition = name(producer.partition());
                for effect in effects {
                    self.record_producer(history, id, &partition, producer.sending(), effect);
                }
            }
            Some(Client::Consumer(consumer)) => {
                let partition = name(consumer.partition());
                let position = consumer.position().get();
                self.record_consumer(history, id, &partition, position, answer, effects);
            }
            _ => {}
        }
    }

    fn record_producer(
        &self,
        history: &Recorder,
        id: u32,
        partition: &str,
        sending: Option<Act>,
        effect: &Effect,
    ) {
        let (at, client) = (self.now().0, format!("producer {id}"));
        match effect {
            Effect::Send { body: RequestBody::Produce(_), .. } => {
                if let (None, Some(act)) = (history.open(&client), sending) {
                    history.begin(at, &client, partition, act);
                }
            }
            Effect::Sent(SendRecord { acks, values, outcome, may_repeat, .. }) => {
                let (phase, base, error) = match outcome {
                    SendOutcome::Acked(base) => (Phase::Ok, base.get(), None),
                    SendOutcome::Failed => (Phase::Fail, -1, Some("refused".to_owned())),
                    SendOutcome::Unknown => (Phase::Info, -1, Some("not acknowledged".to_owned())),
                };
                let mut act = Act::send(*acks, values).sent_at(base);
                if let Act::Send { may_repeat: repeats, .. } = &mut act {
                    *repeats = *may_repeat;
                }
                history.end(at, &client, phase, act, error);
            }
            _ => {}
        }
    }

    fn record_consumer(
        &self,
        history: &Recorder,
        id: u32,
        partition: &str,
        position: i64,
        answer: Answer,
        effects: &[Effect],
    ) {
        let (at, client) = (self.now().0, format!("consumer {id}"));
        let mut is_set_back = false;
        for effect in effects {
            match effect {
                Effect::Read { records, .. } => {
                    if let Some(act) = history.open(&client) {
                        history.end(at, &client, Phase::Ok, act.read(named(records)), None);
                    }
                }
                Effect::OutOfRange(offset) => {
                    history.end_without(at, &client, Phase::Fail, format!("no offset {offset}"));
                    is_set_back = true;
                }
                _ => {}
            }
        }
        if answer == Answer::NoNews
            && let Some(act) = history.open(&client)
        {
            history.end(at, &client, Phase::Ok, act, None);
        }
        if answer != Answer::None {
            history.end_without(at, &client, Phase::Fail, "no records in the answer");
        }
        if is_set_back || !history.knows(&client) {
            history.assign(at, &client, partition, position);
        }
        let fetches =
            |effect: &Effect| matches!(effect, Effect::Send { body: RequestBody::Fetch(_), .. });
        if effects.iter().any(fetches) {
            history.begin(at, &client, partition, Act::poll(position));
        }
    }

    /// Reads a partition from its leader once more, when everything is over, if a history is written.
    ///
    /// # Errors
    /// When it cannot be read to its high watermark.
    pub fn read_finally(&mut self, topic: &str, index: i32) -> Result<()> {
        let Some(history) = self.history.clone() else {
            return Ok(());
        };
        let leader = self.leads(topic, index).context("no leader")?;
        let (client, partition) = (format!("{LAST_READER} {index}"), format!("{topic}-{index}"));
        history.assign(self.now().0, &client, &partition, 0);
        let mut next = 0;
        loop {
            let act = Act::Poll { from: next, records: Vec::new(), is_final: true };
            history.begin(self.now().0, &client, &partition, act.clone());
            let read = self.read_once(leader, topic, index, next);
            let at = self.now().0;
            let (records, after, end) = match read {
                Ok(read) => read,
                Err(error) => {
                    history.end_without(at, &client, Phase::Fail, &error);
                    return Err(error);
                }
            };
            history.end(at, &client, Phase::Ok, act.read(records), None);
            if after >= end {
                return Ok(());
            }
            ensure!(after > next, "{partition} gives nothing at {next}, below {end}");
            next = after;
        }
    }

    /// Some records, the offset after them, and the high watermark.
    fn read_once(
        &mut self,
        leader: NodeId,
        topic: &str,
        index: i32,
        from: i64,
    ) -> Result<(Vec<NamedRecord>, i64, i64)> {
        let request = crate::client::fetch_request(topic, index, from);
        let ResponseBody::Fetch(response) = self.call(leader, FETCH_BY_NAME, request)? else {
            bail!("not an answer to Fetch");
        };
        let mut topics = response.responses.into_iter();
        let data = topics.next().and_then(|topic| topic.partitions.into_iter().next());
        let data = data.context("no partition in the answer")?;
        ensure!(data.error_code == 0, "error {}", data.error_code);
        let mut records = Vec::new();
        let bytes = data.records.unwrap_or_default().read()?;
        let after = crate::client::read_batches(bytes, from, &mut records)?;
        let records = records.into_iter();
        let records = records.map(|record| (record.offset, name_of(record.value.as_deref())));
        Ok((records.collect(), after, data.high_watermark))
    }
}
