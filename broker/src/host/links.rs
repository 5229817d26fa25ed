//! The core's ways out of itself, for the real host.

use std::sync::Arc;
use std::time::Duration;

use controller::client::{CallError as ClientError, ControllerClient};
use controller::rpc::MonotonicClock;
use protocol::RequestBody;
use replication::time::{Instant, Now};
use tokio::sync::Notify;

use crate::core::host::{CallError, Clock, ControllerLink, ControllerReply};

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RealClock(pub(super) MonotonicClock);

impl Clock for RealClock {
    fn now(&self) -> Now {
        self.0.now()
    }
}

/// Calls the active controller over gRPC, each call on a task of its own.
pub(super) struct RealControllerLink {
    client: ControllerClient,
    runtime: tokio::runtime::Handle,
}

impl RealControllerLink {
    pub(super) fn new(client: ControllerClient) -> Self {
        Self {
            client,
            runtime: tokio::runtime::Handle::current(),
        }
    }
}

impl ControllerLink for RealControllerLink {
    fn call(&self, version: i16, request: RequestBody, timeout: Duration, reply: ControllerReply) {
        let client = self.client.clone();
        self.runtime.spawn(async move {
            let context = client.own_context();
            let answer = client.call_as(&context, version, &request, timeout).await;
            reply(answer.map_err(|error| match error {
                ClientError::TimedOut { .. } => CallError::TimedOut,
                other => CallError::Failed(other.to_string()),
            }));
        });
    }
}

/// When the core wants to be called next; moved forward from any thread.
#[derive(Debug)]
pub(super) struct WakeUp {
    earliest: parking_lot::Mutex<Option<Instant>>,
    notify: Notify,
}

impl WakeUp {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            earliest: parking_lot::Mutex::new(None),
            notify: Notify::new(),
        })
    }

    /// The core wants to be called by `at`, perhaps earlier than it said before.
    pub(super) fn by(&self, at: Instant) {
        let earlier = {
            let mut earliest = self.earliest.lock();
            let earlier = earliest.is_none_or(|known| at < known);
            if earlier {
                *earliest = Some(at);
            }
            earlier
        };
        if earlier {
            self.notify.notify_one();
        }
    }

    /// Begins a tick: what was asked for until now is being done.
    pub(super) fn take(&self) {
        *self.earliest.lock() = None;
    }

    /// Waits until the earliest wish changes.
    pub(super) async fn changed(&self) {
        self.notify.notified().await;
    }

    /// The earliest wish.
    pub(super) fn earliest(&self) -> Option<Instant> {
        *self.earliest.lock()
    }
}
