//! A folder that Kafka wrote opens, reads as Kafka's own dump says, gets the same indexes when they
//! are made anew, and goes on.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::records::BatchViews;
use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, ProducerId, TopicPartition, Uuid};
use storage::{
    Disk, Identity, LoadOptions, LoadedLogs, Log, LogConfig, LogDir, LogDirError, RealDisk,
};

use crate::common::{append, copy_folder, golden, now, producer_batch, read_all, records};

fn identity() -> Identity {
    Identity { cluster_id: "6thVZBuMis8HzxDZlhdOnw".into(), node_id: NodeId(1) }
}

fn config(_: &TopicPartition) -> LogConfig {
    LogConfig {
        segment_bytes: 4096,
        index_interval_bytes: 200,
        producer_id_expiration: std::time::Duration::from_secs(u64::MAX / 4000),
        ..LogConfig::default()
    }
}

fn load(root: &Path) -> (LogDir<RealDisk>, LoadedLogs<RealDisk>) {
    let dir = LogDir::open(&RealDisk, root, &identity(), Uuid::ZERO).expect("ours");
    let options = LoadOptions { config_of: &config, threads: 2 };
    let loaded = dir.load(options, now(1_796_011_700_000)).expect("loads");
    (dir, loaded)
}

fn log_of<'a>(loaded: &'a mut LoadedLogs<RealDisk>, topic: &str) -> &'a mut Log<RealDisk> {
    let found = loaded.logs.iter_mut().find(|log| &*log.topic_partition().topic == topic);
    found.expect("the partition is there")
}

/// The lines of the dump, by file.
fn dump(root: &Path) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root.join("DUMP.txt")).expect("the dump");
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        match line.strip_prefix("==  ") {
            Some(name) => current = name.to_string(),
            None => files.entry(current.clone()).or_default().push(line.to_string()),
        }
    }
    files
}

/// The value after `key: ` in a line of the dump.
fn field<'a>(line: &'a str, key: &str) -> &'a str {
    let (_, rest) = line.split_once(&format!("{key}: ")).expect("the key is there");
    rest.split(' ').next().expect("a value")
}

/// Batches of one partition as the dump and as our reads describe them.
fn compare_batches(log: &Log<RealDisk>, lines: &[&String]) {
    let bytes = read_all(log, Offset(0));
    let mut described = lines.iter().filter(|line| line.starts_with("baseOffset: "));
    let mut seen = 0;
    for view in BatchViews::new(&bytes) {
        let view = view.expect("whole");
        view.check_crc().expect("intact");
        let line = described.next().expect("as many batches as in the dump");
        for (key, value) in [
            ("baseOffset", view.base_offset().0),
            ("lastOffset", view.last_offset().0),
            ("count", view.count().into()),
            ("baseSequence", view.base_sequence().into()),
            ("producerId", view.producer_id().0),
            ("producerEpoch", view.producer_epoch().0.into()),
            ("partitionLeaderEpoch", view.partition_leader_epoch().0.into()),
            ("CreateTime", view.max_timestamp()),
            ("size", view.size_in_bytes() as i64),
            ("crc", view.crc().into()),
        ] {
            assert_eq!(field(line, key), value.to_string(), "{key} in {line}");
        }
        assert_eq!(field(line, "isTransactional"), view.is_transactional().to_string());
        assert_eq!(field(line, "isControl"), view.is_control().to_string());
        let place = log.offset_metadata(view.base_offset()).expect("found");
        assert_eq!(field(line, "position"), place.position.to_string());
        seen += 1;
    }
    assert!(described.next().is_none(), "more in the dump than the {seen} batches read");
    let described: Vec<(i64, i64)> = lines
        .iter()
        .filter(|line| line.starts_with("| offset: "))
        .map(|line| {
            let time = field(line, "CreateTime").parse().expect("a number");
            (field(line, "offset").parse().expect("a number"), time)
        })
        .collect();
    assert_eq!(records(&bytes), described);
}

fn lines_of<'a>(
    dump: &'a BTreeMap<String, Vec<String>>,
    partition: &str,
    extension: &str,
) -> Vec<&'a String> {
    let files =
        dump.iter().filter(|(name, _)| name.starts_with(partition) && name.ends_with(extension));
    files.flat_map(|(_, lines)| lines).collect()
}

#[test]
fn kafkas_folder_reads_as_its_dump_says_and_goes_on() {
    let Some(golden) = golden() else { return };
    let root = tempfile::tempdir().expect("a folder");
    copy_folder(&golden, root.path());
    let dump = dump(root.path());
    let (dir, mut loaded) = load(root.path());
    assert_eq!(dir.clean_shutdown().map(|stop| stop.broker_epoch), Some(BrokerEpoch(202)));
    assert!(!RealDisk.exists(&root.path().join(".kafka_cleanshutdown")).expect("looked"));
    assert_eq!(loaded.high_watermarks.get(&TopicPartition::new("orders", 0)), Some(&Offset(63)));
    assert_eq!(loaded.logs.len(), 2);

    let transfers = log_of(&mut loaded, "transfers");
    compare_batches(transfers, &lines_of(&dump, "transfers-0", ".log"));
    let aborted = transfers.aborted_transactions(Offset(0), Offset(36)).expect("searched");
    let described = lines_of(&dump, "transfers-0", ".txnindex");
    assert_eq!(aborted.len(), described.len());
    for (txn, line) in aborted.iter().zip(described) {
        assert_eq!(field(line, "producerId"), txn.producer_id.to_string());
        assert_eq!(field(line, "firstOffset"), txn.first_offset.to_string());
        assert_eq!(field(line, "lastOffset"), txn.last_offset.to_string());
        assert_eq!(field(line, "lastStableOffset"), txn.last_stable_offset.to_string());
    }

    let orders = log_of(&mut loaded, "orders");
    compare_batches(orders, &lines_of(&dump, "orders-0", ".log"));
    assert_eq!(orders.topic_id(), Uuid::from_base64("HmSV0z2wTEGszdxrbhM_IQ"));
    assert_eq!(crate::common::epochs(orders), [(0, 0), (2, 60)]);
    assert_eq!(orders.recovery_point(), Offset(63));
    let known = orders.producers().entry(ProducerId(0)).expect("known");
    assert_eq!(known.last_sequence(), 59);
    let info = append(orders, &producer_batch(0, 60, 3, false), 4);
    assert_eq!((info.base_offset, info.last_offset), (Offset(63), Offset(65)));
    dir.shut_down(loaded.logs.iter_mut(), &loaded.high_watermarks, BrokerEpoch(300))
        .expect("stops");
    drop((dir, loaded));

    let (dir, mut loaded) = load(root.path());
    assert_eq!(dir.clean_shutdown().map(|stop| stop.broker_epoch), Some(BrokerEpoch(300)));
    let orders = log_of(&mut loaded, "orders");
    assert_eq!(orders.log_end_offset(), Offset(66));
    assert_eq!(orders.latest_epoch(), Some(LeaderEpoch(4)));
    assert_eq!(
        orders.producers().entry(ProducerId(0)).map(|known| known.last_sequence()),
        Some(62)
    );
}

#[test]
fn indexes_made_anew_equal_those_that_kafka_wrote() {
    let Some(golden) = golden() else { return };
    let root = tempfile::tempdir().expect("a folder");
    copy_folder(&golden, root.path());
    // The last segment of orders saw a restart, after which Kafka counts its interval from zero.
    let segments = [("orders-0", [0, 32]), ("transfers-0", [0, 30])];
    for (partition, bases) in segments {
        for base in bases {
            for extension in ["index", "timeindex", "txnindex"] {
                let path = root.path().join(partition).join(format!("{base:020}.{extension}"));
                let _ = std::fs::remove_file(path);
            }
        }
    }
    std::fs::remove_file(root.path().join(".kafka_cleanshutdown")).expect("removed");
    std::fs::remove_file(root.path().join("recovery-point-offset-checkpoint")).expect("removed");
    let (dir, mut loaded) = load(root.path());
    assert_eq!(dir.clean_shutdown(), None);
    for log in &mut loaded.logs {
        log.close().expect("closes");
    }
    for (partition, bases) in segments {
        for base in bases {
            for extension in ["index", "timeindex"] {
                let name = format!("{partition}/{base:020}.{extension}");
                let ours = std::fs::read(root.path().join(&name)).expect("written");
                assert_eq!(ours, std::fs::read(golden.join(&name)).expect("there"), "{name}");
            }
        }
    }
    let name = "transfers-0/00000000000000000000.txnindex";
    let ours = std::fs::read(root.path().join(name)).expect("written");
    assert_eq!(ours, std::fs::read(golden.join(name)).expect("there"));
    let transfers = log_of(&mut loaded, "transfers");
    let aborted = transfers.aborted_transactions(Offset(0), Offset(36)).expect("searched");
    let firsts: Vec<i64> = aborted.iter().map(|txn| txn.first_offset.0).collect();
    assert_eq!(firsts, [6, 18, 30]);
}

#[test]
fn the_folder_of_another_cluster_or_node_is_refused() {
    let Some(golden) = golden() else { return };
    let root = tempfile::tempdir().expect("a folder");
    copy_folder(&golden, root.path());
    let other = Identity { cluster_id: "another".into(), ..identity() };
    let refused = LogDir::open(&RealDisk, root.path(), &other, Uuid::ZERO);
    assert!(matches!(refused, Err(LogDirError::WrongCluster { .. })), "{refused:?}");
    let other = Identity { node_id: NodeId(2), ..identity() };
    let refused = LogDir::open(&RealDisk, root.path(), &other, Uuid::ZERO);
    assert!(matches!(refused, Err(LogDirError::WrongNode { .. })), "{refused:?}");
}
