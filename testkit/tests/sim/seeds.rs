//! A thousand random runs: faults of every kind, then health with nothing lost. `HIGHWATER_SEEDS`
//! (`from..to`) runs others.

use std::ops::Range;

use testkit::sim::{Faults, RunPlan, Simulation};

/// The seeds to run: those asked for, or these.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let asked = std::env::var("HIGHWATER_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.trim().parse().ok()?..to.trim().parse().ok()?)
    });
    range.unwrap_or(usual)
}

fn run_all(usual: Range<u64>, plan: &RunPlan) {
    let mut failed = Vec::new();
    let (mut steps, mut records, mut cleaned, mut runs) = (0, 0, 0, 0);
    for seed in seeds(usual) {
        runs += 1;
        match Simulation::random(seed, plan) {
            Ok(report) => {
                steps += report.steps;
                records += report.records;
                cleaned += report.cleaned;
            }
            Err(error) => failed.push(format!("{error:?}")),
        }
    }
    println!("{runs} runs, {steps} steps, {records} records, {cleaned} cleaned segments");
    assert!(failed.is_empty(), "{} of {runs} runs failed; the first:\n{}", failed.len(), failed[0]);
}

#[test]
fn a_thousand_random_runs_break_no_invariant_and_end_in_health() {
    run_all(0..1000, &RunPlan::default());
}

/// Seed 3464: a leader learns from a fetch that a record is committed (I2), answers its producer, and
/// cannot read its only disk for the fetch's own answer: all in one step, after which it is gone.
#[test]
fn what_a_leader_commits_in_the_step_that_ends_it_counts_as_committed() {
    Simulation::random(3464, &RunPlan::default()).expect("a run that holds");
}

/// Seed 4881: a broker meets its failed disk late and ends, which takes it out of the ISR and of the eligible
/// replicas (C06). The power cut at the last member is then the second loss, which nothing survives.
#[test]
fn a_disk_that_failed_and_was_not_met_yet_counts_as_a_process_that_ends() {
    Simulation::random(4881, &RunPlan::default()).expect("a run that holds");
}

/// What is never done proves nothing.
#[test]
fn random_runs_do_everything_that_they_may_do() {
    let plan = RunPlan::default();
    let mut done = String::new();
    for seed in 0..60 {
        let report = Simulation::random(seed, &plan).expect("a run that holds");
        done += &report.faults.join("\n");
    }
    for what in [
        "kill",
        "power cut",
        "stop",
        "freeze",
        "isolate",
        "cut",
        "lose",
        "hold",
        "slow",
        "jumps",
        "drifts",
        "per change",
        "is full",
        "fails",
        "is mended",
        "a bit flips",
        "is replaced",
        "reassign",
        "elect",
    ] {
        assert!(done.contains(what), "no run did: {what}");
    }
}

#[test]
fn random_runs_with_unclean_elections_still_end_in_one_log() {
    let plan = RunPlan { unclean: true, ..RunPlan::default() };
    run_all(0..100, &plan);
}

#[test]
fn random_runs_over_several_partitions_break_no_invariant() {
    let plan = RunPlan {
        partitions: 3,
        faults: Faults { lossy_crashes: false, ..Faults::ALL },
        ..RunPlan::default()
    };
    run_all(0..60, &plan);
}

#[test]
fn random_runs_with_a_consumer_group_take_no_committed_offset_back() {
    let plan = RunPlan { partitions: 3, members: 3, ..RunPlan::default() };
    run_all(0..100, &plan);
}

#[test]
fn random_runs_with_members_of_both_protocols_that_come_and_go() {
    let plan = RunPlan { partitions: 3, members: 1, subscribers: 2, ..RunPlan::default() };
    run_all(0..25, &plan);
}

#[test]
fn random_runs_with_members_of_the_new_protocol_and_eager_cleaners() {
    let plan = RunPlan { subscribers: 3, cleaning: true, ..RunPlan::default() };
    run_all(0..15, &plan);
}

#[test]
fn random_runs_with_eager_cleaners_lose_no_last_record_of_a_key() {
    let plan = RunPlan { cleaning: true, members: 2, ..RunPlan::default() };
    run_all(0..40, &plan);
}
