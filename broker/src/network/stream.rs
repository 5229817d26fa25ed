//! The ways bytes travel on a connection: as they are, or under TLS, which the kernel or this process does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use controller::handshake::Acceptor;
use protocol::Part;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::encrypted_writer::send_encrypted;
use super::kernel_tls::{KernelStream, KernelTls};
use super::record_reader::RecordReader;
use super::writer::{SendError, Sent, send_parts};

/// How long a client may take to agree on keys.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may take to hear that the connection ends.
const GOODBYE_PATIENCE: Duration = Duration::from_millis(500);

/// How a listener has TLS.
#[derive(Clone, Debug)]
pub(super) struct ListenerTls {
    pub(super) acceptor: Acceptor,
    /// What the kernel may do of it.
    pub(super) kernel: Option<Arc<KernelTls>>,
}

/// An accepted connection, ready for requests.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<RecordReader>>),
    KernelTls(KernelStream),
}

impl Stream {
    /// Agrees on keys where the listener has TLS, and gives them to the kernel if it takes them.
    pub(super) async fn accept(socket: TcpStream, tls: Option<ListenerTls>) -> io::Result<Stream> {
        let Some(tls) = tls else { return Ok(Stream::Plain(socket)) };
        match tokio::time::timeout(HANDSHAKE_PATIENCE, tls.accept(socket)).await {
            Ok(stream) => stream,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    }

    /// Tells a client under TLS that this is the end, lest it take the end for an attack. One that takes nothing
    /// is not waited for long.
    pub(super) async fn say_goodbye(&mut self) {
        match self {
            // Where the kernel has the keys, only a socket option that no safe interface gives could say it.
            Stream::Plain(_) | Stream::KernelTls(_) => {}
            Stream::Tls(stream) => {
                let (_, connection) = stream.get_mut();
                connection.send_close_notify();
                let _ = tokio::time::timeout(GOODBYE_PATIENCE, stream.flush()).await;
            }
        }
    }

    /// Whether its keys have encrypted as much as they should.
    pub(super) fn is_worn_out(&self) -> bool {
        matches!(self, Stream::KernelTls(stream) if stream.is_worn_out())
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
            Stream::KernelTls(stream) => {
                let result = send_parts(&stream.socket, parts, patience, sent).await;
                stream.note_sent(sent.bytes);
                result
            }
        }
    }

    /// The socket under it all.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0.socket(),
            Stream::KernelTls(stream) => &stream.socket,
        }
    }
}

impl ListenerTls {
    async fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        let Some(kernel) = &self.kernel else {
            let stream = self.acceptor.accept(RecordReader::free(socket)).await?;
            return Ok(Stream::Tls(Box::new(stream)));
        };
        let stream = self.acceptor.accept(RecordReader::by_records(socket)).await?;
        Ok(match kernel.take_over(stream).await? {
            Ok(stream) => Stream::KernelTls(stream),
            Err(stream) => Stream::Tls(Box::new(stream)),
        })
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
            Stream::KernelTls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}
