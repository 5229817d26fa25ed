//! What clients did, as a history for checkers outside: JSON Lines, one for each invocation and each
//! completion, in the order in which they happened. Jepsen's Kafka workload and porcupine think in these terms.
//!
//! Every line is an object:
//!
//! | key | what | where |
//! |---|---|---|
//! | `index` | the line's number, from 0 | everywhere |
//! | `time` | nanoseconds since the start, virtual ones of a simulation | everywhere |
//! | `process` | who; it does one thing at a time, and nothing more after an `info` | everywhere |
//! | `client` | whose process it is: after an `info` a client has another process, and this name | everywhere |
//! | `type` | `invoke`, then `ok`, `fail` (it certainly did not happen) or `info` (nobody knows) | everywhere |
//! | `f` | `send`, `poll`, or `assign`: reading goes on elsewhere | everywhere |
//! | `partition` | `topic-index` | everywhere |
//! | `value` | what was done, see below | everywhere |
//! | `acks` | -1, 0 or 1: only -1 makes a promise that survives a failover | `send` |
//! | `may_repeat` | true when it was sent more than once without a sequence: it may be there twice | `send`, done |
//! | `from` | the offset from which on it reads | `poll`, `assign` |
//! | `final` | true for what is read when everything is over: from there on to the end of the partition | `poll` |
//! | `error` | why not | `fail`, `info` |
//!
//! `value` has the shape of Jepsen's micro-operations. A send of two records is
//! `[["send","t-0","a"],["send","t-0","b"]]`, and acknowledged `[["send","t-0",[7,"a"]],["send","t-0",[8,"b"]]]`; a
//! poll is `[["poll"]]`, and answered `[["poll",{"t-0":[[7,"a"],[8,"b"]]}]]`; an assignment is `["t-0"]`. A record is
//! named by its value: text, `0x` and hexadecimal digits when it is none, `null` for a tombstone; an offset that the
//! broker did not tell is `null`. Keys that say nothing are left out, and readers pass over keys that they do not
//! know. This shape is kept: a later version may have more keys and more kinds of `f`, nothing else.
//!
//! An operation without a completion was under way when the history ended; it counts as `info`.

mod check;
mod lines;
mod recorder;
#[cfg(test)]
mod tests;

use std::fmt;

pub use check::{Broken, Report, Rule, check};
pub use lines::{line, read_history, write_history};
pub use recorder::Recorder;

use protocol::ErrorCode;

/// A record's value as histories name it; `None` for a tombstone.
pub type RecordName = Option<String>;

/// Whether something begins or how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It begins.
    Invoke,
    /// It happened.
    Ok,
    /// It did not happen.
    Fail,
    /// Nobody knows whether it happened.
    Info,
}

/// What a client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Writes a batch.
    Send {
        /// The acks it asks for.
        acks: i16,
        /// The records, with their offsets where they are acknowledged.
        records: Vec<(Option<i64>, RecordName)>,
        /// Whether it may be there twice.
        may_repeat: bool,
    },
    /// Reads on.
    Poll {
        /// From this offset on.
        from: i64,
        /// What it got; nothing in an invocation.
        records: Vec<(i64, RecordName)>,
        /// Whether it is of the last reading, of everything from `from` to the end.
        is_final: bool,
    },
    /// Takes up another place.
    Assign {
        /// The next offset it reads.
        from: i64,
    },
}

/// One line of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its place.
    pub index: u64,
    /// When, in nanoseconds since the start.
    pub time: u64,
    /// Who.
    pub process: u64,
    /// Whose process that is; empty when nobody said.
    pub client: String,
    /// Its beginning or its end.
    pub phase: Phase,
    /// The partition, `topic-index`.
    pub partition: String,
    /// What.
    pub act: Act,
    /// Why not.
    pub error: Option<String>,
}

impl Act {
    /// A write that begins.
    pub fn send<V: AsRef<[u8]>>(acks: i16, values: &[V]) -> Act {
        let records = values.iter().map(|value| (None, name_of(Some(value.as_ref()))));
        Act::Send { acks, records: records.collect(), may_repeat: false }
    }

    /// A read that begins.
    pub fn poll(from: i64) -> Act {
        Act::Poll { from, records: Vec::new(), is_final: false }
    }

    /// The same write, acknowledged at this offset; negative for one that was not told.
    #[must_use]
    pub fn sent_at(mut self, base: i64) -> Act {
        if let Act::Send { records, .. } = &mut self {
            for (at, (offset, _)) in (0..).zip(records) {
                *offset = (base >= 0).then_some(base + at);
            }
        }
        self
    }

    /// The same read, with what it got.
    #[must_use]
    pub fn read(mut self, read: Vec<(i64, RecordName)>) -> Act {
        if let Act::Poll { records, .. } = &mut self {
            *records = read;
        }
        self
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Act::Send { .. } => "send",
            Act::Poll { .. } => "poll",
            Act::Assign { .. } => "assign",
        })
    }
}

/// How histories name a value.
pub fn name_of(value: Option<&[u8]>) -> RecordName {
    let value = value?;
    Some(match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    })
}

/// How a write ended that was answered with this error: it is a failure only if a broker refuses it before
/// anything is written. (A leader that lost its role may say so after the append.)
pub fn phase_of(error: ErrorCode) -> Phase {
    match error {
        ErrorCode::None => Phase::Ok,
        ErrorCode::NotEnoughReplicas
        | ErrorCode::MessageTooLarge
        | ErrorCode::CorruptMessage
        | ErrorCode::InvalidRecord
        | ErrorCode::InvalidTimestamp
        | ErrorCode::InvalidRequiredAcks
        | ErrorCode::TopicAuthorizationFailed => Phase::Fail,
        _ => Phase::Info,
    }
}
