//! Connections to the controller's port, once they speak: a peer that connects and says nothing, or
//! speaks something else than HTTP/2, costs a socket for a few seconds and no more. Those that fall silent
//! later are found by HTTP/2's own pings.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::handshake::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_stream::Stream;

use super::secure::ControlStream;

/// What every HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a connection may take to say it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at a connection that has said a part of it.
const PAUSE: Duration = Duration::from_millis(10);

/// The connections of a listener that speak. The port is free once this is dropped.
pub(super) struct Speaking {
    listener: TcpListener,
    tls: Option<Acceptor>,
    listening_to: JoinSet<Option<ControlStream>>,
}

impl Speaking {
    pub(super) fn on(listener: TcpListener, tls: Option<Acceptor>) -> Self {
        Self { listener, tls, listening_to: JoinSet::new() }
    }
}

impl Stream for Speaking {
    type Item = io::Result<ControlStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while let Poll::Ready(accepted) = self.listener.poll_accept(context) {
            match accepted {
                Ok((stream, peer)) => {
                    let tls = self.tls.clone();
                    self.listening_to.spawn(once_it_speaks(stream, peer, tls));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        loop {
            match self.listening_to.poll_join_next(context) {
                Poll::Ready(Some(Ok(Some(stream)))) => return Poll::Ready(Some(Ok(stream))),
                Poll::Ready(Some(_)) => {}
                // Without any, the listener wakes this.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Under TLS, whoever agrees on keys in time speaks.
async fn once_it_speaks(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Acceptor>,
) -> Option<ControlStream> {
    stream.set_nodelay(true).ok()?;
    match tls {
        None => {
            let speaks = tokio::time::timeout(PATIENCE, speaks_http2(&stream)).await;
            speaks.unwrap_or(false).then_some(ControlStream::Plain(stream))
        }
        Some(acceptor) => {
            let accepting = acceptor.accept_node(stream, peer);
            let stream = tokio::time::timeout(PATIENCE, accepting).await.ok()??;
            Some(ControlStream::Tls(Box::new(stream)))
        }
    }
}

/// Whether the first bytes are the preface; they stay unread.
async fn speaks_http2(stream: &TcpStream) -> bool {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await {
            Ok(0) | Err(_) => return false,
            Ok(count) if first[..count] != PREFACE[..count] => return false,
            Ok(count) if count == PREFACE.len() => return true,
            Ok(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
