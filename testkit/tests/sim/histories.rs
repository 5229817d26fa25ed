//! What producers and consumers of random runs do, as a history that is judged alone: nothing is broken, whatever
//! happens to the brokers, and recording changes nothing.

use testkit::history::{Act, Phase, Recorder, Report, Rule, check, read_history, write_history};
use testkit::sim::{RunPlan, Simulation, play_and_record};

fn recorded(seed: u64, plan: &RunPlan) -> (Recorder, Report) {
    let recorder = Recorder::new();
    play_and_record(&plan.script(seed), plan, Some(&recorder)).expect("a run that goes well");
    let report = check(&recorder.operations());
    (recorder, report)
}

#[test]
fn random_runs_leave_histories_in_which_nothing_is_broken() {
    for seed in 0..4 {
        let plan = RunPlan { partitions: 2, ..RunPlan::default() };
        let (recorder, report) = recorded(seed, &plan);
        assert_eq!(report.broken, [], "seed {seed}");
        assert!(report.acknowledged > 5 && report.polls > 10, "seed {seed}: {report:?}");
        assert_eq!(report.unseen, 0, "seed {seed}: the last reading has everything");
        let mut text = Vec::new();
        write_history(&recorder.operations(), &mut text).expect("memory takes it");
        assert_eq!(read_history(&text[..]).expect("a history"), recorder.operations());
    }
}

#[test]
fn a_run_that_is_written_down_is_the_same_run() {
    let plan = RunPlan::default();
    let (first, _) = recorded(7, &plan);
    let (second, _) = recorded(7, &plan);
    assert_eq!(first.operations(), second.operations());
    let recorder = Recorder::new();
    let written = Simulation::scripted_and_recorded(&plan.script(7), &plan, Some(&recorder));
    let other = Simulation::scripted(&plan.script(7), &plan);
    let fingerprint =
        |report: anyhow::Result<testkit::sim::RunReport>| report.expect("a run").fingerprint;
    assert_eq!(fingerprint(written), fingerprint(other));
}

#[test]
fn a_record_taken_out_of_the_last_reading_is_found_lost_and_out_of_one_poll_is_a_gap() {
    let (recorder, _) = recorded(1, &RunPlan::default());
    let mut operations = recorder.operations();
    let last = operations.iter_mut().rev().find_map(|operation| match &mut operation.act {
        Act::Poll { records, is_final: true, .. } if operation.phase == Phase::Ok => Some(records),
        _ => None,
    });
    let taken = last.and_then(Vec::pop).expect("a last record");
    let broken = check(&operations).broken;
    // It may be one that nobody acknowledged to acks=-1; then it is there or not.
    let promised = recorder.operations().iter().any(|operation| match &operation.act {
        Act::Send { acks: -1, records, .. } => {
            operation.phase == Phase::Ok && records.contains(&(Some(taken.0), taken.1.clone()))
        }
        _ => false,
    });
    assert_eq!(broken.iter().any(|broken| broken.rule == Rule::Lost), promised, "{broken:?}");

    let mut operations = recorder.operations();
    let poll = operations.iter_mut().find_map(|operation| match &mut operation.act {
        Act::Poll { records, .. } if records.len() > 2 => Some(records),
        _ => None,
    });
    poll.expect("a poll of three records").remove(1);
    let broken = check(&operations).broken;
    assert!(broken.iter().any(|broken| broken.rule == Rule::Gap), "{broken:?}");
}
