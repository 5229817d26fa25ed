//! Requests from the network into the core, and outcomes back.

use std::io;
use std::sync::Arc;

use protocol::{ApiKey, FileRegion, RequestBody};
use storage::{Disk, RealDisk};

use crate::core::{BrokerCore, CallContext, ClientGone, Outcome};
use crate::handlers;
use crate::network::{Cancellation, Reply, RequestContext, RequestService};

/// The broker's core behind the network.
pub(super) struct CoreService<D: Disk = RealDisk>(pub(super) Arc<BrokerCore<D>>);

struct ConnectionGone(Cancellation);

impl ClientGone for ConnectionGone {
    fn on_gone(&self, callback: Box<dyn FnOnce() + Send>) {
        self.0.on_cancel(callback);
    }
}

impl<D: Disk> RequestService for CoreService<D> {
    fn serves(&self, _listener: &str, api_key: ApiKey, api_version: i16) -> bool {
        handlers::serves(api_key, api_version)
    }

    fn call(&self, context: RequestContext, body: RequestBody, reply: Reply) {
        let context = CallContext {
            api_version: context.api_version,
            client_id: context.client_id,
            listener: context.connection.listener.clone(),
            peer: context.connection.peer.ip().to_string(),
            gone: Box::new(ConnectionGone(context.cancellation)),
        };
        let responder = Box::new(move |outcome| match outcome {
            Outcome::Answer(response) => reply.send(response),
            Outcome::NoResponse => reply.no_response(),
            Outcome::Close => reply.close(),
        });
        self.0.handle(context, body, responder);
    }

    /// What a socket and a disk answer to `sendfile` cannot always be told apart, so the records are read
    /// once more: where that fails too, it is the disk, and its log directory goes offline (F08).
    fn on_disk_error(&self, region: &Arc<dyn FileRegion>, error: &io::Error) {
        tracing::error!(%error, "reading a log file for a client failed");
        let (core, region) = (Arc::clone(&self.0), Arc::clone(region));
        tokio::task::spawn_blocking(move || {
            if let (Err(error), Some(folder)) = (region.read(), region.folder()) {
                core.replicas.on_unreadable_folder(folder, &error);
            }
        });
    }
}
