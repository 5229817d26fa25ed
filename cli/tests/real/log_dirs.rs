//! C08 on real processes and a real full disk: a node has two log directories, one of them on a small
//! volume of its own (a tmpfs). It fills up; the partitions in it get other leaders, the others stay,
//! and a restart with room again brings everything back. Needs the right to mount; says so and passes
//! where it has none.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::producer::RetryingProducer;
use testkit::real::Cluster;

use crate::volume::Volume;
use crate::{alone, cluster};

const TOPIC: &str = "ledger";
const PATIENCE: Duration = Duration::from_secs(45);

/// The partitions whose folders lie in `dir`.
fn partitions_in(dir: &Path) -> Vec<i32> {
    let names = fs::read_dir(dir).expect("the log directory").filter_map(|entry| {
        entry.ok()?.file_name().to_str()?.strip_prefix("ledger-")?.parse().ok()
    });
    names.collect()
}

fn offline_replicas(cluster: &Cluster, asked: i32, index: i32) -> Vec<i32> {
    let mut client = cluster.client(asked).expect("a client");
    let response = client.metadata().expect("metadata");
    let topic = response.topics.iter().find(|topic| topic.name.as_deref() == Some(TOPIC));
    let partitions = &topic.expect("the topic").partitions;
    let found = partitions.iter().find(|partition| partition.partition_index == index);
    found.expect("the partition").offline_replicas.clone()
}

#[test]
fn a_full_volume_costs_its_own_partitions_their_leader_and_they_come_back_with_room_c08() {
    let _alone = alone();
    let root = tempfile::tempdir().expect("a folder");
    let second = root.path().join("second");
    let Some(volume) = Volume::mount(&second) else {
        return;
    };
    let (first, folder) = (root.path().join("first"), second.join("data"));
    let dirs = format!("{},{}", first.display(), folder.display());
    let mut cluster = cluster()
        .set_on(1, "log.dirs", dirs)
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .set("replica.lag.time.max.ms", 3000)
        .set("log.index.size.max.bytes", 65536)
        .start()
        .expect("a cluster");
    let replicas: &[i32] = &[1, 2, 3];
    cluster.create_topic(TOPIC, &[replicas; 4], &[]).expect("a topic");
    let lost = partitions_in(&folder);
    let kept = partitions_in(&first);
    assert_eq!((lost.len(), kept.len()), (2, 2), "two partitions in each directory");
    let bootstrap = cluster.bootstrap();
    let send = |index: i32, count: usize| {
        let mut producer = RetryingProducer::new(&bootstrap, TOPIC, index).expect("a producer");
        for number in 0..count {
            let value = format!("{index}: {number} {}", "x".repeat(2000));
            producer.send(value.as_bytes(), PATIENCE).expect("acknowledged in time");
        }
    };
    for index in 0..4 {
        send(index, 5);
    }
    volume.fill();
    for index in &lost {
        // The write that meets the full volume is refused, and goes to the next leader.
        send(*index, 20);
        cluster.wait_for_isr(TOPIC, *index, &[2, 3]).expect("the ISR without node 1");
        assert_ne!(cluster.leader(TOPIC, *index).expect("a leader"), 1);
        assert_eq!(offline_replicas(&cluster, 2, *index), [1]);
    }
    for index in &kept {
        send(*index, 5);
        assert_eq!(cluster.leader(TOPIC, *index).expect("a leader"), 1);
        cluster.wait_for_isr(TOPIC, *index, replicas).expect("the whole ISR");
    }
    assert_eq!(partitions_in(&first).len(), 2, "nothing made anew there");
    let output = cluster.output(1);
    assert!(output.contains("log directory failed") && output.contains("second/data"), "{output}");
    cluster.kill(1).expect("killed");
    volume.empty();
    cluster.start(1).expect("started again");
    for index in 0..4 {
        cluster.wait_for_isr(TOPIC, index, replicas).expect("everything is back");
    }
    for index in lost {
        let log = std::fs::metadata(folder.join(format!("{TOPIC}-{index}")));
        assert!(log.is_ok(), "in its own directory");
        assert!(offline_replicas(&cluster, 2, index).is_empty());
    }
}
