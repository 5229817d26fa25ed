//! The nouns of replication as types of their own, so that two epochs, or an offset and an id,
//! cannot be swapped. Every newtype is a thin wrapper over the integer that Kafka puts on the wire.

use std::fmt;
use std::sync::Arc;

macro_rules! wire_newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The wire value.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            #[inline]
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl From<$name> for $inner {
            #[inline]
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

wire_newtype! {
    /// The id of a broker or controller node (`node.id`). -1 means "no node".
    NodeId(i32)
}
wire_newtype! {
    /// A position in a partition's log, counted in records. An end offset is exclusive.
    Offset(i64)
}
wire_newtype! {
    /// The term of a partition's leader. Grows by one with every election; -1 means "not known".
    LeaderEpoch(i32)
}
wire_newtype! {
    /// Version of a partition's whole state at the controller (leader, ISR, replicas).
    PartitionEpoch(i32)
}
wire_newtype! {
    /// Names one registration of a broker; a restart gets a larger one (KIP-903). -1 means "not known".
    BrokerEpoch(i64)
}
wire_newtype! {
    /// An idempotent or transactional producer's id. -1 means "none".
    ProducerId(i64)
}
wire_newtype! {
    /// Fences older instances of the same producer id. -1 means "none".
    ProducerEpoch(i16)
}
wire_newtype! {
    /// A fetch session's id (KIP-227); 0 means "no session".
    SessionId(i32)
}
wire_newtype! {
    /// A fetch session's epoch; 0 opens a session, -1 closes it.
    SessionEpoch(i32)
}

impl NodeId {
    /// "No node": an unknown leader, or the replica id of an ordinary consumer.
    pub const NONE: NodeId = NodeId(-1);
}

impl Offset {
    /// The first offset of every log.
    pub const ZERO: Offset = Offset(0);
    /// "No offset", as error answers carry it.
    pub const NONE: Offset = Offset(-1);

    /// How many records lie between `earlier` and here; negative when `earlier` is later.
    #[inline]
    pub const fn distance_from(self, earlier: Offset) -> i64 {
        self.0 - earlier.0
    }

    /// The offset after this one.
    #[inline]
    pub const fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

impl std::ops::Add<i64> for Offset {
    type Output = Offset;
    #[inline]
    fn add(self, records: i64) -> Offset {
        Offset(self.0 + records)
    }
}

impl std::ops::Sub<i64> for Offset {
    type Output = Offset;
    #[inline]
    fn sub(self, records: i64) -> Offset {
        Offset(self.0 - records)
    }
}

impl LeaderEpoch {
    /// "No epoch": the request does not ask for the check, or nothing was ever fetched.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl BrokerEpoch {
    /// "Not known": only from versions that do not carry it.
    pub const NONE: BrokerEpoch = BrokerEpoch(-1);
}

impl ProducerId {
    /// A batch without a producer id.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// A batch without a producer epoch.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl SessionId {
    /// A fetch outside any session.
    pub const NONE: SessionId = SessionId(0);
}

impl SessionEpoch {
    /// Opens a new session.
    pub const INITIAL: SessionEpoch = SessionEpoch(0);
    /// Closes the session, or asks for none.
    pub const FINAL: SessionEpoch = SessionEpoch(-1);

    /// The epoch that must follow: 1 after `i32::MAX` (never 0), -1 after a negative one (rule S01).
    #[must_use]
    pub const fn next(self) -> SessionEpoch {
        if self.0 < 0 {
            SessionEpoch::FINAL
        } else if self.0 == i32::MAX {
            SessionEpoch(1)
        } else {
            SessionEpoch(self.0 + 1)
        }
    }
}

/// A topic's 128-bit id (KIP-516), also used for directory ids. Shown in Kafka's URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero bits: "no id".
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// Whether this is the id that means "none".
    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }

    /// Kafka's text form: 22 characters of URL-safe base64 without padding.
    pub fn to_base64(&self) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(22);
        for chunk in self.0.chunks(3) {
            let word = chunk
                .iter()
                .enumerate()
                .fold(0u32, |word, (i, byte)| word | u32::from(*byte) << (16 - 8 * i));
            for i in 0..=chunk.len() {
                text.push(char::from(ALPHABET[(word >> (18 - 6 * i)) as usize & 63]));
            }
        }
        text
    }

    /// Reads Kafka's text form; `None` when it is not 22 characters of URL-safe base64.
    pub fn from_base64(text: &str) -> Option<Uuid> {
        if text.len() != 22 {
            return None;
        }
        let mut bits: u128 = 0;
        for (i, character) in text.bytes().enumerate() {
            let value = match character {
                b'A'..=b'Z' => character - b'A',
                b'a'..=b'z' => character - b'a' + 26,
                b'0'..=b'9' => character - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return None,
            };
            // 22 characters carry 132 bits; the last four are padding.
            bits = if i < 21 {
                bits << 6 | u128::from(value)
            } else {
                bits << 2 | u128::from(value >> 4)
            };
        }
        Some(Uuid(bits.to_be_bytes()))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

/// A topic's id; the same 16 bytes as any [`Uuid`].
pub type TopicId = Uuid;

/// A partition by its topic's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index in its topic, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for TopicPartition {
    /// `topic-partition`, the name of the partition's folder as well.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A partition by id and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicIdPartition {
    /// The topic's id; zero when the request named the topic and the id is not known.
    pub topic_id: TopicId,
    /// The topic's name and the partition's index.
    pub topic_partition: TopicPartition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_back_from_its_base64_form() {
        let uuid = Uuid(*b"0123456789abcdef");
        assert_eq!(uuid.to_base64().len(), 22);
        assert_eq!(Uuid::from_base64(&uuid.to_base64()), Some(uuid));
        assert_eq!(Uuid::from_base64("not base64 not base64!"), None);
    }

    #[test]
    fn session_epochs_wrap_to_one() {
        assert_eq!(SessionEpoch(i32::MAX).next(), SessionEpoch(1));
        assert_eq!(SessionEpoch(-1).next(), SessionEpoch(-1));
        assert_eq!(SessionEpoch(0).next(), SessionEpoch(1));
    }
}
