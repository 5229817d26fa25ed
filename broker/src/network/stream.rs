//! The two ways bytes travel on a connection: as they are, or under TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use controller::handshake::Acceptor;
use protocol::Part;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::encrypted_writer::send_encrypted;
use super::writer::{SendError, Sent, send_parts};

/// How long a client may take to agree on keys.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);

/// An accepted connection, ready for requests.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Agrees on keys where the listener has TLS.
    pub(super) async fn accept(socket: TcpStream, tls: Option<Acceptor>) -> io::Result<Stream> {
        let Some(acceptor) = tls else { return Ok(Stream::Plain(socket)) };
        match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(socket)).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream?))),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    /// Sends all parts; see [`send_parts`] and [`send_encrypted`].
    pub(super) async fn send(
        &mut self,
        parts: Vec<Part>,
        patience: Duration,
        sent: &mut Sent,
    ) -> Result<(), SendError> {
        match self {
            Stream::Plain(socket) => send_parts(socket, parts, patience, sent).await,
            Stream::Tls(stream) => send_encrypted(&mut **stream, parts, patience, sent).await,
        }
    }

    /// The socket under it all.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}
