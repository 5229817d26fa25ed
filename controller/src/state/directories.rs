//! Log directories (C08, KIP-858): where each replica lies as its broker tells, and what a directory
//! that failed costs. Its replicas leave the ISRs that have another member and lead no more; the
//! broker and its other directories are as before. A directory is back with the next process of its
//! broker, whose registration lists it again.

use protocol::ErrorCode;
use protocol::messages::assign_replicas_to_dirs_request::{
    DirectoryData as Wanted, TopicData as WantedTopic,
};
use protocol::messages::assign_replicas_to_dirs_response::{
    DirectoryData, PartitionData, TopicData,
};
use protocol::messages::{
    AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, BrokerRegistrationRequest,
};
use protocol::types::{NodeId, TopicId, Uuid};

use super::ControllerState;
use super::partition_change::Election;
use crate::image::directory_id;
use crate::records::{BrokerChange, Id, IdList};

impl ControllerState {
    /// The directories of a registration: none of the reserved ids, none twice, none of another
    /// broker's.
    pub(super) fn check_directories(
        &self,
        request: &BrokerRegistrationRequest,
    ) -> Result<(), ErrorCode> {
        let dirs = &request.log_dirs;
        let is_wrong = |at: usize| {
            directory_id::is_reserved(dirs[at])
                || dirs[..at].contains(&dirs[at])
                || self.image.brokers().any(|broker| {
                    broker.id.get() != request.broker_id && broker.log_dirs.contains(&dirs[at])
                })
        };
        if (0..dirs.len()).any(is_wrong) {
            return Err(ErrorCode::InvalidRegistration);
        }
        Ok(())
    }

    /// A heartbeat said that these directories of `id` failed. Said again and again; only the first
    /// time changes anything.
    pub(super) fn take_dirs_offline(&mut self, id: NodeId, failed: &[Uuid]) {
        let Some(broker) = self.image.broker(id).cloned() else {
            return;
        };
        let (gone, left): (Vec<Uuid>, Vec<Uuid>) =
            broker.log_dirs.iter().copied().partition(|dir| failed.contains(dir));
        if gone.is_empty() || left.is_empty() {
            // With nothing left the broker is fenced, see `has_no_dir_left`.
            return;
        }
        let lost: Vec<(TopicId, i32)> = self
            .image
            .partitions()
            .filter(|(_, _, partition)| gone.contains(&partition.directory_of(id)))
            .map(|(topic, index, _)| (topic.id, index))
            .collect();
        for (topic, index) in lost {
            self.leave_isr(topic, index, id);
        }
        let left = IdList { ids: left.into_iter().map(Id::from).collect() };
        self.decide(BrokerChange { log_dirs: Some(left), ..self.broker_change(id) });
    }

    /// Whether all directories of a broker failed, by its heartbeat: it can be nobody's replica, and is
    /// fenced until a process of it comes that has some.
    pub(super) fn has_no_dir_left(&self, id: NodeId, failed: &[Uuid]) -> bool {
        self.image.broker(id).is_some_and(|broker| {
            !broker.log_dirs.is_empty() && broker.log_dirs.iter().all(|dir| failed.contains(dir))
        })
    }

    /// Takes one replica out of the ISR if it has another member, and its leadership away.
    fn leave_isr(&mut self, topic: TopicId, index: i32, id: NodeId) {
        self.elect(topic, index, None, |builder| {
            builder.excluded = Some(id);
            builder.target_isr.retain(|member| *member != id);
        });
    }

    pub(super) fn on_assign_replicas_to_dirs(
        &mut self,
        request: &AssignReplicasToDirsRequest,
    ) -> AssignReplicasToDirsResponse {
        let broker = match self.check_broker_epoch(request.broker_id, request.broker_epoch) {
            Ok(broker) => broker,
            Err(error) => {
                return AssignReplicasToDirsResponse {
                    error_code: error.code(),
                    ..Default::default()
                };
            }
        };
        let directories =
            request.directories.iter().map(|wanted| self.assign_to_dir(broker, wanted)).collect();
        AssignReplicasToDirsResponse { directories, ..Default::default() }
    }

    fn assign_to_dir(&mut self, broker: NodeId, wanted: &Wanted) -> DirectoryData {
        let topics = wanted.topics.iter().map(|topic| self.assign_topic(broker, wanted.id, topic));
        DirectoryData { id: wanted.id, topics: topics.collect(), ..Default::default() }
    }

    fn assign_topic(&mut self, broker: NodeId, dir: Uuid, wanted: &WantedTopic) -> TopicData {
        let partitions = wanted.partitions.iter().map(|partition| {
            let index = partition.partition_index;
            let outcome = self.assign_replica(broker, dir, wanted.topic_id, index);
            PartitionData {
                partition_index: index,
                error_code: outcome.err().unwrap_or(ErrorCode::None).code(),
                ..Default::default()
            }
        });
        TopicData {
            topic_id: wanted.topic_id,
            partitions: partitions.collect(),
            ..Default::default()
        }
    }

    fn assign_replica(
        &mut self,
        broker: NodeId,
        dir: Uuid,
        topic_id: TopicId,
        index: i32,
    ) -> Result<(), ErrorCode> {
        let topic = self.image.topic(topic_id).ok_or(ErrorCode::UnknownTopicId)?;
        let partition = topic.partitions.get(&index).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !partition.replicas.contains(&broker) {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let is_offline =
            self.image.broker(broker).is_some_and(|broker| !broker.has_online_dir(dir));
        if is_offline {
            self.leave_isr(topic_id, index, broker);
        }
        // Nobody is elected for it: where a replica lies says nothing about who is ahead.
        self.elect(topic_id, index, Some(Election::Online), |builder| {
            builder.target_directory = Some((broker, dir));
        });
        Ok(())
    }
}
