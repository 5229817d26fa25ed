//! What an earlier process left half done in a partition's folder, put right before anything is opened.
//!
//! A cleaning puts its segment in place in steps (`clean.rs`); each may be the last one before a crash,
//! and of the renames since the folder was last synced any may be lost:
//!
//! | found | means | done |
//! |---|---|---|
//! | `.tmp`, `.deleted` | was not or is no longer part of the log | removed |
//! | `.cleaned` | the new segment may not be whole | removed, with every `.swap` at or above its base (KAFKA-6264) |
//! | `.log.swap` | the new segment is whole, some of the old may be gone | the old ones in its range are removed, the new one takes their place |
//! | another `.swap` alone | its batch file is in place already | takes its place, if that is free |
//!
//! The old segments lose their names for good before the new one gets its own, and that is synced
//! between: there is no moment at which both count, or an index of the one stands beside the batches
//! of the other.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::Offset;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, Result};
use crate::files;
use crate::scan::{HeaderScan, Step};
use crate::segment::remove_if_there;

/// What the folder holds once it is put right.
pub(super) struct Found {
    /// First offsets of the segments, ascending.
    pub(super) segments: Vec<Offset>,
    /// Offsets of the snapshots of the producers' state.
    pub(super) snapshots: Vec<Offset>,
}

/// The extensions of a segment's files, the batch file first.
const SEGMENT_FILES: [&str; 4] = [files::LOG, files::INDEX, files::TIME_INDEX, files::TXN_INDEX];

/// Puts the folder right and tells what is in it.
pub(super) fn sweep<D: Disk>(disk: &D, dir: &Path) -> Result<Found> {
    complete_swaps(disk, dir)?;
    let mut found = Found { segments: Vec::new(), snapshots: Vec::new() };
    let mut indexes = Vec::new();
    for entry in disk.list(dir).at("list", dir)? {
        let (name, path) = (&entry.name, dir.join(&entry.name));
        if let Some(base) = files::parse_file_name(name, files::LOG) {
            found.segments.push(base);
        } else if let Some(offset) = files::parse_file_name(name, files::SNAPSHOT) {
            found.snapshots.push(offset);
        } else {
            for index in [files::INDEX, files::TIME_INDEX, files::TXN_INDEX] {
                indexes
                    .extend(files::parse_file_name(name, index).map(|base| (base, path.clone())));
            }
        }
    }
    for (base, path) in indexes {
        if found.segments.binary_search(&base).is_err() {
            tracing::warn!(path = %path.display(), "removing an index without a segment");
            remove_if_there(disk, &path)?;
        }
    }
    Ok(found)
}

/// Removes what counts for nothing and completes what a cleaning had begun to put in place.
fn complete_swaps<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let mut swaps: BTreeMap<Offset, Vec<&'static str>> = BTreeMap::new();
    let mut lowest_cleaned: Option<Offset> = None;
    for entry in disk.list(dir).at("list", dir)? {
        let path = dir.join(&entry.name);
        let Some((stem, suffix)) = entry.name.rsplit_once('.') else {
            continue;
        };
        if [files::DELETED, files::CLEANED, files::TEMPORARY].contains(&suffix) {
            if suffix == files::CLEANED
                && let Some((base, _)) = segment_file(stem)
            {
                lowest_cleaned = Some(lowest_cleaned.map_or(base, |lowest| lowest.min(base)));
            }
            remove_if_there(disk, &path)?;
        } else if suffix == files::SWAP
            && let Some((base, extension)) = segment_file(stem)
        {
            swaps.entry(base).or_default().push(extension);
        }
    }
    if let Some(lowest) = lowest_cleaned {
        for (base, extensions) in swaps.split_off(&lowest) {
            for extension in extensions {
                remove_if_there(disk, &dir.join(swap_name(base, extension)))?;
            }
        }
    }
    if swaps.is_empty() {
        return Ok(());
    }
    // A killed process may have renamed the new files and not synced that.
    disk.sync_dir(dir).at("sync", dir)?;
    for (base, extensions) in &swaps {
        if extensions.contains(&files::LOG) {
            remove_replaced(disk, dir, *base)?;
        }
    }
    disk.sync_dir(dir).at("sync", dir)?;
    for (base, extensions) in &swaps {
        tracing::info!(dir = %dir.display(), %base, "completing the swap of a cleaned segment");
        for extension in SEGMENT_FILES.iter().filter(|one| extensions.contains(one)) {
            let swap = dir.join(swap_name(*base, extension));
            let place = dir.join(files::file_name(*base, extension));
            if disk.exists(&place).at("look for", &place)? {
                remove_if_there(disk, &swap)?;
            } else {
                disk.rename(&swap, &place).at("rename", &swap)?;
            }
        }
    }
    disk.sync_dir(dir).at("sync", dir)
}

/// Removes the segments whose batches the cleaned segment at `base` stands for.
fn remove_replaced<D: Disk>(disk: &D, dir: &Path, base: Offset) -> Result<()> {
    let path = dir.join(swap_name(base, files::LOG));
    let end = end_offset(disk, &path)?.max(base.next());
    for entry in disk.list(dir).at("list", dir)? {
        let old = segment_file(&entry.name).filter(|(at, _)| (base..end).contains(at));
        if old.is_some() {
            remove_if_there(disk, &dir.join(&entry.name))?;
        }
    }
    Ok(())
}

/// The offset after the last batch of a file; 0 when it has none.
fn end_offset<D: Disk>(disk: &D, path: &Path) -> Result<Offset> {
    let file = disk.open(path, OpenMode::Read).at("open", path)?;
    let length = file.len().at("read", path)?;
    let mut scan = HeaderScan::new(&file, 0, length);
    let mut end = Offset::ZERO;
    loop {
        match scan.next().at("read", path)? {
            Step::Batch(_, header) => end = header.next_offset(),
            Step::End => return Ok(end),
            Step::Broken(position, reason) => {
                tracing::warn!(path = %path.display(), position, reason, "a cleaned segment is damaged");
                return Ok(end);
            }
        }
    }
}

/// Base offset and extension of the name of a segment's file.
fn segment_file(name: &str) -> Option<(Offset, &'static str)> {
    SEGMENT_FILES
        .iter()
        .find_map(|extension| Some((files::parse_file_name(name, extension)?, *extension)))
}

fn swap_name(base: Offset, extension: &str) -> String {
    format!("{}.{}", files::file_name(base, extension), files::SWAP)
}
