//! Checks between keys, as Kafka 4.4 makes them when it starts.

use super::broker_config::BrokerConfig;
use super::reader::Reader;
use super::report::ConfigWarning;

/// Adds what is wrong to the reader's errors, and what is only odd to the warnings.
pub(super) fn check(
    config: &BrokerConfig,
    reader: &mut Reader<'_>,
    warnings: &mut Vec<ConfigWarning>,
) {
    check_quorum(config, reader);
    check_replication(config, reader);
    check_log(config, reader);
    check_sockets(config, reader);
    check_heartbeat(config, warnings);
}

fn check_quorum(config: &BrokerConfig, reader: &mut Reader<'_>) {
    let (voters, id) = (&config.quorum.voters, config.node_id);
    let ids = voters.iter().map(|voter| voter.id.to_string()).collect::<Vec<_>>().join(",");
    let is_voter = voters.iter().any(|voter| voter.id == id);
    let twice = voters
        .iter()
        .enumerate()
        .find(|(index, voter)| voters[..*index].iter().any(|earlier| earlier.id == voter.id));
    if let Some((_, voter)) = twice {
        reader.refuse(
            "controller.quorum.voters",
            &ids,
            format!("node {} is named twice", voter.id),
        );
    }
    if voters.is_empty() && config.roles.controller {
        reader.refuse(
            "controller.quorum.voters",
            "",
            "a node with the controller role needs every controller named as id@host:port, itself included",
        );
    } else if voters.is_empty() && config.quorum.bootstrap_servers.is_empty() {
        reader.refuse(
            "controller.quorum.voters",
            "",
            "the controllers must be named here as id@host:port, or in controller.quorum.bootstrap.servers as host:port",
        );
    }
    if voters.is_empty() {
        return;
    }
    if config.roles.controller && !is_voter {
        reader.refuse(
            "controller.quorum.voters",
            &ids,
            format!("it must contain node.id {id}, since this node has the controller role"),
        );
    } else if config.roles.broker && !config.roles.controller && is_voter {
        reader.refuse(
            "controller.quorum.voters",
            &ids,
            format!(
                "it must not contain node.id {id}, since this node has not the controller role"
            ),
        );
    }
}

fn check_replication(config: &BrokerConfig, reader: &mut Reader<'_>) {
    let replication = &config.replication;
    let wait = replication.fetch_wait_max.as_millis();
    if replication.fetch_wait_max > replication.lag_time_max {
        let lag = replication.lag_time_max.as_millis();
        reader.conflict(format!(
            "replica.fetch.wait.max.ms ({wait}) must be at most replica.lag.time.max.ms ({lag}), or followers that wait leave the ISR"
        ));
    }
    if replication.fetch_wait_max > replication.socket_timeout {
        let timeout = replication.socket_timeout.as_millis();
        reader.conflict(format!(
            "replica.socket.timeout.ms ({timeout}) must be at least replica.fetch.wait.max.ms ({wait}), or waiting fetches time out"
        ));
    }
}

fn check_log(config: &BrokerConfig, reader: &mut Reader<'_>) {
    if config.log.dirs.is_empty() {
        reader.refuse("log.dirs", "", "it must name at least one directory");
    }
    for (key, lowest) in [("log.roll.ms", 1), ("log.roll.jitter.ms", 0)] {
        if let Some(number) = reader.optional_number(key).filter(|number| *number < lowest) {
            reader.refuse(key, number.to_string(), format!("it must be at least {lowest}"));
        }
    }
    // The finest unit that is set decides; below zero is no limit.
    let retention = ["log.retention.ms", "log.retention.minutes", "log.retention.hours"];
    let decides = retention.into_iter().find(|key| reader.optional_number(key).is_some());
    if let Some(key) = decides.filter(|key| reader.number(key) == 0) {
        reader.refuse(key, "0", "it must be at least 1, or -1 for no limit");
    }
}

fn check_sockets(config: &BrokerConfig, reader: &mut Reader<'_>) {
    let limits = &config.network.limits;
    if limits.per_ip == 0 && limits.per_ip_overrides.is_empty() {
        reader.refuse(
            "max.connections.per.ip",
            "0",
            "it may be 0 only where max.connections.per.ip.overrides lets somebody in",
        );
    }
    let queued = reader.number("queued.max.request.bytes");
    let frame = config.network.max_request_bytes as i64;
    if queued > 0 && queued < frame {
        reader.conflict(format!(
            "queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes ({frame}), or at most 0"
        ));
    }
}

fn check_heartbeat(config: &BrokerConfig, warnings: &mut Vec<ConfigWarning>) {
    let liveness = &config.liveness;
    if liveness.heartbeat_interval * 2 > liveness.session_timeout {
        let (interval, timeout) =
            (liveness.heartbeat_interval.as_millis(), liveness.session_timeout.as_millis());
        warnings.push(ConfigWarning::Advice(format!(
            "broker.heartbeat.interval.ms ({interval}) should be at most half of broker.session.timeout.ms ({timeout}): a broker that is late with one heartbeat is fenced"
        )));
    }
}
