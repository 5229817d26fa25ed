//! The seam between a log and the disk. Everything a log does to files goes through [`Disk`] and
//! [`DiskFile`], so that the simulator can hold files in memory and decide what a crash keeps.
//!
//! What a crash may lose, and therefore what callers must do:
//! - bytes and lengths not covered by a [`DiskFile::sync_data`] may be lost, or torn anywhere;
//! - names (create, rename, remove) not covered by a [`Disk::sync_dir`] of their folder may be
//!   lost or kept, each on its own;
//! - a file that was removed or replaced stays whole for everyone who holds a handle (rule F08).

use std::fmt::Debug;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How [`Disk::open`] treats the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    ReadWrite,
    /// Read and write; an absent file is created empty, a present one keeps its bytes.
    Create,
    /// Read and write; the file is created or emptied.
    Truncate,
}

/// One name in a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DirEntry {
    /// The name, without the folder.
    pub name: String,
    /// Whether it is a folder itself.
    pub is_dir: bool,
}

/// A file system. Cheap to clone; clones see the same files.
pub trait Disk: Clone + Debug + Send + Sync + 'static {
    /// Handles of this disk.
    type File: DiskFile;

    /// Opens `path`; [`io::ErrorKind::NotFound`] when it is absent and the mode does not create it.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Self::File>;
    /// Renames a file or a folder, replacing a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a folder, sorted; names that are not UTF-8 are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Creates a folder and those above it; succeeds when it is there.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Whether a file or folder of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// The room on the volume that holds `path`; `None` for a disk without bounds.
    fn space(&self, _path: &Path) -> io::Result<Option<DiskSpace>> {
        Ok(None)
    }
}

/// The size of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    /// Bytes that it holds, full and empty.
    pub total_bytes: i64,
    /// Bytes that can still be written.
    pub usable_bytes: i64,
}

/// An open file. Clones share the file; it stays readable when its name is removed.
pub trait DiskFile: Clone + Debug + Send + Sync + 'static {
    /// Fills `buffer` from `position`; returns less than its length only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all `parts` one after the other from `position`, without joining them first.
    fn write_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file holds no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Takes an exclusive lock held until the last clone is dropped; `false` when another process
    /// (or another handle) holds it.
    fn try_lock(&self) -> io::Result<bool>;
    /// The operating system's file, for `sendfile`; `None` in the simulator.
    fn as_std(&self) -> Option<&fs::File>;

    /// Reads the whole file.
    fn read_all(&self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let read = self.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// A file of the machine.
#[derive(Clone, Debug)]
pub struct RealFile(Arc<fs::File>);

/// Who is told of syncs.
static SYNC_WATCHER: OnceLock<fn(Duration)> = OnceLock::new();

/// From now on `watcher` is told how long each sync of a real file's data took, in this whole process. The
/// first one stays.
pub fn watch_syncs(watcher: fn(Duration)) {
    let _ = SYNC_WATCHER.set(watcher);
}

impl Disk for RealDisk {
    type File = RealFile;

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<RealFile> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::Create => {
                options.write(true).create(true).truncate(false);
            }
            OpenMode::Truncate => {
                options.write(true).create(true).truncate(true);
            }
        }
        Ok(RealFile(Arc::new(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(DirEntry { name, is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn space(&self, path: &Path) -> io::Result<Option<DiskSpace>> {
        let volume = rustix::fs::statvfs(path)?;
        let bytes =
            |blocks: u64| i64::try_from(blocks.saturating_mul(volume.f_frsize)).unwrap_or(i64::MAX);
        Ok(Some(DiskSpace {
            total_bytes: bytes(volume.f_blocks),
            usable_bytes: bytes(volume.f_bavail),
        }))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        if let [part] = parts {
            return self.0.write_all_at(part, position);
        }
        // The kernel takes at most 1024 slices at a time.
        const MAX_SLICES: usize = 1024;
        let mut position = position;
        for group in parts.chunks(MAX_SLICES) {
            let mut slices: Vec<IoSlice<'_>> =
                group.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let written = match rustix::io::pwritev(&*self.0, rest, position) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                position += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let Some(watcher) = SYNC_WATCHER.get() else {
            return self.0.sync_data();
        };
        let began = Instant::now();
        let result = self.0.sync_data();
        watcher(began.elapsed());
        result
    }

    fn try_lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&*self.0, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn as_std(&self) -> Option<&fs::File> {
        Some(&self.0)
    }
}
