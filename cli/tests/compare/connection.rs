//! One connection of a case: requests by number and JSON, in versions that may not exist, and what came back.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use protocol::frame::{decode_response, encode_request, request_header};
use protocol::reflect::Value;
use protocol::{ApiKey, RequestBody, join_parts};
use serde_json::json;

use crate::language::value::raw;

/// Longer than any wait that a case asks for.
const PATIENCE: Duration = Duration::from_secs(6);

/// A connection to one broker.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    correlation_id: i32,
    /// What was sent last, to know how to read the answer.
    sent: (ApiKey, i16),
}

/// What a request came to.
#[derive(Debug)]
pub enum Answer {
    Body(Value),
    /// Nothing, though the next request was answered.
    Silence,
    Closed,
    TooLate,
    /// An answer that does not fit the version it was asked in.
    Unreadable(String),
}

impl Answer {
    /// As it is compared and shown.
    pub fn into_value(self) -> Value {
        match self {
            Answer::Body(value) => value,
            Answer::Silence => json!("no answer, as it should be"),
            Answer::Closed => json!("the connection was closed"),
            Answer::TooLate => json!("no answer in time"),
            Answer::Unreadable(problem) => json!(format!("unreadable: {problem}")),
        }
    }
}

impl Connection {
    pub fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, correlation_id: 0, sent: (ApiKey::ApiVersions, 0) })
    }

    /// Sends a request. A body that is a text is bytes to send as they are; `written_as` is the version of the
    /// body and the header where `version` itself does not exist.
    pub fn send(
        &mut self,
        api_key: ApiKey,
        version: i16,
        body: &Value,
        written_as: Option<i16>,
    ) -> Result<()> {
        self.correlation_id += 1;
        self.sent = (api_key, version);
        let form = written_as.unwrap_or(version);
        let header = request_header(api_key, form, self.correlation_id, Some("compare"));
        let (fields, bytes) = match body {
            Value::String(_) => (json!({}), Some(raw(body)?)),
            fields => (fields.clone(), None),
        };
        let request = RequestBody::from_json(api_key, &fields, form)?;
        let mut frame = join_parts(encode_request(header, &request)?)?.to_vec();
        if let Some(bytes) = bytes {
            let header_length = frame.len() - request.to_bytes(form)?.len();
            frame.truncate(header_length);
            frame.extend(bytes);
            let size = frame.len() as i32 - 4;
            frame[..4].copy_from_slice(&size.to_be_bytes());
        }
        frame[6..8].copy_from_slice(&version.to_be_bytes());
        // A broker that has closed already is found out by reading.
        let _ = self.stream.write_all(&frame);
        Ok(())
    }

    /// The answer to what was sent last.
    pub fn receive(&mut self) -> Answer {
        let (api_key, version) = self.sent;
        match self.frame() {
            Ok(frame) => match decode_response(frame, self.correlation_id, api_key, version) {
                Ok(body) => Answer::Body(body.to_json(version)),
                Err(error) => Answer::Unreadable(error.to_string()),
            },
            Err(answer) => answer,
        }
    }

    /// What came back when nothing should: another request shows that nothing did.
    pub fn receive_nothing(&mut self) -> Result<Answer> {
        let (sent, first) = (self.sent, self.correlation_id);
        self.send(ApiKey::ApiVersions, 0, &json!({}), None)?;
        let frame = match self.frame() {
            Ok(frame) => frame,
            Err(answer) => return Ok(answer),
        };
        if frame.get(..4) == Some(&self.correlation_id.to_be_bytes()) {
            return Ok(Answer::Silence);
        }
        let body = decode_response(frame, first, sent.0, sent.1);
        // The probe's own answer is still to come.
        if let Err(answer) = self.frame() {
            return Ok(answer);
        }
        Ok(match body {
            Ok(body) => Answer::Body(body.to_json(sent.1)),
            Err(error) => Answer::Unreadable(error.to_string()),
        })
    }

    fn frame(&mut self) -> Result<Bytes, Answer> {
        let mut size = [0; 4];
        self.fill(&mut size)?;
        let mut frame = vec![0; u32::from_be_bytes(size) as usize & 0xfff_ffff];
        self.fill(&mut frame)?;
        Ok(frame.into())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Answer> {
        self.stream.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Answer::TooLate,
            _ => Answer::Closed,
        })
    }
}
