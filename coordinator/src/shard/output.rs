//! What a shard gives back: records to append, and answers with the offset they must wait for.

use protocol::Offset;
use protocol::messages::ResponseBody;

use super::Call;
use crate::classic;
use crate::consumer;
use crate::record::Record;

/// Names a request until it is answered. The host chooses it; no two that wait may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The answer to a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The request.
    pub token: Token,
    /// What answers it.
    pub response: ResponseBody,
    /// The answer was made from what the partition holds up to here; it is sent when the high
    /// watermark is beyond this offset.
    pub seen: Option<Offset>,
}

/// Records to append as one batch. Comes back with [`crate::Shard::on_written`] or
/// [`crate::Shard::on_write_failed`].
#[derive(Debug)]
#[must_use = "a write that is dropped leaves its requests without an answer"]
pub struct Write {
    /// The records, never none.
    pub records: Vec<Record>,
    /// The answers that say the records are written.
    pub(crate) answers: Vec<(Token, ResponseBody)>,
    /// What follows besides the answers.
    pub(crate) then: Then,
}

/// What follows a write, besides its answers, when it is done or has failed.
#[derive(Debug, Default)]
pub(crate) enum Then {
    /// Nothing.
    #[default]
    Nothing,
    /// A classic group goes on.
    Classic(classic::Then),
    /// A consumer group goes on.
    Consumer(consumer::Then),
}

/// What the host must do, writes first.
#[derive(Debug, Default)]
#[must_use = "writes and answers are lost when an output is dropped"]
pub struct Output {
    /// Batches to append, in this order.
    pub writes: Vec<Write>,
    /// Answers that need no record.
    pub answers: Vec<Answer>,
}

impl Output {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.answers.is_empty()
    }

    /// Answers now.
    pub(crate) fn answer(&mut self, token: Token, response: impl Into<ResponseBody>) {
        self.answer_seen(token, response, None);
    }

    /// Answers when what was read up to `seen` is committed.
    pub(crate) fn answer_seen(
        &mut self,
        token: Token,
        response: impl Into<ResponseBody>,
        seen: Option<Offset>,
    ) {
        self.answers.push(Answer { token, response: response.into(), seen });
    }

    /// Writes records, then answers one request.
    pub(crate) fn write(
        &mut self,
        records: Vec<Record>,
        call: Call<'_>,
        response: impl Into<ResponseBody>,
    ) {
        let answers = vec![(call.token, response.into())];
        self.writes.push(Write { records, answers, then: Then::Nothing });
    }

    /// Writes records that nobody waits for.
    pub(crate) fn write_unasked(&mut self, records: Vec<Record>, then: Then) {
        self.writes.push(Write { records, answers: Vec::new(), then });
    }
}
