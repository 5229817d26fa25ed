//! The request log: one JSON object a line for every request that is over, on demand
//! (`highwater.request.log.enable`). Its fields are those of Kafka's `kafka.request.logger` where Kafka
//! has them; times are in milliseconds.
//!
//! Lines are made on the connection's task and written by a thread of their own. What waits for that
//! thread is bounded; when the disk is slower than the requests, lines are dropped and counted, and no
//! request waits.

mod describe;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use protocol::messages::RequestBody;
use serde_json::{Value, json};

use super::observer::Ended;
use crate::counting::Counter;
use crate::network::RequestContext;

/// Lines that may wait to be written.
const QUEUED_LINES: usize = 8192;
/// And bytes of them.
const QUEUED_BYTES: u64 = 16 * 1024 * 1024;
/// Lines are written once so many bytes of them are there, or no more come.
const WRITTEN_AT_ONCE_BYTES: usize = 64 * 1024;
/// How long the end of a node waits for the last lines.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// What is kept of a request until its line can be written.
#[derive(Debug)]
pub struct Draft {
    time_ms: u64,
    header: Value,
    connection: String,
    listener: Arc<str>,
    request_bytes: usize,
    request: Value,
}

impl Draft {
    /// Notes what the request says.
    pub fn new(context: &RequestContext, body: &RequestBody) -> Self {
        let connection = &context.connection;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            time_ms: since_epoch.as_millis() as u64,
            header: json!({
                "requestApiKey": context.api_key.to_i16(),
                "requestApiVersion": context.api_version,
                "correlationId": context.correlation_id,
                "clientId": context.client_id,
                "requestApiKeyName": context.api_key.kafka_name(),
            }),
            connection: format!("{}-{}-{}", connection.local, connection.peer, connection.id),
            listener: connection.listener.clone(),
            request_bytes: context.size_bytes,
            request: describe::request(body, context.api_version),
        }
    }

    fn line(&self, ended: &Ended<'_>) -> String {
        let times = &ended.times;
        let millis = |time: Duration| time.as_micros() as f64 / 1000.0;
        let throttle = ended.response.map_or(0, protocol::ResponseBody::throttle_time_ms);
        let line = json!({
            "timeMs": self.time_ms,
            "requestHeader": self.header,
            "request": self.request,
            "response": ended.response.map_or(Value::Null, describe::response),
            "connection": self.connection,
            "listener": &*self.listener,
            "totalTimeMs": millis(times.total()),
            "requestQueueTimeMs": millis(times.queue),
            "localTimeMs": millis(times.local),
            "remoteTimeMs": millis(times.remote),
            "throttleTimeMs": throttle,
            "responseQueueTimeMs": millis(times.response_queue),
            "sendTimeMs": millis(times.send),
            "requestBytes": self.request_bytes,
            "responseBytes": ended.response_bytes,
        });
        let mut text = line.to_string();
        text.push('\n');
        text
    }
}

enum Message {
    Line(String),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

/// What the two ends of the queue share.
#[derive(Debug, Default)]
struct Counts {
    queued_bytes: Counter,
    written: Counter,
    dropped: Counter,
}

/// Where lines go.
type Target = Box<dyn Write + Send>;

/// The request log of a node. The default one has nowhere to write and is never on.
#[derive(Default)]
pub struct RequestLog {
    on: AtomicBool,
    /// Until it is on for the first time.
    target: Mutex<Option<Target>>,
    queue: OnceLock<SyncSender<Message>>,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestLog").field("on", &self.on).finish_non_exhaustive()
    }
}

impl RequestLog {
    /// A log that appends to the file at `path`, or writes to standard error. Off at first.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let target: Target = match path {
            Some(path) => Box::new(OpenOptions::new().create(true).append(true).open(path)?),
            None => Box::new(io::stderr()),
        };
        Ok(Self::to(target))
    }

    fn to(target: Target) -> Self {
        Self { target: Mutex::new(Some(target)), ..Self::default() }
    }

    /// Whether requests are logged.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Turns it on or off, from the next request on.
    pub fn set_on(&self, on: bool) {
        let target = if on { self.target.lock().take() } else { None };
        if let Some(target) = target {
            self.start(target);
        }
        self.on.store(on && self.queue.get().is_some(), Ordering::Relaxed);
    }

    fn start(&self, target: Target) {
        let (queue, messages) = sync_channel(QUEUED_LINES);
        let counts = self.counts.clone();
        let writing = move || write_all(target, &messages, &counts);
        match std::thread::Builder::new().name("request-log".into()).spawn(writing) {
            Ok(_) => {
                let _ = self.queue.set(queue);
            }
            Err(error) => tracing::error!(%error, "requests cannot be logged"),
        }
    }

    /// Lines written, and lines dropped because too many waited or the file took none.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.written.get(), self.counts.dropped.get())
    }

    /// Hands a line to the writing thread; drops it when that is behind.
    pub fn write(&self, draft: &Draft, ended: &Ended<'_>) {
        let counts = &self.counts;
        let has_room = counts.queued_bytes.get() < QUEUED_BYTES;
        let Some(queue) = self.queue.get().filter(|_| has_room) else {
            return counts.dropped.add(1);
        };
        let line = draft.line(ended);
        let bytes = line.len() as u64;
        counts.queued_bytes.add(bytes);
        if queue.try_send(Message::Line(line)).is_err() {
            counts.queued_bytes.subtract(bytes);
            counts.dropped.add(1);
        }
    }

    /// Waits until all lines so far are written, but not for ever.
    pub fn flush(&self) {
        let (done, on_done) = sync_channel(1);
        if let Some(queue) = self.queue.get()
            && queue.try_send(Message::Flush(done)).is_ok()
        {
            let _ = on_done.recv_timeout(LAST_PATIENCE);
        }
    }
}

/// The writing end. Only whole lines are written, many at once: nodes may share a file.
struct Writer<'a> {
    out: Target,
    counts: &'a Counts,
    pending: Vec<u8>,
    lines: u64,
    is_failing: bool,
}

impl Writer<'_> {
    fn add(&mut self, line: &str) {
        self.counts.queued_bytes.subtract(line.len() as u64);
        self.pending.extend_from_slice(line.as_bytes());
        self.lines += 1;
        if self.pending.len() >= WRITTEN_AT_ONCE_BYTES {
            self.write();
        }
    }

    /// Writes what is there. A file that takes nothing is told once, until it takes something again.
    fn write(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        match self.out.write_all(&self.pending).and_then(|()| self.out.flush()) {
            Ok(()) => {
                self.counts.written.add(self.lines);
                self.is_failing = false;
            }
            Err(error) => {
                self.counts.dropped.add(self.lines);
                if !self.is_failing {
                    tracing::warn!(%error, "the request log cannot be written");
                }
                self.is_failing = true;
            }
        }
        self.pending.clear();
        self.lines = 0;
    }
}

/// Writes lines until the log is gone.
fn write_all(out: Target, messages: &Receiver<Message>, counts: &Counts) {
    let mut writer = Writer { out, counts, pending: Vec::new(), lines: 0, is_failing: false };
    loop {
        let message = match messages.try_recv() {
            Err(TryRecvError::Empty) => {
                writer.write();
                messages.recv().ok()
            }
            message => message.ok(),
        };
        match message {
            Some(Message::Line(line)) => writer.add(&line),
            Some(Message::Flush(done)) => {
                writer.write();
                let _ = done.try_send(());
            }
            None => return writer.write(),
        }
    }
}

#[cfg(test)]
mod tests;
