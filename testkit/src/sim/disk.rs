//! The simulator's disk: files in memory behind the same seam as the real one, and what a crash
//! leaves of them.
//!
//! - A crash that keeps the page cache (the process was killed) leaves every byte and name.
//! - A crash that loses unsynced writes (the power went) leaves of each file what was last synced
//!   plus a random, perhaps torn part of what was written since, and of the changes of names a
//!   random prefix, as a journaling file system does.
//!
//! Faults: a full disk, a folder in which every access fails, a disk that takes so many changes more and
//! then no access at all, a slow one (the node that wrote does nothing else meanwhile), and flipped bits.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use storage::disk::{DirEntry, Disk, DiskFile, OpenMode};

use crate::sim::random::SimRandom;

/// What a crash does to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashKind {
    /// The process died; the operating system goes on and keeps all it was given.
    KeepPageCache,
    /// The machine died; what was not synced may be gone or torn.
    LoseUnsynced,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug, Default)]
struct DiskState {
    current: Tree,
    durable: Tree,
    /// Changes of names that `durable` lacks, oldest first.
    journal: Vec<NameChange>,
    faults: Arc<Mutex<Faults>>,
}

/// What is wrong with the disk just now.
#[derive(Debug, Default)]
struct Faults {
    full: bool,
    failed: Vec<PathBuf>,
    /// Everything fails once so many changes were made.
    changes_left: Option<u64>,
    /// It has come to that.
    is_dead: bool,
    /// What a change or a sync takes, and what those since the last look took.
    slow: Duration,
    spent: Duration,
}

type Tree = BTreeMap<PathBuf, Entry>;

#[derive(Clone, Debug)]
enum Entry {
    Dir,
    File(Arc<Mutex<FileData>>),
}

#[derive(Debug, Default)]
struct FileData {
    bytes: Vec<u8>,
    /// The bytes at the last sync.
    durable: Vec<u8>,
    locked_by: Option<u64>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Put(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    fn apply(&self, tree: &mut Tree) {
        match self {
            NameChange::Put(path, entry) => {
                tree.insert(path.clone(), entry.clone());
            }
            NameChange::Remove(path) => {
                tree.remove(path);
            }
            NameChange::Rename(from, to) => {
                let moved: Vec<PathBuf> =
                    tree.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in moved {
                    let Ok(below) = path.strip_prefix(from) else {
                        continue;
                    };
                    let target =
                        if below.as_os_str().is_empty() { to.clone() } else { to.join(below) };
                    if let Some(entry) = tree.remove(&path) {
                        tree.insert(target, entry);
                    }
                }
            }
        }
    }
}

impl DiskState {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.current);
        self.journal.push(change);
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        self.faults.lock().check(path)
    }

    fn check_change(&self, path: &Path) -> io::Result<()> {
        self.faults.lock().check_change(path)
    }
}

impl Faults {
    /// Before a change of a file's bytes or name, or a sync.
    fn check_change(&mut self, path: &Path) -> io::Result<()> {
        self.spent += self.slow;
        match &mut self.changes_left {
            Some(0) => self.is_dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        self.check(path)
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        if self.is_dead {
            return Err(io::Error::other(format!("no change of {} any more", path.display())));
        }
        if self.failed.iter().any(|failed| path.starts_with(failed)) {
            return Err(io::Error::other(format!("simulated failure of {}", path.display())));
        }
        Ok(())
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a crash. Handles opened before must not be used after it.
    pub fn crash(&self, kind: CrashKind, random: &mut SimRandom) {
        let mut state = self.state.lock();
        if kind == CrashKind::LoseUnsynced {
            let kept = random.below(state.journal.len() as u64 + 1) as usize;
            let journal = std::mem::take(&mut state.journal);
            for change in &journal[..kept] {
                change.apply(&mut state.durable);
            }
            state.current = state.durable.clone();
        }
        for entry in state.current.values() {
            let Entry::File(file) = entry else { continue };
            let mut file = file.lock();
            file.locked_by = None;
            if kind == CrashKind::LoseUnsynced {
                file.lose_unsynced(random);
            }
        }
    }

    /// Makes every write that needs room fail with `StorageFull`, or ends that.
    pub fn set_full(&self, full: bool) {
        self.state.lock().faults.lock().full = full;
    }

    /// Makes every access below `folder` fail, as a dead disk does.
    pub fn fail_folder(&self, folder: &Path) {
        self.state.lock().faults.lock().failed.push(folder.to_path_buf());
    }

    /// Lets this many changes of names and bytes, and syncs, succeed, and everything after them fail.
    pub fn fail_after(&self, changes: u64) {
        let state = self.state.lock();
        let mut faults = state.faults.lock();
        faults.changes_left = Some(changes);
        faults.is_dead = false;
    }

    /// Ends that; gives how many changes were left, and whether anything failed.
    pub fn end_failing(&self) -> (u64, bool) {
        let state = self.state.lock();
        let mut faults = state.faults.lock();
        (faults.changes_left.take().unwrap_or(0), std::mem::take(&mut faults.is_dead))
    }

    /// Lets every change and every sync take so long from now on.
    pub fn set_slow(&self, each: Duration) {
        self.state.lock().faults.lock().slow = each;
    }

    /// How long the changes since the last call took.
    pub fn take_spent(&self) -> Duration {
        std::mem::take(&mut self.state.lock().faults.lock().spent)
    }

    /// Whether accesses may fail just now.
    pub fn is_broken(&self) -> bool {
        let state = self.state.lock();
        let faults = state.faults.lock();
        faults.full || !faults.failed.is_empty() || faults.is_dead
    }

    /// Everything on it is gone, as when another disk is put in its place. Handles opened before must not be
    /// used after it.
    pub fn replace(&self) {
        *self.state.lock() = DiskState::default();
    }

    /// The files below `folder` whose names end so, with their bytes.
    pub fn files(&self, folder: &Path, ending: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state.lock();
        let mut found = Vec::new();
        for (path, entry) in &state.current {
            if let Entry::File(file) = entry
                && path.starts_with(folder)
                && path.to_string_lossy().ends_with(ending)
            {
                found.push((path.clone(), file.lock().bytes.clone()));
            }
        }
        found
    }

    /// Ends all faults.
    pub fn heal(&self) {
        *self.state.lock().faults.lock() = Faults::default();
    }

    /// Flips one bit of a file, in memory and on the medium, as a decaying disk does.
    pub fn flip_bit(&self, path: &Path, byte: usize, bit: u8) -> io::Result<()> {
        let state = self.state.lock();
        let Some(Entry::File(file)) = state.current.get(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut file = file.lock();
        for bytes in [0, 1] {
            let bytes = if bytes == 0 { &mut file.bytes } else { &mut file.durable };
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << (bit & 7);
            }
        }
        Ok(())
    }
}

impl FileData {
    /// Falls back to the synced bytes, keeping a random part of what was added since. The part's
    /// last bytes may be zeros: the length reached the disk and the bytes did not.
    fn lose_unsynced(&mut self, random: &mut SimRandom) {
        let mut bytes = self.durable.clone();
        if self.bytes.len() > bytes.len() && self.bytes.starts_with(&bytes) {
            let added = &self.bytes[bytes.len()..];
            let kept = random.below(added.len() as u64 + 1) as usize;
            let torn = if random.one_in(4) { random.below(kept as u64 + 1) as usize } else { 0 };
            bytes.extend_from_slice(&added[..kept - torn]);
            bytes.resize(bytes.len() + torn, 0);
        } else if random.one_in(2) {
            bytes.clone_from(&self.bytes);
        }
        self.bytes.clone_from(&bytes);
        self.durable = bytes;
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<SimFile> {
        let mut state = self.state.lock();
        if mode == OpenMode::Truncate || !state.current.contains_key(path) {
            state.check_change(path)?;
        } else {
            state.check(path)?;
        }
        let existing = match state.current.get(path) {
            Some(Entry::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Entry::File(file)) => Some(file.clone()),
            None => None,
        };
        let data = match (existing, mode) {
            (Some(file), OpenMode::Truncate) => {
                file.lock().bytes.clear();
                file
            }
            (Some(file), _) => file,
            (None, OpenMode::Create | OpenMode::Truncate) => {
                let parent = path.parent().unwrap_or(Path::new(""));
                if !matches!(state.current.get(parent), Some(Entry::Dir)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let file = Arc::new(Mutex::new(FileData::default()));
                state.change(NameChange::Put(path.to_path_buf(), Entry::File(file.clone())));
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let faults = state.faults.clone();
        Ok(SimFile { handle: Arc::new(Handle::new(data, path.to_path_buf(), faults)) })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_change(from)?;
        state.check(to)?;
        if !state.current.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.current.keys().any(|path| path.parent() == Some(to)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_change(path)?;
        match state.current.get(path) {
            Some(Entry::File(_)) => {
                state.change(NameChange::Remove(path.to_path_buf()));
                Ok(())
            }
            Some(Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_change(path)?;
        if !matches!(state.current.get(path), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.current.keys().any(|other| other != path && other.starts_with(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        state.check(dir)?;
        if !matches!(state.current.get(dir), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (path, entry) in &state.current {
            if path.parent() != Some(dir) {
                continue;
            }
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            entries.push(DirEntry { name: name.to_string(), is_dir: matches!(entry, Entry::Dir) });
        }
        entries.sort();
        Ok(entries)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_change(dir)?;
        let mut missing = Vec::new();
        for ancestor in dir.ancestors() {
            match state.current.get(ancestor) {
                Some(Entry::Dir) => break,
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => missing.push(ancestor.to_path_buf()),
            }
        }
        for ancestor in missing.into_iter().rev() {
            state.change(NameChange::Put(ancestor, Entry::Dir));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_change(dir)?;
        let journal = std::mem::take(&mut state.journal);
        for change in &journal {
            change.apply(&mut state.durable);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.check(path)?;
        Ok(state.current.contains_key(path))
    }
}

/// An open file of a [`SimDisk`].
#[derive(Clone, Debug)]
pub struct SimFile {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    id: u64,
    data: Arc<Mutex<FileData>>,
    path: PathBuf,
    faults: Arc<Mutex<Faults>>,
}

impl Handle {
    fn new(data: Arc<Mutex<FileData>>, path: PathBuf, faults: Arc<Mutex<Faults>>) -> Self {
        /// Only told apart, never ordered: the count leaves no trace in a run.
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), data, path, faults }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut data = self.data.lock();
        if data.locked_by == Some(self.id) {
            data.locked_by = None;
        }
    }
}

impl SimFile {
    fn check(&self) -> io::Result<()> {
        self.handle.faults.lock().check(&self.handle.path)
    }

    fn check_change(&self) -> io::Result<()> {
        self.handle.faults.lock().check_change(&self.handle.path)
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.check()?;
        let data = self.handle.data.lock();
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(data.bytes.len());
        let available = &data.bytes[start..];
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.check_change()?;
        let mut data = self.handle.data.lock();
        let mut position = usize::try_from(position).map_err(io::Error::other)?;
        for part in parts {
            let end = position + part.len();
            if end > data.bytes.len() {
                if self.handle.faults.lock().full {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                data.bytes.resize(end, 0);
            }
            data.bytes[position..end].copy_from_slice(part);
            position = end;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.check()?;
        Ok(self.handle.data.lock().bytes.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_change()?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.handle.data.lock().bytes.resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check_change()?;
        let mut data = self.handle.data.lock();
        let FileData { bytes, durable, .. } = &mut *data;
        if bytes.len() >= durable.len() && bytes.starts_with(durable) {
            let synced = durable.len();
            durable.extend_from_slice(&bytes[synced..]);
        } else {
            durable.clone_from(bytes);
        }
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.check()?;
        let mut data = self.handle.data.lock();
        if data.locked_by.is_some() {
            return Ok(data.locked_by == Some(self.handle.id));
        }
        data.locked_by = Some(self.handle.id);
        Ok(true)
    }

    fn as_std(&self) -> Option<&fs::File> {
        None
    }
}

#[cfg(test)]
mod tests;
