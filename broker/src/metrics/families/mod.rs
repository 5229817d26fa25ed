//! The metrics themselves, by what they tell of. Names and labels are those that Kafka's MBeans get from
//! the usual JMX exporter rules; what Kafka has no name for begins with `highwater_`.
//!
//! | file | what it tells |
//! |---|---|
//! | `node.rs` | the node, its process and threads, the request log |
//! | `network.rs` | connections, bytes by the way they took |
//! | `requests.rs` | requests by API: counts, errors, times, sizes; fetch sessions' bytes |
//! | `topics.rs` | messages and bytes by topic |
//! | `replicas.rs` | the replica manager: counts, purgatories, sessions, log directories, cleaner |
//! | `partitions.rs` | every partition and its log |
//! | `fetchers.rs` | the fetch loops of this broker as a follower |
//! | `controller.rs` | the cluster as a controller sees it, and the quorum |
//! | `groups.rs` | the groups whose coordinator this broker is |

pub(super) mod controller;
pub(super) mod fetchers;
pub(super) mod groups;
pub(super) mod network;
pub(super) mod node;
pub(super) mod partitions;
pub(super) mod replicas;
pub(super) mod requests;
pub(super) mod topics;

use crate::counting::Snapshot;
use crate::metrics::text::{Labels, Page};

/// The quantiles that Kafka's histograms tell.
const QUANTILES: [(&str, f64); 6] = [
    ("0.50", 0.5),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.98", 0.98),
    ("0.99", 0.99),
    ("0.999", 0.999),
];

/// A histogram as it is shown.
struct ShownHistogram {
    labels: Labels,
    /// Everything so far.
    all: Snapshot,
    /// What came lately.
    recent: Snapshot,
}

/// Histograms of one name: quantiles of what came lately, and how many and how much in all. What was
/// counted is divided by `divisor`.
fn add_histograms(
    page: &mut Page,
    name: &str,
    help: &str,
    divisor: f64,
    histograms: &[ShownHistogram],
) {
    let quantiles = histograms.iter().flat_map(|shown| {
        QUANTILES.map(|(label, quantile)| {
            let value = shown.recent.quantile(quantile);
            let value = value.map_or(f64::NAN, |value| value / divisor);
            (shown.labels.and("quantile", label), value)
        })
    });
    page.gauges(name, &format!("{help} Quantiles of the last minutes."), quantiles);
    let counts = histograms.iter().map(|shown| (shown.labels.clone(), shown.all.count()));
    page.counters(&format!("{name}_count"), &format!("{help} How many."), counts);
    let sums =
        histograms.iter().map(|shown| (shown.labels.clone(), shown.all.sum() as f64 / divisor));
    page.counters(&format!("{name}_sum"), &format!("{help} Their sum."), sums);
}
