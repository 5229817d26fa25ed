//! C02 to C05, C07, H10, H13 in whole clusters: what controllers decide. (C01 is a story.)

use std::time::Duration;

use anyhow::Result;
use broker::core::lifecycle::LifecycleState;
use protocol::messages::AlterPartitionRequest;
use protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use protocol::{NodeId, ResponseBody};
use replication::trace::Event;
use testkit::sim::disk::CrashKind;
use testkit::sim::{Kind, Plane, Simulation};

use crate::support::*;

fn leader_epoch(simulation: &Simulation) -> i32 {
    simulation.partition_image(TOPIC, 0).map_or(-1, |image| image.leader_epoch.get())
}

#[test]
fn c02_a_restarted_broker_stays_fenced_until_it_has_read_its_own_registration() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[])?;
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    let hold = simulation.hold(Kind::MetadataAnswer, None, Some(NodeId(3)));
    simulation.start(NodeId(3))?;
    until(&mut simulation, "b3 is registered", |simulation| {
        let process = simulation.node(NodeId(3)).running().expect("it runs");
        process.core.lifecycle.state() == LifecycleState::Fenced
    })?;
    simulation.run_for(Duration::from_secs(1))?;
    let broker = simulation.cluster().broker(NodeId(3)).expect("registered").clone();
    assert!(broker.fenced, "unfenced without its metadata");
    simulation.release(hold);
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    healthy(&mut simulation)
}

#[test]
fn c03_and_h10_a_leader_that_stops_cleanly_is_replaced_first_and_stays_out_of_the_isr() -> Result<()>
{
    let mut simulation = cluster(3, &[3, 2, 1], &[], &[("min.insync.replicas", "2")])?;
    write(&mut simulation, 3, -1, 3)?;
    let from = simulation.event_count();
    simulation.stop_and_wait(NodeId(3))?;
    assert_eq!(simulation.leads(TOPIC, 0), Some(NodeId(2)));
    assert_eq!(isr(&simulation), [1, 2]);
    assert_eq!(marks(&simulation, 2).1, 3, "nothing acknowledged is lost");
    let readmitted = simulation.events_since(from).into_iter().any(|entry| match entry.event {
        Event::IsrChanged { to, from, .. } => {
            to.0.contains(&NodeId(3)) && !from.0.contains(&NodeId(3))
        }
        _ => false,
    });
    assert!(!readmitted, "a stopping broker came back into the ISR");
    simulation.start(NodeId(3))?;
    healthy(&mut simulation)
}

#[test]
fn c03_the_last_isr_member_is_eligible_still_and_elected_again() -> Result<()> {
    let mut simulation = cluster(3, &[3], &[], &[])?;
    write(&mut simulation, 3, -1, 3)?;
    let before = leader_epoch(&simulation);
    simulation.stop_and_wait(NodeId(3))?;
    let image = simulation.partition_image(TOPIC, 0).expect("a partition").clone();
    assert_eq!((image.leader, image.isr.len()), (NodeId::NONE, 0));
    assert_eq!(image.eligible_leader_replicas, [NodeId(3)]);
    assert_eq!(image.leader_epoch.get(), before + 1);
    simulation.start(NodeId(3))?;
    simulation.wait_for_leader(TOPIC, 0, None)?;
    assert_eq!(leader_epoch(&simulation), before + 2);
    assert_eq!(marks(&simulation, 3), (3, 3));
    Ok(())
}

#[test]
fn c04_elections_follow_the_replica_order_and_preferred_ones_say_why_not() -> Result<()> {
    let mut simulation = cluster(3, &[3, 2, 1], &[], &[])?;
    assert_eq!(elect(&mut simulation, 0)?, 84, "the preferred replica leads already");
    assert_eq!(elect(&mut simulation, 1)?, 84, "no unclean election with a live leader");
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    let next = simulation.wait_for_leader(TOPIC, 0, Some(NodeId(3)))?;
    assert_eq!(next, NodeId(2), "the next in the order of the replicas");
    assert_eq!(elect(&mut simulation, 0)?, 80, "the preferred replica is dead");
    simulation.start(NodeId(3))?;
    healthy(&mut simulation)?;
    let before = leader_epoch(&simulation);
    assert_eq!(elect(&mut simulation, 0)?, 0);
    until(&mut simulation, "b3 leads again", |simulation| {
        simulation.leads(TOPIC, 0) == Some(NodeId(3))
    })?;
    assert_eq!(leader_epoch(&simulation), before + 1);
    healthy(&mut simulation)
}

#[test]
fn c05_without_unclean_elections_a_partition_waits_for_its_isr() -> Result<()> {
    let mut simulation = cluster(5, &[4, 5], &[], &[])?;
    write(&mut simulation, 4, -1, 1)?;
    simulation.crash(NodeId(5), CrashKind::KeepPageCache)?;
    simulation.wait_for_isr(TOPIC, 0, &[4])?;
    write(&mut simulation, 4, -1, 1)?;
    simulation.crash(NodeId(4), CrashKind::KeepPageCache)?;
    until(&mut simulation, "no leader", |simulation| {
        simulation.partition_image(TOPIC, 0).is_some_and(|image| image.leader == NodeId::NONE)
    })?;
    simulation.start(NodeId(5))?;
    simulation.run_for(Duration::from_secs(5))?;
    assert_eq!(simulation.leads(TOPIC, 0), None);
    assert!(isr(&simulation).is_empty());
    let last = simulation.partition_image(TOPIC, 0).map(|image| image.last_known_elr.clone());
    assert_eq!(last, Some(vec![NodeId(4)]));
    assert_eq!(produce(&mut simulation, 5, -1, &["refused"])?.0, 6);
    simulation.start(NodeId(4))?;
    assert_eq!(simulation.wait_for_leader(TOPIC, 0, None)?, NodeId(4));
    healthy(&mut simulation)
}

#[test]
fn c07_a_reassignment_ends_when_the_new_replicas_are_in_the_isr() -> Result<()> {
    let mut simulation = cluster(5, &[1, 2, 3], &[], &[("min.insync.replicas", "2")])?;
    write(&mut simulation, 1, -1, 5)?;
    let before = leader_epoch(&simulation);
    let hold = simulation.hold(Kind::Request(protocol::ApiKey::Fetch), Some(NodeId(5)), None);
    assert_eq!(reassign(&mut simulation, &[3, 4, 5])?, 0);
    until(&mut simulation, "b4 joins", |simulation| isr(simulation) == [1, 2, 3, 4])?;
    assert_eq!(leader_epoch(&simulation), before, "adding replicas bumps no leader epoch");
    simulation.release(hold);
    until(&mut simulation, "the end of it", |simulation| {
        simulation.partition_image(TOPIC, 0).is_some_and(|image| !image.is_reassigning())
    })?;
    assert_eq!(isr(&simulation), [3, 4, 5]);
    let leader = simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
    assert!(leader_epoch(&simulation) > before);
    write(&mut simulation, leader.get(), -1, 1)?;
    healthy(&mut simulation)?;
    assert_eq!(marks(&simulation, 5).1, 6);
    until(&mut simulation, "the old replicas are removed", |simulation| {
        [1, 2].iter().all(|node| simulation.replica(NodeId(*node), TOPIC, 0).is_none())
    })
}

/// AlterPartition with every field in hand; gives the top-level and the partition's error code.
struct Alter {
    sender: i32,
    broker_epoch: i64,
    leader_epoch: i32,
    partition_epoch: i32,
    isr: Vec<(i32, i64)>,
    recovery: i8,
    partition: i32,
    known_topic: bool,
}

fn alter(simulation: &mut Simulation, alter: &Alter) -> Result<(i16, i16)> {
    let mut topic_id = simulation.partition_id(TOPIC, 0)?.topic_id;
    if !alter.known_topic {
        topic_id = protocol::Uuid([9; 16]);
    }
    let members = alter.isr.iter().map(|(id, epoch)| BrokerState {
        broker_id: *id,
        broker_epoch: *epoch,
        ..BrokerState::default()
    });
    let request = AlterPartitionRequest {
        broker_id: alter.sender,
        broker_epoch: alter.broker_epoch,
        topics: vec![TopicData {
            topic_id,
            partitions: vec![PartitionData {
                partition_index: alter.partition,
                leader_epoch: alter.leader_epoch,
                new_isr_with_epochs: members.collect(),
                leader_recovery_state: alter.recovery,
                partition_epoch: alter.partition_epoch,
                ..PartitionData::default()
            }],
            ..TopicData::default()
        }],
        ..AlterPartitionRequest::default()
    };
    let ResponseBody::AlterPartition(response) = simulation.call_controller(3, request)? else {
        anyhow::bail!("not an answer to AlterPartition");
    };
    let partition = response.topics.first().and_then(|topic| topic.partitions.first());
    Ok((response.error_code, partition.map_or(0, |partition| partition.error_code)))
}

#[test]
fn h13_h10_and_h11_the_controller_refuses_each_wrong_change_of_an_isr_by_its_code() -> Result<()> {
    let mut simulation = cluster(5, &[3, 4, 5], &[], &[])?;
    simulation.crash(NodeId(5), CrashKind::KeepPageCache)?;
    simulation.wait_for_isr(TOPIC, 0, &[3, 4])?;
    let epoch = |simulation: &Simulation, node| {
        simulation.cluster().broker(NodeId(node)).expect("registered").epoch.get()
    };
    let image = simulation.partition_image(TOPIC, 0).expect("a partition").clone();
    let (own, other, fenced) =
        (epoch(&simulation, 3), epoch(&simulation, 4), epoch(&simulation, 5));
    let right = || Alter {
        sender: 3,
        broker_epoch: own,
        leader_epoch: image.leader_epoch.get(),
        partition_epoch: image.partition_epoch.get(),
        isr: vec![(3, own), (4, other)],
        recovery: 0,
        partition: 0,
        known_topic: true,
    };
    for (what, change, expected) in [
        ("an unknown topic", Alter { known_topic: false, ..right() }, (0, 100)),
        ("an unknown partition", Alter { partition: 7, ..right() }, (0, 3)),
        ("a leader epoch of the future", Alter { leader_epoch: 99, ..right() }, (0, 41)),
        ("a partition epoch of the future", Alter { partition_epoch: 99, ..right() }, (0, 41)),
        ("an old leader epoch", Alter { leader_epoch: -1, ..right() }, (0, 74)),
        ("not the leader", Alter { sender: 4, broker_epoch: other, ..right() }, (0, 42)),
        ("an old partition epoch", Alter { partition_epoch: 0, ..right() }, (0, 95)),
        ("no replica", Alter { isr: vec![(3, own), (1, 1)], ..right() }, (0, 42)),
        ("without the leader", Alter { isr: vec![(4, other)], ..right() }, (0, 42)),
        ("recovering again", Alter { recovery: 1, isr: vec![(3, own)], ..right() }, (0, 42)),
        ("a fenced member", Alter { isr: vec![(3, own), (5, fenced)], ..right() }, (0, 107)),
        (
            "a member's old epoch",
            Alter { isr: vec![(3, own), (4, other - 1)], ..right() },
            (0, 107),
        ),
        ("a stale sender", Alter { broker_epoch: own - 1, ..right() }, (77, 0)),
        ("what is so already", right(), (0, 0)),
    ] {
        assert_eq!(alter(&mut simulation, &change)?, expected, "{what}");
    }
    let after = simulation.partition_image(TOPIC, 0).expect("a partition");
    assert_eq!(after.partition_epoch, image.partition_epoch, "nothing of it changed anything");
    Ok(())
}

#[test]
fn c01_a_controller_that_is_cut_off_itself_is_replaced_and_decides_nothing_more() -> Result<()> {
    let mut simulation = cluster(3, &[1, 2, 3], &[], &[("min.insync.replicas", "2")])?;
    let (old, term) = simulation.active_controller().expect("a controller");
    write(&mut simulation, 1, -1, 1)?;
    simulation.isolate(old, Plane::All);
    until(&mut simulation, "another controller", |simulation| {
        simulation.active_controller().is_some_and(|(active, newer)| active != old && newer > term)
    })?;
    let leader = simulation.wait_for_leader(TOPIC, 0, Some(old))?;
    write(&mut simulation, leader.get(), -1, 1)?;
    simulation.heal_network();
    healthy(&mut simulation)
}
