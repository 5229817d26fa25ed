//! The groups whose coordinator this broker is: by protocol and state, by the names of both of Kafka's
//! generations of metrics.

use crate::core::groups::GroupCensus;
use crate::metrics::text::{Labels, Page};

/// States of classic groups, with the ending of Kafka's metric for each.
const CLASSIC_STATES: [(&str, &str); 5] = [
    ("PreparingRebalance", "preparingrebalance"),
    ("CompletingRebalance", "completingrebalance"),
    ("Stable", "stable"),
    ("Dead", "dead"),
    ("Empty", "empty"),
];
const CONSUMER_STATES: [&str; 5] = ["Empty", "Assigning", "Reconciling", "Stable", "Dead"];

pub(in crate::metrics) fn add(page: &mut Page, census: &GroupCensus, offsets_committed: u64) {
    let of = |kind: &str, state: &str| {
        let groups = census.groups.iter();
        let found = groups.filter(|((known, named), _)| *known == kind && *named == state);
        found.map(|(_, count)| *count).sum::<u64>()
    };
    let all_of = |kind: &str| {
        let groups = census.groups.iter().filter(|((known, _), _)| *known == kind);
        groups.map(|(_, count)| *count).sum::<u64>()
    };
    let manager = "kafka_coordinator_group_groupmetadatamanager_numgroups";
    page.gauge(manager, "Classic groups coordinated here.", all_of("classic"));
    for (state, ending) in CLASSIC_STATES {
        let help = format!("Classic groups in the state {state}.");
        page.gauge(&format!("{manager}{ending}"), &help, of("classic", state));
    }
    let metrics = "kafka_server_group_coordinator_metrics";
    page.gauges(
        &format!("{metrics}_group_count"),
        "Groups coordinated here, by protocol.",
        ["classic", "consumer"].map(|kind| (Labels::of(&[("protocol", kind)]), all_of(kind))),
    );
    let states = CONSUMER_STATES.map(|state| {
        let label = state.to_ascii_lowercase();
        (Labels::of(&[("state", &label)]), of("consumer", state))
    });
    page.gauges(
        &format!("{metrics}_consumer_group_count"),
        "Groups of the consumer protocol, by state.",
        states,
    );
    page.gauges(
        &format!("{metrics}_num_partitions"),
        "Partitions of __consumer_offsets led here, by whether they answer yet.",
        [("active", census.active), ("loading", census.loading)]
            .map(|(state, count)| (Labels::of(&[("state", state)]), count)),
    );
    page.counter(
        &format!("{metrics}_offset_commit_count"),
        "Offsets committed.",
        offsets_committed,
    );
}
