//! `<base>.txnindex`: the aborted transactions whose abort marker lies in the segment, so that
//! read_committed consumers can skip their records (rule F03). Entries of 34 bytes: version (i16,
//! 0), producer id, first offset, last offset (that of the marker) and the last stable offset once
//! the transaction was gone. Entries stand in the order of their last offsets. The file exists only
//! when the segment has an entry.

use std::io;

use protocol::{Offset, ProducerId};

use crate::disk::DiskFile;

const ENTRY_BYTES: usize = 34;
const VERSION: i16 = 0;

/// A transaction that was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its abort marker.
    pub last_offset: Offset,
    /// The last stable offset after the marker: nothing below it is open any more.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        entry[..2].copy_from_slice(&VERSION.to_be_bytes());
        entry[2..10].copy_from_slice(&self.producer_id.0.to_be_bytes());
        entry[10..18].copy_from_slice(&self.first_offset.0.to_be_bytes());
        entry[18..26].copy_from_slice(&self.last_offset.0.to_be_bytes());
        entry[26..].copy_from_slice(&self.last_stable_offset.0.to_be_bytes());
        entry
    }

    fn decode(entry: &[u8]) -> Option<Self> {
        let long = |at: usize| -> Option<i64> {
            Some(i64::from_be_bytes(entry.get(at..at + 8)?.try_into().ok()?))
        };
        if entry.get(..2)? != VERSION.to_be_bytes() {
            return None;
        }
        Some(Self {
            producer_id: ProducerId(long(2)?),
            first_offset: Offset(long(10)?),
            last_offset: Offset(long(18)?),
            last_stable_offset: Offset(long(26)?),
        })
    }
}

/// What a search of one segment's index gave.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) found: Vec<AbortedTransaction>,
    /// No later segment can hold a transaction that overlaps the range.
    pub(crate) complete: bool,
}

#[derive(Debug)]
pub(crate) struct TxnIndex<F> {
    file: Option<F>,
    count: usize,
}

impl<F: DiskFile> TxnIndex<F> {
    /// No aborted transaction, and no file.
    pub(crate) fn absent() -> Self {
        Self { file: None, count: 0 }
    }

    /// Opens an index; `None` asks the caller to rebuild it because entries make no sense.
    pub(crate) fn open(file: F, base_offset: Offset) -> io::Result<Option<Self>> {
        let bytes = file.read_all()?;
        if bytes.len() % ENTRY_BYTES != 0 {
            return Ok(None);
        }
        let mut last = base_offset - 1;
        for entry in bytes.chunks(ENTRY_BYTES) {
            match AbortedTransaction::decode(entry) {
                Some(txn) if txn.last_offset > last && txn.first_offset <= txn.last_offset => {
                    last = txn.last_offset;
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Self { file: Some(file), count: bytes.len() / ENTRY_BYTES }))
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.file.is_none()
    }

    /// Starts the file, emptying it.
    pub(crate) fn start(&mut self, file: F) -> io::Result<()> {
        file.set_len(0)?;
        self.file = Some(file);
        self.count = 0;
        Ok(())
    }

    pub(crate) fn append(&mut self, txn: &AbortedTransaction) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        file.write_at(&[&txn.encode()], (self.count * ENTRY_BYTES) as u64)?;
        self.count += 1;
        Ok(())
    }

    pub(crate) fn all(&self) -> io::Result<Vec<AbortedTransaction>> {
        let Some(file) = &self.file else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; self.count * ENTRY_BYTES];
        if file.read_at(&mut bytes, 0)? != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes
            .chunks(ENTRY_BYTES)
            .map(|entry| {
                AbortedTransaction::decode(entry).ok_or_else(|| io::ErrorKind::InvalidData.into())
            })
            .collect()
    }

    /// The transactions that overlap `[from, to)`.
    pub(crate) fn search(&self, from: Offset, to: Offset) -> io::Result<Search> {
        let mut search = Search::default();
        if self.count == 0 {
            return Ok(search);
        }
        for txn in self.all()? {
            if txn.last_offset >= from && txn.first_offset < to {
                search.found.push(txn);
            }
            if txn.last_stable_offset >= to {
                search.complete = true;
                break;
            }
        }
        Ok(search)
    }

    /// Drops the transactions whose marker lies at or above `offset`.
    pub(crate) fn truncate_to(&mut self, offset: Offset) -> io::Result<()> {
        let keep = self.all()?.iter().take_while(|txn| txn.last_offset < offset).count();
        if let Some(file) = &self.file
            && keep < self.count
        {
            file.set_len((keep * ENTRY_BYTES) as u64)?;
            self.count = keep;
        }
        Ok(())
    }

    pub(crate) fn file(&self) -> Option<&F> {
        self.file.as_ref()
    }
}
