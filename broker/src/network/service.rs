//! The seam between the network and the request handlers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::messages::RequestBody;
use protocol::{ApiKey, FileRegion};

use super::request_slot::{Cancellation, Reply};

/// What stays the same for the life of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Unique in this process.
    pub id: u64,
    /// The name of the listener that accepted it, as in `listeners`.
    pub listener: Arc<str>,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address the client reached.
    pub local: SocketAddr,
}

/// Where a request came from and what its header says.
#[derive(Debug)]
pub struct RequestContext {
    /// The connection it came in on.
    pub connection: Arc<ConnectionInfo>,
    /// The API.
    pub api_key: ApiKey,
    /// The version of the body and of its answer.
    pub api_version: i16,
    /// What the client matches the answer by.
    pub correlation_id: i32,
    /// The client's name for itself.
    pub client_id: Option<String>,
    /// The frame's size without its prefix, in bytes.
    pub size_bytes: usize,
    /// Tells when the client is gone, so that nothing waits on its behalf (rule P05).
    pub cancellation: Cancellation,
}

/// What answers requests. Called on the connections' tasks: at most one call at a time for a connection,
/// any number at a time over all connections. A call must not block on anything but short disk work.
pub trait RequestService: Send + Sync + 'static {
    /// Whether this version of an API is answered on the listener. A request for anything else closes
    /// its connection (rule P02); ApiVersions with an unknown version is answered before this is asked.
    fn serves(&self, listener: &str, api_key: ApiKey, api_version: i16) -> bool;

    /// Takes one request. The answer may be given before this returns, which costs no task switch, or
    /// later from any thread. A [`Reply`] that is dropped closes the connection.
    fn call(&self, context: RequestContext, body: RequestBody, reply: Reply);

    /// The disk failed while a region of a file was being sent. The connection is closed; the client is
    /// not to blame (rule F08).
    fn on_disk_error(&self, _region: &Arc<dyn FileRegion>, _error: &io::Error) {}
}
