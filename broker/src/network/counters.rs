//! Counts of what the network moved. They only grow, but for the gauge of open connections; readers
//! see each number on its own, not a consistent set.

pub use crate::counting::Counter;

/// What all listeners of a server moved since it started.
#[derive(Debug, Default)]
pub struct NetworkCounters {
    /// Bytes read from clients.
    pub bytes_received: Counter,
    /// Bytes sent to clients that were written from memory.
    pub bytes_sent_by_write: Counter,
    /// Bytes sent to clients that went from file to socket by `sendfile`.
    pub bytes_sent_by_sendfile: Counter,
    /// Requests handed to the service.
    pub requests: Counter,
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Connections closed at once because their address had too many (`max.connections.per.ip`).
    pub connections_refused: Counter,
    /// Connections that ended before client and listener had agreed on keys.
    pub handshakes_failed: Counter,
    /// Connections open now.
    pub connections_open: Counter,
    /// Connections closed because nothing moved for `connections.max.idle.ms`.
    pub connections_expired: Counter,
    /// Connections closed because of what the client sent (rules P02 and P03).
    pub requests_refused: Counter,
    /// Answers that broke off because the disk failed, not the client (rule F08).
    pub disk_errors: Counter,
}

impl NetworkCounters {
    /// Bytes sent to clients by every way.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent_by_write.get() + self.bytes_sent_by_sendfile.get()
    }
}
