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
        Self { client, runtime: tokio::runtime::Handle::current() }
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
///
/// A wish that is not earlier than the call that is planned already wakes nobody: every request that is
/// parked brings a deadline, and nearly none of them is the earliest.
#[derive(Debug)]
pub(super) struct WakeUp {
    plan: parking_lot::Mutex<Plan>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Plan {
    /// The next call, as planned, or the earliest wish since the call under way began.
    earliest: Option<Instant>,
    /// A call is under way; whoever makes it looks at the wishes when it ends.
    calling: bool,
}

impl WakeUp {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { plan: parking_lot::Mutex::default(), notify: Notify::new() })
    }

    /// The core wants to be called by `at`, perhaps earlier than it said before.
    pub(super) fn by(&self, at: Instant) {
        let wake = {
            let mut plan = self.plan.lock();
            let earlier = plan.earliest.is_none_or(|known| at < known);
            if earlier {
                plan.earliest = Some(at);
            }
            earlier && !plan.calling
        };
        if wake {
            self.notify.notify_one();
        }
    }

    /// Begins a call: what was asked for until now is being done.
    pub(super) fn begin(&self) {
        let mut plan = self.plan.lock();
        plan.earliest = None;
        plan.calling = true;
    }

    /// Ends a call that wants the next one at `next`; gives when it is really due.
    pub(super) fn end(&self, next: Instant) -> Instant {
        let mut plan = self.plan.lock();
        plan.calling = false;
        let due = plan.earliest.map_or(next, |wish| wish.min(next));
        plan.earliest = Some(due);
        due
    }

    /// Waits until the next call is moved forward.
    pub(super) async fn changed(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn at(milliseconds: u64) -> Instant {
        Instant(Duration::from_millis(milliseconds))
    }

    fn is_woken(wake_up: &WakeUp) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(wake_up.changed()).poll(&mut context).is_ready()
    }

    #[test]
    fn only_a_wish_before_the_planned_call_wakes() {
        let wake_up = WakeUp::new();
        wake_up.begin();
        assert_eq!(wake_up.end(at(100)), at(100));
        wake_up.by(at(100));
        wake_up.by(at(5000));
        assert!(!is_woken(&wake_up));
        wake_up.by(at(99));
        assert!(is_woken(&wake_up));
    }

    #[test]
    fn a_wish_during_a_call_is_kept_and_wakes_nobody() {
        let wake_up = WakeUp::new();
        wake_up.begin();
        wake_up.by(at(50));
        wake_up.by(at(70));
        assert!(!is_woken(&wake_up));
        assert_eq!(wake_up.end(at(100)), at(50));
    }
}
