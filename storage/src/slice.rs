//! A piece of a batch file that was promised to a reader and not read yet: `sendfile` takes it from
//! the file, everyone else reads it. It holds the file open, so deletion cannot take its bytes away,
//! and a truncation that would change them goes to a new file instead (rule F08).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use protocol::FileRegion;

use crate::disk::DiskFile;

/// Bytes `[position, position + len)` of a batch file.
#[derive(Clone, Debug)]
pub struct LogSlice<F> {
    file: Arc<F>,
    position: u64,
    len: usize,
    folder: Arc<Path>,
}

impl<F: DiskFile> LogSlice<F> {
    pub(crate) fn new(file: Arc<F>, position: u64, len: usize, folder: Arc<Path>) -> Self {
        Self { file, position, len, folder }
    }
}

impl<F: DiskFile> FileRegion for LogSlice<F> {
    fn len(&self) -> usize {
        self.len
    }

    fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len];
        if self.file.read_at(&mut bytes, self.position)? != self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.into())
    }

    fn file(&self) -> Option<(&fs::File, u64)> {
        self.file.as_std().map(|file| (file, self.position))
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }
}
