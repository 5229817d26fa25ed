//! C08, KIP-858: brokers with several log directories, and what the controller does when one fails.

use protocol::messages::assign_replicas_to_dirs_request::{
    DirectoryData, PartitionData, TopicData,
};
use protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};

use super::*;
use crate::image::directory_id;

/// A directory of a broker.
pub(super) fn dir(broker: i32, at: u8) -> Uuid {
    let mut bytes = [at; 16];
    bytes[0] = broker as u8;
    Uuid(bytes)
}

/// The code and the codes per partition, in the request's order.
fn codes(response: &AssignReplicasToDirsResponse) -> (i16, Vec<i16>) {
    let topics = response.directories.iter().flat_map(|dir| &dir.topics);
    let partitions = topics.flat_map(|topic| &topic.partitions);
    (response.error_code, partitions.map(|partition| partition.error_code).collect())
}

impl Cluster {
    /// A new process registers; `is_clean` when it says that the last one ended cleanly.
    pub(super) fn register_with_dirs(
        &mut self,
        id: i32,
        incarnation: u8,
        dirs: &[Uuid],
        is_clean: bool,
    ) -> i16 {
        let mut request = Self::registration(id, incarnation);
        request.log_dirs = dirs.to_vec();
        request.previous_broker_epoch = if is_clean { self.broker_epoch(id) } else { -1 };
        self.ask(4, request).error_code
    }

    pub(super) fn join_with_dirs(&mut self, id: i32, dirs: &[Uuid]) {
        let incarnation = 1 + self.follower.offset().get().max(0) as u8;
        assert_eq!(self.register_with_dirs(id, incarnation, dirs, false), 0);
        self.unfence(id);
    }

    /// Brokers 1 to 3 with two directories each; partitions 0 and 1 of broker 1 in one each.
    pub(super) fn with_dirs() -> Self {
        let mut cluster = Self::empty();
        for id in 1..=3 {
            cluster.join_with_dirs(id, &[dir(id, 1), dir(id, 2)]);
        }
        cluster.create(&[&[1, 2, 3], &[1, 2, 3]], &[]);
        assert_eq!(cluster.assign(1, dir(1, 1), &[0]), (0, vec![0]));
        assert_eq!(cluster.assign(1, dir(1, 2), &[1]), (0, vec![0]));
        cluster
    }

    pub(super) fn assign(&mut self, broker: i32, dir: Uuid, partitions: &[i32]) -> (i16, Vec<i16>) {
        let topic = self.topic_id();
        let epoch = self.broker_epoch(broker);
        self.assign_in(topic, broker, epoch, dir, partitions)
    }

    fn assign_in(
        &mut self,
        topic_id: TopicId,
        broker: i32,
        epoch: i64,
        dir: Uuid,
        partitions: &[i32],
    ) -> (i16, Vec<i16>) {
        let partitions = partitions
            .iter()
            .map(|index| PartitionData { partition_index: *index, ..Default::default() });
        let topic = TopicData { topic_id, partitions: partitions.collect(), ..Default::default() };
        let directory = DirectoryData { id: dir, topics: vec![topic], ..Default::default() };
        let request = AssignReplicasToDirsRequest {
            broker_id: broker,
            broker_epoch: epoch,
            directories: vec![directory],
            ..Default::default()
        };
        codes(&self.ask(0, request))
    }

    /// A heartbeat that reports failed directories; how many batches it decided.
    pub(super) fn report_failed(&mut self, id: i32, dirs: &[Uuid]) -> i64 {
        let before = self.follower.offset().get();
        let request = BrokerHeartbeatRequest {
            broker_id: id,
            broker_epoch: self.broker_epoch(id),
            current_metadata_offset: before,
            offline_log_dirs: dirs.to_vec(),
            ..Default::default()
        };
        self.ask(1, request);
        self.follower.offset().get() - before
    }
}

#[test]
fn a_failed_directory_loses_its_leaders_and_isr_members_and_the_other_keeps_them_c08() {
    let mut cluster = Cluster::with_dirs();
    assert_eq!(cluster.report_failed(1, &[dir(1, 1)]), 1);
    assert_eq!(cluster.state_of(0).0, 2);
    assert_eq!(cluster.state_of(0).3, [2, 3]);
    assert_eq!((cluster.state_of(1).0, cluster.state_of(1).3), (1, vec![1, 2, 3]));
    let broker = cluster.follower.broker(NodeId(1)).unwrap();
    assert_eq!(broker.log_dirs, [dir(1, 2)]);
    assert!(broker.is_active());
    // Every later heartbeat says it again, and nothing more follows.
    assert_eq!(cluster.report_failed(1, &[dir(1, 1)]), 0);
}

#[test]
fn a_replica_in_a_failed_directory_is_neither_elected_nor_taken_into_an_isr_c08() {
    let mut cluster = Cluster::with_dirs();
    cluster.report_failed(1, &[dir(1, 1)]);
    cluster.pass(1000);
    for id in 1..=3 {
        cluster.heartbeat(id, Wish::default());
    }
    cluster.pass(400_000);
    for id in 1..=3 {
        cluster.heartbeat(id, Wish::default());
    }
    cluster.tick();
    assert_eq!(cluster.state_of(0).0, 2, "the preferred leader's directory is gone");
    let (_, partition) = cluster.alter(cluster.proposal(&[1, 2, 3]));
    assert_eq!(partition.error_code, ErrorCode::IneligibleReplica.code());
}

#[test]
fn without_eligible_replicas_the_last_isr_member_in_a_failed_directory_stays_in_the_isr_c08() {
    let mut cluster = Cluster::without_elr(&[]);
    for id in 1..=2 {
        cluster.join_with_dirs(id, &[dir(id, 1), dir(id, 2)]);
    }
    cluster.create(&[&[1, 2]], &[]);
    cluster.assign(1, dir(1, 1), &[0]);
    cluster.set_isr(&[1]);
    cluster.report_failed(1, &[dir(1, 1)]);
    assert_eq!((cluster.state_of(0).0, cluster.state_of(0).3), (-1, vec![1]));
    // Restarted without the directory: alive, and still not the leader.
    cluster.pass(10_000);
    cluster.join_with_dirs(1, &[dir(1, 2)]);
    assert_eq!((cluster.state_of(0).0, cluster.state_of(0).3), (-1, vec![1]));
    cluster.pass(10_000);
    cluster.join_with_dirs(1, &[dir(1, 1), dir(1, 2)]);
    assert_eq!((cluster.state_of(0).0, cluster.state_of(0).3), (1, vec![1]));
}

#[test]
fn a_broker_without_any_working_directory_is_fenced_until_it_comes_with_one_c08() {
    let mut cluster = Cluster::with_dirs();
    cluster.report_failed(1, &[dir(1, 1), dir(1, 2)]);
    assert!(cluster.follower.broker(NodeId(1)).unwrap().fenced);
    assert_eq!((cluster.state_of(0).0, cluster.state_of(0).3), (2, vec![2, 3]));
    assert_eq!((cluster.state_of(1).0, cluster.state_of(1).3), (2, vec![2, 3]));
    assert_eq!(cluster.report_failed(1, &[dir(1, 1), dir(1, 2)]), 0);
    cluster.pass(10_000);
    cluster.join_with_dirs(1, &[dir(1, 1)]);
    assert!(cluster.follower.is_active(NodeId(1)));
}

#[test]
fn an_assignment_changes_the_directory_and_no_leader_epoch_kip_858() {
    let mut cluster = Cluster::with_dirs();
    let (leader, leader_epoch, partition_epoch, _) = cluster.state_of(0);
    assert_eq!((leader, leader_epoch, partition_epoch), (1, 0, 1));
    assert_eq!(cluster.partition(0).directory_of(NodeId(1)), dir(1, 1));
    assert_eq!(cluster.partition(0).directory_of(NodeId(2)), directory_id::UNASSIGNED);
    let before = cluster.follower.offset();
    assert_eq!(cluster.assign(1, dir(1, 1), &[0]), (0, vec![0]));
    assert_eq!(cluster.follower.offset(), before, "what is so already needs no record");
}

#[test]
fn an_assignment_that_cannot_be_is_refused_for_its_own_partition_only_kip_858() {
    let mut cluster = Cluster::with_dirs();
    let stale = cluster.assign_in(cluster.topic_id(), 1, 12_345, dir(1, 1), &[0]);
    assert_eq!(stale, (ErrorCode::StaleBrokerEpoch.code(), vec![]));
    let epoch = cluster.broker_epoch(1);
    let unknown = cluster.assign_in(Uuid([77; 16]), 1, epoch, dir(1, 1), &[0]);
    assert_eq!(unknown, (0, vec![ErrorCode::UnknownTopicId.code()]));
    let codes = cluster.assign(1, dir(1, 2), &[0, 9]);
    assert_eq!(codes, (0, vec![0, ErrorCode::UnknownTopicOrPartition.code()]));
    assert_eq!(cluster.partition(0).directory_of(NodeId(1)), dir(1, 2));
    cluster.join_with_dirs(4, &[dir(4, 1)]);
    let foreign = cluster.assign(4, dir(4, 1), &[0]);
    assert_eq!(foreign, (0, vec![ErrorCode::NotLeaderOrFollower.code()]));
}

#[test]
fn an_assignment_to_a_directory_that_does_not_work_moves_the_leader_kip_858() {
    let mut cluster = Cluster::with_dirs();
    assert_eq!(cluster.assign(1, directory_id::LOST, &[0]), (0, vec![0]));
    assert_eq!((cluster.state_of(0).0, cluster.state_of(0).3), (2, vec![2, 3]));
}

#[test]
fn a_new_replica_s_directory_is_the_only_one_or_unassigned_or_unknown_kip_858() {
    let mut cluster = Cluster::empty();
    cluster.join_with_dirs(1, &[dir(1, 1)]);
    cluster.join_with_dirs(2, &[dir(2, 1), dir(2, 2)]);
    cluster.join(3);
    cluster.create(&[&[1, 2, 3]], &[]);
    let expected = [dir(1, 1), directory_id::UNASSIGNED, directory_id::MIGRATING];
    assert_eq!(cluster.partition(0).directories, expected);
}

#[test]
fn a_registration_with_directories_of_another_broker_twice_or_reserved_is_refused_kip_858() {
    let mut cluster = Cluster::empty();
    cluster.join_with_dirs(1, &[dir(1, 1), dir(1, 2)]);
    let invalid = ErrorCode::InvalidRegistration.code();
    assert_eq!(cluster.register_with_dirs(2, 50, &[dir(2, 1), dir(1, 2)], false), invalid);
    assert_eq!(cluster.register_with_dirs(2, 50, &[dir(2, 1), dir(2, 1)], false), invalid);
    assert_eq!(cluster.register_with_dirs(2, 50, &[directory_id::LOST], false), invalid);
    assert_eq!(cluster.register_with_dirs(2, 50, &[dir(2, 1)], false), 0);
}

#[test]
fn a_repeated_registration_of_one_process_does_not_bring_a_failed_directory_back_c08() {
    let mut cluster = Cluster::empty();
    assert_eq!(cluster.register_with_dirs(1, 9, &[dir(1, 1), dir(1, 2)], false), 0);
    cluster.unfence(1);
    cluster.report_failed(1, &[dir(1, 1)]);
    assert_eq!(cluster.register_with_dirs(1, 9, &[dir(1, 1), dir(1, 2)], false), 0);
    assert_eq!(cluster.follower.broker(NodeId(1)).unwrap().log_dirs, [dir(1, 2)]);
}
