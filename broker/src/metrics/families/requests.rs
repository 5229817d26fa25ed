//! Requests by API. `Fetch` is told three times: those of consumers, those of followers, and both.

use protocol::ApiKey;
use replication::time::Instant;

use super::{ShownHistogram, add_histograms};
use crate::counting::Snapshot;
use crate::metrics::observer::Observer;
use crate::metrics::recent::RecentQuantiles;
use crate::metrics::requests::{KindNumbers, Measure, RequestKind};
use crate::metrics::text::{Labels, Page};

/// What of the recent past is kept between pages, by the request's name and the measure.
pub type RecentRequests = RecentQuantiles<(&'static str, Measure)>;

/// A kind of request as it is shown.
struct Shown {
    name: &'static str,
    versions: Vec<(i16, u64)>,
    errors: Vec<(&'static str, u64)>,
    measures: Vec<Snapshot>,
}

pub(in crate::metrics) fn add(
    page: &mut Page,
    observer: &Observer,
    recent: &mut RecentRequests,
    now: Instant,
) {
    let numbers = observer.requests.numbers();
    let shown = shown(&numbers);
    let of = |shown: &Shown| Labels::of(&[("request", shown.name)]);
    let requests: Vec<(Labels, u64)> = shown
        .iter()
        .flat_map(|shown| {
            let versions = shown.versions.iter();
            versions
                .map(|(version, count)| (of(shown).and("version", &version.to_string()), *count))
        })
        .collect();
    page.meters("kafka_network_requestmetrics_requests", "Requests that are over.", &requests);
    let errors: Vec<(Labels, u64)> = shown
        .iter()
        .flat_map(|shown| {
            let errors = shown.errors.iter();
            errors.map(|(error, count)| (of(shown).and("error", error), *count))
        })
        .collect();
    let help = "Errors in answers and their parts, success among them.";
    page.meters("kafka_network_requestmetrics_errors", help, &errors);
    for measure in Measure::ALL {
        add_measure(page, &shown, measure, recent, now);
    }
    add_sessions(page, &numbers);
}

/// What each measure is called, what it tells, and by what its numbers are divided.
fn facts(measure: Measure) -> (&'static str, &'static str, f64) {
    let prefix = |name| (name, 1000.0);
    let (name, divisor) = match measure {
        Measure::Total => prefix("kafka_network_requestmetrics_totaltimems"),
        Measure::Queue => prefix("kafka_network_requestmetrics_requestqueuetimems"),
        Measure::Local => prefix("kafka_network_requestmetrics_localtimems"),
        Measure::Remote => prefix("kafka_network_requestmetrics_remotetimems"),
        Measure::ResponseQueue => prefix("kafka_network_requestmetrics_responsequeuetimems"),
        Measure::Send => prefix("kafka_network_requestmetrics_responsesendtimems"),
        Measure::RequestBytes => ("kafka_network_requestmetrics_requestbytes", 1.0),
        Measure::ResponseBytes => ("highwater_request_response_bytes", 1.0),
    };
    let help = match measure {
        Measure::Total => "The whole time of requests, in milliseconds.",
        Measure::Queue => "Time from a request's arrival to its handler, in milliseconds.",
        Measure::Local => "Time within the handlers, in milliseconds.",
        Measure::Remote => {
            "Time of waiting for other brokers, for records or for deadlines, in milliseconds."
        }
        Measure::ResponseQueue => {
            "Time until an answer was taken up by its connection, in milliseconds."
        }
        Measure::Send => "Time of encoding and sending answers, in milliseconds.",
        Measure::RequestBytes => "Sizes of requests, in bytes.",
        Measure::ResponseBytes => "Sizes of answers, in bytes.",
    };
    (name, help, divisor)
}

fn add_measure(
    page: &mut Page,
    shown: &[Shown],
    measure: Measure,
    recent: &mut RecentRequests,
    now: Instant,
) {
    let (name, help, divisor) = facts(measure);
    let histograms = shown.iter().map(|shown| {
        let all = shown.measures[measure as usize].clone();
        let recent = recent.recent((shown.name, measure), &all, now);
        ShownHistogram { labels: Labels::of(&[("request", shown.name)]), all, recent }
    });
    add_histograms(page, name, help, divisor, &histograms.collect::<Vec<_>>());
}

fn shown(numbers: &[KindNumbers]) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for numbers in numbers {
        for name in names_of(numbers.kind) {
            match all.iter_mut().find(|shown| shown.name == name) {
                Some(shown) => shown.add(numbers),
                None => {
                    let mut shown = Shown {
                        name,
                        versions: Vec::new(),
                        errors: Vec::new(),
                        measures: vec![Snapshot::default(); Measure::ALL.len()],
                    };
                    shown.add(numbers);
                    all.push(shown);
                }
            }
        }
    }
    all
}

/// The names that a kind is shown under.
fn names_of(kind: RequestKind) -> impl Iterator<Item = &'static str> {
    let whose = match (kind.api_key, kind.from_follower) {
        (ApiKey::Fetch, true) => Some("FetchFollower"),
        (ApiKey::Fetch, false) => Some("FetchConsumer"),
        _ => None,
    };
    [kind.api_key.name()].into_iter().chain(whose)
}

impl Shown {
    fn add(&mut self, numbers: &KindNumbers) {
        add_counts(&mut self.versions, numbers.versions.iter().copied());
        let errors = numbers.errors.iter();
        add_counts(&mut self.errors, errors.map(|(error, count)| (error.kafka_name(), *count)));
        for (own, other) in self.measures.iter_mut().zip(&numbers.measures) {
            own.add(other);
        }
    }
}

fn add_counts<K: PartialEq>(counts: &mut Vec<(K, u64)>, more: impl Iterator<Item = (K, u64)>) {
    for (key, count) in more {
        match counts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => *sum += count,
            None => counts.push((key, count)),
        }
    }
}

fn add_sessions(page: &mut Page, numbers: &[KindNumbers]) {
    let sum = |incremental: bool, number: fn(&KindNumbers) -> u64| -> u64 {
        let fetches = numbers.iter().filter(|numbers| numbers.kind.api_key == ApiKey::Fetch);
        fetches.filter(|numbers| numbers.kind.is_incremental == incremental).map(number).sum()
    };
    let of = |number: fn(&KindNumbers) -> u64| {
        [("full", false), ("incremental", true)]
            .map(|(kind, is)| (Labels::of(&[("kind", kind)]), sum(is, number)))
    };
    page.counters(
        "highwater_fetch_session_requests_total",
        "Fetch requests that name every partition, and those that name what changed.",
        of(|numbers| numbers.measures[Measure::RequestBytes as usize].count()),
    );
    page.counters(
        "highwater_fetch_session_request_bytes_total",
        "Bytes of these requests.",
        of(|numbers| numbers.measures[Measure::RequestBytes as usize].sum()),
    );
    page.counters(
        "highwater_fetch_session_response_bytes_total",
        "Bytes of the answers to them.",
        of(|numbers| numbers.measures[Measure::ResponseBytes as usize].sum()),
    );
}
