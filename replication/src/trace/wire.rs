//! How the fields of events are written as JSON: every newtype as its wire integer, a partition as
//! `topic-partition`, an id as base64. One `with` module serves every field.

use protocol::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicId, TopicPartition, Uuid,
};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserializer, Serialize, Serializer};

use super::Nodes;

/// A field that is written as something plainer.
pub(super) trait WireField: Sized {
    /// What is written.
    type Form: Serialize + DeserializeOwned;
    fn to_form(&self) -> Self::Form;
    /// `None` when the form cannot be read back.
    fn from_form(form: Self::Form) -> Option<Self>;
}

pub(super) fn serialize<T: WireField, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.to_form().serialize(serializer)
}

pub(super) fn deserialize<'de, T: WireField, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let form = <T::Form as serde::Deserialize>::deserialize(deserializer)?;
    T::from_form(form).ok_or_else(|| D::Error::custom("malformed field of a trace event"))
}

macro_rules! integers {
    ($($name:ident($inner:ty)),* $(,)?) => {
        $(impl WireField for $name {
            type Form = $inner;
            fn to_form(&self) -> $inner {
                self.get()
            }
            fn from_form(form: $inner) -> Option<Self> {
                Some($name(form))
            }
        })*
    };
}

integers! { NodeId(i32), Offset(i64), LeaderEpoch(i32), PartitionEpoch(i32), BrokerEpoch(i64) }

macro_rules! plain {
    ($($name:ty),* $(,)?) => {
        $(impl WireField for $name {
            type Form = $name;
            fn to_form(&self) -> $name {
                self.clone()
            }
            fn from_form(form: $name) -> Option<Self> {
                Some(form)
            }
        })*
    };
}

plain! { bool, i16, i32, i64, String }

impl WireField for Nodes {
    type Form = Vec<i32>;
    fn to_form(&self) -> Vec<i32> {
        self.0.iter().map(|id| id.get()).collect()
    }
    fn from_form(form: Vec<i32>) -> Option<Self> {
        Some(Nodes(form.into_iter().map(NodeId).collect()))
    }
}

impl WireField for TopicPartition {
    type Form = String;
    fn to_form(&self) -> String {
        self.to_string()
    }
    fn from_form(form: String) -> Option<Self> {
        let (topic, partition) = form.rsplit_once('-')?;
        Some(TopicPartition::new(topic, partition.parse().ok()?))
    }
}

impl WireField for TopicId {
    type Form = String;
    fn to_form(&self) -> String {
        self.to_base64()
    }
    fn from_form(form: String) -> Option<Self> {
        Uuid::from_base64(&form)
    }
}
