//! What crashes and faults leave of a simulated disk.

use super::*;

fn write(disk: &SimDisk, path: &str, text: &str, sync: bool) {
    let file = disk.open(Path::new(path), OpenMode::Create).expect("open");
    file.write_at(&[text.as_bytes()], 0).expect("write");
    if sync {
        file.sync_data().expect("sync");
    }
}

fn read(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    disk.open(Path::new(path), OpenMode::Read).ok().map(|file| file.read_all().expect("read"))
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).expect("create");
    write(&disk, "/d/a", "hello", false);
    disk.crash(CrashKind::KeepPageCache, &mut SimRandom::new(1));
    assert_eq!(read(&disk, "/d/a").as_deref(), Some(&b"hello"[..]));
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_a_prefix_of_the_rest() {
    let mut lost = 0;
    for seed in 0..50 {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/d")).expect("create");
        write(&disk, "/d/a", "hello", true);
        disk.sync_dir(Path::new("/d")).expect("sync dir");
        let file = disk.open(Path::new("/d/a"), OpenMode::ReadWrite).expect("open");
        file.write_at(&[b" world"], 5).expect("write");
        disk.crash(CrashKind::LoseUnsynced, &mut SimRandom::new(seed));
        let bytes = read(&disk, "/d/a").expect("the name was synced");
        assert!(bytes.starts_with(b"hello"), "{bytes:?}");
        lost += usize::from(bytes != b"hello world");
    }
    assert!(lost > 10, "only {lost} of 50 crashes lost anything");
}

#[test]
fn a_renamed_file_survives_a_power_cut_under_one_of_its_names() {
    for seed in 0..50 {
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/d")).expect("create");
        write(&disk, "/d/new", "x", true);
        disk.sync_dir(Path::new("/d")).expect("sync dir");
        disk.rename(Path::new("/d/new"), Path::new("/d/old")).expect("rename");
        disk.crash(CrashKind::LoseUnsynced, &mut SimRandom::new(seed));
        let names = [read(&disk, "/d/new"), read(&disk, "/d/old")];
        assert_eq!(names.iter().flatten().count(), 1, "seed {seed}: {names:?}");
    }
}

#[test]
fn a_full_disk_refuses_growth_and_a_failed_folder_everything() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).expect("create");
    write(&disk, "/d/a", "hello", false);
    disk.set_full(true);
    let file = disk.open(Path::new("/d/a"), OpenMode::ReadWrite).expect("open");
    let error = file.write_at(&[b"longer than before"], 0).expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    disk.heal();
    disk.fail_folder(Path::new("/d"));
    assert!(file.len().is_err());
    assert!(disk.list(Path::new("/d")).is_err());
}

#[test]
fn a_lock_is_held_until_its_last_handle_is_dropped() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).expect("create");
    let first = disk.open(Path::new("/d/.lock"), OpenMode::Create).expect("open");
    let second = disk.open(Path::new("/d/.lock"), OpenMode::Create).expect("open");
    assert!(first.try_lock().expect("lock"));
    assert!(!second.try_lock().expect("lock"));
    drop(first);
    assert!(second.try_lock().expect("lock"));
}
