//! F08: a disk that fails while records are sent takes its log directory offline, as any other read that fails
//! does (C08); the client sees its connection close, never a frame filled up with something else.
//!
//! The failing disk is a segment that is shorter than it was: someone else cut it. `sendfile` then has nothing to
//! send, and reading again finds nothing either.

use std::fs::{self, OpenOptions};

use super::slow_readers::{Ending, SlowReader, fill};
use crate::alone;

const TOPIC: &str = "damaged";
const STORAGE_ERROR: i16 = 56;

#[test]
fn f08_records_that_cannot_be_read_while_they_are_sent_take_their_directory_offline_and_no_other() {
    let _alone = alone();
    let root = tempfile::tempdir().expect("a folder");
    let dirs = [root.path().join("one"), root.path().join("two")];
    let both = format!("{},{}", dirs[0].display(), dirs[1].display());
    let mut cluster =
        crate::cluster().brokers(1).set_on(1, "log.dirs", both).start().expect("a node");
    cluster.create_topic(TOPIC, &[&[1], &[1]], &[]).expect("a topic");
    super::wait_until_led(&mut cluster, TOPIC, 2);
    let place = |partition: i32| {
        let folders = dirs.iter().map(|dir| dir.join(format!("{TOPIC}-{partition}")));
        let found: Vec<_> = folders.filter(|folder| folder.is_dir()).collect();
        assert_eq!(found.len(), 1, "partition {partition} is in {found:?}");
        found[0].clone()
    };
    assert_ne!(place(0).parent(), place(1).parent(), "a partition in each directory");
    // Not the directory with the metadata: without that a node ends.
    let failing = i32::from(place(1).starts_with(&dirs[1]));
    let working = 1 - failing;
    let mut client = cluster.client(1).expect("a client");
    fill(&mut client, TOPIC, failing, 0..24);
    let kept = fill(&mut client, TOPIC, working, 50..51);
    // A reader that goes away costs nothing but itself.
    drop(SlowReader::begin(&cluster.bootstrap(), TOPIC, failing));
    let reader = SlowReader::begin(&cluster.bootstrap(), TOPIC, failing);
    assert_eq!(client.fetch(TOPIC, failing, 0).expect("an answer").error_code, 0);
    let log = fs::read_dir(place(failing)).expect("a folder").filter_map(Result::ok);
    let log =
        log.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|it| it == "log"));
    let file = OpenOptions::new().write(true).open(log.expect("a segment")).expect("writable");
    file.set_len(1_000_000).expect("cut");
    assert!(matches!(reader.finish(), Ending::Closed(_)), "the bytes were not there to be sent");
    cluster
        .wait_for("the directory to be offline", |cluster| {
            let error = cluster.client(1)?.list_offset(TOPIC, failing, -1)?.0;
            Ok(if error == STORAGE_ERROR { Ok(()) } else { Err(format!("error {error}")) })
        })
        .expect("offline");
    for (version, error) in [(4, 6), (5, 6), (6, STORAGE_ERROR), (12, STORAGE_ERROR)] {
        let request = testkit::client::fetch_request(TOPIC, failing, 0);
        let told = client.fetch_with(version, request, TOPIC).expect("an answer");
        assert_eq!((told.error_code, told.high_watermark), (error, -1), "F06 in version {version}");
    }
    assert!(client.read_all(TOPIC, working, 0).expect("the other") == kept);
    fill(&mut client, TOPIC, working, 51..53);
    assert!(cluster.output(1).contains("log directory failed"), "{}", cluster.output(1));
}
