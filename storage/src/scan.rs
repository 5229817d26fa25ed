//! Walking a batch file. [`HeaderScan`] reads headers only, a small chunk at a time, for look-ups;
//! [`BatchScan`] reads whole batches and checks them, for recovery and for searches by time.

use std::io;

use protocol::records::{BATCH_HEADER_BYTES, BatchHeader, BatchView};

use crate::disk::DiskFile;

/// Small batches lie together in a chunk; a large one costs one read of this size.
const HEADER_CHUNK_BYTES: usize = 1024;
const BATCH_CHUNK_BYTES: usize = 256 * 1024;

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// A batch that starts at `position`.
    Batch(u64, T),
    /// The end, at a batch boundary.
    End,
    /// What follows `position` is no whole batch, for the reason given.
    Broken(u64, String),
}

/// Walks batch headers from a position up to `end`, the end of valid bytes.
#[derive(Debug)]
pub(crate) struct HeaderScan<'a, F> {
    file: &'a F,
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_start: u64,
}

impl<'a, F: DiskFile> HeaderScan<'a, F> {
    pub(crate) fn new(file: &'a F, position: u64, end: u64) -> Self {
        Self { file, position, end, chunk: Vec::new(), chunk_start: position }
    }

    pub(crate) fn next(&mut self) -> io::Result<Step<BatchHeader>> {
        let position = self.position;
        if position >= self.end {
            return Ok(Step::End);
        }
        if self.end - position < BATCH_HEADER_BYTES as u64 {
            return Ok(Step::Broken(position, "too few bytes for a batch".into()));
        }
        let chunk_end = self.chunk_start + self.chunk.len() as u64;
        if position < self.chunk_start || position + BATCH_HEADER_BYTES as u64 > chunk_end {
            let wanted = (self.end - position).min(HEADER_CHUNK_BYTES as u64) as usize;
            self.chunk.resize(wanted, 0);
            let read = self.file.read_at(&mut self.chunk, position)?;
            self.chunk.truncate(read);
            self.chunk_start = position;
        }
        let at = (position - self.chunk_start) as usize;
        let parsed = BatchHeader::parse(&self.chunk[at..])
            .and_then(|header| header.check_counts().map(|()| header));
        match parsed {
            Err(error) => Ok(Step::Broken(position, error.to_string())),
            Ok(header) => {
                let next = position + header.size_in_bytes() as u64;
                if next > self.end {
                    return Ok(Step::Broken(position, "the batch is cut short".into()));
                }
                self.position = next;
                Ok(Step::Batch(position, header))
            }
        }
    }
}

/// Walks whole batches from a position up to `end` and checks each one's checksum.
#[derive(Debug)]
pub(crate) struct BatchScan<'a, F> {
    file: &'a F,
    position: u64,
    end: u64,
    chunk: Vec<u8>,
    chunk_start: u64,
}

impl<'a, F: DiskFile> BatchScan<'a, F> {
    pub(crate) fn new(file: &'a F, position: u64, end: u64) -> Self {
        Self { file, position, end, chunk: Vec::new(), chunk_start: position }
    }

    pub(crate) fn next(&mut self) -> io::Result<Step<BatchView<'_>>> {
        let position = self.position;
        if position >= self.end {
            return Ok(Step::End);
        }
        if !self.hold(BATCH_HEADER_BYTES)? {
            return Ok(Step::Broken(position, "too few bytes for a batch".into()));
        }
        let header = match BatchHeader::parse(self.held())
            .and_then(|header| header.check_counts().map(|()| header))
        {
            Ok(header) => header,
            Err(error) => return Ok(Step::Broken(position, error.to_string())),
        };
        let size = header.size_in_bytes();
        // Compared before anything is allocated: a damaged length may be any number.
        if size as u64 > self.end - position || !self.hold(size)? {
            return Ok(Step::Broken(position, "the batch is cut short".into()));
        }
        self.position = position + size as u64;
        let at = (position - self.chunk_start) as usize;
        let view = BatchView::parse(&self.chunk[at..at + size]);
        match view.and_then(|view| view.check_crc().map(|()| view)) {
            Ok(view) => Ok(Step::Batch(position, view)),
            Err(error) => Ok(Step::Broken(position, error.to_string())),
        }
    }

    fn held(&self) -> &[u8] {
        &self.chunk[(self.position - self.chunk_start) as usize..]
    }

    /// Makes `bytes` bytes from the current position available; `false` when the file ends before.
    fn hold(&mut self, bytes: usize) -> io::Result<bool> {
        let held = (self.chunk_start + self.chunk.len() as u64).saturating_sub(self.position);
        if self.position >= self.chunk_start && held >= bytes as u64 {
            return Ok(true);
        }
        let wanted = (self.end - self.position).min(bytes.max(BATCH_CHUNK_BYTES) as u64) as usize;
        self.chunk.resize(wanted, 0);
        let read = self.file.read_at(&mut self.chunk, self.position)?;
        self.chunk.truncate(read);
        self.chunk_start = self.position;
        Ok(read >= bytes)
    }
}
