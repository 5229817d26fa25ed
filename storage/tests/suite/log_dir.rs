//! Log directories: formatting, ownership, loading, checkpoints.

use std::path::Path;

use protocol::{BrokerEpoch, NodeId, Offset, TopicPartition, Uuid};
use storage::checkpoint::{self, PartitionOffsets};
use storage::{
    Disk, Identity, LoadOptions, LogConfig, LogDir, LogDirError, OpenMode, RealDisk, choose_dir,
};

use crate::common::{DIR, Given, append_records, now, small};
use crate::mem_disk::{Crash, MemDisk};

fn identity() -> Identity {
    Identity { cluster_id: "a-cluster".into(), node_id: NodeId(3) }
}

const ID: Uuid = Uuid([7; 16]);

fn open(root: &Path) -> Result<LogDir<RealDisk>, LogDirError> {
    LogDir::open(&RealDisk, root, &identity(), ID)
}

fn options(config_of: &(dyn Fn(&TopicPartition) -> LogConfig + Sync)) -> LoadOptions<'_> {
    LoadOptions { config_of, threads: 1 }
}

#[test]
fn an_empty_folder_is_formatted_and_locked() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = open(root.path()).expect("formatted");
    assert_eq!(dir.directory_id(), ID);
    assert_eq!(dir.clean_shutdown(), None);
    let second = open(root.path());
    assert!(matches!(second, Err(LogDirError::Locked { .. })), "{second:?}");
    drop(dir);
    let again = LogDir::open(&RealDisk, root.path(), &identity(), Uuid([9; 16])).expect("ours");
    assert_eq!(again.directory_id(), ID, "the id was given once");
}

#[test]
fn a_folder_with_files_and_without_an_owner_is_refused() {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::write(root.path().join("thesis.doc"), "text").expect("written");
    let refused = open(root.path());
    assert!(matches!(refused, Err(LogDirError::NotFormatted { .. })), "{refused:?}");
}

#[test]
fn partitions_come_back_with_their_starts_and_high_watermarks() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = open(root.path()).expect("formatted");
    let config_of = |_: &TopicPartition| small();
    let mut loaded = dir.load(options(&config_of), now(1)).expect("loads");
    assert!(loaded.logs.is_empty());
    let mut high_watermarks = PartitionOffsets::new();
    for partition in [TopicPartition::new("with-dash", 0), TopicPartition::new("t", 12)] {
        let mut log = dir.create_log(&partition, ID, small(), now(1)).expect("made");
        append_records(&mut log, 9, 5, 1);
        log.increment_log_start(Offset(4)).expect("moves");
        high_watermarks.insert(partition, Offset(8));
        loaded.logs.push(log);
    }
    dir.shut_down(loaded.logs.iter_mut(), &high_watermarks, BrokerEpoch(5)).expect("stops");
    drop((dir, loaded));
    std::fs::create_dir(root.path().join("t-3.00ff-delete")).expect("made");
    std::fs::write(root.path().join("t-3.00ff-delete/00000000000000000000.log"), "x")
        .expect("made");
    std::fs::create_dir(root.path().join("notes")).expect("made");

    let dir = open(root.path()).expect("ours");
    let loaded = dir.load(options(&config_of), now(1)).expect("loads");
    assert_eq!(loaded.high_watermarks, high_watermarks);
    assert_eq!(loaded.removed, ["t-3.00ff-delete"]);
    assert_eq!(loaded.left_alone, ["notes"]);
    assert!(!root.path().join("t-3.00ff-delete").exists());
    for log in &loaded.logs {
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(4), Offset(9)));
        assert_eq!((log.topic_id(), log.recovery_point()), (Some(ID), Offset(9)));
    }
    assert_eq!(loaded.logs.len(), 2);
}

#[test]
fn i01_the_folder_of_an_older_topic_id_is_told_apart() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = open(root.path()).expect("formatted");
    let partition = TopicPartition::new("t", 0);
    dir.create_log(&partition, ID, small(), now(1)).expect("made");
    let other = dir.create_log(&partition, Uuid([8; 16]), small(), now(1));
    assert!(matches!(other, Err(LogDirError::Log(_))), "{other:?}");
}

#[test]
fn checkpoints_are_kafkas_text_and_damage_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    let offsets: PartitionOffsets =
        [(TopicPartition::new("a", 1), Offset(5)), (TopicPartition::new("b", 0), Offset(0))].into();
    checkpoint::write_offsets(&RealDisk, root.path(), "x", &offsets).expect("written");
    let text = std::fs::read_to_string(root.path().join("x")).expect("read");
    assert_eq!(text, "0\n2\na 1 5\nb 0 0\n");
    assert_eq!(checkpoint::read_offsets(&RealDisk, root.path(), "x").expect("read"), offsets);
    for damaged in ["1\n0\n", "0\n2\na 1 5\n", "0\n1\na one 5\n", "0\n", "0\n1\na 1 5 6\n"] {
        std::fs::write(root.path().join("x"), damaged).expect("written");
        let error = checkpoint::read_offsets(&RealDisk, root.path(), "x").expect_err("damaged");
        assert!(error.is_storage_failure(), "{damaged:?}: {error}");
    }
    RealDisk.open(&root.path().join("x"), OpenMode::Truncate).expect("emptied");
    assert!(checkpoint::read_offsets(&RealDisk, root.path(), "x").expect("read").is_empty());
}

#[test]
fn a_new_partition_goes_to_the_directory_with_the_fewest() {
    assert_eq!(choose_dir(&[3, 1, 1]), Some(1));
    assert_eq!(choose_dir(&[]), None);
}

#[test]
fn a_log_that_was_only_made_is_closed_without_waiting_for_the_disk() {
    let disk = MemDisk::default();
    let mut log = Given::new(&disk, Path::new(DIR), small()).open();
    disk.fail_after(0);
    log.close().expect("nothing to make durable");
    // Neither is there after a kill, when it is empty still.
    let killed = disk.crash(Crash::KeepAll);
    let mut again = Given::new(&killed, Path::new(DIR), small()).open();
    killed.fail_after(0);
    again.close().expect("nothing to make durable");
    // Whatever of its empty files a power cut leaves, the next start finds the same log.
    for crash in (0..20).map(Crash::Torn).chain([Crash::LoseUnsynced, Crash::KeepAll]) {
        let log = Given::new(&disk.crash(crash), Path::new(DIR), small()).clean().open();
        assert_eq!((log.log_start_offset(), log.log_end_offset()), (Offset(0), Offset(0)));
    }
}

#[test]
fn a_log_that_held_records_is_made_durable_when_it_closes_also_when_it_is_empty_again() {
    let disk = MemDisk::default();
    let mut log = Given::new(&disk, Path::new(DIR), small()).open();
    append_records(&mut log, 9, 5, 1);
    log.truncate_to(Offset(0), now(2)).expect("cut");
    log.close().expect("closes");
    let log = Given::new(&disk.crash(Crash::LoseUnsynced), Path::new(DIR), small()).clean().open();
    assert_eq!(log.log_end_offset(), Offset(0));
    append_records(&mut { log }, 3, 5, 1);
}

#[test]
fn a_log_that_comes_back_and_goes_again_is_removed_beside_its_former_folder() {
    let root = tempfile::tempdir().expect("a folder");
    let dir = open(root.path()).expect("formatted");
    let partition = TopicPartition::new("t", 0);
    let mut removed = Vec::new();
    for _ in 0..3 {
        let mut log = dir.create_log(&partition, ID, small(), now(1)).expect("made");
        append_records(&mut log, 3, 5, 1);
        removed.push(log.rename_to_deleted("unique").expect("renamed"));
    }
    removed.sort();
    removed.dedup();
    assert_eq!(removed.len(), 3, "{removed:?}");
    let config_of = |_: &TopicPartition| small();
    let loaded = dir.load(options(&config_of), now(2)).expect("loads");
    assert!(loaded.logs.is_empty() && removed.iter().all(|folder| !folder.exists()));
}
