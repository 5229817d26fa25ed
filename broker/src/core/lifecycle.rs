//! The broker's life as the controller sees it (C01, C02, C03): registered, fenced until its metadata
//! has reached its own registration, alive by heartbeats, and stopped only when its leaders have
//! moved.
//!
//! | state | leaves it when |
//! |---|---|
//! | registering | the controller answers with a broker epoch |
//! | fenced | a heartbeat is answered with "not fenced" |
//! | running | a heartbeat says fenced again, or the epoch is stale, or the stop begins |
//! | stopping | the controller says that the broker may go |
//! | stopped | never |

use std::sync::Arc;
use std::time::Duration;

use controller::state::default_features;
use parking_lot::Mutex;
use protocol::messages::broker_registration_request::{Feature, Listener};
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse,
};
use protocol::{BrokerEpoch, ErrorCode, NodeId, Offset, RequestBody, ResponseBody, Uuid};
use replication::time::{Instant, Now};

use crate::core::host::{CallError, Host};

#[cfg(test)]
mod tests;

const REGISTRATION_VERSION: i16 = 4;
const HEARTBEAT_VERSION: i16 = 1;
/// How long a call may take while the broker stops.
const STOPPING_CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// A broker that stops and hears nothing from any controller for so long goes without leave: its
/// cluster is stopping as well, and nobody is there to move its leaders to.
const UNANSWERED_STOP: Duration = Duration::from_secs(2);
/// The pause after a call that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Where the broker is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifecycleState {
    /// Not known to the controller yet.
    Registering,
    /// Registered, and not to lead or be in any ISR.
    Fenced,
    /// Alive.
    Running,
    /// Asked to stop; its leaders are moving.
    Stopping,
    /// May go.
    Stopped,
}

/// An address to be told to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedListener {
    /// The listener's name.
    pub name: String,
    /// The host that clients connect to.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Kafka's number of the protocol spoken there; 0 is plain text.
    pub security_protocol: i16,
}

/// What stays the same for one run of the broker.
#[derive(Clone, Debug)]
pub struct LifecycleConfig {
    /// The broker.
    pub node: NodeId,
    /// The cluster it wants to join.
    pub cluster_id: String,
    /// This run; a restart has another one.
    pub incarnation: Uuid,
    /// Where it can be reached.
    pub listeners: Vec<AdvertisedListener>,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// The ids of its log directories that worked at the start.
    pub log_dirs: Vec<Uuid>,
    /// `log.dir.failure.timeout.ms`: a failed directory that no controller hears of for so long ends the
    /// broker, since its leaders there would answer nobody.
    pub dir_failure_timeout: Duration,
    /// `broker.heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// `broker.session.timeout.ms`: a call that takes longer is given up.
    pub session_timeout: Duration,
    /// The epoch of the registration that ended with a clean stop; -1 after a crash.
    pub previous_broker_epoch: BrokerEpoch,
}

#[derive(Debug)]
struct Life {
    state: LifecycleState,
    epoch: BrokerEpoch,
    in_flight: bool,
    next_call: Instant,
    /// Since when a stopping broker has not been answered.
    unanswered_since: Option<Instant>,
    /// Everything up to here is applied.
    metadata_offset: Offset,
    offline_dirs: Vec<Uuid>,
    /// The directories told in the request under way.
    telling_dirs: Vec<Uuid>,
    /// Since when the controller lacks a failed directory.
    untold_since: Option<Instant>,
    /// What the registration was last refused with, to be told once and not at every try.
    refused: Option<ErrorCode>,
}

/// The lifecycle of one broker.
#[derive(Debug)]
pub struct BrokerLifecycle {
    config: LifecycleConfig,
    host: Host,
    life: Mutex<Life>,
}

impl BrokerLifecycle {
    /// A broker that is about to register.
    pub fn new(config: LifecycleConfig, host: Host) -> Arc<Self> {
        let life = Life {
            state: LifecycleState::Registering,
            epoch: BrokerEpoch::NONE,
            in_flight: false,
            next_call: Instant::ZERO,
            unanswered_since: None,
            metadata_offset: Offset::NONE,
            offline_dirs: Vec::new(),
            telling_dirs: Vec::new(),
            untold_since: None,
            refused: None,
        };
        Arc::new(Self { config, host, life: Mutex::new(life) })
    }

    /// Where the broker is in its life.
    pub fn state(&self) -> LifecycleState {
        self.life.lock().state
    }

    /// The epoch of the registration in force.
    pub fn epoch(&self) -> BrokerEpoch {
        self.life.lock().epoch
    }

    /// Whether `image` knows this very run of the broker.
    pub fn is_registered_in(&self, image: &controller::ClusterImage) -> bool {
        image
            .broker(self.config.node)
            .is_some_and(|broker| broker.incarnation_id == self.config.incarnation)
    }

    /// Whether the metadata applied here has ever reached this registration.
    pub fn has_caught_up(&self) -> bool {
        self.life.lock().is_caught_up()
    }

    /// Metadata was applied up to `offset`: a broker that waits for its own registration's record may
    /// ask to be unfenced at once (C02).
    pub fn on_metadata(&self, offset: Offset) {
        let now = self.host.clock.now().monotonic;
        let mut life = self.life.lock();
        life.metadata_offset = offset;
        if life.state == LifecycleState::Fenced && life.is_caught_up() {
            life.next_call = now;
            drop(life);
            (self.host.wake_by)(now);
        }
    }

    /// A log directory failed; the next heartbeat, at once, says so (C08). Those that were out of use from
    /// the start are not in the registration, which says enough.
    pub fn on_dirs_offline(&self, mut dirs: Vec<Uuid>) {
        let now = self.host.clock.now().monotonic;
        dirs.retain(|dir| self.config.log_dirs.contains(dir));
        let mut life = self.life.lock();
        if life.offline_dirs != dirs {
            life.offline_dirs = dirs;
            life.untold_since.get_or_insert(now);
            life.next_call = now;
            drop(life);
            (self.host.wake_by)(now);
        }
    }

    /// Whether a failed log directory could not be told to any controller in time (C08).
    pub fn is_dir_failure_untold(&self, now: Instant) -> bool {
        let since = self.life.lock().untold_since;
        since.is_some_and(|since| now.since(since) >= self.config.dir_failure_timeout)
    }

    /// Begins the controlled shutdown (C03). A broker that never registered may go at once.
    pub fn begin_stop(&self) {
        let now = self.host.clock.now().monotonic;
        {
            let mut life = self.life.lock();
            life.state = match life.state {
                LifecycleState::Registering | LifecycleState::Stopped => LifecycleState::Stopped,
                _ => LifecycleState::Stopping,
            };
            life.next_call = now;
            life.unanswered_since = Some(now);
            // What is asked already may wait for a controller that is gone; the stop asks anew.
            life.in_flight = false;
        }
        (self.host.wake_by)(now);
    }

    /// Registers or sends a heartbeat when it is due; gives when to be called again.
    pub fn on_tick(self: &Arc<Self>, now: Now) -> Option<Instant> {
        let (request, timeout) = {
            let mut life = self.life.lock();
            if life.state == LifecycleState::Stopped || life.in_flight {
                return None;
            }
            if now.monotonic < life.next_call {
                return Some(life.next_call);
            }
            life.in_flight = true;
            life.telling_dirs = life.offline_dirs.clone();
            let timeout = match life.state {
                LifecycleState::Stopping => STOPPING_CALL_TIMEOUT,
                _ => self.config.session_timeout / 2,
            };
            (self.request(&life), timeout)
        };
        let version = match &request {
            RequestBody::BrokerRegistration(_) => REGISTRATION_VERSION,
            _ => HEARTBEAT_VERSION,
        };
        let lifecycle = self.clone();
        let reply = Box::new(move |answer: Result<ResponseBody, CallError>| {
            lifecycle.on_answer(answer);
        });
        self.host.controller.call(version, request, timeout, reply);
        None
    }

    fn request(&self, life: &Life) -> RequestBody {
        if life.state == LifecycleState::Registering {
            return RequestBody::BrokerRegistration(self.registration(&life.offline_dirs));
        }
        RequestBody::BrokerHeartbeat(BrokerHeartbeatRequest {
            broker_id: self.config.node.get(),
            broker_epoch: life.epoch.get(),
            current_metadata_offset: life.metadata_offset.get(),
            want_fence: !life.is_caught_up(),
            want_shut_down: life.state == LifecycleState::Stopping,
            offline_log_dirs: life.offline_dirs.clone(),
            ..BrokerHeartbeatRequest::default()
        })
    }

    fn registration(&self, failed_dirs: &[Uuid]) -> BrokerRegistrationRequest {
        let listeners = self.config.listeners.iter().map(|listener| Listener {
            name: listener.name.clone(),
            host: listener.host.clone(),
            port: listener.port,
            security_protocol: listener.security_protocol,
            ..Listener::default()
        });
        let features = default_features().into_iter().map(|feature| Feature {
            name: feature.name,
            min_supported_version: feature.min_level,
            max_supported_version: feature.max_level,
            ..Feature::default()
        });
        let log_dirs = self.config.log_dirs.iter().filter(|dir| !failed_dirs.contains(dir));
        BrokerRegistrationRequest {
            broker_id: self.config.node.get(),
            cluster_id: self.config.cluster_id.clone(),
            incarnation_id: self.config.incarnation,
            listeners: listeners.collect(),
            features: features.collect(),
            rack: self.config.rack.clone(),
            log_dirs: log_dirs.copied().collect(),
            previous_broker_epoch: self.config.previous_broker_epoch.get(),
            ..BrokerRegistrationRequest::default()
        }
    }

    fn on_answer(&self, answer: Result<ResponseBody, CallError>) {
        let now = self.host.clock.now().monotonic;
        let next = {
            let mut life = self.life.lock();
            life.in_flight = false;
            life.note_answered(answer.is_ok(), now);
            life.next_call = match answer {
                Ok(ResponseBody::BrokerRegistration(response)) => {
                    self.on_registered(&mut life, &response, now)
                }
                Ok(ResponseBody::BrokerHeartbeat(response)) => {
                    self.on_heartbeat_answered(&mut life, &response, now)
                }
                Ok(_) => now + RETRY_PAUSE,
                Err(error) => {
                    tracing::debug!(%error, "the controller did not answer");
                    now + RETRY_PAUSE
                }
            };
            life.next_call
        };
        (self.host.wake_by)(next);
    }

    fn on_registered(
        &self,
        life: &mut Life,
        response: &BrokerRegistrationResponse,
        now: Instant,
    ) -> Instant {
        let error = ErrorCode::from_code(response.error_code);
        if error != ErrorCode::None {
            if life.refused.replace(error) != Some(error) {
                tell_refused(error);
            }
            return now + RETRY_PAUSE;
        }
        if life.refused.take().is_some() {
            tracing::info!(epoch = response.broker_epoch, "registered after all");
        }
        if life.state == LifecycleState::Registering {
            life.epoch = BrokerEpoch(response.broker_epoch);
            life.state = LifecycleState::Fenced;
        }
        if life.is_caught_up() { now } else { now + self.config.heartbeat_interval }
    }

    fn on_heartbeat_answered(
        &self,
        life: &mut Life,
        response: &BrokerHeartbeatResponse,
        now: Instant,
    ) -> Instant {
        let error = ErrorCode::from_code(response.error_code);
        match error {
            ErrorCode::None => life.note_dirs_told(),
            ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered
                if life.state != LifecycleState::Stopping =>
            {
                // Another registration took its place, or it was unregistered: begin again.
                tracing::warn!(error = error.kafka_name(), "heartbeat refused; registering again");
                life.state = LifecycleState::Registering;
                return now + RETRY_PAUSE;
            }
            _ => return now + RETRY_PAUSE,
        }
        match life.state {
            LifecycleState::Stopping if response.should_shut_down => {
                life.state = LifecycleState::Stopped;
            }
            LifecycleState::Stopping => return now + RETRY_PAUSE,
            LifecycleState::Fenced | LifecycleState::Running => {
                life.state = if response.is_fenced {
                    LifecycleState::Fenced
                } else {
                    LifecycleState::Running
                };
            }
            LifecycleState::Registering | LifecycleState::Stopped => {}
        }
        if life.state == LifecycleState::Fenced && life.is_caught_up() {
            // The record that unfences may be on its way; ask soon.
            return now + RETRY_PAUSE;
        }
        now + self.config.heartbeat_interval
    }
}

/// Says why the broker is not let in, once.
fn tell_refused(error: ErrorCode) {
    if error == ErrorCode::DuplicateBrokerRegistration {
        tracing::info!(
            "the session of this broker's last process has not ended yet; registering until it has"
        );
    } else {
        tracing::warn!(error = error.kafka_name(), "registration refused; trying again");
    }
}

impl Life {
    /// The controller has heard of the directories that the heartbeat named.
    fn note_dirs_told(&mut self) {
        if self.telling_dirs == self.offline_dirs {
            self.untold_since = None;
        }
    }

    /// Counts how long a stopping broker has been left alone.
    fn note_answered(&mut self, answered: bool, now: Instant) {
        if self.state != LifecycleState::Stopping {
            return;
        }
        match self.unanswered_since {
            Some(since) if !answered && now.since(since) >= UNANSWERED_STOP => {
                self.state = LifecycleState::Stopped;
            }
            Some(_) if !answered => {}
            _ => self.unanswered_since = Some(now),
        }
    }

    /// Whether the metadata has reached this registration's own record: its epoch is that record's
    /// offset.
    fn is_caught_up(&self) -> bool {
        self.epoch != BrokerEpoch::NONE && self.metadata_offset.get() >= self.epoch.get()
    }
}
