//! Sends an answer's parts: buffers by vectored writes, regions of files by `sendfile`, so that records
//! never enter this process. Short regions are read and written with their neighbours, which costs less
//! than a system call of their own. Before a `sendfile` the bytes written are marked "more follows",
//! so that header and records share packets.
//!
//! Rule F08: a region is sent from the file it was read from, which stays open though it be deleted.
//! When the file is shorter than the region, or the disk fails, the connection must close: the frame's
//! size was promised. Whose fault it was, the client's or the disk's, is in the error.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use protocol::{FileRegion, Part};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Regions shorter than this are read into memory instead.
pub const SENDFILE_MIN_BYTES: usize = 16 * 1024;

/// Buffers given to one system call.
const MAX_SLICES: usize = 64;

/// Bytes asked of one `sendfile`, so that other connections of this thread get their turn.
const MAX_SENDFILE_BYTES: usize = 1024 * 1024;

/// Bytes that went out, by the way they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All bytes.
    pub bytes: u64,
    /// Of these, the ones sent by `sendfile`.
    pub by_sendfile: u64,
}

/// Why an answer broke off. The connection is of no more use in each case.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The client went away or its network failed.
    #[error("the client cannot be written to: {0}")]
    Client(io::Error),
    /// The client took no byte for so long.
    #[error("the client took nothing for {0:?}")]
    Stalled(Duration),
    /// The records could not be read (rule F08).
    #[error("records cannot be read: {error}")]
    Disk {
        /// The region being sent.
        region: Arc<dyn FileRegion>,
        /// What the system said; `UnexpectedEof` when the file is shorter than the region.
        error: io::Error,
    },
}

/// Sends all parts. `patience` is how long the client may take nothing at all.
///
/// `sent` counts what went out even when this fails.
pub async fn send_parts(
    stream: &TcpStream,
    parts: Vec<Part>,
    patience: Duration,
    sent: &mut Sent,
) -> Result<(), SendError> {
    let mut queue = Queue::new(parts)?;
    while let Some(step) = queue.next_step()? {
        let written = match try_step(stream, &step) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_until_writable(stream, patience).await?;
                continue;
            }
            result => result.map_err(|error| blame(&step, error))?,
        };
        sent.bytes += written as u64;
        if matches!(step, Step::File { .. }) {
            sent.by_sendfile += written as u64;
        }
        queue.advance(written);
    }
    Ok(())
}

async fn wait_until_writable(stream: &TcpStream, patience: Duration) -> Result<(), SendError> {
    match tokio::time::timeout(patience, stream.writable()).await {
        Ok(ready) => ready.map_err(SendError::Client),
        Err(_) => Err(SendError::Stalled(patience)),
    }
}

/// One system call's worth of an answer.
enum Step<'a> {
    Buffers { slices: Vec<IoSlice<'a>>, more: bool },
    File { region: &'a Arc<dyn FileRegion>, position: u64, bytes: usize },
}

/// A piece not wholly sent yet.
enum Piece {
    Buffer(Bytes),
    File { region: Arc<dyn FileRegion>, done: usize },
}

/// What is left of an answer. No piece in it is empty.
struct Queue {
    pieces: VecDeque<Piece>,
}

impl Queue {
    fn new(parts: Vec<Part>) -> Result<Queue, SendError> {
        let mut pieces = VecDeque::with_capacity(parts.len());
        for part in parts {
            match part {
                part if part.is_empty() => {}
                Part::Bytes(bytes) => pieces.push_back(Piece::Buffer(bytes)),
                Part::File(region) if region.len() < SENDFILE_MIN_BYTES => {
                    pieces.push_back(Piece::Buffer(read_whole(&region)?));
                }
                Part::File(region) => pieces.push_back(Piece::File { region, done: 0 }),
            }
        }
        Ok(Queue { pieces })
    }

    /// What to write next, or `None` at the end. A long region that has no file is read when its turn comes.
    fn next_step(&mut self) -> Result<Option<Step<'_>>, SendError> {
        if let Some(Piece::File { region, .. }) = self.pieces.front()
            && region.file().is_none()
        {
            let bytes = read_whole(region)?;
            self.pieces[0] = Piece::Buffer(bytes);
        }
        Ok(match self.pieces.front() {
            None => None,
            Some(Piece::Buffer(_)) => Some(self.buffers()),
            Some(Piece::File { region, done }) => {
                let position = region.file().map_or(0, |(_, start)| start) + *done as u64;
                let bytes = (region.len() - done).min(MAX_SENDFILE_BYTES);
                Some(Step::File { region, position, bytes })
            }
        })
    }

    /// The buffers up to the next file.
    fn buffers(&self) -> Step<'_> {
        let mut slices = Vec::with_capacity(self.pieces.len().min(MAX_SLICES));
        for piece in self.pieces.iter().take(MAX_SLICES) {
            match piece {
                Piece::Buffer(bytes) => slices.push(IoSlice::new(bytes)),
                Piece::File { .. } => break,
            }
        }
        let more = slices.len() < self.pieces.len();
        Step::Buffers { slices, more }
    }

    fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                panic!("{written} bytes more were written than there were");
            };
            let left = match piece {
                Piece::Buffer(bytes) => bytes.len(),
                Piece::File { region, done } => region.len() - *done,
            };
            if written >= left {
                written -= left;
                self.pieces.pop_front();
                continue;
            }
            match piece {
                Piece::Buffer(bytes) => bytes.advance(written),
                Piece::File { done, .. } => *done += written,
            }
            return;
        }
    }
}

fn read_whole(region: &Arc<dyn FileRegion>) -> Result<Bytes, SendError> {
    let disk = |error| SendError::Disk { region: Arc::clone(region), error };
    let bytes = region.read().map_err(disk)?;
    // The frame's size was computed from the region's: any other number of bytes would shift all that follows.
    if bytes.len() != region.len() {
        return Err(disk(io::Error::from(ErrorKind::UnexpectedEof)));
    }
    Ok(bytes)
}

/// One write that does not wait. At least one byte goes out unless it fails.
fn try_step(stream: &TcpStream, step: &Step<'_>) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || match step {
        Step::Buffers { slices, more } => {
            let flags =
                if *more { SendFlags::NOSIGNAL | SendFlags::MORE } else { SendFlags::NOSIGNAL };
            let mut control = SendAncillaryBuffer::default();
            Ok(retry_interrupted(|| rustix::net::sendmsg(stream, slices, &mut control, flags))?)
        }
        Step::File { region, position, bytes } => {
            let Some((file, _)) = region.file() else {
                return Err(io::Error::from(ErrorKind::Unsupported));
            };
            let mut position = *position;
            match retry_interrupted(|| {
                rustix::fs::sendfile(stream, file, Some(&mut position), *bytes)
            })? {
                0 => Err(io::Error::from(ErrorKind::UnexpectedEof)),
                written => Ok(written),
            }
        }
    })
}

fn retry_interrupted(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Whose fault a failed step was. `sendfile` has one error for both of its ends: what sockets report of
/// their peers and networks is the client's. Of the rest it shows when the bytes are read whether the disk is to
/// blame: where the kernel does TLS, a client that sends something else has it fail with any error.
fn blame(step: &Step<'_>, error: io::Error) -> SendError {
    match step {
        Step::File { region, position, bytes }
            if !is_of_the_socket(&error) && !is_readable(region, *position, *bytes) =>
        {
            SendError::Disk { region: Arc::clone(region), error }
        }
        _ => SendError::Client(error),
    }
}

fn is_readable(region: &Arc<dyn FileRegion>, position: u64, bytes: usize) -> bool {
    region.file().is_some_and(|(file, _)| {
        let mut bytes = vec![0; bytes];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, position).is_ok()
    })
}

fn is_of_the_socket(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown,
        NetworkUnreachable, NotConnected, TimedOut,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | NetworkDown
            | NetworkUnreachable
            | NotConnected
            | TimedOut
    )
}
