//! Connections that others make to this node.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::explain::explained_io;
use super::told::Told;

/// Accepts connections under TLS. Clones share what was told.
#[derive(Clone, Debug)]
pub struct Acceptor {
    config: watch::Receiver<Arc<ServerConfig>>,
    told: Arc<Told>,
}

impl Acceptor {
    /// Accepts with what `config` holds at the time.
    pub fn new(config: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self { config, told: Arc::default() }
    }

    /// Agrees on keys with whoever connected. Nothing is told: clients may be many.
    ///
    /// # Errors
    /// What the system or TLS says, in plain words.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        let config = Arc::clone(&self.config.borrow());
        let accepted = TlsAcceptor::from(config).accept(socket).await;
        accepted.map_err(|error| io::Error::new(error.kind(), explained_io(&error)))
    }

    /// As [`Acceptor::accept`] where only nodes connect; what fails is told, once for each address and
    /// cause. `None` for a connection that is of no use.
    pub async fn accept_node(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Option<TlsStream<TcpStream>> {
        let peer = peer.ip().to_canonical().to_string();
        match self.accept(socket).await {
            // Nothing is forgotten by it: nodes may share an address.
            Ok(stream) => Some(stream),
            // Somebody who looks whether the port is open, or a node that stops.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => {
                if self.told.is_news(&peer, &error.to_string()) {
                    tracing::warn!(peer, "no TLS with a node that connects: {error}");
                }
                None
            }
        }
    }
}
