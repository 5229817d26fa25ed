//! The fetch loops of this broker as a follower: what they fetched and how far behind they are.

use std::time::Duration;

use protocol::{NodeId, TopicPartition};
use replication::time::Instant;

use crate::metrics::recent::DecayingRates;
use crate::metrics::text::{Labels, Page};

/// One fetch loop at one moment.
#[derive(Clone, Debug)]
pub struct FetcherReport {
    /// Whom it pulls from.
    pub leader: NodeId,
    /// Which of the fetchers for that leader.
    pub fetcher_id: u32,
    /// Where the leader listens; `None` while that is not known.
    pub endpoint: Option<(String, u16)>,
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes of records fetched.
    pub bytes: u64,
    /// Partitions that it gave up until they are assigned anew.
    pub failed_partitions: usize,
    /// Whether it ended by itself.
    pub is_dead: bool,
    /// How many records each partition lacks; `None` before its first fetch.
    pub lags: Vec<(TopicPartition, Option<i64>)>,
}

/// Rates of requests by loop, kept between pages.
pub type FetchRates = DecayingRates<(NodeId, u32)>;

/// What the rates decay over: Kafka's least fetch rate is over one minute.
pub(in crate::metrics) fn fetch_rates() -> FetchRates {
    DecayingRates::over(Duration::from_secs(60))
}

pub(in crate::metrics) fn add(
    page: &mut Page,
    reports: &[FetcherReport],
    rates: &mut FetchRates,
    now: Instant,
    start: Instant,
) {
    let manager = |name: &str| format!("kafka_server_replicafetchermanager_{name}");
    let label = || Labels::of(&[("clientId", "Replica")]);
    let lags = reports.iter().flat_map(|report| &report.lags);
    let most = lags.filter_map(|(_, lag)| *lag).max().unwrap_or(0);
    let help = "How many records the partition that lacks most lacks.";
    page.gauges(&manager("maxlag"), help, [(label(), most)]);
    rates.retain(|(leader, id)| {
        reports.iter().any(|report| (report.leader, report.fetcher_id) == (*leader, *id))
    });
    let per_second = reports
        .iter()
        .map(|report| rates.rate((report.leader, report.fetcher_id), report.requests, now, start));
    let least = per_second.fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { 0.0 };
    let help = "Requests a second of the slowest fetcher, over about a minute.";
    page.gauges(&manager("minfetchrate"), help, [(label(), least)]);
    let failed: usize = reports.iter().map(|report| report.failed_partitions).sum();
    let help = "Partitions that are not fetched until they are assigned anew.";
    page.gauges(&manager("failedpartitionscount"), help, [(label(), failed)]);
    let dead = reports.iter().filter(|report| report.is_dead).count();
    page.gauges(&manager("deadthreadcount"), "Fetchers that failed.", [(label(), dead)]);
    add_each(page, reports);
}

fn add_each(page: &mut Page, reports: &[FetcherReport]) {
    let client = |report: &FetcherReport| {
        format!("ReplicaFetcherThread-{}-{}", report.fetcher_id, report.leader)
    };
    let of = |value: fn(&FetcherReport) -> u64| -> Vec<(Labels, u64)> {
        let known = reports.iter().filter_map(|report| {
            let (host, port) = report.endpoint.as_ref()?;
            let labels = Labels::of(&[
                ("clientId", &client(report)),
                ("brokerHost", host),
                ("brokerPort", &port.to_string()),
            ]);
            Some((labels, value(report)))
        });
        known.collect()
    };
    let stats = "kafka_server_fetcherstats";
    page.meters(&format!("{stats}_requests"), "Requests answered.", &of(|report| report.requests));
    page.meters(&format!("{stats}_bytes"), "Bytes of records fetched.", &of(|report| report.bytes));
    let lags = reports.iter().flat_map(|report| {
        let client = client(report);
        report.lags.iter().filter_map(move |(partition, lag)| {
            let labels = Labels::of(&[
                ("clientId", &client),
                ("topic", &partition.topic),
                ("partition", &partition.partition.to_string()),
            ]);
            Some((labels, (*lag)?))
        })
    });
    page.gauges(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records up to the leader's high watermark that this follower lacks.",
        lags.collect::<Vec<_>>(),
    );
}
