//! C06: eligible leader replicas, as Kafka 4.4.0 showed them when its brokers were killed, stopped and
//! started in turn: who enters and leaves, who is elected, and what goes with the feature.

use protocol::messages::UpdateFeaturesRequest;
use protocol::messages::update_features_request::FeatureUpdateKey;

use super::elections::{PREFERRED, UNCLEAN, error_of};
use super::*;
use crate::image::LeaderRecoveryState;

const MIN_ISR: &str = "min.insync.replicas";
const NOBODY: Vec<i32> = Vec::new();

impl Cluster {
    /// As [`Cluster::of`], in a cluster that keeps no eligible leader replicas.
    pub(super) fn without_elr(brokers: &[i32]) -> Self {
        let mut cluster = Self::empty();
        assert_eq!(cluster.set_elr(0), 0);
        for id in brokers {
            cluster.join(*id);
        }
        cluster
    }

    pub(super) fn set_elr(&mut self, level: i16) -> i16 {
        let update = FeatureUpdateKey {
            feature: "eligible.leader.replicas.version".into(),
            max_version_level: level,
            upgrade_type: if level == 0 { 2 } else { 1 },
            ..Default::default()
        };
        let feature_updates = vec![update];
        self.ask(2, UpdateFeaturesRequest { feature_updates, ..Default::default() }).error_code
    }

    /// A broker's session ends, and a new process of it comes.
    fn restart(&mut self, id: i32, cleanly: bool) {
        self.fence(id);
        self.start(id, cleanly);
    }

    /// A new process of a fenced broker comes, and is let in.
    fn start(&mut self, id: i32, cleanly: bool) {
        self.pass(10_000);
        let incarnation = 1 + self.follower.offset().get() as u8;
        let error = match cleanly {
            true => self.register_after_clean_stop(id, incarnation),
            false => self.register(id, incarnation).error_code,
        };
        assert_eq!(error, 0);
        self.unfence(id);
    }
}

/// One partition with this min.insync.replicas.
fn partition_of(replicas: &[i32], min_isr: &str) -> Cluster {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.create(&[replicas], &[(MIN_ISR, min_isr)]);
    cluster
}

/// Kafka 4.4.0: brokers 4 and 5 of three killed, then started.
#[test]
fn who_leaves_an_isr_that_is_too_small_is_eligible_until_it_is_large_enough_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "2");
    cluster.fence(2);
    assert_eq!(cluster.standing(), (1, vec![1, 3], NOBODY, NOBODY));
    cluster.fence(3);
    assert_eq!(cluster.standing(), (1, vec![1], vec![3], NOBODY));
    cluster.fence(1);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 3], vec![1]));
    cluster.unfence(3);
    assert_eq!(cluster.standing(), (3, vec![3], vec![1], NOBODY));
    cluster.unfence(2);
    cluster.set_isr(&[3, 2]);
    assert_eq!(cluster.standing(), (3, vec![3, 2], NOBODY, NOBODY));
}

/// Kafka 4.4.0: "a", by a proposal of the leader instead of a fence.
#[test]
fn a_leader_that_shrinks_its_isr_makes_who_leaves_eligible_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "3");
    cluster.set_isr(&[1]);
    assert_eq!(cluster.standing(), (1, vec![1], vec![2, 3], NOBODY));
    cluster.set_isr(&[1, 3]);
    assert_eq!(cluster.standing(), (1, vec![1, 3], vec![2], NOBODY));
    cluster.set_isr(&[1, 2, 3]);
    assert_eq!(cluster.standing(), (1, vec![1, 2, 3], NOBODY, NOBODY));
}

/// As many replicas as there are, if min.insync.replicas is more (H06).
#[test]
fn the_isr_needs_no_more_members_than_there_are_replicas_c06() {
    let mut cluster = partition_of(&[1], "2");
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
    cluster.fence(1);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1], vec![1]));
    cluster.unfence(1);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovered);
}

/// Kafka 4.4.0: "b", both killed and started again.
#[test]
fn after_an_unclean_end_a_broker_is_eligible_no_more_and_the_last_known_leader_leads_c06() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.fence(1);
    assert_eq!(cluster.standing(), (2, vec![2], vec![1], NOBODY));
    cluster.fence(2);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 2], vec![2]));
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 80);
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 83);
    cluster.start(1, false);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![2], vec![2]));
    cluster.start(2, false);
    assert_eq!(cluster.standing(), (2, vec![2], NOBODY, NOBODY));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovering);
}

/// Kafka 4.4.0: "b", both stopped and started again.
#[test]
fn after_a_clean_stop_a_broker_is_eligible_still_c06() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.heartbeat(2, Wish { shut_down: true, ..Default::default() });
    assert_eq!(cluster.standing(), (1, vec![1], vec![2], NOBODY));
    cluster.heartbeat(1, Wish { shut_down: true, ..Default::default() });
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 2], vec![1]));
    cluster.heartbeat(1, Wish { shut_down: true, ..Default::default() });
    cluster.start(2, true);
    assert_eq!(cluster.standing(), (2, vec![2], vec![1], NOBODY));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovered);
}

/// The clean stop that counts is that of the registration that the controller knows.
#[test]
fn a_clean_stop_of_an_earlier_registration_proves_nothing_c06() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.fence(2);
    let older = cluster.broker_epoch(2);
    cluster.pass(10_000);
    assert_eq!(cluster.register_after_clean_stop(2, 90), 0);
    assert_eq!(cluster.standing(), (1, vec![1], vec![2], NOBODY));
    let mut request = Cluster::registration(2, 91);
    request.previous_broker_epoch = older;
    cluster.pass(10_000);
    assert_eq!(cluster.ask(4, request).error_code, 0);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

/// A member of the ISR whose process ended uncleanly does not become eligible by leaving it.
#[test]
fn an_unclean_end_takes_a_member_of_the_isr_out_and_leaves_it_nothing_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "2");
    cluster.set_isr(&[1, 2]);
    cluster.pass(10_000);
    for id in [1, 3] {
        cluster.heartbeat(id, Wish::default());
    }
    // Its session is over; nobody has looked yet.
    assert_eq!(cluster.register(2, 95).error_code, 0);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

#[test]
fn an_unclean_end_of_the_only_member_leaves_the_last_known_leader_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "2");
    cluster.set_isr(&[1]);
    cluster.restart(2, false);
    cluster.restart(3, false);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
    cluster.pass(10_000);
    assert_eq!(cluster.register(1, 97).error_code, 0);
    assert_eq!(cluster.standing(), (-1, NOBODY, NOBODY, vec![1]));
    // Who is alive and was not the leader does not lead, but for somebody's order.
    cluster.unfence(2);
    assert_eq!(cluster.standing().0, -1);
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 80);
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 0);
    assert_eq!(cluster.standing(), (2, vec![2], NOBODY, NOBODY));
}

/// KAFKA-19522 was that it led although it was not there.
#[test]
fn the_last_known_leader_leads_only_when_it_is_there_c06() {
    let mut cluster = partition_of(&[1, 2], "1");
    cluster.set_isr(&[1]);
    cluster.pass(10_000);
    cluster.heartbeat(2, Wish::default());
    assert_eq!(cluster.register(1, 97).error_code, 0);
    assert_eq!(cluster.standing(), (-1, NOBODY, NOBODY, vec![1]));
    cluster.tick();
    assert_eq!(cluster.standing().0, -1);
    cluster.unfence(1);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

#[test]
fn an_unclean_election_forgets_who_was_eligible_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "2");
    cluster.set_isr(&[1, 2]);
    cluster.fence(2);
    cluster.fence(1);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 2], vec![1]));
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 0);
    assert_eq!(cluster.standing(), (3, vec![3], NOBODY, NOBODY));
}

/// An eligible replica goes before one outside, even where unclean elections are allowed.
#[test]
fn an_eligible_replica_is_elected_before_an_unclean_leader_c06() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let unclean = ("unclean.leader.election.enable", "true");
    cluster.create(&[&[3, 1, 2]], &[(MIN_ISR, "2"), unclean]);
    cluster.set_isr(&[3, 2]);
    cluster.alter(cluster.proposal(&[3]));
    assert_eq!(cluster.standing(), (3, vec![3], vec![2], NOBODY));
    cluster.fence(3);
    assert_eq!(cluster.standing(), (2, vec![2], vec![3], NOBODY));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovered);
}

#[test]
fn a_failed_directory_leaves_its_replica_eligible_and_not_electable_c06_c08() {
    let mut cluster = Cluster::with_dirs();
    assert_eq!(configs::alter(&mut cluster, 2, TOPIC, MIN_ISR, 0, Some("3")).0, 0);
    cluster.report_failed(1, &[directories::dir(1, 1)]);
    assert_eq!(cluster.standing(), (2, vec![2, 3], vec![1], NOBODY));
    cluster.fence(2);
    cluster.fence(3);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 2, 3], vec![3]));
}

#[test]
fn a_reassignment_leaves_no_replica_eligible_that_it_drops_c06_c07() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.set_isr(&[1]);
    assert_eq!(cluster.standing(), (1, vec![1], vec![2], NOBODY));
    reassignment::reassign(&mut cluster, Some(&[1, 3]));
    assert_eq!(cluster.standing(), (1, vec![1], vec![2], NOBODY));
    cluster.set_isr(&[1, 3]);
    assert_eq!(cluster.standing(), (1, vec![1, 3], NOBODY, NOBODY));
    cluster.set_isr(&[1]);
    reassignment::reassign(&mut cluster, Some(&[1]));
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

/// Who left under the former value may lack what committed under the new one.
#[test]
fn a_change_of_min_insync_replicas_forgets_who_is_eligible_c06() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.create(&[&[1, 2, 3]], &[(MIN_ISR, "2")]);
    cluster.set_isr(&[1]);
    assert_eq!(cluster.standing(), (1, vec![1], vec![2, 3], NOBODY));
    let epoch = cluster.state_of(0).1;
    assert_eq!(configs::alter(&mut cluster, 2, TOPIC, MIN_ISR, 0, Some("1")).0, 0);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
    assert_eq!(cluster.state_of(0).1, epoch);
    assert_eq!(configs::alter(&mut cluster, 2, TOPIC, MIN_ISR, 0, Some("3")).0, 0);
    cluster.set_isr(&[1, 2]);
    cluster.set_isr(&[1]);
    assert_eq!(cluster.standing(), (1, vec![1], vec![2], NOBODY));
    // The default of all brokers, whether the topic goes by it or not.
    assert_eq!(configs::alter(&mut cluster, 4, "", MIN_ISR, 0, Some("2")).0, 0);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

/// Kafka 4.4.0: "b", both stopped, min.insync.replicas changed, both started: only an unclean election
/// helps then.
#[test]
fn a_change_of_min_insync_replicas_leaves_a_leaderless_partition_to_its_operator_c06() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.fence(1);
    cluster.fence(2);
    assert_eq!(configs::alter(&mut cluster, 2, TOPIC, MIN_ISR, 0, Some("1")).0, 0);
    assert_eq!(cluster.standing(), (-1, NOBODY, NOBODY, NOBODY));
    cluster.start(1, true);
    cluster.start(2, true);
    assert_eq!(cluster.standing(), (-1, NOBODY, NOBODY, NOBODY));
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 0);
    assert_eq!(cluster.standing(), (1, vec![1], NOBODY, NOBODY));
}

/// Codes and texts as Kafka 4.4.0 answers.
#[test]
fn min_insync_replicas_has_one_value_for_all_brokers_while_the_feature_is_on_c06() {
    let mut cluster = Cluster::of(&[1]);
    let default = cluster.follower.configs(&ConfigResource::default_broker()).cloned().unwrap();
    assert_eq!(default, [(MIN_ISR.to_owned(), "1".to_owned())].into());
    let (code, text) = configs::alter(&mut cluster, 4, "1", MIN_ISR, 0, Some("2"));
    assert_eq!(code, 40);
    assert_eq!(text, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.");
    let (code, text) = configs::alter(&mut cluster, 4, "", MIN_ISR, 1, None);
    assert_eq!(code, 40);
    assert_eq!(text, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.");
    assert_eq!(cluster.set_elr(0), 0);
    assert_eq!(configs::alter(&mut cluster, 4, "1", MIN_ISR, 0, Some("2")).0, 0);
    assert_eq!(configs::alter(&mut cluster, 4, "", MIN_ISR, 1, None).0, 0);
    assert_eq!(cluster.set_elr(1), 0);
    assert!(cluster.follower.configs(&ConfigResource::broker(NodeId(1))).is_none());
    assert_eq!(cluster.follower.configs(&ConfigResource::default_broker()), Some(&default));
}

#[test]
fn the_value_that_all_brokers_begin_with_is_the_controller_s_own_c06() {
    let properties = BTreeMap::from([(MIN_ISR.to_owned(), "2".to_owned())]);
    let config = ControllerConfig::from_properties(CLUSTER, NodeId(100), 7, &properties).unwrap();
    let cluster = Cluster::with_config(config);
    let default = cluster.follower.configs(&ConfigResource::default_broker()).unwrap();
    assert_eq!(default.get(MIN_ISR).map(String::as_str), Some("2"));
    assert_eq!(cluster.follower.features().get("eligible.leader.replicas.version"), Some(&1));
}

/// Without the feature the last member is in the ISR, and is so from the downgrade on.
#[test]
fn ending_the_feature_empties_the_lists_and_gives_back_the_last_isr_c06() {
    let mut cluster = partition_of(&[1, 2], "2");
    cluster.fence(1);
    assert_eq!(cluster.set_elr(0), 0);
    assert_eq!(cluster.standing(), (2, vec![2], NOBODY, NOBODY));
    assert_eq!(cluster.set_elr(1), 0);
    cluster.fence(2);
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![2], vec![2]));
    assert_eq!(cluster.set_elr(0), 0);
    assert_eq!(cluster.standing(), (-1, vec![2], NOBODY, NOBODY));
    cluster.start(2, false);
    assert_eq!(cluster.standing(), (2, vec![2], NOBODY, NOBODY));
    cluster.fence(2);
    assert_eq!(cluster.standing(), (-1, vec![2], NOBODY, NOBODY));
    // And with it again, the one in the ISR is as good as ever; after an unclean end, as the last known.
    assert_eq!(cluster.set_elr(1), 0);
    assert_eq!(cluster.standing(), (-1, vec![2], NOBODY, NOBODY));
    cluster.start(2, false);
    assert_eq!(cluster.standing(), (2, vec![2], NOBODY, NOBODY));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn a_snapshot_carries_who_is_eligible_and_one_from_before_has_nobody_c06() {
    let mut cluster = partition_of(&[1, 2, 3], "3");
    for id in [3, 2, 1] {
        cluster.fence(id);
    }
    assert_eq!(cluster.standing(), (-1, NOBODY, vec![1, 2, 3], vec![1]));
    let snapshot = cluster.follower.to_snapshot().to_bytes();
    let read = crate::records::MetadataSnapshot::from_bytes(&snapshot).unwrap();
    assert_eq!(ClusterImage::from_snapshot(&read).unwrap(), cluster.follower);
    // What an older version wrote: the topic's id, partition 4, leader 1 and its ISR, and no more.
    let older: &[u8] = &[10, 0, 16, 4, 42, 1, 1, 64, 1];
    let record = <crate::records::Partition as prost::Message>::decode(older).unwrap();
    let partition = PartitionImage::from_record(&record);
    assert_eq!((partition.isr, partition.leader), (vec![NodeId(1)], NodeId(1)));
    assert!(partition.eligible_leader_replicas.is_empty() && partition.last_known_elr.is_empty());
}
