//! Random runs with one bug on: how many seeds it takes until one of them fails. `HIGHWATER_SEEDS`
//! (`from..to`) searches others than the usual ones.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use replication::bugs::Bug;
use testkit::invariants::Violation;
use testkit::sim::{Faults, RunPlan, Simulation};

/// How far the usual search goes.
const USUAL: Range<u64> = 0..300;

/// Searched only when seeds are asked for. The first took 231 seeds; 400 to 1000 did not show the next
/// three. The next two were not searched so far: random runs begin no epoch under the same leader, and in
/// them a next fetch always comes. Nor was the last.
const HARD: &[Bug] = &[
    Bug::OneStepEpochLookup,
    Bug::WatermarkFromCommittedIsr,
    Bug::StaleBrokerEpochJoins,
    Bug::JoinsBelowEpochStart,
    Bug::SameLeaderNotFollowedAnew,
    Bug::WatermarkWaitsForNextFetch,
    Bug::UncleanReplicaStaysEligible,
];

fn seeds() -> Option<Range<u64>> {
    let text = std::env::var("HIGHWATER_SEEDS").ok()?;
    let (from, to) = text.split_once("..")?;
    Some(from.trim().parse().ok()?..to.trim().parse().ok()?)
}

/// A run that gives the bug an opportunity.
fn plan(bug: Bug) -> RunPlan {
    let usual = RunPlan { bugs: vec![bug], ..RunPlan::default() };
    let quick = RunPlan { pause: Duration::from_millis(250), ..usual.clone() };
    match bug {
        // Logs part in more than one step only where elections are unclean.
        Bug::OneStepEpochLookup | Bug::EpochsOutliveTruncation => {
            RunPlan { unclean: true, min_isr: 1, ..quick }
        }
        Bug::JoinsBelowEpochStart | Bug::UncleanReplicaStaysEligible => {
            RunPlan { min_isr: 2, ..quick }
        }
        Bug::LatestOffsetGoesBack => RunPlan { min_isr: 1, ..quick },
        Bug::StaleBrokerEpochJoins => {
            let faults = Faults { stops: false, clock_jumps: false, freezes: false, ..Faults::ALL };
            RunPlan { faults, ..quick }
        }
        // What is held back must be held for longer than the lag limit.
        Bug::WatermarkFromCommittedIsr => {
            let faults =
                Faults { crashes: false, lossy_crashes: false, stops: false, ..Faults::ALL };
            RunPlan { faults, duration: Duration::from_secs(15), ..usual }
        }
        _ => usual,
    }
}

/// The first seed whose run fails, and by what.
fn find(bug: Bug, seeds: Range<u64>) -> Option<(u64, String)> {
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| Simulation::random(seed, plan(bug))));
        let by = match run {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => match error.downcast_ref::<Violation>() {
                Some(violation) => violation.invariant.to_owned(),
                None => format!("{:#}", error.root_cause()),
            },
            Err(_) => "an assertion of the node itself".to_owned(),
        };
        return Some((seed, by));
    }
    None
}

#[test]
fn random_runs_find_the_bugs_within_some_hundred_seeds() {
    let asked = seeds();
    let range = asked.clone().unwrap_or(USUAL);
    let mut missed = Vec::new();
    println!("| bug | origin | seeds needed | found by |");
    println!("|---|---|---|---|");
    for bug in Bug::ALL {
        let about = bug.description();
        let is_hard = HARD.contains(&bug);
        let (needed, by) = if is_hard && asked.is_none() {
            ("not searched".to_owned(), String::new())
        } else if let Some((seed, by)) = find(bug, range.clone()) {
            let first_line = by.lines().next().unwrap_or_default();
            ((seed - range.start + 1).to_string(), first_line.to_owned())
        } else {
            if !is_hard {
                missed.push(about.name);
            }
            (format!("more than {}", range.end - range.start), String::new())
        };
        println!("| {} | {} | {needed} | {by} |", about.name, about.origin);
    }
    assert!(missed.is_empty() || asked.is_some(), "not found by random runs: {missed:?}");
}
