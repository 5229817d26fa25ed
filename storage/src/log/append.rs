//! Appends. A leader gives each batch its place (base offset and leader epoch in a header patched on
//! the stack) and hands header and rest to one vectored write; a follower writes the leader's bytes
//! as they came. No path copies records.
//!
//! Order within one append: the epoch's entry goes to disk, then the batches to the file, then the
//! producers' state and the index of aborted transactions follow.

use bytes::Bytes;
use protocol::records::{BATCH_HEADER_BYTES, BatchView, BatchViews, TimestampType};
use protocol::{LeaderEpoch, Offset};
use replication::LogOffsetMetadata;
use replication::producer_state::{
    AppendCheck, AppendOrigin, BatchMetadata, CompletedTransaction, ProducerBatch,
};
use replication::time::Now;

use super::{Log, segment_jitter_ms};
use crate::batches;
use crate::disk::Disk;
use crate::error::{LogError, Result};
use crate::patch::{self, HeaderBytes};
use crate::segment::{BatchSummary, RollRules, Segment};

/// What becomes of a batch's timestamps at the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BatchTimestamp {
    /// As the producer wrote them.
    #[default]
    Keep,
    /// The producer's, but the header's largest one was wrong and is replaced (P04).
    CorrectMax(i64),
    /// `message.timestamp.type=LogAppendTime`: the leader's wall clock.
    LogAppendTime,
}

/// How a leader appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderAppendOptions {
    /// Who asks; decides how strictly producers are checked.
    pub origin: AppendOrigin,
    /// What becomes of the timestamps.
    pub timestamp: BatchTimestamp,
    /// The caller has compared the checksum with these very bytes already: it is not computed again.
    pub checksum_checked: bool,
}

impl LeaderAppendOptions {
    /// A client's batch with its own timestamps.
    pub const CLIENT: LeaderAppendOptions = LeaderAppendOptions {
        origin: AppendOrigin::Client,
        timestamp: BatchTimestamp::Keep,
        checksum_checked: false,
    };
    /// A batch of one of this cluster's coordinators.
    pub const COORDINATOR: LeaderAppendOptions = LeaderAppendOptions {
        origin: AppendOrigin::Coordinator,
        timestamp: BatchTimestamp::Keep,
        checksum_checked: false,
    };
}

/// What an append did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppendInfo {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Where the first batch lies.
    pub start: LogOffsetMetadata,
    /// The leader's clock in milliseconds if it set the timestamps, else -1.
    pub log_append_time_ms: i64,
    /// Bytes written.
    pub size_bytes: usize,
    /// Records by the headers' counts.
    pub record_count: i64,
    /// Whether a new segment was begun.
    pub rolled: bool,
    /// Transactions that a marker in these batches ended.
    pub completed: Vec<CompletedTransaction>,
}

/// A leader's answer to an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaderAppend {
    /// Written.
    Appended(AppendInfo),
    /// One of the producer's last five batches again (X01): nothing was written, the answer is that
    /// of the first time.
    Duplicate(BatchMetadata),
}

/// A batch on its way in.
struct Incoming<'a> {
    /// Where it starts in the bytes given.
    position: usize,
    view: BatchView<'a>,
    summary: BatchSummary,
    epoch: LeaderEpoch,
    producer: Option<ProducerBatch>,
}

impl<D: Disk> Log<D> {
    /// Appends a client's or coordinator's batches as the leader of `epoch`. Checks structure,
    /// checksum (unless the caller has), sizes and the producer's state; what the records say is the
    /// caller's to check (P04).
    ///
    /// # Errors
    /// [`LogError::CorruptBatch`], [`LogError::InvalidRecord`], [`LogError::BatchTooLarge`],
    /// [`LogError::AppendTooLarge`], [`LogError::Producer`], [`LogError::StaleLeaderEpoch`]: nothing
    /// was written. A storage failure: the log is unusable.
    pub fn append_as_leader(
        &mut self,
        records: &Bytes,
        epoch: LeaderEpoch,
        options: LeaderAppendOptions,
        now: Now,
    ) -> Result<LeaderAppend> {
        if let Some(latest) = self.epochs.latest_epoch()
            && epoch < latest
        {
            return Err(LogError::StaleLeaderEpoch { given: epoch, latest });
        }
        let mut incoming = self.parse_for_leader(records, options.checksum_checked)?;
        let mut headers: Vec<HeaderBytes> = Vec::with_capacity(incoming.len());
        let mut next_offset = self.log_end_offset();
        for batch in &mut incoming {
            headers.push(place(batch, next_offset, epoch, options.timestamp, now)?);
            next_offset = batch.summary.last_offset.next();
            if let Some(producer) = &batch.producer {
                match self.producers.check_append(producer, options.origin)? {
                    AppendCheck::Append => {}
                    AppendCheck::Duplicate(known) => return Ok(LeaderAppend::Duplicate(known)),
                }
            }
        }
        let parts: Vec<&[u8]> = headers
            .iter()
            .zip(&incoming)
            .flat_map(|(header, batch)| [&header[..], batch.view.payload()])
            .collect();
        let mut info = self.write(&parts, &incoming, now)?;
        if options.timestamp == BatchTimestamp::LogAppendTime {
            info.log_append_time_ms = now.wall_clock_ms;
        }
        Ok(LeaderAppend::Appended(info))
    }

    fn parse_for_leader<'a>(
        &self,
        records: &'a Bytes,
        checksum_checked: bool,
    ) -> Result<Vec<Incoming<'a>>> {
        let incoming = parse(records, checksum_checked)?;
        let whole: usize = incoming.iter().map(|batch| batch.summary.size_bytes).sum();
        if incoming.is_empty() {
            return Err(LogError::InvalidRecord("no batch to append".into()));
        }
        if whole != records.len() {
            return Err(LogError::CorruptBatch("bytes are left after the last batch".into()));
        }
        let limit_bytes = self.config.max_message_bytes;
        for batch in &incoming {
            let size_bytes = batch.summary.size_bytes;
            if size_bytes > limit_bytes {
                return Err(LogError::BatchTooLarge { size_bytes, limit_bytes });
            }
        }
        if whole > self.config.segment_bytes as usize {
            let limit_bytes = self.config.segment_bytes as usize;
            return Err(LogError::AppendTooLarge { size_bytes: whole, limit_bytes });
        }
        Ok(incoming)
    }

    /// Appends what a follower fetched from the leader of `leader_epoch`; a partial batch at the end
    /// is left out, as is everything from the first batch of a newer epoch on. `None` when that
    /// leaves nothing.
    ///
    /// An empty log whose first batch lies across its start accepts it whole (T11).
    ///
    /// # Errors
    /// [`LogError::CorruptBatch`] and [`LogError::UnexpectedAppendOffset`]: nothing was written.
    /// A storage failure: the log is unusable.
    pub fn append_as_follower(
        &mut self,
        records: &Bytes,
        leader_epoch: LeaderEpoch,
        now: Now,
    ) -> Result<Option<AppendInfo>> {
        let mut incoming = parse(records, false)?;
        if let Some(newer) = incoming.iter().position(|batch| batch.epoch > leader_epoch) {
            incoming.truncate(newer);
        }
        let Some(first) = incoming.first() else {
            return Ok(None);
        };
        if first.summary.base_offset < self.log_end_offset() {
            self.accept_straddling(first.summary, now)?;
        }
        let mut expected = self.log_end_offset();
        for batch in &incoming {
            let (first, last) = (batch.summary.base_offset, batch.summary.last_offset);
            if first < expected {
                return Err(LogError::UnexpectedAppendOffset {
                    first,
                    last,
                    log_end_offset: expected,
                });
            }
            expected = last.next();
        }
        let mut whole: Option<AppendInfo> = None;
        let mut rest = &incoming[..];
        while !rest.is_empty() {
            let (group, others) = rest.split_at(self.group_len(rest));
            let size: usize = group.iter().map(|batch| batch.summary.size_bytes).sum();
            let start = group[0].position;
            let info = self.write(&[&records[start..start + size]], group, now)?;
            whole = Some(match whole.take() {
                None => info,
                Some(before) => before.followed_by(info),
            });
            rest = others;
        }
        Ok(whole)
    }

    /// T11: the leader answers a fetch at a log start inside a batch with the whole batch. A log that
    /// is still empty there begins with that batch; its log start stays.
    fn accept_straddling(&mut self, first: BatchSummary, now: Now) -> Result<()> {
        let end = self.log_end_offset();
        if self.log_start_offset == end && self.size_bytes() == 0 && first.last_offset >= end {
            self.truncate_fully_and_start_at(first.base_offset, Some(end), now)?;
        }
        Ok(())
    }

    /// How many of the batches go together: as many as one segment holds, at least one.
    fn group_len(&self, batches: &[Incoming<'_>]) -> usize {
        let mut size = 0;
        let fits = batches.iter().take_while(|batch| {
            size += batch.summary.size_bytes;
            size <= self.config.segment_bytes as usize
        });
        fits.count().max(1)
    }

    fn write(&mut self, parts: &[&[u8]], batches: &[Incoming<'_>], now: Now) -> Result<AppendInfo> {
        let (first, last) = match batches {
            [] => return Err(LogError::InvalidRecord("no batch to append".into())),
            [only] => (only.summary, only.summary),
            [first, .., last] => (first.summary, last.summary),
        };
        let size_bytes = batches.iter().map(|batch| batch.summary.size_bytes).sum();
        self.assign_epochs_of(batches)?;
        let rolled = self.maybe_roll(&merged(batches, size_bytes), now)?;
        let place = self.log_end();
        let start = LogOffsetMetadata { offset: first.base_offset, ..place };
        let summaries: Vec<BatchSummary> = batches.iter().map(|batch| batch.summary).collect();
        let limits = self.index_limits();
        self.active_mut().append(parts, &summaries, limits)?;
        let mut completed = Vec::new();
        for batch in batches.iter().filter_map(|batch| batch.producer.as_ref()) {
            if let Some(transaction) = self.producers.update(batch) {
                if let Some(aborted) = batches::aborted(&transaction) {
                    self.active_mut().append_aborted(&aborted)?;
                }
                completed.push(transaction);
            }
        }
        let end = self.log_end_offset();
        self.producers.set_map_end_offset(end);
        self.unflushed_since.get_or_insert(now.monotonic);
        if end.distance_from(self.recovery_point) >= self.config.flush_messages {
            self.flush()?;
        }
        Ok(AppendInfo {
            base_offset: first.base_offset,
            last_offset: last.last_offset,
            start,
            log_append_time_ms: -1,
            size_bytes,
            record_count: batches.iter().map(|batch| i64::from(batch.view.count())).sum(),
            rolled,
            completed,
        })
    }

    fn assign_epochs_of(&mut self, batches: &[Incoming<'_>]) -> Result<()> {
        let mut changed = false;
        for batch in batches {
            let known = self.epochs.latest_epoch().unwrap_or(LeaderEpoch::NONE);
            if batch.epoch > known {
                changed |= self.epochs.assign(batch.epoch, batch.summary.base_offset);
            }
        }
        if changed { self.write_epochs() } else { Ok(()) }
    }

    fn maybe_roll(&mut self, next: &BatchSummary, now: Now) -> Result<bool> {
        let active = self.active();
        let jitter = segment_jitter_ms(&self.config, &self.topic_partition, active.base_offset());
        let rules = RollRules {
            segment_bytes: self.config.segment_bytes,
            segment_ms: self.config.max_segment_ms() - jitter,
            index: self.index_limits(),
            now_ms: now.wall_clock_ms,
        };
        let must = active.should_roll(next, &rules);
        // The new segment begins where the log ends, also below the batch to come: no offset between
        // two segments is nobody's, and recovery takes such a gap for a loss. Only a batch that lies
        // too far above, as a compacted leader may send one, has the gap before it.
        let base = self.log_end_offset().max(next.last_offset - i64::from(i32::MAX));
        // A batch larger than a segment has one to itself; an empty segment is not made twice.
        let useless = active.size_bytes() == 0 && base == active.base_offset();
        if !must || useless {
            return Ok(false);
        }
        self.roll_at(base, now)?;
        Ok(true)
    }

    /// Begins a new segment at the log end, unless the active one is empty. Gives whether it did.
    ///
    /// # Errors
    /// A storage failure.
    pub fn roll(&mut self, now: Now) -> Result<bool> {
        if self.active().size_bytes() == 0 {
            return Ok(false);
        }
        self.roll_at(self.log_end_offset(), now)?;
        Ok(true)
    }

    fn roll_at(&mut self, base_offset: Offset, now: Now) -> Result<()> {
        self.active_mut().seal()?;
        self.producers.set_map_end_offset(base_offset);
        self.write_snapshot_if_due()?;
        let made = Segment::create(&self.disk, &self.dir, base_offset, now.wall_clock_ms)?;
        self.segments.push(made);
        self.names_changed = true;
        let sealed = self.segments.len() - 2;
        if self.segments[sealed].size_bytes() == 0 {
            // Its base was too far below what comes; it holds nothing that would be missed.
            self.delete_segments(sealed..sealed + 1, now)?;
        }
        Ok(())
    }
}

impl AppendInfo {
    fn followed_by(mut self, next: AppendInfo) -> AppendInfo {
        self.last_offset = next.last_offset;
        self.size_bytes += next.size_bytes;
        self.record_count += next.record_count;
        self.rolled |= next.rolled;
        self.completed.extend(next.completed);
        self
    }
}

/// The whole batches at the front of `records`, checked.
fn parse(records: &Bytes, checksum_checked: bool) -> Result<Vec<Incoming<'_>>> {
    let corrupt = |error: protocol::records::BatchError| LogError::CorruptBatch(error.to_string());
    let mut incoming = Vec::with_capacity(1);
    let mut views = BatchViews::new(records);
    let mut position = 0;
    while let Some(view) = views.next() {
        let view = view.map_err(corrupt)?;
        if !checksum_checked {
            view.check_crc().map_err(corrupt)?;
        }
        view.check_counts().map_err(corrupt)?;
        incoming.push(Incoming {
            position,
            summary: BatchSummary::from(view.header()),
            epoch: view.partition_leader_epoch(),
            producer: batches::producer_batch(&view, view.base_offset()).map_err(corrupt)?,
            view,
        });
        position = views.valid_bytes();
    }
    Ok(incoming)
}

/// Gives a batch its place and timestamps; the result is its header as it will be written.
fn place(
    batch: &mut Incoming<'_>,
    base_offset: Offset,
    epoch: LeaderEpoch,
    timestamp: BatchTimestamp,
    now: Now,
) -> Result<HeaderBytes> {
    let delta = i64::from(batch.view.last_offset_delta());
    let last_offset = base_offset.0.checked_add(delta).filter(|last| *last < i64::MAX);
    let Some(last_offset) = last_offset.map(Offset) else {
        return Err(LogError::InvalidRecord("the log's offsets are used up".into()));
    };
    let mut header = [0; BATCH_HEADER_BYTES];
    header.copy_from_slice(&batch.view.as_bytes()[..BATCH_HEADER_BYTES]);
    patch::set_place(&mut header, base_offset, epoch);
    let stamp = match timestamp {
        BatchTimestamp::Keep => None,
        BatchTimestamp::CorrectMax(max) => Some((TimestampType::CreateTime, max)),
        BatchTimestamp::LogAppendTime => Some((TimestampType::LogAppendTime, now.wall_clock_ms)),
    };
    if let Some((timestamp_type, max)) = stamp {
        patch::set_timestamp(&mut header, timestamp_type, max, batch.view.payload());
        batch.summary.max_timestamp_ms = max;
        if let Some(producer) = &mut batch.producer {
            producer.max_timestamp_ms = max;
        }
    }
    batch.summary.base_offset = base_offset;
    batch.summary.last_offset = last_offset;
    batch.epoch = epoch;
    if let Some(producer) = &mut batch.producer {
        producer.base_offset = base_offset;
    }
    Ok(header)
}

/// One summary for all batches of a write, as rolling judges them together.
fn merged(batches: &[Incoming<'_>], size_bytes: usize) -> BatchSummary {
    let first = batches.first().map_or(Offset::ZERO, |batch| batch.summary.base_offset);
    let last = batches.last().map_or(Offset::ZERO, |batch| batch.summary.last_offset);
    let newest = batches.iter().map(|batch| batch.summary.max_timestamp_ms).max();
    BatchSummary {
        base_offset: first,
        last_offset: last,
        max_timestamp_ms: newest.unwrap_or(-1),
        size_bytes,
    }
}
