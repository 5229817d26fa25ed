//! Metrics and the request log of a node: what they need is made before anything else starts, the port
//! bound among it, and they serve once the node does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use controller::ClusterImage;
use controller::rpc::{ControllerHost, MonotonicClock};
use protocol::NodeId;
use storage::RealDisk;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::errors::StartError;
use super::fetchers::FetcherBoard;
use super::node::NodeOptions;
use crate::config::BrokerConfig;
use crate::core::BrokerCore;
use crate::core::settings::{StaticConfigs, broker_layers};
use crate::metrics::{
    BrokerSource, CountedTrace, Exporter, Observer, RequestLog, Sources, Teller, TraceNumbers,
    http, syncs,
};

const LOG_ENABLED: &str = "highwater.request.log.enable";
/// How long the end of a node waits for the last lines of the request log.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// What sees a node.
pub(super) struct Observing {
    node: NodeId,
    /// Whether metrics are served: otherwise nothing is counted that costs anything.
    has_metrics: bool,
    sources: Arc<Sources<RealDisk>>,
}

impl Observing {
    /// Everything that does not need the node.
    pub(super) fn prepare(
        config: &BrokerConfig,
        cluster_id: &str,
        clock: MonotonicClock,
    ) -> Result<Arc<Self>, StartError> {
        let seeing = &config.seeing;
        let path = seeing.request_log_file.as_deref();
        let log = RequestLog::open(path).map_err(|source| StartError::RequestLog {
            path: path.unwrap_or("stderr".as_ref()).to_owned(),
            source,
        })?;
        log.set_on(seeing.log_requests && config.roles.broker);
        let has_metrics = seeing.metrics_listener.is_some();
        if has_metrics {
            storage::watch_syncs(syncs::record);
        }
        let sources = Sources {
            node: config.node_id,
            cluster_id: cluster_id.to_owned(),
            clock,
            observer: Arc::new(Observer::new(has_metrics, log)),
            trace: Arc::new(TraceNumbers::default()),
            broker: OnceCell::new(),
            controller: OnceCell::new(),
        };
        Ok(Arc::new(Self { node: config.node_id, has_metrics, sources: Arc::new(sources) }))
    }

    /// The node's options with a counter before the trace, if anybody can see the counts.
    pub(super) fn counting(&self, teller: Teller, options: &NodeOptions) -> NodeOptions {
        let mut options = options.clone();
        if self.has_metrics {
            let numbers = self.sources.trace.clone();
            options.trace = Arc::new(CountedTrace::new(teller, numbers, options.trace));
        }
        options
    }

    /// Binds the metrics' port.
    pub(super) async fn bind(
        &self,
        config: &BrokerConfig,
    ) -> Result<Option<TcpListener>, StartError> {
        let Some(address) = &config.seeing.metrics_listener else {
            return Ok(None);
        };
        let bound = http::bind(&address.host, address.port).await;
        let told = |source| StartError::MetricsListen { address: address.to_string(), source };
        bound.map(Some).map_err(told)
    }

    /// What the network tells of requests.
    pub(super) fn observer(&self) -> Arc<Observer> {
        self.sources.observer.clone()
    }

    /// The broker is there.
    pub(super) fn see_broker(
        &self,
        core: &Arc<BrokerCore<RealDisk>>,
        board: &Arc<FetcherBoard<RealDisk>>,
    ) {
        let board = Arc::downgrade(board);
        let fetchers = Arc::new(move || board.upgrade().map_or(Vec::new(), |all| all.reports()));
        let source = BrokerSource { core: Arc::downgrade(core), fetchers };
        // Set once, in the one start of a node.
        let _ = self.sources.broker.set(source);
    }

    /// Committed metadata is applied: the request log may be wanted, or not any more.
    pub(super) fn on_metadata(&self, image: &ClusterImage, static_configs: &StaticConfigs) {
        let value = broker_layers(image, self.node, static_configs).broker_value(LOG_ENABLED);
        let wanted = value.and_then(|value| value.as_bool()).unwrap_or(false);
        if wanted != self.sources.observer.log.is_on() {
            self.sources.observer.log.set_on(wanted);
        }
    }

    /// Begins to serve the metrics, if there is a port for them.
    pub(super) fn serve(
        &self,
        listener: Option<TcpListener>,
        controller: Option<&ControllerHost>,
    ) -> Option<Endpoint> {
        let listener = listener?;
        let address = listener.local_addr().ok()?;
        if let Some(controller) = controller {
            let _ = self.sources.controller.set(controller.handle());
        }
        let exporter = Arc::new(Exporter::new(self.sources.clone()));
        let render: Arc<http::Render> = Arc::new(move || {
            let exporter = exporter.clone();
            Box::pin(async move { exporter.page().await })
        });
        tracing::info!("metrics at http://{address}/metrics");
        Some(Endpoint { address, task: tokio::spawn(http::serve(listener, render)) })
    }

    /// Waits until what was logged so far is written, but not for long.
    pub(super) async fn flush(&self) {
        let observer = self.observer();
        let flushed = tokio::task::spawn_blocking(move || observer.log.flush());
        let _ = tokio::time::timeout(FLUSH_PATIENCE, flushed).await;
    }
}

/// The metrics' endpoint; dropping it stops it.
pub(super) struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}
