//! Bytes into frames (rule P03). A frame's size is checked before anything is allocated for it, and
//! the buffer grows only in step with bytes that really arrived: a frame that declares 100 MB and
//! sends ten bytes costs one chunk. Whole frames are cut off the buffer without copying.

use std::io;

use bytes::{Bytes, BytesMut};
use protocol::frame::{FrameError, SIZE_PREFIX_BYTES, check_frame_size};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Room for one read, and the buffer of a new connection: many small requests fit.
const CHUNK_BYTES: usize = 32 * 1024;

/// The largest step the buffer grows by when as many bytes have arrived already.
const LARGEST_STEP_BYTES: usize = 4 * 1024 * 1024;

/// What may be read while a request is in flight: enough to see the client go, and a few requests.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// The bytes of one connection that are not yet frames.
#[derive(Debug)]
pub(super) struct Inbound {
    buffer: BytesMut,
    max_frame_bytes: usize,
    ended: bool,
}

impl Inbound {
    /// A buffer for frames of at most `max_frame_bytes`.
    pub(super) fn new(max_frame_bytes: usize) -> Inbound {
        Inbound { buffer: BytesMut::new(), max_frame_bytes, ended: false }
    }

    /// The next whole frame, without its size; `None` when it is not all there yet.
    pub(super) fn take_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some(size) = self.frame_size()? else {
            return Ok(None);
        };
        if self.buffer.len() < SIZE_PREFIX_BYTES + size {
            return Ok(None);
        }
        let mut frame = self.buffer.split_to(SIZE_PREFIX_BYTES + size).freeze();
        Ok(Some(frame.split_off(SIZE_PREFIX_BYTES)))
    }

    /// The size that the first frame in the buffer declares, checked.
    fn frame_size(&self) -> Result<Option<usize>, FrameError> {
        match self.buffer.first_chunk::<SIZE_PREFIX_BYTES>() {
            Some(&prefix) => check_frame_size(prefix, self.max_frame_bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Whether the client sent its last byte.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether bytes of a frame that is not complete are held.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Whether more may be read while a request is in flight.
    pub(super) fn may_read_ahead(&self) -> bool {
        !self.ended && self.buffer.len() < READ_AHEAD_BYTES
    }

    /// Reads once; the number of bytes, 0 at the end. May be dropped while it waits without losing bytes.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<usize> {
        self.make_room();
        let read = stream.read_buf(&mut self.buffer).await?;
        self.ended |= read == 0;
        Ok(read)
    }

    /// Room for what is known to come, bounded by what came.
    fn make_room(&mut self) {
        let held = self.buffer.len();
        // A size that is refused is met again by `take_frame`; no room is made for it here.
        let whole = self.frame_size().ok().flatten().map_or(0, |size| SIZE_PREFIX_BYTES + size);
        let missing = whole.saturating_sub(held);
        let step = if missing > CHUNK_BYTES {
            missing.min(held.clamp(CHUNK_BYTES, LARGEST_STEP_BYTES))
        } else {
            // Small frames share a buffer; the rest of one is used before the next is taken.
            missing.max(CHUNK_BYTES / 8)
        };
        // Only a nearly full buffer grows, so that what it holds has arrived.
        if self.buffer.capacity() - held < step.min(CHUNK_BYTES) {
            self.buffer.reserve(step.max(CHUNK_BYTES.saturating_sub(held)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100 * 1024 * 1024;

    fn frame(size: usize) -> Vec<u8> {
        let mut bytes = (size as i32).to_be_bytes().to_vec();
        bytes.extend((0..size).map(|index| index as u8));
        bytes
    }

    async fn feed(inbound: &mut Inbound, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            inbound.read(&mut bytes).await.expect("memory reads");
        }
    }

    #[tokio::test]
    async fn frames_come_out_whole_and_in_order() {
        let mut inbound = Inbound::new(LIMIT);
        let mut bytes = frame(10);
        bytes.extend(frame(0));
        bytes.extend(frame(70_000));
        feed(&mut inbound, &bytes[..bytes.len() - 1]).await;
        assert_eq!(inbound.take_frame().expect("fine").expect("whole").len(), 10);
        assert_eq!(inbound.take_frame().expect("fine").expect("whole").len(), 0);
        assert_eq!(inbound.take_frame().expect("fine"), None);
        feed(&mut inbound, &bytes[bytes.len() - 1..]).await;
        assert_eq!(inbound.take_frame().expect("fine").expect("whole"), frame(70_000)[4..]);
        assert!(inbound.is_empty());
    }

    #[tokio::test]
    async fn a_size_arriving_byte_by_byte_waits() {
        let mut inbound = Inbound::new(LIMIT);
        for byte in frame(3) {
            assert_eq!(inbound.take_frame().expect("fine"), None);
            feed(&mut inbound, &[byte]).await;
        }
        assert_eq!(inbound.take_frame().expect("fine").expect("whole"), [0u8, 1, 2][..]);
    }

    #[tokio::test]
    async fn p03_negative_and_oversized_frames_are_refused() {
        for size in [-1, i32::MIN, LIMIT as i32 + 1, i32::MAX] {
            let mut inbound = Inbound::new(LIMIT);
            feed(&mut inbound, &size.to_be_bytes()).await;
            assert!(inbound.take_frame().is_err(), "{size}");
            assert!(inbound.buffer.capacity() <= CHUNK_BYTES, "{size}");
        }
        let mut inbound = Inbound::new(LIMIT);
        feed(&mut inbound, &(LIMIT as i32).to_be_bytes()).await;
        assert_eq!(inbound.take_frame().expect("exactly the limit is allowed"), None);
    }

    #[tokio::test]
    async fn p03_a_large_declared_frame_takes_memory_only_as_bytes_arrive() {
        let mut inbound = Inbound::new(LIMIT);
        let size = LIMIT as i32;
        feed(&mut inbound, &size.to_be_bytes()).await;
        let mut arrived = SIZE_PREFIX_BYTES;
        while arrived < 20 * 1024 * 1024 {
            inbound.make_room();
            let held = inbound.buffer.capacity();
            assert!(
                held <= 3 * arrived.max(CHUNK_BYTES),
                "{held} bytes held for {arrived} that arrived"
            );
            let next = (inbound.buffer.capacity() - inbound.buffer.len()).min(1_000_000);
            feed(&mut inbound, &vec![7; next]).await;
            arrived += next;
        }
    }

    #[tokio::test]
    async fn the_buffer_is_used_again_once_its_frames_are_done_with() {
        let mut inbound = Inbound::new(LIMIT);
        let mut addresses = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            feed(&mut inbound, &frame(1000)).await;
            let taken = inbound.take_frame().expect("fine").expect("whole");
            addresses.insert(taken.as_ptr() as usize / (2 * CHUNK_BYTES));
            drop(taken);
        }
        assert!(
            addresses.len() <= 4,
            "{} buffers for requests that were done with",
            addresses.len()
        );
    }
}
