//! When a follower is out of sync. H09.

use std::time::Duration;

use crate::support::Cluster;

fn is_proposed_to_leave(cluster: &mut Cluster) -> bool {
    cluster.check_lag(1);
    !cluster.node(1).outbox.is_empty()
}

#[test]
fn h09_a_follower_always_one_batch_behind_stays_in_the_isr() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[0]);
    for value in 1..100 {
        // The leader appends before every fetch, so that no fetch is ever at its end.
        assert!(cluster.log_end(2) < cluster.log_end(1));
        cluster.fetch(2);
        cluster.produce(1, &[value]);
        cluster.pass(Duration::from_secs(10));
        assert!(!is_proposed_to_leave(&mut cluster), "after {value} records");
    }
}

#[test]
fn h09_a_stopped_follower_of_an_idle_partition_stays() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.catch_up(2);
    cluster.pass(Duration::from_secs(3600));
    assert!(!is_proposed_to_leave(&mut cluster));
}

#[test]
fn h09_a_stopped_follower_leaves_after_the_lag_limit() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.catch_up(2);
    cluster.produce(1, &[2]);
    cluster.pass(Duration::from_secs(30));
    assert!(!is_proposed_to_leave(&mut cluster), "not at the limit");
    cluster.pass(Duration::from_millis(1));
    assert!(is_proposed_to_leave(&mut cluster));
}

#[test]
fn h09_a_slow_follower_that_never_reaches_an_earlier_end_leaves() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &(0..100).collect::<Vec<_>>());
    for _ in 0..8 {
        let request = cluster.request(2);
        let mut reply = cluster.serve(&request);
        reply.records.truncate(1);
        cluster.apply(&request, &reply);
        cluster.produce(1, &(0..10).collect::<Vec<_>>());
        cluster.pass(Duration::from_secs(5));
    }
    assert!(is_proposed_to_leave(&mut cluster), "it fetches all the time, and falls behind");
}

#[test]
fn h09_a_new_leader_counts_isr_members_as_caught_up_and_others_as_never() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[1, 2]);
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.controller.elect(2);
    cluster.controller.isr = vec![1, 2];
    cluster.publish_all();
    let state = |cluster: &Cluster, id: i32| {
        cluster.node(2).state.follower(id.into()).copied().expect("a replica")
    };
    assert_eq!(state(&cluster, 1).last_caught_up_time, Some(cluster.now));
    assert_eq!(state(&cluster, 3).last_caught_up_time, None);
    // Node 3 has never fetched, so it holds nothing back.
    cluster.produce(2, &[3]);
    cluster.catch_up(1);
    assert_eq!(cluster.high_watermark(2), 3);
}

#[test]
fn h09_a_replica_outside_the_isr_is_waited_for_while_it_is_caught_up() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &[1, 2]);
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.controller.leave_isr(3);
    cluster.publish_all();
    cluster.node_mut(1).outbox.clear();
    cluster.produce(1, &[3, 4]);
    cluster.catch_up(2);
    assert_eq!(cluster.high_watermark(1), 2, "node 3 was caught up a moment ago and may join");
    cluster.pass(Duration::from_secs(31));
    cluster.fetch(2);
    assert_eq!(cluster.high_watermark(1), 4);
}
