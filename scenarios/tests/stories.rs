//! Every story is true in the simulator, and told as it was kept. `HIGHWATER_KEEP_TRANSCRIPTS=1` keeps
//! what is told now; `STORIES=T01,H05` tells these alone.

use std::fs;
use std::path::Path;

use scenarios::{Broken, Scenario, TRANSCRIPT_SEED, find, list, run_simulated, tell};
use testkit::stage::SimStage;

/// The stories to tell.
fn chosen() -> Vec<&'static Scenario> {
    let only = std::env::var("STORIES").unwrap_or_default();
    let is_chosen = |name: &str| only.is_empty() || only.split(',').any(|chosen| chosen == name);
    list().iter().filter(|scenario| is_chosen(scenario.name)).collect()
}

fn told(name: &str, seed: u64) -> Result<String, String> {
    run_simulated(name, seed, &mut |_| {})
        .map(|transcript| transcript.text)
        .map_err(|error| format!("{name} with seed {seed}: {error:?}"))
}

#[test]
fn every_story_is_told_in_the_simulator_as_it_was_kept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let keep = std::env::var_os("HIGHWATER_KEEP_TRANSCRIPTS").is_some();
    let mut wrong = Vec::new();
    for scenario in chosen() {
        let text = match told(scenario.name, TRANSCRIPT_SEED) {
            Ok(text) => text,
            Err(error) => {
                wrong.push(error);
                continue;
            }
        };
        let path = folder.join(format!("{}.txt", scenario.name));
        if keep {
            fs::write(&path, &text).expect("a transcript is written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept != text {
            wrong.push(format!("{} is told differently now:\n{text}", scenario.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_story_is_true_whatever_the_seed() {
    let runs =
        chosen().into_iter().flat_map(|scenario| (100..110).map(|seed| (scenario.name, seed)));
    let wrong: Vec<String> = runs.filter_map(|(name, seed)| told(name, seed).err()).collect();
    assert!(wrong.is_empty(), "{} are not true:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn names_are_told_apart_whatever_their_case_and_each_transcript_has_its_story() {
    let mut names: Vec<String> =
        list().iter().map(|scenario| scenario.name.to_lowercase()).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "two stories have one name");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        assert!(find(name).is_ok(), "no story is called {name}");
    }
}

#[test]
fn a_claim_that_is_not_true_ends_its_story_with_a_verdict_that_says_so() {
    let scenario = Scenario {
        script: |story| {
            story.until_leader(1)?;
            story.produce(-1, &["m0"])?;
            let end = story.replica(1)?.log_end;
            story.claim_same("the log is empty", &end, &0)
        },
        ..*find("H01").expect("a story")
    };
    let mut stage = SimStage::start(scenario.needs, 1).expect("a stage");
    let mut heard = String::new();
    let told = tell(&scenario, &mut stage, &mut |line| heard.push_str(&format!("{line}\n")));
    let error = told.expect_err("it is not true");
    let end = "   NOT SO: the log is empty: 1, must be 0\n\
               verdict: NOT as it must be: not so: the log is empty: 1, must be 0\n";
    assert!(heard.ends_with(end), "{heard}");
    assert_eq!(error.downcast_ref::<Broken>().expect("a broken story").text, heard);
}

#[test]
fn an_unknown_name_is_refused_with_the_names_that_there_are() {
    let error = find("T99").expect_err("no such story").to_string();
    assert!(error.contains("T99") && error.contains("T01, T02, T03"), "{error}");
    assert_eq!(find("t01").expect("in any case").name, "T01");
}
