//! Connections and bytes on the broker's listeners.

use crate::metrics::observer::{ListenerCounters, Observer};
use crate::metrics::text::{Labels, Page};

pub(in crate::metrics) fn add(page: &mut Page, observer: &Observer) {
    let listeners = observer.listeners();
    let of = |value: fn(&ListenerCounters) -> u64| -> Vec<(Labels, u64)> {
        let listeners = listeners.iter();
        listeners
            .map(|(name, counters)| (Labels::of(&[("listener", name)]), value(counters)))
            .collect()
    };
    let prefix = "kafka_server_socketservermetrics_connection";
    page.gauges(
        &format!("{prefix}_count"),
        "Connections open now.",
        of(|counters| counters.open.get()),
    );
    page.counters(
        &format!("{prefix}_creation_total"),
        "Connections accepted.",
        of(|counters| counters.accepted.get()),
    );
    page.counters(
        &format!("{prefix}_close_total"),
        "Connections closed again, by either side.",
        of(|counters| counters.closed.get()),
    );
    page.counters(
        "highwater_connections_refused_total",
        "Connections closed at once because their address had too many.",
        of(|counters| counters.refused.get()),
    );
    let network = &observer.network;
    page.counter(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "Connections closed because nothing moved on them for too long.",
        network.connections_expired.get(),
    );
    let by_sendfile = network.bytes_sent_by_sendfile.get();
    let by_write = network.bytes_sent_by_write.get();
    page.counters(
        "highwater_network_sent_bytes_total",
        "Bytes sent to clients and followers: from file to socket in the kernel, or written from memory.",
        [("sendfile", by_sendfile), ("write", by_write)]
            .map(|(way, bytes)| (Labels::of(&[("way", way)]), bytes)),
    );
    page.counter(
        "highwater_network_received_bytes_total",
        "Bytes received from clients and followers.",
        network.bytes_received.get(),
    );
    page.counter(
        "highwater_requests_refused_total",
        "Connections closed because of what the client sent.",
        network.requests_refused.get(),
    );
    page.counter(
        "highwater_send_disk_errors_total",
        "Answers that broke off because the disk failed.",
        network.disk_errors.get(),
    );
}
