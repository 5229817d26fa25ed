//! A file of sorted entries of `N` bytes each, the common ground of the offset and time indexes.
//!
//! The index of the active segment lives in memory and reaches its file in groups (every
//! [`PERSIST_EVERY`] entries, at a roll, a flush and a close), so an append costs no write here.
//! That is safe because an index is derived: after an unclean stop, recovery rebuilds it from the
//! batches. The index of a sealed segment is searched in its file and takes no memory.

use std::io;

use crate::disk::DiskFile;

/// Entries gathered before they are written.
const PERSIST_EVERY: usize = 512;
/// A search in the file reads the rest at once when this many entries are left.
const READ_AT_ONCE: usize = 512;

#[derive(Debug)]
pub(crate) struct IndexFile<F, const N: usize> {
    file: F,
    count: usize,
    persisted: usize,
    resident: Option<Vec<[u8; N]>>,
}

impl<F: DiskFile, const N: usize> IndexFile<F, N> {
    /// Takes over a file as it is; a length that is no multiple of `N` is refused with `None`.
    pub(crate) fn open(file: F) -> io::Result<Option<Self>> {
        let length = usize::try_from(file.len()?).map_err(io::Error::other)?;
        if !length.is_multiple_of(N) {
            return Ok(None);
        }
        let count = length / N;
        Ok(Some(Self { file, count, persisted: count, resident: None }))
    }

    /// Starts over with an empty file.
    pub(crate) fn create(file: F) -> io::Result<Self> {
        file.set_len(0)?;
        Ok(Self { file, count: 0, persisted: 0, resident: Some(Vec::new()) })
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Brings the entries into memory, for an index that will be appended to.
    pub(crate) fn make_resident(&mut self) -> io::Result<()> {
        if self.resident.is_none() {
            self.resident = Some(self.read_range(0, self.count)?);
        }
        Ok(())
    }

    /// Writes what is only in memory and gives the memory back.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        self.persist()?;
        self.resident = None;
        Ok(())
    }

    pub(crate) fn append(&mut self, entry: [u8; N]) -> io::Result<()> {
        self.make_resident()?;
        if let Some(entries) = &mut self.resident {
            entries.push(entry);
            self.count += 1;
        }
        if self.count - self.persisted >= PERSIST_EVERY {
            self.persist()?;
        }
        Ok(())
    }

    pub(crate) fn persist(&mut self) -> io::Result<()> {
        if let Some(entries) = &self.resident
            && self.persisted < self.count
        {
            let bytes = entries[self.persisted..].as_flattened();
            self.file.write_at(&[bytes], (self.persisted * N) as u64)?;
            self.persisted = self.count;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, count: usize) -> io::Result<()> {
        if count >= self.count {
            return Ok(());
        }
        if let Some(entries) = &mut self.resident {
            entries.truncate(count);
        }
        self.count = count;
        if self.persisted > count {
            self.persisted = count;
            self.file.set_len((count * N) as u64)?;
        }
        Ok(())
    }

    pub(crate) fn get(&self, at: usize) -> io::Result<Option<[u8; N]>> {
        if at >= self.count {
            return Ok(None);
        }
        match &self.resident {
            Some(entries) => Ok(entries.get(at).copied()),
            None => Ok(self.read_range(at, at + 1)?.pop()),
        }
    }

    pub(crate) fn last(&self) -> io::Result<Option<[u8; N]>> {
        match self.count {
            0 => Ok(None),
            count => self.get(count - 1),
        }
    }

    /// How many entries at the front satisfy `holds`, which must be true for a prefix only.
    pub(crate) fn partition_point(&self, holds: impl Fn(&[u8; N]) -> bool) -> io::Result<usize> {
        if let Some(entries) = &self.resident {
            return Ok(entries.partition_point(holds));
        }
        let (mut low, mut high) = (0, self.count);
        while high - low > READ_AT_ONCE {
            let middle = low + (high - low) / 2;
            match self.get(middle)? {
                Some(entry) if holds(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low + self.read_range(low, high)?.partition_point(holds))
    }

    fn read_range(&self, from: usize, to: usize) -> io::Result<Vec<[u8; N]>> {
        let mut entries = vec![[0; N]; to - from];
        let bytes = entries.as_flattened_mut();
        if self.file.read_at(bytes, (from * N) as u64)? != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(entries)
    }
}
