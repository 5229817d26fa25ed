//! What a story's clients do, as a history ([`crate::history`]): the writes of `produce_to`, the readings of
//! `read_all`, and every Produce that is sent by itself. Other single requests are questions, no client's work.

use std::time::Duration;

use anyhow::Result;
use protocol::{ErrorCode, RequestBody, ResponseBody};

use super::Written;
use crate::client::read_batches;
use crate::history::{Act, Phase, RecordName, Recorder, name_of, phase_of};

const WRITER: &str = "writer";
const READER: &str = "reader";

/// Writes down what a stage's clients do, if that is wanted.
#[derive(Debug, Default)]
pub(super) struct Notes(Option<Recorder>);

impl Notes {
    pub(super) fn take(&mut self, recorder: Recorder) {
        self.0 = Some(recorder);
    }

    /// The real time since the history began.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, Recorder::elapsed)
    }

    pub(super) fn writes(&self, at: Duration, topic: &str, acks: i16, values: &[String]) {
        if let Some(history) = &self.0 {
            history.begin(at, WRITER, &format!("{topic}-0"), Act::send(acks, values));
        }
    }

    pub(super) fn has_written(&self, at: Duration, written: &Result<Written>) {
        match written {
            Ok(written) => self.end_write(at, WRITER, written.error_code, written.base_offset),
            Err(error) => self.end_unknown(at, WRITER, &error.to_string()),
        }
    }

    pub(super) fn reads(&self, at: Duration, topic: &str) {
        if let Some(history) = &self.0 {
            let partition = format!("{topic}-0");
            history.assign(at, READER, &partition, 0);
            history.begin(at, READER, &partition, Act::poll(0));
        }
    }

    pub(super) fn has_read(&self, at: Duration, read: &Result<Vec<(i64, String)>>) {
        let Some(history) = &self.0 else {
            return;
        };
        match read {
            Ok(records) => {
                let named = records.iter().map(|(offset, value)| (*offset, Some(value.clone())));
                let act = Act::poll(0).read(named.collect());
                history.end(at, READER, Phase::Ok, act, None);
            }
            Err(error) => history.end_without(at, READER, Phase::Fail, error),
        }
    }

    pub(super) fn sends(&self, at: Duration, sent: u64, request: &RequestBody) {
        let (Some(history), RequestBody::Produce(request)) = (&self.0, request) else {
            return;
        };
        let Some(topic) = request.topic_data.first() else {
            return;
        };
        let Some(data) = topic.partition_data.first() else {
            return;
        };
        let bytes = data.records.clone().and_then(|records| records.read().ok());
        let mut records = Vec::new();
        // What is no batch is refused, and no record of it is ever read.
        let _ = read_batches(bytes.unwrap_or_default(), 0, &mut records);
        let names: Vec<(Option<i64>, RecordName)> =
            records.iter().map(|record| (None, name_of(record.value.as_deref()))).collect();
        let act = Act::Send { acks: request.acks, records: names, may_repeat: false };
        let partition = format!("{}-{}", topic.name, data.index);
        history.begin(at, &requester(sent), &partition, act);
    }

    pub(super) fn has_answer(&self, at: Duration, sent: u64, answer: &Result<ResponseBody>) {
        match answer {
            Ok(ResponseBody::Produce(response)) => {
                let topic = response.responses.first();
                let answered = topic.and_then(|topic| topic.partition_responses.first());
                if let Some(answered) = answered {
                    let (code, base) = (answered.error_code, answered.base_offset);
                    self.end_write(at, &requester(sent), code, base);
                }
            }
            Ok(_) => {}
            Err(error) => self.end_unknown(at, &requester(sent), &error.to_string()),
        }
    }

    fn end_write(&self, at: Duration, client: &str, error_code: i16, base: i64) {
        let Some(history) = &self.0 else {
            return;
        };
        match (ErrorCode::from_code(error_code), history.open(client)) {
            (ErrorCode::None, Some(act)) => {
                history.end(at, client, Phase::Ok, act.sent_at(base), None);
            }
            (error, _) => history.end_without(at, client, phase_of(error), format!("{error:?}")),
        }
    }

    fn end_unknown(&self, at: Duration, client: &str, error: &str) {
        if let Some(history) = &self.0 {
            history.end_without(at, client, Phase::Info, error);
        }
    }
}

/// Each request that is sent by itself is a client of its own.
fn requester(sent: u64) -> String {
    format!("request {sent}")
}
