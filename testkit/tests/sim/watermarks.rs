//! H02 to H12 and E02 in whole clusters: what is committed, who is in sync, what is answered. (H01 and
//! the network cut are stories.)

use std::time::Duration;

use anyhow::Result;
use protocol::{ApiKey, NodeId};
use replication::trace::Event;
use testkit::sim::disk::CrashKind;
use testkit::sim::{Kind, Plane, Simulation};

use crate::support::*;

const FETCHES: Kind = Kind::Request(ApiKey::Fetch);
const ALTER: Kind = Kind::Call(ApiKey::AlterPartition);

fn effective(simulation: &Simulation, node: i32) -> (Vec<i32>, Vec<i32>, bool) {
    let facts = simulation.replica(NodeId(node), TOPIC, 0).expect("a replica");
    let ids = |set: &std::collections::BTreeSet<NodeId>| set.iter().map(|id| id.get()).collect();
    (ids(&facts.effective_isr), ids(&facts.maximal_isr), facts.alter_in_flight)
}

/// b3 out of the ISR of [1,2,3], led by b1, and cut off from it.
fn without_b3(min_isr: &str) -> Result<Simulation> {
    let mut simulation = cluster(3, &[1, 2, 3], &[("min.insync.replicas", min_isr)], &[])?;
    write(&mut simulation, 1, -1, 2)?;
    for (from, to) in [(1, 3), (3, 1)] {
        simulation.cut_one_way(NodeId(from), NodeId(to), Plane::Data);
    }
    write(&mut simulation, 1, 1, 1)?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
    until(&mut simulation, "committed by two", |simulation| marks(simulation, 1) == (3, 3))?;
    Ok(simulation)
}

#[test]
fn h02_the_latest_offset_is_not_told_before_it_can_be_no_smaller_than_before() -> Result<()> {
    let mut simulation = cluster(5, &[1, 2, 3], &[], &[])?;
    write(&mut simulation, 1, -1, 3)?;
    healthy(&mut simulation)?;
    // b1 commits up to 6; b2 and b3 have the records and have not heard of it.
    write(&mut simulation, 1, -1, 3)?;
    assert_eq!(marks(&simulation, 1), (6, 6));
    let known = marks(&simulation, 2);
    assert!(known.0 < 6 && known.1 == 6, "{known:?}");
    simulation.crash(NodeId(1), CrashKind::KeepPageCache)?;
    let hold = simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(2)));
    assert_eq!(simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?, NodeId(2));
    let epoch = simulation.partition_image(TOPIC, 0).expect("a partition").leader_epoch.get();
    assert_eq!(list_offset(&mut simulation, 2, 7, epoch, -1)?.0, 78);
    assert_eq!(list_offset(&mut simulation, 2, 4, epoch, -1)?.0, 5);
    assert_eq!(list_offset(&mut simulation, 2, 7, epoch, -2)?, (0, 0));
    let waiting = fetch(&mut simulation, 2, Ask { offset: 5, ..Ask::CONSUMER })?;
    assert_eq!((waiting.error_code, waiting.records.map_or(0, |r| r.len())), (0, 0));
    assert_eq!(fetch(&mut simulation, 2, Ask { offset: 7, ..Ask::CONSUMER })?.error_code, 1);
    simulation.release(hold);
    simulation.wait_for_high_watermark(NodeId(2), TOPIC, 0, 6)?;
    assert_eq!(list_offset(&mut simulation, 2, 7, epoch, -1)?, (0, 6));
    Ok(())
}

#[test]
fn h03_a_newcomer_counts_from_the_moment_it_is_proposed() -> Result<()> {
    let mut simulation = without_b3("1")?;
    let hold = simulation.hold(ALTER, Some(NodeId(1)), None);
    simulation.heal_network_but(hold);
    until(&mut simulation, "b3 is proposed", |simulation| simulation.network.held(hold) > 0)?;
    assert_eq!(effective(&simulation, 1), (vec![1, 2], vec![1, 2, 3], true));
    let fetches = simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(1)));
    // Whatever b3 still has on its way is through.
    simulation.run_for(Duration::from_millis(400))?;
    write(&mut simulation, 1, 1, 2)?;
    until(&mut simulation, "b2 has them", |simulation| marks(simulation, 2).1 == 5)?;
    simulation.run_for(Duration::from_millis(100))?;
    assert_eq!(marks(&simulation, 1), (3, 5), "the watermark waits for b3");
    simulation.release(hold);
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    assert_eq!(marks(&simulation, 1), (3, 5));
    simulation.release(fetches);
    healthy(&mut simulation)
}

#[test]
fn h03_and_h04_who_is_proposed_to_leave_counts_until_the_answer_which_moves_the_watermark()
-> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[("min.insync.replicas", "2")], &[])?;
    write(&mut simulation, 1, -1, 2)?;
    healthy(&mut simulation)?;
    let hold = simulation.hold(ALTER, Some(NodeId(1)), None);
    for (from, to) in [(1, 3), (3, 1)] {
        simulation.cut_one_way(NodeId(from), NodeId(to), Plane::Data);
    }
    write(&mut simulation, 1, 1, 1)?;
    let waiting = send(&mut simulation, 1, -1, &["all"])?;
    until(&mut simulation, "b3 is to leave", |simulation| simulation.network.held(hold) > 0)?;
    assert_eq!(effective(&simulation, 1), (vec![1, 2, 3], vec![1, 2, 3], true));
    write(&mut simulation, 1, 1, 1)?;
    until(&mut simulation, "b2 has it", |simulation| marks(simulation, 2).1 == 5)?;
    simulation.run_for(Duration::from_millis(50))?;
    assert_eq!(marks(&simulation, 1), (2, 5), "b3 may still be elected");
    // From here on nobody fetches: what follows is due to the answer alone.
    simulation.hold(FETCHES, Some(NodeId(2)), Some(NodeId(1)));
    simulation.run_for(Duration::from_millis(400))?;
    simulation.release(hold);
    simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
    until(&mut simulation, "the watermark moves", |simulation| marks(simulation, 1) == (5, 5))?;
    // The write itself had waited beyond its own time.
    let answered = produced(&mut simulation, waiting)?;
    assert!(answered == (0, 3) || answered.0 == 7, "{answered:?}");
    Ok(())
}

#[test]
fn h04_a_waiting_write_is_acknowledged_by_the_isrs_change_alone() -> Result<()> {
    let mut simulation = cluster(5, &[4, 5], &[("min.insync.replicas", "1")], &[])?;
    write(&mut simulation, 4, -1, 1)?;
    healthy(&mut simulation)?;
    simulation.crash(NodeId(5), CrashKind::KeepPageCache)?;
    let waiting = send(&mut simulation, 4, -1, &["all"])?;
    let answered = produced(&mut simulation, waiting)?;
    assert_eq!(answered, (0, 1));
    assert_eq!(isr(&simulation), [4]);
    Ok(())
}

#[test]
fn h05_a_follower_joins_only_from_the_start_of_the_leaders_epoch_on() -> Result<()> {
    let mut simulation = without_b3("2")?;
    // b3 catches up, is proposed, and hears nothing of the next record.
    let alter = simulation.hold(ALTER, Some(NodeId(1)), None);
    simulation.heal_network_but(alter);
    until(&mut simulation, "b3 is proposed", |simulation| simulation.network.held(alter) > 0)?;
    simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(1)));
    simulation.run_for(Duration::from_millis(400))?;
    write(&mut simulation, 1, 1, 1)?;
    until(&mut simulation, "b2 has it", |simulation| marks(simulation, 2).1 == 4)?;
    assert_eq!((marks(&simulation, 2), marks(&simulation, 3)), ((3, 4), (3, 3)));
    simulation.crash(NodeId(1), CrashKind::KeepPageCache)?;
    simulation.network.discard(alter);
    let answers = simulation.hold(Kind::Response(ApiKey::Fetch), Some(NodeId(2)), Some(NodeId(3)));
    let from = simulation.event_count();
    assert_eq!(simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?, NodeId(2));
    until(&mut simulation, "b3 fetches from b2", |simulation| {
        simulation.network.held(answers) > 0
    })?;
    simulation.run_for(Duration::from_millis(500))?;
    // b3's end 3 has reached b2's watermark, but not the start of its epoch.
    assert_eq!((marks(&simulation, 2), isr(&simulation)), ((3, 4), vec![2]));
    let proposed = events(&simulation, from, 2, |event| match event {
        Event::IsrProposed { to, .. } => Some(to.clone()),
        _ => None,
    });
    assert!(proposed.is_empty(), "{proposed:?}");
    simulation.release(answers);
    simulation.wait_for_isr(TOPIC, 0, &[2, 3])
}

#[test]
fn h06_and_h07_under_min_isr_nothing_commits_and_acks_all_is_refused_before_the_append()
-> Result<()> {
    let mut simulation = cluster(5, &[3, 4, 5], &[("min.insync.replicas", "2")], &[])?;
    write(&mut simulation, 3, -1, 2)?;
    healthy(&mut simulation)?;
    for node in [4, 5] {
        simulation.crash(NodeId(node), CrashKind::KeepPageCache)?;
    }
    simulation.wait_for_isr(TOPIC, 0, &[3])?;
    write(&mut simulation, 3, 1, 3)?;
    simulation.run_for(Duration::from_secs(1))?;
    assert_eq!(marks(&simulation, 3), (2, 5));
    assert_eq!(produce(&mut simulation, 3, -1, &["refused"])?.0, 19);
    assert_eq!(marks(&simulation, 3), (2, 5), "the refused write is not in the log");
    let read = fetch(&mut simulation, 3, Ask { offset: 2, ..Ask::CONSUMER })?;
    assert_eq!(read.records.map_or(0, |records| records.len()), 0);
    assert_eq!(produce(&mut simulation, 3, 7, &["acks 7"])?.0, 21);
    simulation.start(NodeId(4))?;
    simulation.wait_for_high_watermark(NodeId(3), TOPIC, 0, 5)
}

#[test]
fn h07_a_write_under_way_times_out_under_min_isr_and_fails_at_once_when_the_leader_changes()
-> Result<()> {
    let mut simulation = cluster(5, &[3, 4], &[("min.insync.replicas", "2")], &[])?;
    write(&mut simulation, 3, -1, 1)?;
    simulation.crash(NodeId(4), CrashKind::KeepPageCache)?;
    assert_eq!(produce(&mut simulation, 3, -1, &["waits"])?.0, 7);
    assert_eq!(marks(&simulation, 3), (1, 2), "it stays in the log");
    simulation.start(NodeId(4))?;
    healthy(&mut simulation)?;
    let hold = simulation.hold(FETCHES, Some(NodeId(4)), Some(NodeId(3)));
    let waiting = send(&mut simulation, 3, -1, &["waits too"])?;
    simulation.run_for(Duration::from_millis(100))?;
    simulation.stop(NodeId(3))?;
    assert_eq!(produced(&mut simulation, waiting)?.0, 6);
    simulation.release(hold);
    Ok(())
}

#[test]
fn h09_a_silent_follower_leaves_only_when_there_is_something_to_fetch() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[])?;
    write(&mut simulation, 1, -1, 1)?;
    healthy(&mut simulation)?;
    for (from, to) in [(1, 3), (3, 1)] {
        simulation.cut_one_way(NodeId(from), NodeId(to), Plane::Data);
    }
    simulation.run_for(Duration::from_secs(10))?;
    assert_eq!(isr(&simulation), [1, 2, 3], "nothing to fetch, nothing missed");
    write(&mut simulation, 1, 1, 1)?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2])
}

#[test]
fn h09_a_follower_one_batch_behind_under_steady_writes_stays() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[])?;
    for at in 0..100 {
        write(&mut simulation, 1, 1, 1)?;
        simulation.run_for(Duration::from_millis(100))?;
        assert_eq!(isr(&simulation), [1, 2, 3], "after {at} writes");
    }
    Ok(())
}

#[test]
fn h11_a_fetch_under_an_old_registration_counts_for_nothing() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[])?;
    write(&mut simulation, 1, -1, 2)?;
    healthy(&mut simulation)?;
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    let old = simulation.cluster().broker(NodeId(3)).expect("registered").epoch.get();
    simulation.start(NodeId(3))?;
    healthy(&mut simulation)?;
    let new = simulation.cluster().broker(NodeId(3)).expect("registered").epoch.get();
    assert!(new > old);
    let epoch = simulation.partition_image(TOPIC, 0).expect("a partition").leader_epoch.get();
    let ask = |replica_epoch| Ask {
        version: 17,
        replica: 3,
        replica_epoch,
        offset: 1,
        current_epoch: epoch,
        last_epoch: 0,
    };
    let leader = simulation.leads(TOPIC, 0).expect("a leader").get();
    let from = simulation.event_count();
    assert_eq!(fetch(&mut simulation, leader, ask(old))?.error_code, 6);
    let progressed = events(&simulation, from, leader, |event| match event {
        Event::FollowerProgressed { replica: NodeId(3), to, .. } => Some(to.get()),
        _ => None,
    });
    assert_eq!(progressed, [0; 0], "the old registration's fetch counted");
    assert_eq!(fetch(&mut simulation, leader, ask(new))?.error_code, 0);
    Ok(())
}

#[test]
fn h12_a_restart_begins_with_the_checkpoint_and_a_leader_of_its_own_is_at_its_end_at_once()
-> Result<()> {
    let mut simulation = cluster(3, &[3], &[], &[])?;
    write(&mut simulation, 3, -1, 4)?;
    // The checkpoint is written every second; the rest comes after it.
    simulation.run_for(Duration::from_millis(1500))?;
    write(&mut simulation, 3, -1, 4)?;
    let from = simulation.event_count();
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    simulation.start(NodeId(3))?;
    let recovered = events(&simulation, from, 3, |event| match event {
        Event::LogRecovered { log_end, high_watermark, .. } => {
            Some((log_end.get(), high_watermark.get()))
        }
        _ => None,
    });
    assert_eq!(recovered, [(8, 4)]);
    simulation.wait_for_leader(TOPIC, 0, None)?;
    assert_eq!(marks(&simulation, 3), (8, 8));
    Ok(())
}

#[test]
fn e01_the_current_leader_epoch_of_a_request_is_compared_at_leader_and_follower() -> Result<()> {
    let mut simulation = cluster(3, &[3, 2, 1], &[], &[])?;
    write(&mut simulation, 3, -1, 1)?;
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    simulation.wait_for_leader(TOPIC, 0, Some(NodeId(3)))?;
    simulation.start(NodeId(3))?;
    healthy(&mut simulation)?;
    let n = simulation.partition_image(TOPIC, 0).expect("a partition").leader_epoch.get();
    let leader = simulation.leads(TOPIC, 0).expect("a leader").get();
    for (epoch, at_leader, consumer, other) in
        [(-1, 0, 0, 6), (n, 0, 0, 6), (n - 1, 74, 74, 74), (n + 1, 75, 75, 75)]
    {
        let by_consumer = Ask { current_epoch: epoch, ..Ask::CONSUMER };
        let old_consumer = Ask { version: 10, ..by_consumer };
        let follower = if leader == 1 { 3 } else { 1 };
        assert_eq!(fetch(&mut simulation, leader, by_consumer)?.error_code, at_leader);
        assert_eq!(fetch(&mut simulation, follower, by_consumer)?.error_code, consumer);
        assert_eq!(fetch(&mut simulation, follower, old_consumer)?.error_code, other);
        assert_eq!(list_offset(&mut simulation, leader, 7, epoch, -2)?.0, at_leader);
        assert_eq!(list_offset(&mut simulation, follower, 7, epoch, -2)?.0, other);
        assert_eq!(epoch_end(&mut simulation, leader, epoch, 0)?.0, at_leader);
        assert_eq!(epoch_end(&mut simulation, follower, epoch, 0)?.0, other);
    }
    Ok(())
}

#[test]
fn e02_the_ends_of_epochs_are_told_by_the_largest_one_not_above() -> Result<()> {
    let mut simulation = cluster(3, &[3], &[], &[])?;
    write(&mut simulation, 3, -1, 4)?;
    for count in [6, 5] {
        simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
        until(&mut simulation, "no leader", |simulation| {
            simulation.partition_image(TOPIC, 0).is_some_and(|image| image.leader == NodeId::NONE)
        })?;
        simulation.start(NodeId(3))?;
        simulation.wait_for_leader(TOPIC, 0, None)?;
        write(&mut simulation, 3, -1, count)?;
    }
    assert_eq!(simulation.shape(NodeId(3), TOPIC, 0), "e0[0,4) e2[4,10) e4[10,15)");
    for (asked, expected) in [
        (-1, (0, -1, -1)),
        (4, (0, 4, 15)),
        (2, (0, 2, 10)),
        (3, (0, 2, 10)),
        (1, (0, 0, 4)),
        (9, (0, -1, -1)),
    ] {
        assert_eq!(epoch_end(&mut simulation, 3, 4, asked)?, expected, "asked for {asked}");
    }
    Ok(())
}
