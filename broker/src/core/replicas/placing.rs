//! Whether a replica that this broker has no log of may get one, while a log directory is out of use
//! (C08, KAFKA-16234): its log may lie there, and a second, empty one would take part in elections in
//! the name of the first. And which of two logs of one name is right.

use std::sync::Arc;

use controller::PartitionImage;
use controller::image::directory_id;
use protocol::{BrokerEpoch, TopicIdPartition};
use replication::time::Now;
use replication::trace::{Event, Why};
use storage::Disk;

use super::metadata::FetcherChanges;
use super::{ReplicaManager, Slot};
use crate::core::directory::Directory;

/// The metadata before a change and after it.
#[derive(Clone, Copy)]
pub(super) struct Images<'a> {
    pub(super) previous: &'a Directory,
    pub(super) now: &'a Arc<Directory>,
}

impl<D: Disk> ReplicaManager<D> {
    /// | the metadata says of the directory | a log may be made |
    /// |---|---|
    /// | one that works here | yes |
    /// | anything, and all directories work | yes: that directory was taken out of the configuration |
    /// | another one, lost, or unknown from old times | no |
    /// | not assigned, and the replica was given to this broker just now | yes |
    /// | not assigned, and the replica is not in the ISR | yes: nobody relies on what it may have had |
    /// | not assigned, and it is in the ISR | no: it was made before a restart and never assigned |
    pub(super) fn may_create(
        &self,
        images: Images<'_>,
        id: &TopicIdPartition,
        image: &PartitionImage,
    ) -> bool {
        let node = self.config.node;
        let assigned = image.directory_of(node);
        let (works_here, all_work) = {
            let dirs = self.dirs.lock();
            let works_here = dirs.iter().any(|dir| !dir.offline && dir.id == assigned);
            (works_here, dirs.iter().all(|dir| !dir.offline))
        };
        if works_here || all_work {
            return true;
        }
        let index = id.topic_partition.partition;
        let earlier = images.previous.image.partition(id.topic_id, index);
        // The first metadata after a start tells of old and new alike.
        let is_new = images.previous.local_epoch != BrokerEpoch::NONE
            && earlier.is_none_or(|earlier| !earlier.replicas.contains(&node));
        assigned == directory_id::UNASSIGNED && (is_new || !image.isr.contains(&node))
    }

    /// A replica whose log lies in a directory that does not work: known, offline, and told to the
    /// controller.
    pub(super) fn note_lost(&self, id: &TopicIdPartition, image: &PartitionImage, now: Now) {
        let name = id.topic_partition.clone();
        tracing::warn!(partition = %name, "its log directory is out of use; the replica is offline");
        let event = Event::ReplicaOffline {
            partition: name.clone(),
            leader_epoch: image.leader_epoch,
            why: Why::LogDirectoryFailed,
        };
        self.host.trace.emit(now, self.config.node, event);
        self.partitions.write().insert(name, Slot::Offline(id.topic_id));
        self.assign_lost(id.clone(), image);
    }

    /// Of two logs of one name, the one of the topic that exists stays (I01).
    pub(super) fn settle_contested(
        &self,
        directory: &Directory,
        changes: &mut FetcherChanges,
        now: Now,
    ) {
        let contested = std::mem::take(&mut *self.contested.lock());
        for second in contested {
            let name = second.id().topic_partition.clone();
            let is_right = directory.image.topic_id(&name.topic) == Some(second.id().topic_id);
            tracing::info!(partition = %name, second = is_right, "two logs of one name; the older topic's goes");
            if !is_right {
                self.discard(&second, now);
                continue;
            }
            let first = match self.partitions.read().get(&name) {
                Some(Slot::Online(first)) => first.id().topic_id,
                _ => continue,
            };
            self.remove_replica(&name, first, changes, now);
            self.partitions.write().insert(name, Slot::Online(second));
        }
    }
}
