//! Fetches in a session (KIP-227): its id and epoch in hand, and whether the partition is named again.

use std::time::Duration;

use anyhow::{Result, bail};
use protocol::messages::fetch_request::ForgottenTopic;
use protocol::{ResponseBody, Uuid};

use super::questions::{FETCH_BY_ID, fetched_partition, one_fetch};
use super::{Ask, CONSUMER, Fetched, Node, Stage};

/// A fetch in a session, or one that begins or ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionAsk {
    /// The request's version.
    pub version: i16,
    /// The session's id; 0 for none.
    pub id: i32,
    /// Its epoch: 0 begins one, -1 ends it.
    pub epoch: i32,
    /// The partition with what is asked of it; `None` for what the session knows.
    pub partition: Option<Ask>,
    /// Whether the session shall forget the partition.
    pub forgets: bool,
}

/// How a fetch in a session was answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionAnswer {
    /// Kafka's error code for all of it; 0 for success.
    pub error_code: i16,
    /// The session's id; 0 for none.
    pub id: i32,
    /// What is said of the partition, if anything.
    pub partition: Option<Fetched>,
}

impl dyn Stage + '_ {
    /// One fetch in a session, answered at once.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn fetch_in_session(
        &mut self,
        node: Node,
        topic: &str,
        ask: SessionAsk,
    ) -> Result<SessionAnswer> {
        let is_by_id = ask.version >= FETCH_BY_ID;
        let topic_id = if is_by_id { self.topic_id(node, topic)? } else { Uuid::ZERO };
        let wanted = Ask { version: ask.version, ..ask.partition.unwrap_or(CONSUMER) };
        let mut request = one_fetch(topic, topic_id, wanted, Duration::ZERO);
        (request.session_id, request.session_epoch) = (ask.id, ask.epoch);
        if ask.partition.is_none() {
            request.topics.clear();
        }
        if ask.forgets {
            request.forgotten_topics_data.push(ForgottenTopic {
                topic: if is_by_id { String::new() } else { topic.into() },
                topic_id,
                partitions: vec![0],
                ..ForgottenTopic::default()
            });
        }
        let ResponseBody::Fetch(response) = self.call(node, ask.version, request)? else {
            bail!("not an answer to Fetch");
        };
        let (error_code, id) = (response.error_code, response.session_id);
        let topics = response.responses.into_iter();
        let data = topics.flat_map(|topic| topic.partitions).next();
        let partition = data.map(|data| fetched_partition(data, wanted.offset)).transpose()?;
        Ok(SessionAnswer { error_code, id, partition })
    }
}
