//! The bytes between a fetcher and its leader: a TCP connection, under TLS where the inter-broker
//! listener has it, and one request with its answer.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use protocol::frame::{self, FrameError, SIZE_PREFIX_BYTES};
use protocol::{ApiKey, EncodeError, RequestBody, ResponseBody};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::core::{FetcherRequest, FetcherResponse};
use crate::request::{FETCH_VERSION, LIST_OFFSETS_VERSION};

/// Room for an answer's size and a small body.
const FIRST_READ_BYTES: usize = 16 * 1024;

/// Why a round trip failed. The core backs off; the next one connects anew.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RoundTripError {
    #[error("the leader's address is not known")]
    NoEndpoint,
    #[error("timed out")]
    TimedOut,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("an answer of another API")]
    WrongApi,
    #[error("more bytes than the one answer asked for")]
    Surplus,
}

/// Bytes both ways, whatever is between.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection that is made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send + 'a>>;

/// Makes connections under TLS; who runs the fetchers knows how.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to a leader and agrees on keys.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialing<'a>;
}

/// Connects, and agrees on keys where there is TLS.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    tls: Option<&dyn Dial>,
) -> Result<Box<dyn Wire>, RoundTripError> {
    if let Some(tls) = tls {
        return Ok(tls.dial(host, port).await?);
    }
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// Sends one request and reads its answer.
pub(crate) async fn exchange(
    stream: &mut dyn Wire,
    request: FetcherRequest,
    correlation_id: i32,
    client_id: &str,
    max_frame_bytes: usize,
) -> Result<FetcherResponse, RoundTripError> {
    let (api_key, version, body) = match request {
        FetcherRequest::Fetch(fetch) => (ApiKey::Fetch, FETCH_VERSION, RequestBody::Fetch(fetch)),
        FetcherRequest::ListOffsets(list) => {
            (ApiKey::ListOffsets, LIST_OFFSETS_VERSION, RequestBody::ListOffsets(list))
        }
    };
    let header = frame::request_header(api_key, version, correlation_id, Some(client_id));
    let bytes = protocol::join_parts(frame::encode_request(header, &body)?)?;
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    let frame = read_frame(stream, max_frame_bytes).await?;
    match frame::decode_response(frame, correlation_id, api_key, version)? {
        ResponseBody::Fetch(fetch) => Ok(FetcherResponse::Fetch(fetch)),
        ResponseBody::ListOffsets(list) => Ok(FetcherResponse::ListOffsets(list)),
        _ => Err(RoundTripError::WrongApi),
    }
}

/// Reads one frame; what is decoded from it are slices of the buffer. With one request in flight nothing
/// follows the frame, so its size and a small body come with one read.
async fn read_frame(stream: &mut dyn Wire, max_bytes: usize) -> Result<Bytes, RoundTripError> {
    let mut buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
    let size = loop {
        if let Some(prefix) = buffer.first_chunk::<SIZE_PREFIX_BYTES>() {
            break frame::check_frame_size(*prefix, max_bytes)?;
        }
        read_some(stream, &mut buffer, FIRST_READ_BYTES).await?;
    };
    let whole = SIZE_PREFIX_BYTES + size;
    // Grown as bytes arrive: a size that is not true costs no memory.
    buffer.reserve(whole.min(16 * 1024 * 1024).saturating_sub(buffer.len()));
    while buffer.len() < whole {
        let missing = whole - buffer.len();
        if buffer.capacity() == buffer.len() {
            buffer.reserve(buffer.len().min(missing));
        }
        read_some(stream, &mut buffer, missing).await?;
    }
    if buffer.len() > whole {
        return Err(RoundTripError::Surplus);
    }
    Ok(buffer.freeze().split_off(SIZE_PREFIX_BYTES))
}

/// Reads at least a byte and at most so many.
async fn read_some(
    stream: &mut dyn Wire,
    buffer: &mut BytesMut,
    at_most: usize,
) -> Result<(), RoundTripError> {
    match stream.read_buf(&mut buffer.limit(at_most)).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        _ => Ok(()),
    }
}
