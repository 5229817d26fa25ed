//! Steps with fetches that wait, and with fetches in a session (KIP-227).

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ask, Fetched, Node, Sent, SessionAnswer, SessionAsk};

use crate::story::{Story, TOPIC};

/// Longer than anybody waits for an answer: a fetch that nothing wakes is not answered at all.
const LONG: Duration = Duration::from_secs(1000);

impl Story<'_> {
    /// Sends a fetch that waits for something to read.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_fetch(&mut self, node: Node, ask: Ask) -> Result<Sent> {
        let known = match ask.current_epoch {
            -1 => String::new(),
            epoch => format!(", knowing of e{epoch}"),
        };
        let (at, version) = (ask.offset, ask.version);
        self.say(&format!("a consumer waits at {at} of b{node} (v{version}){known}"))?;
        self.stage.send_fetch(node, TOPIC, ask, LONG)
    }

    /// How a fetch that waited is answered.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn fetched(&mut self, sent: Sent, ask: Ask) -> Result<Fetched> {
        let seen = self.stage.fetched(sent, ask.offset)?;
        self.told_fetch(seen)
    }

    /// One fetch in a session.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn session_fetch(&mut self, node: Node, ask: SessionAsk) -> Result<SessionAnswer> {
        let which = match (ask.id, ask.epoch) {
            (0, _) => "for a new session".to_owned(),
            (_, -1) => "to end its session".to_owned(),
            (_, epoch) => format!("in its session, epoch {epoch}"),
        };
        let what = match (ask.partition, ask.forgets) {
            (Some(partition), _) => format!("the partition at {}", partition.offset),
            (None, true) => "the partition no more".to_owned(),
            (None, false) => "what it asked for".to_owned(),
        };
        self.say(&format!("a consumer asks b{node} {which}: {what}"))?;
        let seen = self.stage.fetch_in_session(node, TOPIC, ask)?;
        let session = if seen.id == 0 { "no session" } else { "a session" };
        let partition = match &seen.partition {
            None => "nothing of the partition".to_owned(),
            Some(told) if told.error_code != 0 => format!("error {}", told.error_code),
            Some(told) => {
                format!("{} records, hw {}", told.records.len(), told.high_watermark)
            }
        };
        let answer = match seen.error_code {
            0 => format!("{session}, {partition}"),
            code => format!("error {code}, {session}"),
        };
        self.told(&answer, seen)
    }
}
