//! What the network tells of every request, and to whom it goes: the numbers for metrics and the request
//! log. With both off, a request costs one look at a flag.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::ApiKey;
use protocol::messages::{RequestBody, ResponseBody};

use super::request_log::{Draft, RequestLog};
use super::requests::{Finished, RequestKind, RequestMetrics, Times};
use crate::counting::Counter;
use crate::network::{NetworkCounters, RequestContext};

/// The connections of one listener.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// Accepted so far.
    pub accepted: Counter,
    /// Closed at once because their address had too many.
    pub refused: Counter,
    /// Open now.
    pub open: Counter,
    /// Closed again, by either side.
    pub closed: Counter,
}

/// Sees every request of a server.
#[derive(Debug, Default)]
pub struct Observer {
    /// Whether requests are counted.
    counts: bool,
    /// What the network moved.
    pub network: Arc<NetworkCounters>,
    /// Requests by API.
    pub requests: RequestMetrics,
    /// Offsets that consumers committed.
    pub offsets_committed: Counter,
    /// The request log.
    pub log: RequestLog,
    listeners: Mutex<BTreeMap<Arc<str>, Arc<ListenerCounters>>>,
}

/// What is remembered of a request until it is over.
#[derive(Debug)]
pub struct Observed {
    kind: RequestKind,
    version: i16,
    request_bytes: usize,
    connection: u64,
    draft: Option<Box<Draft>>,
}

/// How a request ended.
#[derive(Debug)]
pub struct Ended<'a> {
    /// How long it took.
    pub times: Times,
    /// The answer, if there was one.
    pub response: Option<&'a ResponseBody>,
    /// Bytes of it that were sent.
    pub response_bytes: u64,
}

impl Observer {
    /// An observer with a request log, that counts or does not.
    pub fn new(counts: bool, log: RequestLog) -> Self {
        Self { counts, log, ..Self::default() }
    }

    /// The counters of a listener.
    pub fn listener(&self, name: &Arc<str>) -> Arc<ListenerCounters> {
        self.listeners.lock().entry(name.clone()).or_default().clone()
    }

    /// The counters of every listener.
    pub fn listeners(&self) -> Vec<(Arc<str>, Arc<ListenerCounters>)> {
        let listeners = self.listeners.lock();
        listeners.iter().map(|(name, counters)| (name.clone(), counters.clone())).collect()
    }

    /// Whether anybody wants to know of requests.
    pub fn is_on(&self) -> bool {
        self.counts || self.log.is_on()
    }

    /// A request is about to be handled.
    pub fn begin(&self, context: &RequestContext, body: &RequestBody) -> Observed {
        let (from_follower, is_incremental) = match body {
            RequestBody::Fetch(fetch) => {
                let replica = fetch.replica_id.max(fetch.replica_state.replica_id);
                // 0 opens a session, -1 closes it or does without.
                (replica >= 0, fetch.session_epoch > 0)
            }
            _ => (false, false),
        };
        Observed {
            kind: RequestKind { api_key: context.api_key, from_follower, is_incremental },
            version: context.api_version,
            request_bytes: context.size_bytes,
            connection: context.connection.id,
            draft: self.log.is_on().then(|| Box::new(Draft::new(context, body))),
        }
    }

    /// It is over.
    pub fn end(&self, observed: Observed, ended: &Ended<'_>) {
        if self.counts {
            self.count(&observed, ended);
        }
        if let Some(draft) = observed.draft {
            self.log.write(&draft, ended);
        }
    }

    fn count(&self, observed: &Observed, ended: &Ended<'_>) {
        let Observed { kind, version, request_bytes, .. } = *observed;
        let finished = Finished {
            kind,
            version,
            times: ended.times,
            request_bytes,
            response_bytes: ended.response_bytes,
        };
        let mut successes = 0;
        if let Some(response) = ended.response {
            response.visit_errors(&mut |code| match code {
                0 => successes += 1,
                code => self.requests.record_error(kind, code),
            });
        }
        self.requests.record(observed.connection, &finished, successes);
        if kind.api_key == ApiKey::OffsetCommit {
            self.offsets_committed.add(successes);
        }
    }
}
