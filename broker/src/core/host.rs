//! What a broker's core needs of its host. The real host answers with clocks, gRPC and sockets, the
//! simulator with virtual time and a queue of messages; the core cannot tell them apart.

use std::sync::Arc;
use std::time::Duration;

use controller::image::ConfigMap;
use protocol::{LeaderEpoch, NodeId, RequestBody, ResponseBody, TopicIdPartition};
use replication::time::{Instant, Now};
use replication::trace::TraceSink;

/// The host's clocks.
pub trait Clock: Send + Sync {
    /// Both clocks, now.
    fn now(&self) -> Now;
}

/// Why the controller gave no answer. The request may or may not have had its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No controller answered within the time given.
    #[error("no answer from the controller in time")]
    TimedOut,
    /// The request could not be sent or its answer not be read.
    #[error("calling the controller failed: {0}")]
    Failed(String),
}

/// Takes the controller's answer. Called once, from any thread.
pub type ControllerReply = Box<dyn FnOnce(Result<ResponseBody, CallError>) + Send>;

/// The way to the active controller.
pub trait ControllerLink: Send + Sync {
    /// Sends a request in `version`; `reply` gets its answer, or an error after `timeout`.
    fn call(&self, version: i16, request: RequestBody, timeout: Duration, reply: ControllerReply);
}

/// A partition that this broker has to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowedPartition {
    /// The partition.
    pub partition: TopicIdPartition,
    /// Whom to pull from.
    pub leader: NodeId,
    /// Under which epoch.
    pub leader_epoch: LeaderEpoch,
}

/// The way to the fetchers.
pub trait FetcherLink: Send + Sync {
    /// Stops fetching the partitions of `stop`, and when that is complete starts those of `start`
    /// (T10).
    fn change(&self, stop: Vec<TopicIdPartition>, start: Vec<FollowedPartition>);
}

/// The keys and certificates of this broker's listeners.
pub trait Certificates: Send + Sync {
    /// Whether the broker could go on with `configs` as its own dynamic ones, where `changed` keys are set
    /// or removed, perhaps to what they were; else why not.
    fn check(&self, configs: &ConfigMap, changed: &[&str]) -> Result<(), String>;
}

/// Those of a broker whose listeners are plain.
#[derive(Clone, Copy, Debug)]
pub struct NoCertificates;

impl Certificates for NoCertificates {
    fn check(&self, _configs: &ConfigMap, _changed: &[&str]) -> Result<(), String> {
        Ok(())
    }
}

/// Everything outside the core, handed in once.
#[derive(Clone)]
pub struct Host {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The controller.
    pub controller: Arc<dyn ControllerLink>,
    /// The fetchers.
    pub fetchers: Arc<dyn FetcherLink>,
    /// Keys and certificates.
    pub certificates: Arc<dyn Certificates>,
    /// Where events go.
    pub trace: Arc<dyn TraceSink>,
    /// Told when the core wants to be called by an instant that may be earlier than it said before.
    pub wake_by: Arc<dyn Fn(Instant) + Send + Sync>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
