//! Connections that this node makes to others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::explain::{explained_io, of_tls};
use super::told::Told;

/// Makes connections under TLS. Clones share what was told.
#[derive(Clone, Debug)]
pub struct Connector {
    config: watch::Receiver<Arc<ClientConfig>>,
    told: Arc<Told>,
}

impl Connector {
    /// Connects with what `config` holds at the time.
    pub fn new(config: watch::Receiver<Arc<ClientConfig>>) -> Self {
        Self { config, told: Arc::default() }
    }

    /// Connects to a node and agrees on keys.
    ///
    /// # Errors
    /// What the system or TLS says; the latter is told, once for each peer and cause.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Connected> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let watched = Watched { peer: format!("{host}:{port}"), told: Arc::clone(&self.told) };
        let config = Arc::clone(&self.config.borrow());
        match TlsConnector::from(config).connect(name, socket).await {
            Ok(stream) => Ok(Connected { stream, unproven: Some(watched) }),
            Err(error) => Err(watched.tell(error)),
        }
    }
}

/// A peer of which nothing was heard yet.
#[derive(Debug)]
struct Watched {
    peer: String,
    told: Arc<Told>,
}

impl Watched {
    /// Tells what failed, if that is news; gives it back in plain words.
    fn tell(&self, error: io::Error) -> io::Error {
        let cause = explained_io(&error);
        if self.told.is_news(&self.peer, &cause) {
            tracing::warn!(peer = self.peer, "no TLS with another node: {cause}");
        }
        io::Error::new(error.kind(), cause)
    }

    fn is_proven(&self) {
        if self.told.is_mended(&self.peer) {
            tracing::info!(peer = self.peer, "TLS with another node works again");
        }
    }
}

/// A connection to another node, under TLS.
#[derive(Debug)]
pub struct Connected {
    stream: TlsStream<TcpStream>,
    /// Until the first byte of an answer shows that the other side accepts this one's certificate.
    unproven: Option<Watched>,
}

impl AsyncRead for Connected {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(unproven) = &this.unproven else { return read };
        match read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                unproven.is_proven();
                this.unproven = None;
                read
            }
            Poll::Ready(Err(error)) if of_tls(&error).is_some() => {
                Poll::Ready(Err(unproven.tell(error)))
            }
            other => other,
        }
    }
}

impl AsyncWrite for Connected {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
