//! Random runs with one bug on: how many seeds it takes until one of them fails. `HIGHWATER_SEEDS`
//! (`from..to`) searches others than the usual ones, `HIGHWATER_BUG` for one bug only.

use std::ops::Range;
use std::time::Duration;

use replication::bugs::Bug;
use testkit::sim::{Faults, RunFailure, RunPlan, Theme, play};

/// How far the search goes.
const USUAL: Range<u64> = 0..1000;

fn seeds() -> Range<u64> {
    let asked = std::env::var("HIGHWATER_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.trim().parse().ok()?..to.trim().parse().ok()?)
    });
    range.unwrap_or(USUAL)
}

/// A run that gives the bug an opportunity: the usual one, except where the bug needs what a topic's
/// configuration decides.
fn plan(bug: Bug) -> RunPlan {
    let usual = RunPlan { bugs: vec![bug], ..RunPlan::default() };
    match bug {
        // Logs part in more than one step only where elections are unclean.
        Bug::OneStepEpochLookup | Bug::EpochsOutliveTruncation => {
            RunPlan { unclean: true, min_isr: 1, ..usual }
        }
        Bug::JoinsBelowEpochStart => RunPlan {
            min_isr: 2,
            interval: Duration::from_secs(1),
            ..only(Theme::LateJoiner, usual)
        },
        Bug::WatermarkFromCommittedIsr => only(Theme::DeafLeader, usual),
        Bug::StaleBrokerEpochJoins => {
            let interval = Duration::from_secs(3);
            RunPlan { interval, ..only(Theme::LateFetch, usual) }
        }
        Bug::UncleanReplicaStaysEligible => RunPlan { min_isr: 2, ..usual },
        Bug::LatestOffsetGoesBack => RunPlan { min_isr: 1, ..usual },
        _ => usual,
    }
}

/// Runs of one theme, with few other faults.
fn only(theme: Theme, usual: RunPlan) -> RunPlan {
    let faults = Faults { lossy_crashes: true, slow: true, elections: true, ..Faults::NONE };
    RunPlan { themes: vec![theme], faults, ..usual }
}

/// The first seed whose run fails, and how.
fn find(bug: Bug, seeds: Range<u64>) -> Option<(u64, RunFailure)> {
    let plan = plan(bug);
    seeds
        .into_iter()
        .find_map(|seed| play(&plan.script(seed), &plan).err().map(|failure| (seed, failure)))
}

#[test]
fn random_runs_find_every_bug_within_a_thousand_seeds() {
    let range = seeds();
    let only = std::env::var("HIGHWATER_BUG").ok();
    let mut missed = Vec::new();
    println!("| bug | origin | seeds needed | found by |");
    println!("|---|---|---|---|");
    for bug in Bug::ALL {
        let about = bug.description();
        if only.as_deref().is_some_and(|only| only != about.name) {
            continue;
        }
        let (needed, by) = match find(bug, range.clone()) {
            Some((seed, failure)) => ((seed - range.start + 1).to_string(), failure.by),
            None => {
                missed.push(about.name);
                (format!("more than {}", range.end - range.start), String::new())
            }
        };
        println!("| {} | {} | {needed} | {by} |", about.name, about.origin);
    }
    assert!(missed.is_empty(), "not found by random runs: {missed:?}");
}
