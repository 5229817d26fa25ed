//! What members subscribe to: names and regular expressions into topics, topics into ids, and the
//! hash that tells whether they are still what they were.

use std::collections::BTreeSet;

use protocol::Uuid;
use twox_hash::XxHash3_64;

use super::group::ConsumerGroup;
use super::member::Member;
use super::pattern::Pattern;
use crate::shard::Topics;

/// The names of the topics that the member subscribes to, those that do not exist included.
pub(super) fn names<'a>(group: &'a ConsumerGroup, member: &'a Member) -> BTreeSet<&'a str> {
    // A regular expression that is not resolved yet stands for nothing.
    let by_regex = group.regexes.get(&member.regex).filter(|_| !member.regex.is_empty());
    let by_regex = by_regex.into_iter().flat_map(|resolved| &resolved.topics);
    member.topics.iter().chain(by_regex).map(String::as_str).collect()
}

/// The ids of the topics that the member subscribes to, of those that exist.
pub(super) fn ids(group: &ConsumerGroup, member: &Member, topics: &dyn Topics) -> BTreeSet<Uuid> {
    names(group, member).into_iter().filter_map(|name| topics.topic_id(name)).collect()
}

/// A hash of the topics: their ids, names, partitions and racks. Zero without topics. It is the one
/// that Kafka computes, so that a log that moves between the two makes no group rebalance.
pub(super) fn metadata_hash<'a>(
    names: impl IntoIterator<Item = &'a str>,
    topics: &dyn Topics,
) -> i64 {
    let mut all = HashedBytes::default();
    let mut any = false;
    let sorted: BTreeSet<&str> = names.into_iter().collect();
    for name in sorted {
        if let Some(hash) = topic_hash(name, topics) {
            all.put_i64(hash);
            any = true;
        }
    }
    if any { all.finish() } else { 0 }
}

/// The version of what goes into the hash.
const TOPIC_HASH_FORMAT: u8 = 0;

fn topic_hash(name: &str, topics: &dyn Topics) -> Option<i64> {
    let id = topics.topic_id(name)?;
    let count = topics.partition_count(name)?;
    let mut hash = HashedBytes::default();
    hash.put_u8(TOPIC_HASH_FORMAT);
    let (high, low) = id.0.split_at(8);
    for half in [high, low] {
        hash.put_i64(half.iter().fold(0, |bits, byte| bits << 8 | i64::from(*byte)));
    }
    hash.put_string(name);
    hash.put_i32(count);
    for partition in 0..count {
        hash.put_i32(partition);
        let mut racks = topics.racks(name, partition);
        racks.sort_unstable();
        for rack in &racks {
            hash.put_i32(i32::try_from(rack.encode_utf16().count()).unwrap_or(i32::MAX));
            hash.put_string(rack);
        }
    }
    Some(hash.finish())
}

/// Values laid out as Kafka's hashing stream takes them in, then hashed at once (XXH3, 64 bits).
#[derive(Default)]
struct HashedBytes(Vec<u8>);

impl HashedBytes {
    fn put_u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn put_i32(&mut self, value: i32) {
        self.0.extend(value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    /// UTF-16 units, then how many.
    fn put_string(&mut self, text: &str) {
        let before = self.0.len();
        self.0.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        let units = (self.0.len() - before) / 2;
        self.put_i32(i32::try_from(units).unwrap_or(i32::MAX));
    }

    fn finish(self) -> i64 {
        XxHash3_64::oneshot(&self.0).cast_signed()
    }
}

/// The existing topics whose whole name matches.
pub(super) fn matching(pattern: &Pattern, topics: &dyn Topics) -> BTreeSet<String> {
    topics.names().into_iter().filter(|name| pattern.matches(name)).collect()
}
