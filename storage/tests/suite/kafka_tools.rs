//! Kafka's own tool reads what we write and finds the indexes sound.

use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::Offset;
use storage::{Disk, DiskFile, LogConfig, OpenMode};

use crate::cleaner_world::names;
use crate::common::{DIR, append, append_records, marker, producer_batch, small, temporary};

fn tool() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference-kafka/refkafka");
    let java = Command::new("java").arg("-version").output();
    if path.exists() && java.is_ok_and(|output| output.status.success()) {
        return Some(path);
    }
    println!("SKIPPED: no java, or no Kafka to compare with at {}", path.display());
    None
}

fn dump(tool: &Path, dir: &Path, extensions: &[&str], arguments: &[&str]) -> String {
    let mut files: Vec<String> = std::fs::read_dir(dir)
        .expect("listed")
        .map(|entry| entry.expect("listed").path().display().to_string())
        .filter(|path| extensions.iter().any(|extension| path.ends_with(extension)))
        .collect();
    files.sort();
    let output = Command::new(tool)
        .args(["tool", "org.apache.kafka.tools.DumpLogSegments"])
        .args(arguments)
        .args(["--files", &files.join(",")])
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn kafkas_dump_tool_reads_a_cleaned_log_and_finds_its_indexes_sound() {
    let Some(tool) = tool() else { return };
    let mut world = crate::cleaner::eventful();
    world.clean(100).expect("cleans");
    world.check();
    world.log.close().expect("closes");
    let root = tempfile::tempdir().expect("a temporary folder");
    for name in names(&world.disk) {
        let path = Path::new(DIR).join(&name);
        let file = world.disk.open(&path, OpenMode::Read).expect("there");
        std::fs::write(root.path().join(&name), file.read_all().expect("read")).expect("written");
    }
    let all = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"];
    let text = dump(&tool, root.path(), &all, &["--deep-iteration"]);
    assert!(text.contains("deleteHorizonMs: OptionalLong[11"), "tombstones have a time: {text}");
    assert!(text.contains("compresscodec: lz4") && text.contains("count: 0"), "{text}");
    for bad in ["isvalid: false", "ismatch", "out of order", "Error"] {
        assert!(!text.contains(bad), "{bad} in {text}");
    }
    let text = dump(&tool, root.path(), &[".index", ".timeindex"], &["--index-sanity-check"]);
    let passed = text.matches("passed sanity check").count();
    let empty = text.matches("is empty").count();
    assert!(passed > 0 && passed + empty == 2 * world.log.segment_count(), "{text}");
}

#[test]
fn kafkas_dump_tool_reads_our_files_and_finds_their_indexes_sound() {
    let Some(tool) = tool() else { return };
    let (_root, dir, mut log) = temporary(LogConfig { segment_bytes: 3000, ..small() });
    let mut sequence = 0;
    for at in 0..20 {
        append_records(&mut log, 2, 1_000 + at * 10, 1);
        append(&mut log, &producer_batch(1, sequence, 3, true), 1);
        sequence += 3;
        append(&mut log, &marker(1, at % 2 == 0), 1);
    }
    log.close().expect("closes");
    assert!(log.segment_count() > 2);

    let all = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"];
    let text = dump(&tool, &dir, &all, &["--deep-iteration"]);
    assert_eq!(text.matches("isvalid: true").count(), 60, "{text}");
    assert_eq!(text.matches("endTxnMarker: ABORT coordinatorEpoch: 3").count(), 10);
    assert_eq!(text.matches("version: 0 producerId: 1 firstOffset:").count(), 10);
    for bad in ["isvalid: false", "ismatch", "Non-consecutive", "out of order", "Error"] {
        assert!(!text.contains(bad), "{bad} in {text}");
    }
    let last = log.log_end_offset() - 1;
    assert!(text.contains(&format!("lastOffset: {last}")));
    assert_eq!(log.aborted_transactions(Offset(0), log.log_end_offset()).expect("all").len(), 10);

    let text = dump(&tool, &dir, &[".index", ".timeindex"], &["--index-sanity-check"]);
    let passed = text.matches("passed sanity check").count();
    assert_eq!(passed, 2 * log.segment_count(), "{text}");
}
