//! The endpoint that Prometheus scrapes: `GET /metrics` over HTTP/1.1, one request a connection.
//!
//! It is for monitors, not for the world: few connections are open at a time and the next ones are closed
//! at once, a connection that has not said what it wants within seconds or taken its answer within half a
//! minute is closed, heads are small, and pages are made one at a time. So whatever a client does, it
//! costs little and ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::text;

/// Connections open at a time.
const MOST_CONNECTIONS: usize = 16;
/// How long a client may take to say what it wants.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may last.
const WHOLE_PATIENCE: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes; the least that hyper allows.
const MOST_HEAD_BYTES: usize = 8192;
/// How long accepting rests after the system had no more descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Makes a page.
pub type Render = dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync;

/// Binds the endpoint's address.
///
/// # Errors
/// What the system says of the first address of the host.
pub async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    if host.is_empty() {
        // Both families at once where there is IPv6, as listeners do.
        return match TcpListener::bind(("::", port)).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(("0.0.0.0", port)).await
            }
            bound => bound,
        };
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((host, port)).await
}

/// Serves pages until it is dropped.
pub async fn serve(listener: TcpListener, render: Arc<Render>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        let render = Arc::clone(&render);
                        connections.spawn(async move {
                            let _place = place;
                            serve_one(stream, peer, render).await;
                        });
                    }
                    Err(_) => tracing::debug!(%peer, "too many connections to the metrics"),
                },
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection to the metrics failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn serve_one(stream: TcpStream, peer: SocketAddr, render: Arc<Render>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let render = Arc::clone(&render);
        async move { Ok::<_, Infallible>(answer(&request, &*render).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .keep_alive(false)
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(WHOLE_PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a scrape of the metrics broke off"),
        Err(_) => tracing::debug!(%peer, "a scrape of the metrics took too long"),
    }
}

async fn answer(request: &Request<Incoming>, render: &Render) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "The metrics are at /metrics.\n");
    }
    // A HEAD is answered like a GET; the body is left out on the way.
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET.\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let mut response = Response::new(Full::new(Bytes::from(render().await)));
    let content_type = HeaderValue::from_static(text::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn plain(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
