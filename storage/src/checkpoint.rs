//! Kafka's small text files. Each is replaced as a whole: written to `<name>.tmp`, synced, renamed
//! over the old one, the folder synced; a crash leaves the old or the new content, never a mix.
//!
//! | file | where | lines after version 0 and the count |
//! |---|---|---|
//! | `leader-epoch-checkpoint` | partition | `epoch start_offset` |
//! | `replication-offset-checkpoint` (high watermarks) | log dir | `topic partition offset` |
//! | `recovery-point-offset-checkpoint` | log dir | the same |
//! | `log-start-offset-checkpoint` | log dir | the same |
//! | `cleaner-offset-checkpoint` | log dir | the same |
//!
//! `meta.properties`, `partition.metadata` and `.kafka_cleanshutdown` have forms of their own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition, Uuid};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{IoContext, LogError, Result};

/// Name of the file with each partition's high watermark.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
/// Name of the file with each partition's recovery point.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Name of the file with the log start offsets that lie inside a segment.
pub const LOG_START_OFFSETS: &str = "log-start-offset-checkpoint";
/// Name of the file in which the log cleaner keeps how far it got.
pub const CLEANER_OFFSETS: &str = "cleaner-offset-checkpoint";
/// Name of a partition's file with its leader epochs.
pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
/// Name of a partition's file with its topic's id.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Name of the file that says whose a log directory is.
pub const META_PROPERTIES: &str = "meta.properties";
/// Name of the file that a clean stop leaves behind.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// Offsets by partition, as the checkpoints of a log directory hold them.
pub type PartitionOffsets = BTreeMap<TopicPartition, Offset>;

/// Replaces `dir/name` by `content`, durably.
pub fn write_atomically<D: Disk>(disk: &D, dir: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = dir.join(name);
    let temporary = dir.join(format!("{name}.tmp"));
    let file = disk.open(&temporary, OpenMode::Truncate).at("create", &temporary)?;
    file.write_at(&[content], 0).at("write", &temporary)?;
    file.sync_data().at("sync", &temporary)?;
    disk.rename(&temporary, &path).at("rename", &temporary)?;
    disk.sync_dir(dir).at("sync", dir)
}

/// Reads a text file whole; `None` when it is absent.
pub(crate) fn read_text<D: Disk>(disk: &D, path: &Path) -> Result<Option<String>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at("open", path),
    };
    let bytes = file.read_all().at("read", path)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(malformed(path, 0, "not UTF-8")),
    }
}

fn malformed(path: &Path, line: usize, reason: &str) -> LogError {
    LogError::CorruptFile {
        path: PathBuf::from(path),
        position: 0,
        reason: format!("line {}: {reason}", line + 1),
    }
}

/// Lines of a checkpoint, given to `parse` one by one; an absent or empty file has none.
fn read_checkpoint<D: Disk>(
    disk: &D,
    path: &Path,
    mut parse: impl FnMut(&[&str]) -> Option<()>,
) -> Result<()> {
    let Some(text) = read_text(disk, path)? else {
        return Ok(());
    };
    let mut lines = text.lines().enumerate();
    let Some((_, version)) = lines.next() else {
        return Ok(());
    };
    if version.trim() != "0" {
        return Err(malformed(path, 0, "unknown version"));
    }
    let expected: usize = lines
        .next()
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| malformed(path, 1, "no count"))?;
    let mut found = 0;
    for (number, line) in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        parse(&fields).ok_or_else(|| malformed(path, number, "unexpected fields"))?;
        found += 1;
    }
    if found != expected {
        return Err(malformed(path, 1, &format!("{expected} entries announced, {found} found")));
    }
    Ok(())
}

/// Reads one of the log directory's offset checkpoints; empty when it is absent.
///
/// # Errors
/// [`LogError::CorruptFile`] when it does not hold together.
pub fn read_offsets<D: Disk>(disk: &D, dir: &Path, name: &str) -> Result<PartitionOffsets> {
    let mut offsets = PartitionOffsets::new();
    read_checkpoint(disk, &dir.join(name), |fields| {
        let [topic, partition, offset] = fields else {
            return None;
        };
        let partition = TopicPartition::new(*topic, partition.parse().ok()?);
        offsets.insert(partition, Offset(offset.parse().ok()?));
        Some(())
    })?;
    Ok(offsets)
}

/// Replaces one of the log directory's offset checkpoints.
pub fn write_offsets<D: Disk>(
    disk: &D,
    dir: &Path,
    name: &str,
    offsets: &PartitionOffsets,
) -> Result<()> {
    let mut text = format!("0\n{}\n", offsets.len());
    for (partition, offset) in offsets {
        text.push_str(&format!("{} {} {offset}\n", partition.topic, partition.partition));
    }
    write_atomically(disk, dir, name, text.as_bytes())
}

/// Reads a partition's leader epochs and their start offsets; empty when the file is absent.
///
/// # Errors
/// [`LogError::CorruptFile`] when it does not hold together.
pub fn read_leader_epochs<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<(LeaderEpoch, Offset)>> {
    let mut epochs = Vec::new();
    read_checkpoint(disk, &dir.join(LEADER_EPOCHS), |fields| {
        let [epoch, start] = fields else { return None };
        epochs.push((LeaderEpoch(epoch.parse().ok()?), Offset(start.parse().ok()?)));
        Some(())
    })?;
    Ok(epochs)
}

/// Replaces a partition's leader epochs.
pub fn write_leader_epochs<D: Disk>(
    disk: &D,
    dir: &Path,
    epochs: &[(LeaderEpoch, Offset)],
) -> Result<()> {
    let mut text = format!("0\n{}\n", epochs.len());
    for (epoch, start) in epochs {
        text.push_str(&format!("{epoch} {start}\n"));
    }
    write_atomically(disk, dir, LEADER_EPOCHS, text.as_bytes())
}

/// Reads the topic id from `partition.metadata`; `None` when the file is absent.
///
/// # Errors
/// [`LogError::CorruptFile`] when it does not hold together.
pub fn read_topic_id<D: Disk>(disk: &D, dir: &Path) -> Result<Option<TopicId>> {
    let path = dir.join(PARTITION_METADATA);
    let Some(text) = read_text(disk, &path)? else {
        return Ok(None);
    };
    let mut id = None;
    for (number, line) in text.lines().enumerate() {
        match line.split_once(": ") {
            Some(("version", "0")) => {}
            Some(("topic_id", text)) => {
                let parsed = Uuid::from_base64(text.trim());
                id = Some(parsed.ok_or_else(|| malformed(&path, number, "bad topic id"))?);
            }
            _ => return Err(malformed(&path, number, "unexpected line")),
        }
    }
    id.map(Some).ok_or_else(|| malformed(&path, 0, "no topic id"))
}

/// Writes `partition.metadata`.
pub fn write_topic_id<D: Disk>(disk: &D, dir: &Path, topic_id: TopicId) -> Result<()> {
    let text = format!("version: 0\ntopic_id: {topic_id}");
    write_atomically(disk, dir, PARTITION_METADATA, text.as_bytes())
}

/// `meta.properties`, version 1: whose log directory this is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaProperties {
    /// The cluster's id, text of 22 characters as a rule.
    pub cluster_id: String,
    /// The node that owns the directory.
    pub node_id: NodeId,
    /// The directory's own id (KIP-858); zero when the file has none.
    pub directory_id: Uuid,
}

/// Reads `meta.properties`; `None` when the file is absent.
///
/// # Errors
/// [`LogError::CorruptFile`] when a needed entry is missing or malformed, or the version is not 1.
pub fn read_meta_properties<D: Disk>(disk: &D, dir: &Path) -> Result<Option<MetaProperties>> {
    let path = dir.join(META_PROPERTIES);
    let Some(text) = read_text(disk, &path)? else {
        return Ok(None);
    };
    let mut entries = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        if let Some((key, value)) = line.split_once(['=', ':']) {
            // The properties format escapes these two inside a value.
            let value = value.trim().replace("\\=", "=").replace("\\:", ":");
            entries.insert(key.trim().to_string(), value);
        }
    }
    let entry = |key: &str| {
        let missing = || malformed(&path, 0, &format!("{key} is missing"));
        entries.get(key).cloned().ok_or_else(missing)
    };
    if entry("version")? != "1" {
        return Err(malformed(&path, 0, "only version 1 is supported"));
    }
    let node_id = entry("node.id")?;
    let node_id = node_id.parse().map_err(|_| malformed(&path, 0, "bad node.id"))?;
    let directory_id = match entries.get("directory.id") {
        None => Uuid::ZERO,
        Some(text) => {
            Uuid::from_base64(text).ok_or_else(|| malformed(&path, 0, "bad directory.id"))?
        }
    };
    Ok(Some(MetaProperties {
        cluster_id: entry("cluster.id")?,
        node_id: NodeId(node_id),
        directory_id,
    }))
}

/// Writes `meta.properties`.
pub fn write_meta_properties<D: Disk>(disk: &D, dir: &Path, meta: &MetaProperties) -> Result<()> {
    let text = format!(
        "#\nnode.id={}\ndirectory.id={}\nversion=1\ncluster.id={}\n",
        meta.node_id, meta.directory_id, meta.cluster_id
    );
    write_atomically(disk, dir, META_PROPERTIES, text.as_bytes())
}

/// What a clean stop left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanShutdown {
    /// The broker epoch of the stopped broker; -1 when the file does not say.
    pub broker_epoch: BrokerEpoch,
}

/// Reads the marker of a clean stop; `None` when there was none. A marker without a readable
/// broker epoch still proves a clean stop.
pub fn read_clean_shutdown<D: Disk>(disk: &D, dir: &Path) -> Result<Option<CleanShutdown>> {
    let text = match read_text(disk, &dir.join(CLEAN_SHUTDOWN)) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(LogError::CorruptFile { .. }) => String::new(),
        Err(error) => return Err(error),
    };
    let broker_epoch = text
        .split_once("\"brokerEpoch\":")
        .and_then(|(_, rest)| {
            let end = rest.find([',', '}'])?;
            rest[..end].trim().parse().ok()
        })
        .map_or(BrokerEpoch::NONE, BrokerEpoch);
    Ok(Some(CleanShutdown { broker_epoch }))
}

/// Writes the marker of a clean stop. Everything else must be on disk before.
pub fn write_clean_shutdown<D: Disk>(disk: &D, dir: &Path, epoch: BrokerEpoch) -> Result<()> {
    let text = format!("{{\"version\":0,\"brokerEpoch\":{epoch}}}");
    write_atomically(disk, dir, CLEAN_SHUTDOWN, text.as_bytes())
}

/// Removes the marker of a clean stop, durably, before a log may change.
pub fn remove_clean_shutdown<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let path = dir.join(CLEAN_SHUTDOWN);
    match disk.remove_file(&path) {
        Ok(()) => disk.sync_dir(dir).at("sync", dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).at("remove", &path),
    }
}
