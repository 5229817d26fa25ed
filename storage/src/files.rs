//! How Kafka names the files and folders of a partition.

use protocol::{Offset, TopicPartition};

/// A batch file.
pub(crate) const LOG: &str = "log";
/// An offset index.
pub(crate) const INDEX: &str = "index";
/// A time index.
pub(crate) const TIME_INDEX: &str = "timeindex";
/// An index of aborted transactions.
pub(crate) const TXN_INDEX: &str = "txnindex";
/// A snapshot of the producers' state.
pub(crate) const SNAPSHOT: &str = "snapshot";
/// Added to a file that is to be removed after a delay.
pub(crate) const DELETED: &str = "deleted";
/// Added to a file that is being made and counts for nothing until it is renamed.
pub(crate) const TEMPORARY: &str = "tmp";
/// The same for the files of a segment that the log cleaner makes.
pub(crate) const CLEANED: &str = "cleaned";
/// Added to the files of a cleaned segment once they are whole and take the place of others.
pub(crate) const SWAP: &str = "swap";
/// Added to the folder of a partition that is to be removed.
pub(crate) const DELETE_SUFFIX: &str = "-delete";
const FUTURE_SUFFIX: &str = "-future";
const STRAY_SUFFIX: &str = "-stray";
/// Longest folder name that file systems take, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// `<20 digits>.<extension>`.
pub(crate) fn file_name(base_offset: Offset, extension: &str) -> String {
    format!("{:020}.{extension}", base_offset.0)
}

/// The offset of a name like `00000000000000000042.log`, if it is one with that extension.
pub(crate) fn parse_file_name(name: &str, extension: &str) -> Option<Offset> {
    let digits = name.strip_suffix(extension)?.strip_suffix('.')?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// What a folder of a log directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FolderKind {
    /// A partition in use.
    Partition(TopicPartition),
    /// A partition that was to be removed when the broker stopped.
    Deleted,
    /// A replica that was moving in from another directory.
    Future,
    /// A replica that no longer belonged here when the broker last started.
    Stray,
    /// Not a partition's.
    Other,
}

/// Where a controller keeps the metadata quorum's log, in the first log directory or its own.
pub const METADATA_FOLDER: &str = "__cluster_metadata-0";

/// Tells from its name what a folder is.
pub(crate) fn folder_kind(name: &str) -> FolderKind {
    if name.ends_with(DELETE_SUFFIX) {
        return FolderKind::Deleted;
    }
    if name.ends_with(FUTURE_SUFFIX) {
        return FolderKind::Future;
    }
    if name.ends_with(STRAY_SUFFIX) {
        return FolderKind::Stray;
    }
    match name.rsplit_once('-') {
        Some((topic, partition)) if !topic.is_empty() => match partition.parse::<u32>() {
            Ok(number) if number <= i32::MAX as u32 => {
                FolderKind::Partition(TopicPartition::new(topic, number as i32))
            }
            _ => FolderKind::Other,
        },
        _ => FolderKind::Other,
    }
}

/// The folder name of a partition that is to be removed: `topic-partition.<unique>-delete`, the
/// topic shortened where the name would grow too long.
pub(crate) fn deleted_folder_name(partition: &TopicPartition, unique: &str) -> String {
    let suffix = format!("-{}.{unique}{DELETE_SUFFIX}", partition.partition);
    let room = MAX_NAME_BYTES.saturating_sub(suffix.len());
    let mut topic = &*partition.topic;
    while topic.len() > room {
        // Topic names are ASCII; a foreign folder's need not be.
        let mut end = topic.len() - 1;
        while !topic.is_char_boundary(end) {
            end -= 1;
        }
        topic = &topic[..end];
    }
    format!("{topic}{suffix}")
}
