//! One partition's log: segments on disk and what is derived from their batches.
//!
//! Kept true at all times:
//! - `log_start_offset <= log_end_offset`, and the first segment starts at or below the former;
//! - the epoch cache names every epoch of the batches, and its file is on disk before the first
//!   batch of an epoch is (I9, T12);
//! - the producers' state is that of all batches below the log end (I14, X02);
//! - everything below `recovery_point` is on disk.
//!
//! Nothing here reads a clock: what needs time takes [`Now`]. A method that fails with
//! [`LogError::is_storage_failure`] leaves the log unusable: its directory goes offline (C08).
//!
//! | file | what it holds |
//! |---|---|
//! | `open.rs` | opening and recovery (T12) |
//! | `append.rs` | leader and follower appends (T11, X01, X05), rolling |
//! | `read.rs` | reads, positions, aborted transactions (F01, F03, F05) |
//! | `timestamps.rs` | offsets by time (F07) |
//! | `truncate.rs` | truncation (T02, T11, F08), moving the log start (I02) |
//! | `retention.rs` | retention, two-step deletion, removal of the whole log |
//! | `flush.rs` | fsync, recovery point, closing |
//! | `producers.rs` | snapshots of the producers' state and its rebuilding (X02) |
//! | `clean.rs` | what the cleaner may take, and putting its segments in place |
//! | `sweep.rs` | what a crash left half done in the folder |

mod append;
mod clean;
mod flush;
mod open;
mod producers;
mod read;
mod retention;
mod sweep;
mod timestamps;
mod truncate;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use protocol::{LeaderEpoch, Offset, TopicId, TopicPartition};
use replication::producer_state::ProducerStateManager;
use replication::time::{Instant, Now};
use replication::{EpochEntry, LeaderEpochCache, LogOffsetMetadata};

use crate::checkpoint;
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::files;
use crate::segment::{IndexLimits, Segment};

pub use append::{AppendInfo, BatchTimestamp, LeaderAppend, LeaderAppendOptions};
pub use clean::Cleanable;
pub use flush::FlushTicket;
pub use open::OpenLog;
pub use read::FetchDataInfo;
pub use retention::remove_folder;
pub use timestamps::TimestampAndOffset;

/// One partition's log. See the module's text for what it keeps true.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    dir: PathBuf,
    topic_partition: TopicPartition,
    topic_id: Option<TopicId>,
    config: LogConfig,
    /// Oldest first, never empty; the last one takes the appends.
    segments: Vec<Segment<D>>,
    log_start_offset: Offset,
    recovery_point: Offset,
    epochs: LeaderEpochCache,
    producers: ProducerStateManager,
    /// The snapshots of the producers' state that are on disk.
    snapshots: BTreeSet<Offset>,
    /// Files renamed to `.deleted`, oldest first.
    deleted: VecDeque<retention::DeletedFiles>,
    /// When the oldest record that is not flushed came.
    unflushed_since: Option<Instant>,
    /// Files were made, renamed or removed since the folder was synced.
    names_changed: bool,
    /// Nothing was in its files when this process opened it.
    was_empty: bool,
    /// Counts truncations, so that a flush begun before one is not believed after it.
    truncations: u64,
    /// How far the cleaner got: what it says of later records is not known.
    cleaner_offset: Option<Offset>,
    /// How many segments the cleaner has put in.
    swaps: u64,
}

impl<D: Disk> Log<D> {
    /// The partition.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// The topic's id, if `partition.metadata` names one.
    pub fn topic_id(&self) -> Option<TopicId> {
        self.topic_id
    }

    /// Writes `partition.metadata`.
    ///
    /// # Errors
    /// A storage failure. Asking for another id than the one written is a mistake of the caller and
    /// answered by [`LogError::CorruptFile`]: the folder belongs to another topic (I01).
    pub fn assign_topic_id(&mut self, topic_id: TopicId) -> Result<()> {
        match self.topic_id {
            Some(known) if known == topic_id => Ok(()),
            Some(known) => Err(LogError::CorruptFile {
                path: self.dir.join(checkpoint::PARTITION_METADATA),
                position: 0,
                reason: format!("the log belongs to topic id {known}, not {topic_id}"),
            }),
            None => {
                checkpoint::write_topic_id(&self.disk, &self.dir, topic_id)?;
                self.topic_id = Some(topic_id);
                Ok(())
            }
        }
    }

    /// The partition's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log directory that holds the folder.
    pub fn parent_dir(&self) -> &Path {
        self.dir.parent().unwrap_or(Path::new("."))
    }

    /// The settings in force.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Replaces the settings.
    pub fn set_config(&mut self, config: LogConfig) {
        self.producers.set_expiration(config.producer_id_expiration);
        self.config = config;
    }

    /// First offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        self.log_start_offset
    }

    /// The log start offset for `log-start-offset-checkpoint`: only where the first segment does not
    /// tell it.
    pub fn checkpointed_log_start(&self) -> Option<Offset> {
        let start = self.log_start_offset;
        (start > self.segments[0].base_offset()).then_some(start)
    }

    /// The offset that the next record gets.
    pub fn log_end_offset(&self) -> Offset {
        self.active().next_offset()
    }

    /// The log end with its place.
    pub fn log_end(&self) -> LogOffsetMetadata {
        let active = self.active();
        // A segment's size fits 32 bits: opening and appending refuse larger ones.
        let position = u32::try_from(active.size_bytes()).unwrap_or(u32::MAX);
        LogOffsetMetadata::new(active.next_offset(), active.base_offset(), position)
    }

    /// Everything below is on disk.
    pub fn recovery_point(&self) -> Offset {
        self.recovery_point
    }

    /// Bytes of all batches.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(Segment::size_bytes).sum()
    }

    /// Bytes of the batches in segments that start at or above `offset`, and the part of one that
    /// spans it: how far behind a reader at `offset` is.
    ///
    /// # Errors
    /// A storage failure.
    pub fn size_bytes_from(&self, offset: Offset) -> Result<u64> {
        let at = self.segment_at(offset);
        let before = self.segments[at].locate(offset)?;
        let skipped = before.map_or(self.segments[at].size_bytes(), |found| found.position.into());
        let whole: u64 = self.segments[at..].iter().map(Segment::size_bytes).sum();
        Ok(whole - skipped)
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// First offsets of the segments, ascending.
    pub fn segment_base_offsets(&self) -> impl Iterator<Item = Offset> {
        self.segments.iter().map(Segment::base_offset)
    }

    /// The leader epochs of the log.
    pub fn epochs(&self) -> &LeaderEpochCache {
        &self.epochs
    }

    /// The latest leader epoch, what a follower sends as the last fetched one.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest_epoch()
    }

    /// A new leader notes its epoch at the log end, durably, before it answers anything (I9).
    ///
    /// # Errors
    /// A storage failure.
    pub fn assign_leader_epoch(&mut self, epoch: LeaderEpoch) -> Result<()> {
        self.assign_epoch(epoch, self.log_end_offset())
    }

    /// The idempotent and transactional producers.
    pub fn producers(&self) -> &ProducerStateManager {
        &self.producers
    }

    /// The high watermark moved: transactions whose marker lies below it are settled (X03).
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.producers.on_high_watermark(high_watermark);
    }

    /// The first offset of a transaction that is not settled.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        self.producers.first_unstable_offset()
    }

    /// Forgets producers that were idle for `producer.id.expiration.ms`; gives how many.
    pub fn remove_expired_producers(&mut self, now: Now) -> usize {
        self.producers.remove_expired(now.wall_clock_ms)
    }

    /// How many segments the cleaner has put in the place of others since the log was opened.
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// How far the cleaner got, for `cleaner-offset-checkpoint`; `None` before its first round.
    pub fn cleaner_offset(&self) -> Option<Offset> {
        self.cleaner_offset
    }

    /// Lowers [`Log::cleaner_offset`] to at most `offset`; gives whether that changed it. To be called,
    /// and the checkpoint written, before a truncation to `offset`: what is written there afterwards
    /// was never cleaned, and a tombstone among it that counted as such could be dropped too early.
    pub fn lower_cleaner_offset(&mut self, offset: Offset) -> bool {
        let lower = self.cleaner_offset.is_some_and(|cleaned| cleaned > offset);
        if lower {
            self.cleaner_offset = Some(offset);
        }
        lower
    }

    fn active(&self) -> &Segment<D> {
        &self.segments[self.segments.len() - 1]
    }

    fn active_mut(&mut self) -> &mut Segment<D> {
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    /// Index of the segment that spans `offset`: the last that starts at or below it, or the first.
    fn segment_at(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1)
    }

    fn index_limits(&self) -> IndexLimits {
        IndexLimits {
            interval_bytes: self.config.index_interval_bytes,
            max_bytes: self.config.segment_index_bytes,
        }
    }

    /// Notes an epoch, on disk before in use.
    fn assign_epoch(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> Result<()> {
        if self.epochs.assign(epoch, start_offset) {
            self.write_epochs()?;
        }
        Ok(())
    }

    fn write_epochs(&mut self) -> Result<()> {
        let entries: Vec<(LeaderEpoch, Offset)> =
            self.epochs.entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect();
        checkpoint::write_leader_epochs(&self.disk, &self.dir, &entries)?;
        self.names_changed = false;
        Ok(())
    }
}

fn epoch_entries(pairs: Vec<(LeaderEpoch, Offset)>) -> impl Iterator<Item = EpochEntry> {
    pairs.into_iter().map(|(epoch, start_offset)| EpochEntry { epoch, start_offset })
}

/// How much of `segment.jitter.ms` the segment at `base_offset` loses: fixed by the names, so that
/// partitions do not roll together and a simulation repeats itself.
fn segment_jitter_ms(config: &LogConfig, partition: &TopicPartition, base_offset: Offset) -> i64 {
    let limit = config.segment_jitter_ms.min(config.max_segment_ms());
    if limit <= 0 {
        return 0;
    }
    let seed = crc32c::crc32c(partition.to_string().as_bytes());
    let draw = crc32c::crc32c_append(seed, &base_offset.0.to_be_bytes());
    i64::from(draw) % limit
}

/// The file of the snapshot at `offset`.
fn snapshot_path(dir: &Path, offset: Offset) -> PathBuf {
    dir.join(files::file_name(offset, files::SNAPSHOT))
}
