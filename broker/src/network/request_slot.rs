//! The place where the answer of a connection's one request in flight arrives, from any thread, and
//! where its wish to be cancelled is left. One slot serves all requests of a connection in turn, so a
//! request that is answered at once costs neither an allocation nor a wake-up.
//!
//! Requests are numbered. A [`Cancellation`] kept longer than its request does nothing, so it cannot reach
//! into the request after it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use protocol::messages::ResponseBody;

/// What became of a request. There is one at a time for a connection, moved once: a box would only add
/// an allocation to every request.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Outcome {
    /// Send this.
    Answer(ResponseBody),
    /// Send nothing and go on: produce with acks=0 (rule P04).
    NoResponse,
    /// Close the connection.
    Close,
}

type Callback = Box<dyn FnOnce() + Send>;

/// The slot of one connection.
#[derive(Default)]
pub(super) struct RequestSlot {
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    /// The number of the request in flight, or of the last one.
    sequence: u64,
    in_flight: bool,
    outcome: Option<Outcome>,
    /// When the outcome came, if somebody was waiting for it.
    given: Option<Instant>,
    on_cancel: Option<Callback>,
    peer_gone: bool,
    stopping: bool,
    waker: Option<Waker>,
}

impl SlotState {
    fn keep_waker(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(kept) if kept.will_wake(waker) => {}
            kept => *kept = Some(waker.clone()),
        }
    }
}

impl fmt::Debug for RequestSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RequestSlot")
            .field("sequence", &state.sequence)
            .field("in_flight", &state.in_flight)
            .field("peer_gone", &state.peer_gone)
            .finish_non_exhaustive()
    }
}

impl RequestSlot {
    /// Opens the slot for the next request.
    pub(super) fn begin(self: &Arc<Self>) -> (Reply, Cancellation) {
        let mut state = self.state.lock();
        assert!(!state.in_flight, "request {} is still in flight", state.sequence);
        state.sequence += 1;
        state.in_flight = true;
        state.outcome = None;
        state.given = None;
        let cancellation = Cancellation { slot: Arc::clone(self), sequence: state.sequence };
        (Reply { slot: Some(Arc::clone(self)) }, cancellation)
    }

    /// The outcome, if it is there; closes the slot then.
    pub(super) fn try_take(&self) -> Option<Outcome> {
        // The callback goes after the lock: what it holds may reach this slot when dropped.
        let (outcome, _stale) = take(&mut self.state.lock())?;
        Some(outcome)
    }

    /// Waits for the outcome, with the time at which it was given to the waiting task; closes the slot then.
    pub(super) async fn outcome(&self) -> (Outcome, Option<Instant>) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            let Some((outcome, stale)) = take(&mut state) else {
                state.keep_waker(context.waker());
                return Poll::Pending;
            };
            let given = state.given;
            drop(state);
            drop(stale);
            Poll::Ready((outcome, given))
        })
        .await
    }

    /// Waits until the server asks this connection to stop.
    pub(super) async fn stop_requested(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.stopping {
                return Poll::Ready(());
            }
            state.keep_waker(context.waker());
            Poll::Pending
        })
        .await
    }

    /// Whether the server asked this connection to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Asks the connection to stop once the request in flight is answered.
    pub(super) fn request_stop(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.waker.take()
        };
        wake(waker);
    }

    /// The client will read no more, or is gone: tells whoever works for it.
    pub(super) fn cancel(&self) {
        let callback = {
            let mut state = self.state.lock();
            state.peer_gone = true;
            state.on_cancel.take()
        };
        if let Some(callback) = callback {
            callback();
        }
    }

    fn complete(&self, outcome: Outcome) {
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.given = state.waker.is_some().then(Instant::now);
            state.waker.take()
        };
        wake(waker);
    }
}

fn take(state: &mut SlotState) -> Option<(Outcome, Option<Callback>)> {
    let outcome = state.outcome.take()?;
    state.in_flight = false;
    Some((outcome, state.on_cancel.take()))
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The right to answer one request, once, from any thread. Dropped without an answer, it closes the
/// connection: a client must never wait for an answer that cannot come.
#[must_use = "dropping a reply closes the connection"]
pub struct Reply {
    slot: Option<Arc<RequestSlot>>,
}

impl Reply {
    /// Sends the answer. It is encoded in the version of the request, on the connection's task.
    pub fn send(self, body: ResponseBody) {
        self.finish(Outcome::Answer(body));
    }

    /// Sends no byte and goes on with the next request: produce with acks=0 (rule P04).
    pub fn no_response(self) {
        self.finish(Outcome::NoResponse);
    }

    /// Closes the connection, as an error with acks=0 must (rule P04).
    pub fn close(self) {
        self.finish(Outcome::Close);
    }

    fn finish(mut self, outcome: Outcome) {
        if let Some(slot) = self.slot.take() {
            slot.complete(outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.complete(Outcome::Close);
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("open", &self.slot.is_some()).finish()
    }
}

/// Tells whether the client of one request is gone. A client that closed its sending side counts as
/// gone, since the two cannot be told apart: a waiting request should end then, by answering what it has or
/// by dropping its [`Reply`]; a write that is under way should end as usual.
#[derive(Clone, Debug)]
pub struct Cancellation {
    slot: Arc<RequestSlot>,
    sequence: u64,
}

impl Cancellation {
    /// Whether the client is gone. Always false once the request is answered.
    pub fn is_cancelled(&self) -> bool {
        let state = self.slot.state.lock();
        state.peer_gone && state.sequence == self.sequence && state.in_flight
    }

    /// Calls `callback` when the client goes, or at once if it is gone. A later callback replaces this
    /// one; an answered request drops it uncalled. It runs on the connection's task and must not block.
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) {
        let stale: Option<Callback> = {
            let mut state = self.slot.state.lock();
            let current = state.sequence == self.sequence && state.in_flight;
            match (current, state.peer_gone) {
                (true, false) => state.on_cancel.replace(Box::new(callback)),
                (false, _) => None,
                (true, true) => {
                    drop(state);
                    return callback();
                }
            }
        };
        drop(stale);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use protocol::messages::HeartbeatResponse;

    use super::*;

    fn slot() -> Arc<RequestSlot> {
        Arc::default()
    }

    fn counter() -> (Arc<AtomicUsize>, impl FnOnce() + Send + 'static + Clone) {
        let count = Arc::new(AtomicUsize::new(0));
        let inside = Arc::clone(&count);
        (count, move || {
            inside.fetch_add(1, Ordering::SeqCst);
        })
    }

    #[test]
    fn an_answer_given_at_once_is_there_without_waiting() {
        let slot = slot();
        let (reply, _) = slot.begin();
        assert!(slot.try_take().is_none());
        reply.send(ResponseBody::Heartbeat(HeartbeatResponse::default()));
        assert!(matches!(slot.try_take(), Some(Outcome::Answer(_))));
    }

    #[test]
    fn a_dropped_reply_closes_the_connection() {
        let slot = slot();
        let (reply, _) = slot.begin();
        drop(reply);
        assert!(matches!(slot.try_take(), Some(Outcome::Close)));
    }

    #[test]
    fn cancelling_calls_the_callback_once() {
        let slot = slot();
        let (_reply, cancellation) = slot.begin();
        let (count, callback) = counter();
        cancellation.on_cancel(callback);
        slot.cancel();
        slot.cancel();
        assert!(cancellation.is_cancelled());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_callback_left_after_the_client_went_is_called_at_once() {
        let slot = slot();
        slot.cancel();
        let (_reply, cancellation) = slot.begin();
        let (count, callback) = counter();
        cancellation.on_cancel(callback);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_cancellation_kept_too_long_does_not_reach_the_next_request() {
        let slot = slot();
        let (reply, old) = slot.begin();
        let (count, callback) = counter();
        old.on_cancel(callback.clone());
        reply.no_response();
        assert!(slot.try_take().is_some());
        let (_reply, new) = slot.begin();
        old.on_cancel(callback);
        slot.cancel();
        assert_eq!(count.load(Ordering::SeqCst), 0);
        assert!(!old.is_cancelled());
        assert!(new.is_cancelled());
    }

    #[tokio::test]
    async fn an_answer_from_another_thread_wakes_the_connection() {
        let slot = slot();
        let (reply, _) = slot.begin();
        let waiting = slot.outcome();
        let sender = std::thread::spawn(move || reply.no_response());
        assert!(matches!(waiting.await, (Outcome::NoResponse, _)));
        sender.join().expect("the thread ends");
    }

    #[tokio::test]
    async fn a_request_to_stop_wakes_an_idle_connection() {
        let slot = slot();
        let other = Arc::clone(&slot);
        let stopper = std::thread::spawn(move || other.request_stop());
        slot.stop_requested().await;
        stopper.join().expect("the thread ends");
    }
}
