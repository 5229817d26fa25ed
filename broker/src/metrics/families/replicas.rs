//! The replica manager as a whole: how many partitions in which state, ISR changes and truncations,
//! purgatories, fetch sessions, log directories and the log cleaner.

use std::time::Duration;

use replication::time::Instant;
use storage::Disk;

use super::partitions::PartitionFacts;
use super::{ShownHistogram, add_histograms};
use crate::core::BrokerCore;
use crate::core::replicas::ReplicaManager;
use crate::metrics::recent::RecentQuantiles;
use crate::metrics::syncs;
use crate::metrics::text::{Labels, Page};
use crate::metrics::trace_counts::TraceNumbers;

pub(in crate::metrics) fn add<D: Disk>(
    page: &mut Page,
    core: &BrokerCore<D>,
    partitions: &[PartitionFacts],
    trace: &TraceNumbers,
    now: Instant,
) {
    let replicas = &core.replicas;
    add_partition_counts(page, replicas, partitions);
    add_isr_changes(page, trace);
    add_purgatories(page, replicas);
    add_sessions(page, replicas);
    add_dirs(page, replicas);
    add_cleaner(page, replicas, now);
}

fn add_partition_counts<D: Disk>(
    page: &mut Page,
    replicas: &ReplicaManager<D>,
    partitions: &[PartitionFacts],
) {
    let manager = |name: &str| format!("kafka_server_replicamanager_{name}");
    let count = |is: fn(&PartitionFacts) -> bool| partitions.iter().filter(|one| is(one)).count();
    let offline = replicas.offline_count();
    let node = replicas.node();
    let directory = replicas.directory();
    let reassigning = directory.image.partitions().filter(|(_, _, image)| {
        let moves = !image.adding_replicas.is_empty() || !image.removing_replicas.is_empty();
        image.leader == node && moves
    });
    for (name, help, number) in [
        ("partitioncount", "Partitions that have a replica here.", partitions.len() + offline),
        ("leadercount", "Partitions led here.", count(|one| one.is_leader)),
        ("offlinereplicacount", "Replicas whose log directory failed.", offline),
        (
            "underreplicatedpartitions",
            "Partitions led here whose ISR lacks replicas.",
            count(|one| one.is_under_replicated),
        ),
        (
            "underminisrpartitioncount",
            "Partitions led here whose ISR is smaller than min.insync.replicas.",
            count(|one| one.is_under_min_isr),
        ),
        (
            "atminisrpartitioncount",
            "Partitions led here whose ISR is exactly min.insync.replicas.",
            count(|one| one.is_at_min_isr),
        ),
        ("reassigningpartitions", "Partitions led here that are moving.", reassigning.count()),
        (
            "produceridcount",
            "Producer ids that the logs here remember.",
            partitions.iter().map(|one| one.producers).sum(),
        ),
    ] {
        page.gauge(&manager(name), help, number);
    }
}

fn add_isr_changes(page: &mut Page, trace: &TraceNumbers) {
    let manager = |name: &str| format!("kafka_server_replicamanager_{name}");
    page.meter(&manager("isrshrinks"), "ISRs that became smaller.", trace.isr_shrinks.get());
    page.meter(&manager("isrexpands"), "ISRs that became larger.", trace.isr_expands.get());
    page.meter(
        &manager("failedisrupdates"),
        "ISR changes that the controller did not take.",
        trace.failed_isr_updates.get(),
    );
    let truncations = trace.truncations();
    let samples = truncations.iter().map(|((partition, reason), count)| {
        let index = partition.partition.to_string();
        let labels = [("topic", &*partition.topic), ("partition", &*index), ("reason", *reason)];
        (Labels::of(&labels), *count)
    });
    page.counters(
        "highwater_truncations_total",
        "Logs cut by a follower: where the leader's epochs end, or up to its log start.",
        samples,
    );
    page.counter(
        "highwater_records_truncated_total",
        "Records cut off that the leader does not have.",
        trace.records_truncated.get(),
    );
}

fn add_purgatories<D: Disk>(page: &mut Page, replicas: &ReplicaManager<D>) {
    let purgatories = replicas.purgatories();
    let of = |name: &str| Labels::of(&[("delayedOperation", name)]);
    page.gauges(
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "Requests that wait.",
        purgatories.iter().map(|(name, numbers)| (of(name), numbers.delayed)),
    );
    page.gauges(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Places in the watch lists, of requests that are over as well.",
        purgatories.iter().map(|(name, numbers)| (of(name), numbers.watched)),
    );
    let completed = purgatories.iter().flat_map(|(name, numbers)| {
        let completed = numbers.completed;
        [
            (of(name).and("by", "event"), completed.by_event),
            (of(name).and("by", "timeout"), completed.by_deadline),
            (of(name).and("by", "disconnect"), completed.cancelled),
        ]
    });
    page.counters(
        "highwater_purgatory_completed_total",
        "Requests that waited, by what ended it.",
        completed.collect::<Vec<_>>(),
    );
}

fn add_sessions<D: Disk>(page: &mut Page, replicas: &ReplicaManager<D>) {
    let cache = |name: &str| format!("kafka_server_fetchsessioncache_{name}");
    let sessions = replicas.sessions();
    page.gauge(
        &cache("numincrementalfetchsessions"),
        "Fetch sessions that are open.",
        sessions.session_count(),
    );
    page.gauge(
        &cache("numincrementalfetchpartitionscached"),
        "Partitions in them.",
        sessions.partition_count(),
    );
    page.meter(
        &cache("incrementalfetchsessionevictions"),
        "Fetch sessions that made way for others.",
        sessions.eviction_count(),
    );
}

fn add_dirs<D: Disk>(page: &mut Page, replicas: &ReplicaManager<D>) {
    let dirs = replicas.describe_dirs();
    let offline = dirs.iter().filter(|dir| dir.is_offline).count();
    page.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        offline,
    );
    let of = |path: &str| Labels::of(&[("logDirectory", path)]);
    page.gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        "Whether a log directory failed.",
        dirs.iter().map(|dir| (of(&dir.path), dir.is_offline)),
    );
    page.gauges(
        "highwater_log_directory_usable_bytes",
        "The room left on a log directory's volume.",
        dirs.iter().filter_map(|dir| Some((of(&dir.path), dir.space?.usable_bytes))),
    );
}

/// How long the disk takes.
pub(in crate::metrics) fn add_syncs(
    page: &mut Page,
    recent: &mut RecentQuantiles<()>,
    now: Instant,
) {
    let all = syncs::snapshot();
    let recent = recent.recent((), &all, now);
    add_histograms(
        page,
        "kafka_log_logflushstats_logflushrateandtimems",
        "Times to make a file durable, in milliseconds, for the whole process.",
        1000.0,
        &[ShownHistogram { labels: Labels::none(), all, recent }],
    );
}

fn add_cleaner<D: Disk>(page: &mut Page, replicas: &ReplicaManager<D>, now: Instant) {
    let counts = &replicas.counts().cleaner;
    let manager = |name: &str| format!("kafka_log_logcleanermanager_{name}");
    let uncleanable = replicas.uncleanable();
    let dirs = replicas.describe_dirs();
    let of_dir = dirs.iter().enumerate().map(|(at, dir)| {
        let here = uncleanable.iter().filter(|(in_dir, _)| *in_dir == at).count();
        (Labels::of(&[("logDirectory", &dir.path)]), here)
    });
    page.gauges(
        &manager("uncleanable_partitions_count"),
        "Damaged logs that the cleaner leaves alone.",
        of_dir.collect::<Vec<_>>(),
    );
    page.gauge(
        &manager("max_dirty_percent"),
        "The dirty part of the dirtiest log when the cleaner last looked, in percent.",
        counts.max_dirty_percent.get(),
    );
    let ran = Instant(Duration::from_millis(counts.last_run_ms.get()));
    page.gauge(
        &manager("time_since_last_run_ms"),
        "How long ago the cleaner looked for work, in milliseconds.",
        now.since(ran).as_millis() as u64,
    );
    let cleaner = |name: &str| format!("kafka_log_logcleaner_{name}");
    page.gauge(
        &cleaner("cleaner_recopy_percent"),
        "How much of what the last cleaning read was written again, in percent.",
        counts.recopy_percent.get(),
    );
    page.gauge(
        &cleaner("max_clean_time_secs"),
        "How long the last cleaning took, in seconds.",
        counts.last_clean_ms.get() / 1000,
    );
    page.gauge(
        &cleaner("max_compaction_delay_secs"),
        "By how much the most overdue log had passed max.compaction.lag.ms, in seconds.",
        counts.max_compaction_delay_ms.get() / 1000,
    );
    page.gauge(
        &cleaner("deadthreadcount"),
        "Cleaners that failed and do no more until the next start.",
        counts.dead.get(),
    );
    page.counter("highwater_logs_cleaned_total", "Logs cleaned.", counts.cleaned.get());
}
