//! What a message becomes on its way out: a list of parts, each either bytes in memory or a region of a
//! file. Records are never copied into the buffer of the fields around them, so a fetch
//! answer can hand its file regions to `sendfile`.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// A region of a log file that holds record batches. The bytes in it do not change.
pub trait FileRegion: Debug + Send + Sync {
    /// Length in bytes; the same at every call.
    fn len(&self) -> usize;

    /// Whether the region holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the whole region into memory.
    fn read(&self) -> io::Result<Bytes>;

    /// The open file and the region's position in it, for `sendfile`; `None` where there is no real
    /// file, as in the simulator: then use [`FileRegion::read`].
    fn file(&self) -> Option<(&File, u64)>;

    /// The folder in which the file lay when the region was made, for who is to blame when it cannot be
    /// read; `None` where nobody is.
    fn folder(&self) -> Option<&Path> {
        None
    }
}

/// The value of a `records` field: record batches, in memory or still in their file.
#[derive(Clone, Debug)]
pub enum Records {
    /// Batches in memory.
    Bytes(Bytes),
    /// Batches in a file.
    File(Arc<dyn FileRegion>),
}

impl Records {
    /// No batches at all; unlike null, which some clients refuse.
    pub const fn empty() -> Records {
        Records::Bytes(Bytes::new())
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::File(region) => region.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, read from the file if they are there.
    pub fn read(&self) -> io::Result<Bytes> {
        match self {
            Records::Bytes(bytes) => Ok(bytes.clone()),
            Records::File(region) => region.read(),
        }
    }
}

impl Default for Records {
    fn default() -> Self {
        Records::empty()
    }
}

impl From<Bytes> for Records {
    fn from(bytes: Bytes) -> Self {
        Records::Bytes(bytes)
    }
}

impl PartialEq for Records {
    /// Bytes compare by content. File regions compare by identity: comparing must not read disks.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Records::Bytes(a), Records::Bytes(b)) => a == b,
            (Records::File(a), Records::File(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A piece of an encoded message, to be sent after the pieces before it.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A region of a file.
    File(Arc<dyn FileRegion>),
}

impl Part {
    /// Size in bytes.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::File(region) => region.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Records> for Part {
    fn from(records: Records) -> Self {
        match records {
            Records::Bytes(bytes) => Part::Bytes(bytes),
            Records::File(region) => Part::File(region),
        }
    }
}

/// The size of all parts together, in bytes.
pub fn parts_len(parts: &[Part]) -> usize {
    parts.iter().map(Part::len).sum()
}

/// Joins the parts in memory, reading file regions. One part in memory is handed on without a copy.
pub fn join_parts(parts: Vec<Part>) -> io::Result<Bytes> {
    if let [Part::Bytes(bytes)] = parts.as_slice() {
        return Ok(bytes.clone());
    }
    let mut joined = BytesMut::with_capacity(parts_len(&parts));
    for part in &parts {
        match part {
            Part::Bytes(bytes) => joined.extend_from_slice(bytes),
            Part::File(region) => joined.extend_from_slice(&region.read()?),
        }
    }
    Ok(joined.freeze())
}
