//! What a coordinator does with a partition of its topic: it reads all of it when it becomes the leader,
//! appends batches of its own as the leader, and watches the high watermark pass them.
//!
//! All of it happens under the coordinator's lock, so what else has to follow (waking, the trace,
//! AlterPartition, a log directory that fails) is gathered in [`Unsettled`] for
//! [`ReplicaManager::settle`], once that lock is free.

use std::sync::Arc;

use bytes::Bytes;
use protocol::{ErrorCode, LeaderEpoch, Offset, TopicPartition};
use replication::time::Now;
use storage::{Disk, LeaderAppend, LeaderAppendOptions, LogError};

use super::append::{log_error_code, with_append_event};
use super::partition::AfterLock;
use super::{Partition, ReplicaManager};

/// Told the name of a partition of which the high watermark moved or the role changed.
pub type ProgressWatcher = Box<dyn Fn(&TopicPartition) + Send + Sync>;

/// What has to follow once the coordinator's lock is free.
#[must_use]
#[derive(Debug, Default)]
pub struct Unsettled {
    after: AfterLock,
    failure: Option<LogError>,
}

impl Unsettled {
    fn then(&mut self, after: AfterLock) {
        self.after = std::mem::take(&mut self.after).then(after);
    }

    /// The code of a log's error; a failing disk is remembered.
    fn refuse(&mut self, error: LogError) -> ErrorCode {
        let code = log_error_code(&error);
        if error.is_storage_failure() {
            self.failure = Some(error);
        }
        code
    }
}

impl<D: Disk> ReplicaManager<D> {
    /// Appends a batch as the leader of `epoch`. Gives the offset of its first record.
    ///
    /// # Errors
    /// What a producer with acks=all would be told; nothing was written.
    pub fn append_for_coordinator(
        &self,
        partition: &Arc<Partition<D>>,
        epoch: LeaderEpoch,
        batch: &Bytes,
        now: Now,
        unsettled: &mut Unsettled,
    ) -> Result<Offset, ErrorCode> {
        let directory = self.directory();
        let mut replica = partition.lock();
        if replica.state.leader_epoch() != epoch {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        replica.state.check_produce(-1).map_err(|error| error.code())?;
        let options = LeaderAppendOptions::COORDINATOR;
        let appended = match replica.log.append_as_leader(batch, epoch, options, now) {
            Ok(LeaderAppend::Appended(info)) => info,
            // Only batches of idempotent producers are ever duplicates.
            Ok(LeaderAppend::Duplicate(_)) => return Err(ErrorCode::UnknownServerError),
            Err(error) => return Err(unsettled.refuse(error)),
        };
        partition.counts().on_appended(appended.record_count, appended.size_bytes);
        let facts = replica.facts();
        let effects = replica.state.on_leader_append(&facts, directory.as_ref(), now.monotonic);
        let after = replica.carry_out(effects).map_err(|error| unsettled.refuse(error))?;
        unsettled.then(with_append_event(after, partition, &appended, epoch));
        Ok(appended.base_offset)
    }

    /// Works off what is left to do.
    pub fn settle(&self, partition: &Partition<D>, unsettled: Unsettled) {
        self.after(partition, unsettled.after);
        if let Some(error) = unsettled.failure {
            self.on_storage_failure(partition, &error);
        }
    }

    /// Reads whole batches from `from` on, about `max_bytes` of them; nothing at the log's end. Starts at
    /// the log's start when `from` lies before it.
    ///
    /// # Errors
    /// NOT_LEADER_OR_FOLLOWER when this broker does not lead in `epoch`; the log's own errors.
    pub fn read_for_coordinator(
        &self,
        partition: &Arc<Partition<D>>,
        epoch: LeaderEpoch,
        from: Offset,
        max_bytes: usize,
        unsettled: &mut Unsettled,
    ) -> Result<Bytes, ErrorCode> {
        let replica = partition.lock();
        if !replica.state.is_leader() || replica.state.leader_epoch() != epoch {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let from = from.max(replica.log.log_start_offset());
        let read = replica.log.read(from, max_bytes, replica.log.log_end(), true);
        drop(replica);
        let found = read.map_err(|error| unsettled.refuse(error))?;
        found.records.read().map_err(|error| {
            tracing::error!(partition = %partition.id().topic_partition, %error,
                "a coordinator cannot read its partition");
            ErrorCode::KafkaStorageError
        })
    }

    /// The high watermark, as long as this broker leads in `epoch`.
    pub fn high_watermark_of(
        &self,
        partition: &Partition<D>,
        epoch: LeaderEpoch,
    ) -> Option<Offset> {
        let replica = partition.lock();
        let leads = replica.state.is_leader() && replica.state.leader_epoch() == epoch;
        leads.then(|| replica.state.high_watermark().offset)
    }

    /// Has `watcher` told of every move of a high watermark or role in the topic `topic`. With no lock
    /// held; there is one watcher, the first.
    pub fn watch_progress(&self, topic: &str, watcher: ProgressWatcher) {
        let _ = self.progress.set((topic.into(), super::Watcher(watcher)));
    }

    /// Tells the watcher.
    pub(super) fn tell_progress(&self, partition: &TopicPartition) {
        if let Some((topic, watcher)) = self.progress.get()
            && partition.topic == *topic
        {
            (watcher.0)(partition);
        }
    }
}
