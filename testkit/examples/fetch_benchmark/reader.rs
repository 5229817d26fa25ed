//! A reader that costs next to nothing: requests made in advance, answers thrown away in the kernel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::frame::{encode_request, request_header};
use protocol::messages::FetchRequest;
use protocol::{ApiKey, RequestBody};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Bytes thrown away at once.
const DISCARDED_AT_ONCE: usize = 1 << 20;

/// A connection whose answers are only counted.
pub struct Reader {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Reader {
    pub fn connect(address: &str) -> Result<Reader> {
        let stream = TcpStream::connect(address).context("cannot connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Reader { stream, buffer: vec![0; DISCARDED_AT_ONCE] })
    }

    /// Sends a request made before.
    pub fn send(&mut self, frame: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(frame)?)
    }

    /// Whether nothing has come, and the server is still there.
    pub fn is_waiting(&self) -> bool {
        let nothing = recv(&self.stream, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        nothing.is_err_and(|error| error == Errno::AGAIN)
    }

    /// Throws an answer away; gives its size, with the four bytes that tell it.
    pub fn discard_answer(&mut self) -> Result<usize> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).context("the server closed or did not answer")?;
        let size = usize::try_from(i32::from_be_bytes(size)).context("a negative size")?;
        self.discard(size)?;
        Ok(4 + size)
    }

    /// Throws bytes away without taking them out of the kernel.
    pub fn discard(&mut self, mut bytes: usize) -> Result<()> {
        while bytes > 0 {
            let most = bytes.min(self.buffer.len());
            let (_, taken) = recv(&self.stream, &mut self.buffer[..most], RecvFlags::TRUNC)?;
            ensure!(taken > 0, "the server closed with {bytes} bytes to come");
            bytes = bytes.saturating_sub(taken);
        }
        Ok(())
    }
}

/// A fetch in its frame.
pub fn framed(version: i16, request: FetchRequest) -> Result<Bytes> {
    let header = request_header(ApiKey::Fetch, version, 1, Some("benchmark"));
    Ok(protocol::join_parts(encode_request(header, &RequestBody::Fetch(request))?)?)
}
