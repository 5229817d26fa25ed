//! The intervals of a consumer group: the broker's, or the group's own within the broker's bounds.

use std::time::Duration;

use crate::shard::Scope;

/// How long a member may be silent.
pub(super) fn session_timeout(scope: &Scope<'_>, group: &str) -> Duration {
    of_group(
        scope,
        group,
        "consumer.session.timeout.ms",
        scope.config.consumer_session_timeout,
        scope.config.consumer_min_session_timeout,
        scope.config.consumer_max_session_timeout,
    )
}

/// How often members are told to send heartbeats.
pub(super) fn heartbeat_interval(scope: &Scope<'_>, group: &str) -> Duration {
    of_group(
        scope,
        group,
        "consumer.heartbeat.interval.ms",
        scope.config.consumer_heartbeat_interval,
        scope.config.consumer_min_heartbeat_interval,
        scope.config.consumer_max_heartbeat_interval,
    )
}

/// How long a target assignment stands at least.
pub(super) fn assignment_interval(scope: &Scope<'_>, group: &str) -> Duration {
    of_group(
        scope,
        group,
        "consumer.assignment.interval.ms",
        scope.config.consumer_assignment_interval,
        scope.config.consumer_min_assignment_interval,
        scope.config.consumer_max_assignment_interval,
    )
}

fn of_group(
    scope: &Scope<'_>,
    group: &str,
    key: &str,
    of_broker: Duration,
    least: Duration,
    most: Duration,
) -> Duration {
    scope
        .topics
        .group_config(group, key)
        .and_then(|text| text.trim().parse().ok())
        .map_or(of_broker, |ms| Duration::from_millis(ms).min(most).max(least))
}

/// Milliseconds as the wire has them.
pub(super) fn to_ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Milliseconds from the wire; a negative value is none.
pub(super) fn from_ms(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
