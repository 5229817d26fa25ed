//! T02 and T04 to T12 in whole clusters: how logs part and how they are brought together. (T01 and T03
//! are stories.)

use std::time::Duration;

use anyhow::Result;
use protocol::messages::DeleteRecordsRequest;
use protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use protocol::{ApiKey, NodeId, ResponseBody};
use replication::trace::Event;
use testkit::sim::disk::CrashKind;
use testkit::sim::{Kind, Plane, Simulation};

use crate::support::*;

const UNCLEAN: (&str, &str) = ("unclean.leader.election.enable", "true");

fn kill(simulation: &mut Simulation, node: i32) -> Result<()> {
    simulation.crash(NodeId(node), CrashKind::KeepPageCache)
}

/// Kills the leader, waits until nobody leads, and starts `next`, which is elected.
fn hand_over(simulation: &mut Simulation, from: i32, next: i32) -> Result<()> {
    kill(simulation, from)?;
    until(simulation, "no leader", |simulation| {
        simulation.partition_image(TOPIC, 0).is_some_and(|image| image.leader == NodeId::NONE)
    })?;
    simulation.start(NodeId(next))?;
    until(simulation, "the next leader", |simulation| {
        simulation.leads(TOPIC, 0) == Some(NodeId(next))
    })
}

#[test]
fn t02_a_log_is_cut_below_its_own_high_watermark_only_after_an_unclean_election() -> Result<()> {
    let mut simulation = cluster(5, &[4, 5], &[UNCLEAN], &[UNCLEAN])?;
    write(&mut simulation, 4, -1, 1)?;
    simulation.cut_one_way(NodeId(5), NodeId(4), Plane::Data);
    simulation.cut_one_way(NodeId(4), NodeId(5), Plane::Data);
    write(&mut simulation, 4, 1, 1)?;
    simulation.wait_for_isr(TOPIC, 0, &[4])?;
    until(&mut simulation, "b4 alone commits", |simulation| marks(simulation, 4) == (2, 2))?;
    kill(&mut simulation, 5)?;
    simulation.heal_network();
    hand_over(&mut simulation, 4, 5)?;
    let recovering = simulation.partition_image(TOPIC, 0).expect("a partition").clone();
    assert_eq!(recovering.isr, [NodeId(5)]);
    write(&mut simulation, 5, 1, 1)?;
    let from = simulation.event_count();
    simulation.start(NodeId(4))?;
    healthy(&mut simulation)?;
    assert_eq!(cuts(&simulation, from, 4), [(2, 1)]);
    assert_eq!(simulation.shape(NodeId(4), TOPIC, 0), simulation.shape(NodeId(5), TOPIC, 0));
    Ok(())
}

#[test]
fn t04_a_chain_of_divergent_epochs_is_walked_down_one_by_one() -> Result<()> {
    let mut simulation = cluster(5, &[4, 5], &[UNCLEAN], &[UNCLEAN])?;
    write(&mut simulation, 4, -1, 10)?;
    until(&mut simulation, "both have it", |simulation| marks(simulation, 5).1 == 10)?;
    kill(&mut simulation, 5)?;
    simulation.wait_for_isr(TOPIC, 0, &[4])?;
    // From here on each writes alone, in turns: no epoch above the first is common.
    for round in 0..3 {
        hand_over(&mut simulation, 4, 5)?;
        write(&mut simulation, 5, 1, 2)?;
        hand_over(&mut simulation, 5, 4)?;
        write(&mut simulation, 4, 1, if round == 0 { 1 } else { 2 })?;
    }
    let from = simulation.event_count();
    simulation.start(NodeId(5))?;
    healthy(&mut simulation)?;
    let cuts = cuts(&simulation, from, 5);
    assert_eq!(cuts, [(16, 14), (14, 12), (12, 10)], "{}", simulation.shape(NodeId(4), TOPIC, 0));
    let progressed = events(&simulation, from, 4, |event| match event {
        Event::FollowerProgressed { replica: NodeId(5), to, .. } => Some(to.get()),
        _ => None,
    });
    assert_eq!(progressed[0], 10, "no diverging round counts as progress: {progressed:?}");
    Ok(())
}

#[test]
fn t05_a_reader_is_told_where_its_epochs_end() -> Result<()> {
    // One replica that is restarted: every return is two epochs later.
    let mut simulation = cluster(3, &[3], &[], &[])?;
    write(&mut simulation, 3, 1, 2)?;
    for count in [3, 3] {
        hand_over(&mut simulation, 3, 3)?;
        write(&mut simulation, 3, 1, count)?;
    }
    assert_eq!(simulation.shape(NodeId(3), TOPIC, 0), "e0[0,2) e2[2,5) e4[5,8)");
    for (last_epoch, offset, expected) in [
        (0, 2, None),
        (0, 1, None),
        (2, 5, None),
        (4, 8, None),
        (1, 3, Some((0, 2))),
        (0, 4, Some((0, 2))),
        (3, 6, Some((2, 5))),
        (2, 7, Some((2, 5))),
        (3, 2, Some((2, 5))),
        (4, 9, Some((4, 8))),
    ] {
        let ask = Ask { offset, last_epoch, current_epoch: 4, ..Ask::CONSUMER };
        let data = fetch(&mut simulation, 3, ask)?;
        let diverging = &data.diverging_epoch;
        let seen = (diverging.epoch >= 0).then_some((diverging.epoch, diverging.end_offset));
        assert_eq!((data.error_code, seen), (0, expected), "asked with ({last_epoch}, {offset})");
    }
    let above = Ask { offset: 5, last_epoch: 11, current_epoch: 4, ..Ask::CONSUMER };
    assert_eq!(fetch(&mut simulation, 3, above)?.error_code, 1);
    Ok(())
}

#[test]
fn t07_a_follower_that_missed_two_epochs_of_the_same_leader_is_truncated() -> Result<()> {
    let mut simulation = cluster(5, &[1, 2, 3], &[], &[])?;
    write(&mut simulation, 1, -1, 2)?;
    healthy(&mut simulation)?;
    // Three records at epoch 0 that only b1 and b2 have.
    simulation.cut_one_way(NodeId(1), NodeId(3), Plane::Data);
    simulation.cut_one_way(NodeId(3), NodeId(1), Plane::Data);
    write(&mut simulation, 1, 1, 3)?;
    until(&mut simulation, "b2 has them", |simulation| marks(simulation, 2).1 == 5)?;
    simulation.isolate(NodeId(2), Plane::All);
    simulation.freeze(NodeId(1));
    simulation.wait_for_isr(TOPIC, 0, &[3])?;
    simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
    write(&mut simulation, 3, 1, 2)?;
    for other in [1, 3] {
        simulation.heal(NodeId(1), NodeId(other));
    }
    simulation.thaw(NodeId(1))?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 3])?;
    assert_eq!(elect(&mut simulation, 0)?, 0);
    until(&mut simulation, "b1 leads", |simulation| simulation.leads(TOPIC, 0) == Some(NodeId(1)))?;
    let from = simulation.event_count();
    simulation.heal_network();
    healthy(&mut simulation)?;
    assert_eq!(cuts(&simulation, from, 2), [(5, 2)]);
    assert_eq!(simulation.shape(NodeId(2), TOPIC, 0), simulation.shape(NodeId(1), TOPIC, 0));
    Ok(())
}

#[test]
fn t08_a_diverging_answer_moves_no_watermark() -> Result<()> {
    let mut simulation = cluster(3, &[2, 3, 1], &[], &[])?;
    write(&mut simulation, 2, -1, 1)?;
    healthy(&mut simulation)?;
    simulation.isolate(NodeId(2), Plane::Control);
    simulation.wait_for_leader(TOPIC, 0, Some(NodeId(2)))?;
    write(&mut simulation, 2, 1, 3)?;
    write(&mut simulation, 3, -1, 2)?;
    let from = simulation.event_count();
    simulation.heal_network();
    healthy(&mut simulation)?;
    // The leader's watermark 3 lies within b2's four records: it must not reach b2 before the cut.
    let told = events(&simulation, from, 2, |event| match event {
        Event::Truncated { from, to, .. } => Some(format!("cut {from}>{to}")),
        Event::HighWatermarkMoved { to, .. } => Some(format!("hw {to}")),
        Event::AppendedAsFollower { log_end, .. } => Some(format!("copy to {log_end}")),
        _ => None,
    });
    assert_eq!(told, ["cut 4>1", "copy to 3", "hw 3"]);
    Ok(())
}

#[test]
fn t09_and_e01_other_epochs_are_told_apart_and_move_nothing() -> Result<()> {
    let mut simulation = cluster(3, &[2, 3, 1], &[], &[])?;
    write(&mut simulation, 2, -1, 1)?;
    simulation.isolate(NodeId(2), Plane::Control);
    simulation.wait_for_leader(TOPIC, 0, Some(NodeId(2)))?;
    let before = marks(&simulation, 2);
    let epoch = simulation.partition_image(TOPIC, 0).expect("a partition").leader_epoch.get();
    let ask =
        |current_epoch| Ask { version: 12, replica: 1, offset: 1, current_epoch, ..Ask::CONSUMER };
    assert_eq!(fetch(&mut simulation, 2, ask(epoch))?.error_code, 75, "the old leader");
    assert_eq!(fetch(&mut simulation, 3, ask(epoch - 1))?.error_code, 74, "the new leader");
    assert_eq!(marks(&simulation, 2), before);
    simulation.heal_network();
    healthy(&mut simulation)
}

#[test]
fn t10_an_answer_from_before_a_new_epoch_of_the_same_leader_is_dropped_whole() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[])?;
    // A second topic keeps the fetcher, and with it the connection, in use.
    simulation.create_topic("other", &[&[1, 2]], &[])?;
    write(&mut simulation, 1, -1, 2)?;
    healthy(&mut simulation)?;
    let answers = Kind::Response(ApiKey::Fetch);
    let late = simulation.hold(answers, Some(NodeId(1)), Some(NodeId(2)));
    write(&mut simulation, 1, 1, 2)?;
    until(&mut simulation, "an answer is held", |simulation| simulation.network.held(late) > 0)?;
    // b3 leaves the replica set, which bumps the epoch; b1 goes on leading.
    assert_eq!(reassign(&mut simulation, &[1, 2])?, 0);
    until(&mut simulation, "b2 follows the new epoch", |simulation| {
        simulation
            .replica(NodeId(2), TOPIC, 0)
            .is_some_and(|facts| facts.leader_epoch.get() == 1 && facts.leader == NodeId(1))
    })?;
    let newer = simulation.hold(answers, Some(NodeId(1)), Some(NodeId(2)));
    simulation.release(late);
    simulation.run_for(Duration::from_millis(50))?;
    assert_eq!(marks(&simulation, 2).1, 2, "the late answer reached the log");
    simulation.release(newer);
    healthy(&mut simulation)
}

#[test]
fn t11_a_follower_below_the_leaders_start_begins_there_with_a_whole_batch() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2], &[], &[])?;
    let five: Vec<String> = (0..10).map(|at| format!("v{at}")).collect();
    let ten: Vec<&str> = five.iter().map(String::as_str).collect();
    produce(&mut simulation, 1, -1, &ten[..5])?;
    healthy(&mut simulation)?;
    simulation.cut(NodeId(1), NodeId(2));
    produce(&mut simulation, 1, 1, &ten[5..])?;
    produce(&mut simulation, 1, 1, &ten)?;
    simulation.wait_for_isr(TOPIC, 0, &[1])?;
    until(&mut simulation, "b1 commits", |simulation| marks(simulation, 1) == (20, 20))?;
    assert_eq!(delete_records(&mut simulation, 1, 15)?, (0, 15));
    let from = simulation.event_count();
    simulation.heal(NodeId(1), NodeId(2));
    simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
    healthy(&mut simulation)?;
    let started = events(&simulation, from, 2, |event| match event {
        Event::TruncatedFully { to, .. } => Some(to.get()),
        _ => None,
    });
    assert_eq!(started, [15]);
    let facts = simulation.replica(NodeId(2), TOPIC, 0).expect("a replica");
    assert_eq!((facts.log_start.get(), facts.log_end.get()), (15, 20));
    Ok(())
}

fn delete_records(simulation: &mut Simulation, node: i32, offset: i64) -> Result<(i16, i64)> {
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: TOPIC.into(),
            partitions: vec![DeleteRecordsPartition {
                partition_index: 0,
                offset,
                ..DeleteRecordsPartition::default()
            }],
            ..DeleteRecordsTopic::default()
        }],
        timeout_ms: 5000,
        ..DeleteRecordsRequest::default()
    };
    let ResponseBody::DeleteRecords(response) = simulation.call(NodeId(node), 2, request)? else {
        anyhow::bail!("not an answer to DeleteRecords");
    };
    let answered = &response.topics[0].partitions[0];
    Ok((answered.error_code, answered.low_watermark))
}

#[test]
fn t12_a_power_cut_leaves_whole_batches_and_epochs_that_fit_them() -> Result<()> {
    let mut shorter = 0;
    for round in 0..8 {
        let mut simulation = cluster(3, &[1, 2, 3], &[], &[("min.insync.replicas", "2")])?;
        write(&mut simulation, 1, -1, 5 + round)?;
        // Another epoch, so that the cache has something to lose.
        kill(&mut simulation, 1)?;
        simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
        simulation.start(NodeId(1))?;
        simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
        let leader = simulation.leads(TOPIC, 0).expect("a leader");
        write(&mut simulation, leader.get(), -1, 10)?;
        healthy(&mut simulation)?;
        let before = marks(&simulation, 3).1;
        simulation.crash(NodeId(3), CrashKind::LoseUnsynced)?;
        // The invariants look at the recovered log at once: I9 for its epochs, I1 for its records.
        simulation.start(NodeId(3))?;
        if marks(&simulation, 3).1 < before {
            shorter += 1;
        }
        healthy(&mut simulation)?;
    }
    assert!(shorter > 0, "no power cut lost anything");
    Ok(())
}
