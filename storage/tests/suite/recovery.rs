//! Starts after an unclean stop (T12).

use std::path::Path;

use protocol::records::BATCH_HEADER_BYTES;
use protocol::{LeaderEpoch, Offset};
use replication::{FetchPosition, validate_fetch_position};
use storage::{Disk, DiskFile, Log, OpenMode, checkpoint};

use crate::common::{
    DIR, Given, append, append_records, batch, epochs, marker, producer_batch, read_all, small,
};
use crate::mem_disk::{Crash, MemDisk, MemFile};

fn fresh(disk: &MemDisk) -> Log<MemDisk> {
    Given::new(disk, Path::new(DIR), small()).open()
}

fn file(disk: &MemDisk, name: &str) -> MemFile {
    disk.open(&Path::new(DIR).join(name), OpenMode::ReadWrite).expect("there")
}

const FIRST_LOG: &str = "00000000000000000000.log";

#[test]
fn t12_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for at in 0..4 {
        append_records(&mut log, 2, at * 10, 1);
    }
    let kept = read_all(&log, Offset(0));
    let last = append_records(&mut log, 2, 90, 2);
    drop(log);
    for torn in 0..last.size_bytes {
        let disk = disk.crash(Crash::KeepAll);
        let length = (kept.len() + torn) as u64;
        file(&disk, FIRST_LOG).set_len(length).expect("cut");
        let mut log = fresh(&disk);
        assert_eq!(log.log_end_offset(), Offset(8), "torn after {torn} bytes");
        assert_eq!(read_all(&log, Offset(0)), kept);
        assert_eq!(epochs(&log), [(1, 0)], "no epoch without a record");
        append_records(&mut log, 1, 95, 3);
        assert_eq!(log.log_end_offset(), Offset(9));
        assert_eq!(file(&disk, FIRST_LOG).len().expect("known"), log.size_bytes());
    }
}

#[test]
fn t12_any_flipped_byte_of_the_last_batch_costs_that_batch_alone() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    append_records(&mut log, 2, 10, 1);
    let kept = read_all(&log, Offset(0));
    let last = append_records(&mut log, 1, 90, 1);
    for at in 0..last.size_bytes {
        // Offset and leader epoch are not under the checksum; a change there may go unseen.
        if at < 8 || (12..16).contains(&at) {
            continue;
        }
        let disk = disk.crash(Crash::KeepAll);
        let log_file = file(&disk, FIRST_LOG);
        let position = (kept.len() + at) as u64;
        let mut byte = [0];
        log_file.read_at(&mut byte, position).expect("read");
        log_file.write_at(&[&[byte[0] ^ 0x10]], position).expect("written");
        assert_eq!(read_all(&fresh(&disk), Offset(0)), kept, "byte {at}");
    }
    assert!(last.size_bytes > BATCH_HEADER_BYTES);
}

#[test]
fn t12_stale_epochs_go_and_the_divergence_table_holds_after_a_hard_restart() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for epoch in [1, 2] {
        for at in 0..5 {
            append_records(&mut log, 2, at, epoch);
        }
    }
    assert_eq!(epochs(&log), [(1, 0), (2, 10)]);
    let cut = log.offset_metadata(Offset(12)).expect("found");
    let name = format!("{:020}.log", cut.segment_base_offset.0);
    drop(log);
    // The power cut took what lay past 12; the cache holds an epoch that the log never had.
    let stale =
        [(LeaderEpoch(1), Offset(0)), (LeaderEpoch(2), Offset(10)), (LeaderEpoch(3), Offset(20))];
    checkpoint::write_leader_epochs(&disk, Path::new(DIR), &stale).expect("written");
    file(&disk, &name).set_len(cut.position.into()).expect("cut");
    let log = fresh(&disk);
    assert_eq!(log.log_end_offset(), Offset(12));
    assert_eq!(epochs(&log), [(1, 0), (2, 10)]);
    assert!(log.recovery_point() <= Offset(12));
    let judge = |epoch, offset| {
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        validate_fetch_position(log.epochs(), start, end, LeaderEpoch(epoch), Offset(offset))
    };
    assert_eq!(judge(2, 12), FetchPosition::Ok);
    assert_eq!(judge(3, 12), FetchPosition::OutOfRange);
    for (epoch, offset, end) in [(2, 20, 12), (1, 12, 10)] {
        let FetchPosition::Diverging(answer) = judge(epoch, offset) else { panic!("diverges") };
        assert_eq!(answer.end_offset, Offset(end));
    }
    // The trimmed cache is on disk as well.
    let on_disk = checkpoint::read_leader_epochs(&disk, Path::new(DIR)).expect("read");
    assert_eq!(on_disk, stale[..2]);
}

#[test]
fn t12_epochs_below_the_log_start_collapse_into_one() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for epoch in 1..=3 {
        append_records(&mut log, 10, 5, epoch);
    }
    drop(log);
    let mut given = Given::new(&disk, Path::new(DIR), small());
    given.start = 15;
    assert_eq!(epochs(&given.open()), [(2, 15), (3, 20)]);
}

#[test]
fn t12_an_epoch_is_on_disk_before_its_first_batch() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    append_records(&mut log, 2, 1, 4);
    let on_disk = checkpoint::read_leader_epochs(&disk.crash(Crash::LoseUnsynced), Path::new(DIR));
    assert_eq!(on_disk.expect("read"), [(LeaderEpoch(4), Offset(0))]);
    log.assign_leader_epoch(LeaderEpoch(6)).expect("noted");
    let on_disk = checkpoint::read_leader_epochs(&disk.crash(Crash::LoseUnsynced), Path::new(DIR));
    assert_eq!(on_disk.expect("read").len(), 2);
}

#[test]
fn t12_what_was_flushed_survives_the_loss_of_the_page_cache() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for at in 0..20 {
        append_records(&mut log, 2, at, 1);
    }
    log.flush().expect("flushed");
    let flushed = read_all(&log, Offset(0));
    append_records(&mut log, 2, 50, 1);
    let disk = disk.crash(Crash::LoseUnsynced);
    let mut given = Given::new(&disk, Path::new(DIR), small());
    given.recovery_point = 40;
    assert_eq!(read_all(&given.open(), Offset(0)), flushed);
}

#[test]
fn a_segment_that_lost_its_end_takes_the_later_ones_with_it() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for at in 0..30 {
        append_records(&mut log, 2, at, 1);
    }
    let bases: Vec<Offset> = log.segment_base_offsets().collect();
    let second = bases[1];
    let last_batch = log.offset_metadata(second - 1).expect("found");
    drop(log);
    // Cut at a batch boundary: every batch left is sound, and still two offsets are missing.
    file(&disk, FIRST_LOG).set_len(last_batch.position.into()).expect("cut");
    let log = fresh(&disk);
    assert_eq!(log.log_end_offset(), second - 2);
    assert_eq!(log.segment_count(), 1);
}

#[test]
fn lost_or_damaged_indexes_are_made_anew_even_after_a_clean_stop() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    append(&mut log, &producer_batch(1, 0, 2, true), 1);
    append(&mut log, &marker(1, false), 1);
    for at in 0..30 {
        append_records(&mut log, 2, at, 1);
    }
    log.close().expect("closes");
    let expected = read_all(&log, Offset(0));
    drop(log);
    let base = Path::new(DIR).join("00000000000000000000");
    for extension in ["index", "timeindex", "txnindex"] {
        for lost in [true, false] {
            let disk = disk.crash(Crash::KeepAll);
            let path = base.with_extension(extension);
            let original =
                disk.open(&path, OpenMode::Read).expect("there").read_all().expect("read");
            if lost && extension != "txnindex" {
                disk.remove_file(&path).expect("removed");
            } else {
                file(&disk, path.file_name().and_then(|name| name.to_str()).expect("a name"))
                    .write_at(&[&[0; 35]], 0)
                    .and_then(|()| {
                        disk.open(&path, OpenMode::ReadWrite)?.set_len(original.len() as u64 + 1)
                    })
                    .expect("damaged");
            }
            let log = Given::new(&disk, Path::new(DIR), small()).clean().open();
            assert_eq!(read_all(&log, Offset(0)), expected);
            let again = disk.open(&path, OpenMode::Read).expect("there").read_all().expect("read");
            assert_eq!(again, original, "{extension}, lost: {lost}");
            assert_eq!(log.aborted_transactions(Offset(0), Offset(3)).expect("searched").len(), 1);
        }
    }
}

#[test]
fn x02_a_damaged_snapshot_is_replaced_by_the_log() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    for at in 0..20 {
        append(&mut log, &producer_batch(9, at * 2, 2, false), 1);
    }
    log.close().expect("closes");
    let known = log.producers().entry(protocol::ProducerId(9)).cloned();
    drop(log);
    for entry in disk.list(Path::new(DIR)).expect("listed") {
        if entry.name.ends_with(".snapshot") {
            file(&disk, &entry.name).write_at(&[&[0xff; 3]], 10).expect("damaged");
        }
    }
    let log = Given::new(&disk, Path::new(DIR), small()).clean().open();
    assert_eq!(log.producers().entry(protocol::ProducerId(9)).cloned(), known);
}

#[test]
fn c08_a_full_disk_is_a_storage_failure_with_its_path() {
    let disk = MemDisk::default();
    let mut log = fresh(&disk);
    append_records(&mut log, 1, 1, 1);
    disk.fail_writes(true);
    let options = storage::LeaderAppendOptions::CLIENT;
    let now = crate::common::now(1);
    let error = log.append_as_leader(&batch(&[1]), LeaderEpoch(1), options, now).expect_err("full");
    assert!(error.is_storage_failure());
    assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
    assert_eq!(log.log_end_offset(), Offset(1));
}
