//! Seeing a node: Prometheus metrics at `/metrics` (`highwater.metrics.listener`) and the request log
//! (`highwater.request.log.enable`).
//!
//! What is counted is counted where it happens, in plain numbers ([`crate::counting`], [`crate::core::counts`],
//! the purgatories, the sessions); everything else is looked up when a page is made. Only this module
//! knows the names. The rules and the simulator know nothing of it.
//!
//! | file | what it holds |
//! |---|---|
//! | `observer.rs` | what the network tells of every request |
//! | `requests.rs` | requests by API: counts, errors, histograms |
//! | `request_log.rs` | the request log |
//! | `trace_counts.rs` | counts taken from the trace |
//! | `families/` | the metrics by name |
//! | `recent.rs` | quantiles and rates of the last minutes |
//! | `text.rs` | the text form |
//! | `http.rs` | the endpoint |
//! | `syncs.rs` | how long the disk takes |
//! | `process.rs` | the process as the system sees it |

mod families;
pub mod http;
mod observer;
mod process;
mod recent;
mod request_log;
mod requests;
pub mod syncs;
mod text;
mod trace_counts;

use std::sync::{Arc, Weak};
use std::time::Duration;

use controller::rpc::{ControllerHandle, MonotonicClock};
use protocol::NodeId;
use replication::time::Instant;
use storage::Disk;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OnceCell};

use crate::core::BrokerCore;
use families::controller::ControllerFacts;
use families::node::BusySince;
use families::requests::RecentRequests;
use families::topics::ByteRates;
use recent::RecentQuantiles;
use text::Page;

pub use families::fetchers::FetcherReport;
pub use observer::{Ended, ListenerCounters, Observed, Observer};
pub use request_log::RequestLog;
pub use requests::Times;
pub use trace_counts::{CountedTrace, Teller, TraceNumbers};

/// How long a page waits for the controller.
const CONTROLLER_PATIENCE: Duration = Duration::from_secs(2);
/// Kafka's fifteen-minute rates.
const FIFTEEN_MINUTES: Duration = Duration::from_secs(15 * 60);

/// Tells what the fetch loops are at.
pub type FetcherReports = Arc<dyn Fn() -> Vec<FetcherReport> + Send + Sync>;

/// The broker's part of a page.
pub struct BrokerSource<D: Disk> {
    /// The broker; gone when the node stops.
    pub core: Weak<BrokerCore<D>>,
    /// Its fetch loops.
    pub fetchers: FetcherReports,
}

/// Where a page comes from.
pub struct Sources<D: Disk> {
    /// The node.
    pub node: NodeId,
    /// The node's cluster.
    pub cluster_id: String,
    /// The node's clock.
    pub clock: MonotonicClock,
    /// What the network tells.
    pub observer: Arc<Observer>,
    /// What the trace tells.
    pub trace: Arc<TraceNumbers>,
    /// The broker, once it is started, if the node is one.
    pub broker: OnceCell<BrokerSource<D>>,
    /// The controller, likewise.
    pub controller: OnceCell<ControllerHandle>,
}

/// What is kept from page to page.
struct Kept {
    requests: RecentRequests,
    bytes: ByteRates,
    fetches: families::fetchers::FetchRates,
    busy: Option<BusySince>,
    syncs: RecentQuantiles<()>,
}

/// Makes pages, one at a time.
pub struct Exporter<D: Disk> {
    sources: Arc<Sources<D>>,
    started: Instant,
    kept: Arc<Mutex<Kept>>,
}

impl<D: Disk> Exporter<D> {
    /// An exporter of these sources.
    pub fn new(sources: Arc<Sources<D>>) -> Self {
        let kept = Kept {
            requests: RecentRequests::default(),
            bytes: ByteRates::over(FIFTEEN_MINUTES),
            fetches: families::fetchers::fetch_rates(),
            busy: None,
            syncs: RecentQuantiles::default(),
        };
        let started = sources.clock.now().monotonic;
        Self { sources, started, kept: Arc::new(Mutex::new(kept)) }
    }

    /// The page as it is now. It is made on a thread that may wait for partitions' locks.
    pub async fn page(&self) -> String {
        let mut kept = Arc::clone(&self.kept).lock_owned().await;
        let controller = match self.sources.controller.get() {
            Some(handle) => Some(look_at_controller(handle).await),
            None => None,
        };
        let runtime = Handle::current().metrics();
        let (sources, started) = (Arc::clone(&self.sources), self.started);
        let made = tokio::task::spawn_blocking(move || {
            let now = sources.clock.now().monotonic;
            let mut page = Page::default();
            families::node::add_info(&mut page, &sources.node.to_string(), &sources.cluster_id);
            if let Some(broker) = sources.broker.get()
                && let Some(core) = broker.core.upgrade()
            {
                add_broker(&mut page, &sources, broker, &core, &mut kept, Moment { now, started });
            }
            if let Some(facts) = &controller {
                families::controller::add(&mut page, facts, &sources.trace);
            }
            families::node::add_idle(&mut page, &runtime, &mut kept.busy, now);
            process::add(&mut page);
            page.finish()
        });
        made.await.unwrap_or_else(|error| {
            tracing::error!(%error, "making a page of metrics failed");
            String::new()
        })
    }
}

/// When a page is made, and since when pages are.
#[derive(Clone, Copy)]
struct Moment {
    now: Instant,
    started: Instant,
}

async fn look_at_controller(handle: &ControllerHandle) -> ControllerFacts {
    let status = *handle.status().borrow();
    let image = tokio::time::timeout(CONTROLLER_PATIENCE, handle.image()).await;
    ControllerFacts { status, image: image.ok().and_then(Result::ok) }
}

fn add_broker<D: Disk>(
    page: &mut Page,
    sources: &Sources<D>,
    broker: &BrokerSource<D>,
    core: &BrokerCore<D>,
    kept: &mut Kept,
    moment: Moment,
) {
    let Moment { now, started } = moment;
    let observer = &sources.observer;
    families::node::add_broker(page, core);
    families::network::add(page, observer);
    families::requests::add(page, observer, &mut kept.requests, now);
    families::topics::add(page, core.replicas.counts(), &mut kept.bytes, now, started);
    let partitions = families::partitions::look(&core.replicas, now);
    families::replicas::add(page, core, &partitions, &sources.trace, now);
    families::replicas::add_syncs(page, &mut kept.syncs, now);
    families::partitions::add(page, &partitions);
    families::fetchers::add(page, &(broker.fetchers)(), &mut kept.fetches, now, started);
    families::groups::add(page, &core.groups.census(), observer.offsets_committed.get());
    families::node::add_request_log(page, &observer.log);
}
