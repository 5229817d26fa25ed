//! The settings of one log, as Kafka names them. They are values: a change of a topic's config
//! replaces the whole [`LogConfig`] and takes effect with the next append or retention pass.

use std::time::Duration;

/// Settings of one log. Negative limits mean "none", as in Kafka.
#[derive(Clone, PartialEq, Debug)]
pub struct LogConfig {
    /// `segment.bytes`: a segment never grows beyond this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is rolled when a batch is this much newer than its first batch.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: up to this much is taken off `segment_ms`, per segment.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`: a segment is rolled when an index would exceed this.
    pub segment_index_bytes: usize,
    /// `index.interval.bytes`: bytes of batches between two entries of an index.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: the largest batch a leader appends.
    pub max_message_bytes: usize,
    /// `retention.ms`; negative keeps records for ever.
    pub retention_ms: i64,
    /// `retention.bytes`; negative does not limit the size.
    pub retention_bytes: i64,
    /// Whether `cleanup.policy` holds `delete`; otherwise only segments below the log start go.
    pub delete: bool,
    /// Whether `cleanup.policy` holds `compact`, so that offsets may be missing between batches.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`: the cleaner waits until this part of the log is not cleaned yet.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: the cleaner leaves younger records alone.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: the cleaner does not let older records wait, whatever the ratio; with
    /// compaction a segment is rolled after this time at the latest.
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long the cleaner keeps tombstones once all before them is cleaned.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`: how long a removed segment stays on disk as `.deleted`.
    pub file_delete_delay: Duration,
    /// `flush.messages`: fsync after this many records.
    pub flush_messages: i64,
    /// `flush.ms`: fsync when the oldest unflushed record has waited this long.
    pub flush_ms: i64,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration: Duration,
}

impl Default for LogConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: 1_048_588,
            retention_ms: 7 * 24 * 3600 * 1000,
            retention_bytes: -1,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 3600 * 1000,
            file_delete_delay: Duration::from_secs(60),
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            producer_id_expiration: Duration::from_secs(24 * 3600),
        }
    }
}

impl LogConfig {
    /// How long a segment takes appends: `segment.ms`, with compaction at most
    /// `max.compaction.lag.ms`, since only closed segments are cleaned.
    pub(crate) fn max_segment_ms(&self) -> i64 {
        if self.compact && self.max_compaction_lag_ms > 0 {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }
}
