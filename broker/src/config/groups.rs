//! The group coordinator's settings: `group.*`, `offset.*` and `offsets.*`.

use std::time::Duration;

use coordinator::{MigrationPolicy, ShardConfig};
use protocol::records::{Codec, Compression};

use super::reader::Reader;
use crate::core::groups::GroupConfig;

/// Reads them all.
pub(super) fn read(reader: &mut Reader<'_>) -> GroupConfig {
    GroupConfig {
        shard: read_shard(reader),
        commit_timeout: reader.millis("offsets.commit.timeout.ms"),
        load_bytes: reader.size("offsets.load.buffer.size"),
        compression: read_compression(reader),
    }
}

fn read_shard(reader: &mut Reader<'_>) -> ShardConfig {
    let protocols = reader.list("group.coordinator.rebalance.protocols");
    let retention = reader.number("offsets.retention.minutes");
    ShardConfig {
        max_size: reader.size("group.max.size"),
        initial_rebalance_delay: reader.millis("group.initial.rebalance.delay.ms"),
        min_session_timeout: reader.millis("group.min.session.timeout.ms"),
        max_session_timeout: reader.millis("group.max.session.timeout.ms"),
        offset_metadata_max_bytes: reader.size("offset.metadata.max.bytes"),
        offsets_retention: Duration::from_secs(60 * retention.unsigned_abs()),
        offsets_retention_check_interval: reader.millis("offsets.retention.check.interval.ms"),
        consumer_protocol_enabled: protocols.iter().any(|name| name == "consumer"),
        migration_policy: read_policy(reader),
        consumer_max_size: reader.size("group.consumer.max.size"),
        consumer_assignors: reader.list("group.consumer.assignors"),
        consumer_session_timeout: reader.millis("group.consumer.session.timeout.ms"),
        consumer_min_session_timeout: reader.millis("group.consumer.min.session.timeout.ms"),
        consumer_max_session_timeout: reader.millis("group.consumer.max.session.timeout.ms"),
        consumer_heartbeat_interval: reader.millis("group.consumer.heartbeat.interval.ms"),
        consumer_min_heartbeat_interval: reader.millis("group.consumer.min.heartbeat.interval.ms"),
        consumer_max_heartbeat_interval: reader.millis("group.consumer.max.heartbeat.interval.ms"),
        consumer_assignment_interval: reader.millis("group.consumer.assignment.interval.ms"),
        consumer_min_assignment_interval: reader
            .millis("group.consumer.min.assignment.interval.ms"),
        consumer_max_assignment_interval: reader
            .millis("group.consumer.max.assignment.interval.ms"),
        consumer_regex_refresh_interval: reader.millis("group.consumer.regex.refresh.interval.ms"),
        ..ShardConfig::default()
    }
}

fn read_policy(reader: &mut Reader<'_>) -> MigrationPolicy {
    let text = reader.text("group.consumer.migration.policy").unwrap_or_default();
    match text.to_ascii_lowercase().as_str() {
        "disabled" => MigrationPolicy::Disabled,
        "upgrade" => MigrationPolicy::Upgrade,
        "downgrade" => MigrationPolicy::Downgrade,
        _ => MigrationPolicy::Bidirectional,
    }
}

fn read_compression(reader: &mut Reader<'_>) -> Codec {
    match reader.int("offsets.topic.compression.codec") {
        0 => Compression::None.into(),
        1 => Compression::Gzip.into(),
        2 => Compression::Snappy.into(),
        3 => Compression::Lz4.into(),
        4 => Compression::Zstd.into(),
        other => {
            reader.refuse(
                "offsets.topic.compression.codec",
                other.to_string(),
                "it must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)",
            );
            Codec::default()
        }
    }
}
