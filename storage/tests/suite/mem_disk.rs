//! A disk in memory that can crash. It keeps two states: what processes see, and what was synced.
//! A crash leaves everything (a killed process), only what was synced (a lost page cache), or for
//! each file and name something in between (torn).

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
    dirs: BTreeSet<PathBuf>,
    fail_writes: bool,
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
        let all: BTreeSet<PathBuf> =
            state.names.keys().chain(state.synced_names.keys()).cloned().collect();
        let mut names = BTreeMap::new();
        for path in all {
            let (seen, synced) = (state.names.get(&path), state.synced_names.get(&path));
            let kept = if torn && random(&mut seed, 2) == 0 { seen } else { synced };
            if let Some(inode) = kept {
                names.insert(path, *inode);
            }
        }
        state.synced_names.clone_from(&names);
        state.names = names;
        MemDisk(Arc::new(Mutex::new(state)))
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
                state.inodes.get_mut(&inode).ok_or_else(not_found)?.seen.clear();
                inode
            }
            (Some(inode), _) => inode,
            (None, OpenMode::Create | OpenMode::Truncate) => {
                let inode = state.inodes.len() as u64;
                state.inodes.insert(inode, Inode::default());
                state.names.insert(path.to_path_buf(), inode);
                inode
            }
            (None, _) => return Err(not_found()),
        };
        Ok(MemFile { disk: self.clone(), inode })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
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
        let inode = state.names.remove(from).ok_or_else(not_found)?;
        state.names.insert(to.to_path_buf(), inode);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state().names.remove(path).map(|_| ()).ok_or_else(not_found)
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
        state.synced_names.retain(|path, _| path.parent() != Some(dir));
        let inside: Vec<(PathBuf, u64)> = state
            .names
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir))
            .map(|(path, inode)| (path.clone(), *inode))
            .collect();
        state.synced_names.extend(inside);
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
        self.with(|inode| inode.seen.resize(len as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|inode| inode.synced.clone_from(&inode.seen))
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        None
    }
}
