//! The control plane's connections, under TLS where the controller's listener has it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::handshake::{Acceptor, Connected as Encrypted, Connector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// The TLS of a controller's listener: how it accepts, and how others are reached by it.
#[derive(Clone, Debug, Default)]
pub struct ControlSecurity {
    /// `None` accepts plain connections.
    pub server: Option<Acceptor>,
    /// `None` makes plain connections.
    pub client: Option<Connector>,
}

/// A connection of the control plane.
#[derive(Debug)]
pub(super) enum ControlStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for ControlStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for ControlStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ControlStream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            ControlStream::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ControlStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ControlStream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            ControlStream::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ControlStream::Plain(stream) => Pin::new(stream).poll_flush(context),
            ControlStream::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ControlStream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            ControlStream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}

/// A channel that connects when it is first used.
pub(crate) fn connect_lazy(endpoint: Endpoint, tls: Option<&Connector>) -> Channel {
    match tls {
        None => endpoint.connect_lazy(),
        Some(connector) => {
            let connector = connector.clone();
            endpoint.connect_with_connector_lazy(service_fn(move |uri| {
                connect_socket(uri, connector.clone())
            }))
        }
    }
}

/// A channel that is connected.
pub(super) async fn connect(
    endpoint: Endpoint,
    tls: Option<&Connector>,
) -> Result<Channel, tonic::transport::Error> {
    match tls {
        None => endpoint.connect().await,
        Some(connector) => {
            let connector = connector.clone();
            let service = service_fn(move |uri| connect_socket(uri, connector.clone()));
            endpoint.connect_with_connector(service).await
        }
    }
}

async fn connect_socket(uri: Uri, connector: Connector) -> io::Result<TokioIo<Encrypted>> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    connector.connect(host, uri.port_u16().unwrap_or_default()).await.map(TokioIo::new)
}
