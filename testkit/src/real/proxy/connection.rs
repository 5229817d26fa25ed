//! One connection through the proxy: two lanes, a reader and a writer at each, and what faults do to them.
//!
//! A cut loses packets, so connections stay and nobody is told: nothing is written while the way is cut, a
//! new connection is not made through, and what waited goes on when the cut ends, as TCP would repeat it.
//! TCP loses nothing out of the middle, so a Kafka connection that loses a frame breaks at both ends. On
//! an HTTP/2 connection a request that is lost is simply never answered; a stream that goes on (raft,
//! committed metadata) and loses a part is reset at both ends. Bytes that do not arrive are given back
//! to the sender's flow-control window, else it would close.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::{Fate, HeldFate};
use super::http2::{self, Streams};
use super::kafka::{self, Asked};
use super::lane::{Item, Lane, Next};
use super::message::{Message, Plane};
use super::switchboard::Switchboard;
use crate::real::NodeId;

/// The most that is written at once on a way with a limited rate.
const PIECE_BYTES: u64 = 16 << 10;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the dialer.
    Up,
    /// To the dialer.
    Down,
}

impl Direction {
    fn other(self) -> Direction {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

/// What a frame is for its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A whole message of Kafka.
    Message,
    /// A part of an HTTP/2 message.
    Data,
    /// The head or the end of an HTTP/2 message: it cannot be held, for heads build on each other.
    Head,
    /// The end of an HTTP/2 stream before its time.
    Reset,
    /// What belongs to the connection itself.
    Other,
}

/// A frame as it was read.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) part: Part,
    pub(super) stream: u32,
    /// What it is called; `None` for what cannot be held or lost by name.
    pub(super) name: Option<Message>,
    /// Whether a message begins with it.
    pub(super) begins: bool,
    /// What it takes of the sender's window.
    pub(super) window: u32,
    pub(super) bytes: Bytes,
}

/// Who is at the ends, and where to find the second.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub(super) plane: Plane,
    /// Who dialed; `None` for somebody who is no node.
    pub(super) dialer: Option<NodeId>,
    pub(super) target: NodeId,
    pub(super) address: String,
}

/// See the head of this file.
pub(super) struct Connection {
    board: Arc<Switchboard>,
    ends: Ends,
    up: Lane,
    down: Lane,
    pub(super) asked: parking_lot::Mutex<Asked>,
    pub(super) streams: parking_lot::Mutex<Streams>,
    broken: Notify,
}

/// Carries one connection until both directions have ended.
pub(super) async fn carry(
    board: Arc<Switchboard>,
    ends: Ends,
    first: Option<Bytes>,
    client_reads: BufReader<OwnedReadHalf>,
    client_writes: OwnedWriteHalf,
) {
    let connection = Connection {
        board,
        ends,
        up: Lane::default(),
        down: Lane::default(),
        asked: parking_lot::Mutex::default(),
        streams: parking_lot::Mutex::default(),
        broken: Notify::new(),
    };
    let _counted = connection.board.count(&connection.ends);
    let through = async {
        let server = match connection.dial().await {
            Ok(server) => server,
            Err(error) => {
                let Ends { target, address, .. } = &connection.ends;
                tracing::debug!(target, address, %error, "the proxy did not get through");
                return connection.broken.notify_one();
            }
        };
        let (server_reads, server_writes) = server.into_split();
        tokio::join!(
            connection.write_out(Direction::Up, server_writes),
            connection.read_in(Direction::Down, None, BufReader::new(server_reads)),
            connection.write_out(Direction::Down, client_writes),
        );
    };
    let whole =
        async { tokio::join!(connection.read_in(Direction::Up, first, client_reads), through) };
    tokio::select! {
        _ = whole => {}
        () = connection.broken.notified() => {}
    }
    for direction in [Direction::Up, Direction::Down] {
        connection.forget(&connection.lane(direction).empty());
    }
}

impl Connection {
    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    /// Sender and receiver.
    fn way(&self, direction: Direction) -> (Option<NodeId>, Option<NodeId>, Plane) {
        let Ends { plane, dialer, target, .. } = self.ends;
        match direction {
            Direction::Up => (dialer, Some(target), plane),
            Direction::Down => (Some(target), dialer, plane),
        }
    }

    fn is_cut(&self, direction: Direction) -> bool {
        let (from, to, plane) = self.way(direction);
        self.board.with(|table| table.is_cut(from, to, plane))
    }

    fn fate_of_held(&self, id: super::faults::FaultId) -> HeldFate {
        self.board.with(|table| table.fate_of_held(id))
    }

    /// Gets through to the target; while either way is cut, that takes until it is healed.
    async fn dial(&self) -> io::Result<TcpStream> {
        let mut changes = self.board.changes();
        loop {
            changes.borrow_and_update();
            if self.up.has_ended() {
                return Err(io::Error::other("the dialer has gone"));
            }
            if !self.is_cut(Direction::Up) && !self.is_cut(Direction::Down) {
                break;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.up.changed() => {}
            }
        }
        let stream = TcpStream::connect(&self.ends.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn read_in(
        &self,
        direction: Direction,
        first: Option<Bytes>,
        mut source: BufReader<OwnedReadHalf>,
    ) {
        let read = match self.ends.plane {
            Plane::Data => kafka::read(self, direction, first, &mut source).await,
            Plane::Control => http2::read(self, direction, &mut source).await,
        };
        if let Err(error) = read {
            tracing::debug!(?direction, ends = ?self.ends, %error, "a reader of the proxy ended");
            if error.kind() == io::ErrorKind::InvalidData {
                self.broken.notify_one();
            }
        }
        self.lane(direction).end();
    }

    /// Takes a frame in; `false` when nobody writes any more.
    pub(super) async fn offer(&self, direction: Direction, frame: Frame) -> bool {
        let lane = self.lane(direction);
        if !lane.wait_for_room().await {
            return false;
        }
        match frame.part {
            // Nobody waits for what this stream still holds.
            Part::Reset => {
                for way in [Direction::Up, Direction::Down] {
                    self.give_up(way, &self.lane(way).purge(frame.stream, false));
                }
            }
            Part::Head => self.give_up(direction, &lane.purge(frame.stream, false)),
            Part::Message | Part::Data | Part::Other => {}
        }
        let (from, to, plane) = self.way(direction);
        let fate = frame.name.map_or(Fate::Passes, |name| {
            self.board.with(|table| table.on_message(from, to, plane, name, frame.begins))
        });
        let (latency, _) = self.board.with(|table| table.slowness(from, to, plane));
        let (held, counts) = match fate {
            Fate::IsHeld(id) => (Some(id), frame.begins),
            _ if matches!(frame.part, Part::Message | Part::Data) => {
                (lane.holds(frame.stream), false)
            }
            _ => (None, false),
        };
        let item = Item {
            stream: frame.stream,
            bytes: frame.bytes,
            due: Instant::now() + latency,
            held,
            counts,
            is_endless: matches!(frame.name, Some(Message::Raft | Message::MetadataStream)),
            window: frame.window,
        };
        match fate {
            Fate::IsLost => self.lose(direction, &item),
            _ => lane.push(item),
        }
        true
    }

    /// A frame does not arrive; see the head of this file.
    fn lose(&self, direction: Direction, item: &Item) {
        self.forget(std::slice::from_ref(item));
        if self.ends.plane == Plane::Data {
            return self.broken.notify_one();
        }
        self.give_back(direction, item.window);
        if item.is_endless {
            for way in [Direction::Up, Direction::Down] {
                self.give_up(way, &self.lane(way).purge(item.stream, true));
                self.insert(way, http2::reset(item.stream));
            }
        }
    }

    /// Frames that nobody waits for any more.
    fn give_up(&self, direction: Direction, items: &[Item]) {
        self.forget(items);
        self.give_back(direction, items.iter().map(|item| item.window).sum());
    }

    fn forget(&self, items: &[Item]) {
        for id in items.iter().filter(|item| item.counts).filter_map(|item| item.held) {
            self.board.with(|table| table.on_gone(id));
        }
    }

    fn give_back(&self, direction: Direction, window: u32) {
        if window > 0 {
            self.insert(direction.other(), http2::window_update(window));
        }
    }

    fn insert(&self, direction: Direction, bytes: Bytes) {
        self.lane(direction).push(Item {
            stream: 0,
            bytes,
            due: Instant::now(),
            held: None,
            counts: false,
            is_endless: false,
            window: 0,
        });
    }

    async fn write_out(&self, direction: Direction, mut sink: OwnedWriteHalf) {
        let lane = self.lane(direction);
        let mut changes = self.board.changes();
        loop {
            changes.borrow_and_update();
            let next = match self.is_cut(direction) {
                true => Next::Wait,
                false => lane.next(Instant::now(), |id| self.fate_of_held(id)),
            };
            match next {
                Next::Write(bytes) => {
                    if self.write(direction, &bytes, &mut sink).await.is_err() {
                        return lane.break_off();
                    }
                }
                Next::Lose(item) => self.lose(direction, &item),
                Next::WaitUntil(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = lane.changed() => {}
                    _ = changes.changed() => {}
                },
                Next::Wait => tokio::select! {
                    () = lane.changed() => {}
                    _ = changes.changed() => {}
                },
                Next::End => {
                    // Fails only when the other end has gone already.
                    let _ = sink.shutdown().await;
                    return;
                }
            }
        }
    }

    /// Writes a frame, at the pace that the way allows.
    async fn write(
        &self,
        direction: Direction,
        mut bytes: &[u8],
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let (from, to, plane) = self.way(direction);
        loop {
            let (_, rate) = self.board.with(|table| table.slowness(from, to, plane));
            let Some(rate) = rate.map(|rate| rate.max(1)) else {
                return sink.write_all(bytes).await;
            };
            // About ten pieces a second, so that the end of the fault is felt soon.
            let most = (rate / 10).clamp(1, PIECE_BYTES).min(bytes.len() as u64) as usize;
            let (piece, rest) = bytes.split_at(most);
            sink.write_all(piece).await?;
            tokio::time::sleep(Duration::from_secs_f64(most as f64 / rate as f64)).await;
            if rest.is_empty() {
                return Ok(());
            }
            bytes = rest;
        }
    }
}
