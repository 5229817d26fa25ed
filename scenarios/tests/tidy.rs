//! Conventions that no compiler checks: the direction of the crates, the head of every file, and
//! the size of files and functions. `ARCHITECTURE.md` names them; this test keeps them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every crate with the crates of ours it may depend on. Arrows point only upwards in this list.
const DIRECTION: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("replication", &["protocol"]),
    ("storage", &["protocol", "replication"]),
    ("controller", &["protocol", "replication"]),
    ("fetcher", &["protocol", "replication"]),
    // Of `replication` only the time types.
    ("coordinator", &["protocol", "replication"]),
    ("broker", &["protocol", "replication", "storage", "controller", "fetcher", "coordinator"]),
    (
        "testkit",
        &["protocol", "replication", "storage", "controller", "fetcher", "coordinator", "broker"],
    ),
    ("scenarios", &["testkit"]),
    (
        "cli",
        &[
            "protocol",
            "replication",
            "storage",
            "controller",
            "fetcher",
            "coordinator",
            "broker",
            "testkit",
            "scenarios",
        ],
    ),
];

/// Files may be this long; one that must be longer is named here with its reason.
const MOST_LINES: usize = 600;
const LONGER_FILES: &[(&str, &str)] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_path_buf()
}

fn rust_files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for (krate, _) in DIRECTION {
        collect(&root().join(krate), &mut files);
    }
    assert!(files.len() > 50, "the walk found only {} files", files.len());
    files
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            files.insert(path.strip_prefix(root()).expect("inside the root").to_path_buf(), text);
        }
    }
}

#[test]
fn crates_depend_only_upwards() {
    let ours: Vec<&str> =
        DIRECTION.iter().map(|(name, _)| *name).filter(|name| *name != "cli").collect();
    let mut wrong = Vec::new();
    for (krate, allowed) in DIRECTION {
        let manifest =
            fs::read_to_string(root().join(krate).join("Cargo.toml")).expect("a manifest");
        for line in manifest.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            if ours.contains(&name) && name != *krate && !allowed.contains(&name) {
                wrong.push(format!("{krate} must not depend on {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_tests_may_switch_historical_bugs_on() {
    let mut wrong = Vec::new();
    for (krate, _) in DIRECTION {
        let manifest =
            fs::read_to_string(root().join(krate).join("Cargo.toml")).expect("a manifest");
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let is_for_tests = section == "[dev-dependencies]";
            let declares = section == "[features]" && !line.starts_with("default");
            if line.contains("historical-bugs") && !is_for_tests && !declares {
                wrong.push(format!("{krate}: {section} {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_by_saying_what_it_decides() {
    let silent: Vec<_> = rust_files()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "no `//!` at the head of: {}", silent.join(", "));
}

#[test]
fn files_stay_short_enough_to_read() {
    let mut long = Vec::new();
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        let excused = LONGER_FILES.iter().any(|(name, _)| path == Path::new(name));
        if lines > MOST_LINES && !excused {
            long.push(format!("{} has {lines} lines", path.display()));
        }
    }
    assert!(long.is_empty(), "split these, or name them with a reason: {}", long.join(", "));
}

#[test]
fn pure_crates_have_no_clock_no_thread_and_no_socket() {
    let forbidden = ["std::net", "std::thread", "tokio", "SystemTime", "thread_rng", "std::fs"];
    let mut wrong = Vec::new();
    for (path, text) in rust_files() {
        if !path.starts_with("replication/src") && !path.starts_with("coordinator/src") {
            continue;
        }
        for word in forbidden {
            if text.contains(word) {
                wrong.push(format!("{} uses {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
