//! Consumer groups in whole clusters: the coordinator's node dies in the middle of rebalances, commits and
//! loads, and members find the next one with nothing taken back (G1 to G3).

use std::time::Duration;

use anyhow::{Context, Result};
use protocol::NodeId;
use testkit::sim::disk::CrashKind;
use testkit::sim::{Language, MemberSettings, SimConfig, Simulation};

pub const GROUP: &str = "readers";
const TOPIC: &str = "t";
const GROUP_TOPIC: &str = "__consumer_offsets";
pub const PARTITIONS: i32 = 4;
const PATIENCE: Duration = Duration::from_secs(60);

fn small(seed: u64) -> Result<Simulation> {
    cluster(SimConfig::new(seed).set("min.insync.replicas", 2))
}

/// A live cluster with the topic that the group divides.
pub fn cluster(config: SimConfig) -> Result<Simulation> {
    let mut simulation = Simulation::new(config)?;
    simulation.wait_until_all_live()?;
    let replicas: [&[i32]; PARTITIONS as usize] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 3, 2]];
    simulation.create_topic(TOPIC, &replicas, &[])?;
    Ok(simulation)
}

pub fn add_members(simulation: &mut Simulation, count: usize) -> Vec<u32> {
    let settings = MemberSettings {
        group: GROUP.into(),
        topic: TOPIC.into(),
        partitions: PARTITIONS,
        session_timeout: Duration::from_millis(1500),
        rebalance_timeout: Duration::from_millis(2000),
        interval: Duration::from_millis(100),
        language: Language::Opaque,
    };
    (0..count).map(|_| simulation.add_member(settings.clone())).collect()
}

pub fn wait_until_divided(simulation: &mut Simulation) -> Result<()> {
    simulation.run_until("all partitions divided", PATIENCE, Simulation::groups_are_settled)
}

pub fn commits(simulation: &Simulation, members: &[u32]) -> u64 {
    members.iter().filter_map(|member| simulation.member(*member)).map(|m| m.commits()).sum()
}

pub fn wait_for_commits(simulation: &mut Simulation, members: &[u32], more: u64) -> Result<()> {
    let wanted = commits(simulation, members) + more;
    let members = members.to_vec();
    simulation.run_until("more commits", PATIENCE, move |simulation| {
        commits(simulation, &members) >= wanted
    })
}

fn wait_until_replicated(simulation: &mut Simulation) -> Result<()> {
    simulation.run_until("all replicas back", PATIENCE, Simulation::is_replicated_everywhere)
}

/// The node that leads the group's partition.
pub fn coordinator(simulation: &Simulation) -> Result<NodeId> {
    (0..50)
        .filter_map(|index| {
            let leader = simulation.leads(GROUP_TOPIC, index)?;
            let core = &simulation.node(leader).running()?.core;
            (core.groups.partition_of(GROUP) == Some(index)).then_some(leader)
        })
        .next()
        .context("nobody coordinates the group")
}

/// The records that are left in the coordinator's partition of the topic.
pub fn records_left(simulation: &Simulation) -> Result<usize> {
    let leader = coordinator(simulation)?;
    let core = &simulation.node(leader).running().context("it runs")?.core;
    let index = core.groups.partition_of(GROUP).context("a partition")?;
    Ok(simulation.values(leader, GROUP_TOPIC, index).len())
}

#[test]
fn members_divide_the_partitions_and_commit() -> Result<()> {
    let mut simulation = small(1)?;
    let members = add_members(&mut simulation, 3);
    wait_until_divided(&mut simulation)?;
    wait_for_commits(&mut simulation, &members, 40)?;
    simulation.check_everything()
}

#[test]
fn the_coordinator_dies_among_commits_and_so_does_the_next_one() -> Result<()> {
    for seed in 0..20 {
        let mut simulation = small(seed)?;
        let members = add_members(&mut simulation, 3);
        wait_for_commits(&mut simulation, &members, 20)?;
        for _ in 0..2 {
            let victim = coordinator(&simulation)?;
            simulation.crash(victim, CrashKind::KeepPageCache)?;
            wait_for_commits(&mut simulation, &members, 20)
                .with_context(|| format!("seed {seed}"))?;
            simulation.start(victim)?;
            wait_until_replicated(&mut simulation)?;
        }
        wait_until_divided(&mut simulation)?;
        simulation.check_everything().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn the_next_coordinator_dies_while_it_loads() -> Result<()> {
    for seed in 0..20 {
        let mut simulation = small(seed)?;
        let members = add_members(&mut simulation, 3);
        wait_for_commits(&mut simulation, &members, 60)?;
        let first = coordinator(&simulation)?;
        simulation.crash(first, CrashKind::KeepPageCache)?;
        simulation.run_until("the next leader", PATIENCE, move |simulation| {
            coordinator(simulation).is_ok_and(|next| next != first)
        })?;
        let second = coordinator(&simulation)?;
        simulation.run_for(Duration::from_micros(300 * seed))?;
        simulation.crash(second, CrashKind::KeepPageCache)?;
        simulation.start(first)?;
        simulation.start(second)?;
        wait_for_commits(&mut simulation, &members, 20).with_context(|| format!("seed {seed}"))?;
        wait_until_replicated(&mut simulation)?;
        wait_until_divided(&mut simulation)?;
        simulation.check_everything().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn the_coordinator_dies_in_the_middle_of_a_rebalance() -> Result<()> {
    for seed in 0..20 {
        let mut simulation = small(seed)?;
        let mut members = add_members(&mut simulation, 2);
        wait_until_divided(&mut simulation)?;
        members.extend(add_members(&mut simulation, 1));
        simulation.run_for(Duration::from_millis(50 + 37 * seed))?;
        let victim = coordinator(&simulation)?;
        simulation.crash(victim, CrashKind::KeepPageCache)?;
        wait_until_divided(&mut simulation).with_context(|| format!("seed {seed}"))?;
        wait_for_commits(&mut simulation, &members, 20)?;
        simulation.start(victim)?;
        simulation.run_until(
            "all replicas back",
            PATIENCE,
            Simulation::is_replicated_everywhere,
        )?;
        simulation.check_everything().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn a_coordinator_that_is_cut_off_from_its_followers_acknowledges_nothing_that_is_lost() -> Result<()>
{
    for seed in 0..20 {
        let mut simulation = small(seed)?;
        let members = add_members(&mut simulation, 3);
        wait_for_commits(&mut simulation, &members, 20)?;
        let victim = coordinator(&simulation)?;
        simulation.isolate(victim, testkit::sim::Plane::All);
        wait_for_commits(&mut simulation, &members, 20).with_context(|| format!("seed {seed}"))?;
        simulation.heal_network();
        simulation.run_until(
            "all replicas back",
            PATIENCE,
            Simulation::is_replicated_everywhere,
        )?;
        wait_until_divided(&mut simulation)?;
        wait_for_commits(&mut simulation, &members, 20)?;
        simulation.check_everything().with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}
