//! What a topic's configs mean for one of its partitions, resolved from the layers topic, dynamic
//! broker, static broker, default.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::config::ConfigLayers;
use controller::{ClusterImage, ConfigResource};
use protocol::NodeId;
use protocol::records::{Codec, Compression, ProduceRules, ReadLimits, TimestampType};
use replication::partition::PartitionSettings;
use storage::LogConfig;

/// The static configs of a broker by key, as the properties file and environment gave them.
pub type StaticConfigs = BTreeMap<String, String>;

/// A topic's configs as values.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicSettings {
    /// For the log.
    pub log: LogConfig,
    /// For the rules of replication.
    pub partition: PartitionSettings,
    /// For what producers send; `now` and `produce_version` are filled in per request.
    pub produce: ProduceRules,
}

/// Reads a topic's configs.
#[derive(Debug)]
pub struct SettingsReader<'a> {
    layers: ConfigLayers<'a>,
    image: &'a ClusterImage,
    replica_lag_time_max: Duration,
}

impl<'a> SettingsReader<'a> {
    /// A reader over what the image and the node's own file say.
    pub fn new(
        image: &'a ClusterImage,
        node: NodeId,
        static_configs: &'a StaticConfigs,
        replica_lag_time_max: Duration,
    ) -> Self {
        let layers = broker_layers(image, node, static_configs);
        Self { layers, image, replica_lag_time_max }
    }

    /// The settings of `topic`.
    pub fn topic(&self, topic: &str) -> TopicSettings {
        let configs = self.image.configs(&ConfigResource::topic(topic));
        let value = |key: &str| self.layers.topic_value(key, configs);
        let number = |key: &str, default: i64| {
            value(key).and_then(|value| value.as_i64()).unwrap_or(default)
        };
        let policies = value("cleanup.policy");
        let has_policy = |wanted: &str| {
            policies
                .as_ref()
                .and_then(|value| value.as_list())
                .is_some_and(|list| list.iter().any(|policy| policy == wanted))
        };
        let defaults = LogConfig::default();
        let max_message_bytes =
            usize::try_from(number("max.message.bytes", 1_048_588)).unwrap_or(usize::MAX);
        let log = LogConfig {
            segment_bytes: u32::try_from(number("segment.bytes", 1 << 30)).unwrap_or(u32::MAX),
            segment_ms: number("segment.ms", defaults.segment_ms),
            segment_jitter_ms: number("segment.jitter.ms", 0),
            segment_index_bytes: usize::try_from(number("segment.index.bytes", 10 << 20))
                .unwrap_or(defaults.segment_index_bytes),
            index_interval_bytes: u32::try_from(number("index.interval.bytes", 4096))
                .unwrap_or(defaults.index_interval_bytes),
            max_message_bytes,
            retention_ms: number("retention.ms", defaults.retention_ms),
            retention_bytes: number("retention.bytes", defaults.retention_bytes),
            delete: has_policy("delete"),
            compact: has_policy("compact"),
            min_cleanable_dirty_ratio: value("min.cleanable.dirty.ratio")
                .and_then(|value| value.as_f64())
                .unwrap_or(defaults.min_cleanable_dirty_ratio),
            min_compaction_lag_ms: number("min.compaction.lag.ms", 0),
            max_compaction_lag_ms: number("max.compaction.lag.ms", i64::MAX),
            delete_retention_ms: number("delete.retention.ms", defaults.delete_retention_ms),
            file_delete_delay: milliseconds(number("file.delete.delay.ms", 60_000)),
            flush_messages: number("flush.messages", i64::MAX),
            flush_ms: number("flush.ms", i64::MAX),
            producer_id_expiration: defaults.producer_id_expiration,
        };
        let min_insync_replicas =
            usize::try_from(number("min.insync.replicas", 1)).unwrap_or(1).max(1);
        let is_log_append_time = value("message.timestamp.type")
            .is_some_and(|value| value.as_str() == Some("LogAppendTime"));
        let produce = ProduceRules {
            timestamp_type: if is_log_append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            timestamp_before_max_ms: number("message.timestamp.before.max.ms", i64::MAX),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms", 3_600_000),
            compacted: has_policy("compact"),
            max_message_bytes,
            limits: ReadLimits::default(),
            compression: value("compression.type")
                .and_then(|value| value.as_str().and_then(|name| codec(name, &number))),
            ..ProduceRules::default()
        };
        TopicSettings {
            log,
            partition: PartitionSettings {
                min_insync_replicas,
                replica_lag_time_max: self.replica_lag_time_max,
            },
            produce,
        }
    }
}

/// What the image and the node's own file say about the configs of `node`.
pub fn broker_layers<'a>(
    image: &'a ClusterImage,
    node: NodeId,
    static_configs: &'a StaticConfigs,
) -> ConfigLayers<'a> {
    ConfigLayers {
        dynamic_broker: image.configs(&ConfigResource::broker(node)),
        dynamic_default: image.configs(&ConfigResource::default_broker()),
        static_broker: Some(static_configs),
    }
}

/// The codec that `compression.type` demands; `None` for `producer`.
fn codec(name: &str, number: &dyn Fn(&str, i64) -> i64) -> Option<Codec> {
    let (compression, level_key) = match name {
        "uncompressed" => (Compression::None, None),
        "gzip" => (Compression::Gzip, Some("compression.gzip.level")),
        "snappy" => (Compression::Snappy, None),
        "lz4" => (Compression::Lz4, Some("compression.lz4.level")),
        "zstd" => (Compression::Zstd, Some("compression.zstd.level")),
        _ => return None,
    };
    let _level = level_key.map(|key| number(key, -1));
    Some(Codec::from(compression))
}

fn milliseconds(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or(0))
}
