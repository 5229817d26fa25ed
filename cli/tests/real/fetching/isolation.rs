//! What each isolation level sees of transactions (F03, X03), on a log that Apache Kafka wrote: six transactions of
//! five records, every second of them aborted, at offsets 0 to 35. The answers are those that Kafka 4.4.0 gave
//! from the same files.

use std::path::{Path, PathBuf};

use protocol::messages::FetchRequest;
use protocol::messages::fetch_request::FetchPartition;
use testkit::client::Client;
use testkit::real::Cluster;

use super::{IDS, NAMES, Named, batches_of, fetch, one_node, only, part, wait_until_led};

const TOPIC: &str = "transfers";
/// Where the second transaction has written three records and is not ended; its log ends at 9.
const WITHIN_SECOND_BYTES: u64 = 1254;

fn golden() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/golden/logdir")
        .join(format!("{TOPIC}-0"));
    if !folder.exists() {
        println!("SKIPPED: no log of Kafka at {}", folder.display());
        return None;
    }
    Some(folder)
}

/// A node that crashed and found these files where its log had been; it recovers them.
fn node_with(files: &[(&str, Option<u64>)]) -> Option<(Cluster, Client, Named)> {
    let golden = golden()?;
    let (mut cluster, client, topic) = one_node(TOPIC, 1, &[]);
    drop(client);
    cluster.kill(1).expect("killed");
    let folder = cluster.data_folder(1).join(format!("{TOPIC}-0"));
    for file in std::fs::read_dir(&folder).expect("the log").map(|file| file.expect("listed")) {
        if file.file_name() != "partition.metadata" {
            std::fs::remove_file(file.path()).expect("removed");
        }
    }
    for (name, length) in files {
        let mut bytes = std::fs::read(golden.join(name)).expect("Kafka's file");
        bytes.truncate(length.map_or(usize::MAX, |length| length as usize));
        std::fs::write(folder.join(name), bytes).expect("written");
    }
    cluster.start(1).expect("started");
    cluster.wait_until_all_live().expect("ready");
    wait_until_led(&mut cluster, TOPIC, 1);
    let client = cluster.client(1).expect("a client");
    Some((cluster, client, topic))
}

/// What a fetch of one isolation level was told.
#[derive(PartialEq, Eq, Debug)]
struct Told {
    high_watermark: i64,
    last_stable: i64,
    /// First and last offset that came.
    offsets: Option<(i64, i64)>,
    /// Producer and first offset of each; `None` for null.
    aborted: Option<Vec<(i64, i64)>>,
}

fn ask(
    client: &mut Client,
    topic: &Named,
    version: i16,
    isolation_level: i8,
    part: FetchPartition,
) -> Told {
    let request = FetchRequest { isolation_level, ..fetch(vec![topic.with(vec![part])]) };
    let data = only(client.call(version, request).expect("an answer"));
    assert_eq!(data.error_code, 0);
    let batches = batches_of(&data);
    let aborted = data.aborted_transactions.map(|aborted| {
        aborted.iter().map(|aborted| (aborted.producer_id, aborted.first_offset)).collect()
    });
    Told {
        high_watermark: data.high_watermark,
        last_stable: data.last_stable_offset,
        offsets: batches.first().zip(batches.last()).map(|(first, last)| (first.0, last.1)),
        aborted,
    }
}

#[test]
fn f03_x03_read_committed_is_told_of_the_aborted_transactions_among_what_it_gets_and_others_of_none()
 {
    let files = ["00000000000000000000.log", "00000000000000000030.log"].map(|name| (name, None));
    let Some((_cluster, mut client, topic)) = node_with(&files) else { return };
    for version in [4, NAMES, IDS] {
        let mut told = |isolation, part| ask(&mut client, &topic, version, isolation, part);
        let all = |offsets: (i64, i64), aborted: Option<&[i64]>| Told {
            high_watermark: 36,
            last_stable: 36,
            offsets: Some(offsets),
            aborted: aborted.map(|firsts| firsts.iter().map(|first| (1, *first)).collect()),
        };
        // A fetch reads one segment; what is not asked for is null.
        assert_eq!(told(0, part(0, 0)), all((0, 29), None), "version {version}");
        assert_eq!(told(1, part(0, 0)), all((0, 29), Some(&[6, 18])));
        assert_eq!(told(1, part(0, 30)), all((30, 35), Some(&[30])));
        // Within a transaction that was aborted, and behind its marker.
        assert_eq!(told(1, part(0, 8)), all((8, 29), Some(&[6, 18])));
        assert_eq!(told(1, part(0, 12)), all((12, 29), Some(&[18])));
        // With a limit, what the index says of the end of what came: here it has no entry before the segment's end.
        let few = |at, bytes| FetchPartition { partition_max_bytes: bytes, ..part(0, at) };
        assert_eq!(told(1, few(0, 300)), all((0, 1), Some(&[6, 18])));
        assert_eq!(told(1, few(4, 400)), all((4, 6), Some(&[6, 18])));
    }
}

#[test]
fn f03_x03_read_committed_sees_nothing_of_a_transaction_that_is_not_ended() {
    let files = [("00000000000000000000.log", Some(WITHIN_SECOND_BYTES))];
    let Some((_cluster, mut client, topic)) = node_with(&files) else { return };
    for version in [4, NAMES, IDS] {
        let mut told = |isolation, at| ask(&mut client, &topic, version, isolation, part(0, at));
        let marks = |offsets, aborted| Told { high_watermark: 9, last_stable: 6, offsets, aborted };
        assert_eq!(told(0, 0), marks(Some((0, 8)), None), "version {version}");
        assert_eq!(told(1, 0), marks(Some((0, 5)), Some(Vec::new())));
        assert_eq!(told(1, 6), marks(None, Some(Vec::new())));
        assert_eq!(told(0, 6), marks(Some((6, 8)), None));
        // Between the last stable offset and the high watermark there is nothing to see, and nothing is wrong.
        assert_eq!(told(1, 8), marks(None, Some(Vec::new())));
    }
}
