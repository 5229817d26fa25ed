//! Telling the controller which log directory holds a replica (KIP-858), so that it knows what a failed
//! directory costs (C08). The controller knows a broker's only directory by itself; a broker with
//! several tells where it put each replica, and where one turned out to lie after a restart. A replica
//! that lies in a directory that does not work is told as lost. One request is under way at a time; what
//! was not answered for certain goes again after a pause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::PartitionImage;
use controller::image::directory_id;
use protocol::messages::assign_replicas_to_dirs_request::{
    DirectoryData, PartitionData, TopicData,
};
use protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use protocol::{ErrorCode, RequestBody, ResponseBody, TopicIdPartition, Uuid};
use replication::time::{Instant, Now};
use storage::Disk;

use super::ReplicaManager;
use super::partition::Partition;
use crate::core::host::CallError;

const VERSION: i16 = 0;
/// How long the controller may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before an assignment whose outcome is unknown goes again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The most replicas in one request, as in Kafka.
const MOST_PER_REQUEST: usize = 2250;

impl<D: Disk> ReplicaManager<D> {
    /// Tells the controller where the replica lies, unless it knows.
    pub(super) fn check_assignment(&self, partition: &Partition<D>, image: &PartitionImage) {
        let lies_in = self.dir_id(partition.dir());
        if !lies_in.is_zero() && image.directory_of(self.config.node) != lies_in {
            self.assign(partition.id().clone(), lies_in);
        }
    }

    /// Tells the controller that a replica it takes for usable lies in a directory that does not work.
    pub(super) fn assign_lost(&self, id: TopicIdPartition, image: &PartitionImage) {
        let recorded = image.directory_of(self.config.node);
        if directory_id::is_reserved(recorded) && recorded != directory_id::LOST {
            self.assign(id, directory_id::LOST);
        }
    }

    fn assign(&self, id: TopicIdPartition, dir: Uuid) {
        self.assignments.lock().put(id, dir);
        (self.host.wake_by)(self.now().monotonic);
    }

    /// Sends what waits, unless a request is under way; gives when to be called again.
    pub(super) fn send_assignments(self: &Arc<Self>, now: Now) -> Option<Instant> {
        let taken = self.assignments.lock().take(MOST_PER_REQUEST, now.monotonic);
        let sent = match taken {
            Ok(sent) => sent,
            Err(again) => return again,
        };
        let request = self.assignment_request(&sent);
        let manager = Arc::downgrade(self);
        let reply = Box::new(move |answer: Result<ResponseBody, CallError>| {
            if let Some(manager) = manager.upgrade() {
                manager.on_assignments_answered(sent, answer);
            }
        });
        let request = RequestBody::AssignReplicasToDirs(request);
        self.host.controller.call(VERSION, request, TIMEOUT, reply);
        None
    }

    fn assignment_request(
        &self,
        sent: &BTreeMap<TopicIdPartition, Uuid>,
    ) -> AssignReplicasToDirsRequest {
        let mut by_dir: BTreeMap<Uuid, Vec<TopicData>> = BTreeMap::new();
        for (id, dir) in sent {
            let topics = by_dir.entry(*dir).or_default();
            if topics.last().is_none_or(|topic| topic.topic_id != id.topic_id) {
                topics.push(TopicData { topic_id: id.topic_id, ..TopicData::default() });
            }
            if let Some(topic) = topics.last_mut() {
                let partition_index = id.topic_partition.partition;
                let partition = PartitionData { partition_index, ..PartitionData::default() };
                topic.partitions.push(partition);
            }
        }
        let directories = by_dir.into_iter().map(|(id, topics)| DirectoryData {
            id,
            topics,
            ..DirectoryData::default()
        });
        AssignReplicasToDirsRequest {
            broker_id: self.config.node.get(),
            broker_epoch: self.directory().local_epoch.get(),
            directories: directories.collect(),
            ..AssignReplicasToDirsRequest::default()
        }
    }

    /// Assignments that were refused for good are forgotten: the topic is gone, or the replica; the rest
    /// goes again unless a newer one waits.
    fn on_assignments_answered(
        &self,
        sent: BTreeMap<TopicIdPartition, Uuid>,
        answer: Result<ResponseBody, CallError>,
    ) {
        let settled = match answer {
            Ok(ResponseBody::AssignReplicasToDirs(response)) if response.error_code == 0 => {
                settled(&response)
            }
            _ => BTreeMap::new(),
        };
        let now = self.now().monotonic;
        let wake_at = {
            let mut queue = self.assignments.lock();
            queue.answered();
            for (id, dir) in sent {
                let key = (id.topic_id, id.topic_partition.partition);
                if !settled.contains_key(&key) {
                    queue.put_back(id, dir);
                    queue.hold_until(now + RETRY_PAUSE);
                }
            }
            queue.wanted_at(now)
        };
        if let Some(at) = wake_at {
            (self.host.wake_by)(at);
        }
    }
}

/// The partitions for which nothing is left to say.
fn settled(
    response: &AssignReplicasToDirsResponse,
) -> BTreeMap<(protocol::TopicId, i32), ErrorCode> {
    let topics = response.directories.iter().flat_map(|dir| &dir.topics);
    topics
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let code = ErrorCode::from_code(partition.error_code);
                ((topic.topic_id, partition.partition_index), code)
            })
        })
        .filter(|(_, code)| {
            matches!(
                code,
                ErrorCode::None
                    | ErrorCode::UnknownTopicId
                    | ErrorCode::UnknownTopicOrPartition
                    | ErrorCode::NotLeaderOrFollower
            )
        })
        .collect()
}
