//! Log cleaners in whole clusters: a node dies at every point of a swap, with and without what it had not
//! synced; a follower truncates beside a cleaning; a coordinator loads what was cleaned. The invariants
//! watch that no last record of a key is lost (K1 to K4).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::{NodeId, Offset};
use testkit::sim::disk::CrashKind;
use testkit::sim::{ConsumerSettings, Plane, ProducerSettings, SimConfig, Simulation};

use crate::groups;
use crate::support::{TOPIC, cuts, healthy, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Segments of a quarter of a second, cleaned as soon as there is anything to gain.
fn eager(seed: u64) -> SimConfig {
    SimConfig::new(seed)
        .set("min.insync.replicas", 2)
        .set("log.roll.ms", 250)
        .set("log.cleaner.backoff.ms", 50)
        .set("log.cleaner.min.cleanable.ratio", 0.01)
        .set("log.cleaner.delete.retention.ms", 500)
        .set("log.cleaner.io.buffer.size", 500)
}

fn cluster(config: SimConfig) -> Result<Simulation> {
    let mut simulation = Simulation::new(config)?;
    simulation.wait_until_all_live()?;
    simulation.create_topic(TOPIC, &[&[1, 2, 3]], &[("cleanup.policy", "compact")])?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    Ok(simulation)
}

/// A producer over few keys, and a consumer that reads along.
fn add_clients(simulation: &mut Simulation, batches: u64) -> Result<[u32; 2]> {
    let partition = simulation.partition_id(TOPIC, 0)?;
    let settings = ProducerSettings {
        records: 2,
        keys: 5,
        tombstone_one_in: 5,
        batches,
        ..ProducerSettings::default()
    };
    let producer = simulation.add_producer(partition.clone(), settings);
    Ok([producer, simulation.add_consumer(partition, ConsumerSettings::default())])
}

/// The last value of each key in a replica.
fn last_values(simulation: &Simulation, node: i32) -> BTreeMap<Bytes, (Offset, Option<Bytes>)> {
    let batches = simulation.batches(NodeId(node), TOPIC, 0);
    let records = batches.into_iter().flat_map(|batch| batch.records);
    let keyed = records.filter_map(|record| Some((record.key?, (record.offset, record.value))));
    keyed.filter(|(_, (_, value))| value.is_some()).collect()
}

fn wait_for_cleanings(simulation: &mut Simulation, more: u64) -> Result<()> {
    let wanted = simulation.cleaned() + more;
    until(simulation, "more cleanings", move |simulation| simulation.cleaned() >= wanted)
}

fn finish(simulation: &mut Simulation, [producer, consumer]: [u32; 2]) -> Result<()> {
    until(simulation, "all written", |simulation| {
        simulation.producer(producer).is_some_and(|producer| producer.is_done())
    })?;
    healthy(simulation)?;
    let end = simulation.replica(NodeId(1), TOPIC, 0).context("a replica")?.log_end;
    until(simulation, "all read", |simulation| {
        simulation.consumer(consumer).is_some_and(|consumer| consumer.position() == end)
    })?;
    let values = last_values(simulation, 1);
    ensure!(!values.is_empty(), "nothing is left");
    for node in [2, 3] {
        ensure!(last_values(simulation, node) == values, "node {node} has other last values");
    }
    simulation.check_everything()
}

#[test]
fn every_replica_cleans_for_itself_and_all_keep_the_last_value_of_each_key() -> Result<()> {
    let mut simulation = cluster(eager(1))?;
    let clients = add_clients(&mut simulation, 100)?;
    wait_for_cleanings(&mut simulation, 20)?;
    finish(&mut simulation, clients)?;
    let left: usize = simulation.values(NodeId(1), TOPIC, 0).len();
    ensure!(left < 60, "{left} records of 200 are left");
    let read = simulation.consumer(clients[1]).context("the consumer")?.records().len();
    ensure!(read > left, "the consumer read along while there was more");
    Ok(())
}

#[test]
fn a_replica_that_comes_late_copies_a_cleaned_log() -> Result<()> {
    let mut simulation = cluster(eager(2))?;
    simulation.crash(NodeId(3), CrashKind::KeepPageCache)?;
    let clients = add_clients(&mut simulation, 100)?;
    wait_for_cleanings(&mut simulation, 20)?;
    simulation.start(NodeId(3))?;
    finish(&mut simulation, clients)
}

/// The node dies before the cleaner's `changes`-th change of its disk from some moment on.
fn dies_in_a_swap(node: i32, kind: CrashKind, changes: u64) -> Result<()> {
    let mut simulation = cluster(eager(changes))?;
    let clients = add_clients(&mut simulation, 60)?;
    wait_for_cleanings(&mut simulation, 3)?;
    let victim = NodeId(node);
    simulation.crash_in_cleaning(victim, kind, changes);
    until(&mut simulation, "the node died", |simulation| {
        simulation.node(victim).running().is_none()
    })?;
    if node == 1 {
        simulation.wait_for_leader(TOPIC, 0, Some(victim))?;
    }
    simulation.start(victim)?;
    until(&mut simulation, "all replicas back", Simulation::is_replicated_everywhere)?;
    wait_for_cleanings(&mut simulation, 3)?;
    finish(&mut simulation, clients)
}

#[test]
fn a_leader_that_is_killed_at_any_point_of_a_cleaning_has_whole_logs_after_it() -> Result<()> {
    for changes in 0..36 {
        dies_in_a_swap(1, CrashKind::KeepPageCache, changes)
            .with_context(|| format!("after {changes} changes"))?;
    }
    Ok(())
}

#[test]
fn a_leader_whose_machine_dies_at_any_point_of_a_cleaning_loses_no_last_record() -> Result<()> {
    for changes in 0..36 {
        dies_in_a_swap(1, CrashKind::LoseUnsynced, changes)
            .with_context(|| format!("after {changes} changes"))?;
    }
    Ok(())
}

#[test]
fn a_follower_whose_machine_dies_in_a_cleaning_loses_no_last_record() -> Result<()> {
    for changes in (0..36).step_by(3) {
        dies_in_a_swap(2, CrashKind::LoseUnsynced, changes)
            .with_context(|| format!("after {changes} changes"))?;
    }
    Ok(())
}

/// The leader is cut off with writes that nobody else has, while its cleaner works slowly on what was
/// committed; when it is back it truncates beside that.
#[test]
fn a_follower_truncates_beside_a_cleaning() -> Result<()> {
    let mut beside = 0;
    for seed in 0..8 {
        let config = eager(seed).set("log.cleaner.io.max.bytes.per.second", 1500);
        let mut simulation = cluster(config)?;
        let clients = add_clients(&mut simulation, 80)?;
        let partition = simulation.partition_id(TOPIC, 0)?;
        wait_for_cleanings(&mut simulation, 2)?;
        simulation.isolate(NodeId(1), Plane::All);
        let lonely = ProducerSettings {
            acks: 1,
            idempotent: false,
            keys: 5,
            batches: 20,
            ..ProducerSettings::default()
        };
        simulation.add_producer(partition, lonely);
        simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
        simulation.run_for(Duration::from_millis(200 + 100 * seed))?;
        let from = simulation.event_count();
        let before = simulation.cleaned();
        simulation.heal_network();
        until(&mut simulation, "all replicas back", Simulation::is_replicated_everywhere)?;
        let cut = cuts(&simulation, from, 1).iter().any(|(from, to)| from > to);
        beside += u32::from(cut);
        wait_for_cleanings(&mut simulation, 2)?;
        ensure!(simulation.cleaned() > before, "it cleans on");
        finish(&mut simulation, clients).with_context(|| format!("seed {seed}"))?;
    }
    ensure!(beside > 2, "only {beside} of 8 runs had a truncation");
    Ok(())
}

#[test]
fn a_coordinator_loads_a_compacted_partition_and_takes_no_offset_back() -> Result<()> {
    for seed in 0..10 {
        let mut simulation = groups::cluster(eager(seed))?;
        let members = groups::add_members(&mut simulation, 2);
        groups::wait_for_commits(&mut simulation, &members, 80)?;
        wait_for_cleanings(&mut simulation, 6)?;
        for kind in [CrashKind::KeepPageCache, CrashKind::LoseUnsynced] {
            let victim = groups::coordinator(&simulation)?;
            simulation.crash_in_cleaning(victim, kind, 7 * seed);
            simulation.run_until("the coordinator died", PATIENCE, |simulation| {
                simulation.node(victim).running().is_none()
            })?;
            groups::wait_for_commits(&mut simulation, &members, 30)
                .with_context(|| format!("seed {seed}"))?;
            simulation.start(victim)?;
            until(&mut simulation, "all replicas back", Simulation::is_replicated_everywhere)?;
        }
        groups::wait_until_divided(&mut simulation)?;
        let wanted: u64 = groups::commits(&simulation, &members);
        let left = groups::records_left(&simulation)?;
        ensure!((left as u64) < wanted, "{left} records are left of {wanted} commits and more");
        simulation.check_everything().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}
