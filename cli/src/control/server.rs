//! HTTP/1.1 for the control port. Few connections at a time, small heads and bodies, and an end to
//! everything, as at the port of the metrics; errors are JSON with one sentence.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{DEFAULT_ADDRESS, Refusal, Shared, routes};

const MOST_CONNECTIONS: usize = 32;
const MOST_BODY_BYTES: usize = 16 << 10;
/// Of a body that is too large, read and forgotten.
const MOST_READ_BYTES: usize = 1 << 20;
const MOST_HEAD_BYTES: usize = 8192;
/// How long a client may take to say what it wants.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may last; a clean stop of a node may take half a minute.
const WHOLE_PATIENCE: Duration = Duration::from_secs(120);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes the address of `--control` apart: `HOST:PORT`, or a port of the loopback interface.
pub fn address(text: &str) -> String {
    match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => text.to_owned(),
    }
}

/// Listens where `--control` says.
///
/// # Errors
/// When it is no address, or taken.
pub async fn bind(text: &str) -> Result<TcpListener> {
    let address = address(text);
    TcpListener::bind(&address).await.with_context(|| {
        format!(
            "--control {text}: cannot listen on {address}; give HOST:PORT, as {DEFAULT_ADDRESS}"
        )
    })
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, controlled: Shared) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let controlled = Arc::clone(&controlled);
                tokio::spawn(async move {
                    let _place = place;
                    serve_one(stream, peer, controlled).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accepting a connection to the control port failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, peer: SocketAddr, controlled: Shared) {
    let service = service_fn(move |request: Request<Incoming>| {
        let controlled = Arc::clone(&controlled);
        async move { Ok::<_, Infallible>(respond(request, controlled).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .keep_alive(false)
        .max_buf_size(MOST_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(WHOLE_PATIENCE, connection).await {
        tracing::debug!(%peer, %error, "a request to the control port broke off");
    }
}

async fn respond(request: Request<Incoming>, controlled: Shared) -> Response<Full<Bytes>> {
    let allowed = routes::methods(request.uri().path());
    let answer = match handle(request, &allowed, controlled).await {
        Ok(value) => json_response(200, &value),
        Err(Refusal { status, error }) => json_response(status, &json!({ "error": error })),
    };
    with_allow(answer, &allowed)
}

/// A 405 names what is allowed.
fn with_allow(mut answer: Response<Full<Bytes>>, allowed: &[&str]) -> Response<Full<Bytes>> {
    if answer.status() == 405
        && let Ok(value) = HeaderValue::from_str(&allowed.join(", "))
    {
        answer.headers_mut().insert(ALLOW, value);
    }
    answer
}

async fn handle(
    request: Request<Incoming>,
    allowed: &[&str],
    controlled: Shared,
) -> Result<Value, Refusal> {
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.as_str().to_owned(), head.uri.path().to_owned());
    if allowed.is_empty() {
        return Err(Refusal::missing(format!("no {path} here; GET /openapi.json tells what is")));
    }
    if !allowed.contains(&method.as_str()) {
        return Err(Refusal::new(405, format!("{method} {path}: only {}", allowed.join(", "))));
    }
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = content_type
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if head.method == Method::POST && !is_json {
        return Err(Refusal::new(415, "a POST wants Content-Type: application/json"));
    }
    let body = match tokio::time::timeout(BODY_PATIENCE, collect(body)).await {
        Ok(body) => body?,
        Err(_) => return Err(Refusal::new(408, "the body did not come")),
    };
    let query = head.uri.query().unwrap_or_default().to_owned();
    let work = move || routes::answer(&controlled, &method, &path, &query, &body);
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(Refusal::new(500, io::Error::other(error))),
    }
}

/// The whole body. Of one that is too large a little more is read, so that its sender hears of it.
async fn collect(mut body: Incoming) -> Result<Vec<u8>, Refusal> {
    let (mut collected, mut size) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refusal::bad(format!("the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size <= MOST_BODY_BYTES {
            collected.extend_from_slice(&data);
        } else if size > MOST_READ_BYTES {
            break;
        }
    }
    if size > MOST_BODY_BYTES {
        return Err(Refusal::new(413, format!("a body of more than {MOST_BODY_BYTES} bytes")));
    }
    Ok(collected)
}

fn json_response(status: u16, value: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{value:#}\n"))));
    *response.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
