//! How requests fare, by API: how many of which version, which errors, how long each part of their way
//! took, how large they were. Kafka's `RequestMetrics`.
//!
//! Numbers lie in shards, one picked by the connection, so that connections on different threads seldom
//! share a cache line. A kind of request that nobody sends takes no room.
//!
//! | part | from | to |
//! |---|---|---|
//! | queue | the frame is there | its handler is called: the time to decode it |
//! | local | that | the handler returns |
//! | remote | that | the answer is given; 0 when it was given before |
//! | response queue | that | the connection's task takes it up |
//! | send | that | the last byte is written |

use std::array;
use std::sync::OnceLock;
use std::time::Duration;

use protocol::{ApiKey, ErrorCode};

use crate::counting::{Counter, Histogram, Snapshot};

/// Shards of each kind of request.
const SHARDS: usize = 4;
/// No API has a version as high as this.
const VERSIONS: usize = 32;
/// No API has a key as high as this; the other kinds of fetches have the places after.
const KEYS: usize = 128;
/// Places for all kinds of requests.
const PLACES: usize = KEYS + 3;
/// Error codes from -1 on; no code is as high as this.
const ERRORS: usize = 192;

/// What kind of request: its API, and of a fetch who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestKind {
    /// The API.
    pub api_key: ApiKey,
    /// Whether it is the fetch of a follower.
    pub from_follower: bool,
    /// Whether it is a fetch that names only what changed in its session (KIP-227).
    pub is_incremental: bool,
}

impl RequestKind {
    fn place(self) -> usize {
        match (self.from_follower, self.is_incremental) {
            (false, false) => {}
            (false, true) => return KEYS,
            (true, false) => return KEYS + 1,
            (true, true) => return KEYS + 2,
        }
        usize::try_from(self.api_key.to_i16()).map_or(KEYS - 1, |key| key.min(KEYS - 1))
    }
}

/// How long each part of a request's way took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Before the handler was called.
    pub queue: Duration,
    /// Within the handler.
    pub local: Duration,
    /// Until the answer was given.
    pub remote: Duration,
    /// Until it was taken up.
    pub response_queue: Duration,
    /// Until its last byte was written.
    pub send: Duration,
}

impl Times {
    /// All parts together.
    pub fn total(&self) -> Duration {
        self.queue + self.local + self.remote + self.response_queue + self.send
    }
}

/// The histograms of a kind of request: times in microseconds, sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Measure {
    /// The whole way.
    Total,
    /// See [`Times::queue`].
    Queue,
    /// See [`Times::local`].
    Local,
    /// See [`Times::remote`].
    Remote,
    /// See [`Times::response_queue`].
    ResponseQueue,
    /// See [`Times::send`].
    Send,
    /// The request's frame.
    RequestBytes,
    /// The answer's frame.
    ResponseBytes,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 8] = [
        Measure::Total,
        Measure::Queue,
        Measure::Local,
        Measure::Remote,
        Measure::ResponseQueue,
        Measure::Send,
        Measure::RequestBytes,
        Measure::ResponseBytes,
    ];
}

#[derive(Debug)]
struct Shard {
    successes: Counter,
    versions: [Counter; VERSIONS],
    measures: [Histogram; Measure::ALL.len()],
}

#[derive(Debug)]
struct OfKind {
    shards: [Shard; SHARDS],
    errors: [Counter; ERRORS],
}

impl OfKind {
    fn new() -> Box<Self> {
        let shard = |_| Shard {
            successes: Counter::default(),
            versions: array::from_fn(|_| Counter::default()),
            measures: array::from_fn(|_| Histogram::default()),
        };
        Box::new(Self {
            shards: array::from_fn(shard),
            errors: array::from_fn(|_| Counter::default()),
        })
    }
}

/// One request that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// What kind it was.
    pub kind: RequestKind,
    /// Its version.
    pub version: i16,
    /// How long it took.
    pub times: Times,
    /// Bytes of its frame.
    pub request_bytes: usize,
    /// Bytes of its answer, or of as much of it as was sent; 0 without one.
    pub response_bytes: u64,
}

/// The numbers of one kind of request at one moment.
#[derive(Clone, Debug)]
pub struct KindNumbers {
    /// Which.
    pub kind: RequestKind,
    /// How many of each version.
    pub versions: Vec<(i16, u64)>,
    /// How many of each error, success among them.
    pub errors: Vec<(ErrorCode, u64)>,
    /// In the order of [`Measure::ALL`].
    pub measures: Vec<Snapshot>,
}

/// The requests of a server.
#[derive(Debug)]
pub struct RequestMetrics {
    kinds: [OnceLock<Box<OfKind>>; PLACES],
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self { kinds: array::from_fn(|_| OnceLock::new()) }
    }
}

impl RequestMetrics {
    /// A request of `connection` is over; its answer and the parts of it told of so many successes.
    pub fn record(&self, connection: u64, finished: &Finished, successes: u64) {
        let of_kind = self.of(finished.kind);
        let shard = &of_kind.shards[connection as usize % SHARDS];
        let version = usize::try_from(finished.version).unwrap_or(0).min(VERSIONS - 1);
        shard.versions[version].add(1);
        if successes > 0 {
            shard.successes.add(successes);
        }
        let times = &finished.times;
        let parts = [
            (Measure::Total, times.total()),
            (Measure::Queue, times.queue),
            (Measure::Local, times.local),
            (Measure::Remote, times.remote),
            (Measure::ResponseQueue, times.response_queue),
            (Measure::Send, times.send),
        ];
        for (measure, time) in parts {
            shard.measures[measure as usize].record(time.as_micros() as u64);
        }
        shard.measures[Measure::RequestBytes as usize].record(finished.request_bytes as u64);
        shard.measures[Measure::ResponseBytes as usize].record(finished.response_bytes);
    }

    /// An answer, or a part of one, told of the error `code`.
    pub fn record_error(&self, kind: RequestKind, code: i16) {
        let place = usize::try_from(code + 1).unwrap_or(0).min(ERRORS - 1);
        self.of(kind).errors[place].add(1);
    }

    fn of(&self, kind: RequestKind) -> &OfKind {
        self.kinds[kind.place()].get_or_init(OfKind::new)
    }

    /// The numbers of every kind of request that came so far.
    pub fn numbers(&self) -> Vec<KindNumbers> {
        let plain = ApiKey::ALL.iter().map(|key| (*key, false, false));
        let fetches = [(false, true), (true, false), (true, true)];
        let kinds =
            plain.chain(fetches.map(|(follower, changes)| (ApiKey::Fetch, follower, changes)));
        let kinds = kinds.map(|(api_key, from_follower, is_incremental)| RequestKind {
            api_key,
            from_follower,
            is_incremental,
        });
        kinds.filter_map(|kind| Some(numbers_of(kind, self.kinds[kind.place()].get()?))).collect()
    }
}

fn numbers_of(kind: RequestKind, of_kind: &OfKind) -> KindNumbers {
    let mut measures = vec![Snapshot::default(); Measure::ALL.len()];
    let mut versions = [0; VERSIONS];
    let mut successes = 0;
    for shard in &of_kind.shards {
        successes += shard.successes.get();
        for (sum, version) in versions.iter_mut().zip(&shard.versions) {
            *sum += version.get();
        }
        for (snapshot, histogram) in measures.iter_mut().zip(&shard.measures) {
            histogram.add_to(snapshot);
        }
    }
    let errors = (-1..).zip(&of_kind.errors).map(|(code, count)| (code, count.get()));
    let errors = errors.chain([(0, successes)]);
    KindNumbers {
        kind,
        versions: (0..).zip(versions).filter(|(_, count)| *count > 0).collect(),
        errors: errors
            .filter(|(_, count)| *count > 0)
            .map(|(code, count)| (ErrorCode::from_code(code), count))
            .collect(),
        measures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_version_and_error_has_a_place_of_its_own() {
        for key in ApiKey::ALL {
            assert!((0..KEYS as i16 - 1).contains(&key.to_i16()), "{key:?}");
            assert!((*key.served_versions().end() as usize) < VERSIONS - 1, "{key:?}");
        }
        for error in ErrorCode::ALL {
            assert!((-1..ERRORS as i16 - 2).contains(&error.code()), "{error:?}");
        }
    }

    #[test]
    fn requests_of_all_connections_are_summed_by_kind_version_and_error() {
        let metrics = RequestMetrics::default();
        let fetch = |from_follower, is_incremental| RequestKind {
            api_key: ApiKey::Fetch,
            from_follower,
            is_incremental,
        };
        let kind = fetch(false, false);
        let times = Times {
            queue: Duration::from_micros(1),
            local: Duration::from_micros(10),
            remote: Duration::from_micros(100),
            response_queue: Duration::from_micros(1000),
            send: Duration::from_micros(10_000),
        };
        for connection in 0..10 {
            let finished =
                Finished { kind, version: 12, times, request_bytes: 100, response_bytes: 7 };
            metrics.record(connection, &finished, 2);
        }
        metrics.record_error(kind, -1);
        metrics.record_error(fetch(true, false), 74);
        metrics.record_error(fetch(true, true), 6);
        let told = metrics.numbers();
        let kinds: Vec<RequestKind> = told.iter().map(|told| told.kind).collect();
        assert_eq!(kinds, [kind, fetch(true, false), fetch(true, true)]);
        assert_eq!(told[0].versions, [(12, 10)]);
        let errors = [(ErrorCode::UnknownServerError, 1), (ErrorCode::None, 20)];
        assert_eq!(told[0].errors, errors);
        let sums: Vec<u64> = told[0].measures.iter().map(Snapshot::sum).collect();
        assert_eq!(sums, [111_110, 10, 100, 1000, 10_000, 100_000, 1000, 70]);
        assert_eq!(told[1].errors, [(ErrorCode::FencedLeaderEpoch, 1)]);
    }
}
