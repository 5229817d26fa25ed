//! The node, its threads and the request log.

use std::time::Duration;

use replication::time::Instant;
use storage::Disk;
use tokio::runtime::RuntimeMetrics;

use crate::core::BrokerCore;
use crate::core::lifecycle::LifecycleState;
use crate::metrics::request_log::RequestLog;
use crate::metrics::text::{Labels, Page};

/// Kafka's numbers of a broker's states.
fn state_number(state: LifecycleState) -> i32 {
    match state {
        LifecycleState::Registering => 1,
        LifecycleState::Fenced => 2,
        LifecycleState::Running => 3,
        LifecycleState::Stopping => 6,
        LifecycleState::Stopped => 7,
    }
}

pub(in crate::metrics) fn add_info(page: &mut Page, node: &str, cluster_id: &str) {
    let version = env!("CARGO_PKG_VERSION");
    let labels = [("node_id", node), ("cluster_id", cluster_id), ("version", version)];
    page.gauges("highwater_node_info", "This node.", [(Labels::of(&labels), 1)]);
}

pub(in crate::metrics) fn add_broker<D: Disk>(page: &mut Page, core: &BrokerCore<D>) {
    page.gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 starting, 2 fenced, 3 running, 6 and 7 stopping.",
        state_number(core.lifecycle.state()),
    );
    page.gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        "The last offset of the metadata that this broker applied.",
        core.directory().offset().get(),
    );
}

pub(in crate::metrics) fn add_request_log(page: &mut Page, log: &RequestLog) {
    let (written, dropped) = log.counts();
    page.gauge("highwater_request_log_enabled", "Whether requests are logged.", log.is_on());
    page.counter("highwater_request_log_lines_total", "Requests logged.", written);
    page.counter(
        "highwater_request_log_dropped_total",
        "Lines of the request log that were dropped since writing them was too slow or failed.",
        dropped,
    );
}

/// How long the threads were busy up to a moment.
#[derive(Clone, Copy, Debug)]
pub struct BusySince {
    at: Instant,
    busy: Duration,
}

/// The idle part of the threads since the page before. One pool does the work of Kafka's network threads
/// and request handlers, so both metrics tell of it; nodes that share a process share it too.
pub(in crate::metrics) fn add_idle(
    page: &mut Page,
    runtime: &RuntimeMetrics,
    last: &mut Option<BusySince>,
    now: Instant,
) {
    let workers = runtime.num_workers();
    let busy = (0..workers).map(|worker| runtime.worker_total_busy_duration(worker)).sum();
    let since = last.replace(BusySince { at: now, busy });
    let since = since.unwrap_or(BusySince { at: Instant::ZERO, busy: Duration::ZERO });
    let available = now.since(since.at).as_secs_f64() * workers as f64;
    if available > 0.0 {
        let busy_part = busy.saturating_sub(since.busy).as_secs_f64() / available;
        let idle = (1.0 - busy_part).clamp(0.0, 1.0);
        let help = "The idle part of the node's threads since the last scrape.";
        page.gauge("kafka_network_socketserver_networkprocessoravgidlepercent", help, idle);
        let handlers = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent";
        page.gauge(handlers, help, idle);
        page.gauge(&format!("{handlers}_oneminuterate"), help, idle);
    }
}
