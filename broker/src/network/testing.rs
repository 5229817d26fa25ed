//! For tests of other modules that need what only the network makes.

use std::sync::Arc;

use super::request_slot::{Cancellation, RequestSlot};

/// The cancellation of a request that nobody cancels.
pub(crate) fn no_cancellation() -> Cancellation {
    let (reply, cancellation) = Arc::new(RequestSlot::default()).begin();
    reply.no_response();
    cancellation
}
