//! What a message on a link is called, as far as holding and losing tell messages apart.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use protocol::ApiKey;

/// Which of the two planes a link belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Plane {
    /// Between brokers: fetches of followers.
    Data,
    /// What goes to controllers, and between them.
    Control,
}

/// The kinds of messages that can be held back or lost by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Message {
    /// A request of this API, to a broker or to a controller.
    Request(ApiKey),
    /// A broker's answer to a request of this API. Answers of controllers cannot be told apart.
    Answer(ApiKey),
    /// Committed metadata on its way from a controller to a node.
    MetadataStream,
    /// What one controller tells another.
    Raft,
}

const METADATA_STREAM: &str = "metadata-stream";
const RAFT: &str = "raft";
const ANSWER: &str = "answer:";

impl fmt::Display for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Plane::Data => "data",
            Plane::Control => "control",
        })
    }
}

impl FromStr for Plane {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "data" => Ok(Plane::Data),
            "control" => Ok(Plane::Control),
            _ => bail!("no plane is called {text:?}; there are data and control"),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Request(key) => f.write_str(key.name()),
            Message::Answer(key) => write!(f, "{ANSWER}{}", key.name()),
            Message::MetadataStream => f.write_str(METADATA_STREAM),
            Message::Raft => f.write_str(RAFT),
        }
    }
}

impl FromStr for Message {
    type Err = anyhow::Error;

    /// `Fetch`, `answer:Fetch`, `metadata-stream` or `raft`; APIs by Kafka's names, in any case, and
    /// `heartbeat` for `BrokerHeartbeat` (members of groups send theirs on no link between nodes).
    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            METADATA_STREAM => Ok(Message::MetadataStream),
            RAFT => Ok(Message::Raft),
            "heartbeat" => Ok(Message::Request(ApiKey::BrokerHeartbeat)),
            lower => match lower.strip_prefix(ANSWER) {
                Some(name) => Ok(Message::Answer(api(name)?)),
                None => Ok(Message::Request(api(lower)?)),
            },
        }
    }
}

fn api(name: &str) -> Result<ApiKey> {
    let is_it = |key: &ApiKey| {
        key.name().eq_ignore_ascii_case(name) || key.kafka_name().eq_ignore_ascii_case(name)
    };
    match ApiKey::ALL.into_iter().find(is_it) {
        Some(key) => Ok(key),
        None => bail!(
            "no message is called {name:?}; there are Kafka's APIs (Fetch, AlterPartition, \
             BrokerHeartbeat, ...), {ANSWER}Fetch and the like, {METADATA_STREAM} and {RAFT}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_named_as_kafka_names_its_api_and_an_unknown_name_is_refused_with_the_known_ones()
     {
        let read = |text: &str| text.parse::<Message>();
        assert_eq!(
            read("alter_partition").expect("known"),
            Message::Request(ApiKey::AlterPartition)
        );
        assert_eq!(read("HEARTBEAT").expect("known"), Message::Request(ApiKey::BrokerHeartbeat));
        let others = ApiKey::ALL.into_iter().filter(|key| *key != ApiKey::Heartbeat);
        let all = others.flat_map(|key| [Message::Request(key), Message::Answer(key)]);
        for message in all.chain([Message::MetadataStream, Message::Raft]) {
            assert_eq!(read(&message.to_string()).expect("its own name"), message);
        }
        let error = read("answer:Fetsh").expect_err("unknown").to_string();
        assert!(error.contains("fetsh") && error.contains("AlterPartition"), "{error}");
    }
}
