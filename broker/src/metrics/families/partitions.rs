//! Every partition that has a replica here: its replication as its leader sees it (0 on followers, as with
//! Kafka), its log, and what Kafka has no name for.
//!
//! Each partition is looked at once, under its lock, and for no longer than its numbers take.

use protocol::NodeId;
use replication::time::Instant;
use storage::Disk;

use crate::core::replicas::{Partition, ReplicaManager};
use crate::metrics::text::{Labels, Page, Value};

/// A follower as its leader knows it.
struct Follower {
    id: NodeId,
    fetch_offset: i64,
    caught_up_ms_ago: Option<u64>,
}

/// A partition at one moment.
pub(in crate::metrics) struct PartitionFacts {
    labels: Labels,
    pub(in crate::metrics) is_leader: bool,
    pub(in crate::metrics) is_under_replicated: bool,
    pub(in crate::metrics) is_under_min_isr: bool,
    pub(in crate::metrics) is_at_min_isr: bool,
    pub(in crate::metrics) producers: usize,
    isr: usize,
    replicas: usize,
    isr_is_pending: bool,
    leader_epoch: i32,
    partition_epoch: i32,
    log_start: i64,
    log_end: i64,
    high_watermark: i64,
    last_stable_offset: i64,
    segments: usize,
    size_bytes: u64,
    followers: Vec<Follower>,
}

/// Looks at every partition that works.
pub(in crate::metrics) fn look<D: Disk>(
    replicas: &ReplicaManager<D>,
    now: Instant,
) -> Vec<PartitionFacts> {
    let partitions = replicas.online_partitions();
    partitions.iter().map(|partition| look_at(partition, now)).collect()
}

fn look_at<D: Disk>(partition: &Partition<D>, now: Instant) -> PartitionFacts {
    let name = &partition.id().topic_partition;
    let index = name.partition.to_string();
    let labels = Labels::of(&[("topic", &name.topic), ("partition", &index)]);
    let replica = partition.lock();
    let (state, log) = (&replica.state, &replica.log);
    let followers = state.followers().map(|(id, follower)| Follower {
        id,
        fetch_offset: follower.log_end.offset.get(),
        caught_up_ms_ago: follower
            .last_caught_up_time
            .map(|at| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX)),
    });
    let is_leader = state.is_leader();
    PartitionFacts {
        labels,
        is_leader,
        is_under_replicated: state.is_under_replicated(),
        is_under_min_isr: state.is_under_min_isr(),
        is_at_min_isr: state.is_at_min_isr(),
        producers: log.producers().len(),
        isr: state.isr().map_or(0, |isr| isr.effective().len()),
        replicas: if is_leader { state.replicas().len() } else { 0 },
        isr_is_pending: state.isr().is_some_and(|isr| isr.in_flight().is_some()),
        leader_epoch: state.leader_epoch().get(),
        partition_epoch: state.partition_epoch().get(),
        log_start: log.log_start_offset().get(),
        log_end: log.log_end_offset().get(),
        high_watermark: state.high_watermark().offset.get(),
        last_stable_offset: state.last_stable_offset(&replica.facts()).offset.get(),
        segments: log.segment_count(),
        size_bytes: log.size_bytes(),
        followers: followers.collect(),
    }
}

type Number = fn(&PartitionFacts) -> Value;

const GAUGES: [(&str, &str, Number); 16] = [
    ("kafka_cluster_partition_underreplicated", "Whether the ISR lacks replicas.", |facts| {
        facts.is_under_replicated.into()
    }),
    (
        "kafka_cluster_partition_underminisr",
        "Whether the ISR is smaller than min.insync.replicas.",
        |facts| facts.is_under_min_isr.into(),
    ),
    (
        "kafka_cluster_partition_atminisr",
        "Whether the ISR is exactly min.insync.replicas.",
        |facts| facts.is_at_min_isr.into(),
    ),
    ("kafka_cluster_partition_insyncreplicascount", "Size of the ISR.", |facts| facts.isr.into()),
    ("kafka_cluster_partition_replicascount", "How many replicas.", |facts| facts.replicas.into()),
    (
        "kafka_cluster_partition_laststableoffsetlag",
        "How far the last stable offset is behind the high watermark.",
        |facts| (facts.high_watermark - facts.last_stable_offset).into(),
    ),
    ("kafka_log_log_logstartoffset", "The first offset of the log.", |facts| {
        facts.log_start.into()
    }),
    ("kafka_log_log_logendoffset", "The offset after the log's last.", |facts| {
        facts.log_end.into()
    }),
    ("kafka_log_log_numlogsegments", "How many segments.", |facts| facts.segments.into()),
    ("kafka_log_log_size", "Bytes of all segments.", |facts| facts.size_bytes.into()),
    ("highwater_replica_high_watermark", "The high watermark as this replica knows it.", |facts| {
        facts.high_watermark.into()
    }),
    ("highwater_replica_last_stable_offset", "The last stable offset, likewise.", |facts| {
        facts.last_stable_offset.into()
    }),
    ("highwater_replica_leader_epoch", "The leader epoch this replica is in.", |facts| {
        facts.leader_epoch.into()
    }),
    ("highwater_partition_epoch", "The partition epoch this replica is in.", |facts| {
        facts.partition_epoch.into()
    }),
    ("highwater_partition_is_leader", "Whether this broker leads.", |facts| facts.is_leader.into()),
    (
        "highwater_partition_isr_pending",
        "Whether an ISR change waits for the controller.",
        |facts| facts.isr_is_pending.into(),
    ),
];

pub(in crate::metrics) fn add(page: &mut Page, all: &[PartitionFacts]) {
    for (name, help, number) in GAUGES {
        page.gauges(name, help, all.iter().map(|facts| (facts.labels.clone(), number(facts))));
    }
    let followers = || {
        all.iter().flat_map(|facts| {
            let labels =
                |follower: &Follower| facts.labels.and("replica", &follower.id.to_string());
            facts.followers.iter().map(move |follower| (labels(follower), follower))
        })
    };
    page.gauges(
        "highwater_follower_fetch_offset",
        "The log end of a follower, as its leader here knows it.",
        followers().map(|(labels, follower)| (labels, follower.fetch_offset)),
    );
    page.gauges(
        "highwater_follower_caught_up_ms_ago",
        "How long ago a follower had all that its leader had, in milliseconds.",
        followers().filter_map(|(labels, follower)| Some((labels, follower.caught_up_ms_ago?))),
    );
}
