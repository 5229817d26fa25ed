//! TLS on both ends of a connection: the configuration of the moment is taken for each new one, so that
//! certificates can change while a node runs, and what fails is told in words that say what to do.
//!
//! A node tries again and again to reach another. What is wrong is therefore told once for each peer and
//! cause ([`Told`]), at WARN, and again only after it was right in between. Under TLS 1.3 a node learns
//! from its first read that its certificate was refused; [`Connected`] watches for that.

mod accept;
mod connect;
mod explain;
mod told;

pub use accept::Acceptor;
pub use connect::{Connected, Connector};
pub use explain::explained;
pub use told::Told;
