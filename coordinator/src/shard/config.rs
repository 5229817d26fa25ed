//! The broker's settings for groups, as plain values. Defaults are Kafka's.

use std::time::Duration;

/// `group.consumer.migration.policy`: whether a group may change its protocol while it has members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationPolicy {
    /// Never.
    Disabled,
    /// A classic group becomes a consumer group when a member joins it with the new protocol.
    Upgrade,
    /// A consumer group becomes a classic one when the last member of the new protocol leaves.
    Downgrade,
    /// Both.
    Bidirectional,
}

impl MigrationPolicy {
    /// Whether a classic group with members may become a consumer group.
    pub fn upgrades(self) -> bool {
        matches!(self, MigrationPolicy::Upgrade | MigrationPolicy::Bidirectional)
    }

    /// Whether a consumer group with classic members may become a classic one.
    pub fn downgrades(self) -> bool {
        matches!(self, MigrationPolicy::Downgrade | MigrationPolicy::Bidirectional)
    }
}

/// What the broker's config says about groups. Each field names its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardConfig {
    /// `group.max.size`: members of a classic group.
    pub max_size: usize,
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`
    pub min_session_timeout: Duration,
    /// `group.max.session.timeout.ms`
    pub max_session_timeout: Duration,
    /// How long a member id that was handed out with MEMBER_ID_REQUIRED stays good, and a joined
    /// member may be silent before its first heartbeat. Kafka has no key for it.
    pub new_member_timeout: Duration,
    /// `offset.metadata.max.bytes`
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`
    pub offsets_retention_check_interval: Duration,
    /// Whether `group.coordinator.rebalance.protocols` names `consumer`.
    pub consumer_protocol_enabled: bool,
    /// `group.consumer.migration.policy`
    pub migration_policy: MigrationPolicy,
    /// `group.consumer.max.size`
    pub consumer_max_size: usize,
    /// `group.consumer.assignors`, the first one being the default.
    pub consumer_assignors: Vec<String>,
    /// `group.consumer.session.timeout.ms`
    pub consumer_session_timeout: Duration,
    /// `group.consumer.min.session.timeout.ms`
    pub consumer_min_session_timeout: Duration,
    /// `group.consumer.max.session.timeout.ms`
    pub consumer_max_session_timeout: Duration,
    /// `group.consumer.heartbeat.interval.ms`
    pub consumer_heartbeat_interval: Duration,
    /// `group.consumer.min.heartbeat.interval.ms`
    pub consumer_min_heartbeat_interval: Duration,
    /// `group.consumer.max.heartbeat.interval.ms`
    pub consumer_max_heartbeat_interval: Duration,
    /// `group.consumer.assignment.interval.ms`
    pub consumer_assignment_interval: Duration,
    /// `group.consumer.min.assignment.interval.ms`
    pub consumer_min_assignment_interval: Duration,
    /// `group.consumer.max.assignment.interval.ms`
    pub consumer_max_assignment_interval: Duration,
    /// `group.consumer.regex.refresh.interval.ms`
    pub consumer_regex_refresh_interval: Duration,
}

impl Default for ShardConfig {
    fn default() -> ShardConfig {
        let ms = Duration::from_millis;
        ShardConfig {
            max_size: i32::MAX as usize,
            initial_rebalance_delay: ms(3000),
            min_session_timeout: ms(6000),
            max_session_timeout: ms(1_800_000),
            new_member_timeout: ms(300_000),
            offset_metadata_max_bytes: 4096,
            offsets_retention: Duration::from_secs(10080 * 60),
            offsets_retention_check_interval: ms(600_000),
            consumer_protocol_enabled: true,
            migration_policy: MigrationPolicy::Bidirectional,
            consumer_max_size: i32::MAX as usize,
            consumer_assignors: vec!["uniform".to_owned(), "range".to_owned()],
            consumer_session_timeout: ms(45_000),
            consumer_min_session_timeout: ms(45_000),
            consumer_max_session_timeout: ms(60_000),
            consumer_heartbeat_interval: ms(5000),
            consumer_min_heartbeat_interval: ms(5000),
            consumer_max_heartbeat_interval: ms(15_000),
            consumer_assignment_interval: ms(1000),
            consumer_min_assignment_interval: ms(0),
            consumer_max_assignment_interval: ms(15_000),
            consumer_regex_refresh_interval: ms(600_000),
        }
    }
}
