//! One partition's log on disk, in Kafka's files and names, behind the [`Disk`] seam.

mod batches;
pub mod checkpoint;
pub mod cleaner;
mod config;
pub mod disk;
mod error;
mod files;
mod index_file;
mod log;
pub mod log_dir;
mod offset_index;
mod patch;
mod recent;
mod scan;
mod segment;
mod segment_recover;
mod slice;
mod time_index;
mod txn_index;

pub use config::LogConfig;
pub use disk::{DirEntry, Disk, DiskFile, DiskSpace, OpenMode, RealDisk, RealFile, watch_syncs};
pub use error::{LogError, Result};
pub use files::METADATA_FOLDER;
pub use log::{
    AppendInfo, BatchTimestamp, Cleanable, FetchDataInfo, FlushTicket, LeaderAppend,
    LeaderAppendOptions, Log, OpenLog, TimestampAndOffset, remove_folder,
};
pub use log_dir::{Identity, LoadOptions, LoadedLogs, LogDir, LogDirError, choose_dir};
pub use slice::LogSlice;
pub use txn_index::AbortedTransaction;
