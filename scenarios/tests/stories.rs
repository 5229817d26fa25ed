//! Every story is true in the simulator, and told as it was kept. `HIGHWATER_KEEP_TRANSCRIPTS=1` keeps
//! what is told now.

use std::fs;
use std::path::Path;

use scenarios::{TRANSCRIPT_SEED, list, run_simulated};

fn told(name: &str, seed: u64) -> String {
    match run_simulated(name, seed, &mut |_| {}) {
        Ok(transcript) => transcript.text,
        Err(error) => panic!("{name} with seed {seed}: {error:?}"),
    }
}

#[test]
fn every_story_is_told_in_the_simulator_as_it_was_kept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let keep = std::env::var_os("HIGHWATER_KEEP_TRANSCRIPTS").is_some();
    let mut changed = Vec::new();
    for scenario in list() {
        let text = told(scenario.name, TRANSCRIPT_SEED);
        let path = folder.join(format!("{}.txt", scenario.name));
        if keep {
            fs::write(&path, &text).expect("a transcript is written");
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        if kept != text {
            changed.push(format!("{} is told differently now:\n{text}", scenario.name));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn every_story_is_true_whatever_the_seed() {
    for scenario in list() {
        for seed in 100..110 {
            told(scenario.name, seed);
        }
    }
}
