//! What committed metadata does to this broker's replicas: logs are made, roles change, deleted and
//! recreated topics lose their logs before the new ones are made (I01), configs take effect.
//!
//! The new directory is in force before any partition hears of it, so that a decision never sees an
//! older cluster than the record that caused it.

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::{ClusterImage, ConfigResourceType, ImageDelta, PartitionImage};
use protocol::{BrokerEpoch, LeaderEpoch, NodeId, TopicId, TopicIdPartition, TopicPartition, Uuid};
use replication::partition::{
    BrokerDirectory, LogFacts, PartitionRegistration, PartitionState, RoleChange, Wake,
};
use replication::time::Now;
use replication::trace::Why;
use storage::{Disk, Log, LogDirError};

use super::partition::{AfterLock, Partition, Replica};
use super::placing::Images;
use super::{ReplicaManager, Slot};
use crate::core::directory::{Directory, registration};
use crate::core::host::FollowedPartition;
use crate::core::settings::{SettingsReader, TopicSettings};

/// What the fetchers have to be told.
#[derive(Default)]
pub(super) struct FetcherChanges {
    pub(super) stop: Vec<TopicIdPartition>,
    pub(super) start: Vec<FollowedPartition>,
}

impl<D: Disk> ReplicaManager<D> {
    /// Takes over metadata committed up to `image`; `delta` is what changed since the last call.
    pub fn apply_metadata(&self, image: ClusterImage, delta: &ImageDelta) {
        let local_epoch =
            image.broker(self.config.node).map_or(BrokerEpoch::NONE, |broker| broker.epoch);
        let directory = Arc::new(Directory { image, local_epoch });
        let previous = std::mem::replace(&mut *self.directory.write(), directory.clone());
        let now = self.now();
        let mut changes = FetcherChanges::default();
        self.settle_contested(&directory, &mut changes, now);
        for (topic_id, topic) in &delta.deleted_topics {
            for index in topic.partitions.keys() {
                let partition = TopicPartition::new(topic.name.clone(), *index);
                self.remove_replica(&partition, *topic_id, &mut changes, now);
            }
        }
        for (topic_id, index) in self.concerned(&directory, delta) {
            let images = Images { previous: &previous, now: &directory };
            self.apply_partition(images, topic_id, index, &mut changes, now);
        }
        if !delta.changed_configs.is_empty() {
            self.apply_configs(&directory, delta, now);
        }
        if !delta.changed_brokers.is_empty() {
            self.on_brokers_changed(&directory, now);
        }
        self.restart_fetchers_of_moved_leaders(&directory, delta, &mut changes);
        if !changes.stop.is_empty() || !changes.start.is_empty() {
            self.host.fetchers.change(changes.stop, changes.start);
        }
    }

    /// The changed partitions that have, or had, a replica here.
    fn concerned(&self, directory: &Directory, delta: &ImageDelta) -> Vec<(TopicId, i32)> {
        let mut concerned = Vec::new();
        for (topic_id, index) in &delta.changed_partitions {
            let Some(image) = directory.image.partition(*topic_id, *index) else {
                continue;
            };
            let here = image.replicas.contains(&self.config.node);
            let known = directory.image.topic_name(*topic_id).is_some_and(|name| {
                let partition = TopicPartition::new(name.clone(), *index);
                self.partitions.read().contains_key(&partition)
            });
            if here || known {
                concerned.push((*topic_id, *index));
            }
        }
        concerned
    }

    fn apply_partition(
        &self,
        images: Images<'_>,
        topic_id: TopicId,
        index: i32,
        changes: &mut FetcherChanges,
        now: Now,
    ) {
        let directory = images.now;
        let Some(topic) = directory.image.topic(topic_id) else {
            return;
        };
        let Some(image) = topic.partitions.get(&index) else {
            return;
        };
        let id = TopicIdPartition {
            topic_id,
            topic_partition: TopicPartition::new(topic.name.clone(), index),
        };
        if !image.replicas.contains(&self.config.node) {
            self.remove_replica(&id.topic_partition, topic_id, changes, now);
            return;
        }
        let Some(partition) = self.replica_for(images, &id, image, now) else {
            return;
        };
        self.change_role(directory, &partition, &registration(image), changes, now);
        self.check_assignment(&partition, image);
    }

    fn change_role(
        &self,
        directory: &Arc<Directory>,
        partition: &Arc<Partition<D>>,
        registration: &PartitionRegistration,
        changes: &mut FetcherChanges,
        now: Now,
    ) {
        let id = partition.id().clone();
        let mut replica = partition.lock();
        let facts = replica.facts();
        let (role, effects) = replica.state.on_metadata_change(
            registration,
            &facts,
            directory.as_ref(),
            now.monotonic,
        );
        if let RoleChange::Leader { newly: true, .. } = role {
            // Answered before anything is appended under the new epoch (T10): told at once.
            changes.stop.push(id.clone());
        }
        if let RoleChange::Follower { restart_fetcher: true } = role {
            changes.stop.push(id.clone());
            if registration.leader != NodeId::NONE {
                changes.start.push(FollowedPartition {
                    partition: id,
                    leader: registration.leader,
                    leader_epoch: registration.leader_epoch,
                });
            }
        }
        let after = replica.carry_out(effects);
        drop(replica);
        match after {
            Ok(after) => self.after(partition, after),
            Err(error) => self.on_storage_failure(partition, &error),
        }
    }

    /// A fetcher pulls from an address: when a leader has registered again it may have another one.
    fn restart_fetchers_of_moved_leaders(
        &self,
        directory: &Directory,
        delta: &ImageDelta,
        changes: &mut FetcherChanges,
    ) {
        if delta.changed_brokers.is_empty() {
            return;
        }
        let told: BTreeSet<TopicIdPartition> = changes
            .stop
            .iter()
            .chain(changes.start.iter().map(|f| &f.partition))
            .cloned()
            .collect();
        for partition in self.online_partitions() {
            if told.contains(partition.id()) {
                continue;
            }
            let (leader, leader_epoch) = {
                let replica = partition.lock();
                (replica.state.leader(), replica.state.leader_epoch())
            };
            if leader == self.config.node
                || leader_epoch == LeaderEpoch::NONE
                || !delta.changed_brokers.contains(&leader)
                || directory.alive(leader).is_none()
            {
                continue;
            }
            changes.stop.push(partition.id().clone());
            changes.start.push(FollowedPartition {
                partition: partition.id().clone(),
                leader,
                leader_epoch,
            });
        }
    }

    /// The replica's entry, with its log made if this broker has none yet.
    fn replica_for(
        &self,
        images: Images<'_>,
        id: &TopicIdPartition,
        image: &PartitionImage,
        now: Now,
    ) -> Option<Arc<Partition<D>>> {
        let known = {
            let partitions = self.partitions.read();
            match partitions.get(&id.topic_partition) {
                Some(Slot::Online(partition)) => Some(partition.clone()),
                // Never made anew in another directory (C08, KAFKA-16234), unless it is another topic's.
                Some(Slot::Offline(topic_id)) if *topic_id == id.topic_id => return None,
                Some(Slot::Offline(_)) | None => None,
            }
        };
        if let Some(partition) = known {
            if partition.id().topic_id == id.topic_id {
                return Some(partition);
            }
            // A topic of the same name that was deleted while this broker was away (I01).
            let mut changes = FetcherChanges::default();
            let old = partition.id().topic_id;
            self.remove_replica(&id.topic_partition, old, &mut changes, now);
            self.host.fetchers.change(changes.stop, Vec::new());
        }
        if !self.may_create(images, id, image) {
            self.note_lost(id, image, now);
            return None;
        }
        let assigned = image.directory_of(self.config.node);
        let made = self.create_replica(images.now, id, assigned, now);
        if made.is_none() {
            self.assign_lost(id.clone(), image);
        }
        made
    }

    fn create_replica(
        &self,
        directory: &Directory,
        id: &TopicIdPartition,
        assigned: Uuid,
        now: Now,
    ) -> Option<Arc<Partition<D>>> {
        let settings = Arc::new(self.settings_of(directory, &id.topic_partition.topic));
        let (dir, log) = match self.create_log(id, assigned, &settings, now) {
            Ok(Some(made)) => made,
            Ok(None) => {
                tracing::error!(partition = %id.topic_partition, "every log directory is offline");
                return None;
            }
            Err((dir, error)) => {
                let name = &id.topic_partition;
                self.on_dir_failure(dir, &format!("cannot make the log of {name}: {error}"));
                self.partitions.write().insert(name.clone(), Slot::Offline(id.topic_id));
                return None;
            }
        };
        let replica = self.new_replica(log, id, &settings, None);
        let counts = self.counts.topic(&id.topic_partition.topic);
        let partition = Arc::new(Partition::new(id.clone(), dir, replica, settings, counts));
        self.partitions.write().insert(id.topic_partition.clone(), Slot::Online(partition.clone()));
        Some(partition)
    }

    /// State and log of a replica that no record has spoken of yet.
    pub(super) fn new_replica(
        &self,
        log: Log<D>,
        id: &TopicIdPartition,
        settings: &TopicSettings,
        checkpoint: Option<protocol::Offset>,
    ) -> Replica<D> {
        let facts = LogFacts {
            log_start: log.log_start_offset(),
            log_end: log.log_end(),
            first_unstable: None,
        };
        let state = PartitionState::new(
            self.config.node,
            id.topic_partition.clone(),
            settings.partition,
            &facts,
            checkpoint,
        );
        Replica { state, log }
    }

    #[allow(clippy::type_complexity)]
    fn create_log(
        &self,
        id: &TopicIdPartition,
        assigned: Uuid,
        settings: &TopicSettings,
        now: Now,
    ) -> Result<Option<(usize, Log<D>)>, (usize, LogDirError)> {
        let dirs = self.dirs.lock();
        let online = dirs.iter().enumerate().filter(|(_, state)| state.online().is_some());
        let mut counts: Vec<(usize, usize)> = online.map(|(at, _)| (at, 0)).collect();
        if let Some(told) = counts.iter().find(|(at, _)| dirs[*at].id == assigned) {
            counts = vec![*told];
        }
        for slot in self.partitions.read().values() {
            let Slot::Online(partition) = slot else {
                continue;
            };
            if let Some(count) = counts.iter_mut().find(|(at, _)| *at == partition.dir()) {
                count.1 += 1;
            }
        }
        let sizes: Vec<usize> = counts.iter().map(|(_, count)| *count).collect();
        let Some(chosen) = storage::choose_dir(&sizes) else {
            return Ok(None);
        };
        let at = counts[chosen].0;
        let Some(dir) = dirs[at].online() else {
            return Ok(None);
        };
        let log = dir.create_log(&id.topic_partition, id.topic_id, settings.log.clone(), now);
        log.map(|log| Some((at, log))).map_err(|error| (at, error))
    }

    /// Removes a replica that the metadata does not know of, found on disk at the start (I01).
    pub(super) fn remove_stray(&self, partition: &TopicPartition, id: TopicId) {
        let mut changes = FetcherChanges::default();
        let now = self.now();
        self.remove_replica(partition, id, &mut changes, now);
        if !changes.stop.is_empty() {
            self.host.fetchers.change(changes.stop, Vec::new());
        }
    }

    pub(super) fn remove_replica(
        &self,
        partition: &TopicPartition,
        topic_id: TopicId,
        changes: &mut FetcherChanges,
        now: Now,
    ) {
        let removed = {
            let mut partitions = self.partitions.write();
            match partitions.get(partition) {
                Some(Slot::Online(found)) if found.id().topic_id == topic_id => {
                    let found = found.clone();
                    partitions.remove(partition);
                    found
                }
                Some(Slot::Offline(id)) if *id == topic_id => {
                    partitions.remove(partition);
                    return;
                }
                _ => return,
            }
        };
        changes.stop.push(removed.id().clone());
        self.discard(&removed, now);
    }

    /// Has the log of a partition that is in no table any more deleted.
    pub(super) fn discard(&self, removed: &Partition<D>, now: Now) {
        removed.mark_removed();
        let topic_id = removed.id().topic_id;
        let unique = format!("{:032x}", u128::from_be_bytes(topic_id.0));
        let renamed = {
            let mut replica = removed.lock();
            replica.log.rename_to_deleted(&unique)
        };
        match renamed {
            Ok(folder) => {
                let delay = removed.settings().log.file_delete_delay;
                self.upkeep.lock().remove_later(folder, now.monotonic + delay);
                (self.host.wake_by)(now.monotonic + delay);
            }
            Err(error) => self.on_storage_failure(removed, &error),
        }
        self.after(removed, AfterLock::waking(Wake::ALL));
    }

    fn settings_of(&self, directory: &Directory, topic: &str) -> TopicSettings {
        self.settings_reader(directory).topic(topic)
    }

    pub(super) fn settings_reader<'a>(&'a self, directory: &'a Directory) -> SettingsReader<'a> {
        SettingsReader::new(
            &directory.image,
            self.config.node,
            &self.config.static_configs,
            self.config.replica_lag_time_max,
        )
    }

    fn apply_configs(&self, directory: &Arc<Directory>, delta: &ImageDelta, now: Now) {
        let all = delta.changed_configs.iter().any(|r| r.kind == ConfigResourceType::Broker);
        let reader = self.settings_reader(directory);
        for partition in self.online_partitions() {
            let topic = &partition.id().topic_partition.topic;
            let changed = delta
                .changed_configs
                .iter()
                .any(|r| r.kind == ConfigResourceType::Topic && r.name == *topic);
            if all || changed {
                partition.set_settings(Arc::new(reader.topic(topic)));
                self.reconsider_high_watermark(directory, &partition, now);
            }
        }
    }

    /// A broker that was fenced or came back changes who is waited for, and which replicas are live.
    fn on_brokers_changed(&self, directory: &Arc<Directory>, now: Now) {
        for partition in self.online_partitions() {
            self.reconsider_high_watermark(directory, &partition, now);
        }
    }

    fn reconsider_high_watermark(
        &self,
        directory: &Arc<Directory>,
        partition: &Arc<Partition<D>>,
        now: Now,
    ) {
        let mut replica = partition.lock();
        if !replica.state.is_leader() {
            return;
        }
        let facts = replica.facts();
        let effects = replica.state.maybe_increment_high_watermark(
            &facts,
            directory.as_ref() as &dyn BrokerDirectory,
            now.monotonic,
            Why::MaximalIsrHasIt,
        );
        let after = replica.carry_out(effects);
        drop(replica);
        match after {
            Ok(mut after) => {
                after.wake.delete_records = true;
                self.after(partition, after);
            }
            Err(error) => self.on_storage_failure(partition, &error),
        }
    }
}
