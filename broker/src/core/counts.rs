//! What the replica manager counts of its work, for metrics: plain numbers that only grow, by the rules
//! of Kafka's `BrokerTopicMetrics`. Nothing here decides anything.
//!
//! The numbers of a topic belong to its partitions here. When the last of them goes, they are added to
//! those of topics that are gone, so that the sum over all topics never falls.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use protocol::ErrorCode;

use crate::counting::Counter;

macro_rules! topic_numbers {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What is counted of one topic.
        #[derive(Debug, Default)]
        pub struct TopicNumbers {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// The numbers of a topic, or of many, at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct TopicTotals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl TopicNumbers {
            /// The numbers now.
            pub fn totals(&self) -> TopicTotals {
                TopicTotals { $($name: self.$name.get(),)* }
            }

            fn add(&self, totals: TopicTotals) {
                $(self.$name.add(totals.$name);)*
            }
        }

        impl TopicTotals {
            /// Adds the numbers of another topic.
            pub fn add(&mut self, other: TopicTotals) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

topic_numbers! {
    /// Records appended as the leader.
    messages_in,
    /// Bytes of their batches.
    bytes_in,
    /// Bytes of batches given to consumers.
    bytes_out,
    /// Bytes of batches refused for their size.
    bytes_rejected,
    /// Partitions named in produce requests.
    produce_requests,
    /// Of these, the ones that failed in a way that is not the everyday one.
    failed_produce_requests,
    /// Partitions read for fetch requests, of consumers and followers.
    fetch_requests,
    /// Of these, the ones that failed in a way that is not the everyday one.
    failed_fetch_requests,
}

impl TopicNumbers {
    /// A batch was appended.
    pub fn on_appended(&self, records: i64, bytes: usize) {
        self.messages_in.add(u64::try_from(records).unwrap_or(0));
        self.bytes_in.add(bytes as u64);
    }

    /// A batch of so many bytes was refused, or `NONE`.
    pub fn on_produced(&self, error: ErrorCode, bytes: usize) {
        self.produce_requests.add(1);
        match error {
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
                self.bytes_rejected.add(bytes as u64);
            }
            ErrorCode::None
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::CorruptMessage
            | ErrorCode::KafkaStorageError => {}
            _ => self.failed_produce_requests.add(1),
        }
    }

    /// A partition was looked at for a fetch.
    pub fn on_fetched(&self, error: ErrorCode) {
        self.fetch_requests.add(1);
        match error {
            ErrorCode::None
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::ReplicaNotAvailable
            | ErrorCode::OffsetOutOfRange
            | ErrorCode::KafkaStorageError => {}
            _ => self.failed_fetch_requests.add(1),
        }
    }
}

/// The numbers of one topic, as long as a partition of it is here.
#[derive(Debug)]
pub struct TopicCounts {
    numbers: TopicNumbers,
    gone: Arc<TopicNumbers>,
}

impl std::ops::Deref for TopicCounts {
    type Target = TopicNumbers;
    fn deref(&self) -> &TopicNumbers {
        &self.numbers
    }
}

impl Drop for TopicCounts {
    fn drop(&mut self) {
        self.gone.add(self.numbers.totals());
    }
}

/// What the log cleaner tells of itself.
#[derive(Debug, Default)]
pub struct CleanerCounts {
    /// Logs cleaned.
    pub cleaned: Counter,
    /// Of the last cleaning: how much of what was read was written again, in percent.
    pub recopy_percent: Counter,
    /// How long the last cleaning took, in milliseconds.
    pub last_clean_ms: Counter,
    /// The dirty part of the dirtiest log when work was last looked for, in percent.
    pub max_dirty_percent: Counter,
    /// By how much the most overdue log had passed `max.compaction.lag.ms` then.
    pub max_compaction_delay_ms: Counter,
    /// Whether the cleaner failed: 1 if it did.
    pub dead: Counter,
    /// When work was last looked for, on the monotonic clock in milliseconds.
    pub last_run_ms: Counter,
}

/// What one broker's replica manager counts.
#[derive(Debug, Default)]
pub struct ReplicaCounts {
    topics: Mutex<BTreeMap<Arc<str>, Weak<TopicCounts>>>,
    gone: Arc<TopicNumbers>,
    /// Bytes appended as a follower.
    pub replication_bytes_in: Counter,
    /// Bytes of batches given to followers.
    pub replication_bytes_out: Counter,
    /// The log cleaner.
    pub cleaner: CleanerCounts,
}

impl ReplicaCounts {
    /// The numbers of `topic`, to be kept by its partitions.
    pub fn topic(&self, topic: &Arc<str>) -> Arc<TopicCounts> {
        let mut topics = self.topics.lock();
        if let Some(known) = topics.get(topic).and_then(Weak::upgrade) {
            return known;
        }
        topics.retain(|_, counts| counts.strong_count() > 0);
        let counts =
            Arc::new(TopicCounts { numbers: TopicNumbers::default(), gone: self.gone.clone() });
        topics.insert(topic.clone(), Arc::downgrade(&counts));
        counts
    }

    /// The numbers of requests for what is not here, and of topics that are gone.
    pub fn elsewhere(&self) -> &TopicNumbers {
        &self.gone
    }

    /// The numbers of every topic here, and the sum over them and those that are gone.
    pub fn totals(&self) -> (BTreeMap<Arc<str>, TopicTotals>, TopicTotals) {
        // Held until the sum is made: a topic that goes meanwhile would be counted twice.
        let here: Vec<_> = {
            let topics = self.topics.lock();
            let alive =
                topics.iter().filter_map(|(name, counts)| Some((name.clone(), counts.upgrade()?)));
            alive.collect()
        };
        let mut all = self.gone.totals();
        let mut totals = BTreeMap::new();
        for (name, counts) in here {
            let numbers = counts.totals();
            all.add(numbers);
            totals.insert(name, numbers);
        }
        (totals, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_over_all_topics_keeps_what_was_counted_of_a_topic_that_is_gone() {
        let counts = ReplicaCounts::default();
        let (kept, gone) = (counts.topic(&"kept".into()), counts.topic(&"gone".into()));
        assert!(Arc::ptr_eq(&gone, &counts.topic(&"gone".into())), "one for all partitions");
        kept.on_appended(2, 200);
        gone.on_appended(1, 100);
        drop(gone);
        let (topics, all) = counts.totals();
        assert_eq!(topics.keys().map(|name| &**name).collect::<Vec<_>>(), ["kept"]);
        assert_eq!((all.messages_in, all.bytes_in), (3, 300));
        assert_eq!(counts.topic(&"gone".into()).totals(), TopicTotals::default());
    }

    /// As Kafka counts: what a client does wrong every day is no failure of the broker.
    #[test]
    fn only_failures_that_are_not_everyday_count_as_failed() {
        let numbers = TopicNumbers::default();
        for error in [ErrorCode::None, ErrorCode::NotLeaderOrFollower, ErrorCode::MessageTooLarge] {
            numbers.on_produced(error, 10);
        }
        numbers.on_produced(ErrorCode::NotEnoughReplicas, 10);
        numbers.on_fetched(ErrorCode::OffsetOutOfRange);
        numbers.on_fetched(ErrorCode::UnknownServerError);
        let told = numbers.totals();
        assert_eq!((told.produce_requests, told.failed_produce_requests), (4, 1));
        assert_eq!((told.fetch_requests, told.failed_fetch_requests), (2, 1));
        assert_eq!(told.bytes_rejected, 10);
    }
}
