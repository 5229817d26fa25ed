//! The load client: one thread, many connections, so many requests in flight on each. A request's bytes
//! are built once; only its correlation id is written anew. So what it costs is mostly the system calls,
//! and is the same for every system.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, BytesMut};
use protocol::frame::{decode_response, encode_request, request_header};
use protocol::{RequestBody, ResponseBody};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Where the correlation id stands in a frame with its size: after key and version.
const CORRELATION_AT: usize = 4 + 2 + 2;
/// Room for one read.
const READ_BYTES: usize = 256 * 1024;
/// No answer may take longer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Looks at an answer and gives the next request's bytes, if they change; bytes that count.
pub type OnAnswer = Box<dyn FnMut(ResponseBody, &mut Vec<u8>) -> Result<usize>>;

/// One connection and what it asks again and again.
pub struct Lane {
    stream: TcpStream,
    request: Vec<u8>,
    api_key: protocol::ApiKey,
    version: i16,
    depth: usize,
    on_answer: OnAnswer,
    /// The request being sent, if its bytes are not all out: how many are.
    sending: Option<usize>,
    in_flight: VecDeque<(i32, Instant)>,
    correlation_id: i32,
    inbound: BytesMut,
}

/// What a load did.
#[derive(Default)]
pub struct Outcome {
    /// How long it ran.
    pub took: Duration,
    /// Answers within that time.
    pub answers: u64,
    /// Bytes that counted.
    pub bytes: u64,
    /// Time from sending to the answer, each.
    latencies: Vec<Duration>,
}

impl Outcome {
    /// The latency that so large a part of the answers did not exceed.
    pub fn quantile(&mut self, part: f64) -> Duration {
        quantile(&mut self.latencies, part)
    }

    /// Megabytes (10^6) a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took.as_secs_f64()
    }

    /// Answers a second.
    pub fn per_second(&self) -> f64 {
        self.answers as f64 / self.took.as_secs_f64()
    }
}

/// The value that so large a part does not exceed.
pub fn quantile(values: &mut [Duration], part: f64) -> Duration {
    values.sort_unstable();
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// The bytes of a request with its size; the correlation id is zero.
pub fn frame(version: i16, body: &RequestBody) -> Result<Vec<u8>> {
    let header = request_header(body.api_key(), version, 0, Some("benchmark"));
    Ok(protocol::join_parts(encode_request(header, body)?)?.to_vec())
}

impl Lane {
    /// Connects a lane that keeps `depth` requests in flight.
    pub fn connect(
        address: &str,
        version: i16,
        body: &RequestBody,
        depth: usize,
        on_answer: OnAnswer,
    ) -> Result<Lane> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Lane {
            stream,
            request: frame(version, body)?,
            api_key: body.api_key(),
            version,
            depth,
            on_answer,
            sending: None,
            in_flight: VecDeque::with_capacity(depth),
            correlation_id: 0,
            inbound: BytesMut::with_capacity(READ_BYTES),
        })
    }

    /// Sends as much as is allowed and the socket takes.
    fn send(&mut self) -> Result<()> {
        loop {
            let done = match self.sending {
                Some(done) => done,
                None if self.in_flight.len() < self.depth => {
                    self.correlation_id = self.correlation_id.wrapping_add(1);
                    let id = self.correlation_id.to_be_bytes();
                    self.request[CORRELATION_AT..CORRELATION_AT + 4].copy_from_slice(&id);
                    self.in_flight.push_back((self.correlation_id, Instant::now()));
                    0
                }
                None => return Ok(()),
            };
            self.sending = Some(done);
            match self.stream.write(&self.request[done..]) {
                Ok(written) if done + written == self.request.len() => self.sending = None,
                Ok(written) => self.sending = Some(done + written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads once and takes the answers that are whole.
    fn receive(&mut self, outcome: &mut Outcome) -> Result<()> {
        let held = self.inbound.len();
        let missing = self.frame_bytes().map_or(0, |whole| whole.saturating_sub(held));
        let room = missing.clamp(64 * 1024, 4 * 1024 * 1024);
        // Answers are let go before the next read: the same memory is used again.
        self.inbound.reserve(room);
        self.inbound.resize(held + room, 0);
        let read = self.stream.read(&mut self.inbound[held..]);
        self.inbound.truncate(held + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => bail!("the broker closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        while let Some(whole) = self.frame_bytes().filter(|whole| *whole <= self.inbound.len()) {
            let mut frame = self.inbound.split_to(whole);
            frame.advance(4);
            let (id, sent) = self.in_flight.pop_front().context("an answer to nothing")?;
            let answer = decode_response(frame.freeze(), id, self.api_key, self.version)?;
            outcome.latencies.push(sent.elapsed());
            outcome.answers += 1;
            outcome.bytes += (self.on_answer)(answer, &mut self.request)? as u64;
        }
        Ok(())
    }

    fn frame_bytes(&self) -> Option<usize> {
        let prefix = self.inbound.first_chunk::<4>()?;
        Some(4 + usize::try_from(i32::from_be_bytes(*prefix)).unwrap_or(0))
    }
}

/// Runs the lanes for `length`, after a warm-up that is not counted.
pub fn run(mut lanes: Vec<Lane>, warm_up: Duration, length: Duration) -> Result<Outcome> {
    let mut discarded = Outcome::default();
    drive(&mut lanes, warm_up, &mut discarded)?;
    let mut outcome = Outcome::default();
    let begun = Instant::now();
    drive(&mut lanes, length, &mut outcome)?;
    outcome.took = begun.elapsed();
    Ok(outcome)
}

fn drive(lanes: &mut [Lane], length: Duration, outcome: &mut Outcome) -> Result<()> {
    let end = Instant::now() + length;
    for lane in &mut *lanes {
        lane.send()?;
    }
    let mut ready: Vec<PollFlags> = Vec::new();
    while Instant::now() < end {
        ready.clear();
        let mut polled: Vec<PollFd<'_>> = lanes
            .iter()
            .map(|lane| {
                let write = lane.sending.map_or(PollFlags::empty(), |_| PollFlags::OUT);
                PollFd::new(&lane.stream, PollFlags::IN | write)
            })
            .collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        ready.extend(polled.iter().map(PollFd::revents));
        for (lane, events) in lanes.iter_mut().zip(&ready) {
            if events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                lane.receive(outcome)?;
            }
            lane.send()?;
            if let Some((_, sent)) = lane.in_flight.front() {
                ensure!(sent.elapsed() < ANSWER_PATIENCE, "no answer for {ANSWER_PATIENCE:?}");
            }
        }
    }
    Ok(())
}
