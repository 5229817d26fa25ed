//! A disk in memory that can crash. It keeps two states: what processes see, and what was synced.
//! A crash leaves everything (a killed process), only what was synced (a lost page cache), or for
//! each file and each change of a name something in between (torn): a rename is lost or kept as a whole.
//!
//! A disk can be told to fail after so many changes, as one does whose process is killed there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use storage::{DirEntry, Disk, DiskFile, OpenMode};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    KeepAll,
    LoseUnsynced,
    Torn(u64),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    seen: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    /// What was done to names since their folders were synced, oldest first.
    journal: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    fail_writes: bool,
    /// How many changes are left until everything fails.
    fuse: Option<u64>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Put(PathBuf, u64),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Put(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to, inode) => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
        }
    }

    fn is_in(&self, dir: &Path) -> bool {
        let (NameChange::Put(path, _) | NameChange::Remove(path) | NameChange::Rename(path, ..)) =
            self;
        path.parent() == Some(dir)
    }
}

impl State {
    /// One more change; fails once the fuse has burnt down.
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the process was killed here")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.journal.push(change);
    }
}

#[derive(Clone, Debug, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
pub struct MemFile {
    disk: MemDisk,
    inode: u64,
}

fn random(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    ((*seed >> 33) as usize) % below.max(1)
}

impl MemDisk {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// The disk as the next process finds it.
    pub fn crash(&self, crash: Crash) -> MemDisk {
        let mut state = self.state().clone();
        state.fail_writes = false;
        state.fuse = None;
        let mut seed = match crash {
            Crash::KeepAll => return MemDisk(Arc::new(Mutex::new(state))),
            Crash::LoseUnsynced => 0,
            Crash::Torn(seed) => seed,
        };
        let torn = crash != Crash::LoseUnsynced;
        for inode in state.inodes.values_mut() {
            if torn && inode.seen != inode.synced {
                let common =
                    inode.seen.iter().zip(&inode.synced).take_while(|(a, b)| a == b).count();
                match random(&mut seed, 3) {
                    0 => inode.seen.clone_from(&inode.synced),
                    1 => {}
                    _ => {
                        let room = inode.seen.len() - common;
                        inode.seen.truncate(common + random(&mut seed, room + 1));
                    }
                }
            } else {
                inode.seen.clone_from(&inode.synced);
            }
            inode.synced.clone_from(&inode.seen);
        }
        let mut names = state.synced_names.clone();
        for change in std::mem::take(&mut state.journal) {
            if torn && random(&mut seed, 2) == 0 {
                change.apply(&mut names);
            }
        }
        state.synced_names.clone_from(&names);
        state.names = names;
        MemDisk(Arc::new(Mutex::new(state)))
    }

    /// Lets `changes` more changes of the disk succeed, and none after them.
    pub fn fail_after(&self, changes: u64) {
        self.state().fuse = Some(changes);
    }

    pub fn fail_writes(&self, fail: bool) {
        self.state().fail_writes = fail;
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemDisk {
    type File = MemFile;

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<MemFile> {
        let mut state = self.state();
        let known = state.names.get(path).copied();
        let inode = match (known, mode) {
            (Some(inode), OpenMode::Truncate) => {
                state.burn()?;
                state.inodes.get_mut(&inode).ok_or_else(not_found)?.seen.clear();
                inode
            }
            (Some(inode), _) => inode,
            (None, OpenMode::Create | OpenMode::Truncate) => {
                state.burn()?;
                let inode = state.inodes.len() as u64;
                state.inodes.insert(inode, Inode::default());
                state.change(NameChange::Put(path.to_path_buf(), inode));
                inode
            }
            (None, _) => return Err(not_found()),
        };
        Ok(MemFile { disk: self.clone(), inode })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        if state.dirs.remove(from) {
            state.dirs.insert(to.to_path_buf());
            for names in [true, false] {
                let map = if names { &mut state.names } else { &mut state.synced_names };
                let inside: Vec<PathBuf> =
                    map.keys().filter(|path| path.starts_with(from)).cloned().collect();
                for path in inside {
                    if let (Some(inode), Ok(rest)) = (map.remove(&path), path.strip_prefix(from)) {
                        map.insert(to.join(rest), inode);
                    }
                }
            }
            return Ok(());
        }
        let inode = state.names.get(from).copied().ok_or_else(not_found)?;
        state.change(NameChange::Rename(from.to_path_buf(), to.to_path_buf(), inode));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        state.names.get(path).ok_or_else(not_found)?;
        state.change(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.state().dirs.remove(path).then_some(()).ok_or_else(not_found)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state();
        if !state.dirs.contains(dir) {
            return Err(not_found());
        }
        let entry = |path: &PathBuf, is_dir| {
            let inside = path.parent() == Some(dir);
            let name = path.file_name()?.to_str()?.to_string();
            inside.then_some(DirEntry { name, is_dir })
        };
        let files = state.names.keys().filter_map(|path| entry(path, false));
        let dirs = state.dirs.iter().filter_map(|path| entry(path, true));
        let mut all: Vec<DirEntry> = files.chain(dirs).collect();
        all.sort();
        Ok(all)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        for above in dir.ancestors() {
            state.dirs.insert(above.to_path_buf());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        let journal = std::mem::take(&mut state.journal);
        let (inside, others): (Vec<_>, Vec<_>) =
            journal.into_iter().partition(|change| change.is_in(dir));
        state.journal = others;
        for change in inside {
            change.apply(&mut state.synced_names);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        Ok(state.names.contains_key(path) || state.dirs.contains(path))
    }
}

impl MemFile {
    fn with<T>(&self, change: impl FnOnce(&mut Inode) -> T) -> io::Result<T> {
        let mut state = self.disk.state();
        state.inodes.get_mut(&self.inode).map(change).ok_or_else(not_found)
    }
}

impl DiskFile for MemFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|inode| {
            let rest = inode.seen.get(position as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        })
    }

    fn write_at(&self, parts: &[&[u8]], position: u64) -> io::Result<()> {
        self.disk.state().burn()?;
        if self.disk.state().fail_writes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.with(|inode| {
            let mut at = position as usize;
            for part in parts {
                if inode.seen.len() < at + part.len() {
                    inode.seen.resize(at + part.len(), 0);
                }
                inode.seen[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|inode| inode.seen.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.state().burn()?;
        self.with(|inode| inode.seen.resize(len as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().burn()?;
        self.with(|inode| inode.synced.clone_from(&inode.seen))
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }
}
