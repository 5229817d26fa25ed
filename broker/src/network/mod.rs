//! The TCP server: listeners, connections, frames, and answers sent without copying records.
//!
//! One task per connection reads frames, decodes them and calls the node's [`RequestService`], which
//! answers through a [`Reply`]: at once, or later from any thread. The next request of a
//! connection is looked at only when the one before it is answered, which is what keeps the answers
//! in order (rule P05). Nothing here decides anything about replication.
//!
//! | file | what it holds |
//! |---|---|
//! | `listener.rs` | binding, accepting, stopping |
//! | `limits.rs` | how many connections may be open |
//! | `connection.rs` | the life of one connection |
//! | `inbound.rs` | bytes into frames |
//! | `laps.rs` | how long each part of a request's way takes |
//! | `request_slot.rs` | the answer of the request in flight, and its cancellation |
//! | `service.rs` | the seam to the request handlers |
//! | `writer.rs` | answers into bytes: vectored writes and `sendfile` |
//! | `stream.rs` | a connection's bytes: plain, or under TLS |
//! | `kernel_tls.rs` | TLS that the kernel does, so that `sendfile` works under it |
//! | `record_reader.rs` | a socket read one TLS record at a time, until the kernel has the keys |
//! | `encrypted_writer.rs` | answers into bytes under TLS |
//! | `counters.rs` | what was moved, for metrics |

mod connection;
mod counters;
mod encrypted_writer;
mod inbound;
mod kernel_tls;
mod laps;
mod limits;
mod listener;
mod record_reader;
mod request_slot;
mod service;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
mod writer;

pub use counters::NetworkCounters;
pub use kernel_tls::KernelTls;
pub use limits::ConnectionLimits;
pub use listener::{BoundListeners, ListenError, ListenerAddress, NetworkServer, NetworkSettings};
pub use request_slot::{Cancellation, Reply};
pub use service::{ConnectionInfo, RequestContext, RequestService};
pub use writer::{SENDFILE_MIN_BYTES, SendError, Sent, send_parts};
