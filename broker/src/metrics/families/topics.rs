//! Messages and bytes: Kafka's `BrokerTopicMetrics`, one series for all topics without a label and one
//! for each topic that has a replica here. For the traffic columns of kafka-ui the rates of bytes over
//! fifteen minutes are told in the one spelling that it looks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use replication::time::Instant;

use crate::core::counts::{ReplicaCounts, TopicTotals};
use crate::metrics::recent::DecayingRates;
use crate::metrics::text::{Labels, Page};

/// Rates of bytes by topic (none: all) and direction, kept between pages.
pub type ByteRates = DecayingRates<(Option<Arc<str>>, &'static str)>;

type Number = fn(&TopicTotals) -> u64;

const METERS: [(&str, &str, Number); 8] = [
    ("messagesin", "Records appended here as the leader.", |totals| totals.messages_in),
    ("bytesin", "Bytes of these records.", |totals| totals.bytes_in),
    ("bytesout", "Bytes given to consumers.", |totals| totals.bytes_out),
    ("bytesrejected", "Bytes of batches that were too large.", |totals| totals.bytes_rejected),
    ("totalproducerequests", "Partitions that producers wrote to.", |totals| {
        totals.produce_requests
    }),
    ("totalfetchrequests", "Partitions that consumers and followers read.", |totals| {
        totals.fetch_requests
    }),
    ("failedproducerequests", "Writes that failed unexpectedly.", |totals| {
        totals.failed_produce_requests
    }),
    ("failedfetchrequests", "Reads that failed unexpectedly.", |totals| {
        totals.failed_fetch_requests
    }),
];

const DIRECTIONS: [(&str, Number); 2] =
    [("BytesInPerSec", |totals| totals.bytes_in), ("BytesOutPerSec", |totals| totals.bytes_out)];

pub(in crate::metrics) fn add(
    page: &mut Page,
    counts: &ReplicaCounts,
    rates: &mut ByteRates,
    now: Instant,
    start: Instant,
) {
    let (topics, all) = counts.totals();
    for (name, help, number) in METERS {
        let of_topics =
            topics.iter().map(|(topic, totals)| (Labels::of(&[("topic", topic)]), number(totals)));
        let samples: Vec<_> =
            [(Labels::none(), number(&all))].into_iter().chain(of_topics).collect();
        page.meters(&format!("kafka_server_brokertopicmetrics_{name}"), help, &samples);
    }
    page.meter(
        "kafka_server_brokertopicmetrics_replicationbytesin",
        "Bytes appended here as a follower.",
        counts.replication_bytes_in.get(),
    );
    page.meter(
        "kafka_server_brokertopicmetrics_replicationbytesout",
        "Bytes given to followers.",
        counts.replication_bytes_out.get(),
    );
    add_rates(page, &topics, &all, rates, now, start);
}

fn add_rates(
    page: &mut Page,
    topics: &BTreeMap<Arc<str>, TopicTotals>,
    all: &TopicTotals,
    rates: &mut ByteRates,
    now: Instant,
    start: Instant,
) {
    rates.retain(|(topic, _)| topic.as_ref().is_none_or(|topic| topics.contains_key(topic)));
    let mut samples = Vec::new();
    for (direction, number) in DIRECTIONS {
        let rate = rates.rate((None, direction), number(all), now, start);
        samples.push((Labels::of(&[("name", direction)]), rate));
        for (topic, totals) in topics {
            let rate = rates.rate((Some(topic.clone()), direction), number(totals), now, start);
            samples.push((Labels::of(&[("name", direction), ("topic", topic)]), rate));
        }
    }
    page.gauges(
        "kafka_server_BrokerTopicMetrics_FifteenMinuteRate",
        "Bytes a second, over about fifteen minutes.",
        samples,
    );
}
