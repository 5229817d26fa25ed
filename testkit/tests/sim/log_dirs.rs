//! C08, KIP-858: brokers with two log directories each, of which one fails.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use controller::image::directory_id;
use protocol::messages::metadata_request::MetadataRequestTopic;
use protocol::messages::{DeleteTopicsRequest, MetadataRequest};
use protocol::records::BatchBuilder;
use protocol::{NodeId, Offset, ResponseBody};
use storage::{Disk, DiskFile, OpenMode};
use testkit::client::{fetch_request, produce_request};
use testkit::sim::disk::CrashKind;
use testkit::sim::{SimConfig, Simulation, log_dir};

use crate::support::TOPIC;

const ONE: NodeId = NodeId(1);
const STORAGE_ERROR: i16 = 56;
const PATIENCE: Duration = Duration::from_secs(30);

/// Three nodes with two directories each, and partitions with these replicas.
fn cluster(partitions: &[&[i32]]) -> Result<Simulation> {
    let mut config = SimConfig::new(21);
    config.settings.log_dirs = 2;
    let mut simulation = Simulation::new(config)?;
    simulation.wait_until_all_live()?;
    simulation.create_topic(TOPIC, partitions, &[])?;
    let count = partitions.len() as i32;
    simulation.run_until("every replica's directory is told", PATIENCE, |simulation| {
        (0..count).all(|index| {
            let image = simulation.partition_image(TOPIC, index);
            image.is_some_and(|image| {
                image.directories.iter().all(|dir| !directory_id::is_reserved(*dir))
            })
        })
    })?;
    Ok(simulation)
}

/// In which of a node's directories the replica lies.
fn place(simulation: &Simulation, node: NodeId, index: i32) -> Vec<usize> {
    let folder = format!("{TOPIC}-{index}");
    let lies_in = |at: &usize| {
        simulation.node(node).disk.exists(&log_dir(*at).join(&folder)).unwrap_or(false)
    };
    (0..2).filter(lies_in).collect()
}

fn the_place(simulation: &Simulation, node: NodeId, index: i32) -> Result<usize> {
    let places = place(simulation, node, index);
    let [only] = places[..] else { bail!("partition {index} lies in {places:?}") };
    Ok(only)
}

fn produce(simulation: &mut Simulation, node: NodeId, index: i32, value: &str) -> Result<i16> {
    let mut builder = BatchBuilder::new(Offset::ZERO);
    builder.append(1_700_000_000_000, None, Some(value.as_bytes()), [])?;
    let request = produce_request(TOPIC, index, -1, builder.build()?, Duration::from_secs(2));
    let ResponseBody::Produce(response) = simulation.call(node, 12, request)? else {
        bail!("not an answer to Produce");
    };
    let answered = response.responses.first().and_then(|topic| topic.partition_responses.first());
    Ok(answered.context("no partition in the answer")?.error_code)
}

/// The offline replicas that a broker's Metadata shows.
fn offline_replicas(simulation: &mut Simulation, node: i32, index: i32) -> Result<Vec<i32>> {
    let topic = MetadataRequestTopic { name: Some(TOPIC.into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    let ResponseBody::Metadata(response) = simulation.call(NodeId(node), 12, request)? else {
        bail!("not an answer to Metadata");
    };
    let partitions = response.topics.first().context("no topic")?.partitions.iter();
    let mut found = partitions.filter(|partition| partition.partition_index == index);
    Ok(found.next().context("no partition")?.offline_replicas.clone())
}

fn delete_topic(simulation: &mut Simulation) -> Result<()> {
    let request = DeleteTopicsRequest {
        topic_names: vec![TOPIC.into()],
        timeout_ms: 5000,
        ..DeleteTopicsRequest::default()
    };
    let ResponseBody::DeleteTopics(response) = simulation.call(NodeId(1), 5, request)? else {
        bail!("not an answer to DeleteTopics");
    };
    for topic in response.responses {
        ensure!(topic.error_code == 0, "{topic:?}");
    }
    Ok(())
}

fn is_in_isr(simulation: &Simulation, index: i32, node: NodeId) -> bool {
    simulation.partition_image(TOPIC, index).is_some_and(|image| image.isr.contains(&node))
}

#[test]
fn one_failed_directory_costs_its_own_partitions_their_leader_and_no_others_c08() -> Result<()> {
    let mut simulation = cluster(&[&[1, 2, 3], &[1, 2, 3]])?;
    let (first, second) = (the_place(&simulation, ONE, 0)?, the_place(&simulation, ONE, 1)?);
    ensure!(first != second, "two partitions go into two directories");
    for index in 0..2 {
        ensure!(produce(&mut simulation, ONE, index, "before")? == 0);
    }
    simulation.node(ONE).disk.fail_folder(&log_dir(first));
    assert_eq!(produce(&mut simulation, ONE, 0, "lost")?, STORAGE_ERROR);
    let leader = simulation.wait_for_leader(TOPIC, 0, Some(ONE))?;
    simulation.wait_for_isr(TOPIC, 0, &[2, 3])?;
    assert_eq!(produce(&mut simulation, leader, 0, "after")?, 0);
    assert_eq!(simulation.leads(TOPIC, 1), Some(ONE));
    assert!(is_in_isr(&simulation, 1, ONE));
    assert_eq!(produce(&mut simulation, ONE, 1, "after")?, 0);
    for asked in [1, 2] {
        assert_eq!(offline_replicas(&mut simulation, asked, 0)?, [1]);
        assert!(offline_replicas(&mut simulation, asked, 1)?.is_empty());
    }
    simulation.run_for(Duration::from_secs(20))?;
    assert!(!is_in_isr(&simulation, 0, ONE));
    let fallback = log_dir(second).join(format!("{TOPIC}-0"));
    assert!(!simulation.node(ONE).disk.exists(&fallback)?, "never made anew (KAFKA-16234)");
    // Restarted while the directory still fails: the same picture.
    simulation.crash(ONE, CrashKind::KeepPageCache)?;
    simulation.start(ONE)?;
    simulation.wait_until_all_live()?;
    simulation.wait_for_isr(TOPIC, 1, &[1, 2, 3])?;
    simulation.run_for(Duration::from_secs(20))?;
    assert!(!is_in_isr(&simulation, 0, ONE));
    assert!(!simulation.node(ONE).disk.exists(&fallback)?);
    assert_eq!(offline_replicas(&mut simulation, 2, 0)?, [1]);
    // And with the disk in order again it takes its replica up where it was.
    simulation.crash(ONE, CrashKind::KeepPageCache)?;
    simulation.node(ONE).disk.heal();
    simulation.start(ONE)?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    assert_eq!(the_place(&simulation, ONE, 0)?, first);
    simulation.run_until("health", PATIENCE, Simulation::is_healthy)?;
    assert!(offline_replicas(&mut simulation, 2, 0)?.is_empty());
    simulation.check_everything()
}

#[test]
fn records_that_cannot_be_read_while_they_are_sent_take_their_directory_offline_f08() -> Result<()>
{
    let mut simulation = cluster(&[&[1, 2, 3], &[1, 2, 3]])?;
    for index in 0..2 {
        ensure!(produce(&mut simulation, ONE, index, "before")? == 0);
    }
    let first = the_place(&simulation, ONE, 0)?;
    simulation.node(ONE).disk.fail_folder(&log_dir(first));
    // Where the records lie is known without the disk, so the answer is already on its way when it fails.
    let fetched = simulation.call(ONE, 12, fetch_request(TOPIC, 0, 0));
    assert!(fetched.is_err(), "the connection breaks: {fetched:?}");
    assert!(simulation.node(ONE).running().is_some_and(|node| {
        node.core.replicas.has_dir_failed(&log_dir(first))
            && !node.core.replicas.has_dir_failed(&log_dir(1 - first))
    }));
    simulation.wait_for_leader(TOPIC, 0, Some(ONE))?;
    assert_eq!(simulation.leads(TOPIC, 1), Some(ONE));
    simulation.check_everything()
}

#[test]
fn the_only_replica_is_offline_with_its_directory_and_back_with_it_and_nothing_is_lost_c08()
-> Result<()> {
    let mut simulation = cluster(&[&[1], &[1]])?;
    let first = the_place(&simulation, ONE, 0)?;
    ensure!(produce(&mut simulation, ONE, 0, "kept")? == 0);
    simulation.node(ONE).disk.fail_folder(&log_dir(first));
    assert_eq!(produce(&mut simulation, ONE, 0, "lost")?, STORAGE_ERROR);
    simulation.run_until("no leader", PATIENCE, |simulation| {
        let image = simulation.partition_image(TOPIC, 0);
        image.is_some_and(|image| !image.has_leader() && image.eligible_leader_replicas == [ONE])
    })?;
    simulation.crash(ONE, CrashKind::KeepPageCache)?;
    simulation.start(ONE)?;
    simulation.wait_until_all_live()?;
    simulation.run_for(Duration::from_secs(10))?;
    assert_eq!(simulation.leads(TOPIC, 0), None);
    assert_eq!(simulation.leads(TOPIC, 1), Some(ONE));
    simulation.crash(ONE, CrashKind::KeepPageCache)?;
    simulation.node(ONE).disk.heal();
    simulation.start(ONE)?;
    simulation.wait_for_leader(TOPIC, 0, None)?;
    let values = simulation.values(ONE, TOPIC, 0);
    assert_eq!(values.iter().map(|(_, value)| value.as_ref()).collect::<Vec<_>>(), [b"kept"]);
    simulation.check_everything()
}

#[test]
fn a_replica_that_a_person_moved_to_the_other_directory_is_told_to_the_controller_kip_858()
-> Result<()> {
    let mut simulation = cluster(&[&[1, 2, 3]])?;
    ensure!(produce(&mut simulation, ONE, 0, "kept")? == 0);
    let from = the_place(&simulation, ONE, 0)?;
    let recorded = |simulation: &Simulation| {
        simulation.partition_image(TOPIC, 0).map(|image| image.directory_of(ONE))
    };
    let before = recorded(&simulation);
    simulation.stop_and_wait(ONE)?;
    let folder = format!("{TOPIC}-0");
    let (old, new) = (log_dir(from).join(&folder), log_dir(1 - from).join(&folder));
    simulation.node(ONE).disk.rename(&old, &new)?;
    simulation.start(ONE)?;
    simulation.run_until("the new directory is recorded", PATIENCE, |simulation| {
        recorded(simulation).is_some_and(|now| Some(now) != before)
    })?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    simulation.check_everything()
}

/// Each damaged file makes its own directory go offline, as in Kafka, and the node serves the other.
#[test]
fn a_damaged_file_costs_its_own_directory_and_not_the_node_c08() -> Result<()> {
    let damaged = [
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "t-0/partition.metadata",
        "t-0/leader-epoch-checkpoint",
    ];
    for name in damaged {
        let mut simulation = cluster(&[&[1, 2, 3], &[1, 2, 3]])?;
        for index in 0..2 {
            ensure!(produce(&mut simulation, ONE, index, "kept")? == 0);
        }
        simulation.run_for(Duration::from_secs(5))?;
        let place = the_place(&simulation, ONE, 0)?;
        simulation.stop_and_wait(ONE)?;
        let disk = simulation.node(ONE).disk.clone();
        let file = disk.open(&log_dir(place).join(name), OpenMode::Truncate)?;
        file.write_at(&[b"garbage\n"], 0)?;
        drop(file);
        simulation.start(ONE).with_context(|| name.to_owned())?;
        simulation.wait_until_all_live()?;
        simulation.wait_for_isr(TOPIC, 1, &[1, 2, 3]).with_context(|| name.to_owned())?;
        simulation.run_for(Duration::from_secs(5))?;
        assert!(!is_in_isr(&simulation, 0, ONE), "{name}");
        assert_eq!(offline_replicas(&mut simulation, 2, 0)?, [1], "{name}");
        simulation.check_everything()?;
    }
    Ok(())
}

/// A damaged marker of a clean stop is no damage: the marker alone counts.
#[test]
fn a_damaged_clean_shutdown_marker_costs_nothing() -> Result<()> {
    let mut simulation = cluster(&[&[1, 2, 3]])?;
    simulation.stop_and_wait(ONE)?;
    let disk = simulation.node(ONE).disk.clone();
    for at in 0..2 {
        let file = disk.open(&log_dir(at).join(".kafka_cleanshutdown"), OpenMode::Truncate)?;
        file.write_at(&[&[0xff, 0xfe, b'x']], 0)?;
    }
    simulation.start(ONE)?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    simulation.check_everything()
}

/// While a directory is away its topic is deleted and made again in the other one; when it is back,
/// the old topic's log is not taken for the new one's (I01).
#[test]
fn a_topic_made_again_while_its_old_directory_was_away_keeps_the_new_log_i01() -> Result<()> {
    let mut simulation = cluster(&[&[1], &[1]])?;
    let first = the_place(&simulation, ONE, 0)?;
    ensure!(produce(&mut simulation, ONE, 0, "old")? == 0);
    simulation.node(ONE).disk.fail_folder(&log_dir(first));
    assert_eq!(produce(&mut simulation, ONE, 0, "lost")?, STORAGE_ERROR);
    delete_topic(&mut simulation)?;
    simulation.create_topic(TOPIC, &[&[1]], &[])?;
    ensure!(produce(&mut simulation, ONE, 0, "new")? == 0);
    simulation.crash(ONE, CrashKind::KeepPageCache)?;
    simulation.node(ONE).disk.heal();
    simulation.start(ONE)?;
    simulation.wait_for_leader(TOPIC, 0, None)?;
    simulation.run_for(Duration::from_secs(70))?;
    assert_eq!(place(&simulation, ONE, 0), [1 - first], "the old topic's log is gone");
    let values = simulation.values(ONE, TOPIC, 0);
    assert_eq!(values.iter().map(|(_, value)| value.as_ref()).collect::<Vec<_>>(), [b"new"]);
    simulation.check_everything()
}
