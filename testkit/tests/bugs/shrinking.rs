//! A failing run is made smaller, and what is left of it fails again, the same way, from its numbers.

use replication::bugs::Bug;
use testkit::sim::{RunPlan, Script, play, shrink};

fn first_failure(plan: &RunPlan) -> Script {
    let mut scripts = (0..100).map(|seed| plan.script(seed));
    scripts.find(|script| play(script, plan).is_err()).expect("a run that fails")
}

#[test]
fn a_failing_run_shrinks_to_a_few_events_that_break_the_same_invariant() {
    let plan = RunPlan { bugs: vec![Bug::TruncateToHighWatermark], ..RunPlan::default() };
    let whole = first_failure(&plan);
    let failure = play(&whole, &plan).expect_err("it fails");
    let shrunk = shrink(&whole, &plan, 300).expect("it fails");
    assert_eq!(shrunk.failure.by, failure.by);
    assert!(shrunk.script.events.len() * 2 <= whole.events.len(), "{:#?}", shrunk.script.events);
    // Its numbers are enough to have it again, and nothing of it can be left out.
    let numbers: Vec<u32> = shrunk.script.events.iter().map(|event| event.number).collect();
    let mut again = plan.script(whole.seed);
    again.events.retain(|event| numbers.contains(&event.number));
    let failed = play(&again, &plan).expect_err("it fails again");
    assert_eq!((failed.by, failed.whole), (shrunk.failure.by, shrunk.failure.whole));
    for left_out in &numbers {
        let mut less = again.clone();
        less.events.retain(|event| event.number != *left_out);
        assert!(
            play(&less, &plan).err().is_none_or(|other| other.by != failure.by),
            "#{left_out} was not needed"
        );
    }
}

#[test]
fn a_run_that_does_not_fail_is_not_made_smaller() {
    let plan = RunPlan::default();
    assert!(shrink(&plan.script(0), &plan, 10).is_none());
}
