//! The fetch loops of this broker. The core's orders are carried out one after the other on a task of
//! their own, removals before additions (T10): the core may give them from inside a fetcher's append,
//! which must not wait for itself. An append that slips in meanwhile is refused by the replica, whose
//! role has changed already.

use std::collections::BTreeMap;
use std::sync::Arc;

use fetcher::host::{ConnectionConfig, Fetcher, FetcherEnvironment};
use fetcher::{FetcherConfig, FetcherCore, FetcherKey, FetcherManager, Follow};
use parking_lot::Mutex;
use protocol::{BrokerEpoch, NodeId, TopicIdPartition};
use replication::time::Instant;
use storage::Disk;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::core::BrokerCore;
use crate::core::host::{FetcherLink, FollowedPartition};
use crate::core::replicas::ReplicaManager;
use crate::metrics::FetcherReport;

/// An order of the core.
pub(super) struct Change {
    stop: Vec<TopicIdPartition>,
    start: Vec<FollowedPartition>,
}

/// Takes the core's orders to the task that carries them out.
pub(super) struct RealFetcherLink(pub(super) mpsc::UnboundedSender<Change>);

impl FetcherLink for RealFetcherLink {
    fn change(&self, stop: Vec<TopicIdPartition>, start: Vec<FollowedPartition>) {
        // Refused only when the node stops: then nobody fetches anyway.
        let _ = self.0.send(Change { stop, start });
    }
}

/// What the loops need of the broker around them.
pub(super) struct Environment<D: Disk> {
    core: Arc<BrokerCore<D>>,
    listener: String,
}

impl<D: Disk> FetcherEnvironment for Environment<D> {
    fn endpoint(&self, node: NodeId) -> Option<(String, u16)> {
        let (host, port) = self.core.directory().endpoint(node, &self.listener)?;
        Some((host.to_string(), port))
    }

    fn broker_epoch(&self) -> BrokerEpoch {
        self.core.lifecycle.epoch()
    }

    fn now(&self) -> Instant {
        self.core.host.clock.now().monotonic
    }
}

/// Settings of all fetchers.
#[derive(Clone, Debug)]
pub(super) struct FetcherSettings {
    pub(super) fetcher: FetcherConfig,
    pub(super) connection: ConnectionConfig,
    pub(super) fetchers_per_leader: u32,
    pub(super) inter_broker_listener: String,
}

type RealFetcher<D> = Fetcher<ReplicaManager<D>, Environment<D>>;

struct Running<D: Disk> {
    fetcher: Arc<RealFetcher<D>>,
    environment: Arc<Environment<D>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The fetch loops that run.
pub(super) struct FetcherBoard<D: Disk>(Mutex<BTreeMap<FetcherKey, Running<D>>>);

impl<D: Disk> Default for FetcherBoard<D> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<D: Disk> FetcherBoard<D> {
    /// What each of them is at.
    pub(super) fn reports(&self) -> Vec<FetcherReport> {
        let running = self.0.lock();
        running.iter().map(|(key, running)| report(*key, running)).collect()
    }
}

fn report<D: Disk>(key: FetcherKey, running: &Running<D>) -> FetcherReport {
    let counts = running.fetcher.counts();
    let (failed_partitions, lags) = running.fetcher.inspect(|core| {
        let lags = core.partitions();
        let lags = lags.map(|state| (state.partition.topic_partition.clone(), state.lag));
        (core.failed_count(), lags.collect())
    });
    FetcherReport {
        leader: key.leader,
        fetcher_id: key.fetcher_id,
        endpoint: running.environment.endpoint(key.leader),
        requests: counts.requests(),
        bytes: counts.bytes(),
        failed_partitions,
        is_dead: running.task.is_finished(),
        lags,
    }
}

/// Carries out the core's orders until the sending side is gone.
pub(super) async fn run<D: Disk>(
    core: Arc<BrokerCore<D>>,
    settings: FetcherSettings,
    mut changes: mpsc::UnboundedReceiver<Change>,
    board: Arc<FetcherBoard<D>>,
) {
    let environment = Arc::new(Environment {
        core: core.clone(),
        listener: settings.inter_broker_listener.clone(),
    });
    let mut manager = FetcherManager::new(settings.fetchers_per_leader);
    while let Some(change) = changes.recv().await {
        let plan = manager.unfollow(&change.stop);
        carry_out(&core, &environment, &settings, &mut board.0.lock(), plan);
        let follows = change.start.into_iter().map(|followed| Follow {
            partition: followed.partition,
            leader: followed.leader,
            leader_epoch: followed.leader_epoch,
        });
        let plan = manager.follow(follows);
        carry_out(&core, &environment, &settings, &mut board.0.lock(), plan);
    }
    for (_, ended) in std::mem::take(&mut *board.0.lock()) {
        let _ = ended.stop.send(true);
    }
}

fn carry_out<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    environment: &Arc<Environment<D>>,
    settings: &FetcherSettings,
    running: &mut BTreeMap<FetcherKey, Running<D>>,
    plan: fetcher::Plan,
) {
    for (key, partitions) in &plan.removals {
        if let Some(found) = running.get(key) {
            found.fetcher.remove_partitions(partitions);
        }
    }
    for (key, assignments) in plan.additions {
        let found = running.entry(key).or_insert_with(|| {
            let fetcher = Fetcher::new(
                FetcherCore::new(key.leader, key.fetcher_id, settings.fetcher),
                core.replicas.clone(),
                environment.clone(),
                settings.connection.clone(),
            );
            let (stop, stopped) = watch::channel(false);
            let task = tokio::spawn(fetcher.clone().run(stopped));
            Running { fetcher, environment: environment.clone(), stop, task }
        });
        found.fetcher.add_partitions(assignments);
    }
    for key in plan.idle {
        if let Some(ended) = running.remove(&key) {
            let _ = ended.stop.send(true);
        }
    }
}
