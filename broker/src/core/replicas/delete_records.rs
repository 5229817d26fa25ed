//! DeleteRecords (I02): the leader raises its log's start at once, and answers when every live replica
//! has done so.

use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, Offset, TopicPartition, Uuid};
use replication::PartitionError;
use replication::partition::Wake;
use storage::Disk;

use super::ReplicaManager;
use super::append::log_error_code;
use super::parked::{DelayedDeleteRecords, Parked, WaitingDeletion};
use super::partition::{AfterLock, Partition};
use crate::core::internal_topics::INTERNAL_TOPICS;

/// One partition's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeleteRecordsOutcome {
    /// 0, or why not.
    pub error: ErrorCode,
    /// The least log start of the live replicas; -1 with an error other than a timeout.
    pub low_watermark: Offset,
}

impl DeleteRecordsOutcome {
    /// An error.
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, low_watermark: Offset::NONE }
    }
}

/// Takes the answer, in the order of the partitions asked for.
pub type DeleteRecordsReply = Box<dyn FnOnce(Vec<DeleteRecordsOutcome>) + Send>;

impl<D: Disk> ReplicaManager<D> {
    /// Deletes what lies below the offsets given; -1 means below the high watermark.
    pub fn delete_records(
        self: &Arc<Self>,
        timeout: Duration,
        partitions: Vec<(TopicPartition, Offset)>,
        reply: DeleteRecordsReply,
    ) -> Option<Parked> {
        let mut outcomes = Vec::with_capacity(partitions.len());
        let mut waiting = Vec::new();
        for (name, requested) in &partitions {
            match self.delete_below(name, *requested) {
                Ok((partition, required)) => {
                    waiting.push(WaitingDeletion { at: outcomes.len(), partition, required });
                    outcomes.push(DeleteRecordsOutcome::refused(ErrorCode::RequestTimedOut));
                }
                Err(error) => outcomes.push(DeleteRecordsOutcome::refused(error)),
            }
        }
        let manager = Arc::downgrade(self);
        let low_watermark = Arc::new(move |partition: &Partition<D>| {
            let manager = manager.upgrade().ok_or(PartitionError::NotLeaderOrFollower)?;
            if partition.is_removed() {
                return Err(PartitionError::NotLeaderOrFollower);
            }
            let directory = manager.directory();
            let replica = partition.lock();
            replica.state.low_watermark(&replica.facts(), directory.as_ref())
        });
        let deletion = DelayedDeleteRecords { waiting, outcomes, low_watermark, reply };
        if deletion.is_settled() {
            self.complete_delete_records(deletion);
            return None;
        }
        let keys = deletion.keys();
        let deadline = self.now().monotonic + timeout;
        match self.park(&self.deletions, deletion, &keys, deadline) {
            Ok(handle) => {
                let manager = Arc::downgrade(self);
                Some(Parked::new(move || {
                    if let Some(manager) = manager.upgrade() {
                        drop(manager.deletions.cancel(&handle));
                    }
                }))
            }
            Err(deletion) => {
                self.complete_delete_records(deletion);
                None
            }
        }
    }

    pub(super) fn complete_delete_records(&self, deletion: DelayedDeleteRecords<D>) {
        let (outcomes, reply) = deletion.finish();
        reply(outcomes);
    }

    fn delete_below(
        &self,
        name: &TopicPartition,
        requested: Offset,
    ) -> Result<(Arc<Partition<D>>, Offset), ErrorCode> {
        if INTERNAL_TOPICS.contains(&&*name.topic) {
            return Err(ErrorCode::InvalidTopicException);
        }
        let partition = self.partition(name, Uuid::ZERO).map_err(super::Missing::code)?;
        if !partition.settings().log.delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let mut replica = partition.lock();
        let facts = replica.facts();
        let target =
            replica.state.delete_records_target(requested, &facts).map_err(|error| error.code())?;
        let raised = replica.log.increment_log_start(target);
        drop(replica);
        if let Err(error) = raised {
            if error.is_storage_failure() {
                self.on_storage_failure(&partition, &error);
            }
            return Err(log_error_code(&error));
        }
        let wake = Wake { fetch: true, delete_records: true, ..Wake::NONE };
        self.after(&partition, AfterLock::waking(wake));
        Ok((partition, target))
    }
}
