//! The broker without its host: everything that decides, shared by the real host and the simulator.
//! No async, no sockets, no clocks, no threads of its own.
//!
//! The host feeds it three things: requests ([`BrokerCore::handle`]), committed metadata
//! ([`BrokerCore::on_metadata`]) and time ([`BrokerCore::on_tick`]). What it wants of the host is in
//! [`host`].

pub mod counts;
pub mod directory;
pub mod groups;
pub mod host;
pub mod internal_topics;
pub mod lifecycle;
pub mod producer_ids;
pub mod replicas;
pub mod settings;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use controller::{ClusterImage, ImageDelta};
use parking_lot::Mutex;
use protocol::{NodeId, Offset, RequestBody, ResponseBody};
use replication::time::Instant;
use storage::Disk;

use crate::handlers;
use directory::Directory;
use groups::{GroupConfig, GroupCoordinator};
use host::Host;
use lifecycle::{BrokerLifecycle, LifecycleState};
use producer_ids::ProducerIds;
use replicas::{Parked, ReplicaManager};

/// What the handlers obey of the broker's configuration.
#[derive(Clone, Debug)]
pub struct HandlerConfig {
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `num.partitions`, for topics made by themselves.
    pub num_partitions: i32,
    /// `default.replication.factor`, likewise.
    pub default_replication_factor: i16,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub offsets_topic_replication_factor: i16,
    /// `transaction.state.log.num.partitions`.
    pub transaction_topic_partitions: i32,
    /// `transaction.state.log.replication.factor`.
    pub transaction_topic_replication_factor: i16,
    /// `max.request.partition.size.limit`.
    pub max_request_partitions: i32,
    /// The group coordinator's.
    pub groups: GroupConfig,
    /// `request.timeout.ms`: how long the controller may take over a forwarded request.
    pub request_timeout: std::time::Duration,
}

/// How a request ends.
#[derive(Debug)]
pub enum Outcome {
    /// With an answer.
    Answer(ResponseBody),
    /// Without any byte: acks=0.
    NoResponse,
    /// With the end of the connection: an error with acks=0.
    Close,
}

/// Takes the outcome of a request. Called once, from any thread.
pub type Responder = Box<dyn FnOnce(Outcome) + Send>;

/// Tells whether the client that waits for an answer is gone.
pub trait ClientGone: Send + Sync {
    /// Calls `callback` when the client goes, or at once if it is gone.
    fn on_gone(&self, callback: Box<dyn FnOnce() + Send>);
}

/// Where a request came from and what its header says.
pub struct CallContext {
    /// The version of the request and its answer.
    pub api_version: i16,
    /// The client's name for itself.
    pub client_id: Option<String>,
    /// The listener it came in on.
    pub listener: Arc<str>,
    /// The client's address without its port.
    pub peer: String,
    /// Frees what waits on behalf of a client that is gone (P05).
    pub gone: Box<dyn ClientGone>,
}

impl CallContext {
    /// Has `parked` cancelled when the client goes.
    pub fn cancel_with_client(&self, parked: Option<Parked>) {
        if let Some(parked) = parked {
            self.gone.on_gone(Box::new(move || parked.cancel()));
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("api_version", &self.api_version)
            .field("client_id", &self.client_id)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// One broker.
#[derive(Debug)]
pub struct BrokerCore<D: Disk> {
    /// The broker's id.
    pub node: NodeId,
    /// The cluster's id.
    pub cluster_id: String,
    /// What the handlers obey.
    pub config: HandlerConfig,
    /// The world outside.
    pub host: Host,
    /// The partitions.
    pub replicas: Arc<ReplicaManager<D>>,
    /// Registration and heartbeats.
    pub lifecycle: Arc<BrokerLifecycle>,
    /// The groups of the partitions of `__consumer_offsets` that this broker leads.
    pub groups: Arc<GroupCoordinator<D>>,
    /// Producer ids handed out.
    pub producer_ids: Arc<ProducerIds>,
    /// Topics that the controller is being asked to create on demand.
    pub(crate) creating_topics: Arc<Mutex<BTreeSet<String>>>,
    strays_removed: Mutex<bool>,
    /// Whether the metadata has ever reached this run's own registration.
    joined: Mutex<bool>,
}

impl<D: Disk> BrokerCore<D> {
    /// A broker over its parts.
    pub fn new(
        cluster_id: String,
        config: HandlerConfig,
        host: Host,
        replicas: Arc<ReplicaManager<D>>,
        lifecycle: Arc<BrokerLifecycle>,
    ) -> Arc<Self> {
        let seed = replicas.seed();
        Arc::new(Self {
            groups: GroupCoordinator::new(
                replicas.clone(),
                host.clone(),
                config.groups.clone(),
                seed,
            ),
            node: replicas.node(),
            cluster_id,
            config,
            producer_ids: Arc::new(ProducerIds::new(host.clone())),
            host,
            replicas,
            lifecycle,
            creating_topics: Arc::default(),
            strays_removed: Mutex::new(false),
            joined: Mutex::new(false),
        })
    }

    /// The metadata in force.
    pub fn directory(&self) -> Arc<Directory> {
        self.replicas.directory()
    }

    /// Takes one request from a client or another broker.
    pub fn handle(self: &Arc<Self>, context: CallContext, request: RequestBody, reply: Responder) {
        handlers::dispatch(self, context, request, reply);
    }

    /// Takes over committed metadata, in order. `caught_up` says that nothing committed is known to be
    /// missing; the first time, logs that the cluster does not know of are removed (I01).
    ///
    /// No replica takes a role before the metadata has this run's own registration: what an earlier
    /// run was, leader of an epoch that is still in force perhaps, this one with its log as the crash
    /// left it must not take up (C02, H11).
    pub fn on_metadata(&self, image: ClusterImage, delta: &ImageDelta, caught_up: bool) {
        let offset: Offset = image.offset();
        if *self.joined.lock() {
            self.replicas.apply_metadata(image, delta);
            self.groups.on_metadata(delta);
        } else if self.lifecycle.is_registered_in(&image) {
            *self.joined.lock() = true;
            let everything = ImageDelta::between(&ClusterImage::default(), &image);
            self.replicas.apply_metadata(image, &everything);
            self.groups.on_metadata(&everything);
        } else {
            self.lifecycle.on_metadata(offset);
            return;
        }
        if caught_up && offset.get() >= self.lifecycle.epoch().get() {
            let mut removed = self.strays_removed.lock();
            if !*removed && self.lifecycle.epoch() != protocol::BrokerEpoch::NONE {
                self.replicas.remove_strays();
                *removed = true;
            }
        }
        self.lifecycle.on_metadata(offset);
    }

    /// Does everything that is due; gives the instant by which to be called again.
    pub fn on_tick(&self) -> Instant {
        let next = self.replicas.on_tick();
        self.lifecycle.on_dirs_offline(self.replicas.offline_dirs());
        let lifecycle = self.lifecycle.on_tick(self.host.clock.now());
        let wanted = lifecycle.into_iter().chain(self.groups.on_tick());
        wanted.fold(next, Instant::min)
    }

    /// Begins to stop: leaders move first (C03). The host goes on ticking until
    /// [`BrokerCore::may_stop`], then calls [`BrokerCore::shut_down`].
    pub fn begin_stop(&self) {
        self.lifecycle.begin_stop();
    }

    /// Whether the controller lets the broker go.
    pub fn may_stop(&self) -> bool {
        self.lifecycle.state() == LifecycleState::Stopped
    }

    /// The end: closes all logs and leaves the marker of a clean stop.
    pub fn shut_down(&self) {
        self.replicas.shut_down();
    }
}
