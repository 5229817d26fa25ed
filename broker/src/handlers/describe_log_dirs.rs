//! DescribeLogDirs (KIP-113): the log directories of this broker and what lies in them.
//!
//! A directory that failed says KAFKA_STORAGE_ERROR and nothing else. A partition is listed when the
//! request asks for it (null: for all); partitions that are not here are left out. Versions: 3 has an
//! error at the top, which only access control sets; 4 the size of the volume and the room on it, -1
//! where they are not known; 5 whether the directory is cordoned, which none is. Replicas do not move
//! between directories, so none is a future one.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ErrorCode;
use protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use storage::Disk;

use crate::core::BrokerCore;
use crate::core::replicas::Partition;

pub(super) fn handle<D: Disk>(
    core: &BrokerCore<D>,
    request: &DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let partitions = core.replicas.online_partitions();
    let dirs = core.replicas.describe_dirs();
    let asked_for = asked_partitions(request);
    let results = dirs.into_iter().enumerate().map(|(at, dir)| {
        if dir.is_offline {
            return DescribeLogDirsResult {
                error_code: ErrorCode::KafkaStorageError.code(),
                log_dir: dir.path,
                ..DescribeLogDirsResult::default()
            };
        }
        let here = partitions.iter().filter(|partition| partition.dir() == at);
        let asked = here.filter(|partition| {
            let name = &partition.id().topic_partition;
            let key = (name.topic.as_ref(), name.partition);
            asked_for.as_ref().is_none_or(|asked_for| asked_for.contains(&key))
        });
        let space = dir.space.unwrap_or(storage::DiskSpace { total_bytes: -1, usable_bytes: -1 });
        DescribeLogDirsResult {
            log_dir: dir.path,
            topics: by_topic(asked.map(|partition| &**partition)),
            total_bytes: space.total_bytes,
            usable_bytes: space.usable_bytes,
            ..DescribeLogDirsResult::default()
        }
    });
    DescribeLogDirsResponse { results: results.collect(), ..DescribeLogDirsResponse::default() }
}

/// The partitions that the request names; `None` for all. A set: a request may name a million, and a
/// broker may have thousands to compare with them.
fn asked_partitions(request: &DescribeLogDirsRequest) -> Option<BTreeSet<(&str, i32)>> {
    let topics = request.topics.as_ref()?;
    let partitions = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| (topic.topic.as_str(), *partition))
    });
    Some(partitions.collect())
}

fn by_topic<'a, D: Disk>(
    partitions: impl Iterator<Item = &'a Partition<D>>,
) -> Vec<DescribeLogDirsTopic> {
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in partitions {
        let name = &partition.id().topic_partition;
        let replica = partition.lock();
        let high_watermark = replica.state.high_watermark().offset.get();
        let behind = high_watermark - replica.log.log_end_offset().get();
        topics.entry(name.topic.to_string()).or_default().push(DescribeLogDirsPartition {
            partition_index: name.partition,
            partition_size: i64::try_from(replica.log.size_bytes()).unwrap_or(i64::MAX),
            offset_lag: behind.max(0),
            is_future_key: false,
            ..DescribeLogDirsPartition::default()
        });
    }
    let topics = topics.into_iter().map(|(name, partitions)| DescribeLogDirsTopic {
        name,
        partitions,
        ..DescribeLogDirsTopic::default()
    });
    topics.collect()
}

#[cfg(test)]
mod tests {
    use protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
    use protocol::records::ProducerStamp;

    use super::*;
    use crate::handlers::testing::{TestBroker, batch, produce};

    fn ask(
        broker: &TestBroker,
        version: i16,
        topics: Option<&[(&str, &[i32])]>,
    ) -> DescribeLogDirsResult {
        let topics = topics.map(|topics| {
            let topics = topics.iter().map(|(name, partitions)| DescribableLogDirTopic {
                topic: (*name).to_owned(),
                partitions: partitions.to_vec(),
                ..DescribableLogDirTopic::default()
            });
            topics.collect()
        });
        let mut response = broker
            .ask(version, DescribeLogDirsRequest { topics, ..DescribeLogDirsRequest::default() });
        assert_eq!(response.results.len(), 1);
        response.results.remove(0)
    }

    fn partitions(result: &DescribeLogDirsResult) -> Vec<(&str, i32, i64)> {
        let topics = result.topics.iter();
        topics
            .flat_map(|topic| {
                let of = topic.partitions.iter();
                of.map(|p| (topic.name.as_str(), p.partition_index, p.partition_size))
            })
            .collect()
    }

    #[test]
    fn partitions_here_are_told_with_their_size_when_asked_for_or_when_all_are() {
        let broker = TestBroker::new();
        broker.add_topic("t", 1, &[(1, &[1]), (1, &[1, 2]), (2, &[2])]);
        broker.add_topic("a", 2, &[(1, &[1])]);
        let bytes = batch(&[1, 2], ProducerStamp::NONE);
        let size = bytes.len() as i64;
        broker.ask(9, produce(1, "t", &[(1, bytes)]));
        let all = ask(&broker, 5, None);
        assert_eq!(partitions(&all), [("a", 0, 0), ("t", 0, 0), ("t", 1, size)]);
        assert_eq!(all.log_dir, broker.dir.path().display().to_string());
        assert!(all.total_bytes >= all.usable_bytes && all.usable_bytes > 0);
        assert!(!all.is_cordoned);
        let some = ask(&broker, 1, Some(&[("t", &[1, 2, 9]), ("nowhere", &[0])]));
        assert_eq!(partitions(&some), [("t", 1, size)]);
        let none = ask(&broker, 4, Some(&[]));
        assert_eq!((none.error_code, partitions(&none)), (0, Vec::new()));
    }
}
