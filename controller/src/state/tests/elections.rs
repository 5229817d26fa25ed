//! C04, C05: elections on demand, by preference, and unclean ones.

use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};

use super::*;
use crate::image::LeaderRecoveryState;

pub(super) const PREFERRED: i8 = 0;
pub(super) const UNCLEAN: i8 = 1;

fn elect(
    cluster: &mut Cluster,
    election_type: i8,
    wanted: Option<(&str, i32)>,
) -> ElectLeadersResponse {
    let topics = wanted.map(|(topic, partition)| {
        vec![TopicPartitions {
            topic: topic.into(),
            partitions: vec![partition],
            ..Default::default()
        }]
    });
    let request =
        ElectLeadersRequest { election_type, topic_partitions: topics, ..Default::default() };
    cluster.ask(2, request)
}

pub(super) fn error_of(
    cluster: &mut Cluster,
    election_type: i8,
    topic: &str,
    partition: i32,
) -> i16 {
    let response = elect(cluster, election_type, Some((topic, partition)));
    response.replica_election_results[0].partition_result[0].error_code
}

#[test]
fn the_first_active_isr_member_in_replica_order_leads_c04() {
    let mut cluster = Cluster::with_topic();
    cluster.set_isr(&[1, 3]);
    cluster.fence(1);
    assert_eq!(cluster.state_of(0), (3, 1, 2, vec![3]));
}

#[test]
fn a_preferred_election_moves_leadership_and_bumps_the_leader_epoch_c04() {
    let mut cluster = Cluster::with_topic();
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 84);
    cluster.fence(1);
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 80);
    cluster.unfence(1);
    // Alive but not in the ISR.
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 80);
    cluster.set_isr(&[1, 2, 3]);
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 0);
    assert_eq!(cluster.state_of(0), (1, 2, 3, vec![1, 2, 3]));
}

#[test]
fn elections_of_what_does_not_exist_or_is_not_needed_say_so_c04() {
    let mut cluster = Cluster::with_topic();
    assert_eq!(error_of(&mut cluster, PREFERRED, "nope", 0), 3);
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 9), 3);
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 84);
}

/// As Kafka answers.
#[test]
fn an_election_of_an_unknown_type_is_refused_for_each_partition_asked_for_c04() {
    let mut cluster = Cluster::with_topic();
    let told = elect(&mut cluster, 9, Some((TOPIC, 7)));
    assert_eq!(told.error_code, 42);
    let partition = &told.replica_election_results[0].partition_result[0];
    assert_eq!((partition.partition_id, partition.error_code), (7, 42));
    assert_eq!(partition.error_message.as_deref(), Some("Unknown election type 9"));
    let of_all = elect(&mut cluster, 7, None);
    assert_eq!((of_all.error_code, of_all.replica_election_results.len()), (42, 0));
    let request = ElectLeadersRequest {
        election_type: 7,
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    assert_eq!(cluster.ask(2, request).error_code, 0);
}

#[test]
fn an_election_of_everything_names_every_topic_and_only_partitions_that_mattered_c04() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1, 2], &[2, 1]], &[]);
    let quiet = elect(&mut cluster, PREFERRED, None);
    assert_eq!(quiet.replica_election_results.len(), 1);
    assert!(quiet.replica_election_results[0].partition_result.is_empty());
    cluster.fence(1);
    let failed = elect(&mut cluster, PREFERRED, None);
    let results = &failed.replica_election_results[0].partition_result;
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].partition_id, results[0].error_code), (0, 80));
}

#[test]
fn a_dead_sole_replica_cannot_be_elected_c04() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1]], &[]);
    cluster.fence(1);
    assert_eq!(cluster.state_of(0), (-1, 1, 1, vec![]));
    assert_eq!(error_of(&mut cluster, PREFERRED, TOPIC, 0), 80);
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 83);
}

/// A partition whose only ISR member is fenced while broker 2, outside the ISR, is alive.
fn leaderless(configs: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.create(&[&[1, 2]], configs);
    cluster.set_isr(&[1]);
    cluster.fence(1);
    cluster
}

#[test]
fn without_unclean_elections_nobody_leads_and_the_last_member_is_waited_for_c05() {
    let mut cluster = leaderless(&[]);
    assert_eq!(cluster.state_of(0), (-1, 1, 2, vec![]));
    cluster.pass(1);
    cluster.heartbeat(2, Wish::default());
    assert_eq!(cluster.state_of(0), (-1, 1, 2, vec![]));
    cluster.unfence(1);
    assert_eq!(cluster.state_of(0), (1, 2, 3, vec![1]));
}

#[test]
fn an_unclean_leader_is_the_whole_isr_and_recovers_c05() {
    let cluster = leaderless(&[("unclean.leader.election.enable", "true")]);
    assert_eq!(cluster.state_of(0), (2, 1, 2, vec![2]));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn an_administrator_can_ask_for_an_unclean_election_c05() {
    let mut cluster = leaderless(&[]);
    assert_eq!(error_of(&mut cluster, UNCLEAN, TOPIC, 0), 0);
    assert_eq!(cluster.state_of(0), (2, 2, 3, vec![2]));
    assert_eq!(cluster.partition(0).leader_recovery_state, LeaderRecoveryState::Recovering);
}

#[test]
fn allowing_unclean_elections_later_elects_at_the_next_tick_c05() {
    let mut cluster = leaderless(&[]);
    configs::alter(&mut cluster, 2, TOPIC, "unclean.leader.election.enable", 0, Some("true"));
    assert_eq!(cluster.state_of(0).0, -1);
    cluster.heartbeat(2, Wish::default());
    cluster.tick();
    assert_eq!(cluster.state_of(0), (2, 2, 3, vec![2]));
}

#[test]
fn an_unclean_election_goes_by_replica_order_c05() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.create(&[&[1, 3, 2]], &[("unclean.leader.election.enable", "true")]);
    cluster.set_isr(&[1]);
    cluster.fence(1);
    assert_eq!(cluster.state_of(0).0, 3);
}

#[test]
fn leadership_returns_to_the_preferred_replica_by_itself_after_the_interval_c04() {
    let mut cluster = Cluster::with_topic();
    cluster.fence(1);
    cluster.unfence(1);
    cluster.set_isr(&[1, 2, 3]);
    for _ in 0..40 {
        assert_eq!(cluster.state_of(0).0, 2);
        cluster.pass(7500);
        for id in [1, 2, 3] {
            cluster.heartbeat(id, Wish::default());
        }
        cluster.tick();
    }
    assert_eq!(cluster.state_of(0).0, 1);
}
