//! Members of the new protocol (KIP-848) in whole clusters: the coordinator's node dies in the middle of
//! reconciliations, commits and loads; static members go and come back; groups change their protocol and
//! back with a failover in the middle. Nobody reads what another reads, epochs and offsets do not go back
//! (G2 to G4).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::NodeId;
use testkit::sim::disk::CrashKind;
use testkit::sim::{Language, MemberSettings, Plane, SimConfig, Simulation, SubscriberSettings};

use crate::groups::{GROUP, PARTITIONS, cluster, coordinator, wait_until_divided};
use crate::support::{TOPIC, until};

fn small(seed: u64) -> Result<Simulation> {
    cluster(SimConfig::new(seed).set("min.insync.replicas", 2))
}

fn settings(instance_id: Option<&str>) -> SubscriberSettings {
    SubscriberSettings {
        group: GROUP.into(),
        topic: TOPIC.into(),
        partitions: PARTITIONS,
        instance_id: instance_id.map(str::to_owned),
        session_timeout: Duration::from_millis(1500),
        rebalance_timeout: Duration::from_millis(2000),
        interval: Duration::from_millis(100),
        revocation: Duration::from_millis(250),
    }
}

fn classic() -> MemberSettings {
    MemberSettings {
        group: GROUP.into(),
        topic: TOPIC.into(),
        partitions: PARTITIONS,
        session_timeout: Duration::from_millis(1500),
        rebalance_timeout: Duration::from_millis(2000),
        interval: Duration::from_millis(100),
        language: Language::Consumer,
    }
}

fn add(simulation: &mut Simulation, count: usize) -> Vec<u32> {
    (0..count).map(|_| simulation.add_subscriber(settings(None))).collect()
}

fn commits(simulation: &Simulation) -> u64 {
    let of = |id: u32| {
        let subscriber = simulation.subscriber(id).map(|member| member.commits());
        subscriber.or(simulation.member(id).map(|member| member.commits())).unwrap_or(0)
    };
    (1..100).map(of).sum()
}

fn wait_for_commits(simulation: &mut Simulation, more: u64) -> Result<()> {
    let wanted = commits(simulation) + more;
    until(simulation, "more commits", move |simulation| commits(simulation) >= wanted)
}

fn wait_until_replicated(simulation: &mut Simulation) -> Result<()> {
    until(simulation, "all replicas back", Simulation::is_replicated_everywhere)
}

fn owned(simulation: &Simulation, id: u32) -> Result<Vec<i32>> {
    let member = simulation.subscriber(id).context("a subscriber")?;
    Ok(member.assignment().context("it is settled")?.1)
}

/// Ends the coordinator's process; gives its node.
fn kill_coordinator(simulation: &mut Simulation) -> Result<NodeId> {
    let victim = coordinator(simulation)?;
    simulation.crash(victim, CrashKind::KeepPageCache)?;
    Ok(victim)
}

fn finish(simulation: &mut Simulation, killed: Option<NodeId>) -> Result<()> {
    wait_until_divided(simulation)?;
    wait_for_commits(simulation, 20)?;
    if let Some(killed) = killed {
        simulation.start(killed)?;
        wait_until_replicated(simulation)?;
        wait_until_divided(simulation)?;
    }
    simulation.check_everything()
}

#[test]
fn members_divide_the_partitions_and_a_new_one_gets_its_share() -> Result<()> {
    let mut simulation = small(1)?;
    let mut members = add(&mut simulation, 1);
    wait_until_divided(&mut simulation)?;
    ensure!(owned(&simulation, members[0])?.len() == 4);
    members.extend(add(&mut simulation, 1));
    simulation.run_for(Duration::from_millis(300))?;
    wait_until_divided(&mut simulation)?;
    for member in members {
        ensure!(owned(&simulation, member)?.len() == 2);
    }
    finish(&mut simulation, None)
}

#[test]
fn the_coordinator_dies_in_the_middle_of_a_reconciliation() -> Result<()> {
    for seed in 0..20 {
        let mut simulation = small(seed)?;
        let members = add(&mut simulation, 2);
        wait_until_divided(&mut simulation)?;
        add(&mut simulation, 2);
        until(&mut simulation, "somebody has to give up", |simulation| {
            members.iter().any(|id| simulation.subscriber(*id).is_some_and(|m| m.is_revoking()))
        })?;
        simulation.run_for(Duration::from_millis(25 * seed))?;
        let victim = kill_coordinator(&mut simulation)?;
        finish(&mut simulation, Some(victim)).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn the_coordinator_dies_among_commits_and_so_does_the_next_one_while_it_loads() -> Result<()> {
    for seed in 0..15 {
        let mut simulation = small(seed)?;
        add(&mut simulation, 3);
        wait_for_commits(&mut simulation, 30)?;
        let first = kill_coordinator(&mut simulation)?;
        until(&mut simulation, "the next leader", move |simulation| {
            coordinator(simulation).is_ok_and(|next| next != first)
        })?;
        simulation.run_for(Duration::from_micros(300 * seed))?;
        let second = kill_coordinator(&mut simulation)?;
        simulation.start(first)?;
        finish(&mut simulation, Some(second)).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn a_coordinator_that_is_cut_off_gives_nothing_away() -> Result<()> {
    for seed in 0..10 {
        let mut simulation = small(seed)?;
        add(&mut simulation, 2);
        wait_for_commits(&mut simulation, 20)?;
        let victim = coordinator(&simulation)?;
        simulation.isolate(victim, Plane::All);
        add(&mut simulation, 1);
        wait_for_commits(&mut simulation, 20).with_context(|| format!("seed {seed}"))?;
        simulation.heal_network();
        wait_until_replicated(&mut simulation)?;
        finish(&mut simulation, None).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn one_that_hangs_loses_its_partitions_to_the_others() -> Result<()> {
    for seed in 0..5 {
        let mut simulation = small(seed)?;
        let members = add(&mut simulation, 3);
        wait_until_divided(&mut simulation)?;
        simulation.hang(members[1]);
        let killed = (seed % 2 == 1).then(|| kill_coordinator(&mut simulation)).transpose()?;
        finish(&mut simulation, killed).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn a_static_member_that_comes_back_gets_what_it_had_also_from_the_next_coordinator() -> Result<()> {
    for seed in 0..8 {
        let mut simulation = small(seed)?;
        let first = simulation.add_subscriber(settings(Some("one")));
        let other = simulation.add_subscriber(settings(Some("two")));
        wait_until_divided(&mut simulation)?;
        let had = owned(&simulation, first)?;
        let others = owned(&simulation, other)?;
        simulation.leave_group(first, true);
        until(&mut simulation, "it left", |simulation| simulation.has_left_group(first))?;
        let killed = (seed % 2 == 1).then(|| kill_coordinator(&mut simulation)).transpose()?;
        let again = simulation.add_subscriber(settings(Some("one")));
        wait_until_divided(&mut simulation).with_context(|| format!("seed {seed}"))?;
        ensure!(owned(&simulation, again)? == had, "seed {seed}: it got something else");
        ensure!(owned(&simulation, other)? == others, "seed {seed}: the other one was disturbed");
        finish(&mut simulation, killed).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

/// A second process with the same instance id waits until the first one is gone.
#[test]
fn an_instance_id_that_is_taken_is_not_given_to_another_before_its_session_ends() -> Result<()> {
    let mut simulation = small(3)?;
    let first = simulation.add_subscriber(settings(Some("one")));
    wait_until_divided(&mut simulation)?;
    let second = simulation.add_subscriber(settings(Some("one")));
    simulation.run_for(Duration::from_secs(4))?;
    ensure!(owned(&simulation, first)?.len() == 4);
    ensure!(owned(&simulation, second).is_err(), "two of one name");
    simulation.hang(first);
    finish(&mut simulation, None)?;
    ensure!(owned(&simulation, second)?.len() == 4);
    Ok(())
}

/// Replaces each of the members by one of the other protocol, one after the other; the coordinator dies
/// some time after the replacement number `dies_in`.
fn roll(
    simulation: &mut Simulation,
    members: &[u32],
    to_new: bool,
    (dies_in, after): (usize, Duration),
) -> Result<(Vec<u32>, NodeId)> {
    let mut replaced = Vec::new();
    let mut killed = None;
    for (at, member) in members.iter().enumerate() {
        simulation.leave_group(*member, false);
        let new = match to_new {
            true => simulation.add_subscriber(settings(None)),
            false => simulation.add_member(classic()),
        };
        replaced.push(new);
        if at == dies_in {
            simulation.run_for(after)?;
            killed = Some(kill_coordinator(simulation)?);
        }
        until(simulation, "it left", |simulation| simulation.has_left_group(*member))?;
        wait_until_divided(simulation).with_context(|| format!("after replacement {at}"))?;
    }
    Ok((replaced, killed.context("nobody died")?))
}

fn migrate_and_back(seed: u64, dies_in: usize) -> Result<()> {
    let mut simulation = small(seed)?;
    let classics: Vec<u32> = (0..3).map(|_| simulation.add_member(classic())).collect();
    wait_until_divided(&mut simulation)?;
    wait_for_commits(&mut simulation, 20)?;
    let dies = (dies_in, Duration::from_millis(17 * (seed % 12)));
    let (new, killed) = roll(&mut simulation, &classics, true, dies)?;
    finish(&mut simulation, Some(killed))?;
    let (_, killed) = roll(&mut simulation, &new, false, dies)?;
    finish(&mut simulation, Some(killed))
}

#[test]
fn a_group_changes_its_protocol_and_back_with_a_failover_in_the_middle() -> Result<()> {
    for seed in 0..24 {
        let dies_in = seed as usize % 3;
        migrate_and_back(seed, dies_in)
            .with_context(|| format!("seed {seed}, it dies in replacement {dies_in}"))?;
    }
    Ok(())
}

/// What the last member of the new protocol read has a reader again, although the rebalance that begins
/// when it leaves is lost with its coordinator.
#[test]
fn a_downgrade_that_is_cut_by_a_failover_leaves_no_partition_without_a_reader() -> Result<()> {
    for seed in 0..6 {
        let mut simulation = small(seed)?;
        let last = add(&mut simulation, 1)[0];
        for _ in 0..2 {
            simulation.add_member(classic());
        }
        wait_until_divided(&mut simulation)?;
        wait_for_commits(&mut simulation, 20)?;
        simulation.leave_group(last, false);
        until(&mut simulation, "it left", |simulation| simulation.has_left_group(last))?;
        simulation.run_for(Duration::from_millis(10 * seed))?;
        let victim = kill_coordinator(&mut simulation)?;
        finish(&mut simulation, Some(victim)).with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}
