//! What configs belong to, and where a value can come from.

use std::fmt;
use std::sync::Arc;

use protocol::types::NodeId;

/// Kafka's kinds of config resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigResourceType {
    /// A topic, by name.
    Topic,
    /// A broker by id, or every broker when the name is empty.
    Broker,
    /// A broker's loggers.
    BrokerLogger,
    /// A subscription of client metrics.
    ClientMetrics,
    /// A consumer group.
    Group,
}

impl ConfigResourceType {
    /// The wire value.
    pub fn code(self) -> i8 {
        match self {
            ConfigResourceType::Topic => 2,
            ConfigResourceType::Broker => 4,
            ConfigResourceType::BrokerLogger => 8,
            ConfigResourceType::ClientMetrics => 16,
            ConfigResourceType::Group => 32,
        }
    }

    /// From the wire value.
    pub fn from_code(code: i8) -> Option<Self> {
        match code {
            2 => Some(ConfigResourceType::Topic),
            4 => Some(ConfigResourceType::Broker),
            8 => Some(ConfigResourceType::BrokerLogger),
            16 => Some(ConfigResourceType::ClientMetrics),
            32 => Some(ConfigResourceType::Group),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigResourceType::Topic => "TOPIC",
            ConfigResourceType::Broker => "BROKER",
            ConfigResourceType::BrokerLogger => "BROKER_LOGGER",
            ConfigResourceType::ClientMetrics => "CLIENT_METRICS",
            ConfigResourceType::Group => "GROUP",
        })
    }
}

/// What a set of configs belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigResource {
    /// The kind.
    pub kind: ConfigResourceType,
    /// The topic's name, the broker's id as text, or empty for every broker.
    pub name: Arc<str>,
}

impl ConfigResource {
    /// The configs of a topic.
    pub fn topic(name: impl Into<Arc<str>>) -> Self {
        ConfigResource { kind: ConfigResourceType::Topic, name: name.into() }
    }

    /// The dynamic configs of one broker.
    pub fn broker(id: NodeId) -> Self {
        ConfigResource { kind: ConfigResourceType::Broker, name: id.to_string().into() }
    }

    /// The dynamic defaults of every broker.
    pub fn default_broker() -> Self {
        ConfigResource { kind: ConfigResourceType::Broker, name: "".into() }
    }
}

/// Where a config's value comes from, as DescribeConfigs tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigSource {
    /// Set for the topic.
    DynamicTopic,
    /// Set at run time for the one broker.
    DynamicBroker,
    /// Set at run time for all brokers.
    DynamicDefaultBroker,
    /// From the broker's properties.
    StaticBroker,
    /// The key's default.
    Default,
    /// Set for the subscription of client metrics.
    DynamicClientMetrics,
    /// Set for the group.
    DynamicGroup,
}

impl ConfigSource {
    /// The wire value.
    pub fn code(self) -> i8 {
        match self {
            ConfigSource::DynamicTopic => 1,
            ConfigSource::DynamicBroker => 2,
            ConfigSource::DynamicDefaultBroker => 3,
            ConfigSource::StaticBroker => 4,
            ConfigSource::Default => 5,
            ConfigSource::DynamicClientMetrics => 7,
            ConfigSource::DynamicGroup => 8,
        }
    }
}
