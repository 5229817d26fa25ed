//! `highwater scenario` and `highwater sim` as a person or a script uses them.

use std::process::{Command, Output};

use serde_json::Value;

use crate::BINARY;

fn highwater(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("highwater runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn scenario_list_has_a_line_for_every_story_with_its_rules_and_title() {
    let output = highwater(&["scenario", "list"]);
    assert!(output.status.success());
    let listed = text(&output.stdout);
    assert_eq!(listed.lines().count(), scenarios::list().len());
    for (line, scenario) in listed.lines().zip(scenarios::list()) {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(scenario.name));
        assert_eq!(words.next(), Some(scenario.rules.join(",").as_str()));
        assert!(line.contains(scenario.title), "{line}");
    }
}

#[test]
fn scenario_run_tells_the_kept_story_and_writes_its_trace_as_json_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t01.jsonl");
    let output = highwater(&["scenario", "run", "t01", "--trace", trace.to_str().expect("a path")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let kept = std::fs::read_to_string(format!("{root}/scenarios/transcripts/T01.txt"));
    assert_eq!(text(&output.stdout), kept.expect("a transcript"));
    let lines = std::fs::read_to_string(&trace).expect("a trace");
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let elected = events.iter().filter(|event| event["event"] == "LeaderElected");
    let leaders: Vec<&Value> =
        elected.filter(|event| event["partition"] == "t-0").map(|event| &event["to"]).collect();
    assert_eq!(leaders, [5, 4, -1, 4], "as the transcript has it");
    assert!(events.iter().all(|event| event["why"].is_string() && event["rule"].is_string()));
}

#[test]
fn another_seed_tells_the_same_story_at_other_moments() {
    let told = |seed| text(&highwater(&["scenario", "run", "H01", "--seed", seed]).stdout);
    assert_eq!(told("8"), told("8"));
    assert_ne!(told("8"), told("9"));
    assert!(told("9").ends_with("verdict: as it must be\n"));
}

#[test]
fn a_story_that_nobody_knows_is_refused_and_one_for_the_simulator_is_not_told_for_real() {
    let output = highwater(&["scenario", "run", "T99"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("no story is called T99; there are T01, T02"), "{said}");
    let output = highwater(&["scenario", "run", "Q07", "--real"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("only the simulator"), "{said}");
    let output = highwater(&["scenario", "run", "H01", "--real", "--trace", "x"]);
    assert_eq!(output.status.code(), Some(2), "a real cluster tells no events");
}

#[test]
fn scenario_run_real_tells_a_story_with_processes() {
    let _alone = crate::alone();
    let output = highwater(&["scenario", "run", "C04", "--real"]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    assert!(told.contains("C04 (real)"), "{told}");
    assert!(told.ends_with("verdict: as it must be\n"), "{told}");
}

#[test]
fn sim_runs_the_seeds_it_is_given_and_tells_its_rates() {
    let output = highwater(&["sim", "--first", "3", "--seeds", "4", "--jobs", "2"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.starts_with("4 runs, 0 failed; "), "{said}");
    assert!(said.contains("seeds per second"), "{said}");
}

#[test]
fn a_seed_that_fails_is_told_with_the_command_that_repeats_it() {
    // Nothing comes back to health in no time.
    let hopeless = ["sim", "--first", "5", "--until-failure", "--jobs", "2", "--patience", "0"];
    let output = highwater(&hopeless);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    let repeat = "repeat: highwater sim --seed 5 --patience 0";
    assert!(said.contains(repeat), "{said}");
    assert!(said.contains("seed 5 failed:") && said.contains("did not come within 0ns"), "{said}");
    let what = |said: &str| {
        let line = said.lines().find(|line| line.starts_with("seed 5: "));
        line.expect("what broke").to_owned()
    };
    let words = repeat.trim_start_matches("repeat: highwater ");
    let again = highwater(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(what(&text(&again.stdout)), what(&said), "the same run");
}

#[test]
fn a_run_and_a_story_leave_histories_that_check_judges_with_the_lines_that_show_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let (run, story) = (path("run.jsonl"), path("story.jsonl"));
    assert!(highwater(&["sim", "--seed", "3", "--history", &run]).status.success());
    assert!(highwater(&["scenario", "run", "T01", "--history", &story]).status.success());
    for file in [&run, &story] {
        let output = highwater(&["check", "--history", file]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        assert!(said.contains("records sent") && said.ends_with("nothing is broken\n"), "{said}");
    }
    let kept = std::fs::read_to_string(&run).expect("a history");
    let broken = path("broken.jsonl");
    let sends = r#""f":"send""#;
    let without: String =
        kept.lines().filter(|line| !line.contains(sends)).map(|line| format!("{line}\n")).collect();
    std::fs::write(&broken, without).expect("written");
    let output = highwater(&["check", "--history", &broken]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("BROKEN not sent: t-0: \"p"), "{said}");
    assert!(said.contains("    {\"index\":") && said.contains("more"), "{said}");
}

#[test]
fn what_is_no_history_is_refused_by_its_line_and_a_history_wants_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("no.jsonl");
    std::fs::write(&file, "{}\n").expect("written");
    let output = highwater(&["check", "--history", file.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("line 1 is no line of a history"), "{said}");
    let output = highwater(&["sim", "--seeds", "2", "--history", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("name it with --seed"));
}
