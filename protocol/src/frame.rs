//! Frames: what stands around a message on a connection. A frame is four bytes of size, a header,
//! a body. Which header version goes with which body is the API's own table; the request header is
//! peeked at first, because its first two fields decide how the rest of it reads.
//!
//! Rules: P01 (ApiVersions: response header always v0, a version we do not know answered in v0 with error 35),
//! P02 (other unknown keys and versions, and truncated bodies close the connection),
//! P03 (sizes are checked before anything is allocated).

use bytes::Bytes;

use crate::api_key::ApiKey;
use crate::codec::{Decoder, Encoder, Message};
use crate::error::{DecodeError, EncodeError};
use crate::error_code::ErrorCode;
use crate::messages::{RequestBody, RequestHeader, ResponseBody, ResponseHeader};
use crate::parts::Part;

/// The bytes of the size before every frame.
pub const SIZE_PREFIX_BYTES: usize = 4;

/// Why a frame is refused. All of these close the connection without an answer (rules P02, P03).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The size is negative.
    #[error("frame of {size} bytes")]
    NegativeSize {
        /// The size read.
        size: i32,
    },
    /// The size is over the limit (`socket.request.max.bytes`).
    #[error("frame of {size} bytes is over the limit of {max}")]
    TooLarge {
        /// The size read.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// There is no API with this key.
    #[error("no API has key {api_key}")]
    UnknownApiKey {
        /// The key read.
        api_key: i16,
    },
    /// The API has no such version that is served.
    #[error("version {version} of {api_key} is not served")]
    UnsupportedVersion {
        /// The API.
        api_key: ApiKey,
        /// The version read.
        version: i16,
    },
    /// The answer is for another request.
    #[error("answer carries correlation id {found}, {expected} was expected")]
    CorrelationMismatch {
        /// The id of the request.
        expected: i32,
        /// The id in the answer.
        found: i32,
    },
    /// The bytes are not what they should be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Checks the size before a frame, so that nothing is allocated for a size that cannot be true
/// (rule P03). Returns how many bytes to read; 0 is for the caller to ignore.
pub fn check_frame_size(prefix: [u8; SIZE_PREFIX_BYTES], max: usize) -> Result<usize, FrameError> {
    let size = i32::from_be_bytes(prefix);
    let size = usize::try_from(size).map_err(|_| FrameError::NegativeSize { size })?;
    if size > max {
        return Err(FrameError::TooLarge { size, max });
    }
    Ok(size)
}

/// A request whose header has been read and whose body has not.
#[derive(Debug)]
pub struct RequestStart {
    /// The API.
    pub api_key: ApiKey,
    /// The version of the body, as the client asked for it.
    pub api_version: i16,
    /// The header.
    pub header: RequestHeader,
    /// Reads the body.
    pub body: Decoder,
}

impl RequestStart {
    /// Reads the header of a request. Key and version are peeked at first and must be served
    /// (rule P02); only ApiVersions may ask for a version that does not exist (rule P01).
    pub fn read(frame: Bytes) -> Result<RequestStart, FrameError> {
        let mut decoder = Decoder::new(frame);
        let mut peek = decoder.clone();
        let (key, api_version) = (peek.get_i16()?, peek.get_i16()?);
        let api_key = ApiKey::from_i16(key).ok_or(FrameError::UnknownApiKey { api_key: key })?;
        if !api_key.served_versions().contains(&api_version) && api_key != ApiKey::ApiVersions {
            return Err(FrameError::UnsupportedVersion { api_key, version: api_version });
        }
        let header_version = api_key.request_header_version(api_version);
        let header = RequestHeader::decode(&mut decoder, header_version)?;
        Ok(RequestStart { api_key, api_version, header, body: decoder })
    }

    /// Whether this is an ApiVersions request of a version we do not know: its body must not be read, and
    /// the answer is version 0 with [`ErrorCode::UnsupportedVersion`] (rule P01).
    pub fn is_unknown_api_versions(&self) -> bool {
        !self.api_key.served_versions().contains(&self.api_version)
    }

    /// The version to answer in.
    pub fn response_version(&self) -> i16 {
        if self.is_unknown_api_versions() { 0 } else { self.api_version }
    }

    /// Reads the body. Bytes behind it are ignored, as Kafka 4.4.0 ignores them: librdkafka 2.16 sends
    /// three behind some Metadata v13 requests, and closing on them would fail its first request.
    pub fn read_body(mut self) -> Result<RequestBody, FrameError> {
        if self.is_unknown_api_versions() {
            let (api_key, version) = (self.api_key, self.api_version);
            return Err(FrameError::UnsupportedVersion { api_key, version });
        }
        let body = RequestBody::decode(self.api_key, self.api_version, &mut self.body)?;
        Ok(body)
    }
}

/// A response as it goes out: size, header, body; records are parts of their own.
pub fn encode_response(
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
    body: &ResponseBody,
) -> Result<Vec<Part>, EncodeError> {
    let header = ResponseHeader { correlation_id, ..Default::default() };
    let header_version = api_key.response_header_version(version);
    encode_frame(&|encoder| {
        header.encode(encoder, header_version)?;
        body.encode(encoder, version)
    })
}

/// The header of a request that carries `version` of `api_key`.
pub fn request_header(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> RequestHeader {
    RequestHeader {
        request_api_key: api_key.to_i16(),
        request_api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
        ..Default::default()
    }
}

/// A request as our own clients send it: size, header, body. The body is written in the version
/// that the header names; the key on the wire is the body's, whatever the header holds.
pub fn encode_request(header: RequestHeader, body: &RequestBody) -> Result<Vec<Part>, EncodeError> {
    let api_key = body.api_key();
    let version = header.request_api_version;
    let header = RequestHeader { request_api_key: api_key.to_i16(), ..header };
    let header_version = api_key.request_header_version(version);
    encode_frame(&|encoder| {
        header.encode(encoder, header_version)?;
        body.encode(encoder, version)
    })
}

/// Measures, checks that the size can be said in four bytes, and writes size and content into one buffer.
fn encode_frame(
    write: &dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<Vec<Part>, EncodeError> {
    let mut measure = Encoder::measuring();
    write(&mut measure)?;
    let length = measure.size();
    let size = i32::try_from(length).map_err(|_| EncodeError::TooLong { length })?;
    let mut encoder = Encoder::with_capacity(SIZE_PREFIX_BYTES + measure.inline_size());
    encoder.put_i32(size);
    write(&mut encoder)?;
    Ok(encoder.into_parts())
}

/// Reads the answer to a request, without its size. `version` is the one the request was sent
/// in; an ApiVersions answer with error 35 is in version 0 whatever was asked for (rule P01).
pub fn decode_response(
    frame: Bytes,
    correlation_id: i32,
    api_key: ApiKey,
    version: i16,
) -> Result<ResponseBody, FrameError> {
    let mut decoder = Decoder::new(frame);
    let header_version = api_key.response_header_version(version);
    let header = ResponseHeader::decode(&mut decoder, header_version)?;
    if header.correlation_id != correlation_id {
        return Err(FrameError::CorrelationMismatch {
            expected: correlation_id,
            found: header.correlation_id,
        });
    }
    let refused = api_key == ApiKey::ApiVersions
        && decoder.clone().get_i16()? == ErrorCode::UnsupportedVersion.code();
    let version = if refused { 0 } else { version };
    let body = ResponseBody::decode(api_key, version, &mut decoder)?;
    decoder.finish()?;
    Ok(body)
}
