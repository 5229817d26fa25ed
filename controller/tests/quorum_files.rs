//! The quorum's files after crashes at every byte, and after damage that no crash leaves.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use controller::quorum::{
    FileQuorumStorage, HardState, LogEntry, MemoryQuorumStorage, QuorumError, QuorumSnapshot,
    QuorumStorage,
};
use proptest::prelude::*;

fn entry(index: u64, term: u64, data: &str) -> LogEntry {
    LogEntry { index, term, data: Bytes::copy_from_slice(data.as_bytes()) }
}

fn open(folder: &Path) -> FileQuorumStorage {
    FileQuorumStorage::open(folder).expect("opens")
}

fn all(storage: &impl QuorumStorage) -> Vec<LogEntry> {
    let (low, high) = (storage.first_index(), storage.last_index() + 1);
    storage.entries(low, high, u64::MAX).expect("readable")
}

/// A log of three frames, 1-2, 3 and 4-5, with a vote beside it.
fn three_frames(folder: &Path) -> FileQuorumStorage {
    let mut storage = open(folder);
    storage.set_hard_state(HardState { term: 2, vote: 1, commit: 0 }).expect("written");
    for frame in [
        vec![entry(1, 1, ""), entry(2, 1, "two")],
        vec![entry(3, 2, "three")],
        vec![entry(4, 2, "four"), entry(5, 2, "five")],
    ] {
        storage.append(&frame).expect("written");
        storage.sync().expect("synced");
    }
    storage
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join(format!("{:020}.log", 1))
}

#[test]
fn a_reopened_storage_holds_what_was_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = all(&three_frames(folder.path()));
    let storage = open(folder.path());
    assert_eq!(all(&storage), written);
    assert_eq!(storage.hard_state(), HardState { term: 2, vote: 1, commit: 0 });
    assert_eq!((storage.term(0), storage.term(2), storage.term(3)), (Some(0), Some(1), Some(2)));
    assert_eq!(storage.term(6), None);
}

#[test]
fn a_crash_in_the_last_append_loses_that_append_whole_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(three_frames(folder.path()));
    let whole = fs::read(log_file(folder.path())).expect("readable");
    let last_frame = 8 + 12 + 2 * 12 + "fourfive".len();
    for torn in 1..=last_frame {
        // The file was made longer before its bytes arrived: zeros, or nothing at all.
        for zeros in [0, torn] {
            let mut bytes = whole[..whole.len() - torn].to_vec();
            bytes.resize(bytes.len() + zeros, 0);
            if bytes == whole {
                continue;
            }
            fs::write(log_file(folder.path()), &bytes).expect("written");
            let mut storage = open(folder.path());
            assert_eq!(storage.last_index(), 3, "torn by {torn}, {zeros} zeros");
            storage.append(&[entry(4, 3, "again")]).expect("written");
            storage.sync().expect("synced");
            drop(storage);
            assert_eq!(all(&open(folder.path()))[3], entry(4, 3, "again"));
        }
    }
}

#[test]
fn damage_before_the_last_frame_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(three_frames(folder.path()));
    let whole = fs::read(log_file(folder.path())).expect("readable");
    let last_frame = 8 + 12 + 2 * 12 + "fourfive".len();
    for at in 0..whole.len() - last_frame {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(log_file(folder.path()), &bytes).expect("written");
        let error = FileQuorumStorage::open(folder.path()).expect_err("damaged");
        assert!(matches!(error, QuorumError::Corrupt { .. }), "byte {at}: {error}");
        assert!(error.to_string().contains(".log"), "{error}");
        let after = fs::read(log_file(folder.path())).expect("readable");
        assert_eq!(after, bytes, "nothing is cut from a damaged log");
    }
}

#[test]
fn a_lost_or_damaged_vote_is_an_error() {
    // Q01: a member that forgot its vote could vote twice.
    let folder = tempfile::tempdir().expect("a folder");
    drop(three_frames(folder.path()));
    let path = folder.path().join("hard-state");
    let whole = fs::read(&path).expect("readable");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).expect("written");
        assert!(FileQuorumStorage::open(folder.path()).is_err(), "byte {at}");
    }
    fs::remove_file(&path).expect("removed");
    assert!(FileQuorumStorage::open(folder.path()).is_err(), "no vote beside a log");
}

#[test]
fn a_log_that_ends_before_what_was_committed_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = three_frames(folder.path());
    storage.set_hard_state(HardState { term: 2, vote: 1, commit: 5 }).expect("written");
    drop(storage);
    let whole = fs::read(log_file(folder.path())).expect("readable");
    fs::write(log_file(folder.path()), &whole[..whole.len() - 1]).expect("written");
    assert!(FileQuorumStorage::open(folder.path()).is_err());
}

#[test]
fn a_missing_log_file_between_others_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = FileQuorumStorage::open_with_segment_bytes(folder.path(), 32).expect("opens");
    storage.set_hard_state(HardState { term: 1, vote: 1, commit: 0 }).expect("written");
    for index in 1..=6 {
        storage.append(&[entry(index, 1, "some decision")]).expect("written");
        storage.sync().expect("synced");
    }
    drop(storage);
    fs::remove_file(folder.path().join(format!("{:020}.log", 3))).expect("removed");
    let error = FileQuorumStorage::open(folder.path()).expect_err("a hole");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn a_damaged_snapshot_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = three_frames(folder.path());
    let snapshot = QuorumSnapshot { index: 4, term: 2, data: Bytes::from_static(b"state") };
    storage.create_snapshot(&snapshot).expect("written");
    drop(storage);
    assert_eq!(open(folder.path()).snapshot().expect("readable"), Some(snapshot));
    let path = folder.path().join(format!("{:020}-{:010}.checkpoint", 4, 2));
    let whole = fs::read(&path).expect("readable");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).expect("written");
        assert!(FileQuorumStorage::open(folder.path()).is_err(), "byte {at}");
    }
}

#[test]
fn a_crash_while_a_leaders_snapshot_is_installed_leaves_the_old_or_the_new_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = three_frames(folder.path());
    let snapshot = QuorumSnapshot { index: 9, term: 3, data: Bytes::from_static(b"state") };
    storage.install_snapshot(&snapshot).expect("written");
    let after = folder.path().join(format!("{:020}-{:010}.checkpoint", 9, 3));
    let checkpoint = fs::read(&after).expect("readable");
    drop(storage);

    // Crash after the rename, before the old log was removed.
    let other = tempfile::tempdir().expect("a folder");
    drop(three_frames(other.path()));
    fs::write(other.path().join(after.file_name().expect("a name")), &checkpoint).expect("written");
    let mut storage = open(other.path());
    assert_eq!((storage.first_index(), storage.last_index()), (10, 9));
    assert_eq!(storage.term(9), Some(3));
    storage.append(&[entry(10, 3, "next")]).expect("written");
    storage.sync().expect("synced");
    drop(storage);
    assert_eq!(all(&open(other.path())), [entry(10, 3, "next")]);

    // Crash before the rename.
    let other = tempfile::tempdir().expect("a folder");
    drop(three_frames(other.path()));
    let half = other.path().join(format!("{:020}-{:010}.checkpoint.tmp", 9, 3));
    fs::write(half, &checkpoint[..10]).expect("written");
    assert_eq!(open(other.path()).last_index(), 5);
}

#[test]
fn compaction_removes_old_files_and_keeps_the_entries_it_must() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut storage = FileQuorumStorage::open_with_segment_bytes(folder.path(), 64).expect("opens");
    storage.set_hard_state(HardState { term: 1, vote: 1, commit: 0 }).expect("written");
    for index in 1..=40 {
        storage.append(&[entry(index, 1, "some decision")]).expect("written");
        storage.sync().expect("synced");
    }
    let files = || fs::read_dir(folder.path()).expect("readable").count();
    let before = files();
    let snapshot = QuorumSnapshot { index: 38, term: 1, data: Bytes::from_static(b"state") };
    storage.create_snapshot(&snapshot).expect("written");
    storage.compact(35).expect("compacted");
    assert!(files() < before / 3, "{} files of {before}", files());
    assert_eq!((storage.first_index(), storage.last_index()), (35, 40));
    drop(storage);
    let storage = open(folder.path());
    assert!(storage.first_index() <= 39 && storage.last_index() == 40);
    assert_eq!(storage.term(storage.first_index() - 1), Some(1));
    assert_eq!(all(&storage).last(), Some(&entry(40, 1, "some decision")));
}

/// What a member may ask of its storage.
#[derive(Clone, Debug)]
enum Act {
    /// Entries from so many before the end on, in a higher epoch.
    Append {
        back: u64,
        count: u64,
    },
    Snapshot {
        behind: u64,
        keep: u64,
    },
    Install {
        ahead: u64,
    },
    Vote,
    Reopen,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0u64..4, 1u64..5).prop_map(|(back, count)| Act::Append { back, count }),
        2 => (0u64..4, 0u64..4).prop_map(|(behind, keep)| Act::Snapshot { behind, keep }),
        1 => (1u64..4).prop_map(|ahead| Act::Install { ahead }),
        1 => Just(Act::Vote),
        2 => Just(Act::Reopen),
    ];
    prop::collection::vec(act, 1..40)
}

/// Does to `storage` what `act` says about a storage like `model`.
fn perform(act: &Act, term: u64, storage: &mut impl QuorumStorage, model: &MemoryQuorumStorage) {
    let last = model.last_index();
    let base = model.snapshot_position().0;
    match act {
        Act::Append { back, count } => {
            let first = (last + 1).saturating_sub(*back).max(base + 1);
            let entries: Vec<_> =
                (first..first + count).map(|index| entry(index, term, "data")).collect();
            storage.append(&entries).expect("written");
            storage.sync().expect("synced");
        }
        Act::Snapshot { behind, keep } => {
            let index = last.saturating_sub(*behind);
            if index > base {
                let at = model.term(index).expect("kept");
                let data = Bytes::from_static(b"state");
                storage.create_snapshot(&QuorumSnapshot { index, term: at, data }).expect("kept");
                storage.compact((index + 1).saturating_sub(*keep).max(1)).expect("compacted");
            }
        }
        Act::Install { ahead } => {
            let data = Bytes::from_static(b"theirs");
            let snapshot = QuorumSnapshot { index: last + ahead, term, data };
            storage.install_snapshot(&snapshot).expect("installed");
        }
        Act::Vote => {
            storage.set_hard_state(HardState { term, vote: 1, commit: 0 }).expect("written");
        }
        Act::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_files_hold_what_a_storage_in_memory_holds(acts in acts(), segment in 20u64..200) {
        let folder = tempfile::tempdir().expect("a folder");
        let reopen = || {
            FileQuorumStorage::open_with_segment_bytes(folder.path(), segment).expect("opens")
        };
        let mut files = Some(reopen());
        let mut memory = MemoryQuorumStorage::default();
        let first = HardState { term: 1, vote: 1, commit: 0 };
        files.as_mut().expect("open").set_hard_state(first).expect("written");
        memory.set_hard_state(first).expect("written");
        for (step, act) in acts.iter().enumerate() {
            let model = memory.clone();
            let term = step as u64 + 2;
            perform(act, term, files.as_mut().expect("open"), &model);
            perform(act, term, &mut memory, &model);
            if matches!(act, Act::Reopen) {
                drop(files.take());
                files = Some(reopen());
            }
            let storage = files.as_ref().expect("open");
            prop_assert_eq!(storage.last_index(), memory.last_index());
            prop_assert_eq!(storage.hard_state(), memory.hard_state());
            prop_assert_eq!(storage.snapshot().expect("readable"), memory.snapshot().expect("there"));
            let low = storage.first_index().max(memory.first_index());
            prop_assert!(storage.first_index() <= storage.snapshot_position().0 + 1);
            let high = memory.last_index() + 1;
            prop_assert_eq!(
                storage.entries(low, high, u64::MAX).expect("readable"),
                memory.entries(low, high, u64::MAX).expect("there")
            );
            for index in low - 1..high {
                prop_assert_eq!(storage.term(index), memory.term(index), "epoch of {}", index);
            }
        }
    }
}
