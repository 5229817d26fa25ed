//! The quorum's storage as files in one folder (Kafka's `__cluster_metadata-0` under
//! `metadata.log.dir`, or the first of `log.dirs`); the format is Highwater's own.
//!
//! - `hard-state`: epoch and vote, replaced whole by rename (Q01: durable before the answer).
//! - `<sequence>.log`: the entries, see [`super::segment`]. Synced once per batch of entries.
//! - `<index>-<epoch>.checkpoint`: the newest snapshot.
//!
//! On opening, the torn end of the last log file is cut. Anything else that does not read is an
//! error that names the file: an entry that was acknowledged may be in it (I13).

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::segment::{self, Place, read_u32, read_u64};
use super::{HardState, LogEntry, QuorumError, QuorumSnapshot, QuorumStorage};

/// A log file takes no more frames once it is this long.
const SEGMENT_BYTES: u64 = 8 * 1024 * 1024;
/// Most entry data in one frame.
const FRAME_BYTES: usize = 32 * 1024 * 1024;
const HARD_STATE_MAGIC: &[u8; 8] = b"HWQVOTE\x01";
const SNAPSHOT_MAGIC: &[u8; 8] = b"HWQSNAP\x01";
const SNAPSHOT_HEAD_BYTES: usize = 8 + 8 + 8 + 8 + 4;

/// A [`QuorumStorage`] on disk. Not shared: one member, one folder.
#[derive(Debug)]
pub struct FileQuorumStorage {
    folder: PathBuf,
    segment_bytes: u64,
    hard_state: HardState,
    /// Index and epoch of the newest snapshot; (0, 0) for none.
    snapshot: (u64, u64),
    /// Index and epoch of the entry before the first in `places`.
    before: (u64, u64),
    places: VecDeque<(u64, Place)>,
    /// By sequence number; the last one is appended to.
    segments: BTreeMap<u64, Segment>,
    needs_sync: bool,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl FileQuorumStorage {
    /// Opens the storage in `folder`, which is created when missing.
    ///
    /// # Errors
    /// [`QuorumError::Corrupt`] when what is there is damaged by more than a torn last write.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, QuorumError> {
        Self::open_with_segment_bytes(folder, SEGMENT_BYTES)
    }

    /// As [`FileQuorumStorage::open`], with log files of about `segment_bytes`.
    ///
    /// # Errors
    /// As [`FileQuorumStorage::open`].
    pub fn open_with_segment_bytes(
        folder: impl Into<PathBuf>,
        segment_bytes: u64,
    ) -> Result<Self, QuorumError> {
        let folder = folder.into();
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        let names = Names::list(&folder)?;
        let mut storage = Self {
            hard_state: HardState::default(),
            snapshot: (0, 0),
            before: (0, 0),
            places: VecDeque::new(),
            segments: BTreeMap::new(),
            needs_sync: false,
            segment_bytes,
            folder,
        };
        storage.open_snapshots(&names)?;
        storage.open_segments(&names)?;
        storage.settle_start()?;
        storage.open_hard_state()?;
        Ok(storage)
    }

    /// The folder of this storage.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn open_snapshots(&mut self, names: &Names) -> Result<(), QuorumError> {
        if let Some(newest) = names.snapshots.last() {
            self.snapshot = *newest;
            self.read_snapshot()?;
        }
        for (index, term) in names.snapshots.iter().rev().skip(1) {
            let path = self.snapshot_path(*index, *term);
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        Ok(())
    }

    fn open_segments(&mut self, names: &Names) -> Result<(), QuorumError> {
        let last = names.segments.last().copied();
        for (position, sequence) in names.segments.iter().enumerate() {
            if *sequence != names.segments[0] + position as u64 {
                let missing = self.segment_path(names.segments[0] + position as u64);
                return Err(corrupt(&missing, "this log file is missing".to_owned()));
            }
            self.open_segment(*sequence, Some(*sequence) == last)?;
        }
        Ok(())
    }

    fn open_segment(&mut self, sequence: u64, is_last: bool) -> Result<(), QuorumError> {
        let path = self.segment_path(sequence);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        if is_last && bytes.len() < segment::HEAD_BYTES {
            // Created, but the crash came before its head was synced: nothing was ever in it.
            fs::remove_file(&path).map_err(io_error(&path))?;
            return Ok(());
        }
        let Some(scan) = segment::scan(&bytes, sequence) else {
            return Err(corrupt(&path, "the head of the file is damaged".to_owned()));
        };
        if let Some(position) = scan.frame_after_damage {
            let reason =
                format!("damage at {} before a whole frame at {position}", scan.valid_bytes);
            return Err(corrupt(&path, reason));
        }
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(io_error(&path))?;
        if scan.valid_bytes < bytes.len() {
            if !is_last {
                let reason = format!("damage at {} with log files behind it", scan.valid_bytes);
                return Err(corrupt(&path, reason));
            }
            let cut = bytes.len() - scan.valid_bytes;
            tracing::warn!(path = %path.display(), cut, "cut the torn end of the metadata log");
            file.set_len(scan.valid_bytes as u64).map_err(io_error(&path))?;
            file.sync_all().map_err(io_error(&path))?;
        }
        for frame in scan.frames {
            self.replay(&path, sequence, frame)?;
        }
        let segment = Segment { path, file, bytes: scan.valid_bytes as u64 };
        self.segments.insert(sequence, segment);
        Ok(())
    }

    fn replay(
        &mut self,
        path: &Path,
        sequence: u64,
        frame: segment::Frame,
    ) -> Result<(), QuorumError> {
        let first = frame.first_index;
        if self.places.is_empty() {
            self.before = (first - 1, 0);
        }
        let next = self.last_index() + 1;
        if first > next && first > self.snapshot.0 + 1 {
            return Err(corrupt(path, format!("entry {first} after entry {}", next - 1)));
        }
        if first > next || first <= self.before.0 {
            // Behind a snapshot that was installed, or below all that is left of older files.
            self.places.clear();
            self.before = (first - 1, 0);
        }
        self.places.truncate((first - self.before.0 - 1) as usize);
        self.places.extend(frame.places.into_iter().map(|place| (sequence, place)));
        Ok(())
    }

    /// Decides where the log starts: right behind the snapshot, or earlier with the first entry
    /// given up for its epoch's sake. A log that contradicts the snapshot was replaced by it.
    fn settle_start(&mut self) -> Result<(), QuorumError> {
        let (index, term) = self.snapshot;
        if self.places.is_empty() {
            self.before = self.snapshot;
            return Ok(());
        }
        let base = self.before.0 + 1;
        if base > index + 1 {
            let reason = format!("the log starts at {base} but the snapshot ends at {index}");
            return Err(corrupt(&self.folder, reason));
        }
        let continues = index < base || self.term(index) == Some(term);
        if !continues || self.last_index() < index {
            return self.drop_log();
        }
        if base == index + 1 {
            self.before = self.snapshot;
        } else if base == 1 {
            self.before = (0, 0);
        } else if let Some((_, place)) = self.places.pop_front() {
            self.before = (base, place.term);
        }
        Ok(())
    }

    fn open_hard_state(&mut self) -> Result<(), QuorumError> {
        let path = self.folder.join("hard-state");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.last_index() > 0 {
                    let reason = "the vote is missing beside a log that is not empty".to_owned();
                    return Err(corrupt(&path, reason));
                }
                return Ok(());
            }
            Err(error) => return Err(io_error(&path)(error)),
        };
        let state = decode_hard_state(&bytes)
            .ok_or_else(|| corrupt(&path, "the stored vote is damaged".to_owned()))?;
        if state.commit > self.last_index() {
            let reason = format!(
                "entry {} was committed but the log ends at {}",
                state.commit,
                self.last_index()
            );
            return Err(corrupt(&self.folder, reason));
        }
        self.hard_state = state;
        Ok(())
    }

    fn read_snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError> {
        let (index, term) = self.snapshot;
        if index == 0 {
            return Ok(None);
        }
        let path = self.snapshot_path(index, term);
        let bytes = Bytes::from(fs::read(&path).map_err(io_error(&path))?);
        let data = decode_snapshot(&bytes, self.snapshot)
            .ok_or_else(|| corrupt(&path, "the snapshot is damaged".to_owned()))?;
        Ok(Some(QuorumSnapshot { index, term, data }))
    }

    fn write_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        let mut bytes = Vec::with_capacity(SNAPSHOT_HEAD_BYTES + snapshot.data.len());
        bytes.extend_from_slice(SNAPSHOT_MAGIC);
        for word in [snapshot.index, snapshot.term, snapshot.data.len() as u64] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&snapshot.data).to_be_bytes());
        bytes.extend_from_slice(&snapshot.data);
        let old = self.snapshot;
        let path = self.snapshot_path(snapshot.index, snapshot.term);
        replace_file(&self.folder, &path, &bytes)?;
        self.snapshot = (snapshot.index, snapshot.term);
        if old.0 > 0 && old != self.snapshot {
            let path = self.snapshot_path(old.0, old.1);
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        Ok(())
    }

    /// Forgets every log file. The snapshot must already stand for them.
    fn drop_log(&mut self) -> Result<(), QuorumError> {
        self.places.clear();
        self.before = self.snapshot;
        let next = self.segments.keys().next_back().map(|last| last + 1);
        self.remove_segments_below(u64::MAX)?;
        if let Some(next) = next {
            self.add_segment(next)?;
        }
        Ok(())
    }

    fn remove_segments_below(&mut self, sequence: u64) -> Result<(), QuorumError> {
        while let Some(first) = self.segments.first_entry()
            && *first.key() < sequence
        {
            // The oldest first: what a crash leaves has no hole.
            let path = first.remove().path;
            fs::remove_file(&path).map_err(io_error(&path))?;
        }
        sync_folder(&self.folder)
    }

    fn add_segment(&mut self, sequence: u64) -> Result<(), QuorumError> {
        let path = self.segment_path(sequence);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(io_error(&path))?;
        file.write_all_at(&segment::head(sequence), 0).map_err(io_error(&path))?;
        file.sync_all().map_err(io_error(&path))?;
        sync_folder(&self.folder)?;
        let segment = Segment { path, file, bytes: segment::HEAD_BYTES as u64 };
        self.segments.insert(sequence, segment);
        Ok(())
    }

    /// Writes one frame to the active file, which is made or changed first where needed.
    fn append_frame(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError> {
        let active = self.segments.last_key_value().map(|(sequence, file)| (*sequence, file.bytes));
        match active {
            None => self.add_segment(1)?,
            Some((sequence, bytes)) if bytes >= self.segment_bytes => {
                self.sync()?;
                self.add_segment(sequence + 1)?;
            }
            Some(_) => {}
        }
        let Some(mut active) = self.segments.last_entry() else {
            unreachable!("a log file was added above");
        };
        let sequence = *active.key();
        let active = active.get_mut();
        let mut frame = Vec::new();
        let places = segment::encode_frame(entries, active.bytes, &mut frame);
        active.file.write_all_at(&frame, active.bytes).map_err(io_error(&active.path))?;
        active.bytes += frame.len() as u64;
        self.needs_sync = true;
        if let Some(first) = entries.first() {
            self.places.truncate((first.index - self.before.0 - 1) as usize);
        }
        self.places.extend(places.into_iter().map(|place| (sequence, place)));
        Ok(())
    }

    fn read_entry(&self, index: u64) -> Result<LogEntry, QuorumError> {
        let place =
            index.checked_sub(self.before.0 + 1).and_then(|at| self.places.get(at as usize));
        let Some((sequence, place)) = place else {
            let range = format!("{}..={}", self.first_index(), self.last_index());
            return Err(corrupt(&self.folder, format!("entry {index} is not in the log {range}")));
        };
        let Some(segment) = self.segments.get(sequence) else {
            return Err(corrupt(&self.segment_path(*sequence), "this log file is gone".to_owned()));
        };
        let mut data = vec![0; place.length as usize];
        segment.file.read_exact_at(&mut data, place.at).map_err(io_error(&segment.path))?;
        if crc32c::crc32c(&data) != place.crc {
            let reason = format!("entry {index} at {} is no longer what was written", place.at);
            return Err(corrupt(&segment.path, reason));
        }
        Ok(LogEntry { index, term: place.term, data: Bytes::from(data) })
    }

    fn segment_path(&self, sequence: u64) -> PathBuf {
        self.folder.join(format!("{sequence:020}.log"))
    }

    fn snapshot_path(&self, index: u64, term: u64) -> PathBuf {
        self.folder.join(format!("{index:020}-{term:010}.checkpoint"))
    }
}

impl QuorumStorage for FileQuorumStorage {
    fn hard_state(&self) -> HardState {
        self.hard_state
    }

    fn first_index(&self) -> u64 {
        self.before.0 + 1
    }

    fn last_index(&self) -> u64 {
        self.before.0 + self.places.len() as u64
    }

    fn term(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.before.0)? {
            0 => Some(self.before.1),
            distance => self.places.get(distance as usize - 1).map(|(_, place)| place.term),
        }
    }

    fn entries(&self, low: u64, high: u64, max_bytes: u64) -> Result<Vec<LogEntry>, QuorumError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for index in low..high {
            let entry = self.read_entry(index)?;
            bytes += entry.data.len() as u64 + 1;
            if bytes > max_bytes && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn snapshot(&self) -> Result<Option<QuorumSnapshot>, QuorumError> {
        self.read_snapshot()
    }

    fn snapshot_position(&self) -> (u64, u64) {
        self.snapshot
    }

    fn append(&mut self, entries: &[LogEntry]) -> Result<(), QuorumError> {
        let Some(first) = entries.first() else {
            return Ok(());
        };
        assert!(
            first.index > self.before.0 && first.index <= self.last_index() + 1,
            "append at {} to a log of {}..={}",
            first.index,
            self.first_index(),
            self.last_index()
        );
        let mut rest = entries;
        while !rest.is_empty() {
            // At most one frame may be torn by a crash, so that damage elsewhere is told from it.
            self.sync()?;
            let mut bytes = 0;
            let count = rest.iter().take_while(|entry| {
                let fits = bytes == 0 || bytes + entry.data.len() <= FRAME_BYTES;
                bytes += entry.data.len() + 1;
                fits
            });
            let (frame, later) = rest.split_at(count.count());
            self.append_frame(frame)?;
            rest = later;
        }
        Ok(())
    }

    fn set_hard_state(&mut self, state: HardState) -> Result<(), QuorumError> {
        let path = self.folder.join("hard-state");
        replace_file(&self.folder, &path, &encode_hard_state(state))?;
        self.hard_state = state;
        Ok(())
    }

    fn install_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.write_snapshot(snapshot)?;
        self.needs_sync = false;
        self.drop_log()
    }

    fn create_snapshot(&mut self, snapshot: &QuorumSnapshot) -> Result<(), QuorumError> {
        self.write_snapshot(snapshot)
    }

    fn compact(&mut self, index: u64) -> Result<(), QuorumError> {
        if index <= self.first_index() {
            return Ok(());
        }
        let Some(term) = self.term(index - 1) else {
            return Ok(());
        };
        self.places.drain(..(index - self.before.0 - 1) as usize);
        self.before = (index - 1, term);
        // The active file stays even if nothing in it counts any more.
        let active = self.segments.keys().next_back().copied().unwrap_or(0);
        let oldest = self.places.front().map_or(active, |(sequence, _)| *sequence);
        if self.segments.keys().next().is_some_and(|first| *first < oldest) {
            self.remove_segments_below(oldest)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), QuorumError> {
        if self.needs_sync
            && let Some((_, active)) = self.segments.last_key_value()
        {
            active.file.sync_data().map_err(io_error(&active.path))?;
        }
        self.needs_sync = false;
        Ok(())
    }
}

/// The files of a folder by kind, in order. Half-written replacements are removed.
struct Names {
    segments: Vec<u64>,
    snapshots: Vec<(u64, u64)>,
}

impl Names {
    fn list(folder: &Path) -> Result<Self, QuorumError> {
        let mut names = Names { segments: Vec::new(), snapshots: Vec::new() };
        for item in fs::read_dir(folder).map_err(io_error(folder))? {
            let path = item.map_err(io_error(folder))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if name.ends_with(".tmp") {
                fs::remove_file(&path).map_err(io_error(&path))?;
            } else if let Some(stem) = name.strip_suffix(".log") {
                let sequence = stem.parse::<u64>().ok();
                names.segments.extend(sequence);
            } else if let Some((index, term)) =
                name.strip_suffix(".checkpoint").and_then(|stem| stem.split_once('-'))
            {
                let position = index.parse::<u64>().ok().zip(term.parse::<u64>().ok());
                names.snapshots.extend(position);
            }
        }
        names.segments.sort_unstable();
        names.snapshots.sort_unstable();
        Ok(names)
    }
}

fn encode_hard_state(state: HardState) -> Vec<u8> {
    let mut bytes = HARD_STATE_MAGIC.to_vec();
    for word in [state.term, state.vote, state.commit] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

fn decode_hard_state(bytes: &[u8]) -> Option<HardState> {
    let magic_matches = bytes.get(..8)? == HARD_STATE_MAGIC && bytes.len() == 36;
    let crc_matches = read_u32(bytes, 32)? == crc32c::crc32c(bytes.get(..32)?);
    let state = HardState {
        term: read_u64(bytes, 8)?,
        vote: read_u64(bytes, 16)?,
        commit: read_u64(bytes, 24)?,
    };
    (magic_matches && crc_matches).then_some(state)
}

fn decode_snapshot(bytes: &Bytes, position: (u64, u64)) -> Option<Bytes> {
    let data_length = bytes.len().checked_sub(SNAPSHOT_HEAD_BYTES)?;
    let matches = bytes.get(..8)? == SNAPSHOT_MAGIC
        && (read_u64(bytes, 8)?, read_u64(bytes, 16)?) == position
        && read_u64(bytes, 24)? == data_length as u64;
    let data = bytes.slice(SNAPSHOT_HEAD_BYTES..);
    (matches && read_u32(bytes, 32)? == crc32c::crc32c(&data)).then_some(data)
}

/// Puts `bytes` at `path` so that a crash leaves the old file or the new one, whole.
fn replace_file(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), QuorumError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let file = File::create(&temporary)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(io_error(path))?;
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<(), QuorumError> {
    File::open(folder).and_then(|handle| handle.sync_all()).map_err(io_error(folder))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> QuorumError + use<'_> {
    move |source| QuorumError::Io { path: path.display().to_string(), source }
}

fn corrupt(path: &Path, reason: String) -> QuorumError {
    QuorumError::Corrupt { path: path.display().to_string(), reason }
}
