//! What can go wrong in a log, by who must act on it: the disk (the directory goes offline, rule
//! C08), the request (an error code for one partition), or the bytes of a peer.

use std::io;
use std::path::{Path, PathBuf};

use protocol::{LeaderEpoch, Offset};

/// Result of the operations on one log.
pub type Result<T, E = LogError> = std::result::Result<T, E>;

/// Everything a log operation may answer other than success.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk failed. The directory that holds `path` must be taken offline
    /// (KAFKA_STORAGE_ERROR, rule C08); the log must not be used any further.
    #[error("{action} {path}: {source}")]
    Storage {
        /// The file or folder that could not be used.
        path: PathBuf,
        /// What was being done, as a verb.
        action: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A file holds bytes that cannot be what was written there. Handled like [`LogError::Storage`].
    #[error("{path} is corrupt at byte {position}: {reason}")]
    CorruptFile {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes.
        position: u64,
        /// What is wrong.
        reason: String,
    },
    /// The offset lies outside `[log_start_offset, log_end_offset]` (OFFSET_OUT_OF_RANGE).
    #[error("offset {requested} is outside [{log_start_offset}, {log_end_offset}]")]
    OffsetOutOfRange {
        /// The offset asked for.
        requested: Offset,
        /// First offset that may be read.
        log_start_offset: Offset,
        /// End of the log, exclusive.
        log_end_offset: Offset,
    },
    /// A batch given to append does not hold together (CORRUPT_MESSAGE).
    #[error("corrupt batch: {0}")]
    CorruptBatch(String),
    /// A batch is well formed and may not be appended (INVALID_RECORD).
    #[error("invalid record: {0}")]
    InvalidRecord(String),
    /// A batch larger than `max.message.bytes` (MESSAGE_TOO_LARGE).
    #[error("batch of {size_bytes} bytes exceeds the limit of {limit_bytes}")]
    BatchTooLarge {
        /// Size of the batch in bytes.
        size_bytes: usize,
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// The batches of one append exceed a whole segment (RECORD_LIST_TOO_LARGE).
    #[error("append of {size_bytes} bytes exceeds the segment size of {limit_bytes}")]
    AppendTooLarge {
        /// Size of the append in bytes.
        size_bytes: usize,
        /// `segment.bytes`.
        limit_bytes: usize,
    },
    /// A follower got batches that do not continue its log.
    #[error("batch [{first}, {last}] does not continue a log that ends at {log_end_offset}")]
    UnexpectedAppendOffset {
        /// Base offset of the first offending batch.
        first: Offset,
        /// Last offset of that batch.
        last: Offset,
        /// End of the log, exclusive.
        log_end_offset: Offset,
    },
    /// The producer's id, epoch or sequence does not allow the append.
    #[error(transparent)]
    Producer(#[from] replication::producer_state::ProducerStateError),
    /// A leader may only write with its own epoch, never an older one.
    #[error("leader epoch {given} is older than the log's latest epoch {latest}")]
    StaleLeaderEpoch {
        /// The epoch of the append.
        given: LeaderEpoch,
        /// The newest epoch of the log.
        latest: LeaderEpoch,
    },
}

impl LogError {
    /// Whether the directory must be taken offline (rule C08).
    pub fn is_storage_failure(&self) -> bool {
        matches!(self, LogError::Storage { .. } | LogError::CorruptFile { .. })
    }
}

/// Adds the path and the action to an `io::Error`.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| LogError::Storage { path: path.to_path_buf(), action, source })
    }
}
